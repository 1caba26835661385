"""What assignment asks of a raw topic's log (step (d)), remembering which topic it looked into."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Sequence

from connectors.errors import Stop
from connectors.kafka import unreadable
from connectors.kafka.admin import KafkaAdmin
from connectors.kafka.log import KafkaLog
from connectors.kafka.membership import Place
from connectors.kafka.settings import KafkaSettings
from connectors.ports import LogRange
from schemas.envelope import RawRecord


class LogAccess:
    """Reads logs outside the group. Every call raises `BrokerUnavailable` (retryable)."""

    def __init__(self, settings: KafkaSettings) -> None:
        self._admin = KafkaAdmin(settings)
        self._log = KafkaLog(settings)
        self._topic_ids: dict[Place, uuid.UUID] = {}

    async def cluster_id(self) -> str:
        """The Kafka cluster's id."""
        return await self._admin.cluster_id()

    async def partitions_of(self, topic: str) -> Sequence[int]:
        """Partition numbers of a topic; none when there is no such topic."""
        return sorted((await self._admin.topics([topic])).get(topic, {}))

    async def log_range(self, topic: str, partition: int) -> LogRange:
        """What the log holds now; remembers which topic it was, for the batches after `seek`.

        Raises `Stop` when there is no such topic.
        """
        self._topic_ids[topic, partition] = await self._log.topic_id(topic)
        return await self._log.log_range(topic, partition)

    async def ends(self, topic: str, partition: int) -> LogRange:
        """What the log holds now, and nothing remembered. Raises like `log_range`."""
        return await self._log.log_range(topic, partition)

    async def last_committed(self, topic: str, partition: int) -> RawRecord | None:
        """The last record that `read_committed` reaches, None when there is none."""
        return await self._log.last_committed(topic, partition)

    async def read_record(self, topic: str, partition: int, offset: int) -> RawRecord | None:
        """The record at exactly this offset, None if there is none. Raises like `log_range`."""
        return await self._log.read_record(topic, partition, offset)

    async def _why_not_same(self, topic: str, looked_into: uuid.UUID | None) -> str | None:
        """None while the topic is the one that was looked into, else what became of it.

        Ids are never used again: the same one later is the same log all the time between.
        """
        if looked_into is None:
            return None
        try:
            now = await self._log.topic_id(topic)
        except Stop as stop:
            return str(stop)
        return None if now == looked_into else unreadable.recreated(topic, looked_into, now)

    def _forget_topics(self, places: Collection[Place]) -> None:
        for place in places:
            self._topic_ids.pop(place, None)
