"""Looking into a topic's log without joining the group: its range, one record, its topic's id.

Used by assignment, step (d), and by commands that must not disturb the workers.
"""

from __future__ import annotations

import asyncio
import uuid
from typing import Self

from aiokafka import AIOKafkaClient, AIOKafkaConsumer, TopicPartition
from aiokafka.errors import (
    KafkaError,
    LeaderNotAvailableError,
    NoError,
    OffsetOutOfRangeError,
    for_code,
)
from aiokafka.protocol.offset import OffsetRequest

from connectors.errors import Stop, invariant
from connectors.kafka.faults import bounded
from connectors.kafka.settings import KafkaSettings
from connectors.kafka.topic_ids import topic_ids
from connectors.ports import LogRange
from schemas.envelope import RawRecord

# Kafka protocol, ListOffsets: isolation levels, and the timestamps that stand for both ends.
_UNCOMMITTED, _COMMITTED = 0, 1
_LATEST, _EARLIEST = -1, -2
_CONSUMER_REPLICA = -1

_RETRY_S = 0.1
_POLL_MS = 200


class KafkaLog:
    """A reader of logs outside any group. Starts on first use.

    Every call raises `BrokerUnavailable` (retryable), `ConfigurationError` (not allowed) or `Stop`
    (there is no such topic), within `call_deadline_s`.
    """

    def __init__(self, settings: KafkaSettings) -> None:
        self._settings = settings
        self._client: AIOKafkaClient | None = None
        self._consumer: AIOKafkaConsumer | None = None
        self._client_lock = asyncio.Lock()
        # aiokafka's `assign` replaces what is assigned: one record is looked up at a time.
        self._consumer_lock = asyncio.Lock()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Release both connections; the next call opens others."""
        client, self._client = self._client, None
        consumer, self._consumer = self._consumer, None
        if client is not None:
            await client.close()
        if consumer is not None:
            await consumer.stop()

    # -- topic -------------------------------------------------------------------------------------

    async def topic_id(self, topic: str) -> uuid.UUID:
        """The id Kafka gave the topic when it was created. Raises `Stop` when there is none."""
        async with bounded(f"{topic}: topic id", self._settings.call_deadline_s):
            found = (await topic_ids(await self._connected(), [topic]))[topic]
        if found is None:
            message = (
                f"topic {topic} does not exist: it was deleted, or never created. `weighbridge "
                "topics create` makes it; what a deleted topic held and was not decided is lost"
            )
            raise Stop(message)
        return found

    # -- range -------------------------------------------------------------------------------------

    async def log_range(self, topic: str, partition: int) -> LogRange:
        """Where the partition's log begins and ends now."""
        await self.topic_id(topic)
        place = TopicPartition(topic, partition)
        async with bounded(f"{topic}/{partition}: log range", self._settings.call_deadline_s):
            return LogRange(
                start_offset=await self._offset(place, _COMMITTED, _EARLIEST),
                last_stable_offset=await self._offset(place, _COMMITTED, _LATEST),
                end_offset=await self._offset(place, _UNCOMMITTED, _LATEST),
            )

    async def _offset(self, place: TopicPartition, isolation: int, end: int) -> int:
        """One end of the log, asked of the partition's leader until it answers."""
        client = await self._connected()
        while True:
            try:
                return await self._ask_leader(client, place, isolation, end)
            except KafkaError as error:
                if not error.retriable:
                    raise
                await client.force_metadata_update()
                await asyncio.sleep(_RETRY_S)

    async def _ask_leader(
        self, client: AIOKafkaClient, place: TopicPartition, isolation: int, end: int
    ) -> int:
        await client.add_topic(place.topic)
        leader = client.cluster.leader_for_partition(place)
        if leader is None or leader < 0:
            raise LeaderNotAvailableError
        request = OffsetRequest(
            _CONSUMER_REPLICA, isolation, [(place.topic, [(place.partition, end)])]
        )
        response = await client.send(leader, request)
        ((_, ((_, error_code, _, offset),)),) = response.topics
        if error_code != NoError.errno:
            raise for_code(error_code)
        return int(offset)

    async def _connected(self) -> AIOKafkaClient:
        async with self._client_lock:
            if self._client is None:
                client = AIOKafkaClient(**self._settings.client_options())
                try:
                    await client.bootstrap()
                except BaseException:
                    await client.close()
                    raise
                self._client = client
            return self._client

    # -- one record --------------------------------------------------------------------------------

    async def read_record(self, topic: str, partition: int, offset: int) -> RawRecord | None:
        """The record at exactly this offset, None if there is none (aged out, marker, no such)."""
        held = await self.log_range(topic, partition)
        if not held.start_offset <= offset < held.end_offset:
            return None
        place = TopicPartition(topic, partition)
        what = f"{topic}/{partition}: record at offset {offset}"
        async with self._consumer_lock, bounded(what, self._settings.call_deadline_s):
            consumer = await self._reading()
            consumer.assign([place])
            consumer.seek(place, offset)
            try:
                return await _first_from(consumer, place, offset)
            except OffsetOutOfRangeError:
                return None  # aged out since the range was asked
            finally:
                # Nothing is prefetched between look-ups.
                consumer.pause(place)

    async def _reading(self) -> AIOKafkaConsumer:
        if self._consumer is None:
            consumer = AIOKafkaConsumer(
                **self._settings.client_options(),
                enable_auto_commit=False,
                auto_offset_reset="none",
                # A record is itself whether or not its transaction was aborted, and an open
                # transaction further on must not hide it.
                isolation_level="read_uncommitted",
                max_partition_fetch_bytes=self._settings.fetch_partition_bytes_max,
            )
            try:
                await consumer.start()
            except BaseException:
                await consumer.stop()
                raise
            self._consumer = consumer
        return self._consumer


async def _first_from(
    consumer: AIOKafkaConsumer, place: TopicPartition, offset: int
) -> RawRecord | None:
    """The record at `offset`, once the consumer has read up to it or past it."""
    while True:
        found = await consumer.getmany(place, timeout_ms=_POLL_MS, max_records=1)
        for record in found.get(place, ()):
            invariant(record.offset >= offset, "Kafka returns records from the offset asked")
            return record if record.offset == offset else None
        if await consumer.position(place) > offset:
            return None
