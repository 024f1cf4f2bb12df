"""In what sizes work was launched: another mix of sizes is another batch, and no change of the software."""

from __future__ import annotations

import csv
import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from exporter.windows import rocpd

_ROWS_MOST = 50_000
_SIZES_MOST = 8
_STEP = 0.05
_OTHER = "other"
_ONE = ("grid_size", "grd")


def mix(paths: Iterable[Path]) -> dict[str, float]:
    """Shares of the launches by grid size, from one table that has it.

    Shape:  ``256x1x1`` -> 0.25; steps of a twentieth, so that windows of one job agree; seldom ones together.
    Absent: empty where no file says it.
    """
    files = [file for path in paths for file in (_below(path) if path.is_dir() else [path])]
    for file in files:
        if file.suffix == ".db" and (found := rocpd.grids(file)):
            return _shares(found)
        if file.suffix.lower() == ".csv" and (found := of_table(table(file, _ROWS_MOST))):
            return _shares(found)
    return {}


def of_table(rows: Iterable[Mapping[str, str]]) -> Counter[str]:
    """How many launches had which size; those of each dispatch once."""
    found: Counter[str] = Counter()
    seen: set[str] = set()
    for row in rows:
        sizes = [row[f"grid_size_{axis}"] for axis in "xyz" if row.get(f"grid_size_{axis}")]
        size = "x".join(sizes) or next((row[name] for name in _ONE if row.get(name)), "")
        if not size:
            return found  # no such column
        dispatch = row.get("dispatch_id", "")
        if not (dispatch and dispatch in seen):
            seen.add(dispatch)
            found[size] += 1
    return found


def table(file: Path, most: int) -> Iterator[dict[str, str]]:
    """Rows of a table by the names in its head, in small letters; what cannot be read gives none."""
    try:
        with open(file, encoding="utf-8", errors="replace", newline="") as stream:
            lines = csv.reader(stream)
            heads = [h.strip().lower() for h in next(lines, [])]
            for cells in itertools.islice(lines, most):
                yield dict(zip(heads, cells, strict=False))
    except (OSError, csv.Error):
        return  # the intake says what is wrong with it


def _below(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())


def _shares(found: Mapping[str, int]) -> dict[str, float]:
    total = sum(found.values())
    ranked = sorted(found.items(), key=lambda item: (-item[1], item[0]))[:_SIZES_MOST]
    shares = {size: round(round(count / total / _STEP) * _STEP, 2) for size, count in ranked}
    shares = {size: share for size, share in shares.items() if share}
    rest = round(1 - sum(shares.values()), 2)
    return shares | ({_OTHER: rest} if rest > 0 else {})
