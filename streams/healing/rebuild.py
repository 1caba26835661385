"""What a lost verdict was: rebuilt from its event and, where it is still there, its raw record.

Pure. The event says what was decided and is believed only where it can be derived: a raw record,
decided again under the decision set the event names, must yield that very event, byte for byte.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass

from schemas import envelope, restoring
from schemas.avro_strict import SchemaRef, schema_ref
from schemas.decision_set import DecisionSet
from schemas.envelope import RawRecord, Record, Source, raw_digest
from schemas.quarantine import quarantine_event, quarantine_row
from schemas.reasons import Reason
from schemas.record_type import RecordType
from schemas.restoring import EventFault
from schemas.verdict import Accepted, Decided, Event, Refused
from streams.batch import committed_headers
from streams.decide import Schemas, decide_batch

SETTLED_REASONS = frozenset(
    {
        Reason.CONTROL_TOTAL_MISMATCH,
        Reason.IDEMPOTENCY_COLLISION,
        Reason.PERSIST_FAILED,
    }
)
"""Reasons that settling gave: deciding the record again does not yield them."""
UNDECIDED_REASONS = frozenset({Reason.PROCESSING_ERROR, Reason.HELD_BY_OPERATOR})
"""Reasons of records that could not, or were not to, be decided: nor are they now."""


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """A lost verdict, ready to be written."""

    outcome: Accepted | Refused
    decision_set: bytes
    quarantine_row: tuple[object, ...] | None = None
    """The row of a reject, None for a committed record."""


@dataclass(frozen=True, slots=True)
class Decider:
    """Decides records again: the type, where they stand, the sets they may name, their schemas."""

    record_type: RecordType
    source: Source
    decision_sets: Mapping[bytes, DecisionSet]
    schemas: Schemas

    def again(
        self, record: RawRecord, decision_set: bytes, schemas: Schemas | None = None
    ) -> Decided:
        """Decide one record under a set that is known."""
        known = self.schemas if schemas is None else schemas
        chosen = self.decision_sets[decision_set]
        (found,) = decide_batch([record], self.record_type, self.source, chosen, known)
        return found


def rebuilt_committed(
    decider: Decider, told: Accepted, event: Event, raw: RawRecord | None
) -> Rebuilt:
    """The committed record that `told` (restored from `event`) is. Raises `EventFault`."""
    if committed_headers(decider.source, told.offset, told.traceparent) != event.headers:
        message = "its headers are not those of its row"
        raise EventFault(message)
    digest = restoring.decision_set_of(told)
    if raw is None:
        return Rebuilt(told, digest)
    _check_same(raw, told)
    again = decider.again(raw, digest)
    if not isinstance(again, Accepted):
        message = f"its raw record, decided again, would be {again.reason}"
        raise EventFault(message)
    if (again.row, again.receipts) != (told.row, told.receipts):
        message = "its raw record, decided again, yields another row"
        raise EventFault(message)
    return Rebuilt(again, digest)


def rebuilt_quarantined(
    decider: Decider, told: Refused, decision_set: bytes, event: Event, raw: RawRecord | None
) -> Rebuilt:
    """The reject that `event` (which says `told`) is about. Raises `EventFault`.

    Without its raw record the row is made from the event alone: all of it except original headers
    that the event leaves out.
    """
    source = decider.source
    if raw is None:
        raw = _told_record(decider, told, decision_set, event)
    _check_same(raw, told)
    refused = dataclasses.replace(told, key=_key(decider, told, decision_set, raw))
    row = quarantine_row(refused, raw, source, decider.record_type.name, decision_set)
    if quarantine_event(row) != event:
        message = "the reject that it tells of would yield another event"
        raise EventFault(message)
    return Rebuilt(refused, decision_set, row)


def _told_record(decider: Decider, told: Refused, decision_set: bytes, event: Event) -> Record:
    """The record that the event repeats, with a `correlation-id` header at the end when nothing
    else in it explains its correlation id."""
    record, source = restoring.told_record(event, told), decider.source
    if told.reason in UNDECIDED_REASONS:
        explained = f"{source.topic}-{source.partition}-{told.offset}"
    else:
        explained = decider.again(record, decision_set).correlation_id
    if explained == told.correlation_id:
        return record
    header = (envelope.CORRELATION_ID, told.correlation_id.encode())
    return dataclasses.replace(record, headers=(*record.headers, header))


def _key(decider: Decider, told: Refused, decision_set: bytes, raw: RawRecord) -> bytes | None:
    """The ledger key, which the event does not tell, by deciding again.

    The answer of the schema store was part of the verdict: `unknown_schema` is decided again
    without the schema, which may be known by now.
    """
    if told.reason in UNDECIDED_REASONS:
        return None
    ref = schema_ref(raw.value) if raw.value is not None else None
    unknown: dict[SchemaRef, None] | None = None
    if told.reason is Reason.UNKNOWN_SCHEMA and ref is not None:
        unknown = {ref: None}
    again = decider.again(raw, decision_set, unknown)
    settled = told.reason in SETTLED_REASONS
    if not (isinstance(again, Accepted) if settled else _reason(again) is told.reason):
        message = f"its raw record, decided again, would be {_reason(again) or 'accepted'}"
        raise EventFault(message)
    return again.key


def _reason(decided: Decided) -> Reason | None:
    return decided.reason if isinstance(decided, Refused) else None


def _check_same(raw: RawRecord, told: Accepted | Refused) -> None:
    """The record at the position must be the one that was decided there."""
    same = raw.timestamp == told.timestamp and raw_digest(raw.value) == told.raw_digest
    if raw.offset != told.offset or not same:
        message = "the raw record at its position is another one: was the topic recreated?"
        raise EventFault(message)
