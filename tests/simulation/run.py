"""One run: a seed decides everything; what came out is held against the truth."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import structlog

from connectors.memory import MemorySchemaStore
from schemas.avro_strict import AvroSchema, SchemaRef
from schemas.envelope import Source
from schemas.record_types import RECORD_TYPES
from streams.app import TypePorts
from streams.set_aside import ALONE_TOO_SLOW
from tests.simulation import truth
from tests.simulation.broker import SimulatedBroker
from tests.simulation.database import SimulatedLedger
from tests.simulation.loop import NothingLeft, TooManySteps
from tests.simulation.plan import CALM_DEADLINE_S, EVENTS, Plan, Strike
from tests.simulation.records import (
    DECISION_SETS,
    UNKNOWN_ID,
    records_of,
    refuses,
    schemas_of,
)
from tests.simulation.worker import GROUP, Group, SimulatedWorker
from tests.simulation.world import OUTAGE_S, UNAVAILABLE, World

RESTART_S = 1.5


@dataclass(frozen=True)
class Result:
    """What came of a seed."""

    seed: int
    failures: tuple[str, ...]
    digest: str
    trace: tuple[str, ...]
    covered: Counter[tuple[str, str]]
    steps: int
    simulated_s: float
    rest_s: float
    """How long after the last fault everything was at rest."""
    records: int
    owed: int
    """Batches that were emitted from the database."""


class SimulatedSchemaStore(MemorySchemaStore):
    """`SchemaStore` that may be away."""

    def __init__(self, world: World, schemas: dict[SchemaRef, AvroSchema]) -> None:
        super().__init__(schemas)
        self._world = world

    async def find(self, ref: SchemaRef) -> AvroSchema | None:
        return await self._world.at_once("schemas", "find_schema", lambda: self.schemas.get(ref))


class Run:
    """The world of one seed, with all that lives in it."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.world = World(self.plan)
        self.broker = SimulatedBroker(world=self.world)
        self.types = [RECORD_TYPES[name] for name in self.plan.type_names]
        self.sources = [
            Source(t.raw_topic, number)
            for t in self.types
            for number in range(self.plan.partitions)
        ]
        self.ledgers = {t.name: SimulatedLedger(self.world, t, refuses) for t in self.types}
        for ledger in self.ledgers.values():
            for decision_set in DECISION_SETS:
                ledger.sets[decision_set.digest] = decision_set
        self.schemas = {name: schemas_of(name) for name in self.plan.type_names}
        self.group = Group(self.world, [(s.topic, s.partition) for s in self.sources])
        self.workers: list[SimulatedWorker] = []
        self._publishing = 0
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def _chance(self) -> random.Random:
        return self.world.chance

    # -- what lives in the world -------------------------------------------------------------------

    async def live(self) -> None:
        """Publish and disturb for a while, then let everything come to rest."""
        world, plan = self.world, self.plan
        loop = asyncio.get_running_loop()
        for source in self.sources:
            start = self._chance.choice([0, 0, 5])
            place = (source.topic, source.partition)
            self.broker.starts[place] = self.broker.ends[place] = start
            self.broker.stable[place] = start
            self._publishing += 1
            self._tasks.append(loop.create_task(self._publish(source)))
        self.group.watch()
        for _ in range(plan.workers):
            self._start_worker()
        for name in EVENTS:
            if name in plan.every_s:
                self._tasks.append(loop.create_task(self._disturb(name)))
        world.later(RESTART_S, self._supervise)
        await asyncio.sleep(plan.fault_phase_s)
        world.begin_calm()
        standing, since_s = self._standing(), world.now_s
        while not self._drained():
            if (now := self._standing()) != standing:
                standing, since_s = now, world.now_s
            if world.now_s > since_s + CALM_DEADLINE_S:
                world.fail(f"{CALM_DEADLINE_S} s of calm without progress: {self._where()}")
                break
            await asyncio.sleep(0.5)
        world.over = True

    def _start_worker(self) -> None:
        types = {t.raw_topic: TypePorts(t, self.ledgers[t.name]) for t in self.types}
        found = {ref: schema for of in self.schemas.values() for ref, schema in of.items()}
        store = SimulatedSchemaStore(self.world, found)
        worker = SimulatedWorker(self.world, self.broker, self.group, types, store, lambda _: None)
        self.world.note(f"started: {worker.process.name}")
        self.workers.append(worker)
        worker.start()

    def _supervise(self) -> None:
        """Start a worker for every one that is gone, as whatever runs them does."""
        alive = sum(worker.process.alive for worker in self.workers)
        for _ in range(self.plan.workers - alive):
            self._start_worker()
        self.world.later(self._chance.uniform(0.1, RESTART_S), self._supervise)

    async def _publish(self, source: Source) -> None:
        """Transactions of some records, some of them aborted, some that stay open for a while."""
        chance = random.Random(f"{self.plan.seed} {source}")
        name = next(t.name for t in self.types if t.raw_topic == source.topic)
        place = (source.topic, source.partition)
        waiting = records_of(name, chance, self.plan.records)
        pause_s = self.plan.fault_phase_s / (self.plan.records / 3)
        while waiting:
            size = chance.randint(0, 8)
            aborted = chance.random() < 0.15
            part = waiting[:size]
            if not aborted:
                waiting = waiting[size:]
            self.broker.publish(place, part, aborted=aborted)
            await asyncio.sleep(chance.choice([0.0, 0.0, 0.2]))
            self.broker.close_open(place)
            self.world.note(f"published: {source} up to {self.broker.stable[place]}")
            await asyncio.sleep(chance.uniform(0.0, 2 * pause_s))
        self._publishing -= 1

    async def _disturb(self, name: str) -> None:
        """One kind of event, again and again until calm."""
        while True:
            await asyncio.sleep(self._chance.expovariate(1 / self.plan.every_s[name]))
            if self.world.calm:
                return
            self.world.covered["event", name] += 1
            alive = [w for w in self.workers if w.process.alive and hasattr(w, "pump")]
            if name == "rebalance":
                self.group.rebalance()
            elif name == "activate":
                self._activate()
            elif name == "outage":
                service = self._chance.choice(sorted(UNAVAILABLE))
                self.world.outage(service, self._chance.uniform(*OUTAGE_S))
            elif alive:
                self._strike(name, self._chance.choice(alive))

    def _strike(self, name: str, worker: SimulatedWorker) -> None:
        if name == "kill":
            self.world.kill(worker.process)
        elif not worker.process.paused:
            {
                "stop": worker.stop,
                "redeliver": worker.redeliver,
                "stale_read": worker.stale_read,
            }[name]()

    def _activate(self) -> None:
        chosen = self._chance.choice(DECISION_SETS)
        self.world.note(f"activated: {chosen.digest.hex()[:8]}")
        for ledger in self.ledgers.values():
            ledger.activate(chosen)

    # -- rest --------------------------------------------------------------------------------------

    def _drained(self) -> bool:
        return (
            self._publishing == 0
            and not self.broker.open
            and all(
                at == self.broker.stable[s.topic, s.partition]
                for s in self.sources
                for at in self._cursors(s)
            )
        )

    def _cursors(self, source: Source) -> tuple[int, int]:
        """D and E; -1 for none."""
        name = next(t.name for t in self.types if t.raw_topic == source.topic)
        decided = self.ledgers[name].tables.cursors.get((source.topic, source.partition, GROUP))
        emitted = self.broker.offsets.get((GROUP, (source.topic, source.partition)))
        return (
            -1 if decided is None else decided.next_offset,
            -1 if emitted is None else emitted.next_offset,
        )

    def _standing(self) -> dict[str, tuple[int, int, int]]:
        """D, E and the log's end of each partition."""
        return {
            str(s): (*self._cursors(s), self.broker.stable[s.topic, s.partition])
            for s in self.sources
        }

    def _where(self) -> str:
        states = [
            f"{w.process.name} {p.source} {p.state.value}: {p.why}"
            for w in self.workers
            if w.process.alive and hasattr(w, "pump")
            for p in w.pump.partitions.values()
        ]
        return f"D, E and log end {self._standing()}; {states}"

    def result(self) -> Result:
        """Run, and look from outside."""
        world = self.world
        try:
            world.loop.run_until_complete(self.live())
        except (NothingLeft, TooManySteps) as error:
            world.failures.append(f"the run does not end: {type(error).__name__}")
        world.failures += world.loop.complaints
        simulated_s = world.loop.time()
        if not world.failures:
            for record_type in self.types:
                schemas: dict[SchemaRef, AvroSchema | None] = {
                    SchemaRef("confluent", UNKNOWN_ID): None,
                    **self.schemas_found(),
                }
                sources = [s for s in self.sources if s.topic == record_type.raw_topic]
                ledger = self.ledgers[record_type.name]
                world.failures += truth.faults(record_type, ledger, self.broker, sources, schemas)
        found = Result(
            self.plan.seed,
            tuple(world.failures),
            world.digest(),
            tuple(world.trace),
            world.covered,
            world.loop.steps,
            simulated_s,
            simulated_s - self.plan.fault_phase_s,
            sum(len(log) for log in self.broker.logs.values()),
            world.owed,
        )
        world.over = True
        world.loop.bury(world.processes)
        return found

    def schemas_found(self) -> dict[SchemaRef, AvroSchema]:
        """What the schema store has."""
        return {ref: schema for of in self.schemas.values() for ref, schema in of.items()}


@contextmanager
def _logs_into(world: World) -> Iterator[None]:
    """What the gate logs becomes part of the trace; a partition that stops is a failure.

    Except where a record alone ran out of time: a slow store does that, and calm must heal it.
    """

    def take(_: object, __: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
        if not world.over:
            if event.get("state") == "stopped" and ALONE_TOO_SLOW not in event["why"]:
                world.fail(f"{event['partition']} stopped for an operator")
            world.log(" ".join(f"{name}={value}" for name, value in sorted(event.items())))
        raise structlog.DropEvent

    before = structlog.get_config()
    structlog.configure(processors=[take])
    try:
        yield
    finally:
        structlog.configure(**before)


def simulate(seed: int, strike: Strike | None = None) -> Result:
    """Run one seed to its end: with faults by chance, or with one fault at one place."""
    plan = Plan.of(seed)
    run = Run(plan if strike is None else plan.struck(strike))
    with _logs_into(run.world):
        return run.result()
