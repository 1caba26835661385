"""What `status` and its like read from the database.

Each report is a transaction of its own and takes no lock: a long snapshot would keep old versions
of the hot cursor rows alive and slow every batch down. So reports are each consistent in
themselves, not with one another, while workers run.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from connectors.ports import Counts, Cursor
from connectors.postgres.pool import Pool
from connectors.postgres.queries import query
from connectors.postgres.transaction import CURSOR_COLUMNS, cursor_of
from schemas.record_type import RecordType


@dataclass(frozen=True, slots=True)
class PartitionReport:
    """One partition's decided cursor."""

    group: str
    cursor: Cursor
    updated_at: datetime


@dataclass(frozen=True, slots=True)
class LedgerTotal:
    """Rows of a ledger, and their money where the type has any: one total per currency."""

    record_type: str
    ledger_rows: int
    currency: str | None
    amount: Decimal | None
    """Sum of the amounts, reversals and voids negative."""


@dataclass(frozen=True, slots=True)
class StopMark:
    """Why every partition stands still."""

    why: str
    marked_at: datetime


@dataclass(frozen=True, slots=True)
class ActiveDecisionSet:
    """What records are decided by."""

    digest: bytes
    activated_at: datetime


async def partitions(pool: Pool) -> list[PartitionReport]:
    """All cursors, by topic and partition. Raises `DatabaseUnavailable`."""
    async with pool.transaction() as session:
        rows = await session.fetch(query("report_cursors", cursor=CURSOR_COLUMNS))
    return [
        PartitionReport(row["consumer_group"], cursor_of(row), row["updated_at"]) for row in rows
    ]


def total(reports: Iterable[PartitionReport]) -> Counts:
    """Counts over several partitions. Pure; balanced when each of them is (G1)."""
    counts = Counts()
    for report in reports:
        counts += report.cursor.counts
    return counts


async def quarantine_by_reason(pool: Pool) -> dict[tuple[str, str], int]:
    """Rejects by (record type, reason). Reads the whole table. Raises `DatabaseUnavailable`."""
    async with pool.transaction() as session:
        rows = await session.fetch(query("report_quarantine"))
    return {(row["record_type"], row["reason"]): row["records"] for row in rows}


async def ledger_totals(pool: Pool, record_type: RecordType) -> list[LedgerTotal]:
    """Rows and money of a ledger; none for an empty one with money, one with 0 rows else.

    Reads the whole ledger, within the statement timeout. Raises `DatabaseUnavailable`.
    """
    async with pool.transaction() as session:
        rows = await session.fetch(query("report_totals", totals=f"{record_type.name}_totals"))
    return [
        LedgerTotal(record_type.name, row["ledger_rows"], row["currency"], row["amount"])
        for row in rows
    ]


async def stop_marks(pool: Pool) -> list[StopMark]:
    """The stop marks in force, oldest first. Raises `DatabaseUnavailable`."""
    async with pool.transaction() as session:
        rows = await session.fetch(query("report_stop_marks"))
    return [StopMark(row["why"], row["marked_at"]) for row in rows]


async def active_decision_set(pool: Pool) -> ActiveDecisionSet:
    """What is in force, and since when. Raises `DatabaseUnavailable`."""
    async with pool.transaction() as session:
        row = await session.one("an active decision set", query("report_activation"))
    return ActiveDecisionSet(row["digest"], row["activated_at"])
