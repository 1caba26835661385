"""Cutting a CSV file into rows and cells (RFC 4180), in the dialect of its source.

Rows may end in LF, CR LF or a lone CR, mixed; inside quotes all three are text. A quote that goes
wrong across lines leaves it open where rows begin, and refuses the file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from connectors.files.rows import BYTE_ORDER_MARK, CHUNK_BYTES, ROW_BYTES_MAX, MalformedFile

_END_OF_ROW = re.compile(rb"[\r\n]")


@dataclass(frozen=True, slots=True)
class Dialect:
    """How a source writes CSV."""

    delimiter: str = ","
    """One ASCII character."""
    quote: str = '"'
    """One ASCII character; empty when the source quotes nothing."""
    encoding: str = "utf-8"
    """UTF-8, or an encoding of one byte a character that agrees with ASCII."""


PLAIN = Dialect()
"""RFC 4180 in UTF-8."""


@dataclass(slots=True)
class Cut:
    """A row as cut out of the file."""

    raw: bytes
    """Its bytes without the line ending."""
    cells: Sequence[bytes] | None
    """Its cells with their quotes undone; None where no quote is, and delimiters alone tell."""
    line: int
    end_offset: int
    error: str | None = None

    def texts(self, dialect: Dialect) -> list[str]:
        """The cells. Raises `UnicodeDecodeError`."""
        if self.cells is None:
            return self.raw.decode(dialect.encoding).split(dialect.delimiter)
        return [cell.decode(dialect.encoding) for cell in self.cells]


class _NeedMore(Exception):
    """The buffer ends before the row does."""


class Cutter:
    """Cuts a file into rows, holding one chunk and one row in memory."""

    def __init__(self, file: BinaryIO, path: Path, dialect: Dialect = PLAIN) -> None:
        delimiter, quote = dialect.delimiter.encode("ascii"), dialect.quote.encode("ascii")
        self._delimiter = delimiter[0]
        self._quote = quote
        self._quote_byte = quote[0] if quote else -1
        self._after_quote = delimiter + b"\r\n"
        self._end_of_cell = re.compile(b"[" + re.escape(delimiter) + b"\r\n]")
        self._file = file
        self._path = path
        self._buffer = b""
        self._at = 0
        self._read = 0
        self._line = 1
        self._ended = False
        self.ends_in_newline = False
        """Whether the last byte read ends a row."""

    def rows(self) -> Iterator[Cut]:
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
        if more:
            self.ends_in_newline = more[-1:] in (b"\n", b"\r")
        self._read += len(more)
        self._buffer, self._at = rest + more, 0

    def _plain(self) -> Cut | None:
        """The next row if it holds no quote and ends in LF or CR LF: the way of nearly all rows."""
        end = self._buffer.find(b"\n", self._at)
        if end < 0:
            return None
        raw = self._buffer[self._at : end].removesuffix(b"\r")
        if b"\r" in raw or (self._quote and self._quote in raw):
            return None
        return self._cut(raw, None, end + 1)

    def _quoted(self) -> Cut | None:
        """The next row, cell by cell; None at the end of the file."""
        buffer, at = self._buffer, self._at
        if at == len(buffer):
            if self._ended:
                return None
            raise _NeedMore
        cells: list[bytes] = []
        error: str | None = None
        while True:
            if at < len(buffer) and buffer[at] == self._quote_byte:
                cell, end = self._quoted_cell(at)
                if end < len(buffer) and buffer[end] not in self._after_quote:
                    error = error or "text after a closing quote"
                    self._on_one_line(at, end)
                    end = self._search(_END_OF_ROW, end)
            else:
                end = self._search(self._end_of_cell, at)
                cell = buffer[at:end]
                if self._quote and self._quote in cell:
                    error = error or "a quote inside a cell that is not quoted"
            cells.append(cell)
            if end == len(buffer) or buffer[end] != self._delimiter:
                return self._cut(buffer[self._at : end], cells, self._after(end), error)
            at = end + 1

    def _quoted_cell(self, at: int) -> tuple[bytes, int]:
        """A quoted cell that begins at `at`: its content and where it ends."""
        quote, end = self._quote, at + 1
        while True:
            end = self._buffer.find(quote, end)
            if end < 0 or (end + 1 == len(self._buffer) and not self._ended):
                if not self._ended:
                    raise _NeedMore
                why = "a quote is opened here and never closed; the file may be cut short"
                raise MalformedFile(self._path, self._line_of(at), why)
            if self._buffer[end + 1 : end + 2] != quote:
                return self._buffer[at + 1 : end].replace(quote * 2, quote), end + 1
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
    ) -> Cut:
        line = self._line
        self._line += self._buffer.count(b"\n", self._at, next_at)
        self._at = next_at
        return Cut(raw, cells, line, self._read - len(self._buffer) + next_at, error)

    def _line_of(self, at: int) -> int:
        return self._line + self._buffer.count(b"\n", self._at, at)
