"""Sessions with PostgreSQL: how many at once, how long each may take, and how they end.

Every use of a session passes one bound and is one transaction, with timeouts derived from the
batch deadline, so nothing here waits for ever and no lock outlives its owner for long. A session
that met an error other than the data's is closed, not reused: after a failover it may be attached
to the wrong server.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

import asyncpg

from connectors.errors import (
    DatabaseTimeout,
    DatabaseUnavailable,
    InfrastructureError,
    InvariantViolation,
)
from connectors.postgres.connection import CONNECT_TIMEOUT_S, check_version, connect
from connectors.postgres.errors import DRIVER_ERRORS, PostgresUnavailable, translate

Row = Any
"""An `asyncpg.Record`: values by column name or position."""

ROLLBACK_DEADLINE_S = 2.0
"""A rollback that takes longer is left to the server: the connection is closed instead."""
CLIENT_MARGIN_S = 1.0
"""How much longer than the server's statement timeout the client waits: beyond it, the server is
out of reach, not slow."""


def max_concurrency(pool_size: int, queries_per_record: int) -> int:
    """How many uses of the pool may run at once: `max(1, floor(pool / queries x 0.8))`, exactly.

    A fifth of the pool stays free for reconnecting. Raises `ValueError` when either is below 1.
    """
    if pool_size < 1 or queries_per_record < 1:
        message = (
            f"pool_size and queries_per_record must be at least 1, "
            f"not {pool_size} and {queries_per_record}"
        )
        raise ValueError(message)
    return max(1, (pool_size * 4) // (queries_per_record * 5))


@dataclass(frozen=True, slots=True)
class PoolSettings:
    """How the database is reached. Units are last in the names."""

    dsn: str = field(repr=False)
    """May hold a password, so it is never shown. Several hosts and `target_session_attrs` are
    understood, which is how a failover is followed."""
    pool_size: int = 10
    queries_per_record: int = 1
    """Sessions one use holds at once; writes are set-based, so one."""
    batch_deadline_s: float = 30.0
    """Longest a batch's transaction may take; all session timeouts derive from it."""
    application_name: str = "weighbridge-worker"
    """Sessions of this name and role may be terminated by a partition's next owner."""
    statement_cache_size: int = 100
    """0 behind a transaction pooler: no prepared statements, timeouts set per transaction."""

    def __post_init__(self) -> None:
        max_concurrency(self.pool_size, self.queries_per_record)
        if not 0.1 <= self.batch_deadline_s <= 3600:  # noqa: PLR2004 - a tenth of a second, an hour
            message = f"batch_deadline_s must be between 0.1 and 3600, not {self.batch_deadline_s}"
            raise ValueError(message)

    @property
    def pooled(self) -> bool:
        """Whether a transaction pooler stands in between, so session state does not last."""
        return self.statement_cache_size == 0


def session_settings(settings: PoolSettings) -> dict[str, str]:
    """The server settings of a session, or behind a pooler of each transaction. Pure.

    A lock is waited for a sixth of the deadline, idleness inside a transaction borne for a third;
    times are in milliseconds, keepalives in seconds.
    """
    deadline_ms = int(settings.batch_deadline_s * 1000)
    chosen = {
        # Shorter than the transaction's, or PostgreSQL ignores it and ends the session instead.
        "statement_timeout": deadline_ms * 9 // 10,
        "transaction_timeout": deadline_ms,
        "lock_timeout": max(10, deadline_ms // 6),
        "idle_in_transaction_session_timeout": max(10, deadline_ms // 3),
        # A plan made while a ledger was empty would scan it for ever; keys are always looked up.
        "enable_seqscan": "off",
        "jit": "off",
    }
    if not settings.pooled:  # behind a pooler these belong to its own connection
        chosen |= {
            "tcp_keepalives_idle": max(1, deadline_ms // 3000),
            "tcp_keepalives_interval": max(1, deadline_ms // 6000),
            "tcp_keepalives_count": 3,
            "tcp_user_timeout": deadline_ms,
        }
    return {name: str(value) for name, value in chosen.items()}


class Session:
    """One session inside one transaction. All methods raise translated errors, see `errors`."""

    __slots__ = ("_connection", "_timeout_s")

    def __init__(self, connection: asyncpg.Connection, timeout_s: float) -> None:
        self._connection = connection
        self._timeout_s = timeout_s

    async def fetch(self, sql: str, *values: object) -> list[Row]:
        """All rows of a query."""
        try:
            rows: list[Row] = await self._connection.fetch(sql, *values, timeout=self._timeout_s)
        except DRIVER_ERRORS as error:
            raise translate(error) from None
        return rows

    async def fetchrow(self, sql: str, *values: object) -> Row | None:
        """The first row of a query, or None."""
        try:
            return await self._connection.fetchrow(sql, *values, timeout=self._timeout_s)
        except DRIVER_ERRORS as error:
            raise translate(error) from None

    async def one(self, what: str, sql: str, *values: object) -> Row:
        """The row that must be there; `InvariantViolation` naming `what` when it is not."""
        row = await self.fetchrow(sql, *values)
        if row is None:
            message = f"not in the database: {what}"
            raise InvariantViolation(message)
        return row

    async def execute(self, sql: str, *values: object) -> None:
        """Run a statement, or several without values."""
        try:
            await self._connection.execute(sql, *values, timeout=self._timeout_s)
        except DRIVER_ERRORS as error:
            raise translate(error) from None

    async def copy(
        self, table: str, columns: Sequence[str], rows: Iterable[Sequence[object]]
    ) -> None:
        """COPY rows into a table. Raises the driver's own errors: the caller tells them apart."""
        await self._connection.copy_records_to_table(
            table, columns=columns, records=rows, timeout=self._timeout_s
        )


class Pool:
    """A bounded set of sessions. `async with Pool(settings) as pool`, then `pool.transaction()`."""

    def __init__(self, settings: PoolSettings) -> None:
        self.settings = settings
        self.bound = max_concurrency(settings.pool_size, settings.queries_per_record)
        self.in_use = 0
        self.peak = 0
        """The most uses that ever ran at once; never above `bound`."""
        self._slots = asyncio.Semaphore(self.bound)
        self._idle: list[asyncpg.Connection] = []
        self._closed = False
        local = "LOCAL " if settings.pooled else ""
        self._settings_sql = "; ".join(
            f"SET {local}{name} = '{value}'" for name, value in session_settings(settings).items()
        )
        # READ COMMITTED, stated: after a lost race a new statement must see who won it.
        self._begin_sql = "BEGIN ISOLATION LEVEL READ COMMITTED"
        if settings.pooled:
            self._begin_sql += f"; {self._settings_sql}"

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def open(self) -> None:
        """Open the first session, to learn early what is wrong.

        Raises `ConfigurationError` (login, database, server version) and `DatabaseUnavailable`.
        """
        try:
            self._idle.append(await self._connect())
        except DRIVER_ERRORS as error:
            raise translate(error, starting=True) from None

    async def close(self) -> None:
        """Close idle sessions; those in use are closed when their use ends. Never raises."""
        self._closed = True
        while self._idle:
            connection = self._idle.pop()
            try:
                await connection.close(timeout=ROLLBACK_DEADLINE_S)
            except DRIVER_ERRORS:
                connection.terminate()

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Session]:
        """One session in one READ COMMITTED transaction; leaving the context commits.

        Rolls back on any error, cancellation included. The commit itself is never cancelled: past
        the batch deadline the connection is closed and the outcome is unknown.
        Raises `DatabaseUnavailable` (retryable). Waits for a free session for at most the deadline.
        """
        async with self._slot():
            connection = await self._checkout()
            begun_s = asyncio.get_running_loop().time()
            try:
                session = Session(connection, self.settings.batch_deadline_s + CLIENT_MARGIN_S)
                await session.execute(self._begin_sql)
                yield session
                await self._commit(connection)
            except BaseException as error:
                await self._roll_back(connection, error)
                if self._was_ended(error, begun_s):
                    message = (
                        "PostgreSQL ended the session: its transaction outran batch_deadline_s"
                    )
                    raise DatabaseTimeout(message) from None
                raise
            self._keep(connection)

    def _was_ended(self, error: BaseException, begun_s: float) -> bool:
        """Whether a session was lost because of its transaction's own timeout: the driver says only
        that the connection is gone."""
        if not isinstance(error, PostgresUnavailable) or not error.sqlstate.startswith("08"):
            return False
        spent_s = asyncio.get_running_loop().time() - begun_s
        return spent_s >= self.settings.batch_deadline_s * 0.95

    @asynccontextmanager
    async def _slot(self) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(self.settings.batch_deadline_s):
                await self._slots.acquire()
        except TimeoutError:
            message = f"none of {self.bound} PostgreSQL sessions became free in time"
            raise DatabaseUnavailable(message) from None
        self.in_use += 1
        self.peak = max(self.peak, self.in_use)
        try:
            yield
        finally:
            self.in_use -= 1
            self._slots.release()

    async def _checkout(self) -> asyncpg.Connection:
        while self._idle:
            connection = self._idle.pop()
            if not connection.is_closed():
                return connection
        try:
            return await self._connect()
        except DRIVER_ERRORS as error:
            raise translate(error) from None

    async def _connect(self) -> asyncpg.Connection:
        connection = await connect(
            self.settings.dsn,
            timeout=min(CONNECT_TIMEOUT_S, self.settings.batch_deadline_s),
            statement_cache_size=self.settings.statement_cache_size,
            server_settings={"application_name": self.settings.application_name},
        )
        try:
            check_version(connection)
            if not self.settings.pooled:
                await connection.execute(self._settings_sql, timeout=CONNECT_TIMEOUT_S)
        except BaseException:
            connection.terminate()
            raise
        return connection

    async def _commit(self, connection: asyncpg.Connection) -> None:
        """COMMIT to its end, whatever happens to the task that asked for it.

        Cancelling it would only make the outcome unknown, and with a synchronous standby would
        make it visible before it is safe. Raises `DatabaseUnavailable` when the answer does not
        come or is not COMMIT.
        """
        # No driver timeout: it would send a cancel request.
        commit = asyncio.ensure_future(connection.execute("COMMIT"))
        cancelled = await _wait(commit, self.settings.batch_deadline_s)
        if not commit.done():
            connection.terminate()
            commit.add_done_callback(_retrieve)
            message = "the answer to COMMIT did not come in time; whether it holds is unknown"
            raise DatabaseUnavailable(message)
        try:
            status = commit.result()
        except DRIVER_ERRORS as error:
            raise translate(error) from None
        if status != "COMMIT":
            message = f"the transaction had failed before its end: COMMIT answered {status}"
            raise DatabaseUnavailable(message)
        if cancelled is not None:
            raise cancelled

    async def _roll_back(self, connection: asyncpg.Connection, error: BaseException) -> None:
        """End a failed transaction promptly; raises nothing but a further cancellation."""
        if isinstance(error, InfrastructureError) or connection.is_closed():
            connection.terminate()
            return
        rollback = asyncio.ensure_future(connection.execute("ROLLBACK"))
        rollback.add_done_callback(_retrieve)
        cancelled = await _wait(rollback, ROLLBACK_DEADLINE_S, patient=False)
        if not rollback.done() or rollback.cancelled() or rollback.exception() is not None:
            connection.terminate()
        else:
            self._keep(connection)
        if cancelled is not None:
            raise cancelled

    def _keep(self, connection: asyncpg.Connection) -> None:
        if self._closed or connection.is_closed():
            connection.terminate()
        else:
            self._idle.append(connection)


async def _wait(
    task: asyncio.Future[str], deadline_s: float, *, patient: bool = True
) -> asyncio.CancelledError | None:
    """Wait for a task without ever cancelling it; returns a cancellation that came meanwhile.

    A patient wait goes on to the deadline all the same, an impatient one ends there.
    """
    loop = asyncio.get_running_loop()
    end = loop.time() + deadline_s
    cancelled: asyncio.CancelledError | None = None
    while not task.done() and (left := end - loop.time()) > 0:
        try:
            await asyncio.wait({task}, timeout=left)
        except asyncio.CancelledError as error:
            cancelled = error
            if not patient:
                break
    return cancelled


def _retrieve(task: asyncio.Future[str]) -> None:
    """Take a result nobody waits for any more, so that the loop does not complain about it."""
    if not task.cancelled():
        task.exception()
