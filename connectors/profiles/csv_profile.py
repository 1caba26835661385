"""A CSV file read by its profile: each row mapped to the contract's fields, or kept as it is.

What is no record (titles, repeated headers, totals, trailers) is left out only where the profile
declares it. A row that cannot be mapped keeps its bytes and says which field and rule; a file whose
header, totals row or end is not as declared is refused whole.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import BinaryIO

from connectors.files.csv_cutter import Cut, Cutter, Dialect
from connectors.files.rows import FileRow, MalformedFile, Remark
from connectors.profiles.columns import Plan, Unreadable, check_columns, plan_columns
from connectors.profiles.convert import Tools
from connectors.profiles.model import CsvProfile, Totals, Trailer
from connectors.profiles.numbers import Unmapped


class CsvReader:
    """Reads files by one profile. Holds nothing between two readings."""

    def __init__(self, declared: CsvProfile, tools: Tools, known: frozenset[str]) -> None:
        self._declared = declared
        self._tools = tools
        self._known = known
        dialect = declared.csv
        self.dialect = Dialect(dialect.delimiter, dialect.quote, dialect.encoding)
        check_columns(declared, tools, known)

    def rows(self, file: BinaryIO, path: Path, remark: Remark) -> Iterator[FileRow]:
        """The records of a file. Raises `MalformedFile`."""
        cutter = Cutter(file, path, self.dialect)
        cuts = cutter.rows()
        plan, header = self._header(cuts, path)
        yield from _Reading(self._declared, self.dialect, plan, header, path, remark).rows(cuts)
        if self._declared.csv.final_newline == "require" and not cutter.ends_in_newline:
            raise MalformedFile(path, None, "its last row has no line ending: it may be cut short")

    def _header(self, cuts: Iterator[Cut], path: Path) -> tuple[Plan, list[str]]:
        at, sep_line = self._declared.csv.header_at, self._declared.csv.sep_line
        for cut in cuts:
            if sep_line and cut.line == 1:
                if cut.raw.strip() != f"sep={self.dialect.delimiter}".encode():
                    break
                sep_line = False
            elif cut.line == at and not sep_line:
                return self._plan(cut, path)
            elif cut.line >= at:
                break
        if sep_line:
            why = f"the profile declares a first line sep={self.dialect.delimiter}"
            raise MalformedFile(path, 1, why)
        raise MalformedFile(path, at, "the profile declares the header in this line: none begins")

    def _plan(self, cut: Cut, path: Path) -> tuple[Plan, list[str]]:
        if cut.error is not None:
            raise MalformedFile(path, cut.line, f"the header cannot be read: {cut.error}")
        try:
            header = cut.texts(self.dialect)
        except UnicodeDecodeError:
            why = f"the header is not {self.dialect.encoding.upper()}"
            raise MalformedFile(path, cut.line, why) from None
        try:
            return plan_columns(self._declared, self._tools, header, self._known), header
        except Unreadable as error:
            raise MalformedFile(path, cut.line, str(error)) from None


@dataclass(slots=True)
class _Reading:
    """One reading of one file."""

    declared: CsvProfile
    dialect: Dialect
    plan: Plan
    header: list[str]
    path: Path
    remark: Remark
    _sums: dict[str, Decimal] = field(default_factory=dict)
    _unread: int = 0
    """Rows before the totals whose amounts are not in the sums."""
    _ended: bool = False
    """Whether a trailer that must be the last row has come."""

    def rows(self, cuts: Iterator[Cut]) -> Iterator[FileRow]:
        """The records among the rows."""
        self._sums = {name: Decimal(0) for one in self.declared.totals for name in one.sums}
        skips = bool(
            self.declared.totals or self.declared.trailers or self.declared.csv.repeated_headers
        )
        for cut in cuts:
            try:
                texts = cut.texts(self.dialect)
            except UnicodeDecodeError:
                yield self._bad(cut, f"not {self.dialect.encoding.upper()}")
                continue
            if not any(map(str.strip, texts)):
                continue
            if skips and self._skip(cut, texts):
                continue
            if cut.error is not None:
                yield self._bad(cut, cut.error)
            elif len(texts) != len(self.header):
                yield self._bad(cut, f"{len(texts)} columns, the header has {len(self.header)}")
            else:
                yield self._row(cut, texts)
        if not self._ended and any(one.last for one in self.declared.trailers):
            why = "the profile declares a last row that is not there: the file may be cut short"
            raise MalformedFile(self.path, None, why)

    def _row(self, cut: Cut, texts: list[str]) -> FileRow:
        try:
            members, amounts = self.plan.members(texts)
        except Unmapped as error:
            return self._bad(cut, str(error))
        for name in self._sums:
            self._sums[name] += Decimal(amounts.get(name, "0"))
        value = json.dumps(members, ensure_ascii=False, separators=(",", ":")).encode()
        return FileRow(value, cut.line, cut.end_offset, members=members)

    def _bad(self, cut: Cut, error: str) -> FileRow:
        self._unread += 1
        return FileRow(cut.raw, cut.line, cut.end_offset, error=error)

    # -- what is no record -------------------------------------------------------------------------

    def _skip(self, cut: Cut, texts: list[str]) -> bool:
        if self._ended:
            raise MalformedFile(self.path, cut.line, "a row after the declared last one")
        if self.declared.csv.repeated_headers and texts == self.header:
            self.remark(cut.line, "the header again: left out")
            return True
        for trailer in self.declared.trailers:
            if texts[0] == trailer.text and not any(texts[1:]):
                self._trailer(cut, trailer)
                return True
        if len(texts) == len(self.header):
            for totals in self.declared.totals:
                if self._is_totals(texts, totals.cells):
                    self._compare(cut, texts, totals)
                    return True
        return False

    def _trailer(self, cut: Cut, trailer: Trailer) -> None:
        self._ended = trailer.last
        self.remark(cut.line, "a declared trailer: left out")

    def _is_totals(self, texts: list[str], cells: Mapping[str, str]) -> bool:
        return all(texts[self.plan.at(column)] == text for column, text in cells.items())

    def _compare(self, cut: Cut, texts: list[str], totals: Totals) -> None:
        for name in totals.sums:
            found = self._sums[name]
            try:
                declared = self.plan.amount(name, texts)
            except Unmapped as error:
                why = f"the totals row cannot be read: {error}"
                raise MalformedFile(self.path, cut.line, why) from None
            if self._unread:
                what = (
                    f"the total of {name} is not compared: rows that cannot be read: {self._unread}"
                )
                self.remark(cut.line, what)
            elif declared != found:
                why = f"the totals row disagrees with the sum of {name} over the rows before it"
                raise MalformedFile(self.path, cut.line, why)
        if not totals.sums:
            self.remark(cut.line, "a declared totals row: left out")
