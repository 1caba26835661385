"""A raw topic was deleted and created again, or is another cluster's: its next incarnation begins.

For each partition whose log is no longer the one that was decided, as its only owner (steps (a) and
(b) fence any worker):

1. what the old incarnation settled and did not emit is emitted from the database,
2. the group's offset is put at the new log's beginning, with the new incarnation beside it,
3. the cursor row begins anew there, with the incarnation one higher.

A crash after 1 or 2 leaves the log as foreign to the cursor as before, so the same command goes on
where it stopped. Keys stay taken across incarnations (G2); positions, and so event ids, differ. The
counts of a partition go on: they are of all its lives, as its rows are.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import structlog

from connectors.errors import ConfigurationError, OwnershipLost, Stop
from connectors.ports import Cursor, EmittedCursor, OwedBatch
from connectors.postgres.ledger import PostgresLedger
from schemas.envelope import EVENT_ID, Position, RawRecord, last_header
from schemas.quarantine import QUARANTINE_COLUMNS
from schemas.record_type import COMMON_LEDGER_COLUMNS
from streams.assignment import (
    Gap,
    LogLooker,
    LogReplaced,
    Ports,
    check_cluster,
    emit_owed,
    emitted_up_to,
    recognise,
)
from streams.batch import offset_metadata

log = structlog.get_logger("weighbridge.adopt")

TRIES = 5
"""How often a partition is tried for when a worker that looks again takes it in between."""

_OFFSET = COMMON_LEDGER_COLUMNS.index("record_offset")
_QUARANTINE_OFFSET = QUARANTINE_COLUMNS.index("record_offset")


class TopicReader(LogLooker, Protocol):
    """What adoption asks of Kafka beyond what assignment does."""

    async def partitions_of(self, topic: str) -> Sequence[int]:
        """Partition numbers of a topic; none when there is no such topic."""

    async def last_committed(self, topic: str, partition: int) -> RawRecord | None:
        """The last record that `read_committed` reaches, None when there is none."""


@dataclass(frozen=True, slots=True)
class Replaced:
    """A partition to adopt."""

    cursor: Cursor
    first_offset: int
    """Where the new log begins."""
    why: str


@dataclass(frozen=True, slots=True)
class Adopted:
    """A partition after its adoption."""

    was: Cursor
    now: Cursor
    owed: int
    """Offsets whose events were still owed and have been emitted."""

    def as_dict(self) -> dict[str, object]:
        """For `topics adopt --json`."""
        source = self.now.source
        return {
            "topic": source.topic,
            "partition": source.partition,
            "incarnation": source.incarnation,
            "first_offset": self.now.first_offset,
            "decided_before": self.was.next_offset,
            "owed_offsets_emitted": self.owed,
        }


async def find_replaced(reader: TopicReader, cursors: Sequence[Cursor]) -> list[Replaced]:
    """The partitions of a topic whose log is another one now.

    A log that is told by its last decided record is left alone, and one of which that record has
    aged out: neither is new. One of which no record was decided goes with those that were replaced.
    Raises `ConfigurationError` when nothing is wrong or the topic lacks a partition, `Gap`, `Stop`
    when there is no such topic.
    """
    topic = cursors[0].source.topic
    there = set(await reader.partitions_of(topic))
    missing = {cursor.source.partition for cursor in cursors} - there
    if missing:
        message = (
            f"topic {topic} has {len(there)} partitions, and partitions "
            f"{', '.join(map(str, sorted(missing)))} were decided: create it with as many as "
            "before (`weighbridge topics create --partitions N`), then adopt it"
        )
        raise ConfigurationError(message)
    cluster_id = await reader.cluster_id()
    whys = [(cursor, await _why_replaced(reader, cursor, cluster_id)) for cursor in cursors]
    if not any(isinstance(why, LogReplaced) for _, why in whys):
        gaps = [why for _, why in whys if isinstance(why, Gap)]
        if gaps:
            raise gaps[0]
        message = f"nothing is wrong with topic {topic}: its logs are those that were decided"
        raise ConfigurationError(message)
    # Of one of which nothing was decided nobody can tell; where it is ahead of the others already,
    # this command began it before it was cut off.
    ahead = 1 + max(c.source.incarnation for c, why in whys if isinstance(why, LogReplaced))
    return [
        Replaced(cursor, await _start(reader, cursor), str(why or "no record of it was decided"))
        for cursor, why in whys
        if isinstance(why, LogReplaced)
        or (why is None and cursor.last is None and cursor.source.incarnation < ahead)
    ]


async def _why_replaced(
    reader: TopicReader, cursor: Cursor, cluster_id: str
) -> LogReplaced | Gap | None:
    """Why a log is another one, or has a gap; None when neither shows."""
    try:
        check_cluster(cursor, cluster_id)
        await recognise(reader, cursor)
    except (LogReplaced, Gap) as stop:
        return stop
    return None


async def _start(reader: TopicReader, cursor: Cursor) -> int:
    found = await reader.log_range(cursor.source.topic, cursor.source.partition)
    return found.start_offset


async def adopt_partition(
    ports: Ports, ledger: PostgresLedger, reader: TopicReader, replaced: Replaced
) -> Adopted:
    """Begin a partition's next incarnation. Raises `OwnershipLost` when workers keep taking the
    partition, `Stop`, `InfrastructureError` (retryable; the same again goes on)."""
    for _ in range(TRIES - 1):
        try:
            return await _adopt(ports, ledger, reader, replaced)
        except OwnershipLost as lost:
            log.info("taken_in_between", partition=str(replaced.cursor.source), why=str(lost))
    return await _adopt(ports, ledger, reader, replaced)


async def _adopt(
    ports: Ports, ledger: PostgresLedger, reader: TopicReader, replaced: Replaced
) -> Adopted:
    source = replaced.cursor.source
    emitter = ports.make_emitter(source)
    try:
        await emitter.start()
        emitted = await emitter.committed()  # before D, as assignment does
        token = secrets.token_bytes(16)
        deployment = await ledger.deployment()
        cursor = await ledger.take(source.topic, source.partition, ports.group, token)
        if cursor is None or cursor.source != source:
            message = f"{source}: the cursor row has changed under this command; run it again"
            raise Stop(message)
        begins = offset_metadata(deployment, source.incarnation + 1, 0)
        if emitted is None or emitted.metadata == begins:
            owed_from = await _by_outputs(ports, reader, cursor)
        else:
            owed_from = await emitted_up_to(ports, cursor, emitted, deployment)
        if owed_from < cursor.next_offset:
            await emit_owed(ports, emitter, cursor, deployment, owed_from)
        await emitter.emit((), (), EmittedCursor(replaced.first_offset, begins))
        cluster_id = await reader.cluster_id()
        now = await ledger.begin_incarnation(
            cursor, ports.group, token, cluster_id, replaced.first_offset
        )
    finally:
        await emitter.close()
    return Adopted(cursor, now, cursor.next_offset - owed_from)


async def _by_outputs(ports: Ports, reader: TopicReader, cursor: Cursor) -> int:
    """E when the group has lost it, as it does with the topic: told by the output topics.

    A batch's events come out in one Kafka transaction and in the order of batches, so the batch
    that holds the last event found is out, and so is all before it. Batches after it that have no
    events owe nothing but the offset.
    """
    source = cursor.source
    found = cursor.first_offset if cursor.emitted_offset is None else cursor.emitted_offset
    last = await _last_events(ports, reader, cursor)
    async for owed in ports.ledger.owed(source, ports.group, found, cursor.next_offset):
        if last & _offsets(owed):
            found = owed.next_offset
    return found


async def _last_events(ports: Ports, reader: TopicReader, cursor: Cursor) -> set[int]:
    """Offsets of the records whose events stand last in the output topics."""
    source, record_type = cursor.source, ports.record_type
    prefix = source.topic.removesuffix(record_type.raw_topic)
    offsets: set[int] = set()
    for topic in (record_type.committed_topic, record_type.quarantine_topic):
        event = await reader.last_committed(prefix + topic, source.partition)
        identity = None if event is None else last_header(event.headers, EVENT_ID)
        with contextlib.suppress(ValueError):  # no event of ours
            position = Position.parse((identity or b"").decode("utf-8", "replace"))
            if position == source.position(position.offset):
                offsets.add(position.offset)
    return offsets


def _offsets(owed: OwedBatch) -> set[int]:
    """Offsets of the records whose events a batch has."""
    committed = {int(str(row[_OFFSET])) for row in owed.committed_rows}
    return committed | {int(str(row[_QUARANTINE_OFFSET])) for row in owed.quarantine_rows}
