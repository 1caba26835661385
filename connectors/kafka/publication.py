"""KafkaPublication: the chunks of one publication, each in one Kafka transaction, each once.

Beside its records every transaction commits an offset of a group of the publication's own: how many
chunks are in. Starting fences whoever else publishes the same, which ends a pending transaction one
way or the other, and then the offset says where to go on. So a commit whose answer was lost is
read, never assumed. Nobody consumes in that group; Kafka forgets it when it has been idle for
`offsets.retention.minutes`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from aiokafka import TopicPartition
from aiokafka.partitioner import murmur2

from connectors.kafka.admin import KafkaAdmin
from connectors.kafka.settings import KafkaSettings
from connectors.kafka.transaction import Delivery, TransactionalProducer
from connectors.ports import EmittedCursor

_METADATA = "weighbridge publish: chunks done"
_PLACE_PARTITION = 0
"""The group's offset stands at this partition of the raw topic, wherever the records go."""


@lru_cache(maxsize=100_000)
def partition_of(key: bytes, partitions: int) -> int:
    """Where Kafka's own Java client puts a key, so that all publishers agree."""
    return int(murmur2(key) & 0x7FFFFFFF) % partitions


class KafkaPublication:
    """One publication's producer, from its start to the first failure."""

    def __init__(
        self,
        settings: KafkaSettings,
        admin: KafkaAdmin,
        publication: str,
        raw_topic: str,
        *other_topics: str,
    ) -> None:
        name = f"weighbridge-publish/{publication}"
        self._admin = admin
        self._group = name
        self._place = TopicPartition(raw_topic, _PLACE_PARTITION)
        self._producer = TransactionalProducer(
            settings,
            admin,
            name,
            on_behalf_of=f"publication {publication}",
            topics=[raw_topic, *other_topics],
        )

    async def start(self) -> int | None:
        """Fence any other publisher of this; how many chunks are in, None if Kafka knows none.

        Raises `BrokerUnavailable` (retryable), `ConfigurationError`.
        """
        await self._producer.start()
        found = await self._admin.committed(self._group, self._place.topic, self._place.partition)
        return None if found is None else found.next_offset

    async def send(self, deliveries: Sequence[Delivery], chunks_done: int) -> None:
        """Send a chunk; with it, that so many chunks are in.

        Raises `Fenced`, `BrokerUnavailable`, `Stop` when a topic refuses a record. After any of
        these it can only be closed; another one's `start` tells whether the chunk is in.
        """
        to = EmittedCursor(chunks_done, _METADATA)
        await self._producer.transact(deliveries, self._group, self._place, to)

    async def close(self) -> None:
        """Abort what is open and release the connection, within a few seconds. Never raises."""
        await self._producer.close()
