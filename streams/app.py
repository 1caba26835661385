"""The worker: read this first.

    KafkaSource ──▶ Pump (mode service) ──batches──▶ bounded channel ──▶ Faust agent `gate`
        ▲  whole batches of one partition                                   │ steps 1-4
        └── rebalance: partitions given and taken ◀── Partition ◀───────────┘ streams.partition

The pump owns the aiokafka consumer, so offsets belong to the protocol and never to Faust: a Faust
agent acknowledges in a `finally`, even when it raises. Faust's own consumer has a group of its own
and hears `weighbridge.control` only, which wakes workers; truth is always read at the claim.
"""

from __future__ import annotations

import asyncio
import os
import random
import tempfile
import uuid
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import faust
import structlog
from mode import Service

from connectors.errors import (
    InfrastructureError,
    OwnershipLost,
    PartitionStop,
    Stop,
    WeighbridgeError,
)
from connectors.ports import Emitter, Fetched, Ledger, LogRange, SchemaStore
from schemas.envelope import Source
from schemas.record_type import RecordType
from streams.assignment import LogReader, Ports
from streams.breaker import BreakerPolicy
from streams.health import now_s
from streams.observer import Observer
from streams.partition import Batch, Partition, PartitionSettings, State
from streams.watchdog import STALL_S, Watchdog

log = structlog.get_logger("weighbridge.worker")

TopicPartition = tuple[str, int]
FETCH_TIMEOUT_S = 0.5
"""How long one poll waits when every partition could take a batch."""
BUSY_FETCH_TIMEOUT_S = 0.02
"""The same while some partition is busy: it may become ready meanwhile."""
DRAIN_POLL_S = 0.02


class BatchSource(LogReader, Protocol):
    """What the pump asks of the consumer; `connectors.kafka.source.KafkaSource` implements it."""

    async def start(
        self,
        topics: Collection[str],
        on_assigned: Callable[[Collection[TopicPartition]], None],
        on_revoked: Callable[[Collection[TopicPartition]], None],
    ) -> None:
        """Join the group. The callbacks only record the change and hand over."""

    async def stop(self) -> None:
        """Leave the group."""

    async def next_batch(
        self, ready: Collection[TopicPartition], *, timeout_s: float
    ) -> tuple[str, int, Fetched] | None:
        """A batch of one of the ready partitions, or None. Keeps polling alive either way."""

    async def lag(self, topic: str, partition: int) -> int | None:
        """Last stable offset minus position, without asking the broker; None when unknown."""

    async def ends(self, topic: str, partition: int) -> LogRange:
        """The ends of a log, asked for now. Raises `BrokerUnavailable`, `Stop` for no such
        topic."""


@dataclass(frozen=True, slots=True)
class TypePorts:
    """One record type at this worker, and its ledger."""

    record_type: RecordType
    ledger: Ledger
    breaker: BreakerPolicy | None = None
    """When its partitions are paused for their rejects; None is never."""


QUEUED_PER_ACTOR = 2
FAUST_FOLDER = Path(tempfile.gettempdir()) / f"weighbridge-{os.getuid()}"
"""Faust wants a folder for tables, of which a worker has none; not one in the working directory."""
PROBE_INTERVAL_S = 5.0
LAG_INTERVAL_S = 1.0
FAUST_STOP_DEADLINE_S = 5.0


@dataclass(frozen=True, slots=True)
class WorkerParts:
    """Everything a worker is put together from; `streams.cli` builds it from settings."""

    source: BatchSource
    types: Mapping[str, TypePorts]
    """By raw topic."""
    make_emitter: Callable[[RecordType, Source], Emitter]
    schema_store: SchemaStore
    observer: Observer
    group: str
    control_topic: str
    kafka_bootstrap: str
    concurrency: int = 4
    """Batches of different partitions at work at once."""
    shutdown_deadline_s: float = 20.0
    stall_s: float = STALL_S
    """Work without progress for so long is a stall."""
    partition: PartitionSettings = field(default_factory=PartitionSettings)
    random_source: random.Random = field(default_factory=random.Random)
    """Of the jitter in back-off; no secrets."""

    @property
    def in_flight_max(self) -> int:
        """Most batches fetched and not done (G6); the channel holds them without blocking."""
        return self.concurrency * QUEUED_PER_ACTOR


class Pump(Service):
    """Owns the consumer and the partitions; feeds the agent's channel (step 1, first half)."""

    def __init__(
        self, parts: WorkerParts, channel: faust.ChannelT[Batch], **kwargs: object
    ) -> None:
        super().__init__(**kwargs)  # type: ignore[arg-type]
        self.partitions: dict[TopicPartition, Partition] = {}
        self._parts = parts
        self._channel = channel
        self._retiring: dict[TopicPartition, asyncio.Task[None]] = {}
        self._draining = False
        self._lags: dict[TopicPartition, int] = {}
        self.away: dict[str, str] = {}
        """What outside does not answer, and how: readiness is red meanwhile (G5)."""
        self.watchdog = Watchdog(parts.stall_s, parts.source.ends, parts.observer)

    # -- rebalance ---------------------------------------------------------------------------------

    def on_assigned(self, given: Collection[TopicPartition]) -> None:
        """The group gave us partitions: each is assigned by a task of its own."""
        for place in given:
            if place in self.partitions:
                continue
            topic, number = place
            of_type = self._parts.types[topic]
            partition = Partition(
                topic,
                number,
                ports=self._ports(of_type),
                schema_store=self._parts.schema_store,
                settings=self._parts.partition,
                random_source=self._parts.random_source,
            )
            self.partitions[place] = partition
            retiring = self._retiring.pop(place, None)
            if retiring is None:
                partition.start()
            else:
                retiring.add_done_callback(lambda _, p=partition: p.start())  # type: ignore[misc]

    def on_revoked(self, taken: Collection[TopicPartition]) -> None:
        """The group took partitions: they finish or drop their work in tasks of their own."""
        for place in taken:
            partition = self.partitions.pop(place, None)
            if partition is not None:
                self._lags.pop(place, None)
                self._parts.observer.lag(partition.source, 0, scalable=False)
                self._retiring[place] = asyncio.create_task(
                    partition.revoke(), name=f"revoke {partition.source}"
                )

    def _ports(self, of_type: TypePorts) -> Ports:
        make_emitter, record_type = self._parts.make_emitter, of_type.record_type
        return Ports(
            record_type=record_type,
            ledger=of_type.ledger,
            log=self._parts.source,
            make_emitter=lambda source: make_emitter(record_type, source),
            group=self._parts.group,
            observer=self._parts.observer,
            breaker=of_type.breaker,
        )

    # -- pumping -----------------------------------------------------------------------------------

    async def on_start(self) -> None:
        """Join the group."""
        await self._parts.source.start(list(self._parts.types), self.on_assigned, self.on_revoked)

    @Service.task
    async def _pump(self) -> None:
        """Fetch for whichever partition can take a batch, for as long as the service runs."""
        try:
            while not self.should_stop and not self._draining:
                await self._fetch_once()
        except Exception as error:  # noqa: BLE001 - whatever ends the pump must end the worker
            self._parts.observer.fatal(error)

    async def _fetch_once(self) -> None:
        ready = [place for place, p in self.partitions.items() if p.ready]
        if sum(p.in_flight for p in self.partitions.values()) >= self._parts.in_flight_max:
            ready = []  # the channel is full; polling goes on, or the group would drop this worker
        all_ready = len(ready) == len(self.partitions)
        timeout_s = FETCH_TIMEOUT_S if all_ready else BUSY_FETCH_TIMEOUT_S
        fetched = await self._next_batch(ready, timeout_s)
        if fetched is None:
            return
        topic, number, batch = fetched
        partition = self.partitions.get((topic, number))
        if partition is None or partition.state is not State.RUNNING:
            return
        if batch.begin != partition.position:
            # Assigned again while this was being fetched; the claim would refuse it anyway.
            partition.interrupt(OwnershipLost(f"fetched from {batch.begin}, not where it stands"))
            return
        await self._channel.put(partition.new_batch(batch))  # type: ignore[arg-type]

    async def _next_batch(
        self, ready: list[TopicPartition], timeout_s: float
    ) -> tuple[str, int, Fetched] | None:
        """What the source has next, or None: nothing came, or it could not be asked."""
        try:
            async with asyncio.timeout(self._parts.stall_s):
                return await self._parts.source.next_batch(ready, timeout_s=timeout_s)
        except TimeoutError:  # cancelling it loses nothing
            log.warning("fetch_stalled", for_s=self._parts.stall_s)
        except InfrastructureError as error:
            if not self._draining:
                log.warning("fetch_failed", error=type(error).__name__, message=str(error))
                await self.sleep(timeout_s)
        except PartitionStop as stop:
            # The log of a partition cannot be read on; assignment finds out why and says so.
            if stop.place in self.partitions:
                self.partitions[stop.place].interrupt(stop)
        except Stop as stop:
            self._parts.observer.fatal(stop)
        return None

    def lag_of(self, partition: Partition) -> int:
        """Records between a partition's position and what may be read; 0 while unknown."""
        known = self._lags.get((partition.source.topic, partition.source.partition), 0)
        return max(known, self.watchdog.lag(partition))

    @Service.timer(PROBE_INTERVAL_S)
    async def _probe(self) -> None:
        """Ask Kafka and PostgreSQL for their names: an idle worker notices too that one is away."""
        await self._ask("kafka", self._parts.source.cluster_id())
        of_type = next(iter(self._parts.types.values()))
        await self._ask("postgres", of_type.ledger.deployment())

    async def _ask(self, name: str, question: Awaitable[str]) -> None:
        try:
            await question
        except WeighbridgeError as error:
            self.away[name] = f"{name}: {error}"
        else:
            self.away.pop(name, None)

    @Service.timer(LAG_INTERVAL_S)
    async def _watch_lag(self) -> None:
        for place, partition in list(self.partitions.items()):
            lag = await self._parts.source.lag(*place)
            if lag is not None:
                self._lags[place] = lag
            if lag is not None or self.watchdog.lag(partition):
                working = partition.state in {State.RUNNING, State.ASSIGNING}
                scalable = working and place not in self.watchdog.stalled
                self._parts.observer.lag(
                    partition.source, self.lag_of(partition), scalable=scalable
                )

    @Service.timer(LAG_INTERVAL_S)
    async def _watch_progress(self) -> None:
        await self.watchdog.look(list(self.partitions.values()), self.lag_of, now_s())

    async def on_stop(self) -> None:
        """Graceful stop: fetch no more, finish what is in flight, let go, leave the group."""
        self._draining = True
        try:
            async with asyncio.timeout(self._parts.shutdown_deadline_s):
                while not all(p.idle for p in self.partitions.values()):  # noqa: ASYNC110 - of many
                    await asyncio.sleep(DRAIN_POLL_S)
        except TimeoutError:
            log.warning("stopped_in_flight", deadline_s=self._parts.shutdown_deadline_s)
        self.on_revoked(list(self.partitions))
        await asyncio.gather(*self._retiring.values(), return_exceptions=True)
        await self._parts.source.stop()


class Worker:
    """A Faust app with the pump, the agent and the control agent."""

    def __init__(self, parts: WorkerParts) -> None:
        self.parts = parts
        self._started = False
        # A group of its own per process: every worker hears every message of the control topic.
        self.app = faust.App(
            f"weighbridge-control-{uuid.uuid4().hex[:12]}",
            broker=f"kafka://{parts.kafka_bootstrap.replace(',', ';kafka://')}",
            store="memory://",
            datadir=FAUST_FOLDER,
            autodiscover=False,
            web_enabled=False,
            topic_disable_leader=True,
            topic_allow_declare=False,
            consumer_auto_offset_reset="latest",
            stream_wait_empty=False,
        )
        channel = self.app.channel(maxsize=parts.in_flight_max)
        self.pump = Pump(parts, channel, loop=None, beacon=self.app.beacon)
        self.app.agent(channel, name="gate", concurrency=parts.concurrency)(self._gate)
        control = self.app.topic(parts.control_topic, value_serializer="raw", internal=False)
        self.app.agent(control, name="control")(self._control)

    async def _gate(self, batches: faust.StreamT[Batch]) -> None:
        """The agent: every batch of every partition passes here, steps 1 to 4."""
        async for batch in batches:
            try:
                await batch.partition.process(batch)
            except Exception as error:  # noqa: BLE001 - what escapes is a broken invariant
                self.parts.observer.fatal(error)

    async def _control(self, messages: faust.StreamT[bytes]) -> None:
        """Hears that a decision set was activated. Truth is read at the next claim."""
        async for _ in messages:
            log.info("control_message")

    async def start(self) -> None:
        """Start Faust, then the pump. Raises `BrokerUnavailable` when Kafka cannot be reached."""
        await self.parts.source.cluster_id()  # Faust would say so with an error of its driver's
        await self.app.start()
        self._started = True
        await self.pump.start()

    async def stop(self) -> bool:
        """Stop the pump, then Faust. False if Faust did not end in time: its consumer runs in a
        thread of its own and waits for a broker that is away."""
        await self.pump.stop()
        if not self._started:
            return True
        stopping = asyncio.ensure_future(self.app.stop())
        done, _ = await asyncio.wait({stopping}, timeout=FAUST_STOP_DEADLINE_S)
        return bool(done)
