"""A simulated worker process: the real pump and partitions, with a simulated consumer and group."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Collection
from contextvars import copy_context
from typing import Any

from connectors.errors import BrokerUnavailable, OwnershipLost
from connectors.ports import Fetched, LogRange
from schemas.envelope import RawRecord, Source
from streams.app import Pump, TypePorts, WorkerParts
from streams.batch import PersistedBatch
from streams.metrics import Metrics
from streams.observer import Observer
from streams.partition import Batch, PartitionSettings
from tests.simulation.broker import SimulatedBroker, SimulatedEmitter
from tests.simulation.loop import PROCESS, Process
from tests.simulation.world import World

GROUP = "gate"
SESSION_TIMEOUT_S = 2.0
"""How long the group takes a silent member for alive."""
SETTINGS = PartitionSettings(
    assign_deadline_s=8.0,
    step_deadline_s=5.0,
    backoff_first_s=0.05,
    backoff_max_s=2.0,
    stopped_retry_s=2.0,
    revoke_grace_s=1.0,
)
Place = tuple[str, int]
OnChange = Callable[[Collection[Place]], None]


class Group:
    """The consumer group: who has which partition. Weaker than Kafka's: a member may hear late, so
    two may think for a while that a partition is theirs."""

    def __init__(self, world: World, places: Collection[Place]) -> None:
        self._world = world
        self._places = sorted(places)
        self.members: list[SimulatedSource] = []

    def watch(self) -> None:
        """Now and then: a member that has been silent for too long is out, and hears so once it
        listens again."""
        for member in list(self.members):
            if member.process.silent_s(self._world.now_s) > SESSION_TIMEOUT_S:
                self._world.note(f"expelled: {member.process.name}")
                member.inbox.put_nowait(None)
                self.leave(member)
        self._world.later(0.5, self.watch)

    def join(self, member: SimulatedSource) -> None:
        self.members.append(member)
        self._world.later(self._world.chance.uniform(0.0, 0.3), self.rebalance)

    def leave(self, member: SimulatedSource) -> None:
        if member in self.members:
            self.members.remove(member)
            self._world.later(self._world.chance.uniform(0.0, 0.3), self.rebalance)

    def rebalance(self) -> None:
        """Deal the partitions anew; every member is told, sooner or later."""
        self._world.note(f"rebalance among {[m.process.name for m in self.members]}")
        dealt: dict[SimulatedSource, set[Place]] = {member: set() for member in self.members}
        for place in self._places:
            if dealt:
                dealt[self._world.chance.choice(self.members)].add(place)
        for member, places in dealt.items():
            member.inbox.put_nowait(places)


class SimulatedSource:
    """`BatchSource`: the consumer of one worker."""

    def __init__(self, world: World, broker: SimulatedBroker, group: Group) -> None:
        self.world = world
        self.broker = broker
        self.group = group
        found = PROCESS.get()
        assert found is not None
        self.process: Process = found
        self.inbox: asyncio.Queue[set[Place] | None] = asyncio.Queue()
        self._mine: set[Place] = set()
        self._positions: dict[Place, int] = {}
        self._last: dict[Place, Fetched] = {}
        self._in_group = False

    # -- membership --------------------------------------------------------------------------------

    async def start(
        self, topics: Collection[str], on_assigned: OnChange, on_revoked: OnChange
    ) -> None:
        assert topics
        self._on_assigned, self._on_revoked = on_assigned, on_revoked
        self._in_group = True
        self.group.join(self)
        self.process.on_death.append(self._expire)
        self._listening = asyncio.get_running_loop().create_task(self._listen())

    def _expire(self) -> None:
        self.world.later(self.world.chance.uniform(0.0, SESSION_TIMEOUT_S), self.group.leave, self)

    async def _listen(self) -> None:
        """Take part in rebalances: revoked first, then assigned, each only recorded here."""
        while True:
            dealt = await self.inbox.get()
            await asyncio.sleep(self.world.chance.choice([0.0, 0.01, 0.5]))
            if dealt is None:
                self._positions = {}
                self._on_revoked(sorted(self._mine))
                self._mine = set()
                self.group.join(self)
                continue
            eager = self.world.chance.random() < 0.5
            taken = sorted(self._mine if eager else self._mine - dealt)
            for place in taken:
                self._positions.pop(place, None)
            self._mine -= set(taken)
            self._on_revoked(taken)
            await asyncio.sleep(self.world.chance.choice([0.0, 0.01]))
            given = sorted(dealt - self._mine)
            self._mine = set(dealt)
            self.world.note(f"given {given}, taken {taken}")
            self._on_assigned(given)

    async def stop(self) -> None:
        if self._in_group:
            self._in_group = False
            self._listening.cancel()
            self.group.leave(self)

    # -- reading -----------------------------------------------------------------------------------

    async def next_batch(
        self, ready: Collection[Place], *, timeout_s: float
    ) -> tuple[str, int, Fetched] | None:
        places = sorted(place for place in ready if place in self._positions)
        self.world.chance.shuffle(places)
        for place in places:
            position = self._positions.get(place)  # it may be taken away meanwhile
            if position is None or self.broker.read(*place, position, 1) is None:
                continue
            fetched = await self.world.at_once(
                "kafka", "fetch", lambda place=place: self._fetch(place)
            )
            # Sought or taken away meanwhile, it is dropped; unanswered, it is read again.
            if fetched is not None and self._positions.get(place) == fetched.begin:
                self._positions[place] = fetched.next_offset
                self._last[place] = fetched
                return (*place, fetched)
        await asyncio.sleep(max(timeout_s, 0.1))
        return None

    def _fetch(self, place: Place) -> Fetched | None:
        world, position = self.world, self._positions.get(place)
        if position is None:
            return None
        most = world.chance.randint(1, world.plan.batch_records)
        fetched = self.broker.read(*place, position, most)
        if fetched is not None:
            world.note(f"fetched: {place} [{fetched.begin}, {fetched.next_offset})")
        return fetched

    def last_fetched(self) -> list[tuple[Place, Fetched]]:
        """What was handed out before, for redelivery."""
        return sorted(self._last.items(), key=lambda item: item[0])

    def seek(
        self,
        topic: str,
        partition: int,
        offset: int,
        aside: frozenset[int] = frozenset(),  # noqa: ARG002 - every record here can be read
    ) -> None:
        if (topic, partition) not in self._mine:
            message = f"{topic}/{partition}: the group has taken it away"
            raise OwnershipLost(message)
        self._positions[topic, partition] = offset

    def seek_back(self, place: Place, offset: int) -> None:
        """Read again what was read before, as no real consumer should."""
        if place in self._positions:
            self._positions[place] = offset

    async def lag(self, topic: str, partition: int) -> int | None:
        position = self._positions.get((topic, partition))
        return None if position is None else self.broker.stable[topic, partition] - position

    async def ends(self, topic: str, partition: int) -> LogRange:
        return await self.broker.log_range(topic, partition)

    async def cluster_id(self) -> str:
        return await self.broker.cluster_id()

    async def log_range(self, topic: str, partition: int) -> LogRange:
        return await self.broker.log_range(topic, partition)

    async def read_record(self, topic: str, partition: int, offset: int) -> RawRecord | None:
        return await self.broker.read_record(topic, partition, offset)


class WatchedObserver(Observer):
    """Notes in the trace what partitions do."""

    def __init__(self, world: World, on_fatal: Callable[[BaseException], None]) -> None:
        super().__init__(Metrics(), on_fatal)
        self._world = world

    def emitted(
        self, source: Source, batch: PersistedBatch, *, from_database: bool, spent_s: float = 0.0
    ) -> None:
        super().emitted(source, batch, from_database=from_database, spent_s=spent_s)
        self._world.owed += from_database

    def partition_state(self, source: Source, state: str) -> None:
        self._world.note(f"{source} {state}")


class SimulatedWorker:
    """What `streams.app.Worker` does, without Faust: a pump, a bounded channel, the gate."""

    def __init__(
        self,
        world: World,
        broker: SimulatedBroker,
        group: Group,
        types: dict[str, TypePorts],
        schema_store: Any,
        on_end: Callable[[SimulatedWorker], None],
    ) -> None:
        self.process = world.process()
        self._world = world
        self._types = types
        self._broker = broker
        self._group = group
        self._schema_store = schema_store
        self._on_end = on_end
        self._context = copy_context()
        self._context.run(PROCESS.set, self.process)
        self._stopping = False

    def start(self) -> None:
        """Start the process."""
        self._spawn(self._run())

    def _spawn(self, coroutine: Any) -> asyncio.Task[None]:
        loop = asyncio.get_running_loop()
        task: asyncio.Task[None] = loop.create_task(coroutine, context=self._context)
        return task

    async def _run(self) -> None:
        world, plan = self._world, self._world.plan
        self.source = SimulatedSource(world, self._broker, self._group)
        parts = WorkerParts(
            source=self.source,
            types=self._types,
            make_emitter=lambda record_type, source: SimulatedEmitter(
                self._broker, record_type, source, GROUP
            ),
            schema_store=self._schema_store,
            observer=WatchedObserver(world, self._fatal),
            group=GROUP,
            control_topic="weighbridge.control",
            kafka_bootstrap="simulated",
            concurrency=plan.concurrency,
            shutdown_deadline_s=3.0,
            partition=SETTINGS,
            random_source=random.Random(f"{plan.seed} {self.process.name}"),
        )
        self.channel: asyncio.Queue[Batch] = asyncio.Queue(parts.in_flight_max)
        self.pump = Pump(parts, self.channel, loop=None)  # type: ignore[arg-type]
        for _ in range(plan.concurrency):
            self._spawn(self._gate())
        await self.pump.on_start()
        try:
            while not self._stopping:
                await self.pump._fetch_once()
        except Exception as error:  # noqa: BLE001 - as the pump itself does
            self._fatal(error)

    async def _gate(self) -> None:
        while True:
            batch = await self.channel.get()
            try:
                await batch.partition.process(batch)
            except Exception as error:  # noqa: BLE001 - as the agent does
                self._fatal(error)

    def _fatal(self, error: BaseException) -> None:
        """The worker cannot go on. That it lost a partition too often is allowed; nothing else."""
        self._world.note(f"fatal {type(error).__name__}: {error}")
        if not isinstance(error, OwnershipLost):
            self._world.fail(f"fatal {type(error).__name__}: {error}")
        self.stop()

    def stop(self) -> None:
        """SIGTERM."""
        if not self._stopping:
            self._stopping = True
            self._spawn(self._stop())

    async def _stop(self) -> None:
        self._world.note("stops in order")
        await self.pump.on_stop()
        self._world.kill(self.process)
        self._on_end(self)

    # -- what a disturbed consumer does ------------------------------------------------------------

    def redeliver(self) -> None:
        """Hand the gate once more what it was handed before, past the pump's own check."""
        chance = self._world.chance
        for place, fetched in self.source.last_fetched():
            partition = self.pump.partitions.get(place)
            if partition is not None and partition.ready and not self.channel.full():
                position = partition.position
                self._world.note(f"redelivered: {place} [{fetched.begin}, {fetched.next_offset})")
                self.channel.put_nowait(partition.new_batch(fetched))
                if chance.random() < 0.5:
                    partition.position = position

    def stale_read(self) -> None:
        """Let the consumer fall back to where it was."""
        for place, fetched in self.source.last_fetched():
            self.source.seek_back(place, fetched.begin)


__all__ = ["GROUP", "BrokerUnavailable", "Group", "SimulatedWorker"]
