"""The lost range of a partition as Kafka still holds it: raw records and events, side by side.

Three logs are read in step: the raw partition and the two output partitions of the same number.
Events stand there in the order of their records, for batches are emitted in order; only what was
emitted twice, after the group's offsets had been lost, comes again, and is told apart as a repeat.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Self

from connectors.errors import Stop
from connectors.kafka.range_reader import RangeReader
from connectors.kafka.reading import size_of
from connectors.kafka.settings import KafkaSettings
from connectors.ports import Fetched
from schemas.envelope import RawRecord
from schemas.exact import EPOCH
from schemas.restoring import position_of
from schemas.verdict import Event
from streams.healing.plan import Behind

PART_RECORDS = 500
PART_BYTES = 8 * 1024 * 1024
"""How much is worked on at once: memory is a few times this, whatever the range."""
MARGINS = (timedelta(hours=1), timedelta(days=1), timedelta(days=7))
"""How far before the last known batch to look for its events: clocks differ, topics are sparse."""


@dataclass(frozen=True, slots=True)
class EventFound:
    """An event of one of the output topics."""

    event: Event
    emitted_at: datetime
    """The event's own time: that of its emission."""


@dataclass(frozen=True, slots=True)
class LostRecord:
    """One position with whatever there is about it."""

    offset: int
    raw: RawRecord | None = None
    committed: EventFound | None = None
    quarantined: EventFound | None = None


@dataclass(slots=True)
class Part:
    """A bounded number of positions, in order."""

    records: list[LostRecord] = field(default_factory=list)
    repeats: list[tuple[int, Event]] = field(default_factory=list)
    """Events of positions that were passed before."""
    size_bytes: int = 0

    @property
    def full(self) -> bool:
        """Whether it is time to work on it."""
        count = len(self.records) + len(self.repeats)
        return count >= PART_RECORDS or self.size_bytes >= PART_BYTES


class LostRange:
    """Reads [D, E) of one partition: `async with LostRange(...) as lost`.

    Raises `BrokerUnavailable` (retryable) and `Stop` like `RangeReader`.
    """

    def __init__(self, kafka: KafkaSettings, behind: Behind) -> None:
        record_type = behind.record_type
        self._behind = behind
        self._stack = AsyncExitStack()
        self._raw = RangeReader(kafka, behind.source.topic)
        self._committed = RangeReader(kafka, kafka.topic(record_type.committed_topic))
        self._quarantined = RangeReader(kafka, kafka.topic(record_type.quarantine_topic))
        self.raw_start = 0
        """First offset that the raw log still holds."""
        self.cut_topics: list[str] = []
        """Output topics whose log no longer begins at 0: events may have aged out."""

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            for reader in (self._raw, self._committed, self._quarantined):
                await stack.enter_async_context(reader)
            held = await self._raw.log_range(self._number)
            if held.last_stable_offset < self._behind.emitted_offset:
                message = (
                    f"{self._behind.source}: emitted up to {self._behind.emitted_offset}, but the "
                    f"log ends at {held.last_stable_offset}: the topic was recreated or truncated"
                )
                raise Stop(message)
            self.raw_start = held.start_offset
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    @property
    def _number(self) -> int:
        return self._behind.source.partition

    async def parts(self, since: datetime | None) -> AsyncIterator[Part]:
        """All positions of the range about which anything is left. `since` is when the last batch
        before D was persisted: its events, or none, tell where to begin."""
        first, end = max(self._behind.decided_offset, self.raw_start), self._behind.emitted_offset
        async with AsyncExitStack() as stack:

            async def opened(fetched: AsyncIterator[Fetched], offset_of: _OffsetOf) -> _Stream:
                return _Stream(await stack.enter_async_context(aclosing(fetched)), offset_of)  # type: ignore[type-var]

            raw = await opened(self._raw.read(self._number, first, end), _own_offset)
            outputs = [
                await opened(await self._events(reader, since), self._offset_of_event)
                for reader in (self._committed, self._quarantined)
            ]
            async for part in _merged(raw, outputs[0], outputs[1]):
                yield part
        await self._raw.check_same_topic()

    async def _events(self, reader: RangeReader, since: datetime | None) -> AsyncIterator[Fetched]:
        """An output partition from where the range's events begin, or earlier, to its end."""
        held = await reader.log_range(self._number)
        if held.start_offset > 0:
            self.cut_topics.append(reader.topic)
        first = await self._first(reader, held.start_offset, held.last_stable_offset, since)
        return reader.read(self._number, first, held.last_stable_offset)

    async def _first(
        self, reader: RangeReader, start: int, end: int, since: datetime | None
    ) -> int:
        """Where to begin: at an event of a position before D, for then all of the range's events
        come after it; else at the log's start."""
        if since is None:
            return start
        for margin in MARGINS:
            moment_ms = (since - margin - EPOCH) // timedelta(milliseconds=1)
            at = (await reader.first_since([self._number], max(0, moment_ms)))[self._number]
            if at is not None and at <= start:
                break
            if at is not None and await self._begins_before(reader, at, end):
                return at
        return start

    async def _begins_before(self, reader: RangeReader, at: int, end: int) -> bool:
        async with aclosing(reader.read(self._number, at, end)) as fetched:  # type: ignore[type-var]
            async for part in fetched:
                for record in part.records:
                    position = position_of(tuple(record.headers))
                    if position is not None:
                        return position.offset < self._behind.decided_offset
        return False

    def _offset_of_event(self, record: RawRecord) -> int | None:
        """The position's offset, if the event is about one of the range."""
        position, source = position_of(tuple(record.headers)), self._behind.source
        if position is None or position != source.position(position.offset):
            return None
        within = self._behind.decided_offset <= position.offset < self._behind.emitted_offset
        return position.offset if within else None


_OffsetOf = Callable[[RawRecord], int | None]


def _own_offset(record: RawRecord) -> int:
    return record.offset


class _Stream:
    """Records of a range with the offset each is about, one at a time."""

    def __init__(self, fetched: AsyncIterator[Fetched], offset_of: _OffsetOf) -> None:
        self._fetched = fetched
        self._offset_of = offset_of
        self._waiting: deque[tuple[int, RawRecord]] = deque()

    async def head(self) -> int | None:
        """The offset that the next one is about; None at the end."""
        while not self._waiting:
            batch = await anext(self._fetched, None)
            if batch is None:
                return None
            for record in batch.records:
                offset = self._offset_of(record)
                if offset is not None:
                    self._waiting.append((offset, record))
        return self._waiting[0][0]

    def pop(self) -> RawRecord:
        """Take the next one."""
        return self._waiting.popleft()[1]


async def _merged(raw: _Stream, committed: _Stream, quarantined: _Stream) -> AsyncIterator[Part]:
    """The three streams as one, by offset."""
    part, last = Part(), -1
    streams = (raw, committed, quarantined)
    while True:
        heads = [await stream.head() for stream in streams]
        if all(head is None for head in heads):
            break
        for stream, head in zip(streams[1:], heads[1:], strict=True):
            if head is not None and head <= last:
                part.repeats.append((head, _found(stream.pop()).event))
                break
        else:
            last = min(head for head in heads if head is not None)
            taken = [
                s.pop() if head == last else None for s, head in zip(streams, heads, strict=True)
            ]
            part.records.append(_lost(last, taken))
            part.size_bytes += sum(size_of(one) for one in taken if one is not None)
        if part.full:
            yield part
            part = Part()
    yield part


def _lost(offset: int, taken: Sequence[RawRecord | None]) -> LostRecord:
    raw, committed, quarantined = taken
    return LostRecord(
        offset,
        raw,
        None if committed is None else _found(committed),
        None if quarantined is None else _found(quarantined),
    )


def _found(record: RawRecord) -> EventFound:
    at = EPOCH + timedelta(milliseconds=record.timestamp)
    return EventFound(Event(record.key or b"", record.value, tuple(record.headers)), at)
