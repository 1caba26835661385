"""The Ledger port: what every implementation promises, run on memory and on PostgreSQL."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any, Protocol

import asyncpg
import pytest

from connectors.errors import ClaimRefused, ConfigurationError, InvariantViolation, StopAll
from connectors.memory import MemoryLedger
from connectors.ports import Counts, Interventions, LastRecord, Ledger
from connectors.postgres.ledger import PostgresLedger
from connectors.postgres.pool import Pool, PoolSettings
from schemas.decision_set import DecisionSet
from schemas.envelope import Position, Source
from schemas.reasons import Reason
from schemas.verdict import Accepted, Holder, Refused
from tests.connectors.rows import (
    DECISION_SET,
    GROUP,
    PAYROLL,
    PAYROLL_SOURCE,
    POISON,
    TOKEN,
    digest_of,
    key_of,
    payroll,
    quarantine_row,
    refused,
    write_batch,
)
from tests.simulation.database import SimulatedLedger
from tests.simulation.plan import Plan
from tests.simulation.world import World as Simulation

SOURCE = PAYROLL_SOURCE


class World(Protocol):
    """An implementation of the port, and what a test may do to it from outside."""

    ledger: Ledger

    async def refuse_poison(self) -> None:
        """From now on, the ledger takes no row of employee `POISON`."""

    async def ledger_rows(self) -> int:
        """Rows in the ledger."""

    async def hold(self, position: Position) -> None:
        """An operator sets a position aside."""


def _poisoned(accepted: Accepted) -> Refused | None:
    if POISON not in accepted.row:
        return None
    return Refused(
        offset=accepted.offset,
        timestamp=accepted.timestamp,
        raw_digest=accepted.raw_digest,
        reason=Reason.PERSIST_FAILED,
        violations=(),
        correlation_id=accepted.correlation_id,
        key=accepted.key,
    )


class MemoryWorld:
    def __init__(self) -> None:
        self.ledger = MemoryLedger(PAYROLL)

    async def refuse_poison(self) -> None:
        self.ledger.refuses = _poisoned

    async def ledger_rows(self) -> int:
        return len(self.ledger.tables.ledger)

    async def hold(self, position: Position) -> None:
        self.ledger.tables.holds.add(position)


class SimulatedWorld(MemoryWorld):
    def __init__(self) -> None:
        world = Simulation(Plan.of(0))
        world.over = True  # no faults, no latency
        self.ledger = SimulatedLedger(world, PAYROLL)


class PostgresWorld:
    def __init__(self, pool: Pool, owner: asyncpg.Connection) -> None:
        self.ledger = PostgresLedger(pool, PAYROLL)
        self.owner = owner

    async def refuse_poison(self) -> None:
        await self.owner.execute(
            "ALTER TABLE payroll_ledger ADD CONSTRAINT payroll_test_poison "
            f"CHECK (employee_id <> '{POISON}')"
        )

    async def ledger_rows(self) -> int:
        return int(await self.owner.fetchval("SELECT count(*) FROM payroll_ledger"))

    async def hold(self, position: Position) -> None:
        await self.owner.execute(
            "WITH act AS (INSERT INTO operations (act, who, target) VALUES ('a', 'b', 'c') "
            "RETURNING number) INSERT INTO position_hold SELECT $1, $2, $3, $4, number FROM act",
            position.topic,
            position.incarnation,
            position.partition,
            position.offset,
        )


IN_PROCESS = {"memory": MemoryWorld, "simulated": SimulatedWorld}


@pytest.fixture(params=[*IN_PROCESS, pytest.param("postgres", marks=pytest.mark.services)])
def backing(request: pytest.FixtureRequest) -> object:
    """A kind of world in this process, else a database: asked for only when it is needed."""
    return IN_PROCESS.get(request.param) or request.getfixturevalue("database")


@pytest.fixture
async def world(backing: Any) -> AsyncIterator[World]:
    if backing in IN_PROCESS.values():
        yield backing()
        return
    owner = await asyncpg.connect(backing.owner_dsn)
    async with Pool(PoolSettings(backing.worker_dsn, pool_size=4)) as pool:
        yield PostgresWorld(pool, owner)
    await owner.close()


@pytest.fixture
def ledger(world: World) -> Ledger:
    return world.ledger


async def owned(ledger: Ledger, first_offset: int = 0) -> None:
    """Make the partition ours."""
    await ledger.begin(SOURCE, GROUP, TOKEN, "cluster", first_offset)


async def cursor_now(ledger: Ledger):  # noqa: ANN201 - Cursor, as `take` says
    return await ledger.take(SOURCE.topic, SOURCE.partition, GROUP, TOKEN)


async def test_a_partition_never_seen_has_no_cursor(ledger: Ledger) -> None:
    """Taking a partition nobody has begun yields no cursor."""
    assert await ledger.take(SOURCE.topic, SOURCE.partition, GROUP, TOKEN) is None


async def test_begin_creates_the_cursor_where_reading_starts(ledger: Ledger) -> None:
    """A begun partition stands at its first offset, with batch number 0 and no counts."""
    begun = await ledger.begin(SOURCE, GROUP, TOKEN, "cluster", 17)
    taken = await ledger.take(SOURCE.topic, SOURCE.partition, GROUP, b"n" * 16)
    assert begun == taken
    assert (begun.source, begun.cluster_id) == (SOURCE, "cluster")
    assert (begun.first_offset, begun.next_offset, begun.batch_number) == (17, 17, 0)
    assert begun.last is None
    assert begun.emitted_offset is None
    assert begun.counts == Counts()


async def test_only_one_worker_begins_a_partition(ledger: Ledger) -> None:
    """A second worker that begins the same partition is refused and changes nothing."""
    await owned(ledger)
    with pytest.raises(ClaimRefused):
        await ledger.begin(SOURCE, GROUP, b"other-token-0000", "cluster", 5)
    async with ledger.transaction(SOURCE, GROUP) as tx:
        claim = await tx.claim(TOKEN, 0)
    assert claim.cursor.first_offset == 0


async def test_groups_and_partitions_have_cursors_of_their_own(ledger: Ledger) -> None:
    """A cursor belongs to one topic, partition and group."""
    await owned(ledger, 3)
    assert await ledger.take(SOURCE.topic, 1, GROUP, TOKEN) is None
    assert await ledger.take(SOURCE.topic, 0, "another group", TOKEN) is None
    assert await ledger.take("other.raw", 0, GROUP, TOKEN) is None


async def test_taking_fences_the_former_owner(ledger: Ledger) -> None:
    """After a take, only the new token may claim (step (b))."""
    await owned(ledger)
    await ledger.take(SOURCE.topic, SOURCE.partition, GROUP, b"n" * 16)
    with pytest.raises(ClaimRefused):
        async with ledger.transaction(SOURCE, GROUP) as tx:
            await tx.claim(TOKEN, 0)
    async with ledger.transaction(SOURCE, GROUP) as tx:
        claim = await tx.claim(b"n" * 16, 0)
    assert claim.cursor.next_offset == 0


@pytest.mark.parametrize("begin", [0, 1, 3, 100])
async def test_a_batch_must_begin_at_d(ledger: Ledger, begin: int) -> None:
    """A claim for a batch that begins anywhere but at D is refused (contiguity)."""
    await owned(ledger, 2)
    with pytest.raises(ClaimRefused):
        async with ledger.transaction(SOURCE, GROUP) as tx:
            await tx.claim(TOKEN, begin)


async def test_a_claim_of_an_unknown_partition_is_refused(ledger: Ledger) -> None:
    """Without a cursor row there is nothing to claim."""
    with pytest.raises(ClaimRefused):
        async with ledger.transaction(SOURCE, GROUP) as tx:
            await tx.claim(TOKEN, 0)


async def test_a_claim_tells_the_decision_set_in_force(ledger: Ledger) -> None:
    """The claim carries the digest of the active decision set, which can be read back."""
    await owned(ledger)
    async with ledger.transaction(SOURCE, GROUP) as tx:
        claim = await tx.claim(TOKEN, 0)
    assert claim.active_decision_set == DECISION_SET
    assert await ledger.decision_set(claim.active_decision_set) == DecisionSet()
    assert await ledger.active_decision_set() == DecisionSet()


async def test_an_unknown_decision_set_is_a_configuration_error(ledger: Ledger) -> None:
    """A digest that was never stored cannot be decided by."""
    with pytest.raises(ConfigurationError):
        await ledger.decision_set(bytes(32))


async def test_a_commit_moves_d_and_adds_counts(ledger: Ledger) -> None:
    """After a batch the cursor stands at its end, counts are summed, the last record is known."""
    await owned(ledger)
    async with ledger.transaction(SOURCE, GROUP) as tx:
        await write_batch(tx, 1, 0, [payroll(0), refused(1), payroll(2)], next_offset=5)
    async with ledger.transaction(SOURCE, GROUP) as tx:
        await write_batch(tx, 2, 5, [payroll(5)])
    cursor = await cursor_now(ledger)
    assert (cursor.next_offset, cursor.batch_number) == (6, 2)
    assert cursor.counts == Counts(4, 3, 0, 1)
    assert cursor.last == LastRecord(5, digest_of("raw 5"), 7)
    assert cursor.emitted_offset == 5


async def test_an_error_inside_the_transaction_leaves_nothing(world: World) -> None:
    """Ledger, quarantine, page and cursor are one: an error takes all of it back."""
    await owned(world.ledger)
    with pytest.raises(ZeroDivisionError):  # noqa: PT012 - may come at the end
        async with world.ledger.transaction(SOURCE, GROUP) as tx:
            await write_batch(tx, 1, 0, [payroll(0), refused(1)])
            raise ZeroDivisionError
    cursor = await cursor_now(world.ledger)
    assert (cursor.next_offset, cursor.batch_number, cursor.counts) == (0, 0, Counts())
    assert await world.ledger_rows() == 0
    assert await world.ledger.batch_end(SOURCE, GROUP, 1) is None
    async with world.ledger.transaction(SOURCE, GROUP) as tx:
        await write_batch(tx, 1, 0, [payroll(0), refused(1)])
    assert await world.ledger_rows() == 1


async def test_probe_names_who_holds_a_key(ledger: Ledger) -> None:
    """A held key comes with its holder's position and content digest; a free one does not come."""
    await owned(ledger)
    async with ledger.transaction(SOURCE, GROUP) as tx:
        await write_batch(tx, 1, 0, [payroll(0, "a"), payroll(1, "b")])
    async with ledger.transaction(SOURCE, GROUP) as tx:
        await tx.claim(TOKEN, 2)
        held = await tx.probe(sorted([key_of("a"), key_of("b"), key_of("c")]))
        bodies = await tx.bodies([key_of("b")])
    assert held == {
        key_of("a"): Holder(SOURCE.position(0), digest_of("a")),
        key_of("b"): Holder(SOURCE.position(1), digest_of("b")),
    }
    assert bodies == {key_of("b"): '{"content":"b"}'}


async def test_a_refused_record_is_named_and_nothing_is_written(world: World) -> None:
    """The database's refusal names exactly the culprits; neighbours are then written without."""
    await owned(world.ledger)
    await world.refuse_poison()
    batch = [payroll(n) for n in range(20)]
    batch[7] = payroll(7, employee_id=POISON)
    batch[13] = payroll(13, employee_id=POISON)
    async with world.ledger.transaction(SOURCE, GROUP) as tx:
        await tx.claim(TOKEN, 0)
        written = await tx.write_ledger(batch)
        assert set(written.refused) == {7, 13}
        assert not written.raced
        assert written.refused[7].reason is Reason.PERSIST_FAILED
        assert written.refused[7].key == batch[7].key
        assert not await tx.probe(sorted(a.key for a in batch))
        again = await tx.write_ledger([a for a in batch if a.offset not in written.refused])
        assert not again.refused
    assert await world.ledger_rows() == 18


async def test_a_position_is_quarantined_once(ledger: Ledger) -> None:
    """A second reject at the same position breaks the invariant of one verdict per record."""
    await owned(ledger)
    with pytest.raises(InvariantViolation):  # noqa: PT012 - may come at the end
        async with ledger.transaction(SOURCE, GROUP) as tx:
            await tx.claim(TOKEN, 0)
            await tx.write_quarantine([quarantine_row(4)])
            await tx.write_quarantine([quarantine_row(4)])


async def test_owed_reads_back_what_batches_wrote(ledger: Ledger) -> None:
    """Between E and D, each batch comes in order with its own rows, in offset order."""
    await owned(ledger)
    batches = [[payroll(0), refused(1)], [payroll(3), payroll(2), payroll(4)], [refused(5)]]
    ends = [2, 5, 9]
    begin = 0
    for number, (settled, end) in enumerate(zip(batches, ends, strict=True), start=1):
        in_order = sorted(settled, key=lambda s: s.offset)
        async with ledger.transaction(SOURCE, GROUP) as tx:
            await write_batch(tx, number, begin, in_order, next_offset=end)
        begin = end
    owed = [batch async for batch in ledger.owed(SOURCE, GROUP, 2, 9)]
    assert [(b.batch_number, b.next_offset) for b in owed] == [(2, 5), (3, 9)]
    expected = sorted(batches[1], key=lambda s: s.offset)
    assert [_as_written(row) for row in owed[0].committed_rows] == [
        _as_written(a.row) for a in expected if isinstance(a, Accepted)
    ]
    assert [tuple(row) for row in owed[1].quarantine_rows] == [quarantine_row(5)]
    everything = [batch.batch_number async for batch in ledger.owed(SOURCE, GROUP, 0, 9)]
    assert everything == [1, 2, 3]


def _as_written(row: object) -> list[object]:
    """Arrays come back as lists."""
    return [list(v) if isinstance(v, tuple | list) else v for v in row]  # type: ignore[attr-defined]


async def test_nothing_is_owed_when_e_is_d(ledger: Ledger) -> None:
    """With both cursors equal there is no batch to emit."""
    await owned(ledger)
    async with ledger.transaction(SOURCE, GROUP) as tx:
        await write_batch(tx, 1, 0, [payroll(0)])
    assert [b async for b in ledger.owed(SOURCE, GROUP, 1, 1)] == []


async def test_a_batch_of_markers_alone_is_owed_too(ledger: Ledger) -> None:
    """Cursors move past markers; such a batch has a page and no rows."""
    await owned(ledger)
    async with ledger.transaction(SOURCE, GROUP) as tx:
        await write_batch(tx, 1, 0, [], next_offset=3)
    (owed,) = [b async for b in ledger.owed(SOURCE, GROUP, 0, 3)]
    assert (owed.batch_number, owed.next_offset) == (1, 3)
    assert not owed.committed_rows
    assert not owed.quarantine_rows


@pytest.mark.parametrize(("emitted", "decided"), [(1, 4), (0, 3), (0, 5), (4, 6), (9, 4)])
async def test_pages_that_do_not_join_up_stop_the_process(
    ledger: Ledger, emitted: int, decided: int
) -> None:
    """E and D must both be ends of batches, or the reasoning behind emission is broken."""
    await owned(ledger)
    async with ledger.transaction(SOURCE, GROUP) as tx:
        await write_batch(tx, 1, 0, [payroll(0), payroll(1)])
    async with ledger.transaction(SOURCE, GROUP) as tx:
        await write_batch(tx, 2, 2, [payroll(2), payroll(3)])
    with pytest.raises(InvariantViolation):
        _ = [b async for b in ledger.owed(SOURCE, GROUP, emitted, decided)]


async def test_batch_end_tells_where_a_batch_ended(ledger: Ledger) -> None:
    """A batch number names one end offset; an unknown number none."""
    await owned(ledger)
    async with ledger.transaction(SOURCE, GROUP) as tx:
        await write_batch(tx, 1, 0, [payroll(0)], next_offset=4)
    assert await ledger.batch_end(SOURCE, GROUP, 1) == 4
    assert await ledger.batch_end(SOURCE, GROUP, 2) is None
    assert await ledger.batch_end(Source(SOURCE.topic, 0, incarnation=2), GROUP, 1) is None
    assert await ledger.batch_end(SOURCE, "another group", 1) is None


async def test_a_stop_mark_stops_takes_and_claims(ledger: Ledger) -> None:
    """A stop mark is seen by the next take and the next claim, with its reason."""
    await owned(ledger)
    await ledger.set_stop_mark("the database was set back")
    with pytest.raises(StopAll, match="set back"):
        await ledger.take(SOURCE.topic, SOURCE.partition, GROUP, b"n" * 16)
    with pytest.raises(StopAll, match="set back"):
        async with ledger.transaction(SOURCE, GROUP) as tx:
            await tx.claim(TOKEN, 0)


async def test_a_pause_comes_with_its_batch_and_holds_from_the_next_claim_on(
    ledger: Ledger,
) -> None:
    """Paused in a batch's transaction, the batch stands; rolled back, there is no pause."""
    await owned(ledger)
    with contextlib.suppress(KeyError):
        async with ledger.transaction(SOURCE, GROUP) as tx:
            await tx.pause("rolled back")
            raise KeyError
    assert await ledger.interventions(SOURCE, GROUP) == Interventions()
    async with ledger.transaction(SOURCE, GROUP) as tx:
        claim = await tx.claim(TOKEN, 0)
        assert claim.interventions == Interventions()
        await tx.pause("a flood")
        await write_batch(tx, 1, 0, [payroll(0)])
    assert (await ledger.interventions(SOURCE, GROUP)).pause == "a flood"
    async with ledger.transaction(SOURCE, GROUP) as tx:
        assert (await tx.claim(TOKEN, 1)).interventions.pause == "a flood"
    other = Source(SOURCE.topic, 1)
    assert await ledger.interventions(other, GROUP) == Interventions()
    assert await ledger.interventions(SOURCE, "another") == Interventions()


async def test_holds_are_seen_from_the_cursor_on(world: World) -> None:
    """What lies before D, in another partition or incarnation, holds nothing up."""
    ledger = world.ledger
    await owned(ledger)
    for offset in (0, 4, 9):
        await world.hold(SOURCE.position(offset))
    await world.hold(Position(SOURCE.topic, 2, SOURCE.partition, 5))
    await world.hold(Position(SOURCE.topic, 1, 7, 6))
    assert (await ledger.interventions(SOURCE, GROUP)).holds == {0, 4, 9}
    async with ledger.transaction(SOURCE, GROUP) as tx:
        await write_batch(tx, 1, 0, [payroll(0)])
    async with ledger.transaction(SOURCE, GROUP) as tx:
        assert (await tx.claim(TOKEN, 1)).interventions.holds == {4, 9}


async def test_the_deployment_has_one_id(ledger: Ledger) -> None:
    """The id stays the same and fits into offset metadata (no blanks)."""
    first = await ledger.deployment()
    assert first == await ledger.deployment()
    assert first
    assert " " not in first
