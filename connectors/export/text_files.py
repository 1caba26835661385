"""JSONL and CSV: text that any tool reads, without loss.

JSONL: one object per line with every column, null included. CSV (RFC 4180, UTF-8, line feeds): null
is an empty cell; empty text, or no bytes, is `""`; lists and objects are JSON text. A spreadsheet
takes text that begins with one of `= + - @`, a tab or a line break for a formula: such text gets a
`'` before it, and so does text that would otherwise be taken for text with that mark. Numbers,
dates and the like are never touched. To read the text back, take one `'` off cells that match
`NEUTRALISED`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from connectors.export import Row, Sink
from schemas.columns import Column, Kind, Scalar
from schemas.value_text import plain_text, quoted, value_text

_RISKY = re.compile("'*[=+\\-@\t\r\n]")
NEUTRALISED = re.compile("'+[=+\\-@\t\r\n]")
"""A CSV cell of text that is read back without its first character."""
_QUOTES_NEEDED = re.compile('[",\r\n]')


class JsonlFile:
    """One JSON object per line."""

    def __init__(self, sink: Sink, columns: Sequence[Column]) -> None:
        self._sink = sink
        self._columns = [
            (f"{'{' if index == 0 else ','}{quoted(c.name)}:", c.name, value_text(c.type))
            for index, c in enumerate(columns)
        ]

    def write(self, rows: Sequence[Row]) -> None:
        """Append rows."""
        lines = []
        for row in rows:
            cells = [
                head + ("null" if (value := row[name]) is None else write(value))
                for head, name, write in self._columns
            ]
            lines.append("".join(cells) + "}\n")
        self._sink.write("".join(lines).encode())

    def finish(self) -> None:
        """Nothing is left to be written."""

    def abandon(self) -> None:
        """Nothing is held."""


class CsvFile:
    """A line of names, then one line per row."""

    def __init__(self, sink: Sink, columns: Sequence[Column]) -> None:
        self._sink = sink
        self._columns = [(c.name, _cell(c)) for c in columns]
        sink.write((",".join(_in_quotes(c.name) for c in columns) + "\n").encode())

    def write(self, rows: Sequence[Row]) -> None:
        """Append rows."""
        lines = []
        for row in rows:
            cells = [
                "" if (value := row[name]) is None else write(value)
                for name, write in self._columns
            ]
            lines.append(",".join(cells) + "\n")
        self._sink.write("".join(lines).encode())

    def finish(self) -> None:
        """Nothing is left to be written."""

    def abandon(self) -> None:
        """Nothing is held."""


def _cell(column: Column) -> Callable[[Any], str]:
    kind = column.type
    if not isinstance(kind, Scalar):
        write = value_text(kind)
        return lambda value: _in_quotes(write(value))
    plain = plain_text(kind)
    if kind.kind is Kind.TEXT and not kind.masked:
        return _text_cell
    if kind.kind is Kind.BYTES:
        return lambda value: plain(value) or '""'
    return (lambda value: _in_quotes(plain(value))) if kind.kind is Kind.JSON else plain


def _text_cell(text: str) -> str:
    if not text:
        return '""'
    return _in_quotes(f"'{text}" if _RISKY.match(text) else text)


def _in_quotes(text: str) -> str:
    """As it is, or in quotes where it must be."""
    return '"' + text.replace('"', '""') + '"' if _QUOTES_NEEDED.search(text) else text
