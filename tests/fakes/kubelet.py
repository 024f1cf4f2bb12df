"""A kubelet's pod-resources service (v1) on a unix socket, speaking real gRPC.

The messages are made here from the published field numbers, apart from those of the exporter.
"""

from __future__ import annotations

import time
from concurrent import futures
from pathlib import Path
from typing import Any, Self

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory

_STRING, _MESSAGE, _UINT64 = 9, 11, 4
_FILE = {
    "ListPodResourcesRequest": (),
    "ListPodResourcesResponse": (("pod_resources", 1, "PodResources", True),),
    "PodResources": (
        ("name", 1, _STRING, False),
        ("namespace", 2, _STRING, False),
        ("containers", 3, "ContainerResources", True),
    ),
    "ContainerResources": (
        ("name", 1, _STRING, False),
        ("devices", 2, "ContainerDevices", True),
        ("cpu_ids", 3, _UINT64, True),
        ("dynamic_resources", 5, "DynamicResource", True),
    ),
    "ContainerDevices": (("resource_name", 1, _STRING, False), ("device_ids", 2, _STRING, True)),
    "DynamicResource": (
        ("claim_name", 2, _STRING, False),
        ("claim_namespace", 3, _STRING, False),
        ("claim_resources", 4, "ClaimResource", True),
    ),
    "ClaimResource": (
        ("driver_name", 2, _STRING, False),
        ("pool_name", 3, _STRING, False),
        ("device_name", 4, _STRING, False),
    ),
}


def _classes() -> dict[str, Any]:
    file = descriptor_pb2.FileDescriptorProto(name="fake_kubelet.proto", package="v1", syntax="proto3")
    for name, fields in _FILE.items():
        message = file.message_type.add(name=name)
        for key, number, kind, repeated in fields:
            field = message.field.add(name=key, number=number, label=3 if repeated else 1)
            if isinstance(kind, str):
                field.type, field.type_name = _MESSAGE, f".v1.{kind}"
            else:
                field.type = kind
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {n: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"v1.{n}")) for n in _FILE}


_CLASSES = _classes()


def pod(
    namespace: str, name: str, container: str, *devices: str, resource: str = "amd.com/gpu"
) -> dict[str, Any]:
    """One pod with one container that holds devices."""
    held = [{"resource_name": resource, "device_ids": list(devices)}]
    return {"name": name, "namespace": namespace, "containers": [{"name": container, "devices": held}]}


def claim(
    namespace: str, name: str, container: str, *devices: str, driver: str = "gpu.amd.com"
) -> dict[str, Any]:
    """One pod whose devices came by a resource claim."""
    found = [{"driver_name": driver, "pool_name": "node", "device_name": d} for d in devices]
    claims = [{"claim_name": "c", "claim_namespace": namespace, "claim_resources": found}]
    return {
        "name": name,
        "namespace": namespace,
        "containers": [{"name": container, "dynamic_resources": claims}],
    }


class Kubelet:
    """``pods`` is what List answers, ``delay_s`` how late, ``garbage`` bytes in place of an answer."""

    def __init__(self, socket: Path) -> None:
        self.socket = socket
        self.pods: list[dict[str, Any]] = []
        self.delay_s = 0.0
        self.garbage: bytes | None = None
        self.code: grpc.StatusCode | None = None
        self.asked = 0
        self._server: grpc.Server | None = None

    def start(self) -> Self:
        handlers = {
            "List": grpc.unary_unary_rpc_method_handler(
                self._answer,
                request_deserializer=_CLASSES["ListPodResourcesRequest"].FromString,
                response_serializer=lambda m: m if isinstance(m, bytes) else m.SerializeToString(),
            )
        }
        self._server = grpc.server(futures.ThreadPoolExecutor(4))
        generic = grpc.method_handlers_generic_handler("v1.PodResourcesLister", handlers)
        self._server.add_generic_rpc_handlers((generic,))
        self._server.add_insecure_port(f"unix://{self.socket}")
        self._server.start()
        return self

    def stop(self) -> None:
        if self._server:
            self._server.stop(0).wait(5)
            self._server = None
        self.socket.unlink(missing_ok=True)

    def _answer(self, _request: Any, context: Any) -> Any:
        self.asked += 1
        if self.delay_s:
            time.sleep(self.delay_s)
        if self.code:
            context.abort(self.code, "as told")
        if self.garbage is not None:
            return self.garbage
        answer = {"pod_resources": self.pods}
        return json_format.ParseDict(
            answer, _CLASSES["ListPodResourcesResponse"](), ignore_unknown_fields=True
        )
