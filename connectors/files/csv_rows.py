"""CSV (RFC 4180, UTF-8): the header names contract fields, a row becomes a JSON object of strings.

Rows may end in LF, CR LF or a lone CR, mixed; inside quotes all three are text. An empty cell is an
absent member. A row that cannot be mapped keeps its bytes and says why; a quote that goes wrong
across lines leaves it open where rows begin, and refuses the file. Cells are not trimmed or
converted: what is in them is for the gate to judge.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from connectors.files.csv_cutter import PLAIN, Cut, Cutter
from connectors.files.rows import FileRow, MalformedFile


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
    for cut in Cutter(file, path).rows():
        if names is None:
            names = _header(cut, path, fields)
            continue
        row = _row(cut, names)
        if row is not None:
            yield row
    if names is None:
        raise MalformedFile(path, None, "is empty: the first row must name the fields")


def _header(cut: Cut, path: Path, fields: CsvFields | None) -> list[str]:
    """The names of the columns. Raises `MalformedFile` unless each is there and there once."""
    try:
        names = cut.texts(PLAIN)
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


def _row(cut: Cut, names: Sequence[str]) -> FileRow | None:
    """The record of a row; None for one without any content."""
    if cut.error is not None:
        return FileRow(cut.raw, cut.line, cut.end_offset, error=cut.error)
    try:
        texts = cut.texts(PLAIN)
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
