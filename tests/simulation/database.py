"""A database as PostgreSQL behaves at the ports: row locks, READ COMMITTED, commits that go on
though nobody waits for them, sessions that the server ends.

`SimulatedLedger` passes the port's own suite (`tests/connectors/test_ledger_port.py`).
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from connectors.errors import ClaimRefused, DatabaseUnavailable, InfrastructureError, invariant
from connectors.memory import MemoryLedger, Tables, _holder, _interventions
from connectors.ports import Claim, Cursor, OwedBatch, Page, Written
from connectors.postgres.pool import _wait
from schemas.decision_set import DecisionSet
from schemas.envelope import Source
from schemas.record_type import COMMON_LEDGER_COLUMNS, RecordType
from schemas.verdict import Accepted, Holder, Refused
from tests.simulation.loop import PROCESS, Process
from tests.simulation.world import World

LOCK_TIMEOUT_S = 0.7
IDLE_TIMEOUT_S = 1.5
BATCH_DEADLINE_S = 4.0
TAKE_TRIES = 3
_BODY = COMMON_LEDGER_COLUMNS.index("body")

Lock = tuple[object, ...]


class LockTimeout(DatabaseUnavailable):
    """A row stayed locked."""


@dataclass(eq=False)
class Session:
    """One transaction at the server."""

    alive: bool = True
    committing: bool = False
    used_at_s: float = 0.0
    busy: int = 0
    locks: set[Lock] = field(default_factory=set)
    rows: dict[bytes, Accepted] = field(default_factory=dict)
    quarantine: list[tuple[object, ...]] = field(default_factory=list)
    cursor: Cursor | None = None
    page: Page | None = None
    pause: str | None = None
    active: bytes = b""
    process: Process | None = None


@dataclass(frozen=True)
class Commit:
    """A line of the database's own log: a batch that became true, in this order."""

    source: Source
    page: Page
    active: bytes
    """The decision set in force when the batch was claimed."""


class SimulatedLedger(MemoryLedger):
    """`Ledger` of one record type at a simulated server."""

    def __init__(
        self,
        world: World,
        record_type: RecordType,
        refuses: Callable[[Accepted], Refused | None] = lambda _: None,
    ) -> None:
        super().__init__(record_type, refuses=refuses)
        self.world = world
        self.commits: list[Commit] = []
        self.owners: dict[tuple[str, int, str], Process | None] = {}
        """Who wrote the token that stands in a cursor row."""
        self._holders: dict[Lock, Session] = {}
        self._waiting: list[asyncio.Future[None]] = []

    # -- locks and sessions ------------------------------------------------------------------------

    def open_session(self) -> Session:
        """A session; the server ends it when its client is gone or sleeps inside a transaction."""
        process = PROCESS.get()
        session = Session(used_at_s=self.world.now_s, process=process)
        if process is not None:
            process.on_death.append(lambda: self.end(session))
        self._watch(session)
        return session

    def _watch(self, session: Session) -> None:
        """`idle_in_transaction_session_timeout`."""
        if not session.alive or session.committing:
            return
        idle_s = self.world.now_s - session.used_at_s
        if session.busy == 0 and idle_s >= IDLE_TIMEOUT_S:
            self.end(session)
        else:
            self.world.later(IDLE_TIMEOUT_S, self._watch, session)

    def end(self, session: Session) -> None:
        """Roll back, unless the commit is under way: that nobody can stop."""
        if session.alive and not session.committing:
            session.alive = False
            self._release(session)

    def _release(self, session: Session) -> None:
        for lock in session.locks:
            del self._holders[lock]
        session.locks = set()
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            if not future.done():
                future.set_result(None)

    async def lock(self, session: Session, lock: Lock) -> None:
        """Wait for a row. Raises `LockTimeout` past `lock_timeout`."""
        loop = asyncio.get_running_loop()
        until_s = loop.time() + LOCK_TIMEOUT_S
        while self._holders.get(lock, session) is not session:
            left_s = until_s - loop.time()
            if left_s <= 0:
                message = f"{lock[0]} stayed locked"
                raise LockTimeout(message)
            future: asyncio.Future[None] = loop.create_future()
            self._waiting.append(future)
            await asyncio.wait({future}, timeout=left_s)
        self.alive(session)
        self._holders[lock] = session
        session.locks.add(lock)

    def alive(self, session: Session) -> None:
        """Raises `DatabaseUnavailable` when the server has ended the session."""
        session.used_at_s = self.world.now_s
        if not session.alive:
            message = "the server ended the session"
            raise DatabaseUnavailable(message)

    def unlock(self, session: Session, lock: Lock) -> None:
        """Give one row back (a savepoint rolled back)."""
        session.locks.discard(lock)
        self._holders.pop(lock, None)

    # -- the port ----------------------------------------------------------------------------------

    async def deployment(self) -> str:
        return await self.world.at_once("database", "deployment", lambda: "simulated-deployment")

    async def take(
        self, source_topic: str, partition: int, group: str, token: bytes
    ) -> Cursor | None:
        key = (source_topic, partition, group)
        for _ in range(TAKE_TRIES - 1):
            try:
                return await self._take(key, token)
            except LockTimeout:
                await self.world.at_once("database", "terminate", lambda: self._terminate(key))
        return await self._take(key, token)

    async def _take(self, key: tuple[str, int, str], token: bytes) -> Cursor | None:
        async def update() -> Cursor | None:
            self._check_stop_mark()
            session = self.open_session()
            session.busy += 1
            try:
                await self.lock(session, ("cursor", *key))
                cursor = self.tables.cursors.get(key)
                if cursor is not None:
                    self.tables.tokens[key] = token
                    self.owners[key] = PROCESS.get()
                return cursor
            finally:
                self.end(session)

        return await self.world.ask("database", "take", update)

    def _terminate(self, key: tuple[str, int, str]) -> None:
        holder = self._holders.get(("cursor", *key))
        if holder is not None:
            self.world.note(f"terminated: the session that holds {key}")
            self.end(holder)

    async def begin(
        self, source: Source, group: str, token: bytes, cluster_id: str, first_offset: int
    ) -> Cursor:
        key = (source.topic, source.partition, group)

        def insert() -> Cursor:
            if key not in self.tables.cursors:
                fresh = Cursor(source, cluster_id, first_offset, first_offset, 0, None, None)
                self.tables.cursors[key] = fresh
                self.tables.tokens[key] = token
                self.owners[key] = PROCESS.get()
            if self.tables.tokens[key] != token:
                message = f"{source}: another worker began it first"
                raise ClaimRefused(message)
            return self.tables.cursors[key]

        return await self.world.at_once("database", "begin", insert)

    @asynccontextmanager
    async def transaction(  # type: ignore[override]
        self, source: Source, group: str
    ) -> AsyncIterator[SimulatedTransaction]:
        session = await self.world.at_once("database", "transaction", self.open_session)
        try:
            transaction = SimulatedTransaction(self, session, source, group)
            yield transaction
            await self._commit(session, source, group)
        except BaseException as error:
            # A lost connection is noticed late by the server; a rollback arrives soon.
            late = isinstance(error, InfrastructureError)
            self.world.later(
                0.0 if self.world.over else self.world.chance.uniform(0.0, 0.3 if late else 0.05),
                self.end,
                session,
            )
            raise

    async def _commit(self, session: Session, source: Source, group: str) -> None:
        """As the pool does it: never cancelled, given up past a deadline, then unknown."""
        loop = asyncio.get_running_loop()

        async def send() -> asyncio.Future[None]:
            self.alive(session)
            session.committing = True
            done: asyncio.Future[None] = loop.create_future()
            delay_s = 0.0
            if self.world.happens("slow", "inside commit"):
                delay_s = self.world.chance.uniform(0.1, 2 * BATCH_DEADLINE_S)
            self.world.later(delay_s, self._apply, session, source, group, done)
            await _wait(done, BATCH_DEADLINE_S)  # type: ignore[arg-type]
            return done

        answered = loop.create_task(self.world.ask("database", "commit", send))
        cancelled = await _wait(answered, 2 * BATCH_DEADLINE_S)  # type: ignore[arg-type]
        if not answered.done():
            answered.add_done_callback(_look_at)
        if not answered.done() or not answered.result().done():
            message = "the answer to COMMIT did not come in time; whether it holds is unknown"
            raise DatabaseUnavailable(message)
        if cancelled is not None:
            raise cancelled

    def _apply(
        self, session: Session, source: Source, group: str, done: asyncio.Future[None]
    ) -> None:
        """The moment in which a batch becomes true."""
        tables, key = self.tables, (source.topic, source.partition, group)
        for row_key, accepted in session.rows.items():
            if row_key in tables.ledger:
                self.world.fail(f"{source}: a key was written twice (G2)")
            tables.ledger[row_key] = accepted.row
            tables.receipts += accepted.receipts
        for row in session.quarantine:
            self._quarantine(tables, row)
        if session.page is not None and session.cursor is not None:
            if self.owners[key] is not session.process:
                self.world.fail(f"{source}: a former owner has written")
            page_key = (source.topic, source.incarnation, source.partition, group)
            tables.pages.setdefault(page_key, []).append(session.page)
            tables.cursors[key] = session.cursor
            if session.pause is not None:
                tables.pauses.setdefault(key, session.pause)
            self.commits.append(Commit(source, session.page, session.active))
            self.world.note(
                f"committed: {source} batch {session.page.batch_number} "
                f"[{session.page.begin}, {session.page.next_offset})"
            )
        session.committing = session.alive = False
        self._release(session)
        if not done.done():
            done.set_result(None)

    def _quarantine(self, tables: Tables, row: tuple[object, ...]) -> None:
        place = _position(row)
        if place in tables.quarantine:
            self.world.fail(f"{place}: a position has two verdicts (G1)")
        tables.quarantine[place] = row

    async def owed(
        self, source: Source, group: str, emitted_offset: int, decided_offset: int
    ) -> AsyncIterator[OwedBatch]:
        def read() -> list[Page]:
            return list(self._pages(source, group))

        at = emitted_offset
        for page in await self.world.at_once("database", "page_at", read):
            if page.begin < emitted_offset or at >= decided_offset:
                continue
            invariant(page.begin == at, f"{source}: pages do not join up at {at}")
            yield await self.world.at_once(
                "database", "owed_batch", lambda page=page: self._owed_batch(source, page)
            )
            at = page.next_offset
        invariant(at == decided_offset, f"{source}: pages end at {at}, not {decided_offset}")

    async def batch_end(self, source: Source, group: str, batch_number: int) -> int | None:
        async def read() -> int | None:
            return await super(SimulatedLedger, self).batch_end(source, group, batch_number)

        return await self.world.ask("database", "batch_end", read)

    async def decision_set(self, digest: bytes) -> DecisionSet:
        async def read() -> DecisionSet:
            return await super(SimulatedLedger, self).decision_set(digest)

        return await self.world.ask("database", "decision_set", read)

    async def active_decision_set(self) -> DecisionSet:
        return await self.world.at_once("database", "active_decision_set", lambda: self.active)


@dataclass
class SimulatedTransaction:
    """`LedgerTransaction` in one session."""

    ledger: SimulatedLedger
    session: Session
    source: Source
    group: str

    @property
    def _key(self) -> tuple[str, int, str]:
        return (self.source.topic, self.source.partition, self.group)

    async def _statement(self, point: str, do: Callable[[], object]) -> None:
        def checked() -> None:
            self.ledger.alive(self.session)
            do()

        await self.ledger.world.at_once("database", point, checked)
        self.ledger.alive(self.session)

    async def claim(self, token: bytes, begin: int) -> Claim:
        async def select_for_update() -> Claim:
            self.session.busy += 1
            try:
                await self.ledger.lock(self.session, ("cursor", *self._key))
            finally:
                self.session.busy -= 1
            cursor = self.ledger.check_claim(self.source, self.group, token, begin)
            self.session.active = self.ledger.active.digest
            self.ledger.world.note(
                f"claimed: {self.source} at {begin} under {self.session.active.hex()[:8]}"
            )
            interventions = _interventions(self.ledger.tables, cursor, self.group)
            return Claim(cursor, self.session.active, interventions)

        return await self.ledger.world.ask("database", "claim", select_for_update)

    async def probe(self, keys: Sequence[bytes]) -> Mapping[bytes, Holder]:
        found: dict[bytes, Holder] = {}

        def select() -> None:
            held = self.ledger.tables.ledger
            found.update({k: _holder(held[k], self.source.topic) for k in keys if k in held})

        await self._statement("probe", select)
        return found

    async def bodies(self, keys: Sequence[bytes]) -> Mapping[bytes, str]:
        found: dict[bytes, str] = {}

        def select() -> None:
            held = self.ledger.tables.ledger
            found.update({k: str(held[k][_BODY]) for k in keys if k in held})

        await self._statement("bodies", select)
        return found

    async def write_ledger(self, accepted: Sequence[Accepted]) -> Written:
        refuses = self.ledger.refuses
        refused = {a.offset: r for a in accepted if (r := refuses(a)) is not None}

        async def copy() -> Written:
            self.ledger.alive(self.session)
            self.session.busy += 1
            written: list[Accepted] = []
            try:
                for row in sorted(accepted, key=lambda a: a.key):
                    if row.offset in refused:
                        continue
                    await self.ledger.lock(self.session, ("key", row.key))
                    written.append(row)
                    if row.key in self.ledger.tables.ledger or row.key in self.session.rows:
                        self._take_back(written)
                        self.ledger.world.note(f"raced: {self.source}")
                        return Written(raced=True)
            finally:
                self.session.busy -= 1
            if refused:
                self._take_back(written)
                return Written(refused=refused)
            self.session.rows.update({row.key: row for row in written})
            return Written()

        return await self.ledger.world.ask("database", "write_ledger", copy)

    def _take_back(self, written: Sequence[Accepted]) -> None:
        for row in written:
            self.ledger.unlock(self.session, ("key", row.key))

    async def write_quarantine(self, rows: Sequence[tuple[object, ...]]) -> None:
        def copy() -> None:
            there = {_position(row) for row in self.session.quarantine}
            for row in rows:
                twice = _position(row) in there | self.ledger.tables.quarantine.keys()
                invariant(not twice, "a position has one verdict (G1)")
            self.session.quarantine += rows

        await self._statement("write_quarantine", copy)

    async def pause(self, why: str) -> None:
        def insert() -> None:
            self.session.pause = why

        await self._statement("pause", insert)

    async def finish(self, page: Page) -> None:
        def compare_and_set() -> None:
            cursor = self.ledger.tables.cursors[self._key]
            follows = (cursor.next_offset, cursor.batch_number + 1) == (
                page.begin,
                page.batch_number,
            )
            invariant(follows, f"{self.source}: {page.batch_number} does not follow the cursor")
            self.session.page = page
            self.session.cursor = dataclasses.replace(
                cursor,
                next_offset=page.next_offset,
                batch_number=page.batch_number,
                last=page.last,
                emitted_offset=page.emitted_offset,
                counts=cursor.counts + page.counts,
            )

        await self._statement("finish", compare_and_set)


def _position(row: tuple[object, ...]) -> tuple[str, int, int, int]:
    topic, incarnation, partition, offset = row[:4]
    return (str(topic), int(str(incarnation)), int(str(partition)), int(str(offset)))


def _look_at(task: asyncio.Future[object]) -> None:
    if not task.cancelled():
        task.exception()
