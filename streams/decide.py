"""Step 2, deciding: from a record's bytes to `Accepted` or `Refused`. Pure.

A function of the record, the decision set and the schemas its id names, and of nothing else (G4).
The order of checks is the order of reasons: tombstone, size, source error, framing, decoding, then
the record type's own contract.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from schemas import envelope
from schemas.avro_strict import (
    CONFLUENT_HEAD_BYTES,
    SINGLE_OBJECT_HEAD_BYTES,
    SINGLE_OBJECT_MARK,
    AvroFault,
    AvroSchema,
    SchemaRef,
    schema_ref,
)
from schemas.avro_writers import writer_faults
from schemas.decision_set import DecisionSet
from schemas.envelope import RawRecord, Source, last_header, raw_digest
from schemas.exact import instant_of, micros
from schemas.json_strict import DEPTH_MAX, JsonFault, parse
from schemas.quarantine import storable
from schemas.reasons import PRECEDENCE, Reason
from schemas.record_type import Facts, Fit, RecordType, Refusal
from schemas.verdict import VIOLATIONS_MAX, Accepted, Decided, Refused, Violation

EVENT_OVERHEAD_BYTES = 512
"""Upper bound of what surrounds a committed event's key and value: headers, framing, and the audit
index that is filled in later."""
_TRACEPARENT = re.compile(
    rb"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}"
)
"""W3C Trace Context, section 3.2: version ff and ids of zeros are invalid."""

_FIELD_RULE = re.compile(
    r"(?P<path>(?P<field>[a-z][a-z0-9_]{0,63})(?:\[[0-9]{1,4}\])?(?:\.[a-z][a-z0-9_]{0,63})?): "
    r"(?P<rule>.+)",
    re.DOTALL,
)
"""What `wb-source-error` says when one field is to blame. Bounded: it comes from outside."""

Schemas = Mapping[SchemaRef, AvroSchema | None]
"""What step 1 found: a schema, or None for a definite "no such id"."""


def schema_refs(records: Sequence[RawRecord]) -> set[SchemaRef]:
    """The schema ids that a batch's values name."""
    return {
        ref
        for record in records
        if record.value is not None
        and record.value[:1] in (b"\x00", b"\xc3")
        and (ref := schema_ref(record.value)) is not None
    }


def decide_batch(
    records: Sequence[RawRecord],
    record_type: RecordType,
    source: Source,
    decision_set: DecisionSet,
    schemas: Schemas,
) -> list[Decided]:
    """Decide every record. Never raises for anything a record can hold: an unexpected exception of
    our own code on one record is its verdict, `processing_error`. Memory that runs out is no
    fault of a record and is raised."""
    decided: list[Decided] = []
    for record in records:
        try:
            one = decide(record, record_type, source, decision_set, schemas)
        except MemoryError:
            raise
        except Exception as error:  # noqa: BLE001 - our own bug must cost one record, not the stream
            violation = Violation("", f"deciding failed with {type(error).__name__}")
            one = refused(record, source, Reason.PROCESSING_ERROR, (violation,))
        decided.append(one)
    return decided


def decide(
    record: RawRecord,
    record_type: RecordType,
    source: Source,
    decision_set: DecisionSet,
    schemas: Schemas,
) -> Decided:
    """Decide one record."""
    value, limits = record.value, decision_set.limits
    if value is None:
        return refused(record, source, Reason.TOMBSTONE, (Violation("", "a value"),))
    if len(value) > limits.value_bytes_max:
        rule = f"a value of at most {limits.value_bytes_max} bytes"
        return refused(record, source, Reason.OVERSIZE, (Violation("", rule),))
    headers = record.headers
    if headers and (why := last_header(headers, envelope.SOURCE_ERROR)) is not None:
        return refused(record, source, *_unmapped(value, why, record_type))
    try:
        depth_max = min(limits.json_depth_max, DEPTH_MAX)
        members, writer = members_of(value, record_type, depth_max, schemas)
    except (JsonFault, AvroFault) as fault:
        path = fault.path if isinstance(fault, AvroFault) else ""
        return refused(record, source, fault.reason, (Violation(path, fault.rule),))
    facts = _facts(record, source, value, writer)
    found = record_type.decide(members, facts, decision_set)
    if writer is not None:
        found = _read_as_ours(found, writer, record_type)
    if isinstance(found, Refusal):
        return _refused_by_type(record, facts, found)
    return _accepted(record, facts, found, limits.event_bytes_max)


def _unmapped(
    row: bytes, why: bytes, record_type: RecordType
) -> tuple[Reason, tuple[Violation, ...]]:
    """A row that its publisher could not map: in the order of reasons its encoding comes first."""
    told = _told(storable(why.decode("utf-8", "replace")).strip(), record_type)
    try:
        storable_row = "\x00" not in row.decode("utf-8")
    except UnicodeDecodeError:
        storable_row = False
    if storable_row:
        return Reason.MALFORMED_ROW, (told,)
    return Reason.ENCODING, (Violation("", "text is UTF-8, without U+0000"), told)


def _told(why: str, record_type: RecordType) -> Violation:
    """What a publisher says of a row: `FIELD: rule` where FIELD is a path into the contract."""
    found = _FIELD_RULE.fullmatch(why)
    if found is None or found["field"] not in record_type.raw_schemas[-1].fields():
        return Violation("", why or "a row that the publisher can map")
    return Violation(found["path"], found["rule"])


# --- Decoding -------------------------------------------------------------------------------------


def members_of(
    value: bytes, record_type: RecordType, depth_max: int, schemas: Schemas
) -> tuple[Mapping[str, Any], AvroSchema | None]:
    """A value's members, and the schema it was written with when it is Avro.

    Told apart by the first bytes: Confluent framing, single-object encoding, else JSON. Raises
    `JsonFault`, `AvroFault`.
    """
    if value[:1] == b"\x00":
        return _avro(value, CONFLUENT_HEAD_BYTES, record_type, depth_max, schemas)
    if value[:2] == SINGLE_OBJECT_MARK:
        return _avro(value, SINGLE_OBJECT_HEAD_BYTES, record_type, depth_max, schemas)
    return parse(value, depth_max), None


def _avro(
    value: bytes, head_bytes: int, record_type: RecordType, depth_max: int, schemas: Schemas
) -> tuple[Mapping[str, Any], AvroSchema]:
    ref = schema_ref(value)
    if ref is None:
        raise AvroFault(Reason.MALFORMED_AVRO, f"a frame of {head_bytes} bytes before the body")
    schema = own_schema(record_type, ref) or schemas.get(ref)
    if schema is None:
        raise AvroFault(Reason.UNKNOWN_SCHEMA, f"a schema the store has; it has no {ref}")
    decoded = schema.decode(value, head_bytes, depth_max)
    if not isinstance(decoded, dict):
        raise AvroFault(Reason.SCHEMA_VIOLATION, "an Avro record")
    return {name: one for name, one in decoded.items() if one is not None}, schema


def _read_as_ours(
    found: Fit | Refusal, writer: AvroSchema, record_type: RecordType
) -> Fit | Refusal:
    """Refuse a record whose writer's schema cannot be read as ours, unless a reason of higher
    precedence applies already."""
    for fault in writer_faults(writer, record_type.raw_schemas[-1]):
        if isinstance(found, Refusal) and PRECEDENCE[found.reason] < PRECEDENCE[fault.reason]:
            continue
        rest = found.violations if isinstance(found, Refusal) else ()
        violations = (Violation(fault.path, fault.rule), *rest)[:VIOLATIONS_MAX]
        correlation, key, critical = found.correlation_id, found.key, found.safety_critical
        found = Refusal(fault.reason, violations, key, critical, correlation)
    return found


def own_schema(record_type: RecordType, ref: SchemaRef) -> AvroSchema | None:
    """The type's own raw schemas are known by fingerprint, without any store."""
    for schema in record_type.raw_schemas:
        if schema.fingerprint == ref.id:
            return schema
    return None


# --- Facts ----------------------------------------------------------------------------------------


def _facts(record: RawRecord, source: Source, value: bytes, writer: AvroSchema | None) -> Facts:
    headers = record.headers
    return Facts(
        topic=source.topic,
        incarnation=source.incarnation,
        partition=source.partition,
        offset=record.offset,
        timestamp=record.timestamp,
        observed_at=_observed_at(record) if headers else record.timestamp,
        raw_digest=raw_digest(value),
        header_correlation_id=_header_correlation_id(headers) if headers else None,
        traceparent=_traceparent(headers) if headers else None,
        writer_schema=None if writer is None else writer.fingerprint,
    )


def _observed_at(record: RawRecord) -> int:
    """Milliseconds that the clock-skew check compares with. A header that cannot be read says
    nothing, so the Kafka timestamp stands."""
    given = last_header(record.headers, envelope.OBSERVED_AT)
    if given is None:
        return record.timestamp
    try:
        return micros(instant_of(given.decode("ascii"))) // 1000
    except ValueError:
        return record.timestamp


def _header_correlation_id(headers: envelope.Headers) -> str | None:
    given = last_header(headers, envelope.CORRELATION_ID)
    if not given:
        return None
    found = storable(given.decode("utf-8", "replace"))
    return found if found.strip() else None


def _traceparent(headers: envelope.Headers) -> str | None:
    given = last_header(headers, envelope.TRACEPARENT)
    if given is None or _TRACEPARENT.fullmatch(given) is None:
        return None
    return given.decode("ascii")


# --- Outcomes -------------------------------------------------------------------------------------


def _accepted(record: RawRecord, facts: Facts, fit: Fit, event_bytes_max: int) -> Decided:
    if len(fit.event_value) + len(fit.event_key) + EVENT_OVERHEAD_BYTES > event_bytes_max:
        violation = Violation("", f"a committed event of at most {event_bytes_max} bytes")
        return Refused(
            record.offset,
            record.timestamp,
            facts.raw_digest,
            Reason.OVERSIZE,
            (violation,),
            fit.correlation_id,
            fit.key,
            fit.safety_critical,
        )
    return Accepted(
        record.offset,
        record.timestamp,
        facts.raw_digest,
        fit.key,
        fit.canonical_digest,
        fit.row,
        fit.receipts,
        fit.event_key,
        fit.event_value,
        fit.correlation_id,
        facts.traceparent,
        fit.safety_critical,
    )


def _refused_by_type(record: RawRecord, facts: Facts, refusal: Refusal) -> Refused:
    position = f"{facts.topic}-{facts.partition}-{facts.offset}"
    return Refused(
        record.offset,
        record.timestamp,
        facts.raw_digest,
        refusal.reason,
        refusal.violations,
        refusal.correlation_id or facts.header_correlation_id or position,
        refusal.key,
        refusal.safety_critical,
    )


def refused(
    record: RawRecord, source: Source, reason: Reason, violations: tuple[Violation, ...]
) -> Refused:
    """A refusal before the members were read; the correlation id is the header's or the place."""
    correlation = _header_correlation_id(record.headers)
    return Refused(
        record.offset,
        record.timestamp,
        raw_digest(record.value),
        reason,
        violations,
        correlation or f"{source.topic}-{source.partition}-{record.offset}",
    )
