"""A file's row as the record that will be published: key, headers, run and amount."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal

from connectors.files import FileRow
from schemas.chunk import HEADERS_BYTES_MAX
from schemas.envelope import CORRELATION_ID, OBSERVED_AT, SOURCE_ERROR, Headers
from schemas.exact import instant_of, instant_text
from schemas.json_strict import DEPTH_MAX, JsonFault, parse
from schemas.record_type import RecordType

KEY_BYTES_MAX = 256
"""A longer key is no identity; such a record goes without one."""
FRAMING_BYTES_MAX = 128
"""Upper bound of Kafka's framing of one record that is alone in its batch."""


@dataclass(slots=True)
class Row:
    """One record before it has a place in a chunk."""

    key: bytes | None
    value: bytes
    headers: Headers
    line: int
    """The physical line of the file that it begins in."""
    size_bytes: int
    """The most that it can take in a record batch, chunk headers included."""
    too_large: bool = False
    """Whether the topic does not take it; then it is not published."""
    malformed: bool = False
    """Whether it is a row that could not be mapped."""
    run: str | None = None
    amount: Decimal | None = None
    """What it adds to its run's total; None when that cannot be read."""
    currency: str = ""


class RowReader:
    """Makes rows of one record type."""

    def __init__(
        self,
        record_type: RecordType,
        *,
        record_bytes_max: int,
        correlation: bool = False,
        backfill: bool = False,
    ) -> None:
        """`record_bytes_max` is what the topic takes. With `correlation` a row's header
        `correlation-id` is `FILE:LINE`; with `backfill` its header `wb-observed-at` is the first of
        the type's own times that can be read."""
        self._type = record_type
        self._runs = record_type.runs
        self._record_bytes_max = record_bytes_max
        self._correlation = correlation
        self._observed_fields = record_type.observed_fields if backfill else ()
        self._frame_bytes = FRAMING_BYTES_MAX + (0 if self._runs is None else HEADERS_BYTES_MAX)

    def row(self, file_name: str, found: FileRow, members: Mapping[str, object] | None) -> Row:
        """The record of a file's row; `members` as `members_of` reads them."""
        key = None if members is None else self._key(members)
        headers = self._headers(file_name, found, members)
        size = self._frame_bytes + len(found.value) + (0 if key is None else len(key))
        for name, value in headers:
            size += len(name) + len(value or b"")
        row = Row(key, found.value, headers, found.line, size, size > self._record_bytes_max)
        row.malformed = found.error is not None
        if members is not None and self._runs is not None:
            row.run = self._runs.run_of(members)
            row.amount = self._runs.amount_of(members)
            row.currency = self._runs.currency_of(members)
        return row

    def _key(self, members: Mapping[str, object]) -> bytes | None:
        """The record's message key, as far as it can be read; what it holds is for the gate."""
        identity = self._type.identify(members)
        key = None if identity is None else identity.encode("utf-8", "replace")
        return key if key is not None and len(key) <= KEY_BYTES_MAX else None

    def _headers(
        self, file_name: str, found: FileRow, members: Mapping[str, object] | None
    ) -> Headers:
        headers: list[tuple[str, bytes | None]] = []
        if found.error is not None:
            headers.append((SOURCE_ERROR, found.error.encode()))
        if self._correlation:
            correlation = f"{file_name}:{found.line}".encode("utf-8", "replace")
            headers.append((CORRELATION_ID, correlation))
        if members is not None and self._observed_fields:
            observed = self._observed_at(members)
            if observed is not None:
                headers.append((OBSERVED_AT, observed))
        return tuple(headers)

    def _observed_at(self, members: Mapping[str, object]) -> bytes | None:
        for name in self._observed_fields:
            try:
                return instant_text(instant_of(members.get(name))).encode()
            except ValueError:
                continue
        return None


def members_of(found: FileRow) -> Mapping[str, object] | None:
    """What the row's JSON holds, read as the gate reads it; None when it cannot be."""
    if found.error is not None:
        return None
    if found.members is not None:
        return found.members
    try:
        return parse(found.value, DEPTH_MAX)
    except JsonFault:
        return None
