"""One suite for the port `Emitter`, run on the emitter in memory and on Kafka."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import pytest

from connectors.errors import Fenced
from connectors.kafka.emitter import EmitterFactory
from connectors.kafka.settings import KafkaSettings
from connectors.memory import MemoryBroker, MemoryEmitter
from connectors.ports import EmittedCursor, Emitter
from schemas.envelope import Headers, Source
from schemas.verdict import Event
from tests.connectors.kafka_tools import (
    PAYROLL,
    kafka_settings,
    make_topics,
    read_all,
)
from tests.simulation.broker import SimulatedBroker, SimulatedEmitter
from tests.simulation.plan import Plan
from tests.simulation.world import World as Simulation


class World(Protocol):
    """Where events go, seen from outside."""

    def emitter(self, partition: int) -> Emitter: ...

    async def committed(self, partition: int) -> list[Event]: ...

    async def quarantined(self, partition: int) -> list[Event]: ...


@dataclass
class MemoryWorld:
    broker: MemoryBroker

    def emitter(self, partition: int) -> Emitter:
        return MemoryEmitter(self.broker, PAYROLL, Source("payroll.raw", partition), "gate")

    async def committed(self, partition: int) -> list[Event]:
        return self.broker.outputs.get(("payroll.committed", partition), [])

    async def quarantined(self, partition: int) -> list[Event]:
        return self.broker.outputs.get(("payroll.quarantine", partition), [])


class SimulatedWorld(MemoryWorld):
    def emitter(self, partition: int) -> Emitter:
        assert isinstance(self.broker, SimulatedBroker)
        return SimulatedEmitter(self.broker, PAYROLL, Source("payroll.raw", partition), "gate")


def _simulated() -> SimulatedWorld:
    world = Simulation(Plan.of(0))
    world.over = True  # no faults, no latency
    return SimulatedWorld(SimulatedBroker(world=world))


@dataclass
class KafkaWorld:
    settings: KafkaSettings
    factory: EmitterFactory

    def emitter(self, partition: int) -> Emitter:
        source = Source(self.settings.topic("payroll.raw"), partition)
        return self.factory.emitter(PAYROLL, source)

    async def committed(self, partition: int) -> list[Event]:
        return await self._read("payroll.committed", partition)

    async def quarantined(self, partition: int) -> list[Event]:
        return await self._read("payroll.quarantine", partition)

    async def _read(self, topic: str, partition: int) -> list[Event]:
        records = await read_all(self.settings, self.settings.topic(topic), partition)
        return [Event(r.key, r.value, r.headers) for r in records]


@pytest.fixture(params=["memory", "simulated", pytest.param("kafka", marks=pytest.mark.services)])
async def world(request: pytest.FixtureRequest, topic_prefix: str):  # noqa: ANN201 - a generator
    if request.param == "memory":
        yield MemoryWorld(MemoryBroker())
        return
    if request.param == "simulated":
        yield _simulated()
        return
    settings = kafka_settings(request.getfixturevalue("services").bootstrap, topic_prefix)
    await make_topics(settings)
    async with EmitterFactory(settings) as factory:
        yield KafkaWorld(settings, factory)


@pytest.fixture
async def started(world: World):  # noqa: ANN201 - a generator
    """Makes started emitters, and closes them."""
    emitters: list[Emitter] = []

    async def make(partition: int = 1) -> Emitter:
        emitter = world.emitter(partition)
        emitters.append(emitter)
        await emitter.start()
        return emitter

    yield make
    for emitter in emitters:
        await emitter.close()


Start = Callable[..., Awaitable[Emitter]]


async def emitted(started: Start, partition: int = 1) -> EmittedCursor | None:
    """E, read as assignment reads it: by a new owner, whose start has settled what was pending.

    Read without that it may be old: Kafka answers a commit before it applies the offsets.
    """
    return await (await started(partition)).committed()


def events(count: int, first: int = 0, headers: Headers = ()) -> list[Event]:
    return [Event(b"k%d" % n, b"value %d" % n, headers) for n in range(first, first + count)]


async def test_events_and_offset_become_visible_together(world: World, started: Start) -> None:
    """After `emit` both topics hold the events in order, and E is the cursor with its text."""
    emitter = await started()
    await emitter.emit(events(3), events(2, 10), EmittedCursor(5, "wb1 a 1 1 - -"))
    assert await world.committed(1) == events(3)
    assert await world.quarantined(1) == events(2, 10)
    assert await emitted(started) == EmittedCursor(5, "wb1 a 1 1 - -")


async def test_there_is_no_emitted_cursor_before_the_first_batch(started: Start) -> None:
    """A group that has never committed has no E."""
    emitter = await started()
    assert await emitter.committed() is None


async def test_a_batch_without_events_moves_the_cursor_alone(world: World, started: Start) -> None:
    """Duplicates and markers leave nothing to emit, and still the offset moves."""
    emitter = await started()
    await emitter.emit([], [], EmittedCursor(7, "one"))
    await emitter.emit([], [], EmittedCursor(8, "two"))
    assert await world.committed(1) == []
    assert await emitted(started) == EmittedCursor(8, "two")


async def test_events_go_to_the_partition_of_their_source(world: World, started: Start) -> None:
    """The output partition has the number of the source partition, whatever the keys are."""
    await (await started(2)).emit(events(5), [], EmittedCursor(5, ""))
    await (await started(0)).emit(events(1, 50), [], EmittedCursor(1, ""))
    assert await world.committed(2) == events(5)
    assert await world.committed(0) == events(1, 50)
    assert await world.committed(1) == []


async def test_batches_follow_each_other_in_order(world: World, started: Start) -> None:
    """One emitter emits batch after batch; readers see them in that order."""
    emitter = await started()
    for n in range(4):
        await emitter.emit(events(2, n * 2), [], EmittedCursor(n + 1, str(n)))
    assert await world.committed(1) == events(8)
    assert await emitted(started) == EmittedCursor(4, "3")


async def test_keys_values_and_headers_arrive_untouched(world: World, started: Start) -> None:
    """Tombstones, binary values, null, empty and repeated headers pass."""
    headers = (("wb-event-id", b"a/1/0/0"), ("x", b"\x00\xff"), ("x", None), ("", b""))
    odd: Sequence[Event] = [Event(b"tombstone", None, headers), Event(b"", b"\xc3(", headers)]
    emitter = await started()
    await emitter.emit([], odd, EmittedCursor(2, ""))
    assert await world.quarantined(1) == list(odd)


async def test_a_new_emitter_fences_the_old_one(world: World, started: Start) -> None:
    """After a second start with the same id the first can emit nothing any more."""
    first = await started()
    await first.emit(events(1), [], EmittedCursor(1, "first"))
    second = await started()
    with pytest.raises(Fenced):
        await first.emit(events(1, 1), [], EmittedCursor(2, "first"))
    await second.emit(events(1, 2), [], EmittedCursor(2, "second"))
    assert await world.committed(1) == [*events(1), *events(1, 2)]
    assert await emitted(started) == EmittedCursor(2, "second")


async def test_closing_releases_and_may_be_repeated(world: World, started: Start) -> None:
    """`close` never raises, before start, after it, or twice; what was emitted stays."""
    unused = world.emitter(0)
    await unused.close()
    emitter = await started()
    await emitter.emit(events(1), [], EmittedCursor(1, ""))
    await emitter.close()
    await emitter.close()
    assert await world.committed(1) == events(1)


async def test_many_events_are_emitted_whole(world: World, started: Start) -> None:
    """A batch larger than one record batch of Kafka is still one transaction, in order."""
    many = [Event(b"k", b"%06d" % n + bytes(1_000), ()) for n in range(3_000)]
    emitter = await started()
    await emitter.emit(many, [], EmittedCursor(3_000, ""))
    assert await world.committed(1) == many
