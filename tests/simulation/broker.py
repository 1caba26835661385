"""A broker as Kafka behaves at the ports: transactions with a coordinator, answers that come before
what they answer has been applied, logs with open transactions, aborted ranges and markers.

`SimulatedEmitter` passes the port's own suite (`tests/connectors/test_emitter_port.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from connectors.errors import BrokerUnavailable, Fenced, invariant
from connectors.memory import MemoryBroker, Place
from connectors.ports import EmittedCursor, Fetched, LogRange
from schemas.envelope import RawRecord, Record, Source
from schemas.record_type import RecordType
from schemas.verdict import Event
from tests.simulation.world import World

TRANSACTION_TIMEOUT_S = 3.0
INIT_DEADLINE_S = 4.0


@dataclass(eq=False)
class Transaction:
    """One transaction at the coordinator."""

    began_at_s: float
    events: list[tuple[Place, Event]] = field(default_factory=list)
    cursor: tuple[tuple[str, Place], EmittedCursor] | None = None
    prepared: bool = False
    """The commit is decided; what is left is to apply it, place by place."""
    unapplied: int = 0


@dataclass
class SimulatedBroker(MemoryBroker):
    """Raw logs, outputs and group offsets at a simulated cluster."""

    world: World = field(kw_only=True)
    stable: dict[Place, int] = field(default_factory=dict)
    """Last stable offsets: up to there `read_committed` may read."""
    open: dict[str, Transaction] = field(default_factory=dict)
    """By transactional id."""

    # -- raw logs ----------------------------------------------------------------------------------

    def publish(self, place: Place, records: Sequence[Record], *, aborted: bool) -> None:
        """Append a transaction's records; readers see nothing of it before `close_open`."""
        end = self.ends.get(place, 0)
        self.ends[place] = end + len(records)
        if not aborted:
            self._pending.setdefault(place, []).extend(
                _at(record, end + at) for at, record in enumerate(records)
            )

    def close_open(self, place: Place) -> None:
        """Commit: what was published becomes stable; the marker takes an offset."""
        self.logs.setdefault(place, []).extend(self._pending.pop(place, []))
        self.marker(*place)
        self.stable[place] = self.ends[place]

    def read(self, topic: str, partition: int, begin: int, records_max: int) -> Fetched | None:
        stable = self.stable.get((topic, partition), self.starts.get((topic, partition), 0))
        found = [r for r in self.logs.get((topic, partition), []) if begin <= r.offset < stable]
        records = found[:records_max]
        next_offset = stable if len(found) <= records_max else records[-1].offset + 1
        return Fetched(begin, next_offset, records) if next_offset > begin else None

    _pending: dict[Place, list[Record]] = field(default_factory=dict)

    # -- what the log reader asks ------------------------------------------------------------------

    async def cluster_id(self) -> str:
        return await self.world.at_once("kafka", "cluster_id", lambda: self.cluster)

    async def log_range(self, topic: str, partition: int) -> LogRange:
        def answer() -> LogRange:
            place = (topic, partition)
            start = self.starts.get(place, 0)
            end = self.ends.get(place, start)
            return LogRange(start, self.stable.get(place, start), end)

        return await self.world.at_once("kafka", "log_range", answer)

    async def read_record(self, topic: str, partition: int, offset: int) -> RawRecord | None:
        async def read() -> RawRecord | None:
            return await MemoryBroker.read_record(self, topic, partition, offset)

        return await self.world.ask("kafka", "read_record", read)

    # -- the transaction coordinator ---------------------------------------------------------------

    async def init_producer(self, transactional_id: str) -> int:
        """Abort what is open, wait for what is decided, take the next epoch."""
        loop = asyncio.get_running_loop()
        until_s = loop.time() + INIT_DEADLINE_S
        self.epochs[transactional_id] = epoch = self.epochs.get(transactional_id, 0) + 1
        found = self.open.get(transactional_id)
        if found is not None and not found.prepared:
            del self.open[transactional_id]
        while transactional_id in self.open:
            if loop.time() > until_s:
                message = f"{transactional_id}: a transaction is still being completed"
                raise BrokerUnavailable(message)
            await asyncio.sleep(0.05)
        return epoch

    def check_epoch(self, transactional_id: str, epoch: int) -> None:
        """Raises `Fenced` for a producer that has a newer rival."""
        found = self.open.get(transactional_id)
        late = found is not None and not found.prepared
        if late and self.world.now_s - found.began_at_s > TRANSACTION_TIMEOUT_S:  # type: ignore[union-attr]
            del self.open[transactional_id]
            self.epochs[transactional_id] += 1
        if self.epochs.get(transactional_id) != epoch:
            message = f"{transactional_id} has a newer owner"
            raise Fenced(message)

    def transaction(self, transactional_id: str) -> Transaction:
        """The open one, begun by the first thing that joins it."""
        found = self.open.setdefault(transactional_id, Transaction(self.world.now_s))
        invariant(not found.prepared, f"{transactional_id}: the one before is not completed")
        return found

    def prepare(self, transactional_id: str) -> None:
        """Decide a commit: from here on it happens, whoever dies; each place at its own time."""
        found = self.transaction(transactional_id)
        found.prepared = True
        parts: dict[Place, list[Event]] = {}
        for place, event in found.events:
            parts.setdefault(place, []).append(event)
        found.unapplied = len(parts) + 1
        for place, events in parts.items():
            self._soon(self._apply_events, transactional_id, found, place, events)
        self._soon(self._apply_cursor, transactional_id, found)

    def _soon(self, call: object, *args: object) -> None:
        world = self.world
        slow = world.happens("slow", "applying a commit")
        delay_s = world.chance.uniform(0.0, 2.0 if slow else 2 * world.plan.latency_s)
        if world.over or delay_s == 0.0:
            call(*args)  # type: ignore[operator]
        else:
            world.later(delay_s, call, *args)  # type: ignore[arg-type]

    def _apply_events(
        self, transactional_id: str, found: Transaction, place: Place, events: list[Event]
    ) -> None:
        self.outputs.setdefault(place, []).extend(events)
        self._applied(transactional_id, found)

    def _apply_cursor(self, transactional_id: str, found: Transaction) -> None:
        if found.cursor is not None:
            name, cursor = found.cursor
            self.offsets[name] = cursor
            self.world.note(f"emitted: {name[1]} up to {cursor.next_offset}")
        self._applied(transactional_id, found)

    def _applied(self, transactional_id: str, found: Transaction) -> None:
        found.unapplied -= 1
        if found.unapplied == 0:
            del self.open[transactional_id]

    def abort(self, transactional_id: str, epoch: int) -> None:
        """Abort what this producer has open."""
        found = self.open.get(transactional_id)
        if found is not None and not found.prepared and self.epochs[transactional_id] == epoch:
            del self.open[transactional_id]


def _at(record: Record, offset: int) -> Record:
    return Record(offset, record.value, record.timestamp, record.key, record.headers)


@dataclass
class SimulatedEmitter:
    """`Emitter` over a `SimulatedBroker`."""

    broker: SimulatedBroker
    record_type: RecordType
    source: Source
    group: str
    epoch: int = -1
    usable: bool = False

    @property
    def transactional_id(self) -> str:
        return f"weighbridge/{self.source.topic}/{self.source.partition}/{self.group}"

    @property
    def _world(self) -> World:
        return self.broker.world

    async def start(self) -> None:
        async def init() -> int:
            return await self.broker.init_producer(self.transactional_id)

        self.epoch = await self._world.ask("kafka", "init_producer_id", init)
        self.usable = True

    async def committed(self) -> EmittedCursor | None:
        return await self._world.at_once("kafka", "read_emitted", self.read_emitted)

    def read_emitted(self) -> EmittedCursor | None:
        """The group's offset as the coordinator has applied it."""
        return self.broker.offsets.get((self.group, (self.source.topic, self.source.partition)))

    async def emit(
        self,
        committed: Sequence[Event],
        quarantined: Sequence[Event],
        cursor: EmittedCursor,
    ) -> None:
        invariant(self.usable, f"{self.transactional_id} can only be closed")
        self.usable = False
        try:
            await self._transact(committed, quarantined, cursor)
        except BaseException:
            self._abort_later()
            raise
        self.usable = True

    async def _transact(
        self,
        committed: Sequence[Event],
        quarantined: Sequence[Event],
        cursor: EmittedCursor,
    ) -> None:
        # As aiokafka does: it asks again while the transaction before is completed.
        while self._pending():  # noqa: ASYNC110 - as told above
            await asyncio.sleep(0.01)
        number = self.source.partition
        prefix = self.source.topic.removesuffix(self.record_type.raw_topic)
        results = []
        for topic, events in (
            (self.record_type.committed_topic, committed),
            (self.record_type.quarantine_topic, quarantined),
        ):
            place = (prefix + topic, number)
            results += [await self._produce(place, event) for event in events]
        self.check(results)
        await self._world.at_once("kafka", "offsets", lambda: self.send_offsets(cursor))
        await self._world.at_once("kafka", "commit_transaction", self._commit)

    def _pending(self) -> bool:
        found = self.broker.open.get(self.transactional_id)
        return found is not None and found.prepared

    async def _produce(self, place: Place, event: Event) -> BaseException | None:
        """The result of one produce: None is an acknowledgement."""

        def append() -> None:
            self.broker.check_epoch(self.transactional_id, self.epoch)
            self.broker.transaction(self.transactional_id).events.append((place, event))

        try:
            await self._world.at_once("kafka", "produce", append)
        except (BrokerUnavailable, Fenced) as error:
            return error
        return None

    def check(self, results: Sequence[BaseException | None]) -> None:
        """Every produce result, before the commit."""
        for result in results:
            if result is not None:
                raise result

    def send_offsets(self, cursor: EmittedCursor) -> None:
        """The group's offset joins the transaction."""
        self.broker.check_epoch(self.transactional_id, self.epoch)
        place = (self.source.topic, self.source.partition)
        self.broker.transaction(self.transactional_id).cursor = ((self.group, place), cursor)

    def _commit(self) -> None:
        self.broker.check_epoch(self.transactional_id, self.epoch)
        self.broker.prepare(self.transactional_id)

    def _abort_later(self) -> None:
        """The abort arrives, or the coordinator's timeout ends what is open."""
        if self._world.over or self._world.chance.random() < 0.5:
            self.broker.abort(self.transactional_id, self.epoch)

    async def close(self) -> None:
        if self.usable:
            self.usable = False
            await asyncio.sleep(self._world.chance.choice([0.0, 0.1]))
