"""The history's child: owns the file, answers the daemon. ``python -m exporter.history.worker SPEC``."""

from __future__ import annotations

import contextlib
from typing import Any

from exporter import worker
from exporter.history.store import Store
from exporter.windows import wire

_TRIM_EVERY = 64


class Keeper:
    """Opens the file with the first request, so that a file that cannot be used says why in an answer."""

    def __init__(self, spec: worker.Message) -> None:
        self._spec = spec
        self._store: Store | None = None
        self._appended = 0

    @property
    def store(self) -> Store:
        if self._store is None:
            spec = self._spec
            self._store = Store(spec["folder"], int(spec["max_bytes"]), float(spec["max_age_s"]))
        return self._store

    def open(self, request: worker.Message) -> worker.Message:
        """All that is kept by key, the phases, and what had to be done to the file."""
        store = self.store
        gone = store.trim(float(request["now"]))
        return {
            "state": store.state(),
            "phases": store.phases(),
            "notes": store.notes,
            "gone": gone,
            **store.counts(),
        }

    def set_state(self, request: worker.Message) -> worker.Message:
        self.store.set_state(request["values"])
        return {}

    def has(self, request: worker.Message) -> worker.Message:
        return {"known": self.store.has(request["origin"])}

    def append(self, request: worker.Message) -> worker.Message:
        window, _, results = wire.decode(request)
        self.store.append(
            window,
            results,
            request["outcome"],
            float(request["at"]),
            request["origin"],
            request["contexts"],
            request["state"],
        )
        self._appended += 1
        gone = self.store.trim(float(request["at"])) if self._appended % _TRIM_EVERY == 0 else 0
        return {"gone": gone, **self.store.counts()}

    def mark(self, request: worker.Message) -> worker.Message:
        self.store.mark(request["phase"], float(request["at"]))
        return {"phases": self.store.phases()}


def main() -> None:
    keeper = Keeper(worker.spec())
    operations: dict[str, Any] = {
        name: getattr(keeper, name) for name in ("open", "set_state", "has", "append", "mark")
    }
    with contextlib.suppress(KeyboardInterrupt):
        worker.serve(operations)


if __name__ == "__main__":
    main()
