"""Accepted records for tests of the ledger, made without any record type's own code."""

from __future__ import annotations

import hashlib
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

from connectors.ports import Counts, LastRecord, LedgerTransaction, Page
from schemas.decision_set import DecisionSet
from schemas.envelope import Source
from schemas.masking import Shown
from schemas.quarantine import QUARANTINE_COLUMNS
from schemas.reasons import Reason
from schemas.record_type import COMMON_LEDGER_COLUMNS, RecordType
from schemas.verdict import Accepted, Refused, Settled, Violation
from schemas.verdict_page import pack

DECISION_SET = DecisionSet().digest
TOKEN = b"t" * 16
GROUP = "gate"
PAYROLL_SOURCE = Source("payroll.raw", 0)
DVIR_SOURCE = Source("dvir.raw", 0)
POISON = "POISON1"
"""An employee id that tests make the ledger refuse."""

PAYROLL_COLUMNS = (
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
DVIR_COLUMNS = (
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
SIGNATURE_COLUMNS = ("key", "ordinal", "role", "signer_id", "signed_at", "receipt")


def _never(*_: object) -> None:
    """Deciding and emitting are none of the ledger's business."""


def _record_type(name: str, own: tuple[str, ...], receipts: tuple[str, ...]) -> RecordType:
    return RecordType(
        name=name,
        folder=Path(),
        raw_schemas=(),
        committed_schemas=(),
        ledger_columns=COMMON_LEDGER_COLUMNS + own,
        receipts_table="dvir_signature" if receipts else None,
        receipt_columns=receipts,
        decide=_never,
        event_of=_never,
        restore=_never,
        identify=_never,
        shown=Shown(frozenset(), message_key=False),
    )


PAYROLL = _record_type("payroll", PAYROLL_COLUMNS, ())
DVIR = _record_type("dvir", DVIR_COLUMNS, SIGNATURE_COLUMNS)


def key_of(name: object) -> bytes:
    return hashlib.sha256(f"key {name}".encode()).digest()


def digest_of(name: object) -> bytes:
    return hashlib.sha256(f"content {name}".encode()).digest()


def _accepted(
    offset: int,
    key: bytes,
    common: dict[str, object],
    own: dict[str, object],
    columns: tuple[str, ...],
) -> Accepted:
    values = common | own
    digest = bytes(values["canonical_digest"])  # type: ignore[call-overload]
    return Accepted(
        offset=offset,
        timestamp=1_700_000_000_000 + offset,
        raw_digest=digest_of(f"raw {offset}"),
        key=key,
        canonical_digest=digest,
        row=tuple(values[name] for name in columns),
        receipts=(),
        event_key=b"",
        event_value=b"",
        correlation_id=f"correlation-{offset}",
    )


def _common(offset: int, key: bytes, content: object) -> dict[str, object]:
    return {
        "key": key,
        "canonical_digest": digest_of(content),
        "canonical_version": 1,
        "raw_digest": digest_of(f"raw {offset}"),
        "incarnation": 1,
        "partition": 0,
        "record_offset": offset,
        "kafka_timestamp": 1_700_000_000_000 + offset,
        "decision_set": DECISION_SET,
        "contract_version": 1,
        "writer_schema": None,
        "correlation_id": f"correlation-{offset}",
        "traceparent": None,
        "supplied_key": None,
        "flags": [],
        "body": f'{{"content":"{content}"}}',
    }


def payroll(offset: int, name: object = None, **changes: object) -> Accepted:
    """An accepted payroll statement; its key and content are those of `name` (the offset)."""
    name = offset if name is None else name
    own: dict[str, object] = {
        "employee_id": "A10042",
        "source_run_id": "acme-hris/001/R2026-22",
        "statement_id": None,
        "statement_type": "regular",
        "corrects": None,
        "pay_period_start": date(2026, 10, 19),
        "pay_period_end": date(2026, 11, 1),
        "pay_date": None,
        "gross_pay": Decimal("1234.56"),
        "net_pay": None,
        "currency": "USD",
        "tax_jurisdiction": "US-PA",
        "authority": "US-PA",
        "authority_level": 2,
        "rule_ids": [],
        "residence_authority": None,
    }
    key = key_of(name)
    common = _common(offset, key, changes.pop("content", name))
    return _accepted(offset, key, common, own | changes, PAYROLL.ledger_columns)


def dvir(offset: int, name: object = None, signatures: int = 1, **changes: object) -> Accepted:
    """An accepted inspection report with as many signature receipts."""
    name = offset if name is None else name
    own: dict[str, object] = {
        "idempotency_key": f"report-{name}",
        "source": "tablet",
        "report_id": None,
        "report_version": None,
        "source_updated_at": None,
        "event": "report",
        "inspection_type": "pre_trip",
        "driver_id": "D1",
        "inspected_at": datetime(2026, 11, 2, 6, 30, tzinfo=UTC),
        "received_at": None,
        "condition": "safe",
        "unit_identifier": "TRACTOR-7",
        "defects_open": 0,
        "critical": False,
        "payload": None,
    }
    key = key_of(name)
    common = _common(offset, key, changes.pop("content", name))
    accepted = _accepted(offset, key, common, own | changes, DVIR.ledger_columns)
    accepted.receipts = tuple(
        (key, n, "driver", "D1", datetime(2026, 11, 2, 6, 40, tzinfo=UTC), f"receipt-{n}")
        for n in range(signatures)
    )
    return accepted


def refused(offset: int, reason: Reason = Reason.MALFORMED_JSON) -> Refused:
    """A record that deciding turned away."""
    return Refused(
        offset=offset,
        timestamp=1_700_000_000_000 + offset,
        raw_digest=digest_of(f"raw {offset}"),
        reason=reason,
        violations=(Violation("", "is not JSON"),),
        correlation_id=f"correlation-{offset}",
    )


def quarantine_row(offset: int, source: Source = PAYROLL_SOURCE) -> tuple[object, ...]:
    values: dict[str, object] = {
        "topic": source.topic,
        "incarnation": source.incarnation,
        "partition": source.partition,
        "record_offset": offset,
        "kafka_timestamp": -1,
        "record_type": source.topic.removesuffix(".raw"),
        "reason": "malformed_json",
        "detail": "[]",
        "key": None,
        "correlation_id": "c",
        "decision_set": DECISION_SET,
        "raw_digest": digest_of(offset),
        "attempt": 1,
        "safety_critical": False,
        "record_key": None,
        "record_value": b"\x00not json",
        "record_headers": b"[]",
    }
    return tuple(values[name] for name in QUARANTINE_COLUMNS)


def page(
    number: int,
    begin: int,
    settled: list[Settled],
    *,
    next_offset: int | None = None,
    counts: Counts | None = None,
) -> Page:
    """The page of a batch in which every record is committed or quarantined."""
    rejected = sum(1 for s in settled if isinstance(s, Refused))
    return Page(
        begin=begin,
        next_offset=begin + len(settled) if next_offset is None else next_offset,
        batch_number=number,
        decision_set=DECISION_SET,
        packed=pack(settled),
        counts=counts or Counts(len(settled), len(settled) - rejected, 0, rejected),
        last=LastRecord(settled[-1].offset, settled[-1].raw_digest, 7)  # type: ignore[union-attr]
        if settled
        else None,
        emitted_offset=begin,
    )


async def write_batch(
    tx: LedgerTransaction, number: int, begin: int, settled: list[Settled], **options: object
) -> Page:
    """Claim, write and finish a batch inside a transaction."""
    await tx.claim(TOKEN, begin)
    accepted = [s for s in settled if isinstance(s, Accepted)]
    written = await tx.write_ledger(accepted)
    assert not written.raced
    assert not written.refused
    rejects = [quarantine_row(s.offset) for s in settled if isinstance(s, Refused)]
    await tx.write_quarantine(rejects)
    stored = page(number, begin, settled, **options)  # type: ignore[arg-type]
    await tx.finish(stored)
    return stored
