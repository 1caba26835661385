"""From a committed DVIR event back to its ledger row and its signatures' receipts. Pure; the
inverse of `checks.event_of`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from schemas.canonical import canonical_body, digest_of
from schemas.contract import canonical_of, told_unknown, validate
from schemas.dvir.checks import NOT_DIGESTED, key_of, receipts_of
from schemas.dvir.model import Dvir
from schemas.restoring import EventFault, common_row


def restore(
    members: Mapping[str, Any], traceparent: str | None
) -> tuple[tuple[object, ...], tuple[tuple[object, ...], ...]]:
    """Ledger row and receipts from the event's members."""
    dvir = validate(Dvir, members)
    if not isinstance(dvir, Dvir):
        message = "the event's members are no report"
        raise EventFault(message)
    key = key_of(dvir.idempotency_key)
    unknown_ones = told_unknown(Dvir, members["unknown_members"])
    body = canonical_body(canonical_of(dvir, unknown_ones, NOT_DIGESTED))
    row = (
        *common_row(
            members,
            key=key,
            supplied_key=None,
            traceparent=traceparent,
            canonical_digest=digest_of(body),
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
        members["received_at"],
        dvir.condition.value,
        members["unit_identifier"],
        members["defects_open"],
        members["critical"],
        members["payload"],
    )
    return row, receipts_of(dvir, key)
