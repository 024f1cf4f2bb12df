"""Rows of a delimited table whose writer quotes text but never escapes the quotes inside it. Pure.

Two paths give the same columns. The quick one splits a whole block at the quotes and is taken only where
every row of the block shows the same layout; the exact one takes single rows, and knows where the one
free-text column ends because the columns on both sides of it hold neither quotes nor commas.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import repeat

BLOCK = 1 << 18
_LONGEST = BLOCK // 2
_LINE_MOST = 1 << 20  # of one line; the longest real ones, of thousands of counters, have a tenth
_LINES_MOST = 32  # of one record
_PATIENCE = 1 << 16  # lines joined in vain before no more records over several lines are looked for
_NUMERIC = ("_timestamp", "_value")  # a line end after these does no harm to whoever reads them
_ROW_INSIDE = re.compile(rb'(?:,"?\d+"?){4,}.*"', re.DOTALL)

Batch = Mapping[str, Sequence[bytes]]


def header(line: bytes) -> list[str]:
    """Column names of a header line, as written."""
    text = line.decode("utf-8-sig", "replace").strip()
    return [field.strip().strip('"').strip() for field in text.split(",")]


class Table:
    """Turns blocks of rows into columns of raw text, whatever the order of the columns.

    ``wanted`` are the columns to give, ``free`` the one that may hold anything, ``ints`` those that must be
    decimal digits for a row to be believed, ``spare`` one that is emptied where it may have been cut.
    ``skipped`` counts rows given up, by reason.
    """

    def __init__(
        self,
        columns: Sequence[str],
        wanted: Sequence[str],
        free: str | None,
        ints: Sequence[str] = (),
        spare: str | None = None,
    ) -> None:
        self.columns = list(columns)
        self.wanted = [name for name in wanted if name in self.columns]
        self.skipped: dict[str, int] = {}
        self.partial = False
        self._at = {name: self.columns.index(name) for name in self.wanted}
        self._free = self.columns.index(free) if free in self.columns else len(self.columns) - 1
        self._ints = [self.columns.index(name) for name in ints if name in self.columns]
        self._after = len(self.columns) - 1 - self._free
        self._spare = self.columns[-1] == spare
        self._carry = b""
        self._endless = False
        self._patience = _PATIENCE
        self._quoted: tuple[bool, ...] | None = None

    def feed(self, data: bytes) -> Iterator[Batch]:
        """Columns of every row that is complete by now."""
        if self._endless:
            start = data.find(b"\n") + 1
            if not start:
                return
            data, self._endless = data[start:], False
        data = self._carry + data
        end = data.rfind(b"\n") + 1
        at = stop = 0
        while stop < end:
            limit = max(at + BLOCK, stop + 1)
            stop = (
                end if end <= limit else (data.rfind(b"\n", stop, limit) + 1 or data.find(b"\n", limit) + 1)
            )
            block = data[at:stop]
            left = 0
            if self._quoted is None:
                self._learn(block[: block.find(b"\n")])
            batch = self._quick(block)
            if batch is None:
                batch, left = self._exact(block, last=False)
            at = stop - left
            if batch[self.wanted[0]]:
                yield batch
        self._carry = data[at:]
        if len(self._carry) > _LINE_MOST:
            self._skip("malformed")
            self._carry, self._endless = b"", True

    def finish(self) -> Iterator[Batch]:
        """What was left over; a last row without a line end is used if nothing can be missing."""
        data, self._carry = self._carry, b""
        self.partial = self._endless
        if not data.strip():
            return
        if data.endswith(b"\n"):
            yield from self._whole(data)
            return
        self.partial = True
        start = data.rfind(b"\n") + 1
        if start and self._parse(data[start:]) is None and self._parse(data) is None:
            yield from self._whole(data[:start])
            data = data[start:]
        row = self._parse(data)
        if row is not None and self._spare:
            row[-1] = b""
        elif row is None or self._may_be_cut(row):
            self._skip("truncated")
            return
        yield {name: [row[i]] for name, i in self._at.items()}

    def _whole(self, data: bytes) -> Iterator[Batch]:
        batch, _ = self._exact(data, last=True)
        if batch[self.wanted[0]]:
            yield batch

    def _may_be_cut(self, row: Sequence[bytes]) -> bool:
        last = self.columns[-1]
        if last not in self._at:
            return False
        if last == "end_timestamp" and "start_timestamp" in self._at:
            start = row[self._at["start_timestamp"]]
            return not (start.isdigit() and row[-1].isdigit() and int(row[-1]) >= int(start))
        return True

    def _skip(self, reason: str) -> None:
        self.skipped[reason] = self.skipped.get(reason, 0) + 1

    # --- one row at a time ---------------------------------------------------------------------------

    def _parse(self, line: bytes) -> list[bytes] | None:
        parts = line.rstrip(b"\r\n").split(b",", self._free)
        if len(parts) != self._free + 1:
            return None
        tail = parts.pop().rsplit(b",", self._after)
        if len(tail) != self._after + 1:
            return None
        row = [*parts, *tail]
        free = self._free
        for i, field in enumerate(row):
            if field.find(b'"') < 0:
                if i == free and (field.find(b",") >= 0 or field.find(b"\n") >= 0):
                    return None
                continue
            if len(field) < 2 or field[:1] != b'"' or field[-1:] != b'"':
                return None
            inner = field[1:-1]
            if inner.find(b'"') >= 0 and (i != free or _swallowed(parts, inner)):
                return None
            row[i] = inner
        for i in self._ints:
            if not row[i].isdigit():
                return None
        return row

    def _exact(self, block: bytes, last: bool) -> tuple[Batch, int]:
        """Columns of the block's rows, and how many bytes at its end belong to a record that goes on."""
        lines = block.split(b"\n")
        if not lines[-1]:
            lines.pop()
        rows: list[list[bytes]] = []
        i, n = 0, len(lines)
        left = 0
        while i < n:
            text, j = lines[i], i
            row = self._parse(text)
            lost = i + min(_LINES_MOST, self._patience)
            most = min(n, lost)
            while row is None and j + 1 < most and self._open(text) and self._parse(lines[j + 1]) is None:
                j += 1
                text += b"\n" + lines[j]
                row = self._parse(text)
            if row is not None:
                rows.append(row)
                i = j + 1
            elif not last and n <= j + 1 < lost and self._open(text):
                left = len(text) + 1
                break
            else:
                if text.strip():
                    self._skip("malformed")
                self._patience -= j - i
                i += 1
        columns = list(zip(*rows, strict=True)) if rows else [()] * len(self.columns)
        return {name: columns[at] for name, at in self._at.items()}, left

    def _open(self, text: bytes) -> bool:
        """Whether a row could go on in the next line: too few columns so far, and not endless."""
        return (
            len(text) < _LONGEST and b'"' in text and text.count(b",", text.rfind(b'"')) < max(self._after, 1)
        )

    def _learn(self, line: bytes) -> None:
        """Which columns are quoted, from a row that can be read."""
        if self._parse(line) is not None:
            parts = line.rstrip(b"\r\n").split(b",", self._free)
            fields = [*parts[:-1], *parts[-1].rsplit(b",", self._after)]
            quoted = tuple(field[:1] == b'"' for field in fields)
            self._quoted = quoted if any(quoted) else None

    # --- a whole block -------------------------------------------------------------------------------

    def _quick(self, block: bytes) -> Batch | None:
        """Columns of a block in which each row has the layout of the first one seen; None if any has not."""
        quoted = self._quoted
        if quoted is None:
            return None
        pieces = block.split(b'"')
        period = 2 * sum(quoted)
        rows, rest = divmod(len(pieces) - 1, period)
        if rest or not rows or block.count(b"\n") != rows:
            return None
        columns: dict[int, Sequence[bytes]] = {}
        first, at, start = quoted.index(True), 1, 0
        for i in range(first, len(quoted)):
            if not quoted[i]:
                continue
            if i > first:
                if not _between(pieces[at::period], start, i - start, rows, columns):
                    return None
                at += 1
            columns[i] = pieces[at::period]
            if i != self._free and b"".join(columns[i]).find(b",") >= 0:
                return None  # only the free column holds commas; elsewhere something got into the row
            at, start = at + 1, i + 1
        ends = pieces[period::period]
        need = max((i for i in self._at.values() if i >= start), default=start - 1) - start + 1
        if first == 0 and need < len(quoted) - start:
            good = not pieces[0] and _tails(ends, start, len(quoted) - start, need, rows, columns)
        else:
            good = _around(pieces[0], ends, first, start, len(quoted) - start, rows, columns)
        if not good:
            return None
        if not quoted[-1] and self.columns[-1] in self._at and not self.columns[-1].endswith(_NUMERIC):
            columns[len(quoted) - 1] = [value.rstrip() for value in columns[len(quoted) - 1]]
        return {name: columns[i] for name, i in self._at.items()}


def _swallowed(before: Sequence[bytes], name: bytes) -> bool:
    """Whether a name with quotes in it looks as if it held the start of another row."""
    # find, because "in" raises and drops an error inside for every bytes operand
    return any(field[:1] == b'"' and name.find(field + b",") >= 0 for field in before) or bool(
        _ROW_INSIDE.search(name)
    )


def _between(pieces: list[bytes], start: int, count: int, rows: int, out: dict[int, Sequence[bytes]]) -> bool:
    """Unquoted columns between two quoted ones: ``,a,b,`` for each row."""
    if count == 0:
        return set(pieces) == {b","}
    flat = b"".join(pieces).split(b",")
    step = count + 1
    if len(flat) != rows * step + 1 or any(flat[::step]):
        return False
    for j in range(count):
        out[start + j] = flat[1 + j :: step]
    return True


def _tails(
    pieces: list[bytes], start: int, count: int, need: int, rows: int, out: dict[int, Sequence[bytes]]
) -> bool:
    """The first ``need`` of ``count`` columns after the last quoted one; the rest is only counted."""
    if not all(map(bytes.endswith, pieces, repeat(b"\n"))):
        return False
    if b"".join(pieces).count(b",") != rows * count:
        return False
    if count == 0:
        return set(pieces) <= {b"\n", b"\r\n"}
    if need:
        cut = list(zip(*[piece.split(b",", need + 1) for piece in pieces], strict=False))
        if len(cut) != need + 2 or any(cut[0]):
            return False
        for j in range(need):
            out[start + j] = cut[1 + j]
    return True


def _around(
    head: bytes,
    pieces: list[bytes],
    first: int,
    start: int,
    count: int,
    rows: int,
    out: dict[int, Sequence[bytes]],
) -> bool:
    """Unquoted columns after the last quoted one, the line end, and those before the next row's first."""
    flat = (head + b"".join(pieces)).replace(b"\r", b"").replace(b"\n", b"\n,").split(b",")
    step = first + 1 + count
    if len(flat) != rows * step + 1 or flat[-1]:
        return False
    if count == 0:
        if set(flat[first:-1:step]) != {b"\n"}:
            return False
    elif any(flat[first:-1:step]) or not all(map(bytes.endswith, flat[step - 1 :: step], repeat(b"\n"))):
        return False
    for j in range(first):
        out[j] = flat[j:-1:step]
    for j in range(count):
        out[start + j] = flat[first + 1 + j :: step]
    return True
