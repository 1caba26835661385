"""Worlds to drive the protocol in: ports plus a way to look at them from outside.

A world is one raw topic partition with its ledger and outputs. `MemoryWorld` keeps all of it in
memory; `RealWorld` (in `real_world.py`) on real Kafka and PostgreSQL. Both are driven by `drive`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from connectors.errors import ClaimRefused, InfrastructureError
from connectors.memory import MemoryBroker, MemoryEmitter, MemoryLedger, MemorySchemaStore
from connectors.ports import Counts, Fetched, SchemaStore
from schemas.envelope import RawRecord, Record, Source
from schemas.record_type import RecordType
from schemas.verdict import Event
from streams import batch as steps
from streams.assignment import Ownership, Ports, assign
from streams.metrics import Metrics
from streams.observer import Observer

GROUP = "gate"
ASSIGN_TRIES = 40


@dataclass(frozen=True)
class Outside:
    """What can be seen of a partition from outside: tables and topics."""

    ledger: Sequence[tuple[object, ...]]
    """Ledger rows without clock columns, sorted by offset."""
    receipts: Sequence[tuple[object, ...]]
    quarantine: Sequence[tuple[object, ...]]
    committed_events: Sequence[Event]
    quarantine_events: Sequence[Event]
    counts: Counts
    decided: int
    emitted: int


class World(Protocol):
    """One partition and its surroundings."""

    ports: Ports
    schemas: SchemaStore
    topic: str

    async def publish(self, records: Sequence[Record]) -> Sequence[RawRecord]:
        """Put records on the raw partition and read them back as the gate would."""

    async def outside(self) -> Outside:
        """Look at tables and topics."""


class MemoryWorld:
    """Everything in memory."""

    def __init__(self, record_type: RecordType) -> None:
        self.broker = MemoryBroker()
        self.ledger = MemoryLedger(record_type)
        self.schemas = MemorySchemaStore()
        self.topic = record_type.raw_topic
        self.fatal: list[BaseException] = []
        self.ports = Ports(
            record_type=record_type,
            ledger=self.ledger,
            log=self.broker,
            make_emitter=lambda s: MemoryEmitter(self.broker, record_type, s, GROUP),
            group=GROUP,
            observer=Observer(Metrics(), self.fatal.append),
        )

    async def publish(self, records: Sequence[Record]) -> Sequence[RawRecord]:
        """Append to the log."""
        for record in records:
            self.broker.append(self.topic, 0, record)
        return list(self.broker.logs.get((self.topic, 0), []))

    async def outside(self) -> Outside:
        """Look at tables and topics."""
        record_type, tables = self.ports.record_type, self.ledger.tables
        offset = record_type.ledger_columns.index("record_offset")
        cursor = tables.cursors[self.topic, 0, GROUP]
        return Outside(
            ledger=sorted(tables.ledger.values(), key=lambda row: int(str(row[offset]))),
            receipts=sorted(tables.receipts, key=lambda row: (row[0], row[1])),
            quarantine=[tables.quarantine[place] for place in sorted(tables.quarantine)],
            committed_events=self.broker.outputs.get((record_type.committed_topic, 0), []),
            quarantine_events=self.broker.outputs.get((record_type.quarantine_topic, 0), []),
            counts=cursor.counts,
            decided=cursor.next_offset,
            emitted=self.broker.offsets[GROUP, (self.topic, 0)].next_offset,
        )


class Mishap(Enum):
    """What goes wrong at one batch."""

    NONE = "none"
    CRASH_BEFORE_PERSIST = "crash before persist"
    CRASH_BEFORE_EMIT = "crash between persist and emit"
    REDELIVERED = "the same batch is persisted a second time"
    ZOMBIE = "another owner takes over, then the old one tries to persist and to emit"


async def drive(
    world: World, records: Sequence[RawRecord], cuts: Sequence[int], mishaps: Sequence[Mishap]
) -> None:
    """Run the protocol over `records`, cut into batches of the given sizes, with mishaps.

    After every mishap the partition is assigned again, as a new worker would, and goes on at D.
    """
    owner = await _assign(world)
    turn = 0
    while True:
        index = next((i for i, r in enumerate(records) if r.offset >= owner.next_offset), None)
        if index is None:
            break
        size = cuts[turn % len(cuts)] if cuts else len(records)
        mishap = mishaps[turn % len(mishaps)] if mishaps else Mishap.NONE
        if turn >= 4 * len(records) + 8:
            mishap = Mishap.NONE  # mishaps end, so that the run does
        turn += 1
        part = records[index : index + size]
        fetched = Fetched(owner.next_offset, part[-1].offset + 1, part)
        owner = await _one_batch(world, owner, fetched, mishap)
    await owner.emitter.close()


async def _one_batch(world: World, owner: Ownership, fetched: Fetched, mishap: Mishap) -> Ownership:
    ports = world.ports
    schemas = await steps.resolve_schemas(world.schemas, fetched.records)
    decided = steps.decide(fetched, ports.record_type, owner.source, owner.decision_set, schemas)
    if mishap is Mishap.CRASH_BEFORE_PERSIST:
        return await _again(world, owner)
    if mishap is Mishap.ZOMBIE:
        successor = await _assign(world)
        await _expect_refusal(world, owner, decided)
        return successor
    persisted = await _persist(ports, owner, decided)
    if mishap is Mishap.CRASH_BEFORE_EMIT:
        return await _again(world, owner)
    await steps.emit(owner.emitter, owner.deployment, owner.source, persisted)
    if mishap is Mishap.REDELIVERED:
        await _expect_refusal(world, owner, decided)
        return await _again(world, owner)
    return Ownership(
        owner.source,
        owner.token,
        owner.deployment,
        owner.emitter,
        owner.decision_set,
        fetched.next_offset,
    )


async def _persist(
    ports: Ports, owner: Ownership, decided: steps.DecidedBatch
) -> steps.PersistedBatch:
    return await steps.persist(
        ports.ledger, ports.record_type, owner.source, ports.group, owner.token, decided
    )


async def _again(world: World, owner: Ownership) -> Ownership:
    await owner.emitter.close()
    return await _assign(world)


async def _assign(world: World) -> Ownership:
    """As a worker does: again while a server is not ready yet."""
    for _ in range(ASSIGN_TRIES - 1):
        try:
            return await assign(world.ports, world.topic, 0)
        except InfrastructureError:
            await asyncio.sleep(0.2)
    return await assign(world.ports, world.topic, 0)


async def _expect_refusal(world: World, owner: Ownership, decided: steps.DecidedBatch) -> None:
    """A stale or repeated batch must be refused at the claim; anything else is a doubled record."""
    try:
        await _persist(world.ports, owner, decided)
    except ClaimRefused:
        await owner.emitter.close()
        return
    message = "a batch was persisted twice, or by a former owner"
    raise AssertionError(message)


def source_of(world: World) -> Source:
    """The world's only partition."""
    return Source(world.topic, 0)
