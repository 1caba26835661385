"""CSV (RFC 4180, UTF-8): the header names contract fields, a row becomes a JSON object of strings.

Rows may end in LF, CR LF or a lone CR, mixed; inside quotes all three are text. An empty cell is an
absent member. A row that cannot be mapped keeps its bytes and says why; a quote that goes wrong
across lines leaves it open where rows begin, and refuses the file. Cells are not trimmed or
converted: what is in them is for the gate to judge.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from connectors.files.rows import (
    BYTE_ORDER_MARK,
    CHUNK_BYTES,
    ROW_BYTES_MAX,
    FileRow,
    MalformedFile,
)

_QUOTE, _COMMA = ord('"'), ord(",")
_END_OF_CELL = re.compile(rb"[,\r\n]")
_END_OF_ROW = re.compile(rb"[\r\n]")


@dataclass(frozen=True, slots=True)
class CsvFields:
    """What may stand in a header; see `streams.publish` for how it follows from the contract."""

    known: Collection[str]
    lists: Collection[str] = ()
    """Known fields that hold lists or objects, which a cell cannot."""


def csv_rows(file: BinaryIO, path: Path, fields: CsvFields | None = None) -> Iterator[FileRow]:
    """The records of a file.

    With `fields`, a header that names none of them, or one that holds lists, refuses the file.
    Raises `MalformedFile`.
    """
    names: list[str] | None = None
    for cut in _Cutter(file, path).rows():
        if names is None:
            names = _header(cut, path, fields)
            continue
        row = _row(cut, names)
        if row is not None:
            yield row
    if names is None:
        raise MalformedFile(path, None, "is empty: the first row must name the fields")


def _header(cut: _Cut, path: Path, fields: CsvFields | None) -> list[str]:
    """The names of the columns. Raises `MalformedFile` unless each is there and there once."""
    try:
        names = cut.texts()
    except UnicodeDecodeError:
        raise MalformedFile(path, cut.line, "the header is not UTF-8") from None
    if cut.error is not None:
        raise MalformedFile(path, cut.line, f"the header cannot be read: {cut.error}")
    for number, name in enumerate(names, 1):
        if not name.strip():
            raise MalformedFile(path, cut.line, f"column {number} has no name")
        if name in names[: number - 1]:
            why = f"two columns are called {name!r}: which one counts cannot be told"
            raise MalformedFile(path, cut.line, why)
    if fields is not None:
        _check_fields(names, path, cut.line, fields)
    return names


def _check_fields(names: Sequence[str], path: Path, line: int, fields: CsvFields) -> None:
    lists = sorted(set(names) & set(fields.lists))
    if lists:
        why = (
            f"column {lists[0]!r} holds a list, which a CSV cell cannot: use NDJSON for records "
            f"with {', '.join(sorted(fields.lists))}"
        )
        raise MalformedFile(path, line, why)
    if not set(names) & set(fields.known):
        why = (
            "the header names no field of the contract. It must be the first row, comma-separated, "
            f"with names such as {', '.join(sorted(set(fields.known) - set(fields.lists))[:5])}"
        )
        raise MalformedFile(path, line, why)


def _row(cut: _Cut, names: Sequence[str]) -> FileRow | None:
    """The record of a row; None for one without any content."""
    if cut.error is not None:
        return FileRow(cut.raw, cut.line, cut.end_offset, error=cut.error)
    try:
        texts = cut.texts()
    except UnicodeDecodeError:
        return FileRow(cut.raw, cut.line, cut.end_offset, error="not UTF-8")
    if not any(map(str.strip, texts)):
        return None
    if len(texts) != len(names):
        error = f"{len(texts)} columns, the header has {len(names)}"
        return FileRow(cut.raw, cut.line, cut.end_offset, error=error)
    members = {name: text for name, text in zip(names, texts, strict=True) if text}
    value = json.dumps(members, ensure_ascii=False, separators=(",", ":")).encode()
    return FileRow(value, cut.line, cut.end_offset, members=members)


@dataclass(slots=True)
class _Cut:
    """A row as cut out of the file."""

    raw: bytes
    """Its bytes without the line ending."""
    cells: Sequence[bytes] | None
    """Its cells with their quotes undone; None where no quote is, and commas alone tell."""
    line: int
    end_offset: int
    error: str | None = None

    def texts(self) -> list[str]:
        """The cells. Raises `UnicodeDecodeError`."""
        if self.cells is None:
            return self.raw.decode("utf-8").split(",")
        return [cell.decode("utf-8") for cell in self.cells]


class _NeedMore(Exception):
    """The buffer ends before the row does."""


class _Cutter:
    """Cuts a file into rows, holding one chunk and one row in memory."""

    def __init__(self, file: BinaryIO, path: Path) -> None:
        self._file = file
        self._path = path
        self._buffer = b""
        self._at = 0
        self._read = 0
        self._line = 1
        self._ended = False

    def rows(self) -> Iterator[_Cut]:
        """All rows, blank ones left out. Raises `MalformedFile`."""
        self._fill()
        if self._buffer.startswith(BYTE_ORDER_MARK):
            self._at = len(BYTE_ORDER_MARK)
        while True:
            try:
                cut = self._plain() or self._quoted()
            except _NeedMore:
                self._fill()
                continue
            if cut is None:
                return
            if cut.raw:
                yield cut

    def _fill(self) -> None:
        """Read on; what is left of the present row stays at the front of the buffer."""
        rest = self._buffer[self._at :]
        if len(rest) > ROW_BYTES_MAX:
            why = f"a row of more than {ROW_BYTES_MAX} bytes; is a quote not closed?"
            raise MalformedFile(self._path, self._line, why)
        more = self._file.read(max(CHUNK_BYTES, len(rest)))
        self._ended = not more
        self._read += len(more)
        self._buffer, self._at = rest + more, 0

    def _plain(self) -> _Cut | None:
        """The next row if it holds no quote and ends in LF or CR LF: the way of nearly all rows."""
        end = self._buffer.find(b"\n", self._at)
        if end < 0:
            return None
        raw = self._buffer[self._at : end].removesuffix(b"\r")
        if b'"' in raw or b"\r" in raw:
            return None
        return self._cut(raw, None, end + 1)

    def _quoted(self) -> _Cut | None:
        """The next row, cell by cell; None at the end of the file."""
        buffer, at = self._buffer, self._at
        if at == len(buffer):
            if self._ended:
                return None
            raise _NeedMore
        cells: list[bytes] = []
        error: str | None = None
        while True:
            if at < len(buffer) and buffer[at] == _QUOTE:
                cell, end = self._quoted_cell(at)
                if end < len(buffer) and buffer[end] not in b",\r\n":
                    error = error or "text after a closing quote"
                    self._on_one_line(at, end)
                    end = self._search(_END_OF_ROW, end)
            else:
                end = self._search(_END_OF_CELL, at)
                cell = buffer[at:end]
                if b'"' in cell:
                    error = error or "a quote inside a cell that is not quoted"
            cells.append(cell)
            if end == len(buffer) or buffer[end] != _COMMA:
                return self._cut(buffer[self._at : end], cells, self._after(end), error)
            at = end + 1

    def _quoted_cell(self, at: int) -> tuple[bytes, int]:
        """A quoted cell that begins at `at`: its content and where it ends."""
        end = at + 1
        while True:
            end = self._buffer.find(b'"', end)
            if end < 0 or (end + 1 == len(self._buffer) and not self._ended):
                if not self._ended:
                    raise _NeedMore
                why = "a quote is opened here and never closed; the file may be cut short"
                raise MalformedFile(self._path, self._line_of(at), why)
            if self._buffer[end + 1 : end + 2] != b'"':
                return self._buffer[at + 1 : end].replace(b'""', b'"'), end + 1
            end += 2

    def _on_one_line(self, begin: int, end: int) -> None:
        """Text after a closing quote costs one row, if the quotes were opened on the same line."""
        if b"\n" in self._buffer[begin:end]:
            why = (
                "a quote opened here is closed on a later line and followed by text: where rows "
                "begin cannot be told"
            )
            raise MalformedFile(self._path, self._line_of(begin), why)

    def _search(self, pattern: re.Pattern[bytes], at: int) -> int:
        """Where the pattern is found first; the end of the buffer if that is the file's end."""
        found = pattern.search(self._buffer, at)
        if found is not None:
            return found.start()
        if not self._ended:
            raise _NeedMore
        return len(self._buffer)

    def _after(self, end: int) -> int:
        """Past the line ending at `end`."""
        if self._buffer[end : end + 1] != b"\r":
            return min(end + 1, len(self._buffer))
        if end + 1 == len(self._buffer) and not self._ended:
            raise _NeedMore  # an LF may follow
        return end + 2 if self._buffer[end + 1 : end + 2] == b"\n" else end + 1

    def _cut(
        self, raw: bytes, cells: Sequence[bytes] | None, next_at: int, error: str | None = None
    ) -> _Cut:
        line = self._line
        self._line += self._buffer.count(b"\n", self._at, next_at)
        self._at = next_at
        return _Cut(raw, cells, line, self._read - len(self._buffer) + next_at, error)

    def _line_of(self, at: int) -> int:
        return self._line + self._buffer.count(b"\n", self._at, at)
