"""From an event back to what it was made of: the ledger row of a committed event, the record and
the reject of a quarantine event. The inverse of `RecordType.event_of` and `quarantine_event`. Pure.

Used when the database has lost what its events still tell. Nothing is taken on trust: whatever is
restored must yield the very event it came from, byte for byte, and key and digest are derived anew.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from schemas import envelope
from schemas.avro_strict import SINGLE_OBJECT_HEAD_BYTES, AvroFault, schema_ref
from schemas.envelope import Headers, Position, Record, last_header
from schemas.quarantine import ORIGINAL_PREFIX
from schemas.reasons import Reason
from schemas.record_type import COMMON_LEDGER_COLUMNS, COMMON_STAMPS, RecordType
from schemas.verdict import Accepted, Event, Refused, Violation

_AT = {name: index for index, name in enumerate(COMMON_LEDGER_COLUMNS)}


class EventFault(ValueError):
    """An event does not tell what this version can restore; says why, never a value."""


def position_of(headers: Headers) -> Position | None:
    """The position an event of ours is about; None for what is no event of ours."""
    given = last_header(headers, envelope.EVENT_ID)
    try:
        return None if given is None else Position.parse(given.decode())
    except ValueError:
        return None


# --- Committed ------------------------------------------------------------------------------------


def restored(record_type: RecordType, event: Event) -> Accepted:
    """What was committed, from its event alone. Raises `EventFault`."""
    members = _members(record_type, event)
    traceparent = last_header(event.headers, envelope.TRACEPARENT)
    parent = None if traceparent is None else traceparent.decode("ascii", "replace")
    try:
        row, receipts = record_type.restore(members, parent)
    except (ValueError, TypeError, LookupError) as error:
        message = f"the event does not fit the contract ({type(error).__name__})"
        raise EventFault(message) from None
    key, value = record_type.event_of(row)
    if (key, value) != (event.key, event.value):
        message = "the row that the event tells of would yield another event"
        raise EventFault(message)
    common: Mapping[str, Any] = dict(zip(COMMON_LEDGER_COLUMNS, row, strict=False))
    return Accepted(
        offset=common["record_offset"],
        timestamp=common["kafka_timestamp"],
        raw_digest=common["raw_digest"],
        key=common["key"],
        canonical_digest=common["canonical_digest"],
        row=row,
        receipts=receipts,
        event_key=key,
        event_value=value,
        correlation_id=common["correlation_id"],
        traceparent=parent,
    )


def _members(record_type: RecordType, event: Event) -> Mapping[str, Any]:
    value = event.value or b""
    ref = schema_ref(value)
    schema = record_type.committed_schemas[-1]
    if ref is None or ref.id != schema.fingerprint:
        message = f"the event is not written with the newest schema of {record_type.name}"
        raise EventFault(message)
    try:
        members = schema.decode(value, SINGLE_OBJECT_HEAD_BYTES)
    except AvroFault:
        members = None
    if not isinstance(members, dict):
        message = "the event cannot be decoded"
        raise EventFault(message)
    return members


def common_row(
    members: Mapping[str, object],
    *,
    key: bytes,
    supplied_key: object,
    traceparent: str | None,
    canonical_digest: bytes,
    body: str,
) -> tuple[object, ...]:
    """The values of `COMMON_LEDGER_COLUMNS` that an event tells. Raises `EventFault` when the
    digest derived from its members is not the one it carries."""
    if canonical_digest != members["canonical_digest"]:
        message = "the event's members do not have the digest it names"
        raise EventFault(message)
    values: dict[str, object] = {
        **{name: members[name] for name in COMMON_STAMPS},
        "key": key,
        "record_offset": members["offset"],
        "traceparent": traceparent,
        "supplied_key": supplied_key,
        "body": body,
    }
    return tuple(values[name] for name in COMMON_LEDGER_COLUMNS)


def decision_set_of(accepted: Accepted) -> bytes:
    """Digest of the decision set that a restored row names."""
    digest: bytes = accepted.row[_AT["decision_set"]]  # type: ignore[assignment]
    return digest


# --- Quarantined ----------------------------------------------------------------------------------


def told_refusal(event: Event) -> tuple[Refused, bytes]:
    """What a quarantine event says of its reject, and the digest of the decision set it names.

    The ledger key is not in the event: it is to be derived from the record. Raises `EventFault`.
    """
    position = position_of(event.headers)
    try:
        violations = json.loads(_told(event, envelope.DETAIL))
        refused = Refused(
            offset=-1 if position is None else position.offset,
            timestamp=int(_told(event, envelope.TIMESTAMP)),
            raw_digest=bytes.fromhex(_told(event, envelope.RAW_DIGEST)),
            reason=Reason(_told(event, envelope.REASON)),
            violations=tuple(Violation(one["path"], one["rule"]) for one in violations),
            correlation_id=_told(event, envelope.CORRELATION_ID),
            safety_critical=last_header(event.headers, envelope.SAFETY) is not None,
        )
        return refused, bytes.fromhex(_told(event, envelope.DECISION_SET))
    except (ValueError, TypeError, LookupError):
        message = "its headers cannot be read"
        raise EventFault(message) from None


def _told(event: Event, name: str) -> str:
    return (last_header(event.headers, name) or b"").decode()


def told_record(event: Event, refused: Refused) -> Record:
    """The record a quarantine event repeats, for when the raw topic no longer holds it.

    A `correlation-id` header and headers beyond their bound are not in the event. Raises
    `EventFault` where value or key are not repeated.
    """
    if last_header(event.headers, envelope.TRUNCATED) is not None:
        message = "the event does not repeat the value, which was too large"
        raise EventFault(message)
    key = last_header(event.headers, envelope.KEY)
    if _stands_for_a_key(key):
        message = "the event does not repeat the message key, which was too large"
        raise EventFault(message)
    names = [name for name, _ in event.headers]
    own_from = names.index(envelope.EVENT_ID)
    headers = tuple(
        (
            name.removeprefix(ORIGINAL_PREFIX)
            if name.startswith(f"{ORIGINAL_PREFIX}wb-")
            else name,
            v,
        )
        for name, v in event.headers[:own_from]
    )
    return Record(refused.offset, event.value, refused.timestamp, key, headers)


def _original_name(name: str) -> str:
    renamed = name.startswith(f"{ORIGINAL_PREFIX}wb-")
    return name.removeprefix(ORIGINAL_PREFIX) if renamed else name


def _stands_for_a_key(key: bytes | None) -> bool:
    """Whether this is what `quarantine` puts in the place of a key that is too long."""
    if key is None or not key.startswith(b'{"sha256": "'):
        return False
    try:
        return set(json.loads(key)) == {"sha256", "bytes"}
    except ValueError:
        return False
