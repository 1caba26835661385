"""Deciding a payroll statement: key, canonical body, jurisdiction, ledger row, event. Pure.

The event is a function of the ledger row: `event_of` reads the body back through the same model and
yields the same bytes, which is how events owed after a crash are rebuilt.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

from schemas.canonical import canonical_body, digest_of
from schemas.contract import (
    blank,
    canonical_of,
    correlation_id,
    length_prefixed,
    matches,
    read_body,
    unknown_body,
    unknown_members,
    validate,
    without_key,
)
from schemas.decision_set import DecisionSet
from schemas.payroll.model import Line, PayrollStatement
from schemas.payroll.versions import encode_committed
from schemas.reasons import Flag, Reason
from schemas.record_type import (
    COMMON_LEDGER_COLUMNS,
    Facts,
    Fit,
    Refusal,
    common_fields,
    common_values,
)
from schemas.rules.authorities import resolve
from schemas.verdict import Violation

KEY_DOMAIN = b"wb/payroll/1"
RAW_TOPIC = "payroll.raw"

LEDGER_COLUMNS = (
    *COMMON_LEDGER_COLUMNS,
    "employee_id",
    "source_run_id",
    "statement_id",
    "statement_type",
    "corrects",
    "pay_period_start",
    "pay_period_end",
    "pay_date",
    "gross_pay",
    "net_pay",
    "currency",
    "tax_jurisdiction",
    "authority",
    "authority_level",
    "rule_ids",
    "residence_authority",
)
_AT = {name: index for index, name in enumerate(LEDGER_COLUMNS)}

NOT_DIGESTED = frozenset({"idempotency_key", "correlation_id"})
"""What the digest leaves out; each has a column of its own."""
_nine_digits = matches("[0-9]{9}")


def key_of(statement: PayrollStatement) -> bytes:
    """The idempotency key, 32 bytes, in hex the `idempotency_key`: SHA-256 over the domain and the
    identifying fields, the latter length-prefixed; an absent statement_id is empty."""
    return hashlib.sha256(
        KEY_DOMAIN
        + length_prefixed(
            statement.employee_id,
            statement.pay_period_start.isoformat(),
            statement.pay_period_end.isoformat(),
            statement.source_run_id,
            statement.statement_id or "",
        )
    ).digest()


def decide(members: Mapping[str, object], facts: Facts, decision_set: DecisionSet) -> Fit | Refusal:
    """Decide one decoded statement."""
    found = validate(PayrollStatement, members)
    correlation = correlation_id(facts, members.get("correlation_id"))
    if blank(members.get("idempotency_key")):
        violations = without_key("not blank", found)
        return Refusal(Reason.MISSING_KEY, violations, correlation_id=correlation)
    if not isinstance(found, PayrollStatement):
        return Refusal(found[0], tuple(found[1]), correlation_id=correlation)
    return _decide(found, members, facts, decision_set, correlation)


def _decide(
    statement: PayrollStatement,
    members: Mapping[str, object],
    facts: Facts,
    decision_set: DecisionSet,
    correlation: str,
) -> Fit | Refusal:
    limits = decision_set.limits
    period, alone = statement.pay_period_start, limits.allow_federal_alone
    authority = resolve(statement.tax_jurisdiction, period, federal_alone=alone)
    faults: list[tuple[Reason, Violation]] = []
    looks_like_ssn = not limits.allow_nine_digit_ids and _nine_digits(statement.employee_id)
    if looks_like_ssn:
        rule = "nine digits look like a social security number"
        faults.append((Reason.SCHEMA_VIOLATION, Violation("employee_id", rule)))
    try:
        unknown_ones = unknown_members(PayrollStatement, members)
        body = canonical_body(canonical_of(statement, unknown_ones, NOT_DIGESTED))
    except ValueError as error:
        faults.append((Reason.SCHEMA_VIOLATION, Violation("", str(error))))
    if authority is None:
        rule = "names no authority in force on pay_period_start"
        faults.append((Reason.UNRESOLVED_JURISDICTION, Violation("tax_jurisdiction", rule)))
    # A number that may be a secret must not be guessed from a digest over it.
    key = None if looks_like_ssn else key_of(statement)
    if authority is None or key is None or faults:
        violations = tuple(violation for _, violation in faults)
        return Refusal(faults[0][0], violations, key, correlation_id=correlation)
    residence = statement.residence_jurisdiction
    home = None if residence is None else resolve(residence, period, federal_alone=alone)
    digest = digest_of(body)
    row = (
        *common_values(
            facts,
            decision_set,
            key=key,
            canonical_digest=digest,
            correlation_id=correlation,
            supplied_key=statement.idempotency_key,
            flags=_flags(statement),
            body=body,
        ),
        statement.employee_id,
        statement.source_run_id,
        statement.statement_id,
        statement.statement_type.value,
        statement.corrects,
        period,
        statement.pay_period_end,
        statement.pay_date,
        statement.gross_pay,
        statement.net_pay,
        statement.currency,
        statement.tax_jurisdiction,
        authority.key,
        authority.level,
        [],
        None if home is None else home.key,
    )
    event_value = _event(statement, unknown_body(unknown_ones), row)
    return Fit(key, digest, row, (), statement.employee_id.encode(), event_value, correlation)


def _flags(statement: PayrollStatement) -> list[str]:
    if statement.pay_period_start.year != statement.pay_period_end.year:
        return [Flag.CROSSES_YEAR.value]
    return []


# --- Committed event ------------------------------------------------------------------------------


def event_of(row: Sequence[object]) -> tuple[bytes, bytes]:
    """The committed event's key and value, from a ledger row as written or as read back."""
    members = read_body(row[_AT["body"]])
    statement = PayrollStatement.model_validate(members)
    unknown_ones = unknown_body(unknown_members(PayrollStatement, members))
    return statement.employee_id.encode(), _event(statement, unknown_ones, row)


def _event(statement: PayrollStatement, unknown_ones: str | None, row: Sequence[object]) -> bytes:
    """Avro single-object bytes."""
    key: bytes = row[0]  # type: ignore[assignment]
    return encode_committed(
        {
            "idempotency_key": key.hex(),
            "supplied_key": row[_AT["supplied_key"]],
            "employee_id": statement.employee_id,
            "pay_period_start": statement.pay_period_start,
            "pay_period_end": statement.pay_period_end,
            "pay_date": statement.pay_date,
            "source_run_id": statement.source_run_id,
            "statement_id": statement.statement_id,
            "statement_type": statement.statement_type.value,
            "corrects": statement.corrects,
            "gross_pay": statement.gross_pay,
            "net_pay": statement.net_pay,
            "ytd_gross": statement.ytd_gross,
            "hours": statement.hours,
            "earnings": _event_lines(statement.earnings),
            "deductions": _event_lines(statement.deductions),
            "taxes": _event_lines(statement.taxes),
            "pay_code": statement.pay_code,
            "pay_group": statement.pay_group,
            "pay_frequency": statement.pay_frequency,
            "currency": statement.currency,
            "tax_jurisdiction": statement.tax_jurisdiction,
            "residence_jurisdiction": statement.residence_jurisdiction,
            "unknown_members": unknown_ones,
            "authority": row[_AT["authority"]],
            "authority_level": row[_AT["authority_level"]],
            "rule_ids": row[_AT["rule_ids"]],
            "residence_authority": row[_AT["residence_authority"]],
            **common_fields(row, RAW_TOPIC),
        }
    )


def _event_lines(lines: Sequence[Line]) -> list[dict[str, object]]:
    return [{"code": line.code, "amount": line.amount, "ytd": line.ytd} for line in lines]


def identify(members: Mapping[str, object]) -> str | None:
    """The Kafka message key: the employee."""
    found = members.get("employee_id")
    return found if isinstance(found, str) and found else None
