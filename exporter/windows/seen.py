"""A process that computes, as a look at it says, and how that travels between processes. Pure."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Seen:
    """One process with GPUs open. None is unknown: its files are not ours to read."""

    pid: int
    start: int
    age_s: float | None
    name: str
    user: int
    gpus: tuple[int, ...]  # KFD ids of the GPUs it has queues or memory on
    profiler: bool | None
    collectives: bool | None
    prepared: bool  # it can be attached to
    same_mounts: bool | None  # it sees the files that we see


def as_json(seen: list[Seen]) -> list[dict[str, Any]]:
    return [asdict(one) for one in seen]


def from_json(raw: list[dict[str, Any]]) -> list[Seen]:
    return [Seen(**{**one, "gpus": tuple(one["gpus"])}) for one in raw]
