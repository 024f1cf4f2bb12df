"""Check objects as an API server would, many at a time; run by the Python of tests/install-kube-parts.

Each line of stdin is ``{"objects": [...], "versions": ["1.28", ...]}``; the answer is a line of faults.
"""

from __future__ import annotations

import json
import sys
import types
import typing
import warnings
from collections.abc import Iterator
from functools import cache
from typing import Any

import jsonschema
from cloudcoil.models.prometheus_operator import v1
from kubernetes_validate import utils
from pydantic import BaseModel, ValidationError
from referencing import Registry, Resource

OPERATOR = ("PrometheusRule", "ServiceMonitor", "PodMonitor")
FOLDERS = {utils.major_minor(v): f"kubernetes-json-schema/v{v}-local-strict" for v in utils.all_versions()}


def faults(thing: dict[str, Any], versions: list[str]) -> Iterator[str]:
    name = f"{thing.get('kind')} {thing.get('metadata', {}).get('name')}"
    if thing.get("kind") in OPERATOR:
        model = getattr(v1, thing["kind"])
        try:
            model.model_validate(thing)
        except ValidationError as e:
            yield f"{name}: {e}"
        # The models take keys that they do not know.
        yield from (f"{name}: {path}: unknown key" for path in unknown(model, thing, ""))
        return
    for version in versions:
        for fault in strictly(json.dumps(thing), version):
            yield f"{name}, {version}: {fault}"


@cache
def strictly(text: str, version: str) -> list[str]:
    """What is wrong with one object; the same one comes many times."""
    thing = json.loads(text)
    group, _, number = thing["apiVersion"].rpartition("/")
    kind = "-".join(filter(None, (thing["kind"].lower(), group.split(".")[0], number)))
    return [f"{e.message} at {list(e.path)}" for e in validator(kind, version).iter_errors(thing)]


@cache
def validator(kind: str, version: str) -> Any:
    """The schema of a kind with what it refers to; read and indexed once, which is what takes the time."""
    schema = utils.schema_contents(f"{FOLDERS[version]}/{kind}.json", version)
    registry = Resource.from_contents(schema) @ definitions(version)
    return jsonschema.validators.Draft202012Validator(schema, registry=registry)


@cache
def definitions(version: str) -> Any:
    contents = utils.schema_contents(f"{FOLDERS[version]}/_definitions.json", version)
    return (Resource.from_contents(contents) @ Registry()).crawl()


def unknown(model: Any, data: Any, path: str) -> Iterator[str]:
    """Paths of the keys in ``data`` that ``model`` has no field for."""
    for each in models(model):
        if isinstance(data, list):
            for at, item in enumerate(data):
                yield from unknown(each, item, f"{path}[{at}]")
        elif isinstance(data, dict):
            fields = {field.alias or name: field for name, field in each.model_fields.items()}
            for key, value in data.items():
                if key not in fields:
                    yield f"{path}.{key}"
                else:
                    yield from unknown(fields[key].annotation, value, f"{path}.{key}")
        return


def models(annotation: Any) -> Iterator[type[BaseModel]]:
    """The models inside an annotation."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    elif typing.get_origin(annotation) in (typing.Union, types.UnionType, list, typing.Annotated):
        for inner in typing.get_args(annotation):
            yield from models(inner)


def main() -> None:
    warnings.simplefilter("ignore")
    for line in sys.stdin:
        asked = json.loads(line)
        found = [fault for thing in asked["objects"] for fault in faults(thing, asked["versions"])]
        print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
