"""Every configuration key as data: its path, type, default, bounds and names; derived from the models."""

from __future__ import annotations

import types
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Annotated, Any, Literal, TypeGuard, Union, cast, get_args, get_origin

from pydantic import BaseModel, ConfigDict, TypeAdapter
from pydantic.fields import FieldInfo

from exporter.config.durations import EXPECTED as DURATION
from exporter.config.durations import Duration, format_duration
from exporter.config.section import PathText
from exporter.config.settings import Config

ENV_PREFIX = "AMDGPU_EXPORTER_"
LIST = "a list of names that docs/METRICS.md knows, `*` for any text; as text with commas between them"
_STRICT = ConfigDict(strict=True)
_BOOLS = {"true": True, "false": False}


@dataclass(frozen=True)
class Key:
    """One key. ``path`` is dotted, as in messages, flags and documentation."""

    path: str
    info: FieldInfo
    section: type[BaseModel]

    @property
    def env(self) -> str:
        return ENV_PREFIX + self.path.upper().replace(".", "__")

    @property
    def flag(self) -> str | None:
        return self._extra.get("x-flag")

    @property
    def reloadable(self) -> bool:
        return bool(self._extra["x-reload"])

    @property
    def secret(self) -> bool:
        return bool(self._extra.get("x-secret"))

    @property
    def optional(self) -> bool:
        return type(None) in get_args(self.info.annotation)

    @property
    def default(self) -> str:
        """The default in words."""
        if derived := self._extra.get("x-default"):
            return str(derived)
        value = self.info.default
        if value is None:
            return "none"
        if self.kind == "list":
            return ", ".join(value) or "none"
        return format_duration(value) if self.kind == "duration" else str(value)

    @cached_property
    def kind(self) -> str:
        """duration, whole number, number, true or false, choice, path or text."""
        core = self._core
        if get_origin(core) is Literal:
            return "choice"
        if self._is(Duration):
            return "duration"
        if self._is(PathText):
            return "path"
        if get_origin(core) is tuple:
            return "list"
        return {int: "whole number", float: "number", bool: "true or false"}.get(core, "text")

    @property
    def choices(self) -> tuple[Any, ...]:
        """The values there are, of a choice."""
        return get_args(self._core)

    @property
    def bounds(self) -> tuple[float | None, float | None]:
        """The least and the greatest value, None where there is none."""
        low = [m.ge for m in self._metadata if hasattr(m, "ge")]
        high = [m.le for m in self._metadata if hasattr(m, "le")]
        return (max(low) if low else None), (min(high) if high else None)

    @cached_property
    def expected(self) -> str:
        """What a value must be, in words that fit behind "expected"."""
        if given := self._extra.get("x-expected"):
            return str(given)
        if self.kind == "choice":
            text = "one of " + ", ".join(self.choices)
        else:
            words = {"duration": DURATION, "true or false": "true or false", "list": LIST}
            text = words.get(self.kind, f"a {self.kind}")
        text += self._bounds()
        return f"{text}, or null for none" if self.optional else text

    def read_text(self, text: str) -> Any:
        """Return the value that a flag's or variable's text stands for, not yet checked."""
        if self.optional and text == "":
            return None
        if self.kind == "list":
            return [part.strip() for part in text.split(",") if part.strip()]
        try:
            if self.kind == "whole number":
                return int(text)
            if self.kind == "number":
                return float(text)
        except ValueError:
            return text
        return _BOOLS.get(text, text) if self.kind == "true or false" else text

    def check(self, value: Any) -> Any:
        """Return the typed value. Errors: ValueError (pydantic's is one) where it is not what is expected."""
        if self.kind == "duration" and not isinstance(value, str) and not (value is None and self.optional):
            raise ValueError("a duration is text with a unit")
        if self.kind == "list" and isinstance(value, list):
            value = tuple(value)
        return self._adapter.validate_python(value)

    def wrong(self, item: Any) -> bool:
        """Whether this one item of a list is what makes the list wrong."""
        try:
            self.check([item])
        except ValueError:
            return True
        return False

    @cached_property
    def _adapter(self) -> TypeAdapter[Any]:
        annotation: Any = self.info.annotation
        for item in self.info.metadata:
            annotation = Annotated[annotation, item]
        return TypeAdapter(annotation, config=_STRICT)

    @property
    def _extra(self) -> dict[str, Any]:
        return cast("dict[str, Any]", self.info.json_schema_extra)

    @cached_property
    def _core(self) -> Any:
        """The type without None and annotations."""
        return _bare(self.info.annotation)

    @cached_property
    def _metadata(self) -> tuple[Any, ...]:
        inner = [a for a in get_args(self.info.annotation) if get_origin(a) is Annotated]
        return (*self.info.metadata, *(m for a in inner for m in a.__metadata__))

    def _is(self, alias: Any) -> bool:
        return any(m is alias.__metadata__[0] for m in self._metadata)

    def _bounds(self) -> str:
        low, high = self.bounds
        write: Any = format_duration if self.kind == "duration" else str
        words = [f"at least {write(low)}"] if low is not None else []
        words += [f"at most {write(high)}"] if high is not None else []
        return ", " + " and ".join(words) if words else ""


@cache
def keys() -> dict[str, Key]:
    """All keys by path, in the order they are documented."""
    return {k.path: k for k in _walk(Config, "")}


def sections() -> dict[str, type[BaseModel]]:
    """The sections by name, in the order they are documented."""
    fields = {name: info.annotation for name, info in Config.model_fields.items()}
    return {name: annotation for name, annotation in fields.items() if _is_section(annotation)}


def _walk(section: type[BaseModel], prefix: str) -> Iterator[Key]:
    for name, info in section.model_fields.items():
        annotation = info.annotation
        if _is_section(annotation):
            yield from _walk(annotation, f"{prefix}{name}.")
        else:
            yield Key(prefix + name, info, section)


def _is_section(annotation: Any) -> TypeGuard[type[BaseModel]]:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


def _bare(annotation: Any) -> Any:
    if get_origin(annotation) is Annotated:
        return _bare(get_args(annotation)[0])
    if get_origin(annotation) in (Union, types.UnionType):
        return _bare(next(a for a in get_args(annotation) if a is not type(None)))
    return annotation
