"""Reading a bounded range of a topic without joining any group: what was committed, and it ends.

The end of each partition is the last stable offset, asked for once; positions move past markers,
aborted records and gaps, so the end is reached though no record stands before it. One partition is
read at a time, by its offsets, so what comes out has one order. Nothing is committed anywhere.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from typing import Any, NoReturn, Self

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka import errors as kafka

from connectors.errors import BrokerUnavailable, PartitionStop, Stop
from connectors.kafka import unreadable
from connectors.kafka.admin import KafkaAdmin
from connectors.kafka.faults import bounded, translated
from connectors.kafka.log import KafkaLog
from connectors.kafka.membership import leave
from connectors.kafka.settings import KafkaSettings
from connectors.ports import Fetched, LogRange
from schemas.envelope import RawRecord

POLL_MS = 200
RECORDS_AT_ONCE = 2_000
"""Most that one fetch hands out at a time; what is made of records is larger than they are."""
LENIENT_RECORDS_MAX = 500
"""How much is decoded the slow way at once, around a header whose name is not UTF-8."""


class RangeReader:
    """Reads ranges of one topic: `async with RangeReader(settings, topic) as reader`.

    Every call raises `BrokerUnavailable` (retryable), `ConfigurationError` (not allowed) or `Stop`
    (no such topic, recreated, aged out, unreadable). None waits for a transaction to end.
    """

    def __init__(self, settings: KafkaSettings, topic: str) -> None:
        self.topic = topic
        self._settings = settings
        self._log = KafkaLog(settings)
        self._topic_id: uuid.UUID | None = None
        self._consumer = AIOKafkaConsumer(
            **settings.client_options(),
            group_id=None,
            enable_auto_commit=False,
            auto_offset_reset="none",
            isolation_level="read_committed",
            max_partition_fetch_bytes=settings.fetch_partition_bytes_max,
            fetch_max_bytes=settings.fetch_bytes_max,
            fetch_max_wait_ms=settings.fetch_wait_ms_max,
        )

    async def __aenter__(self) -> Self:
        # First of all: a consumer that asks for a topic may make it, where brokers allow that.
        try:
            self._topic_id = await self._log.topic_id(self.topic)
            async with bounded(f"connecting to read {self.topic}", self._settings.call_deadline_s):
                await self._consumer.start()
        except BaseException:
            await self._close()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._close()

    async def _close(self) -> None:
        await leave(self._consumer, self._settings.close_deadline_s)
        await self._log.close()

    # -- what there is -----------------------------------------------------------------------------

    @property
    def topic_id(self) -> uuid.UUID:
        """The topic's id when reading began."""
        if self._topic_id is None:
            message = "the reader has not been opened"
            raise ValueError(message)
        return self._topic_id

    async def check_same_topic(self) -> None:
        """Raises `Stop` unless the topic is still the one that reading began with.

        Ids are never used again: the same one now was the same topic all the time between.
        """
        now = await self._log.topic_id(self.topic)
        if now != self.topic_id:
            raise Stop(unreadable.recreated(self.topic, self.topic_id, now))

    async def partitions(self) -> Sequence[int]:
        """The topic's partition numbers."""
        async with KafkaAdmin(self._settings) as admin:
            return sorted((await admin.topics([self.topic])).get(self.topic, {}))

    async def log_range(self, partition: int) -> LogRange:
        """Where a partition's log begins and ends now."""
        return await self._log.log_range(self.topic, partition)

    async def first_since(
        self, partitions: Collection[int], since_ms: int
    ) -> Mapping[int, int | None]:
        """The first offset of each partition whose record is not older; None when there is none.

        Times need not rise with offsets: records after it may be older, none before it is younger.
        """
        asked = {TopicPartition(self.topic, partition): since_ms for partition in partitions}
        async with bounded(f"{self.topic}: offsets by time", self._settings.call_deadline_s):
            found = await self._consumer.offsets_for_times(asked)
        return {
            place.partition: None if at is None or at.offset < 0 else at.offset
            for place, at in found.items()
        }

    # -- reading -----------------------------------------------------------------------------------

    async def read(self, partition: int, first: int, end: int) -> AsyncIterator[Fetched]:
        """The committed records of [first, end) in order, and the positions between which they
        stand. `end` must not lie beyond the last stable offset."""
        place = TopicPartition(self.topic, partition)
        self._consumer.assign([place])
        self._consumer.seek(place, first)
        reached, moved_at_s = first, time.monotonic()
        while reached < end:
            records, position = await self._take(place, reached)
            if position > reached:
                while records and records[-1].offset >= end:
                    records = records[:-1]
                yield Fetched(reached, min(position, end), records)
                reached, moved_at_s = position, time.monotonic()
            elif time.monotonic() - moved_at_s > self._settings.call_deadline_s:
                await self._no_progress(partition, reached)

    async def _take(self, place: TopicPartition, reached: int) -> tuple[Sequence[RawRecord], int]:
        try:
            found: Any = await self._consumer.getmany(
                place, timeout_ms=POLL_MS, max_records=RECORDS_AT_ONCE
            )
            return found.get(place, ()), await self._consumer.position(place)
        except UnicodeDecodeError:
            return await self._take_leniently(place, reached)
        except Exception as error:  # noqa: BLE001 - foreign bytes make aiokafka raise anything
            await self._cannot_read(place.partition, reached, error)

    async def _take_leniently(
        self, place: TopicPartition, reached: int
    ) -> tuple[Sequence[RawRecord], int]:
        """Read past a header's name that is not UTF-8: the record is one like any other."""
        try:
            found = await self._log.read_leniently(
                place.topic, place.partition, reached, LENIENT_RECORDS_MAX
            )
        except (kafka.CorruptRecordException, kafka.OffsetOutOfRangeError) as error:
            await self._cannot_read(place.partition, reached, error)
        self._consumer.seek(place, found[1])
        return found

    async def _cannot_read(self, partition: int, reached: int, error: Exception) -> NoReturn:
        place = (self.topic, partition)
        match error:
            case kafka.OffsetOutOfRangeError():
                await self.check_same_topic()
                held = await self.log_range(partition)
                raise PartitionStop(place, aged_out(reached, held.start_offset)) from None
            case kafka.RecordTooLargeError():
                raise PartitionStop(place, unreadable.too_large(reached)) from None
            case kafka.UnsupportedCodecError():
                raise unreadable.no_codec(self.topic, error) from None
            case _ if isinstance(error, unreadable.OF_SOME_PARTITION):
                raise PartitionStop(place, unreadable.undecodable(reached, error)) from None
            case kafka.KafkaError():
                what = f"{self.topic}/{partition}: reading at offset {reached}"
                raise translated(what, error) from None
            case _:
                raise error

    async def _no_progress(self, partition: int, reached: int) -> NoReturn:
        await self.check_same_topic()
        held = await self.log_range(partition)
        if held.start_offset > reached:
            raise PartitionStop((self.topic, partition), aged_out(reached, held.start_offset))
        message = (
            f"Kafka: {self.topic}/{partition}: nothing came at offset {reached} within "
            f"{self._settings.call_deadline_s:g} s"
        )
        raise BrokerUnavailable(message)


def aged_out(wanted: int, available: int) -> str:
    """A start before the log's own."""
    return (
        f"offset {wanted} is wanted, but the log begins at {available}: what stood before has aged "
        "out or was deleted"
    )
