"""NDJSON: every line that is not blank is one record's bytes, untouched."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from connectors.files.rows import BYTE_ORDER_MARK, ROW_BYTES_MAX, FileRow, MalformedFile


def ndjson_rows(file: BinaryIO, path: Path) -> Iterator[FileRow]:
    """The records of a file; what is in them is for the gate to judge.

    A byte order mark before the first and the CR of a CR LF are the file's, not a record's. Raises
    `MalformedFile` for a line of more than `ROW_BYTES_MAX`.
    """
    offset = line = 0
    while text := file.readline(ROW_BYTES_MAX + 1):
        line += 1
        if len(text) > ROW_BYTES_MAX:
            raise MalformedFile(path, line, f"longer than {ROW_BYTES_MAX} bytes; is it NDJSON?")
        if offset == 0:
            text = text.removeprefix(BYTE_ORDER_MARK)
        offset = file.tell()
        value = text.removesuffix(b"\n").removesuffix(b"\r")
        if value.strip():
            yield FileRow(value, line, offset)
