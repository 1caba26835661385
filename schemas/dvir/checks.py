"""Deciding a DVIR: key, certification, attachments, clock, ledger row, receipts, event. Pure.

As for payroll, the event is a function of the ledger row: `event_of` reads the body back through
the same model.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from schemas.canonical import canonical_body, digest_of
from schemas.contract import (
    blank,
    canonical_of,
    correlation_id,
    length_prefixed,
    read_body,
    unknown_body,
    unknown_members,
    validate,
    without_key,
)
from schemas.decision_set import DecisionSet, Limits
from schemas.dvir.model import GRAVE, Dvir, Outcome, SignatureRole
from schemas.dvir.versions import encode_committed
from schemas.dvir.vin import check_digit_fails, is_placeholder
from schemas.exact import EPOCH
from schemas.reasons import Flag, Reason
from schemas.record_type import (
    COMMON_LEDGER_COLUMNS,
    Facts,
    Fit,
    Refusal,
    common_fields,
    common_values,
)
from schemas.verdict import VIOLATIONS_MAX, Violation

KEY_DOMAIN = b"wb/dvir/1"
RAW_TOPIC = "dvir.raw"
SECOND_US = 1_000_000
TIMESTAMP_MAX_MS = 7_258_118_400_000 - 1
"""The last millisecond of 2199, where times in records end too."""

LEDGER_COLUMNS = (
    *COMMON_LEDGER_COLUMNS,
    "idempotency_key",
    "source",
    "report_id",
    "report_version",
    "source_updated_at",
    "event",
    "inspection_type",
    "driver_id",
    "inspected_at",
    "received_at",
    "condition",
    "unit_identifier",
    "defects_open",
    "critical",
    "payload",
)
RECEIPT_COLUMNS = ("key", "ordinal", "role", "signer_id", "signed_at", "receipt")
_AT = {name: index for index, name in enumerate(LEDGER_COLUMNS)}

NOT_DIGESTED = frozenset({"idempotency_key", "correlation_id", "received_at", "payload"})
"""What the digest leaves out; each has a column of its own."""
_GRAVE = frozenset(severity.value for severity in GRAVE)
_CLOSED = frozenset({Outcome.REPAIRED.value, Outcome.NO_REPAIR_NEEDED.value})


def key_of(idempotency_key: str) -> bytes:
    """The ledger key, 32 bytes: SHA-256 over the domain and the length-prefixed key."""
    return hashlib.sha256(KEY_DOMAIN + length_prefixed(idempotency_key)).digest()


def decide(members: Mapping[str, object], facts: Facts, decision_set: DecisionSet) -> Fit | Refusal:
    """Decide one decoded record."""
    correlation = correlation_id(facts, members.get("correlation_id"))
    critical = looks_critical(members)
    given = members.get("idempotency_key")
    found = validate(Dvir, members)
    if given is None or blank(given):
        without = without_key("present and not blank", found)
        return _refusal(Reason.MISSING_KEY, without, None, correlation, critical=critical)
    if not isinstance(found, Dvir):
        return _refusal(found[0], found[1], None, correlation, critical=critical)
    key = key_of(found.idempotency_key)
    faults = [
        *_certification_faults(found),
        *_attachment_faults(found),
        *_clock_faults(found, facts, decision_set.limits),
    ]
    if faults:
        violations = [violation for _, violation in faults]
        return _refusal(faults[0][0], violations, key, correlation, critical=critical)
    try:
        unknown_ones = unknown_members(Dvir, members)
        body = canonical_body(canonical_of(found, unknown_ones, NOT_DIGESTED))
    except ValueError as error:
        violations = [Violation("", str(error))]
        return _refusal(Reason.SCHEMA_VIOLATION, violations, key, correlation, critical=critical)
    return _fit(found, unknown_ones, facts, decision_set, key, body, correlation)


def _refusal(
    reason: Reason,
    violations: Sequence[Violation],
    key: bytes | None,
    correlation: str,
    *,
    critical: bool,
) -> Refusal:
    return Refusal(reason, tuple(violations[:VIOLATIONS_MAX]), key, critical, correlation)


def looks_critical(members: Mapping[str, object]) -> bool:
    """Whether an open defect is major or out of service, as far as the members can be read: a
    record that is refused may still tell of danger."""
    defects = members.get("defects")
    if not isinstance(defects, list):
        return False
    return any(isinstance(defect, Mapping) and _is_grave(defect) for defect in defects)


def _is_grave(defect: Mapping[str, object]) -> bool:
    return _word(defect.get("severity")) in _GRAVE and _word(defect.get("outcome")) not in _CLOSED


def _word(value: object) -> str:
    """A symbol as its publisher may have meant it: `Out of Service` is refused as a symbol, but
    tells of danger."""
    return value.strip().lower().replace(" ", "_").replace("-", "_") if type(value) is str else ""


# --- Rules beyond the model -----------------------------------------------------------------------

_Fault = tuple[Reason, Violation]


def _certification_faults(dvir: Dvir) -> list[_Fault]:
    """A report needs its driver's (or mechanic's) certification, the later events their own."""
    if dvir.certification is not None:
        return []
    rule = f"required for a {dvir.event.value.replace('_', ' ')} (49 CFR 396.11, 396.13)"
    return [(Reason.UNCERTIFIED, Violation("certification", rule))]


def _attachment_faults(dvir: Dvir) -> list[_Fault]:
    """Inline content must be what its digest and length say."""
    faults = []
    for index, attachment in enumerate(dvir.attachments):
        if attachment.inline is None:
            continue
        try:
            content = base64.b64decode(attachment.inline, validate=True)
        except (binascii.Error, ValueError):
            rule = "base64 (RFC 4648)"
        else:
            if len(content) != attachment.bytes:
                rule = "as many bytes as said"
            elif hashlib.sha256(content).hexdigest() != attachment.sha256:
                rule = "the content its sha256 says"
            else:
                continue
        violation = Violation(f"attachments[{index}].inline", rule)
        faults.append((Reason.ATTACHMENT_INVALID, violation))
    return faults


def _ahead_us(dvir: Dvir, facts: Facts) -> int | None:
    """Microseconds the record's own time is ahead of its Kafka timestamp; None when unknown.

    In whole numbers: Kafka takes timestamps that no calendar has.
    """
    if facts.observed_at < 0:
        return None
    own_us = (dvir.inspected_at - EPOCH) // timedelta(microseconds=1)
    return own_us - facts.observed_at * 1_000


def _clock_faults(dvir: Dvir, facts: Facts, limits: Limits) -> list[_Fault]:
    ahead_us = _ahead_us(dvir, facts)
    if ahead_us is None:
        return []
    if ahead_us > limits.clock_ahead_max_s * SECOND_US:
        rule = f"at most {limits.clock_ahead_max_s} s ahead of the Kafka timestamp"
    elif ahead_us < -limits.clock_behind_max_s * SECOND_US:
        rule = f"at most {limits.clock_behind_max_s} s behind the Kafka timestamp"
    else:
        return []
    return [(Reason.CLOCK_SKEW, Violation("inspected_at", rule))]


def _flags(dvir: Dvir, facts: Facts, limits: Limits) -> list[str]:
    """Remarks, in the order of the list of flags."""
    ahead_us = _ahead_us(dvir, facts)
    vins = [unit.vin for unit in dvir.units if unit.vin is not None]
    odometers = [unit for unit in dvir.units if unit.odometer_m is not None]
    remarks = {
        Flag.CLOCK_AHEAD: ahead_us is not None and ahead_us > limits.clock_ahead_flag_s * SECOND_US,
        Flag.VIN_CHECK_DIGIT: any(check_digit_fails(vin) for vin in vins),
        Flag.VIN_PLACEHOLDER: any(is_placeholder(vin) for vin in vins),
        Flag.ODOMETER_UNIT_MISSING: any(u.odometer_source_unit is None for u in odometers),
        Flag.UNSAFE_WITHOUT_DEFECT: dvir.condition.value == "unsafe" and not dvir.defects,
        Flag.SIGNATURE_ORDER: _signed_out_of_order(dvir),
    }
    return [flag.value for flag, holds in remarks.items() if holds]


def _signed_out_of_order(dvir: Dvir) -> bool:
    """A mechanic or agent signed before a driver did."""
    repair = {SignatureRole.MECHANIC, SignatureRole.AGENT}
    drivers = [s.signed_at for s in dvir.signatures if s.role is SignatureRole.DRIVER]
    repairers = [s.signed_at for s in dvir.signatures if s.role in repair]
    times = [
        (driver, repairer)
        for driver in drivers
        for repairer in repairers
        if driver is not None and repairer is not None
    ]
    return any(repairer < driver for driver, repairer in times)


# --- Row, receipts, event -------------------------------------------------------------------------


def _fit(
    dvir: Dvir,
    unknown_ones: Mapping[str, object],
    facts: Facts,
    decision_set: DecisionSet,
    key: bytes,
    body: str,
    correlation: str,
) -> Fit:
    digest = digest_of(body)
    still_open = [defect for defect in dvir.defects if defect.outcome is Outcome.OPEN]
    critical = any(defect.severity in GRAVE for defect in still_open)
    row = (
        *common_values(
            facts,
            decision_set,
            key=key,
            canonical_digest=digest,
            correlation_id=correlation,
            supplied_key=None,
            flags=_flags(dvir, facts, decision_set.limits),
            body=body,
        ),
        dvir.idempotency_key,
        dvir.source,
        dvir.report_id,
        dvir.report_version,
        dvir.source_updated_at,
        dvir.event.value,
        dvir.inspection_type.value,
        dvir.driver_id,
        dvir.inspected_at,
        dvir.received_at or _received_at(facts),
        dvir.condition.value,
        dvir.units[0].identifier,
        len(still_open),
        critical,
        dvir.payload,
    )
    event_value = _event(dvir, unknown_body(unknown_ones), row)
    return Fit(
        key,
        digest,
        row,
        receipts_of(dvir, key),
        dvir.units[0].identifier.encode(),
        event_value,
        correlation,
        critical,
    )


def receipts_of(dvir: Dvir, key: bytes) -> tuple[tuple[object, ...], ...]:
    """The rows of its signatures, in the order of `RECEIPT_COLUMNS`."""
    return tuple(
        (key, ordinal, s.role.value, s.signer_id, s.signed_at, s.receipt)
        for ordinal, s in enumerate(dvir.signatures)
    )


def _received_at(facts: Facts) -> datetime | None:
    """The Kafka timestamp, if it is a time, stands in for a time of receipt that was not given."""
    if not 0 <= facts.timestamp <= TIMESTAMP_MAX_MS:
        return None
    return EPOCH + timedelta(milliseconds=facts.timestamp)


def event_of(row: Sequence[object]) -> tuple[bytes, bytes]:
    """The committed event's key and value, from a ledger row as written or as read back."""
    members = read_body(row[_AT["body"]])
    dvir = Dvir.model_validate({**members, "idempotency_key": row[_AT["idempotency_key"]]})
    unknown_ones = unknown_body(unknown_members(Dvir, members))
    return dvir.units[0].identifier.encode(), _event(dvir, unknown_ones, row)


def _event(dvir: Dvir, unknown_ones: str | None, row: Sequence[object]) -> bytes:
    """Avro single-object bytes: the contract's fields from the model, the rest from the row."""
    members = dvir.model_dump(exclude={"correlation_id"})
    stamped = {name: row[_AT[name]] for name in _STAMPED}
    return encode_committed(
        {
            **members,
            **stamped,
            "unknown_members": unknown_ones,
            **common_fields(row, RAW_TOPIC),
        }
    )


_STAMPED = (
    "idempotency_key",
    "received_at",
    "payload",
    "unit_identifier",
    "defects_open",
    "critical",
)
"""The type's own event fields that are columns of the same name."""


def identify(members: Mapping[str, object]) -> str | None:
    """The Kafka message key: the first unit's identifier."""
    units = members.get("units")
    first = units[0] if isinstance(units, list) and units else None
    if not isinstance(first, Mapping):
        return None
    for name in ("vin", "legacy_serial", "unit_number"):
        found = first.get(name)
        if isinstance(found, str) and found:
            return found
    return None
