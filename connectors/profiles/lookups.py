"""Look-up files: a vendor's list of defects, a crosswalk from its ids to ours.

Read once, before any record, into memory; bounded in bytes and rows.
"""

from __future__ import annotations

import codecs
import csv
import io
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from connectors.errors import ConfigurationError
from connectors.profiles.forms import Constant, Lookup, LookupRows
from connectors.profiles.numbers import number_text
from connectors.profiles.paths import Chain, compile_path, levels
from schemas.json_strict import DEPTH_MAX, JsonFault, parse

BYTES_MAX: Final = 64 * 1024 * 1024

Row = Mapping[str, object]
Table = Mapping[str, Row]


def read_lookup(name: str, declared: Lookup, path: Path) -> Table:
    """The rows of a look-up file by their key.

    Raises `ConfigurationError` for a file that is not there, too large, not of its declared form,
    or has one key with two different rows.
    """
    try:
        if path.stat().st_size > BYTES_MAX:
            raise _fault(name, path, f"has more than {BYTES_MAX} bytes")
        content = path.read_bytes().removeprefix(codecs.BOM_UTF8)
    except OSError as error:
        raise _fault(name, path, f"cannot be read ({type(error).__name__})") from None
    rows = _csv(declared, content) if declared.format == "csv" else _json(declared, content)
    table: dict[str, Row] = {}
    try:
        for number, (key, row) in enumerate(rows, 1):
            if table.setdefault(key, row) != row:
                raise _fault(name, path, f"row {number} has a key that an earlier row has too")
    except (_Unread, UnicodeDecodeError, csv.Error, JsonFault) as error:
        why = error.rule if isinstance(error, JsonFault) else str(error)
        raise _fault(name, path, f"is not as the profile declares it: {why}") from None
    return table


class _Unread(Exception):
    """Why a look-up file cannot be read."""


def _fault(name: str, path: Path, why: str) -> ConfigurationError:
    return ConfigurationError(f"look-up {name}: {path} {why}")


def _csv(declared: Lookup, content: bytes) -> Iterator[tuple[str, Row]]:
    reader = csv.DictReader(io.StringIO(content.decode("utf-8"), newline=""), strict=True)
    if declared.key not in (reader.fieldnames or ()):
        message = f"it has no column {declared.key!r}"
        raise _Unread(message)
    for row in reader:
        if None in row or None in row.values():
            message = f"line {reader.line_num} has other columns than the header"
            raise _Unread(message)
        key = row.pop(str(declared.key))
        if key:
            yield key, {column: text for column, text in row.items() if text}


def _json(declared: Lookup, content: bytes) -> Iterator[tuple[str, Row]]:
    document: Any = parse(content, DEPTH_MAX)
    for rows in declared.rows:
        yield from _rows(rows, document)


def _rows(declared: LookupRows, document: object) -> Iterator[tuple[str, Row]]:
    each = compile_path(declared.each, lists=True)
    depth = levels(each)
    key_path = compile_path(declared.key, depth=depth)
    values = {
        name: value if isinstance(value, Constant) else compile_path(value, depth=depth)
        for name, value in declared.values.items()
    }
    for chain in each.each((document,)):
        key = number_text(key_path.get(chain))
        if isinstance(key, str):
            yield key, _row(values, chain)


def _row(values: Mapping[str, Any], chain: Chain) -> Row:
    found = {
        name: value.const if isinstance(value, Constant) else value.get(chain)
        for name, value in values.items()
    }
    return {name: value for name, value in found.items() if value is not None}
