"""Assignment of a partition, steps (a) to (d): become its only owner, then know where to go on.

(a) InitProducerId          fences the previous owner's emissions; what is emitted, E, is read now
(b) a new token             fences its writes, and yields what is decided, D
(c) compare the cursors     emitted E against decided D
(d) recognise the log       the last decided record must still be itself; then what is owed (E < D)
                            is emitted from the database, and reading goes on from D

Runs as a task of its own, never inside the consumer's rebalance callback: aiokafka sends no
heartbeat there, and a callback that waits for a lock empties the whole group.

E never passes D, so E is read before D. The other way round, a newer owner may decide and emit
between the two reads, and the database looks as if it had been set back.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn, Protocol

import structlog

from connectors.errors import Stop, StopAll
from connectors.ports import Cursor, EmittedCursor, Emitter, LastRecord, Ledger, LogRange
from schemas.decision_set import DecisionSet
from schemas.envelope import RawRecord, Source, raw_digest
from schemas.record_type import RecordType
from streams import batch as steps
from streams.batch import OffsetMetadata, offset_metadata
from streams.breaker import BreakerPolicy
from streams.observer import Observer

log = structlog.get_logger("weighbridge.assignment")

REMEDY = "`weighbridge heal`"
"""Stands in the stop mark of a database that was set back: what clears it."""


class Log(Protocol):
    """What it takes to recognise a log."""

    async def log_range(self, topic: str, partition: int) -> LogRange:
        """What the log holds now. Raises `BrokerUnavailable`."""

    async def read_record(self, topic: str, partition: int, offset: int) -> RawRecord | None:
        """The record at exactly this offset, None if there is none. Raises `BrokerUnavailable`."""


class LogLooker(Log, Protocol):
    """The same, and whose it is; `connectors.kafka.log_access` implements it."""

    async def cluster_id(self) -> str:
        """The Kafka cluster's id. Raises `BrokerUnavailable`."""


class LogReader(LogLooker, Protocol):
    """What assignment asks of a raw topic's log; `connectors.kafka.source` implements it."""

    def seek(
        self, topic: str, partition: int, offset: int, aside: frozenset[int] = frozenset()
    ) -> None:
        """Make the consumer read on from here; `aside` are offsets that it need not be able to
        read."""


@dataclass(frozen=True, slots=True)
class Ports:
    """The outside, as one partition of one record type sees it."""

    record_type: RecordType
    ledger: Ledger
    log: LogReader
    make_emitter: Callable[[Source], Emitter]
    group: str
    observer: Observer
    breaker: BreakerPolicy | None = None
    """When the partition is paused for its rejects; None is never."""


@dataclass(frozen=True, slots=True)
class Ownership:
    """What assignment yields: everything steps 3 and 4 need to act as the owner."""

    source: Source
    token: bytes
    deployment: str
    emitter: Emitter
    decision_set: DecisionSet
    next_offset: int
    """D: where to read on."""
    holds: frozenset[int] = frozenset()
    """Offsets from D on that an operator set aside."""


class LogReplaced(Stop):
    """The log is not the one whose records were decided."""


class Gap(Stop):
    """Records aged out of the log before they were decided."""


async def assign(ports: Ports, topic: str, number: int) -> Ownership:
    """Steps (a) to (d). Raises `Stop` or `StopAll` where an operator must act, and
    `InfrastructureError` (retryable) when something is away; the emitter is closed then."""
    # (a) InitProducerId fences the previous owner's emissions.
    emitter = ports.make_emitter(Source(topic, number))
    try:
        await emitter.start()
        return await _own(ports, emitter, topic, number)
    except BaseException:
        await emitter.close()
        raise


async def _own(ports: Ports, emitter: Emitter, topic: str, number: int) -> Ownership:
    # Only now is E settled: after (a) no transaction of this partition is pending.
    emitted = await emitter.committed()

    # (b) A new random token in the cursor row fences the previous owner's writes.
    token = secrets.token_bytes(16)
    deployment = await ports.ledger.deployment()
    cursor = await ports.ledger.take(topic, number, ports.group, token)

    # (c) Compare the two cursors.
    cluster_id = await ports.log.cluster_id()
    if cursor is None:
        source = Source(topic, number)
        if emitted is not None:
            await _refuse_to_begin(ports, source, emitted, deployment)
        cursor = await _first_cursor(ports, source, token, cluster_id)
    check_cluster(cursor, cluster_id)
    owed_from = await emitted_up_to(ports, cursor, emitted, deployment)

    # (d) Is this still the log whose records were decided? Asked before anything is emitted: with
    # a topic Kafka deletes the group's offsets in it, so a recreated topic looks like E lost.
    await recognise(ports.log, cursor)
    if owed_from < cursor.next_offset:
        await emit_owed(ports, emitter, cursor, deployment, owed_from)
    # What was decided is out by now. May reading go on?
    interventions = await ports.ledger.interventions(cursor.source, ports.group)
    steps.refuse_paused(cursor.source, interventions)
    decision_set = await ports.ledger.active_decision_set()
    holds, begin = interventions.holds, cursor.next_offset
    ports.log.seek(topic, number, begin, holds)
    return Ownership(cursor.source, token, deployment, emitter, decision_set, begin, holds)


async def _refuse_to_begin(
    ports: Ports, source: Source, emitted: EmittedCursor, deployment: str
) -> NoReturn:
    """E without D: the database lost its past. With an offset of its own it was set back to before
    the partition's first batch; with another's it is another database."""
    message = (
        f"{source}: group {ports.group} has committed offset {emitted.next_offset}, but the "
        "database knows nothing of this partition"
    )
    ours = OffsetMetadata.parse(emitted.metadata)
    if ours is not None and ours.deployment == deployment:
        message += (
            f": it was set back. Restore it; {REMEDY} rebuilds what is missing from the output "
            "topics"
        )
        await ports.ledger.set_stop_mark(message)
        raise StopAll(message)
    message += (
        ". Was the database replaced, or the group used by something else? Restore the database, "
        "or configure another group"
    )
    raise Stop(message)


async def _first_cursor(ports: Ports, source: Source, token: bytes, cluster_id: str) -> Cursor:
    """Neither D nor E: begin at the earliest offset."""
    log_range = await ports.log.log_range(source.topic, source.partition)
    return await ports.ledger.begin(source, ports.group, token, cluster_id, log_range.start_offset)


async def emitted_up_to(
    ports: Ports, cursor: Cursor, emitted: EmittedCursor | None, deployment: str
) -> int:
    """Step (c): where emission goes on from: E, or its stand-in when the group has none."""
    source = cursor.source
    if emitted is None:
        if cursor.emitted_offset is None:
            return cursor.first_offset
        log.warning("group_offsets_lost", partition=str(source), mirrored=cursor.emitted_offset)
        return cursor.emitted_offset
    ours = OffsetMetadata.parse(emitted.metadata)
    if ours is None or (ours.deployment, ours.incarnation) != (deployment, source.incarnation):
        message = (
            f"{source}: offset {emitted.next_offset} of group {ports.group} was not committed by "
            f"deployment {deployment}, incarnation {source.incarnation}: somebody moved it. "
            f"Decided up to {cursor.next_offset}, emitted up to about {cursor.emitted_offset}. "
            "Nothing is skipped silently: put it back. If the events of the last batch are in the "
            f"output topics, that is {cursor.next_offset} with metadata "
            f"'{offset_metadata(deployment, source.incarnation, cursor.batch_number)}'"
        )
        raise Stop(message)
    await _check_batch(ports, cursor, emitted, ours)
    return emitted.next_offset


def check_cluster(cursor: Cursor, cluster_id: str) -> None:
    """Raises `LogReplaced` when the cursor was decided against another Kafka cluster."""
    if cursor.cluster_id != cluster_id:
        message = (
            f"{cursor.source}: decided against Kafka cluster {cursor.cluster_id}, this is cluster "
            f"{cluster_id}. Connect to the former, or begin a new incarnation with "
            f"`weighbridge topics adopt {cursor.source.topic}`"
        )
        raise LogReplaced(message)


async def _check_batch(
    ports: Ports, cursor: Cursor, emitted: EmittedCursor, ours: OffsetMetadata
) -> None:
    """The batch that moved E must be one this database knows, and must have ended there.

    E beyond D, or a batch this database has not come to, means that the database was set back; a
    known batch that ended elsewhere, that somebody moved the group's offset.
    """
    source = cursor.source
    if emitted.next_offset > cursor.next_offset or ours.batch_number > cursor.batch_number:
        message = (
            f"{source}: events are emitted up to {emitted.next_offset} (batch "
            f"{ours.batch_number}), but the database is decided up to {cursor.next_offset} (batch "
            f"{cursor.batch_number}): it was set back. Restore it; {REMEDY} rebuilds what is "
            "missing from the output topics"
        )
        await ports.ledger.set_stop_mark(message)
        raise StopAll(message)
    if ours.batch_number == 0:  # set when the topic was adopted: the incarnation's beginning
        end: int | None = cursor.first_offset
    else:
        end = await ports.ledger.batch_end(source, ports.group, ours.batch_number)
    if end != emitted.next_offset:
        message = (
            f"{source}: offset {emitted.next_offset} of group {ports.group} is not where batch "
            f"{ours.batch_number} ended, which is {end}: somebody moved it. Put it back to {end} "
            f"with metadata '{emitted.metadata}'"
        )
        raise Stop(message)


async def emit_owed(
    ports: Ports, emitter: Emitter, cursor: Cursor, deployment: str, owed_from: int
) -> None:
    """E < D: emit what the batches between settled, from the database, batch by batch."""
    source = cursor.source
    log.info("emitting_owed", partition=str(source), emitted=owed_from, decided=cursor.next_offset)
    async for owed in ports.ledger.owed(source, ports.group, owed_from, cursor.next_offset):
        persisted = steps.owed_events(ports.record_type, source, owed)
        await steps.emit(emitter, deployment, source, persisted)
        ports.observer.emitted(source, persisted, from_database=True)


async def recognise(log_reader: Log, cursor: Cursor) -> None:
    """Step (d): D must be inside the log, and the last decided record must still be itself, unless
    it has aged out. Raises `LogReplaced`, `Gap`."""
    source, wanted = cursor.source, cursor.next_offset
    log_range = await log_reader.log_range(source.topic, source.partition)
    start, end = log_range.start_offset, log_range.end_offset
    if wanted > end:
        message = (
            f"{source}: decided up to offset {wanted}, but the log ends at {end}: the topic was "
            f"recreated or truncated. `weighbridge topics adopt {source.topic}` begins a new "
            "incarnation"
        )
        raise LogReplaced(message)
    if wanted < start:
        message = (
            f"{source}: offset {wanted} is wanted, but the log begins at {start}: records aged out "
            f"before they were decided. `weighbridge worker --accept-gap {source}` goes on there"
        )
        raise Gap(message)
    await check_last_record(log_reader, cursor, start)


async def check_last_record(log_reader: Log, cursor: Cursor, log_start: int) -> None:
    """Raises `LogReplaced` unless the last decided record is still itself, or has aged out."""
    source, last = cursor.source, cursor.last
    if last is None or last.offset < log_start:
        return
    record = await log_reader.read_record(source.topic, source.partition, last.offset)
    if record is None or not _same_record(record, last):
        message = (
            f"{source}: the record at offset {last.offset} is not the one that was decided there: "
            f"the topic was recreated. `weighbridge topics adopt {source.topic}` begins a new "
            "incarnation"
        )
        raise LogReplaced(message)


def _same_record(record: RawRecord, last: LastRecord) -> bool:
    return record.timestamp == last.timestamp and raw_digest(record.value) == last.raw_digest
