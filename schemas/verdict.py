"""What deciding and settling yield. Outcomes are values; nothing here is an exception.

A record is *decided* from itself alone (`Accepted` or `Refused`), then *settled* against the ledger
(`Settled`). See SPEC words: deciding is pure, settling is recorded and never recomputed.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from schemas.envelope import Position
from schemas.reasons import Reason

VIOLATIONS_MAX = 8
"""How many violations `wb-detail` lists."""


class Verdict(IntEnum):
    """What became of a record; the numbers are stored in verdict pages."""

    COMMITTED = 1
    DUPLICATE = 2
    QUARANTINED = 3
    HELD = 4


@dataclass(frozen=True, slots=True)
class Violation:
    """One rule broken: where and which, never the value that broke it."""

    path: str
    """Field path such as `earnings[2].amount`; empty for the whole record."""
    rule: str
    """The rule in a few words, such as `at most two fraction digits`."""


@dataclass(slots=True)
class Accepted:
    """Deciding found nothing against the record; the ledger has the last word.

    Treated as immutable; not frozen because a frozen dataclass costs a microsecond a record.
    """

    offset: int
    timestamp: int
    """Kafka timestamp in milliseconds, or -1."""
    raw_digest: bytes
    """SHA-256 of the value's bytes."""
    key: bytes
    """32 bytes: the ledger key (payroll: the idempotency key itself; DVIR: SHA-256 over it)."""
    canonical_digest: bytes
    row: tuple[object, ...]
    """The ledger row, in the order of the record type's `ledger_columns`."""
    receipts: tuple[tuple[object, ...], ...]
    """Rows of the type's receipts table, in the order of its `receipt_columns`."""
    event_key: bytes
    event_value: bytes
    """The committed event: Avro single-object encoding."""
    correlation_id: str
    traceparent: str | None = None
    safety_critical: bool = False
    """An open defect is major or out of service; matters if settling turns the record away."""


@dataclass(slots=True)
class Refused:
    """Deciding or settling turned the record away."""

    offset: int
    timestamp: int
    raw_digest: bytes
    """SHA-256 of the value's bytes; of no bytes for a tombstone."""
    reason: Reason
    violations: tuple[Violation, ...]
    """The winning reason's first, at most `VIOLATIONS_MAX`."""
    correlation_id: str
    key: bytes | None = None
    """The ledger key when it could be derived."""
    safety_critical: bool = False
    """The record decodes as a DVIR and an open defect is major or out of service."""


Decided = Accepted | Refused


@dataclass(frozen=True, slots=True)
class Holder:
    """Who holds a key in the ledger: a committed row's place and content digest."""

    position: Position
    canonical_digest: bytes


@dataclass(frozen=True, slots=True)
class Duplicate:
    """The key is held by a record with the same content."""

    accepted: Accepted
    holder: Position


Settled = Accepted | Duplicate | Refused
"""`Accepted` has become committed; a collision or a database refusal has become `Refused`."""


@dataclass(frozen=True, slots=True)
class Event:
    """One message to an output topic."""

    key: bytes
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
