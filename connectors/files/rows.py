"""What readers of files yield, and how they refuse."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

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
    """The physical line it begins in, from 1. Only LF counts: editors agree on that."""
    end_offset: int
    """Bytes of the file up to the end of this row."""
    error: str | None = None
    """Why the row could not be mapped, in a few words and without a value; goes into the header
    `wb-source-error`."""
    members: Mapping[str, object] | None = None
    """What the JSON holds, where the reader knows it."""
