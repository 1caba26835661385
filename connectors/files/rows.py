"""What readers of files yield, and how they refuse."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol

from connectors.errors import ConfigurationError

ROW_BYTES_MAX = 16 * 1024 * 1024
"""More than any topic takes; a longer row means that the file was not cut where rows end."""
CHUNK_BYTES = 1024 * 1024
"""How much is read at a time."""
BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class MalformedFile(ConfigurationError):
    """A file that cannot be cut into rows or has no usable header: nothing of it is published."""

    def __init__(self, path: Path, line: int | None, why: str) -> None:
        place = f"{path}, line {line}" if line is not None else str(path)
        super().__init__(f"malformed_file: {place}: {why}")
        self.path = path
        self.line = line
        self.why = why


@dataclass(slots=True)
class FileRow:
    """One record of a file."""

    value: bytes
    """The record: JSON; of a row that could not be mapped, its own bytes."""
    line: int
    """The physical line it begins in, from 1. Only LF counts: editors agree on that. Of a document
    that is read whole (a vendor's page), the number of the record in it, from 1."""
    end_offset: int
    """Bytes of the file up to the end of this row."""
    error: str | None = None
    """Why the row could not be mapped, in a few words and without a value, with the field first
    where one is to blame (`FIELD: rule`); goes into the header `wb-source-error`."""
    members: Mapping[str, object] | None = None
    """What the JSON holds, where the reader knows it."""


Remark = Callable[[int, str], None]
"""Takes note of a line and what a reader did there without yielding a record."""


def no_remark(_line: int, _what: str) -> None:
    """Nobody wants to know."""


class SourceReader(Protocol):
    """A way to read files of one source: what a profile is to those who read files."""

    def rows(self, file: BinaryIO, path: Path, remark: Remark = no_remark) -> Iterator[FileRow]:
        """The records of a file, from where it stands. Raises `MalformedFile`."""
