"""Records of a raw or quarantine topic as rows: where they stand, and what they hold as far as it
decodes. Nothing a record may hold stops the replay."""

from __future__ import annotations

import base64
import contextlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from connectors.export import Row
from connectors.ports import SchemaStore
from schemas import envelope
from schemas.columns import Column, Kind, ListOf, Scalar, Struct, masked_paths
from schemas.envelope import Headers, RawRecord, last_header, raw_digest
from schemas.masking import MASK
from schemas.record_type import RecordType
from streams.batch import resolve_schemas
from streams.replaying.asked import Filters
from streams.replaying.committed import instant_us
from streams.replaying.selection import Selection
from streams.replaying.tally import Tally

HEADERS_SHOWN = envelope.INBOUND - {envelope.SOURCE_ERROR}
"""Original headers whose values are shown when the rest is masked: they place a record, and are
about nobody. Why a row could not be mapped is free text."""
OWN_HEADERS = frozenset(
    {
        envelope.EVENT_ID,
        envelope.REASON,
        envelope.DETAIL,
        envelope.POSITION,
        envelope.KEY,
        envelope.TIMESTAMP,
        envelope.ATTEMPT,
        envelope.QUARANTINE_ID,
        envelope.DECISION_SET,
        envelope.RAW_DIGEST,
        envelope.AUDIT_INDEX,
        envelope.SAFETY,
        envelope.TRUNCATED,
        envelope.CORRELATION_ID,
    }
)
"""Headers of a quarantine event that are the gate's own; they have columns."""
IN_PART = ["headers[].value", "value"]
"""Columns in which values are masked one by one."""


def _columns(record_type: RecordType, *, quarantine: bool, masked: bool) -> tuple[Column, ...]:
    """The columns of either topic."""
    shown = record_type.shown
    key = Scalar(Kind.TEXT, masked=masked and not shown.message_key)
    secret = Scalar(Kind.TEXT, masked=masked)
    text = Scalar(Kind.TEXT)
    of_the_gate = (
        Column("position", text),
        Column("reason", text),
        Column("detail", Scalar(Kind.JSON)),
        Column("attempt", Scalar(Kind.LONG)),
        Column("safety", text),
        Column("decision_set", text),
        Column("raw_digest", Scalar(Kind.TEXT, masked=masked and not shown.shows("raw_digest"))),
        Column("audit_index", Scalar(Kind.LONG)),
        Column("correlation_id", secret),
        Column("record_timestamp", Scalar(Kind.INSTANT)),
        Column("truncated_bytes", Scalar(Kind.LONG)),
    )
    header = Struct((Column("name", text), Column("value", text), Column("value_base64", text)))
    return (
        Column("topic", text),
        Column("partition", Scalar(Kind.INT)),
        Column("offset", Scalar(Kind.LONG)),
        Column("timestamp", Scalar(Kind.INSTANT)),
        *(of_the_gate if quarantine else ()),
        Column("key", key),
        Column("key_base64", key),
        Column("headers", ListOf(header)),
        Column("value", Scalar(Kind.JSON)),
        Column("value_base64", secret),
        Column("value_bytes", Scalar(Kind.LONG)),
    )


class RawRows:
    """Rows of a raw topic, or of a quarantine topic with the gate's own headers as columns."""

    def __init__(
        self,
        record_type: RecordType,
        topic: str,
        filters: Filters,
        schema_store: SchemaStore,
        *,
        reveal: bool,
        quarantine: bool,
    ) -> None:
        self.columns = _columns(record_type, quarantine=quarantine, masked=not reveal)
        self.masked_columns = [] if reveal else sorted([*masked_paths(self.columns), *IN_PART])
        self._record_type = record_type
        self._topic = topic
        self._filters = filters
        self._selection = Selection(record_type, topic, filters, quarantine=quarantine)
        self._schema_store = schema_store
        self._reveal = reveal
        self._quarantine = quarantine

    async def take(
        self, partition: int, records: Sequence[RawRecord], tally: Tally
    ) -> list[tuple[Row, int]]:
        """The rows of those that are wanted, with about their bytes. Raises
        `SchemaStoreUnavailable`."""
        found = tally.of(partition)
        rows: list[tuple[Row, int]] = []
        found.read += len(records)
        schemas = await resolve_schemas(self._schema_store, records)
        for record in filter(self._filters.in_time, records):
            members = self._selection.members(record, schemas)
            if not self._selection.wanted(partition, record, members, schemas):
                continue
            found.passed(record.offset)
            row = self._row(partition, record, members)
            tally.digested(self._digest(record))
            tally.by[self._what(record, members)] += 1
            if tally.sums is not None:
                tally.sums.add(members)
            rows.append((row, len(record.value or b"")))
        return rows

    # -- rows --------------------------------------------------------------------------------------

    def _digest(self, record: RawRecord) -> bytes:
        """SHA-256 of the original value."""
        if self._selection.truncated(record):
            with contextlib.suppress(ValueError):
                return bytes.fromhex(_text(record.headers, envelope.RAW_DIGEST) or "")
        return raw_digest(record.value)

    def _what(self, record: RawRecord, members: Mapping[str, Any] | None) -> str:
        if self._quarantine:
            return _text(record.headers, envelope.REASON) or "unknown"
        if record.value is None:
            return "tombstone"
        return "undecodable" if members is None else "decoded"

    def _row(
        self, partition: int, record: RawRecord, members: Mapping[str, Any] | None
    ) -> dict[str, Any]:
        row: dict[str, Any] = {
            "topic": self._topic,
            "partition": partition,
            "offset": record.offset,
            "timestamp": instant_us(record.timestamp),
            "headers": [self._header(name, value) for name, value in self._originals(record)],
            "value": None,
            "value_base64": None,
            "value_bytes": None if record.value is None else len(record.value),
        }
        row["key"], row["key_base64"] = _told(self._selection.message_key(record))
        if self._quarantine:
            row |= self._of_the_gate(record)
        if members is not None:
            row["value"] = members if self._reveal else self._record_type.shown.masked(members)
        elif record.value is not None and not self._selection.truncated(record):
            row["value_base64"] = _base64(record.value)
        return row

    def _originals(self, record: RawRecord) -> Headers:
        if not self._quarantine:
            return record.headers
        return tuple((name, value) for name, value in record.headers if name not in OWN_HEADERS)

    def _header(self, name: str, value: bytes | None) -> dict[str, str | None]:
        if value is not None and not self._reveal and name not in HEADERS_SHOWN:
            return {"name": name, "value": MASK, "value_base64": None}
        text, coded = _told(value)
        return {"name": name, "value": text, "value_base64": coded}

    def _of_the_gate(self, record: RawRecord) -> dict[str, Any]:
        """The gate's own headers of a quarantine event."""
        headers = record.headers
        timestamp = _number(headers, envelope.TIMESTAMP)
        return {
            "position": _text(headers, envelope.POSITION),
            "reason": _text(headers, envelope.REASON),
            "detail": self._detail(headers),
            "attempt": _number(headers, envelope.ATTEMPT),
            "safety": _text(headers, envelope.SAFETY),
            "decision_set": _text(headers, envelope.DECISION_SET),
            "raw_digest": _text(headers, envelope.RAW_DIGEST),
            "audit_index": _number(headers, envelope.AUDIT_INDEX),
            "correlation_id": _text(headers, envelope.CORRELATION_ID),
            "record_timestamp": None if timestamp is None else instant_us(timestamp),
            "truncated_bytes": _number(headers, envelope.TRUNCATED),
        }

    def _detail(self, headers: Headers) -> object:
        """Paths and rules; of a row that could not be mapped, words of its publisher's own."""
        if not self._reveal and last_header(headers, envelope.SOURCE_ERROR) is not None:
            return MASK
        text = _text(headers, envelope.DETAIL)
        try:
            return None if text is None else json.loads(text)
        except ValueError:
            return text


# --- Headers --------------------------------------------------------------------------------------


def _text(headers: Headers, name: str) -> str | None:
    value = last_header(headers, name)
    return None if value is None else value.decode("utf-8", "replace")


def _number(headers: Headers, name: str) -> int | None:
    try:
        number = int(_text(headers, name) or "")
    except ValueError:
        return None
    return number if -(2**63) <= number < 2**63 else None


def _told(value: bytes | None) -> tuple[str | None, str | None]:
    """Bytes as text, or in base64 where they are none."""
    if value is None:
        return None, None
    try:
        return value.decode("utf-8"), None
    except UnicodeDecodeError:
        return None, _base64(value)


def _base64(value: bytes) -> str:
    return base64.b64encode(value).decode("ascii")
