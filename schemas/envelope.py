"""Where a record stands and what travels around its value: positions and headers.

The header names are a wire contract shared by publishers, the gate and readers of its outputs.
Pure; anyone may import it.
"""

from __future__ import annotations

import base64
import hashlib
import json
from dataclasses import dataclass
from typing import Protocol

Headers = tuple[tuple[str, bytes | None], ...]
"""Kafka record headers: names may repeat or be empty, values are opaque bytes or null."""

# Headers a publisher may set. Every other inbound `wb-*` header leaves as `orig-wb-*`.
CORRELATION_ID = "correlation-id"
TRACEPARENT = "traceparent"
SOURCE_ERROR = "wb-source-error"
"""Why a publisher could not map this row; the value is the row's own bytes."""
OBSERVED_AT = "wb-observed-at"
"""When a back-filled record was first observed, RFC 3339; stands in for the Kafka timestamp in the
clock-skew check only."""
RESUBMISSION_OF = "wb-resubmission-of"
"""Quarantine id this record corrects."""
CHUNK = "wb-chunk"
CHUNK_DECLARE = "wb-chunk-declare"
CLOSE = "wb-close"
INBOUND = frozenset({SOURCE_ERROR, OBSERVED_AT, RESUBMISSION_OF, CHUNK, CHUNK_DECLARE, CLOSE})
"""The declared `wb-*` inputs."""

# Headers the gate sets on what it emits.
EVENT_ID = "wb-event-id"
REASON = "wb-reason"
DETAIL = "wb-detail"
POSITION = "wb-position"
KEY = "wb-key"
TIMESTAMP = "wb-timestamp"
ATTEMPT = "wb-attempt"
QUARANTINE_ID = "wb-quarantine-id"
DECISION_SET = "wb-decision-set"
RAW_DIGEST = "wb-raw-digest"
AUDIT_INDEX = "wb-audit-index"
SAFETY = "wb-safety"
TRUNCATED = "wb-truncated"
OURS = frozenset(
    {
        EVENT_ID,
        REASON,
        DETAIL,
        POSITION,
        KEY,
        TIMESTAMP,
        ATTEMPT,
        QUARANTINE_ID,
        DECISION_SET,
        RAW_DIGEST,
        AUDIT_INDEX,
        SAFETY,
        TRUNCATED,
    }
)
"""The `wb-*` headers that only the gate sets."""

NO_TIMESTAMP = -1
"""Kafka's own value for a record without a timestamp."""


class RawRecord(Protocol):
    """One Kafka record as it was read; aiokafka's `ConsumerRecord` has this shape."""

    @property
    def offset(self) -> int:
        """The record's own offset."""

    @property
    def timestamp(self) -> int:
        """Kafka timestamp, milliseconds since the epoch, or `NO_TIMESTAMP`."""

    @property
    def key(self) -> bytes | None:
        """Message key, untouched."""

    @property
    def value(self) -> bytes | None:
        """Message value, untouched; None is a tombstone."""

    @property
    def headers(self) -> Headers:
        """Message headers, untouched."""


@dataclass(frozen=True, slots=True)
class Record:
    """A raw record held in memory: what `check`, simulation and tests use."""

    offset: int
    value: bytes | None
    timestamp: int = NO_TIMESTAMP
    key: bytes | None = None
    headers: Headers = ()


@dataclass(frozen=True, slots=True, order=True)
class Source:
    """One partition of one raw topic in one of the topic's lives."""

    topic: str
    partition: int
    incarnation: int = 1
    """1 for the first life of the topic; `topics adopt` begins the next one."""

    def position(self, offset: int) -> Position:
        """The position of the record at `offset`."""
        return Position(self.topic, self.incarnation, self.partition, offset)

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}"


@dataclass(frozen=True, slots=True, order=True)
class Position:
    """Where one record stands, for ever.

    Its text is the event id, the quarantine id and `wb-position` alike: a record has one verdict,
    so it has at most one event and at most one quarantine row.
    """

    topic: str
    incarnation: int
    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.incarnation}/{self.partition}/{self.offset}"

    @classmethod
    def parse(cls, text: str) -> Position:
        """Read `TOPIC/INCARNATION/PARTITION/OFFSET`. Raises `ValueError` on anything else."""
        parts = text.rsplit("/", 3)
        if (
            len(parts) != 4  # noqa: PLR2004 - topic, incarnation, partition, offset
            or not parts[0]
            or not all(p.isascii() and p.isdigit() for p in parts[1:])
        ):
            message = f"not a position (TOPIC/INCARNATION/PARTITION/OFFSET): {text!r}"
            raise ValueError(message)
        topic, incarnation, partition, offset = parts
        return cls(topic, int(incarnation), int(partition), int(offset))


def raw_digest(value: bytes | None) -> bytes:
    """SHA-256 of a value's bytes, 32 bytes; of no bytes for a tombstone."""
    return hashlib.sha256(value or b"").digest()


def last_header(headers: Headers, name: str) -> bytes | None:
    """The value of the last header called `name`, or None. Kafka lets names repeat; last wins."""
    for header_name, value in reversed(headers):
        if header_name == name:
            return value
    return None


def pack_headers(headers: Headers) -> bytes:
    """Headers as bytes that `unpack_headers` reads back exactly (JSON, values in base64)."""
    return json.dumps(
        [
            [name, None if value is None else base64.b64encode(value).decode("ascii")]
            for name, value in headers
        ],
        separators=(",", ":"),
    ).encode()


def unpack_headers(packed: bytes) -> Headers:
    """The headers that `pack_headers` was given."""
    return tuple(
        (name, None if value is None else base64.b64decode(value))
        for name, value in json.loads(packed)
    )
