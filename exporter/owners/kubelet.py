"""Which pods hold which devices, as the kubelet lists them on its pod-resources socket (gRPC, v1).

The messages are declared here instead of being generated: generated code refuses to run with an older library
than it was made with. Of each message only what is read here is declared; the rest is stepped over.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from typing import Any, NamedTuple

from exporter.model import Reason, SourceError

METHOD = "/v1.PodResourcesLister/List"
_CONNECT_S = 1.0
_SIZE_MAX = 16 << 20
_INSTALL = "pip install 'amdgpu-exporter[kubernetes]'"

# message -> field -> (number, type, repeated); a type in capitals is one of the messages.
_MESSAGES: dict[str, dict[str, tuple[int, str, bool]]] = {
    "Request": {},
    "Response": {"pod_resources": (1, "Pod", True)},
    "Pod": {
        "name": (1, "string", False),
        "namespace": (2, "string", False),
        "containers": (3, "Container", True),
    },
    "Container": {
        "name": (1, "string", False),
        "devices": (2, "Devices", True),
        "dynamic_resources": (5, "Claim", True),
    },
    "Devices": {"resource_name": (1, "string", False), "device_ids": (2, "string", True)},
    "Claim": {"claim_resources": (4, "ClaimDevice", True)},
    "ClaimDevice": {"driver_name": (2, "string", False), "device_name": (4, "string", False)},
}


class Held(NamedTuple):
    """One device that one container holds; ``resource`` is the plugin's resource or the claim's driver."""

    namespace: str
    pod: str
    container: str
    resource: str
    device: str


class Kubelet:
    """One connection, made when first needed and again when it broke."""

    def __init__(self, socket: str) -> None:
        self._socket = socket
        self._channel: Any = None
        self._list: Any = None

    def held(self, deadline_s: float) -> list[Held]:
        """Ask once. Errors: SourceError that says what is wrong and what to do."""
        call = self._call()
        import grpc

        try:
            answer = call(_message("Request")(), timeout=deadline_s)
        except grpc.RpcError as e:
            self._drop()
            raise SourceError(*_why(e, self._socket, deadline_s)) from None
        return list(_rows(answer))

    def _call(self) -> Any:
        if self._list is not None:
            return self._list
        _check(self._socket)
        try:
            import grpc

            response = _message("Response")
        except ImportError as e:
            raise SourceError(Reason.UNSUPPORTED, f"{e.name} is not installed: {_INSTALL}") from None
        options = (("grpc.max_receive_message_length", _SIZE_MAX), ("grpc.enable_http_proxy", 0))
        self._channel = grpc.insecure_channel(f"unix://{os.path.abspath(self._socket)}", options)
        self._list = self._channel.unary_unary(
            METHOD,
            request_serializer=lambda m: m.SerializeToString(),
            response_deserializer=response.FromString,
        )
        return self._list

    def _drop(self) -> None:
        """Begin anew next time: a restarted kubelet makes another socket under the same name."""
        if self._channel is not None:
            self._channel.close()
        self._channel = self._list = None


def _check(path: str) -> None:
    """Say plainly what is wrong with the socket, which gRPC wraps in layers."""
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        raise SourceError(
            Reason.UNSUPPORTED, f"{path}: no such socket; mount the kubelet's pod-resources folder, read-only"
        ) from None
    except OSError as e:
        raise SourceError(Reason.DENIED, f"{path}: {e.strerror}") from None
    if not stat.S_ISSOCK(mode):
        raise SourceError(Reason.MALFORMED, f"{path}: not a socket")
    if not os.access(path, os.W_OK):
        raise SourceError(
            Reason.DENIED, f"{path}: permission denied; it belongs to root, so the reader must run as root"
        )


def _why(error: Any, path: str, deadline_s: float) -> tuple[Reason, str]:
    import grpc

    code = error.code() if hasattr(error, "code") else None
    if code is grpc.StatusCode.DEADLINE_EXCEEDED:
        return Reason.TIMEOUT, f"{path}: no answer within {deadline_s:g} s"
    if code is grpc.StatusCode.UNIMPLEMENTED:
        return (
            Reason.UNSUPPORTED,
            f"{path}: no {METHOD} there; this kubelet is older than 1.20, or it is none",
        )
    if code in (grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.UNAUTHENTICATED):
        return Reason.DENIED, f"{path}: {error.details()}"
    if code is grpc.StatusCode.UNAVAILABLE:
        return Reason.GONE, f"{path}: the kubelet does not answer: {error.details()}"
    return Reason.MALFORMED, f"{path}: {code.name if code else type(error).__name__}: {error.details()}"


def _rows(answer: Any) -> Iterator[Held]:
    for pod in answer.pod_resources:
        for container in pod.containers:
            for devices in container.devices:
                for device in devices.device_ids:
                    yield Held(pod.namespace, pod.name, container.name, devices.resource_name, device)
            for claim in container.dynamic_resources:
                for one in claim.claim_resources:
                    yield Held(pod.namespace, pod.name, container.name, one.driver_name, one.device_name)


_CLASSES: dict[str, Any] = {}


def _message(name: str) -> Any:
    """The class of a message; all are made at once, in a pool of their own."""
    if not _CLASSES:
        from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

        package = "amdgpu.podresources"
        file = descriptor_pb2.FileDescriptorProto(name="podresources.proto", package=package, syntax="proto3")
        for message, fields in _MESSAGES.items():
            made = file.message_type.add(name=message)
            for key, (number, kind, repeated) in fields.items():
                field = made.field.add(name=key, number=number, label=3 if repeated else 1)
                if kind == "string":
                    field.type = field.TYPE_STRING
                else:
                    field.type, field.type_name = field.TYPE_MESSAGE, f".{package}.{kind}"
        pool = descriptor_pool.DescriptorPool()
        pool.Add(file)
        for message in _MESSAGES:
            found = pool.FindMessageTypeByName(f"{package}.{message}")
            _CLASSES[message] = message_factory.GetMessageClass(found)
    return _CLASSES[name]
