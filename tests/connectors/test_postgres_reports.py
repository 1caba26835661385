"""Reports: what `status` reads."""

from __future__ import annotations

from collections.abc import AsyncIterator
from decimal import Decimal
from typing import Any

import pytest

from connectors.ports import Counts
from connectors.postgres import reports
from connectors.postgres.ledger import PostgresLedger
from connectors.postgres.pool import Pool, PoolSettings
from schemas.decision_set import DecisionSet
from schemas.envelope import Source
from tests.connectors.rows import (
    DVIR,
    DVIR_SOURCE,
    GROUP,
    PAYROLL,
    TOKEN,
    dvir,
    payroll,
    refused,
    write_batch,
)


@pytest.fixture
async def pool(database: Any) -> AsyncIterator[Pool]:
    async with Pool(PoolSettings(database.worker_dsn)) as pool:
        yield pool


async def test_an_empty_database_reports_nothing(pool: Pool) -> None:
    """Before the first record there are no cursors, rejects, money or stop marks."""
    assert await reports.partitions(pool) == []
    assert await reports.quarantine_by_reason(pool) == {}
    assert await reports.ledger_totals(pool, PAYROLL) == []
    assert [t.ledger_rows for t in await reports.ledger_totals(pool, DVIR)] == [0]
    assert await reports.stop_marks(pool) == []
    assert reports.total([]) == Counts()
    active = await reports.active_decision_set(pool)
    assert active.digest == DecisionSet().digest


async def test_cursors_and_rejects_are_reported(pool: Pool) -> None:
    """Each partition's cursor comes with its counts; rejects are counted by type and reason."""
    ledger = PostgresLedger(pool, PAYROLL)
    for partition in (1, 0):
        source = Source("payroll.raw", partition)
        await ledger.begin(source, GROUP, TOKEN, "cluster", 0)
        async with ledger.transaction(source, GROUP) as tx:
            await write_batch(tx, 1, 0, [payroll(0, f"p{partition}")])
    inspections = PostgresLedger(pool, DVIR)
    await inspections.begin(DVIR_SOURCE, GROUP, TOKEN, "cluster", 0)
    async with ledger.transaction(Source("payroll.raw", 1), GROUP) as tx:
        await write_batch(tx, 2, 1, [refused(1), payroll(2), refused(3)])
    rows = await reports.partitions(pool)
    assert [(r.group, str(r.cursor.source)) for r in rows] == [
        (GROUP, "dvir.raw/0"),
        (GROUP, "payroll.raw/0"),
        (GROUP, "payroll.raw/1"),
    ]
    assert rows[2].cursor.counts == Counts(4, 2, 0, 2)
    assert reports.total(rows) == Counts(5, 3, 0, 2)
    assert reports.total(rows).balanced
    stored = await reports.quarantine_by_reason(pool)
    assert sum(stored.values()) == 2
    assert all(record_type == "payroll" for record_type, _ in stored)


async def test_totals_count_reversals_negative_per_currency(pool: Pool) -> None:
    """Money is summed exactly, by currency; a reversal's or void's magnitude is taken off."""
    ledger = PostgresLedger(pool, PAYROLL)
    source = Source("payroll.raw", 0)
    await ledger.begin(source, GROUP, TOKEN, "cluster", 0)
    batch = [
        payroll(0, gross_pay=Decimal("0.10")),
        payroll(1, gross_pay=Decimal("0.20")),
        payroll(2, gross_pay=Decimal("100.00"), statement_type="reversal"),
        payroll(3, gross_pay=Decimal("7.00"), statement_type="void"),
        payroll(4, gross_pay=Decimal("5.00"), currency="CAD"),
    ]
    async with ledger.transaction(source, GROUP) as tx:
        await write_batch(tx, 1, 0, batch)
    totals = await reports.ledger_totals(pool, PAYROLL)
    assert [(t.currency, t.ledger_rows, t.amount) for t in totals] == [
        ("CAD", 1, Decimal("5.00")),
        ("USD", 4, Decimal("-106.70")),
    ]


async def test_inspections_have_rows_and_no_money(pool: Pool) -> None:
    """A type without money reports rows alone."""
    ledger = PostgresLedger(pool, DVIR)
    await ledger.begin(DVIR_SOURCE, GROUP, TOKEN, "cluster", 0)
    async with ledger.transaction(DVIR_SOURCE, GROUP) as tx:
        await write_batch(tx, 1, 0, [dvir(0), dvir(1)])
    (total,) = await reports.ledger_totals(pool, DVIR)
    assert total == reports.LedgerTotal("dvir", 2, None, None)


async def test_stop_marks_in_force_are_reported(pool: Pool) -> None:
    """Every mark in force is shown with its reason, oldest first."""
    ledger = PostgresLedger(pool, PAYROLL)
    await ledger.set_stop_mark("first")
    await ledger.set_stop_mark("second")
    assert [mark.why for mark in await reports.stop_marks(pool)] == ["first", "second"]
