"""Step (b): becoming the owner of a partition whose former owner does not let go."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import pytest

from connectors.errors import ClaimRefused, ConfigurationError, DatabaseUnavailable
from connectors.postgres.ledger import PostgresLedger
from connectors.postgres.pool import Pool, PoolSettings
from schemas.decision_set import DecisionSet
from tests.connectors.rows import GROUP, PAYROLL, PAYROLL_SOURCE, TOKEN, page, payroll

LOCK = (
    "SELECT FROM partition_cursor WHERE topic = 'payroll.raw' AND partition = 0 FOR NO KEY UPDATE"
)
NEW_TOKEN = b"n" * 16


def settings(database: Any, **changes: Any) -> PoolSettings:
    """A deadline of 1.2 s: locks are waited for 0.2 s."""
    return PoolSettings(
        database.worker_dsn, **({"batch_deadline_s": 1.2, "pool_size": 1} | changes)
    )


@asynccontextmanager
async def stuck(dsn: str, application_name: str) -> AsyncIterator[asyncpg.Connection]:
    """A session that holds the cursor row in an open transaction and does nothing more."""
    connection = await asyncpg.connect(dsn, server_settings={"application_name": application_name})
    await connection.execute("BEGIN")
    await connection.execute(LOCK)
    try:
        yield connection
    finally:
        connection.terminate()


@pytest.fixture
async def begun(database: Any) -> Any:
    async with Pool(settings(database)) as pool:
        await PostgresLedger(pool, PAYROLL).begin(PAYROLL_SOURCE, GROUP, TOKEN, "cluster", 0)
    return database


async def test_a_stuck_owner_is_ended_by_the_next(begun: Any) -> None:
    """A session of our role and name that holds the row past the lock timeout is terminated.

    A pass with a pool of one session shows too that no second session is needed for it.
    """
    async with (
        stuck(begun.worker_dsn, "weighbridge-worker") as predecessor,
        Pool(settings(begun)) as pool,
    ):
        cursor = await PostgresLedger(pool, PAYROLL).take("payroll.raw", 0, GROUP, NEW_TOKEN)
        assert cursor is not None
        with pytest.raises((asyncpg.PostgresError, asyncpg.InterfaceError, OSError)):
            await predecessor.execute("SELECT 1")


async def test_a_stuck_transaction_of_ours_loses_all_it_wrote(begun: Any) -> None:
    """What a predecessor had written and not committed is gone, and its commit fails."""
    proceed = asyncio.Event()
    async with Pool(settings(begun)) as old, Pool(settings(begun)) as new:
        wrote = asyncio.Event()

        async def zombie() -> None:
            async with PostgresLedger(old, PAYROLL).transaction(PAYROLL_SOURCE, GROUP) as tx:
                await tx.claim(TOKEN, 0)
                await tx.write_ledger([payroll(0)])
                await tx.finish(page(1, 0, [payroll(0)]))
                wrote.set()
                await proceed.wait()

        task = asyncio.create_task(zombie())
        await wrote.wait()
        cursor = await PostgresLedger(new, PAYROLL).take("payroll.raw", 0, GROUP, NEW_TOKEN)
        proceed.set()
        with pytest.raises(DatabaseUnavailable):
            await task
    assert cursor is not None
    assert (cursor.next_offset, cursor.batch_number) == (0, 0)


@pytest.mark.parametrize("role", ["worker", "owner"])
async def test_sessions_that_are_not_ours_are_left_alone(begun: Any, role: str) -> None:
    """A session of another application name or role is never ended; the take is retried later."""
    dsn = begun.worker_dsn if role == "worker" else begun.owner_dsn
    name = "psql" if role == "worker" else "weighbridge-worker"
    async with stuck(dsn, name) as bystander, Pool(settings(begun)) as pool:
        with pytest.raises(DatabaseUnavailable, match="55P03"):
            await PostgresLedger(pool, PAYROLL).take("payroll.raw", 0, GROUP, NEW_TOKEN)
        assert await bystander.fetchval("SELECT 1") == 1


async def test_sessions_on_other_partitions_are_left_alone(begun: Any) -> None:
    """Only who holds this very row is ended."""
    async with Pool(settings(begun, pool_size=5)) as pool:
        ledger = PostgresLedger(pool, PAYROLL)
        await ledger.begin(type(PAYROLL_SOURCE)("payroll.raw", 1), GROUP, TOKEN, "cluster", 0)
        neighbour = await asyncpg.connect(
            begun.worker_dsn, server_settings={"application_name": "weighbridge-worker"}
        )
        await neighbour.execute("BEGIN")
        await neighbour.execute(LOCK.replace("partition = 0", "partition = 1"))
        async with stuck(begun.worker_dsn, "weighbridge-worker"):
            assert await ledger.take("payroll.raw", 0, GROUP, NEW_TOKEN) is not None
        assert await neighbour.fetchval("SELECT 1") == 1
        await neighbour.close()


async def test_a_waiting_claim_of_the_old_owner_finds_the_new_token(begun: Any) -> None:
    """A claim that waits while ownership moves sees the new token and is refused."""
    async with Pool(settings(begun, pool_size=5)) as pool:
        ledger = PostgresLedger(pool, PAYROLL)
        connection = await asyncpg.connect(begun.worker_dsn)
        await connection.execute("BEGIN")
        await connection.execute("UPDATE partition_cursor SET owner_token = $1", NEW_TOKEN)

        async def claim() -> None:
            async with ledger.transaction(PAYROLL_SOURCE, GROUP) as tx:
                await tx.claim(TOKEN, 0)

        task = asyncio.create_task(claim())
        await asyncio.sleep(0.1)
        await connection.execute("COMMIT")
        await connection.close()
        with pytest.raises(ClaimRefused, match="another worker"):
            await task


async def test_beginning_again_with_the_same_token_is_harmless(begun: Any) -> None:
    """A begin whose answer was lost may be repeated."""
    async with Pool(settings(begun)) as pool:
        ledger = PostgresLedger(pool, PAYROLL)
        again = await ledger.begin(PAYROLL_SOURCE, GROUP, TOKEN, "cluster", 0)
        assert again.next_offset == 0
        with pytest.raises(ClaimRefused):
            await ledger.begin(PAYROLL_SOURCE, GROUP, NEW_TOKEN, "cluster", 0)


@pytest.mark.parametrize(
    "content",
    [
        '{"contract_version":999,"limits":{},"rules_version":"r","schema_versions":{}}',
        '{"limits":{"a_limit_of_tomorrow":1}}',
        '{"contract_version":1,"limits":{},"rules_version":"r","schema_versions":{}}',
        "{}",
    ],
    ids=["newer contract", "unknown limit", "members left out", "nothing"],
)
async def test_a_set_of_another_version_stops_the_worker_with_a_reason(
    begun: Any, content: str
) -> None:
    """A decision set this code would decide differently by, or cannot read, is not guessed at."""
    owner = await asyncpg.connect(begun.owner_dsn)
    await owner.execute("INSERT INTO decision_set VALUES ($1, $2)", b"x" * 32, content)
    await owner.execute("INSERT INTO activation (digest) VALUES ($1)", b"x" * 32)
    await owner.close()
    async with Pool(settings(begun)) as pool:
        ledger = PostgresLedger(pool, PAYROLL)
        with pytest.raises(ConfigurationError, match="another version"):
            await ledger.active_decision_set()
        with pytest.raises(ConfigurationError, match="another version"):
            await ledger.decision_set(b"x" * 32)
        assert await ledger.decision_set(DecisionSet().digest) == DecisionSet()


async def test_a_newly_activated_set_is_told_by_the_next_claim(begun: Any) -> None:
    """The newest activation is in force; a set may come into force again."""
    owner = await asyncpg.connect(begun.owner_dsn)
    other = DecisionSet(rules_version="another pack")
    await owner.execute("INSERT INTO decision_set VALUES ($1, $2)", other.digest, other.as_json())
    async with Pool(settings(begun)) as pool:
        ledger = PostgresLedger(pool, PAYROLL)
        for activated in (other, DecisionSet(), other):
            await owner.execute("INSERT INTO activation (digest) VALUES ($1)", activated.digest)
            async with ledger.transaction(PAYROLL_SOURCE, GROUP) as tx:
                claim = await tx.claim(TOKEN, 0)
            assert claim.active_decision_set == activated.digest
            assert await ledger.active_decision_set() == activated
    await owner.close()
