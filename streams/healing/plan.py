"""Which partitions the database is behind in, and from where to where. Pure but for asking Kafka.

D is the database's cursor, E the group's offset. A database that was set back has D < E, with a
batch number beside E that it has not come to. Whatever else does not fit together is not healed.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from connectors.errors import Stop
from connectors.kafka.admin import KafkaAdmin
from connectors.kafka.emitter import EmitterFactory
from connectors.kafka.membership import Place
from connectors.kafka.settings import KafkaSettings
from connectors.ports import Cursor, EmittedCursor
from schemas.envelope import Source
from schemas.record_type import RecordType
from schemas.record_types import RECORD_TYPES
from streams.batch import OffsetMetadata

POLL_S = 0.5
LEAVE_MARGIN_S = 2.0
"""How much longer than the session timeout a killed worker is waited for."""


@dataclass(frozen=True, slots=True)
class Behind:
    """A partition whose events are ahead of the database."""

    record_type: RecordType
    cursor: Cursor
    """Where the database stands; made up for a partition it does not know."""
    emitted_offset: int
    """E."""
    batch_number: int
    """Number of the batch that moved E."""
    is_new: bool
    """The database has no cursor row: it was set back to before the partition's first batch."""

    @property
    def source(self) -> Source:
        """The partition."""
        return self.cursor.source

    @property
    def decided_offset(self) -> int:
        """D."""
        return self.cursor.next_offset


async def raw_places(kafka: KafkaSettings, admin: KafkaAdmin) -> Mapping[Place, RecordType]:
    """All partitions of all raw topics that exist."""
    types = {kafka.topic(t.raw_topic): t for t in RECORD_TYPES.values()}
    found = await admin.topics(list(types))
    return {
        (topic, number): types[topic]
        for topic, partitions in sorted(found.items())
        for number in sorted(partitions)
    }


async def refuse_while_workers_run(kafka: KafkaSettings, admin: KafkaAdmin) -> None:
    """Wait until killed workers have left the group. Raises `Stop` when one is still in it then."""
    ends_s = time.monotonic() + kafka.session_timeout_ms / 1000 + LEAVE_MARGIN_S
    members = await admin.members(kafka.group)
    while members and time.monotonic() < ends_s:
        await asyncio.sleep(POLL_S)
        members = await admin.members(kafka.group)
    if members:
        message = (
            f"{members} worker(s) of group {kafka.group} are running: stop all of them, then heal"
        )
        raise Stop(message)


async def settled_offsets(
    kafka: KafkaSettings, places: Mapping[Place, RecordType]
) -> Mapping[Place, EmittedCursor | None]:
    """E of every partition, after fencing whoever may still be emitting (step (a)): only then is
    no transaction pending that could move it."""
    found: dict[Place, EmittedCursor | None] = {}
    async with EmitterFactory(kafka) as emitters:
        for place, record_type in places.items():
            emitter = emitters.emitter(record_type, Source(*place))
            try:
                await emitter.start()
                found[place] = await emitter.committed()
            finally:
                await emitter.close()
    return found


@dataclass(frozen=True, slots=True)
class Known:
    """What has to fit together."""

    deployment: str
    cluster_id: str
    group: str
    cursors: Mapping[Place, Cursor]
    log_starts: Mapping[Place, int]
    """Where the log of a partition without a cursor row begins."""


def behind(
    known: Known,
    places: Mapping[Place, RecordType],
    emitted: Mapping[Place, EmittedCursor | None],
) -> Sequence[Behind]:
    """The partitions to heal, in order. Raises `Stop` for what healing must not touch."""
    found = []
    for place, record_type in places.items():
        offset = emitted.get(place)
        if offset is not None:
            one = _compare(known, place, record_type, offset)
            if one is not None:
                found.append(one)
    return found


def _compare(
    known: Known, place: Place, record_type: RecordType, emitted: EmittedCursor
) -> Behind | None:
    """None when the database is not behind here."""
    ours = OffsetMetadata.parse(emitted.metadata)
    name = f"{place[0]}/{place[1]}"
    if ours is None or ours.deployment != known.deployment:
        by = "something else" if ours is None else f"deployment {ours.deployment}"
        message = (
            f"{name}: offset {emitted.next_offset} of group {known.group} was committed by {by}, "
            f"this database is deployment {known.deployment}: it is not this database's past. "
            "Restore a copy of the database that worked for this group, or configure another group"
        )
        raise Stop(message)
    is_new = place not in known.cursors
    cursor = _first_cursor(known, place, ours) if is_new else known.cursors[place]
    if cursor.cluster_id != known.cluster_id or cursor.source.incarnation != ours.incarnation:
        message = (
            f"{name}: the database knows cluster {cursor.cluster_id}, incarnation "
            f"{cursor.source.incarnation}; the group's offset is of cluster {known.cluster_id}, "
            f"incarnation {ours.incarnation}. Only the same log can be healed"
        )
        raise Stop(message)
    ahead = emitted.next_offset > cursor.next_offset
    if ahead != (ours.batch_number > cursor.batch_number):
        message = (
            f"{name}: decided up to {cursor.next_offset} with batch {cursor.batch_number}, emitted "
            f"up to {emitted.next_offset} with batch {ours.batch_number}: no database that was set "
            "back looks like this. Did somebody move the group's offset?"
        )
        raise Stop(message)
    if not ahead:
        return None
    return Behind(record_type, cursor, emitted.next_offset, ours.batch_number, is_new)


def _first_cursor(known: Known, place: Place, ours: OffsetMetadata) -> Cursor:
    """Reading began at the log's start. If that has moved since, healing finds events before it."""
    start = known.log_starts[place]
    source = Source(*place, ours.incarnation)
    return Cursor(source, known.cluster_id, start, start, 0, None, None)
