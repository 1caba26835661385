"""From a committed payroll event back to its ledger row. Pure; the inverse of `checks.event_of`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from schemas.canonical import canonical_body, digest_of
from schemas.contract import canonical_of, told_unknown, validate
from schemas.payroll.checks import NOT_DIGESTED, key_of
from schemas.payroll.model import PayrollStatement
from schemas.restoring import EventFault, common_row


def restore(
    members: Mapping[str, Any], traceparent: str | None
) -> tuple[tuple[object, ...], tuple[tuple[object, ...], ...]]:
    """Ledger row and receipts, of which a statement has none, from the event's members."""
    supplied_key = members["supplied_key"]
    statement = validate(PayrollStatement, {**members, "idempotency_key": supplied_key})
    if not isinstance(statement, PayrollStatement):
        message = "the event's members are no statement"
        raise EventFault(message)
    key = key_of(statement)
    if key.hex() != members["idempotency_key"]:
        message = "the event's members do not have the key it names"
        raise EventFault(message)
    unknown_ones = told_unknown(PayrollStatement, members["unknown_members"])
    body = canonical_body(canonical_of(statement, unknown_ones, NOT_DIGESTED))
    row = (
        *common_row(
            members,
            key=key,
            supplied_key=supplied_key,
            traceparent=traceparent,
            canonical_digest=digest_of(body),
            body=body,
        ),
        statement.employee_id,
        statement.source_run_id,
        statement.statement_id,
        statement.statement_type.value,
        statement.corrects,
        statement.pay_period_start,
        statement.pay_period_end,
        statement.pay_date,
        statement.gross_pay,
        statement.net_pay,
        statement.currency,
        statement.tax_jurisdiction,
        members["authority"],
        members["authority_level"],
        members["rule_ids"],
        members["residence_authority"],
    )
    return row, ()
