"""Writing a batch: what the data's faults cost, what is the infrastructure's, and races."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import asyncpg
import pytest

from connectors.errors import DatabaseUnavailable, InvariantViolation
from connectors.postgres.ledger import PostgresLedger
from connectors.postgres.pool import Pool, PoolSettings
from schemas.envelope import Source
from schemas.reasons import Reason
from schemas.verdict import Accepted, Refused, Violation
from tests.connectors.rows import (
    DVIR,
    DVIR_SOURCE,
    GROUP,
    PAYROLL,
    PAYROLL_SOURCE,
    POISON,
    TOKEN,
    dvir,
    key_of,
    page,
    payroll,
    refused,
    write_batch,
)

OTHER_SOURCE = Source("payroll.raw", 1)


@pytest.fixture
async def owner(database: Any) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(database.owner_dsn)
    yield connection
    await connection.close()


@pytest.fixture
async def pool(database: Any) -> AsyncIterator[Pool]:
    async with Pool(PoolSettings(database.worker_dsn, pool_size=5)) as pool:
        yield pool


@pytest.fixture
async def payrolls(pool: Pool) -> PostgresLedger:
    ledger = PostgresLedger(pool, PAYROLL)
    await ledger.begin(PAYROLL_SOURCE, GROUP, TOKEN, "cluster", 0)
    await ledger.begin(OTHER_SOURCE, GROUP, TOKEN, "cluster", 0)
    return ledger


@pytest.fixture
async def inspections(pool: Pool) -> PostgresLedger:
    ledger = PostgresLedger(pool, DVIR)
    await ledger.begin(DVIR_SOURCE, GROUP, TOKEN, "cluster", 0)
    return ledger


async def persist(
    ledger: PostgresLedger, batch: list[Accepted], source: Source = PAYROLL_SOURCE
) -> dict[int, Refused]:
    """One transaction: write, and write again without what was refused."""
    async with ledger.transaction(source, GROUP) as tx:
        await tx.claim(TOKEN, 0)
        written = await tx.write_ledger(batch)
        culprits = dict(written.refused)
        kept = [a for a in batch if a.offset not in culprits]
        if culprits and kept:
            again = await tx.write_ledger(kept)
            assert not again.refused
            assert not again.raced
        settled = [culprits.get(a.offset, a) for a in batch]
        await tx.finish(page(1, 0, settled))
    return culprits


async def count(owner: asyncpg.Connection, table: str) -> int:
    return int(await owner.fetchval(f"SELECT count(*) FROM {table}"))


# --- faults of the data ---------------------------------------------------------------------------


@pytest.mark.parametrize("places", [[0], [99], [0, 99], [40, 41, 42, 77], list(range(0, 100, 7))])
async def test_poison_is_isolated_among_valid_records(
    payrolls: PostgresLedger, owner: asyncpg.Connection, places: list[int]
) -> None:
    """Records that break a constraint are refused by name; all their neighbours commit."""
    await owner.execute(
        "ALTER TABLE payroll_ledger ADD CONSTRAINT payroll_test_poison "
        f"CHECK (employee_id <> '{POISON}')"
    )
    batch = [payroll(n, employee_id=POISON) if n in places else payroll(n) for n in range(100)]
    # A culprit of another kind, so that no single code holds for all of a small part.
    culprits = await persist(payrolls, batch)
    assert sorted(culprits) == places
    for offset, verdict in culprits.items():
        accepted = batch[offset]
        assert verdict == Refused(
            offset=offset,
            timestamp=accepted.timestamp,
            raw_digest=accepted.raw_digest,
            reason=Reason.PERSIST_FAILED,
            violations=(Violation("", "SQLSTATE 23514 constraint payroll_test_poison"),),
            correlation_id=accepted.correlation_id,
            key=accepted.key,
        )
    stored = {row["record_offset"] for row in await owner.fetch("TABLE payroll_ledger")}
    assert stored == set(range(100)) - set(places)


async def test_a_refused_value_names_its_column_and_not_itself(
    payrolls: PostgresLedger, owner: asyncpg.Connection
) -> None:
    """Class 22 names SQLSTATE and column; the value and the driver's text stay away."""
    huge = Decimal("987654321098765.43")
    batch = [payroll(0), payroll(1, gross_pay=huge), payroll(2, employee_id="A\x00B")]
    culprits = await persist(payrolls, batch)
    assert culprits[1].violations == (Violation("gross_pay", "SQLSTATE 22003"),)
    assert culprits[2].violations == (Violation("employee_id", "SQLSTATE 22021"),)
    assert "987654321" not in repr(culprits)
    assert await count(owner, "payroll_ledger") == 1


@pytest.mark.parametrize(
    "changes",
    [
        {"employee_id": 17},
        {"employee_id": "\ud800"},
        {"gross_pay": "not a number"},
        {"pay_date": "2026-11-06"},
        {"authority_level": 2**40},
        {"rule_ids": "not a list"},
        {"rule_ids": [1]},
    ],
    ids=str,
)
async def test_a_value_the_client_cannot_encode_costs_only_its_record(
    payrolls: PostgresLedger, owner: asyncpg.Connection, pool: Pool, changes: dict[str, object]
) -> None:
    """A value of the wrong kind is its record's fault; batch and session survive it."""
    batch = [payroll(n) for n in range(9)]
    batch[4] = payroll(4, **changes)
    sessions_before = set(map(id, pool._idle))
    culprits = await persist(payrolls, batch)
    assert list(culprits) == [4]
    assert culprits[4].violations == (Violation("", "SQLSTATE 22000"),)
    assert await count(owner, "payroll_ledger") == 8
    assert set(map(id, pool._idle)) == sessions_before


async def test_a_single_record_is_refused_by_itself(
    payrolls: PostgresLedger, owner: asyncpg.Connection
) -> None:
    """A batch of one record that the database refuses is that record's fault."""
    culprits = await persist(payrolls, [payroll(0, gross_pay=Decimal(-1))])
    assert culprits[0].violations == (
        Violation("", "SQLSTATE 23514 constraint payroll_ledger_gross_pay"),
    )
    assert await count(owner, "payroll_ledger") == 0
    assert await count(owner, "verdict_page") == 1


async def test_records_that_only_clash_with_one_another_are_found(
    payrolls: PostgresLedger, owner: asyncpg.Connection
) -> None:
    """Of two records a constraint does not allow together, the later one in key order goes."""
    await owner.execute(
        "ALTER TABLE payroll_ledger ADD CONSTRAINT payroll_test_once UNIQUE (supplied_key)"
    )
    batch = [payroll(n, supplied_key=f"key {n}") for n in range(8)]
    first, second = sorted((batch[1], batch[6]), key=lambda a: a.key)
    twin = payroll(second.offset, supplied_key="clash")
    batch[second.offset] = twin
    batch[first.offset] = payroll(first.offset, supplied_key="clash")
    culprits = await persist(payrolls, batch)
    assert list(culprits) == [second.offset]
    assert await count(owner, "payroll_ledger") == 7


# --- receipts -------------------------------------------------------------------------------------


async def test_receipts_are_written_with_their_rows(
    inspections: PostgresLedger, owner: asyncpg.Connection
) -> None:
    """Each record's receipts stand beside its ledger row, in order."""
    batch = [dvir(0, signatures=2), dvir(1, signatures=0), dvir(2, signatures=1)]
    assert await persist(inspections, batch, DVIR_SOURCE) == {}
    rows = await owner.fetch("SELECT key, ordinal, receipt FROM dvir_signature")
    assert {tuple(row) for row in rows} == {
        (key_of(0), 0, "receipt-0"),
        (key_of(0), 1, "receipt-1"),
        (key_of(2), 0, "receipt-0"),
    }


@pytest.mark.parametrize("ordinal", [-1, 70_000], ids=["by the server", "by the encoder"])
async def test_a_refused_receipt_leaves_neither_row(
    inspections: PostgresLedger, owner: asyncpg.Connection, ordinal: int
) -> None:
    """A receipt that cannot be stored takes its ledger row and its other receipts with it."""
    batch = [dvir(n, signatures=2) for n in range(5)]
    good, bad = batch[3].receipts
    batch[3].receipts = (good, (bad[0], ordinal, *bad[2:]))
    culprits = await persist(inspections, batch, DVIR_SOURCE)
    assert list(culprits) == [3]
    assert await count(owner, "dvir_ledger") == 4
    assert await count(owner, "dvir_signature") == 8
    assert not await owner.fetch("SELECT FROM dvir_signature WHERE key = $1", key_of(3))


# --- faults that are not the data's ---------------------------------------------------------------


async def test_one_code_for_all_records_is_infrastructure(
    payrolls: PostgresLedger, owner: asyncpg.Connection
) -> None:
    """When every record of a batch is refused with the same code, none of them is to blame."""
    await owner.execute(
        "ALTER TABLE payroll_ledger ADD CONSTRAINT payroll_test_none CHECK (false) NOT VALID"
    )
    with pytest.raises(DatabaseUnavailable, match="every record") as caught:
        await persist(payrolls, [payroll(n) for n in range(6)])
    assert "23514" in str(caught.value)
    assert await count(owner, "verdict_page") == 0


async def test_a_constraint_that_is_not_the_types_own_is_infrastructure(
    payrolls: PostgresLedger, owner: asyncpg.Connection
) -> None:
    """Only constraints named after the type count as data (a missing partition looks like one)."""
    await owner.execute(
        f"ALTER TABLE payroll_ledger ADD CONSTRAINT other_rule CHECK (employee_id <> '{POISON}')"
    )
    with pytest.raises(DatabaseUnavailable, match="other_rule"):
        await persist(payrolls, [payroll(0), payroll(1, employee_id=POISON)])


async def test_a_missing_privilege_is_waited_for_with_a_clear_message(
    payrolls: PostgresLedger, owner: asyncpg.Connection
) -> None:
    """At run time a lost privilege or table is infrastructure: it heals when it is given back."""
    await owner.execute("REVOKE INSERT ON payroll_ledger FROM weighbridge_worker")
    with pytest.raises(DatabaseUnavailable, match=r"privilege.*42501"):
        await persist(payrolls, [payroll(0), payroll(1)])
    await owner.execute("GRANT INSERT ON payroll_ledger TO weighbridge_worker")
    assert await persist(payrolls, [payroll(0), payroll(1)]) == {}


async def test_errors_hold_no_value_of_a_record(
    payrolls: PostgresLedger, owner: asyncpg.Connection
) -> None:
    """Neither message nor traceback of a translated error shows what the server quoted."""
    import traceback

    await owner.execute(
        f"ALTER TABLE payroll_ledger ADD CONSTRAINT other_rule CHECK (employee_id <> '{POISON}')"
    )
    with pytest.raises(DatabaseUnavailable) as caught:
        await persist(payrolls, [payroll(0), payroll(1, employee_id=POISON)])
    assert POISON not in "".join(traceback.format_exception(caught.value))


async def test_a_quarantined_position_is_not_quarantined_again(
    payrolls: PostgresLedger,
) -> None:
    """A second verdict for a position, as by another group on the same database, stops us."""
    async with payrolls.transaction(PAYROLL_SOURCE, GROUP) as tx:
        await write_batch(tx, 1, 0, [refused(0)])
    await payrolls.begin(PAYROLL_SOURCE, "second group", TOKEN, "cluster", 0)
    with pytest.raises(InvariantViolation, match="consumer group"):
        async with payrolls.transaction(PAYROLL_SOURCE, "second group") as tx:
            await write_batch(tx, 1, 0, [refused(0)])


@pytest.mark.parametrize(("number", "begin"), [(2, 0), (0, 0), (1, 1)])
async def test_a_page_must_follow_the_cursor(
    payrolls: PostgresLedger, owner: asyncpg.Connection, number: int, begin: int
) -> None:
    """The cursor moves by compare-and-set on batch number and offset, or the process stops."""
    with pytest.raises(InvariantViolation, match="does not follow"):  # noqa: PT012 - see finish
        async with payrolls.transaction(PAYROLL_SOURCE, GROUP) as tx:
            await tx.claim(TOKEN, 0)
            await tx.write_ledger([payroll(begin)])
            await tx.finish(page(number, begin, [payroll(begin)]))
    assert await count(owner, "payroll_ledger") == 0
    assert await count(owner, "verdict_page") == 0


# --- races ----------------------------------------------------------------------------------------


async def test_a_lost_race_is_told_and_then_seen(
    payrolls: PostgresLedger, owner: asyncpg.Connection
) -> None:
    """Of two transactions inserting one key, the second is told so and then sees the holder."""
    winner_wrote, loser_probed = asyncio.Event(), asyncio.Event()
    shared = key_of("shared")

    async def winner() -> None:
        async with payrolls.transaction(PAYROLL_SOURCE, GROUP) as tx:
            await tx.claim(TOKEN, 0)
            batch = [payroll(0, "shared"), payroll(1, "mine")]
            assert (await tx.write_ledger(batch)).raced is False
            await tx.finish(page(1, 0, list(batch)))
            winner_wrote.set()
            await loser_probed.wait()
            await asyncio.sleep(0.1)

    async def loser() -> None:
        await winner_wrote.wait()
        async with payrolls.transaction(OTHER_SOURCE, GROUP) as tx:
            await tx.claim(TOKEN, 0)
            batch = [payroll(0, "shared"), payroll(1, "yours")]
            assert await tx.probe([shared]) == {}
            loser_probed.set()
            written = await tx.write_ledger(batch)
            assert written.raced
            assert not written.refused
            held = await tx.probe([shared, key_of("yours")])
            assert held.keys() == {shared}
            assert held[shared].position.offset == 0
            assert not (await tx.write_ledger([batch[1]])).raced
            await tx.finish(page(1, 0, list(batch)))

    async with asyncio.TaskGroup() as group:
        group.create_task(winner())
        group.create_task(loser())
    assert await count(owner, "payroll_ledger") == 3


async def test_a_rival_that_rolls_back_leaves_the_key_free(
    payrolls: PostgresLedger, owner: asyncpg.Connection
) -> None:
    """Waiting for a rival that gives up ends in writing the key, not in a race."""
    rival_wrote = asyncio.Event()

    async def rival() -> None:
        async with payrolls.transaction(PAYROLL_SOURCE, GROUP) as tx:
            await tx.claim(TOKEN, 0)
            await tx.write_ledger([payroll(0, "shared")])
            rival_wrote.set()
            await asyncio.sleep(0.1)
            raise ZeroDivisionError

    task = asyncio.create_task(rival())
    await rival_wrote.wait()
    assert await persist(payrolls, [payroll(0, "shared")], OTHER_SOURCE) == {}
    with pytest.raises(ZeroDivisionError):
        await task
    assert await count(owner, "payroll_ledger") == 1


async def test_many_partitions_settle_overlapping_keys_to_one_row_each(
    database: Any, owner: asyncpg.Connection
) -> None:
    """Workers that write overlapping keys at once end with one row per key, without deadlock.

    A pass shows that key order prevents deadlocks here; it cannot show it for every schedule.
    """
    partitions, keys_each = 6, 150
    async with Pool(PoolSettings(database.worker_dsn, pool_size=10)) as pool:
        ledger = PostgresLedger(pool, PAYROLL)

        async def work(partition: int) -> int:
            source = Source("payroll.raw", partition)
            await ledger.begin(source, GROUP, TOKEN, "cluster", 0)
            batch = [payroll(n, (partition * 50 + n) % 300) for n in range(keys_each)]
            async with ledger.transaction(source, GROUP) as tx:
                await tx.claim(TOKEN, 0)
                while True:
                    held = await tx.probe([a.key for a in batch])
                    free = [a for a in batch if a.key not in held]
                    if not (await tx.write_ledger(free)).raced:
                        break
                await tx.finish(page(1, 0, list(batch)))
            return len(free)

        written = await asyncio.gather(*(work(p) for p in range(partitions)))
    assert sum(written) == await count(owner, "payroll_ledger") == 300


async def test_retired_keys_stay_taken(payrolls: PostgresLedger, owner: asyncpg.Connection) -> None:
    """A key whose row retention removed is still held, with its position and digest (G2)."""
    await owner.execute(
        "INSERT INTO retired_key VALUES ('payroll', $1, $2, 1, 0, 44)", key_of("old"), bytes(32)
    )
    await owner.execute(
        "INSERT INTO retired_key VALUES ('dvir', $1, $2, 1, 0, 45)", key_of("other"), bytes(32)
    )
    async with payrolls.transaction(PAYROLL_SOURCE, GROUP) as tx:
        held = await tx.probe([key_of("old"), key_of("other")])
    assert held.keys() == {key_of("old")}
    assert str(held[key_of("old")].position) == "payroll.raw/1/0/44"


async def test_a_row_comes_back_as_it_was_written(payrolls: PostgresLedger) -> None:
    """Types survive the database, so that an owed event is the event that was decided."""
    full = payroll(
        0,
        statement_id="2",
        corrects="ab" * 32,
        pay_date=date(2026, 11, 6),
        gross_pay=Decimal("999999999999.99"),
        net_pay=Decimal("0.10"),
        rule_ids=["US-PA:510101/EIT/2026", "ü"],
        residence_authority="US-NJ",
        writer_schema=b"12345678",
        traceparent="00-" + "a" * 32 + "-" + "b" * 16 + "-01",
        supplied_key="their key",
        flags=["crosses_year"],
    )
    async with payrolls.transaction(PAYROLL_SOURCE, GROUP) as tx:
        await write_batch(tx, 1, 0, [full])
    (owed,) = [b async for b in payrolls.owed(PAYROLL_SOURCE, GROUP, 0, 1)]
    (row,) = owed.committed_rows
    assert list(row) == list(full.row)
    assert [type(v) for v in row] == [type(v) for v in full.row]
    gross = row[PAYROLL.ledger_columns.index("gross_pay")]
    assert str(gross) == "999999999999.99"


async def test_instants_come_back_with_their_microseconds(inspections: PostgresLedger) -> None:
    """Timestamps keep microseconds and their instant."""
    at = datetime.fromisoformat("2026-11-02T06:30:00.123456+05:30")
    async with inspections.transaction(DVIR_SOURCE, GROUP) as tx:
        await write_batch(tx, 1, 0, [dvir(0, inspected_at=at)])
    (owed,) = [b async for b in inspections.owed(DVIR_SOURCE, GROUP, 0, 1)]
    (row,) = owed.committed_rows
    assert row[DVIR.ledger_columns.index("inspected_at")] == at


async def test_no_plan_scans_a_growing_ledger(payrolls: PostgresLedger, pool: Pool) -> None:
    """The probe looks keys up in the index even when planned while the ledger is empty."""
    async with pool.transaction() as session:
        plan = await session.fetch(f"EXPLAIN {_probe_of(payrolls)}")
    text = "\n".join(row[0] for row in plan)
    assert "Seq Scan" not in text
    assert re.search(r"payroll_ledger_pkey", text)


def _probe_of(ledger: PostgresLedger) -> str:
    probe = ledger._statements.probe
    return probe.replace("$1", "ARRAY['\\x00']").replace("$2", "'payroll'")
