"""The closed list of quarantine reasons, in order of precedence: the first that applies wins.

Reasons are a contract: they key the quarantine topics and the page one verdict is stored in, so a
reason's number (its place here) never changes; new ones are agreed, then added.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Reason(StrEnum):
    """Why a record was turned away."""

    TOMBSTONE = "tombstone"
    OVERSIZE = "oversize"
    ENCODING = "encoding"
    MALFORMED_ROW = "malformed_row"
    MALFORMED_JSON = "malformed_json"
    MALFORMED_AVRO = "malformed_avro"
    UNKNOWN_SCHEMA = "unknown_schema"
    MISSING_KEY = "missing_key"
    FLOAT_MONEY = "float_money"
    SCHEMA_VIOLATION = "schema_violation"
    UNCERTIFIED = "uncertified"
    ATTACHMENT_INVALID = "attachment_invalid"
    CLOCK_SKEW = "clock_skew"
    UNRESOLVED_JURISDICTION = "unresolved_jurisdiction"
    STATUTORY_CAP = "statutory_cap"
    CONTROL_TOTAL_MISMATCH = "control_total_mismatch"
    IDEMPOTENCY_COLLISION = "idempotency_collision"
    PROCESSING_ERROR = "processing_error"
    PERSIST_FAILED = "persist_failed"
    HELD_BY_OPERATOR = "held_by_operator"


PRECEDENCE: dict[Reason, int] = {reason: rank for rank, reason in enumerate(Reason)}
"""Rank of each reason, 0 first; also its number in a verdict page."""


@dataclass(frozen=True, slots=True)
class ReasonInfo:
    """What an operator needs to know about a reason."""

    meaning: str
    fixed_by: str
    """Who can fix it: publisher, operator or developer."""
    unchanged_can_help: bool
    """Whether resubmitting the same bytes can end in another verdict."""


REASON_INFO: dict[Reason, ReasonInfo] = {
    Reason.TOMBSTONE: ReasonInfo("The message has no value.", "publisher", False),
    Reason.OVERSIZE: ReasonInfo(
        "The record, or the event it would become, is larger than the decision set allows.",
        "publisher",
        False,
    ),
    Reason.ENCODING: ReasonInfo(
        "Text is not UTF-8, or holds U+0000 or a lone surrogate.", "publisher", False
    ),
    Reason.MALFORMED_ROW: ReasonInfo(
        "A publisher met a row it could not map and sent its bytes.", "publisher", False
    ),
    Reason.MALFORMED_JSON: ReasonInfo(
        "The value is not JSON, or not the JSON this contract takes.", "publisher", False
    ),
    Reason.MALFORMED_AVRO: ReasonInfo(
        "The Avro body does not decode with the schema it names.", "publisher", False
    ),
    Reason.UNKNOWN_SCHEMA: ReasonInfo(
        "The schema store has no schema of this id.", "operator", True
    ),
    Reason.MISSING_KEY: ReasonInfo("The idempotency key is absent or blank.", "publisher", False),
    Reason.FLOAT_MONEY: ReasonInfo(
        "An amount arrived as a binary floating-point number.", "publisher", False
    ),
    Reason.SCHEMA_VIOLATION: ReasonInfo(
        "A field breaks the record's contract.", "publisher", False
    ),
    Reason.UNCERTIFIED: ReasonInfo(
        "The certification the event needs is absent (49 CFR 396.11, 396.13).", "publisher", False
    ),
    Reason.ATTACHMENT_INVALID: ReasonInfo(
        "An inline attachment does not match its digest or length.", "publisher", False
    ),
    Reason.CLOCK_SKEW: ReasonInfo(
        "The record's own time is too far from its Kafka timestamp.", "publisher", True
    ),
    Reason.UNRESOLVED_JURISDICTION: ReasonInfo(
        "The tax jurisdiction names no authority in force on the period's first day.",
        "operator",
        True,
    ),
    Reason.STATUTORY_CAP: ReasonInfo("An amount is above a cap in force.", "publisher", True),
    Reason.CONTROL_TOTAL_MISMATCH: ReasonInfo(
        "The chunk's declared and found totals differ.", "publisher", False
    ),
    Reason.IDEMPOTENCY_COLLISION: ReasonInfo(
        "The key is taken by a record with another content.", "publisher", False
    ),
    Reason.PROCESSING_ERROR: ReasonInfo("Our own code failed on this record.", "developer", True),
    Reason.PERSIST_FAILED: ReasonInfo(
        "The database refused this record's data.", "developer", True
    ),
    Reason.HELD_BY_OPERATOR: ReasonInfo("An operator set this position aside.", "operator", True),
}


class Flag(StrEnum):
    """A remark on a committed record, never a refusal. Closed list."""

    CLOCK_AHEAD = "clock_ahead"
    """The record's time is 15 minutes to 24 hours ahead of its Kafka timestamp."""
    VIN_CHECK_DIGIT = "vin_check_digit"
    """The check digit fails where it binds: WMI 1 to 5, model year 1981 or later (49 CFR 565)."""
    VIN_PLACEHOLDER = "vin_placeholder"
    """The VIN is a known filler, such as seventeen ones, which pass the check digit."""
    ODOMETER_UNIT_MISSING = "odometer_unit_missing"
    """An odometer value came without the unit the source measured it in."""
    UNSAFE_WITHOUT_DEFECT = "unsafe_without_defect"
    """The condition is unsafe and no defect is listed."""
    SIGNATURE_ORDER = "signature_order"
    """A mechanic signed before the driver did; often a device clock."""
    CROSSES_YEAR = "crosses_year"
    """The pay period begins in one year and ends in the next."""
