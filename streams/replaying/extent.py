"""From what is wanted to what it is in the log now: [first, end) of each partition, fixed."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass

from connectors.errors import ConfigurationError, PartitionStop, Stop
from connectors.kafka.range_reader import RangeReader, aged_out
from connectors.ports import LogRange
from streams.replaying.asked import Filters, Kind, Wanted

TAKE_WHAT_IS_THERE = "--available takes what is there"


@dataclass(frozen=True, slots=True)
class Span:
    """What is read of one partition."""

    partition: int
    first: int
    end: int
    """The offset after the last that may be read."""
    missing: str | None = None
    """Why the file will lack something that was wanted; None when it lacks nothing."""
    remark: str | None = None
    """What else its reader should know."""


@dataclass(frozen=True, slots=True)
class Extent:
    """What is read of a topic."""

    kind: Kind
    topic: str
    topic_id: uuid.UUID
    spans: tuple[Span, ...]
    filters: Filters

    @property
    def offsets(self) -> int:
        """How many offsets it spans; records are fewer."""
        return sum(span.end - span.first for span in self.spans)

    def __str__(self) -> str:
        spans = ",".join(f"{s.partition}:{s.first}-{s.end}" for s in self.spans)
        return f"{self.topic} {spans}"


async def fix_extent(reader: RangeReader, wanted: Wanted) -> Extent:
    """Look up what is wanted. Raises `Stop` when its start has aged out (unless what is available
    will do) or the topic is another one, `ConfigurationError` for partitions there are not."""
    if wanted.topic_id not in {None, reader.topic_id}:
        message = (
            f"topic {reader.topic} is not the one of the manifest: its id is {reader.topic_id} and "
            f"was {wanted.topic_id}; it was deleted and created again"
        )
        raise Stop(message)
    there = await reader.partitions()
    chosen = sorted(there if wanted.partitions is None else wanted.partitions)
    if unknown := sorted(set(chosen) - set(there)):
        message = f"topic {reader.topic} has no partition {unknown[0]}; it has {len(there)}"
        raise ConfigurationError(message)
    since_us = wanted.filters.since_us
    by_time: Mapping[int, int | None] = {}
    if since_us is not None:
        by_time = await reader.first_since(chosen, -(-since_us // 1000))
    spans = []
    for partition in chosen:
        held = await reader.log_range(partition)
        first = _first(reader.topic, partition, wanted, held, by_time)
        spans.append(_span(partition, wanted, held, first))
    return Extent(wanted.kind, reader.topic, reader.topic_id, tuple(spans), wanted.filters)


def _first(
    topic: str, partition: int, wanted: Wanted, held: LogRange, by_time: Mapping[int, int | None]
) -> int:
    """Where reading begins. Times that may have aged out count as aged out: nobody can tell."""
    named, place = wanted.first.get(partition), (topic, partition)
    if named is not None:
        if named < held.start_offset and not wanted.available:
            why = f"{aged_out(named, held.start_offset)}; {TAKE_WHAT_IS_THERE}"
            raise PartitionStop(place, why)
        return max(named, held.start_offset)
    if wanted.filters.since_us is None:
        return held.start_offset
    found = by_time.get(partition)
    at = held.last_stable_offset if found is None else max(found, held.start_offset)
    if 0 < at == held.start_offset and not wanted.available:
        why = (
            f"the log begins at offset {at}, with a record not older than --since: some of that "
            f"time may have aged out or been deleted; {TAKE_WHAT_IS_THERE}"
        )
        raise PartitionStop(place, why)
    return at


def _span(partition: int, wanted: Wanted, held: LogRange, first: int) -> Span:
    """Where reading ends, and what keeps it from going on."""
    stable, named = held.last_stable_offset, wanted.end.get(partition)
    begin = wanted.first.get(partition, 0)
    if named is not None and named < begin:
        message = f"partition {partition}: --to lies before --from"
        raise ConfigurationError(message)
    end = stable if named is None else min(named, stable)
    end = max(end, held.start_offset)  # all of it may have aged out
    first = min(first, end)
    held_back = f"an open transaction holds back offsets from {stable} to {held.end_offset}"
    if named is not None and named > stable:
        why = held_back if stable < held.end_offset else f"the log ends at {stable}"
        return Span(partition, first, end, missing=f"offsets up to {named} are wanted; {why}")
    if begin > stable:
        why = f"offset {begin} is wanted; the log ends at {stable}"
        return Span(partition, first, end, missing=why)
    if stable < held.end_offset and named is None:
        if wanted.filters.until_us is not None:
            return Span(partition, first, end, missing=held_back)
        return Span(partition, first, end, remark=held_back)
    return Span(partition, first, end)
