"""The ledger in PostgreSQL: ownership of a partition, its transaction, and what is still owed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from connectors.errors import (
    ClaimRefused,
    ConfigurationError,
    StopAll,
    invariant,
)
from connectors.ports import Cursor, Interventions, OwedBatch
from connectors.postgres.errors import LOCK_NOT_AVAILABLE, PostgresUnavailable
from connectors.postgres.pool import Pool, Row
from connectors.postgres.queries import query
from connectors.postgres.transaction import (
    PostgresTransaction,
    Statements,
    cursor_of,
    interventions_of,
)
from connectors.postgres.verdicts import entries_of
from schemas.decision_set import CONTRACT_VERSION, DecisionSet
from schemas.envelope import Source
from schemas.quarantine import QUARANTINE_COLUMNS
from schemas.record_type import COMMON_LEDGER_COLUMNS, RecordType
from schemas.verdict import Verdict

TAKE_TRIES = 3
"""How often step (b) tries for the cursor row, ending sessions of ours that hold it in between."""
TERMINATE_WAIT_MS = 2000
"""How long a terminated session is waited for before the next try."""

_KEY = COMMON_LEDGER_COLUMNS.index("key")
_OFFSET = COMMON_LEDGER_COLUMNS.index("record_offset")
_QUARANTINE_OFFSET = QUARANTINE_COLUMNS.index("record_offset")


class PostgresLedger:
    """`connectors.ports.Ledger` for one record type."""

    def __init__(self, pool: Pool, record_type: RecordType) -> None:
        self._pool = pool
        self._type = record_type
        self._statements = Statements(record_type)

    async def deployment(self) -> str:
        """The random id made by the first migration."""
        async with self._pool.transaction() as session:
            row = await session.one("the deployment's id", query("deployment"))
        return str(row["id"])

    async def take(
        self, source_topic: str, partition: int, group: str, token: bytes
    ) -> Cursor | None:
        """Step (b): make `token` the owner of the cursor row; None when there is no row yet.

        Waits for a locked row for the lock timeout, then ends the sessions of our own role and
        application name that hold it, and tries again. Raises `DatabaseUnavailable`, `StopAll`.

        Which sessions those are is what `pg_blocking_pids` would tell; asking it takes a second
        session while the first one waits, and with every session of the pool waiting there might be
        none left. The row itself names its holder, and is asked after the wait.
        """
        for _ in range(TAKE_TRIES - 1):
            try:
                return await self._take(source_topic, partition, group, token)
            except PostgresUnavailable as error:
                if error.sqlstate != LOCK_NOT_AVAILABLE:
                    raise
                await self._terminate_blockers(source_topic, partition, group)
        return await self._take(source_topic, partition, group, token)

    async def _take(self, topic: str, partition: int, group: str, token: bytes) -> Cursor | None:
        async with self._pool.transaction() as session:
            mark = await session.fetchrow(query("stop_mark"))
            if mark is not None:
                raise StopAll(mark["why"])
            row = await session.fetchrow(self._statements.take, topic, partition, group, token)
        return None if row is None else cursor_of(row)

    async def _terminate_blockers(self, topic: str, partition: int, group: str) -> None:
        async with self._pool.transaction() as session:
            await session.fetch(
                query("terminate_blockers"), topic, partition, group, TERMINATE_WAIT_MS
            )

    async def begin(
        self, source: Source, group: str, token: bytes, cluster_id: str, first_offset: int
    ) -> Cursor:
        """Create the cursor row of a partition never seen before, at `first_offset`.

        Repeating it with the same token is harmless. Raises `ClaimRefused` when another worker was
        first, `DatabaseUnavailable`.
        """
        place = source.topic, source.partition, group
        async with self._pool.transaction() as session:
            await session.execute(
                query("begin"), *place, source.incarnation, cluster_id, first_offset, token
            )
            row = await session.fetchrow(self._statements.read_cursor, *place)
            if row is None or row["owner_token"] != token:
                message = f"{source}: another worker began it first"
                raise ClaimRefused(message)
        return cursor_of(row)

    @asynccontextmanager
    async def transaction(self, source: Source, group: str) -> AsyncIterator[PostgresTransaction]:
        """Step 3: one transaction; see `Pool.transaction` for how it ends."""
        async with self._pool.transaction() as session:
            yield PostgresTransaction(session, self._type, self._statements, source, group)

    async def owed(
        self, source: Source, group: str, emitted_offset: int, decided_offset: int
    ) -> AsyncIterator[OwedBatch]:
        """The batches between E and D in order, one page in memory at a time.

        No session is held while the caller emits. Raises `InvariantViolation` when the pages do not
        join up from E to D, or a row they name is not there; `DatabaseUnavailable`.
        """
        at = emitted_offset
        number = await self._page_at(source, group, at) if at < decided_offset else 0
        while at < decided_offset:
            owed = await self._owed_batch(source, group, number, at)
            yield owed
            at = owed.next_offset
            number += 1
        invariant(
            at == decided_offset, f"{source}: pages end at {at}, the cursor at {decided_offset}"
        )

    async def _page_at(self, source: Source, group: str, offset: int) -> int:
        async with self._pool.transaction() as session:
            row = await session.one(
                f"the verdict page of {source} at offset {offset}",
                query("page_at"),
                *_place(source, group),
                offset,
            )
        return int(row["batch_number"])

    async def _owed_batch(self, source: Source, group: str, number: int, begin: int) -> OwedBatch:
        async with self._pool.transaction() as session:
            page = await session.one(
                f"the verdict page of {source} for batch {number}",
                query("page"),
                *_place(source, group),
                number,
            )
            joined = page["begin_offset"] == begin
            invariant(joined, f"{source}: batch {number} does not join up at offset {begin}")
            keys, offsets = _written(page)
            ledger_rows = await session.fetch(self._statements.ledger_rows, sorted(keys.values()))
            quarantine_rows = await session.fetch(
                self._statements.quarantine_rows,
                source.topic,
                source.incarnation,
                source.partition,
                offsets,
            )
        committed = sorted((tuple(row) for row in ledger_rows), key=lambda row: int(row[_OFFSET]))
        found = {row[_OFFSET]: row[_KEY] for row in committed}
        invariant(found == keys, f"{source}: batch {number} names ledger rows that are not there")
        rejected = [tuple(row) for row in quarantine_rows]
        invariant(
            [row[_QUARANTINE_OFFSET] for row in rejected] == offsets,
            f"{source}: batch {number} names quarantine rows that are not there",
        )
        return OwedBatch(number, page["next_offset"], committed, rejected)

    async def batch_end(self, source: Source, group: str, batch_number: int) -> int | None:
        """Where the batch of this number ended; None if there is no such page."""
        async with self._pool.transaction() as session:
            row = await session.fetchrow(query("batch_end"), *_place(source, group), batch_number)
        return None if row is None else int(row["next_offset"])

    async def interventions(self, source: Source, group: str) -> Interventions:
        """What keeps the partition, or positions of it, from going on now."""
        async with self._pool.transaction() as session:
            row = await session.fetchrow(
                query("interventions"), source.topic, source.partition, group
            )
        return Interventions() if row is None else interventions_of(row)

    async def begin_incarnation(
        self, cursor: Cursor, group: str, token: bytes, cluster_id: str, first_offset: int
    ) -> Cursor:
        """Begin another life of the partition's topic at `first_offset`; its counts go on.

        Raises `ClaimRefused` when the token is no longer ours, `DatabaseUnavailable`.
        """
        source = cursor.source
        async with self._pool.transaction() as session:
            row = await session.fetchrow(
                self._statements.begin_incarnation,
                source.topic,
                source.partition,
                group,
                source.incarnation,
                token,
                cluster_id,
                first_offset,
            )
        if row is None:
            message = f"{source}: another worker has taken the cursor"
            raise ClaimRefused(message)
        return cursor_of(row)

    async def decision_set(self, digest: bytes) -> DecisionSet:
        """A stored decision set. Raises `ConfigurationError` when this code cannot read it."""
        async with self._pool.transaction() as session:
            row = await session.fetchrow(query("decision_set"), digest)
        return stored_decision_set(digest, row)

    async def active_decision_set(self) -> DecisionSet:
        """The decision set now in force. Raises `ConfigurationError` as `decision_set` does."""
        async with self._pool.transaction() as session:
            active = await session.one("an active decision set", query("active_decision_set"))
            digest: bytes = active["digest"]
            row = await session.fetchrow(query("decision_set"), digest)
        return stored_decision_set(digest, row)

    async def set_stop_mark(self, why: str) -> None:
        """Stop every partition of the deployment at its next claim."""
        async with self._pool.transaction() as session:
            await session.execute(query("set_stop_mark"), why)


def _place(source: Source, group: str) -> tuple[str, int, str, int]:
    return source.topic, source.partition, group, source.incarnation


def _written(page: Row) -> tuple[dict[int, bytes], list[int]]:
    """What a batch wrote: offset to key of its ledger rows, and offsets of its rejects."""
    keys: dict[int, bytes] = {}
    offsets: list[int] = []
    for entry in entries_of(page["page"]):
        if entry.verdict is Verdict.COMMITTED:
            invariant(entry.key is not None, "a committed record has a key")
            keys[entry.offset] = bytes(entry.key or b"")
        elif entry.verdict is Verdict.QUARANTINED:
            offsets.append(entry.offset)
    return keys, offsets


def stored_decision_set(digest: bytes, row: Row | None) -> DecisionSet:
    """Read a stored set back; it must be one that this code decides by, to the last member."""
    name = digest.hex()[:12]
    if row is None:
        message = f"decision set {name} is not stored in this database"
        raise ConfigurationError(message)
    try:
        decision_set = DecisionSet.from_json(row["content"])
    except (ValueError, TypeError, KeyError):
        decision_set = None
    usable = decision_set is not None and decision_set.contract_version == CONTRACT_VERSION
    if decision_set is None or not usable or decision_set.digest != digest:
        message = (
            f"decision set {name} was stored by another version and cannot be used by this one; "
            "run the version that activated it, or activate a set of this version"
        )
        raise ConfigurationError(message)
    return decision_set
