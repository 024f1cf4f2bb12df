"""One YAML document -> (key path, value, line). Stricter than YAML: no key twice, and ``off`` is a word."""

from __future__ import annotations

import re
from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from typing import Any

import yaml

from exporter.model import ConfigError


class _Loader(yaml.SafeLoader):
    """Plain scalars as YAML 1.2 reads them; 1.1 turns ``off`` into false, ``1:30`` into 90."""


_Loader.yaml_implicit_resolvers = {}
for _tag, _pattern, _first in (
    ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    ("int", r"[-+]?[0-9]+", "-+0123456789"),
    (
        "float",
        r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)",
        "-+.0123456789",
    ),
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("merge", r"<<", "<"),
):
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(f"^(?:{_pattern})$"), list(_first))


def _int(loader: yaml.SafeLoader, node: yaml.ScalarNode) -> int:
    return int(loader.construct_scalar(node))  # 010 is ten, as in YAML 1.2


def _float(loader: yaml.SafeLoader, node: yaml.ScalarNode) -> float:
    return float(loader.construct_scalar(node).lower().replace(".inf", "inf").replace(".nan", "nan"))


def _bool(loader: yaml.SafeLoader, node: yaml.ScalarNode) -> bool:
    return loader.construct_scalar(node).lower() == "true"


_TAG = "tag:yaml.org,2002:"
_known = _Loader.yaml_constructors
# Other tags (dates, sets, binary) stand for nothing here; what has no constructor is an error with its line.
_Loader.yaml_constructors = {
    _TAG + "int": _int,
    _TAG + "float": _float,
    _TAG + "bool": _bool,
    None: _known[None],
    **{_TAG + name: _known[_TAG + name] for name in ("null", "str", "seq", "map")},
}


def read(blob: bytes, name: str, sections: AbstractSet[str]) -> Iterator[tuple[str, Any, int]]:
    """Yield each key below the top level and below each of ``sections``.

    Errors: ConfigError naming file and line, for syntax, a key given twice, or no mapping at the top.
    """
    try:
        loader = _Loader(blob)
        root = loader.get_single_node()
        if root is None or root.tag == _TAG + "null":
            return
        if not isinstance(root, yaml.MappingNode):
            raise ConfigError(
                f"{name}:{_line(root)}: expected keys with values, such as listen: 127.0.0.1:9408"
            )
        yield from _mapping(loader, root, name, "", sections)
    except yaml.MarkedYAMLError as e:
        mark = e.problem_mark or e.context_mark
        where = f"{name}:{mark.line + 1}" if mark else name
        raise ConfigError(f"{where}: not valid YAML: {e.problem or e.context}") from None
    except yaml.reader.ReaderError as e:
        line = blob[: e.position].count(b"\n") + 1
        raise ConfigError(f"{name}:{line}: not valid YAML: {e.reason}") from None
    except RecursionError:
        raise ConfigError(f"{name}: not valid configuration: nested too deep") from None
    except ValueError as e:  # a number of thousands of digits, or a tag that its text contradicts
        raise ConfigError(f"{name}: not valid YAML: {e}") from None


def _mapping(
    loader: _Loader, node: yaml.MappingNode, name: str, prefix: str, sections: AbstractSet[str]
) -> Iterator[tuple[str, Any, int]]:
    seen: dict[str, int] = {}
    for key_node, _ in node.value:
        key, line = _text(key_node), _line(key_node)
        if key in seen:
            raise ConfigError(f"{name}:{line}: {prefix}{key}: given twice, first in line {seen[key]}")
        seen[key] = line
    loader.flatten_mapping(node)
    for key_node, value_node in node.value:
        path = prefix + _text(key_node)
        if path in sections and isinstance(value_node, yaml.MappingNode):
            yield from _mapping(loader, value_node, name, path + ".", sections)
            continue
        value = loader.construct_object(value_node, deep=True)
        if path in sections and value is None:
            continue  # a section whose keys are all commented out
        yield path, value, _line(key_node)


def _text(node: yaml.Node) -> str:
    return node.value if isinstance(node, yaml.ScalarNode) else "(not a word)"


def _line(node: yaml.Node) -> int:
    return int(node.start_mark.line) + 1
