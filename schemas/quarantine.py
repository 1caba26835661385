"""Quarantine: the row a reject is kept in, and the event made from that row.

The event is a function of the row alone, so an event owed after a crash is the same event, read
back from the database. Pure.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence

from schemas import envelope
from schemas.envelope import Headers, Position, RawRecord, Source, pack_headers, unpack_headers
from schemas.reasons import Reason
from schemas.verdict import VIOLATIONS_MAX, Event, Refused, Violation

QUARANTINE_COLUMNS: tuple[str, ...] = (
    "topic",  # text
    "incarnation",  # integer
    "partition",  # integer
    "record_offset",  # bigint
    "kafka_timestamp",  # bigint, milliseconds since the epoch or -1
    "record_type",  # text
    "reason",  # text
    "detail",  # text: JSON list of {path, rule}, the winning reason's first
    "key",  # bytea, nullable: the ledger key when it could be derived
    "correlation_id",  # text
    "decision_set",  # bytea, 32 bytes
    "raw_digest",  # bytea, 32 bytes
    "attempt",  # integer: 1 for a first submission
    "safety_critical",  # boolean
    "record_key",  # bytea, nullable: the message key, untouched
    "record_value",  # bytea, nullable: the message value, untouched
    "record_headers",  # bytea: `envelope.pack_headers` of the message headers
)
"""Columns of table `quarantine`, in COPY order. The primary key is the position."""

EVENT_BYTES_MAX = 1_000_000
"""Largest quarantine event; the topics must take this much (`topics` verifies it)."""
ORIGINAL_HEADERS_BYTES_MAX = 64 * 1024
"""What the original headers may take in the event; the row keeps all of them."""
KEY_BYTES_MAX = 16 * 1024
"""Longest message key that `wb-key` repeats; of a longer one it holds digest and length."""
RECORD_OVERHEAD_BYTES = 128
"""Upper bound of Kafka's own framing of one record and its batch."""
TEXT_MAX = 200
"""Characters of a path or rule in `wb-detail`."""
ORIGINAL_PREFIX = "orig-"
"""Put before inbound `wb-*` headers that are no declared input."""


def quarantine_row(
    refused: Refused, record: RawRecord, source: Source, record_type: str, decision_set: bytes
) -> tuple[object, ...]:
    """The row of a reject, values in `QUARANTINE_COLUMNS` order."""
    return (
        source.topic,
        source.incarnation,
        source.partition,
        refused.offset,
        refused.timestamp,
        record_type,
        str(refused.reason),
        detail_json(refused.violations),
        refused.key,
        storable(refused.correlation_id),
        decision_set,
        refused.raw_digest,
        _attempt(record.headers),
        refused.safety_critical,
        record.key,
        record.value,
        pack_headers(record.headers),
    )


def quarantine_event(row: Sequence[object]) -> Event:
    """The quarantine event of a row: key is the reason, value the original bytes (SPEC 3.5).

    If value and headers do not fit `EVENT_BYTES_MAX`, the value is replaced by its SHA-256 and
    length and `wb-truncated` says so; original headers beyond their own bound are left out.
    """
    fields = dict(zip(QUARANTINE_COLUMNS, row, strict=True))
    value: bytes | None = fields["record_value"]  # type: ignore[assignment]
    headers = [*_original_headers(unpack_headers(fields["record_headers"])), *_own_headers(fields)]  # type: ignore[arg-type]
    size = _headers_size(headers) + len(value or b"") + RECORD_OVERHEAD_BYTES
    if value is not None and size > EVENT_BYTES_MAX:
        headers.append((envelope.TRUNCATED, str(len(value)).encode()))
        value = _digest_and_length(value)
    return Event(str(fields["reason"]).encode(), value, tuple(headers))


def _digest_and_length(content: bytes) -> bytes:
    """What stands for bytes that are too many to repeat."""
    return json.dumps(
        {"sha256": hashlib.sha256(content).hexdigest(), "bytes": len(content)}
    ).encode()


def detail_json(violations: Sequence[Violation]) -> str:
    """At most `VIOLATIONS_MAX` violations as JSON: paths and rules, never values."""
    return json.dumps(
        [
            {"path": v.path[:TEXT_MAX], "rule": v.rule[:TEXT_MAX]}
            for v in violations[:VIOLATIONS_MAX]
        ],
        separators=(",", ":"),
    )


def storable(text: str, characters_max: int = TEXT_MAX) -> str:
    """Text that PostgreSQL takes: no U+0000, no lone surrogates, bounded."""
    clean = text.replace("\x00", "\ufffd").encode("utf-8", "replace").decode("utf-8")
    return clean[:characters_max]


def _attempt(headers: Headers) -> int:
    """Attempt number of a record: 1, or what a resubmission says (bounded)."""
    value = envelope.last_header(headers, envelope.ATTEMPT)
    if (
        envelope.last_header(headers, envelope.RESUBMISSION_OF) is None
        or value is None
        or not value.isdigit()
        or len(value) > 6  # noqa: PLR2004 - a million attempts are a loop, not a count
    ):
        return 1
    return max(1, int(value))


def _own_headers(fields: dict[str, object]) -> list[tuple[str, bytes | None]]:
    position = Position(
        str(fields["topic"]),
        int(str(fields["incarnation"])),
        int(str(fields["partition"])),
        int(str(fields["record_offset"])),
    )
    identity = str(position).encode()
    own: list[tuple[str, bytes | None]] = [
        (envelope.EVENT_ID, identity),
        (envelope.REASON, str(fields["reason"]).encode()),
        (envelope.DETAIL, str(fields["detail"]).encode()),
        (envelope.POSITION, identity),
        (envelope.KEY, _bounded_key(fields["record_key"])),  # type: ignore[arg-type]
        (envelope.TIMESTAMP, str(fields["kafka_timestamp"]).encode()),
        (envelope.ATTEMPT, str(fields["attempt"]).encode()),
        (envelope.QUARANTINE_ID, identity),
        (envelope.DECISION_SET, bytes(fields["decision_set"]).hex().encode()),  # type: ignore[call-overload]
        (envelope.RAW_DIGEST, bytes(fields["raw_digest"]).hex().encode()),  # type: ignore[call-overload]
        (envelope.CORRELATION_ID, str(fields["correlation_id"]).encode()),
    ]
    if fields["safety_critical"]:
        own.append((envelope.SAFETY, b"critical"))
    return own


def _bounded_key(key: bytes | None) -> bytes | None:
    """The message key for its header; Kafka lets a key be as large as a message."""
    return key if key is None or len(key) <= KEY_BYTES_MAX else _digest_and_length(key)


def _original_headers(headers: Headers) -> list[tuple[str, bytes | None]]:
    """The record's own headers, bounded; undeclared `wb-*` ones renamed so they cannot pose."""
    kept: list[tuple[str, bytes | None]] = []
    size = 0
    for name, value in headers:
        size += len(name.encode("utf-8", "replace")) + len(value or b"") + 16
        if size > ORIGINAL_HEADERS_BYTES_MAX:
            break
        if name == envelope.CORRELATION_ID:
            continue  # ours carries it on
        foreign = name.startswith("wb-") and name not in envelope.INBOUND
        kept.append((f"{ORIGINAL_PREFIX}{name}" if foreign else name, value))
    return kept


def _headers_size(headers: Sequence[tuple[str, bytes | None]]) -> int:
    return sum(
        len(name.encode("utf-8", "replace")) + len(value or b"") + 16 for name, value in headers
    )


def reason_of(row: Sequence[object]) -> Reason:
    """The reason stored in a quarantine row."""
    return Reason(str(row[QUARANTINE_COLUMNS.index("reason")]))
