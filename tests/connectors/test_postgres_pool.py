"""Sessions: the bound, the timeouts, and how a transaction ends when something goes wrong."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from fractions import Fraction
from math import floor
from typing import Any

import asyncpg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.errors import ConfigurationError, DatabaseUnavailable
from connectors.postgres.ledger import PostgresLedger
from connectors.postgres.pool import Pool, PoolSettings, max_concurrency, session_settings
from tests.connectors.proxy import proxied
from tests.connectors.rows import GROUP, PAYROLL, PAYROLL_SOURCE, TOKEN, payroll, write_batch


@pytest.fixture
async def owner(database: Any) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(database.owner_dsn)
    yield connection
    await connection.close()


async def active_sessions(owner: asyncpg.Connection, application_name: str) -> int:
    """Sessions inside a transaction, as the server counts them."""
    return int(
        await owner.fetchval(
            "SELECT count(*) FROM pg_stat_activity WHERE application_name = $1 "
            "AND datname = current_database() AND xact_start IS NOT NULL",
            application_name,
        )
    )


async def eventually(question: Any, expected: object, within_s: float = 5.0) -> None:
    """Wait until an awaitable question has the expected answer."""
    end = asyncio.get_running_loop().time() + within_s
    while (answer := await question()) != expected:
        assert asyncio.get_running_loop().time() < end, f"still {answer!r}, not {expected!r}"
        await asyncio.sleep(0.02)


# --- the bound ------------------------------------------------------------------------------------


@given(st.integers(1, 10_000), st.integers(1, 500))
def test_the_bound_is_four_fifths_of_the_pool_per_query(pool_size: int, queries: int) -> None:
    """`max(1, floor(pool / queries x 0.8))`, computed exactly."""
    exact = floor(Fraction(pool_size, queries) * Fraction(4, 5))
    assert max_concurrency(pool_size, queries) == max(1, exact)


@pytest.mark.parametrize(
    ("pool_size", "queries", "bound"), [(1, 1, 1), (5, 1, 4), (10, 1, 8), (20, 3, 5), (3, 7, 1)]
)
def test_the_bound_in_examples(pool_size: int, queries: int, bound: int) -> None:
    """Worked examples of the bound."""
    assert max_concurrency(pool_size, queries) == bound


@pytest.mark.parametrize(("pool_size", "queries"), [(0, 1), (1, 0), (-1, 1), (1, -5), (0, 0)])
def test_a_bound_of_nothing_is_an_error(pool_size: int, queries: int) -> None:
    """Sizes below 1 are refused, by the function and by the settings."""
    with pytest.raises(ValueError, match="at least 1"):
        max_concurrency(pool_size, queries)
    with pytest.raises(ValueError, match="at least 1"):
        PoolSettings("", pool_size=pool_size, queries_per_record=queries)


async def test_the_peak_never_exceeds_the_bound(database: Any, owner: asyncpg.Connection) -> None:
    """However many uses want a session at once, no more than the bound have one.

    Counted by the pool and by the server; what is sampled on the server can miss a peak, the pool's
    own count cannot.
    """
    seen = 0
    async with Pool(PoolSettings(database.worker_dsn, pool_size=5)) as pool:

        async def use() -> None:
            async with pool.transaction() as session:
                await session.fetch("SELECT pg_sleep(0.02)")

        async with asyncio.TaskGroup() as group:
            users = [group.create_task(use()) for _ in range(40)]
            while not all(u.done() for u in users):
                seen = max(seen, await active_sessions(owner, "weighbridge-worker"))
        assert pool.bound == 4
        assert pool.peak == 4
        assert pool.in_use == 0
    assert 1 <= seen <= 4


async def test_waiting_for_a_session_ends_at_the_deadline(database: Any) -> None:
    """A use that gets no session within the batch deadline is told so, retryably."""
    async with Pool(PoolSettings(database.worker_dsn, pool_size=1, batch_deadline_s=0.3)) as pool:
        async with pool._slot():
            with pytest.raises(DatabaseUnavailable, match="sessions became free"):
                async with pool.transaction():
                    pass
        async with pool.transaction() as session:
            assert await session.fetchrow("SELECT 1") is not None


# --- settings -------------------------------------------------------------------------------------


def milliseconds(setting: str) -> int:
    """PostgreSQL's `SHOW` of a time, in milliseconds."""
    for unit, factor in (("ms", 1), ("min", 60_000), ("s", 1000), ("h", 3_600_000)):
        if setting.endswith(unit):
            return int(setting.removesuffix(unit)) * factor
    return int(setting)


@pytest.mark.parametrize("cache", [100, 0], ids=["direct", "behind a pooler"])
async def test_every_transaction_has_its_timeouts(database: Any, cache: int) -> None:
    """Statement, lock, transaction and idle timeouts derive from the batch deadline and are set."""
    settings = PoolSettings(database.worker_dsn, batch_deadline_s=12.0, statement_cache_size=cache)
    async with Pool(settings) as pool:
        for _ in range(2):  # the second use finds them too
            async with pool.transaction() as session:
                shown = {
                    name: (await session.one(name, f"SHOW {name}"))[0]
                    for name in session_settings(settings)
                }
                isolation = await session.one("isolation", "SHOW transaction_isolation")
    assert milliseconds(shown["statement_timeout"]) == 10_800
    assert milliseconds(shown["transaction_timeout"]) == 12_000
    assert milliseconds(shown["lock_timeout"]) == 2_000
    assert milliseconds(shown["idle_in_transaction_session_timeout"]) == 4_000
    assert isolation[0] == "read committed"


async def test_a_dead_peer_is_noticed_by_tcp(database: Any) -> None:
    """Keepalives and the TCP user timeout derive from the batch deadline too."""
    settings = PoolSettings(database.worker_dsn, batch_deadline_s=12.0)
    async with Pool(settings) as pool, pool.transaction() as session:
        over_tcp = (await session.one("address", "SELECT inet_client_addr()"))[0] is not None
        rows = await session.fetch(
            "SELECT name, setting::int FROM pg_settings WHERE name LIKE 'tcp_%'"
        )
    expected = {
        "tcp_keepalives_idle": 4,
        "tcp_keepalives_interval": 2,
        "tcp_keepalives_count": 3,
        "tcp_user_timeout": 12_000,
    }
    # A Unix socket has none of these and shows zeros.
    assert dict(rows) == (expected if over_tcp else dict.fromkeys(expected, 0))


async def test_behind_a_pooler_nothing_stays_in_the_session(database: Any) -> None:
    """With a statement cache of 0, no prepared statement and no setting outlives a transaction."""
    settings = PoolSettings(database.worker_dsn, pool_size=1, statement_cache_size=0)
    async with Pool(settings) as pool:
        ledger = PostgresLedger(pool, PAYROLL)
        await ledger.begin(PAYROLL_SOURCE, GROUP, TOKEN, "cluster", 0)
        async with ledger.transaction(PAYROLL_SOURCE, GROUP) as tx:
            await write_batch(tx, 1, 0, [payroll(0), payroll(1)])
        (connection,) = pool._idle
        assert await connection.fetchval("SELECT count(*) FROM pg_prepared_statements") == 0
        assert await connection.fetchval("SHOW lock_timeout") == "0"


async def test_a_statement_past_its_timeout_is_retryable(database: Any) -> None:
    """The server ends a statement that takes too long; that is infrastructure."""
    async with Pool(PoolSettings(database.worker_dsn, batch_deadline_s=0.2)) as pool:
        with pytest.raises(DatabaseUnavailable) as caught:
            async with pool.transaction() as session:
                await session.fetch("SELECT pg_sleep(5)")
    assert caught.value.retryable


async def test_a_session_idle_inside_its_transaction_is_ended(database: Any) -> None:
    """A worker that stops with a transaction open loses it after a third of the deadline."""
    async with Pool(PoolSettings(database.worker_dsn, batch_deadline_s=0.6)) as pool:
        with pytest.raises(DatabaseUnavailable):  # noqa: PT012 - may come at the end
            async with pool.transaction() as session:
                await asyncio.sleep(0.5)
                await session.fetch("SELECT 1")
        async with pool.transaction() as session:
            assert (await session.one("one", "SELECT 1"))[0] == 1


def test_settings_do_not_show_the_password() -> None:
    """The DSN is left out of the representation."""
    assert "secret" not in repr(PoolSettings("postgresql://worker:secret@db/wb"))


@pytest.mark.parametrize("deadline_s", [0.0, -1.0, 4000.0, float("nan")])
def test_a_deadline_must_make_sense(deadline_s: float) -> None:
    """A deadline of nothing or of hours is refused."""
    with pytest.raises(ValueError, match="batch_deadline_s"):
        PoolSettings("", batch_deadline_s=deadline_s)


# --- faults of the server -------------------------------------------------------------------------


async def test_a_read_only_database_is_waited_for(database: Any, owner: asyncpg.Connection) -> None:
    """Writes refused by a read-only server are retryable, and work again when it takes writes."""
    async with Pool(PoolSettings(database.worker_dsn)) as pool:
        ledger = PostgresLedger(pool, PAYROLL)
        await set_read_only(owner, on=True)
        await owner.execute(
            "SELECT pg_terminate_backend(pid, 2000) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
        await asyncio.sleep(0.05)
        with pytest.raises(DatabaseUnavailable, match="read-only") as caught:
            await ledger.begin(PAYROLL_SOURCE, GROUP, TOKEN, "cluster", 0)
        assert caught.value.retryable
        await set_read_only(owner, on=False)
        cursor = await ledger.begin(PAYROLL_SOURCE, GROUP, TOKEN, "cluster", 0)
        assert cursor.next_offset == 0


async def set_read_only(owner: asyncpg.Connection, *, on: bool) -> None:
    name = await owner.fetchval("SELECT current_database()")
    await owner.execute(
        f'ALTER DATABASE "{name}" SET default_transaction_read_only = {"on" if on else "off"}'
    )


async def test_an_idle_session_that_was_ended_is_replaced(
    database: Any, owner: asyncpg.Connection
) -> None:
    """Sessions lost while idle, as in a server restart, do not fail the next use."""
    async with Pool(PoolSettings(database.worker_dsn)) as pool:
        await owner.execute(
            "SELECT pg_terminate_backend(pid, 2000) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
        await asyncio.sleep(0.05)
        async with pool.transaction() as session:
            assert (await session.one("one", "SELECT 1"))[0] == 1


async def test_a_server_that_is_not_there_is_retryable() -> None:
    """Nobody listening is infrastructure, at the start too."""
    with pytest.raises(DatabaseUnavailable):
        await Pool(PoolSettings("postgresql://nobody@127.0.0.1:1/none")).open()


async def test_a_database_that_does_not_exist_is_a_configuration_error(database: Any) -> None:
    """At the start, a wrong database name is for somebody to correct."""
    wrong = (
        database.worker_dsn.replace("?", "-gone?")
        if "?" in database.worker_dsn
        else (database.worker_dsn + "-gone")
    )
    with pytest.raises(ConfigurationError, match="does not exist"):
        await Pool(PoolSettings(wrong)).open()


async def test_a_malformed_address_is_a_configuration_error() -> None:
    """A DSN that cannot be read is not retried."""
    with pytest.raises(ConfigurationError):
        await Pool(PoolSettings("https://example.org")).open()


async def test_an_old_server_is_refused(database: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Below PostgreSQL 17 there is no transaction_timeout, so it does not start."""
    monkeypatch.setattr("connectors.postgres.connection.POSTGRES_MAJOR_MIN", 99)
    with pytest.raises(ConfigurationError, match="too old"):
        await Pool(PoolSettings(database.worker_dsn)).open()


async def test_a_swallowed_failure_does_not_pass_for_a_commit(database: Any) -> None:
    """A transaction in which a statement failed cannot commit, even if its body hid the error."""
    async with Pool(PoolSettings(database.worker_dsn)) as pool:
        with pytest.raises(DatabaseUnavailable, match="ROLLBACK"):  # noqa: PT012 - may come at the end
            async with pool.transaction() as session:
                with pytest.raises(DatabaseUnavailable):
                    await session.execute("SELECT 1 / 0")


# --- cancellation and lost answers ----------------------------------------------------------------


async def test_a_cancelled_transaction_rolls_back_at_once(
    database: Any, owner: asyncpg.Connection
) -> None:
    """Cancellation in the middle of a statement ends the transaction and leaks no session."""
    async with Pool(PoolSettings(database.worker_dsn, pool_size=1)) as pool:

        async def busy() -> None:
            async with pool.transaction() as session:
                await session.execute("LOCK TABLE partition_cursor IN ROW EXCLUSIVE MODE")
                await session.fetch("SELECT pg_sleep(20)")

        task = asyncio.create_task(busy())
        await eventually(lambda: active_sessions(owner, "weighbridge-worker"), 1)
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await eventually(lambda: active_sessions(owner, "weighbridge-worker"), 0, within_s=1.0)
        assert pool.in_use == 0
        async with pool.transaction() as session:
            assert (await session.one("one", "SELECT 1"))[0] == 1


async def test_cancelling_twice_still_leaks_nothing(
    database: Any, owner: asyncpg.Connection
) -> None:
    """A second cancellation during the rollback closes the session instead of waiting for it."""
    async with (
        proxied(database.worker_dsn) as (proxy, dsn),
        Pool(PoolSettings(dsn, pool_size=1)) as pool,
    ):

        async def busy() -> None:
            async with pool.transaction() as session:
                await session.fetch("SELECT pg_sleep(20)")

        task = asyncio.create_task(busy())
        await eventually(lambda: active_sessions(owner, "weighbridge-worker"), 1)
        proxy.answers.clear()
        task.cancel()
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(task, 1.0)
        proxy.answers.set()
        await eventually(lambda: active_sessions(owner, "weighbridge-worker"), 0)
        assert pool.in_use == 0


async def test_a_commit_whose_answer_is_late_is_unknown_not_lost(
    database: Any, owner: asyncpg.Connection
) -> None:
    """Past its deadline the connection is closed; D tells that the commit holds.

    A pass does not prove that every interleaving of a dying network ends like this one.
    """
    async with (
        proxied(database.worker_dsn) as (proxy, dsn),
        Pool(PoolSettings(dsn, batch_deadline_s=1.0)) as pool,
    ):
        ledger = PostgresLedger(pool, PAYROLL)
        await ledger.begin(PAYROLL_SOURCE, GROUP, TOKEN, "cluster", 0)
        with pytest.raises(DatabaseUnavailable, match="unknown"):  # noqa: PT012 - may come at the end
            async with ledger.transaction(PAYROLL_SOURCE, GROUP) as tx:
                await write_batch(tx, 1, 0, [payroll(0)])
                proxy.answers.clear()
        proxy.answers.set()
        assert await owner.fetchval("SELECT next_offset FROM partition_cursor") == 1
        cursor = await ledger.take(PAYROLL_SOURCE.topic, 0, GROUP, TOKEN)
        assert cursor is not None
        assert cursor.next_offset == 1


async def test_a_connection_cut_in_the_commit_is_retryable(
    database: Any, owner: asyncpg.Connection
) -> None:
    """When the connection dies with the answer, the outcome is read from D."""
    async with (
        proxied(database.worker_dsn) as (proxy, dsn),
        Pool(PoolSettings(dsn)) as pool,
    ):
        ledger = PostgresLedger(pool, PAYROLL)
        await ledger.begin(PAYROLL_SOURCE, GROUP, TOKEN, "cluster", 0)

        async def cut_later() -> None:
            await eventually(lambda: owner.fetchval("SELECT next_offset FROM partition_cursor"), 1)
            proxy.cut()

        with pytest.raises(DatabaseUnavailable):  # noqa: PT012 - may come at the end
            async with ledger.transaction(PAYROLL_SOURCE, GROUP) as tx:
                await write_batch(tx, 1, 0, [payroll(0)])
                proxy.answers.clear()
                cutter = asyncio.create_task(cut_later())
        await cutter
        proxy.answers.set()
        cursor = await ledger.take(PAYROLL_SOURCE.topic, 0, GROUP, TOKEN)
        assert cursor is not None
        assert cursor.next_offset == 1


async def test_a_commit_is_never_cancelled(database: Any) -> None:
    """A task cancelled while it commits ends only when the commit has, and the commit holds."""
    async with (
        proxied(database.worker_dsn) as (proxy, dsn),
        Pool(PoolSettings(dsn, pool_size=1)) as pool,
    ):
        ledger = PostgresLedger(pool, PAYROLL)
        await ledger.begin(PAYROLL_SOURCE, GROUP, TOKEN, "cluster", 0)
        committing = asyncio.Event()

        async def persist() -> None:
            async with ledger.transaction(PAYROLL_SOURCE, GROUP) as tx:
                await write_batch(tx, 1, 0, [payroll(0)])
                proxy.answers.clear()
                committing.set()

        task = asyncio.create_task(persist())
        await committing.wait()
        await asyncio.sleep(0.05)
        task.cancel()
        await asyncio.sleep(0.1)
        assert not task.done()
        proxy.answers.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        cursor = await ledger.take(PAYROLL_SOURCE.topic, 0, GROUP, TOKEN)
        assert cursor is not None
        assert cursor.next_offset == 1


async def test_closing_ends_idle_sessions_and_those_in_use_when_they_are_done(
    database: Any, owner: asyncpg.Connection
) -> None:
    """After closing, no session of the pool remains on the server."""
    pool = Pool(PoolSettings(database.worker_dsn, application_name="closing"))
    await pool.open()
    async with pool.transaction() as session:
        await pool.close()
        assert (await session.one("one", "SELECT 1"))[0] == 1

    async def sessions() -> int:
        return int(
            await owner.fetchval(
                "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'closing'"
            )
        )

    await eventually(sessions, 0)
