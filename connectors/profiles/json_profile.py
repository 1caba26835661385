"""JSON read by its profile: a vendor's page as one document, or a report or page on each line.

Each report's own bytes are kept beside the mapping: they are its payload, and what is published
when it cannot be mapped.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import BinaryIO, Final

from connectors.errors import ConfigurationError
from connectors.files.ndjson import ndjson_rows
from connectors.files.rows import BYTE_ORDER_MARK, FileRow, MalformedFile
from connectors.profiles.convert import Tools
from connectors.profiles.model import JsonProfile
from connectors.profiles.numbers import Unmapped
from connectors.profiles.report import Known, Mapper, encode
from connectors.profiles.spans import BLANKS, Uncut, element_spans, member_spans
from schemas.json_strict import DEPTH_MAX, JsonFault, parse

DOCUMENT_BYTES_MAX: Final = 64 * 1024 * 1024
"""A page is read whole: larger ones come as lines."""


class JsonReader:
    """Reads files by one profile. Holds nothing between two readings."""

    def __init__(self, declared: JsonProfile, tools: Tools, known: Known) -> None:
        self._mapper = Mapper(declared, tools, known)
        document = declared.document
        self._records = document.records.split(".") if document.records is not None else None
        self._unwrap = document.unwrap
        if self._records is not None and not all(self._records):
            message = "document.records: names joined by dots"
            raise ConfigurationError(message)

    def document(self, file: BinaryIO, path: Path) -> Iterator[FileRow]:
        """The reports of a page. Raises `MalformedFile`."""
        content = file.read(DOCUMENT_BYTES_MAX + 1)
        if len(content) > DOCUMENT_BYTES_MAX:
            why = (
                f"a document of more than {DOCUMENT_BYTES_MAX} bytes, which is read whole: write "
                "one page or report on each line of a .jsonl file"
            )
            raise MalformedFile(path, None, why)
        try:
            text = content.removeprefix(BYTE_ORDER_MARK).decode("utf-8")
        except UnicodeDecodeError:
            raise MalformedFile(path, None, "is not UTF-8") from None
        end = number = 0
        try:
            for one in self._reports(text):
                number, value = number + 1, one.encode()
                end += len(value)
                yield self._row(value, one, number, end)
        except Uncut as error:
            raise MalformedFile(path, None, str(error)) from None

    def lines(self, file: BinaryIO, path: Path) -> Iterator[FileRow]:
        """The reports of lines: each is a report, or a page of them. Raises `MalformedFile`."""
        for row in ndjson_rows(file, path):
            try:
                page = parse(row.value, DEPTH_MAX)
            except JsonFault:
                yield row  # for the gate to judge
                continue
            text = row.value.decode()
            for one in self._reports(text) if self._is_page(page) else [text]:
                yield self._row(one.encode(), one, row.line, row.end_offset)

    def _is_page(self, line: Mapping[str, object]) -> bool:
        value: object = line
        for name in self._records or ():
            value = value.get(name) if isinstance(value, Mapping) else None
        return isinstance(value, list)

    def _reports(self, text: str) -> Iterator[str]:
        """The texts of a page's reports, verbatim. Raises `Uncut`."""
        if self._records is None:
            yield text.strip(BLANKS)
            return
        for begin, end in element_spans(text, self._records):
            yield self._unwrapped(text[begin:end])

    def _row(self, value: bytes, text: str, line: int, end_offset: int) -> FileRow:
        try:
            report = parse(value, DEPTH_MAX)
        except JsonFault:
            return FileRow(value, line, end_offset)  # no object: for the gate to judge
        try:
            members = self._mapper.members(report, text)
            return FileRow(encode(members), line, end_offset, members=members)
        except Unmapped as error:
            return FileRow(value, line, end_offset, error=str(error))

    def _unwrapped(self, text: str) -> str:
        """The report in a record that holds nothing else; any other record as it is."""
        if self._unwrap is None:
            return text
        members = list(member_spans(text)) if text.startswith("{") else []
        if [name for name, _, _ in members] != [self._unwrap]:
            return text
        _, begin, end = members[0]
        return text[begin:end]
