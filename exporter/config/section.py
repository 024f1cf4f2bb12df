"""What sections of the configuration are made of: how a key is declared, and the types of values."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field


def _path(text: str) -> str:
    if not text or "\0" in text:
        raise ValueError("expected a path")
    return text


PathText = Annotated[str, AfterValidator(_path)]
Ratio = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
# A list, so that it can also be given as one text with commas.
Texts = tuple[str, ...]


def declare(
    default: Any,
    text: str,
    *,
    flag: str | None = None,
    reload: bool = True,
    expected: str | None = None,
    derived: str | None = None,
    secret: bool = False,
    **bounds: Any,
) -> Any:
    """Declare one key. ``derived`` words a default that ``default``, then a factory, takes from others."""
    extra: dict[str, Any] = {"x-reload": reload}
    for name, value in (("flag", flag), ("expected", expected), ("default", derived), ("secret", secret)):
        if value:
            extra[f"x-{name}"] = value
    if derived:
        return Field(default_factory=default, description=text, json_schema_extra=extra, **bounds)
    return Field(default, description=text, json_schema_extra=extra, **bounds)


class Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
