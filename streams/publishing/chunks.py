"""Cutting rows into chunks, and the plan of a file: how many chunks and what totals. Pure.

Both readings of a file cut it with the same code, so the second meets the chunks that the first
has planned, or the file has changed. Memory holds the open chunks and, of a file that is done, 16
bytes a chunk and a few sums a run.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from decimal import Decimal

from connectors.errors import ConfigurationError
from schemas.chunk import (
    CHAIN_START,
    CHUNK_RECORDS_DEFAULT,
    Declaration,
    link,
)
from schemas.envelope import raw_digest
from streams.publishing.rows import Row

CHUNK_BYTES_DEFAULT = 4 * 1024 * 1024
"""Half of what a worker takes in one batch, so that a chunk mostly begins and ends in one."""
OPEN_CHUNKS_MAX = 1_000
OPEN_BYTES_MAX = 64 * 1024 * 1024
"""What open chunks of interleaved runs may hold together; beyond it the fullest is closed."""
ROW_OVERHEAD_BYTES = 700
"""About what Python needs for a row besides its bytes."""
RUNS_MAX = 10_000
"""Most runs in one file."""
LINES_NAMED_MAX = 20
_FINGERPRINT_BYTES = 16


@dataclass(frozen=True, slots=True)
class ChunkLimits:
    """How large a chunk may be. One that is a single record may have more bytes."""

    records: int = CHUNK_RECORDS_DEFAULT
    bytes: int = CHUNK_BYTES_DEFAULT


@dataclass(slots=True)
class Chunk:
    """Rows that are sent in one transaction. Without a run it has no headers and no number."""

    run: str | None
    currency: str = ""
    number: int = 0
    """n: its number in its run, from 1, given when it is closed."""
    rows: list[Row] = field(default_factory=list)
    size_bytes: int = 0
    total: Decimal = Decimal(0)
    """Of the amounts that can be read."""
    unreadable: int = 0
    """Rows whose amount cannot be."""
    chain: bytes = CHAIN_START

    def add(self, row: Row) -> None:
        """Put a row at the end."""
        self.rows.append(row)
        self.size_bytes += row.size_bytes
        self.chain = link(self.chain, raw_digest(row.value))
        if row.amount is None:
            self.unreadable += 1
        else:
            self.total += row.amount

    def declaration(self, of: int) -> Declaration:
        """What its first member says, in a run of so many chunks."""
        return Declaration(
            self.run or "", self.number, of, len(self.rows), self.currency, self.total, self.chain
        )

    def fingerprint(self) -> bytes:
        """By which the second reading recognises it."""
        told = self.declaration(1 + self.number).header()
        return hashlib.sha256(told).digest()[:_FINGERPRINT_BYTES]


class Cutter:
    """Cuts rows into chunks.

    A run's rows of one currency go to its open chunk. A row whose run cannot be read goes where the
    row before it went, or with the first that has a run, so that the chunk's members stay together
    as they stood in the file. Rows that no run takes make chunks without one. Rows that are too
    large are left out.
    """

    def __init__(self, limits: ChunkLimits, borders: Iterable[int] = ()) -> None:
        """No chunk crosses a border: `borders` are the numbers, growing, of rows after which all
        open chunks are closed."""
        self._limits = limits
        self._borders = iter(borders)
        self._border = next(self._borders, None)
        self._rows = 0
        self._open: dict[tuple[str, str], Chunk] = {}
        self._open_bytes = 0
        self._last: tuple[str, str] | None = None
        self._loose = Chunk(None)
        self._numbers: dict[str, int] = {}

    def add(self, row: Row) -> Iterator[Chunk]:
        """Take a row; yields the chunks that are closed by it. Raises `ConfigurationError` for more
        runs than a file may hold."""
        self._rows += 1
        if not row.too_large:
            yield from self._take(row)
        if self._rows == self._border:
            self._border = next(self._borders, None)
            yield from self.flush()

    def _take(self, row: Row) -> Iterator[Chunk]:
        if row.run is not None:
            self._last = (row.run, row.currency)
        if self._last is None:
            yield from self._add_loose(row)
            return
        waiting, self._loose = self._loose.rows, Chunk(None)
        for one in (*waiting, row):
            yield from self._add(self._last, one)

    def flush(self) -> Iterator[Chunk]:
        """Close what is open, in the order it was opened."""
        if self._loose.rows:
            loose, self._loose = self._loose, Chunk(None)
            yield loose
        for place in list(self._open):
            yield self._close(place)

    def _add_loose(self, row: Row) -> Iterator[Chunk]:
        if self._loose.rows and self._is_full(self._loose, row):
            yield from self.flush()
        self._loose.add(row)

    def _add(self, place: tuple[str, str], row: Row) -> Iterator[Chunk]:
        chunk = self._open.get(place)
        if chunk is not None and self._is_full(chunk, row):
            yield self._close(place)
            chunk = None
        if chunk is None:
            if len(self._open) >= OPEN_CHUNKS_MAX:
                yield self._close(self._fullest())
            chunk = self._open[place] = Chunk(*place)
        chunk.add(row)
        self._open_bytes += row.size_bytes + ROW_OVERHEAD_BYTES
        if len(chunk.rows) >= self._limits.records:
            yield self._close(place)
        while self._open_bytes > OPEN_BYTES_MAX:
            yield self._close(self._fullest())

    def _is_full(self, chunk: Chunk, row: Row) -> bool:
        return (
            len(chunk.rows) >= self._limits.records
            or chunk.size_bytes + row.size_bytes > self._limits.bytes
        )

    def _fullest(self) -> tuple[str, str]:
        return max(self._open, key=lambda place: self._open[place].size_bytes)

    def _close(self, place: tuple[str, str]) -> Chunk:
        chunk = self._open.pop(place)
        self._open_bytes -= chunk.size_bytes + len(chunk.rows) * ROW_OVERHEAD_BYTES
        run, _ = place
        if run not in self._numbers and len(self._numbers) >= RUNS_MAX:
            message = (
                f"more than {RUNS_MAX} runs in one file: a run is one payroll run of the source, "
                "not a statement. Split the file if it is right"
            )
            raise ConfigurationError(message)
        chunk.number = self._numbers[run] = self._numbers.get(run, 0) + 1
        return chunk


@dataclass(slots=True)
class RunPlan:
    """What a file holds of one run."""

    chunks: int = 0
    records: int = 0
    totals: dict[str, Decimal] = field(default_factory=dict)
    """By currency."""
    unreadable: int = 0
    malformed: int = 0

    def add(self, chunk: Chunk) -> None:
        """Count a chunk."""
        self.chunks += 1
        self.records += len(chunk.rows)
        self.totals[chunk.currency] = self.totals.get(chunk.currency, Decimal(0)) + chunk.total
        self.unreadable += chunk.unreadable
        self.malformed += sum(row.malformed for row in chunk.rows)


@dataclass(slots=True)
class Plan:
    """What the first reading found, and what the second must find."""

    runs: dict[str, RunPlan] = field(default_factory=dict)
    chunks: int = 0
    records: int = 0
    malformed: int = 0
    too_large: int = 0
    too_large_lines: list[int] = field(default_factory=list)
    """The first lines of those, some of them."""
    _fingerprints: bytearray = field(default_factory=bytearray)

    def add(self, chunk: Chunk) -> None:
        """Count a chunk."""
        self.chunks += 1
        self.records += len(chunk.rows)
        self.malformed += sum(row.malformed for row in chunk.rows)
        self._fingerprints += chunk.fingerprint()
        if chunk.run is not None:
            self.runs.setdefault(chunk.run, RunPlan()).add(chunk)

    def leave_out(self, row: Row) -> None:
        """Count a row that no topic takes."""
        self.too_large += 1
        if len(self.too_large_lines) < LINES_NAMED_MAX:
            self.too_large_lines.append(row.line)

    def meets(self, index: int, chunk: Chunk) -> bool:
        """Whether the chunk is the one that was planned at this place, from 0."""
        at = index * _FINGERPRINT_BYTES
        return self._fingerprints[at : at + _FINGERPRINT_BYTES] == chunk.fingerprint()
