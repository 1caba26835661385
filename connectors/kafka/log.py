"""Looking into a topic's log without joining the group: its range, one record, its topic's id.

Used by assignment, step (d), and by commands that must not disturb the workers.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Sequence
from typing import Any

from aiokafka import AIOKafkaClient, TopicPartition
from aiokafka.consumer.fetcher import READ_COMMITTED, READ_UNCOMMITTED
from aiokafka.errors import (
    CorruptRecordException,
    KafkaError,
    LeaderNotAvailableError,
    NoError,
    OffsetOutOfRangeError,
    for_code,
)
from aiokafka.protocol.fetch import FetchRequest
from aiokafka.protocol.offset import OffsetRequest

from connectors.errors import Stop
from connectors.kafka.blocked import Blocked, blocked_at
from connectors.kafka.faults import bounded
from connectors.kafka.lazy_client import LazyClient
from connectors.kafka.lenient import decode_fetch
from connectors.kafka.topic_ids import topic_ids
from connectors.ports import LogRange
from schemas.envelope import RawRecord

# Kafka protocol, ListOffsets: the timestamps that stand for both ends of a log.
_LATEST, _EARLIEST = -1, -2
_CONSUMER_REPLICA = -1

_OF_THE_LOG = (OffsetOutOfRangeError, CorruptRecordException)
"""What a read may find; not trouble with the broker."""
_RETRY_S = 0.1
_BACK_FIRST, _BACK_FACTOR = 200, 8
"""How far back the last record is looked for at first, and how much farther each time."""


class KafkaLog(LazyClient[AIOKafkaClient]):
    """A reader of logs outside any group. Starts on first use.

    Every call raises `BrokerUnavailable` (retryable), `ConfigurationError` (not allowed) or `Stop`
    (there is no such topic), within `call_deadline_s`.
    """

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
                start_offset=await self._offset(place, READ_COMMITTED, _EARLIEST),
                last_stable_offset=await self._offset(place, READ_COMMITTED, _LATEST),
                end_offset=await self._offset(place, READ_UNCOMMITTED, _LATEST),
            )

    async def _offset(self, place: TopicPartition, isolation: int, end: int) -> int:
        """One end of the log (ListOffsets)."""
        asked = [(place.topic, [(place.partition, end)])]
        request = OffsetRequest(_CONSUMER_REPLICA, isolation, asked)
        response = await self._ask_leader(place, request)
        ((_, ((_, error_code, _, offset),)),) = response.topics
        _check(error_code)
        return int(offset)

    # -- records -----------------------------------------------------------------------------------

    async def read_record(self, topic: str, partition: int, offset: int) -> RawRecord | None:
        """The record at exactly this offset, None if there is none (aged out, marker, no such).

        A record is itself whether or not its transaction was aborted, and an open transaction
        further on must not hide it: read uncommitted.
        """
        held = await self.log_range(topic, partition)
        if not held.start_offset <= offset < held.end_offset:
            return None
        try:
            found, _ = await self._read(topic, partition, offset, 1, READ_UNCOMMITTED)
        except OffsetOutOfRangeError:
            return None  # aged out since the range was asked
        return found[0] if found and found[0].offset == offset else None

    async def read_leniently(
        self, topic: str, partition: int, offset: int, records_max: int
    ) -> tuple[Sequence[RawRecord], int]:
        """Committed records from `offset` on and the position after them; see `lenient`.

        Raises aiokafka's `CorruptRecordException` for what cannot be decoded even so.
        """
        return await self._read(topic, partition, offset, records_max, READ_COMMITTED)

    async def last_committed(self, topic: str, partition: int) -> RawRecord | None:
        """The last record that `read_committed` reaches, None when there is none.

        Goes back in growing steps, past markers and aborted records.
        """
        held = await self.log_range(topic, partition)
        begin, step = held.last_stable_offset, _BACK_FIRST
        while begin > held.start_offset:
            end, begin = begin, max(held.start_offset, begin - step)
            step *= _BACK_FACTOR
            last, at = None, begin
            while at < end:
                found, position = await self.read_leniently(topic, partition, at, _BACK_FIRST)
                last = next((r for r in reversed(found) if r.offset < end), last)
                if position <= at:
                    break
                at = position
            if last is not None:
                return last
        return None

    async def blocked_at(self, topic: str, partition: int, offset: int) -> Blocked:
        """What stands at or after `offset`, as far as it can be told without checking it."""
        _, fetched, _ = await self._fetch(topic, partition, offset, READ_COMMITTED)
        return blocked_at(fetched, offset)

    async def _read(
        self, topic: str, partition: int, offset: int, records_max: int, isolation: int
    ) -> tuple[Sequence[RawRecord], int]:
        place, fetched, aborted = await self._fetch(topic, partition, offset, isolation)
        return decode_fetch(
            place, fetched, aborted, offset, isolation=isolation, records_max=records_max
        )

    async def _fetch(
        self, topic: str, partition: int, offset: int, isolation: int
    ) -> tuple[TopicPartition, bytes, Sequence[Any]]:
        place = TopicPartition(topic, partition)
        bytes_max = self._settings.fetch_partition_bytes_max
        what = f"{topic}/{partition}: reading at offset {offset}"
        async with bounded(what, self._settings.call_deadline_s, passing=_OF_THE_LOG):
            response = await self._ask_leader(
                place,
                FetchRequest(
                    self._settings.fetch_wait_ms_max,
                    1,
                    bytes_max,
                    isolation,
                    [(topic, [(partition, offset, bytes_max)])],
                ),
            )
            ((_, ((_, error_code, _, _, _, aborted, *_, fetched),)),) = response.topics
            _check(error_code)
            return place, fetched, aborted

    # -- asking ------------------------------------------------------------------------------------

    async def _ask_leader(self, place: TopicPartition, request: Any) -> Any:  # noqa: ANN401 - untyped
        """Send to the partition's leader, until one is known and answers."""
        client = await self._connected()
        while True:
            await client.add_topic(place.topic)
            leader = client.cluster.leader_for_partition(place)
            try:
                if leader is None or leader < 0:
                    raise LeaderNotAvailableError
                response = await client.send(leader, request)
                ((_, ((_, error_code, *_),)),) = response.topics
                if not for_code(error_code).retriable:
                    return response
            except KafkaError as error:
                if not error.retriable:
                    raise
            await client.force_metadata_update()
            await asyncio.sleep(_RETRY_S)

    def _make(self) -> AIOKafkaClient:
        return AIOKafkaClient(**self._settings.client_options())

    async def _connect(self, client: AIOKafkaClient) -> None:
        await client.bootstrap()


def _check(error_code: int) -> None:
    """Raise what the broker answered, if it is an error."""
    if error_code != NoError.errno:
        raise for_code(error_code)
