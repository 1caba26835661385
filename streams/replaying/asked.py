"""What is wanted of a topic: a range and filters, as said on the command line or in a manifest."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Literal

from connectors.errors import ConfigurationError
from schemas.envelope import RawRecord
from schemas.exact import EPOCH, instant_of, instant_text, micros
from schemas.record_type import RecordType

Kind = Literal["raw", "committed", "quarantine"]


def topic_of(record_type: RecordType, kind: Kind) -> str:
    """The topic's name, without a deployment's prefix."""
    return {
        "raw": record_type.raw_topic,
        "committed": record_type.committed_topic,
        "quarantine": record_type.quarantine_topic,
    }[kind]


@dataclass(frozen=True, slots=True)
class Filters:
    """What a record within the range must be; all that are given apply."""

    since_us: int | None = None
    until_us: int | None = None
    """Record timestamps in [since, until), microseconds since 1970."""
    run: str | None = None
    key: str | None = None
    """Message key or idempotency key."""

    @property
    def timed(self) -> bool:
        """Whether times matter."""
        return self.since_us is not None or self.until_us is not None

    def in_time(self, record: RawRecord) -> bool:
        """Whether a record's timestamp lies within; one without never does."""
        if not self.timed:
            return True
        at_us = record.timestamp * 1000
        return (
            record.timestamp >= 0
            and (self.since_us is None or at_us >= self.since_us)
            and (self.until_us is None or at_us < self.until_us)
        )


@dataclass(frozen=True, slots=True)
class Wanted:
    """A range of one topic, before anybody has looked whether it is there."""

    kind: Kind
    filters: Filters = field(default_factory=Filters)
    partitions: frozenset[int] | None = None
    """None: all of them."""
    first: Mapping[int, int] = field(default_factory=dict)
    """Partition to the first offset; where none is named, the log's own, or by time."""
    end: Mapping[int, int] = field(default_factory=dict)
    """Partition to the offset after the last; where none is named, the last stable one."""
    available: bool = False
    """Whether to take what is there when the wanted start is not."""
    topic_id: uuid.UUID | None = None
    """The topic that must be meant; None for whichever has the name."""


def offsets(texts: Sequence[str], option: str, partitions: Sequence[int]) -> dict[int, int]:
    """`P:OFFSET` texts, or one offset for the one partition. Raises `ConfigurationError`."""
    found: dict[int, int] = {}
    for text in texts:
        head, colon, tail = text.rpartition(":")
        if not colon and len(partitions) != 1:
            message = f"{option} {text}: say PARTITION:OFFSET, or name one --partition"
            raise ConfigurationError(message)
        partition = str(partitions[0]) if not colon else head
        if not (_number(partition) and _number(tail)):
            message = f"{option} {text}: not PARTITION:OFFSET"
            raise ConfigurationError(message)
        if int(partition) in found:
            message = f"{option}: partition {partition} is named twice"
            raise ConfigurationError(message)
        found[int(partition)] = int(tail)
    return found


def _number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 20  # noqa: PLR2004 - offsets have 64 bits


def meant_partitions(
    named: Sequence[int], first: Iterable[int], end: Iterable[int]
) -> frozenset[int] | None:
    """The partitions that are meant: those named, else those of named offsets, else all.

    Raises `ConfigurationError` for offsets of a partition that is not among those named.
    """
    by_offset = frozenset(first) | frozenset(end)
    if not named:
        return by_offset or None
    if not by_offset <= frozenset(named):
        message = "--from and --to name a partition that --partition does not"
        raise ConfigurationError(message)
    return frozenset(named)


def instant_us(text: str, option: str) -> int:
    """An RFC 3339 time with an offset. Raises `ConfigurationError`."""
    try:
        return micros(instant_of(text))
    except ValueError as error:
        message = f"{option} {text}: {error}, such as 2026-11-01T00:00:00Z"
        raise ConfigurationError(message) from None


def text_of_instant(at_us: int | None) -> str | None:
    """The reverse."""
    at: datetime | None = None if at_us is None else EPOCH + timedelta(microseconds=at_us)
    return None if at is None else instant_text(at)
