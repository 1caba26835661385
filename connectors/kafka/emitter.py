"""KafkaEmitter: step 4, a batch's events and the group's offset in one Kafka transaction.

One producer per partition, with a transactional id of its own, so that the next owner's start
fences this one. Events go to the output partition with the number of their source partition.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

from aiokafka import TopicPartition

from connectors.errors import Stop
from connectors.kafka.admin import KafkaAdmin
from connectors.kafka.settings import KafkaSettings
from connectors.kafka.transaction import Delivery, TransactionalProducer
from connectors.ports import EmittedCursor
from schemas.envelope import Source
from schemas.record_type import RecordType
from schemas.verdict import Event


class KafkaEmitter:
    """`connectors.ports.Emitter` on Kafka."""

    def __init__(
        self, settings: KafkaSettings, admin: KafkaAdmin, record_type: RecordType, source: Source
    ) -> None:
        self._settings = settings
        self._admin = admin
        self._source = source
        self._committed_topic = settings.topic(record_type.committed_topic)
        self._quarantine_topic = settings.topic(record_type.quarantine_topic)
        self._producer = TransactionalProducer(
            settings,
            admin,
            f"weighbridge/{source.topic}/{source.partition}/{settings.group}",
            on_behalf_of=str(source),
            topics=[self._committed_topic, self._quarantine_topic],
        )

    @property
    def transactional_id(self) -> str:
        """The id by which the next owner fences this one."""
        return self._producer.transactional_id

    # -- (a) ---------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Step (a): InitProducerId, which fences the former owner and ends its open transaction.

        Raises `BrokerUnavailable` (retryable), `Stop` when an output topic lacks this partition,
        `ConfigurationError` when the brokers do not allow it.
        """
        await self._check_partitions()
        await self._producer.start()

    async def _check_partitions(self) -> None:
        """Without the partition aiokafka's first send waits for it, and then fails unclearly."""
        topics = [self._committed_topic, self._quarantine_topic]
        found = await self._admin.topics(topics)
        for topic in topics:
            if self._source.partition not in found.get(topic, {}):
                message = (
                    f"{self._source}: topic {topic} has no partition {self._source.partition}; it "
                    f"must have as many as {self._source.topic}. `weighbridge topics verify` "
                    "shows both"
                )
                raise Stop(message)

    # -- (c) ---------------------------------------------------------------------------------------

    async def committed(self) -> EmittedCursor | None:
        """The emitted cursor E with its text, None when the group has none.

        To be read after `start` and before `emit`: only then is no transaction of this partition
        pending. Kafka answers a commit before it has applied the offsets. Raises
        `BrokerUnavailable` (retryable).
        """
        topic, partition = self._source.topic, self._source.partition
        return await self._admin.committed(self._settings.group, topic, partition)

    # -- 4 -----------------------------------------------------------------------------------------

    async def emit(
        self,
        committed: Sequence[Event],
        quarantined: Sequence[Event],
        cursor: EmittedCursor,
    ) -> None:
        """Step 4: see `connectors.ports.Emitter.emit`."""
        topic, partition = self._source.topic, self._source.partition
        deliveries = (
            Delivery(self._committed_topic, partition, committed),
            Delivery(self._quarantine_topic, partition, quarantined),
        )
        place = TopicPartition(topic, partition)
        await self._producer.transact(deliveries, self._settings.group, place, cursor)

    async def close(self) -> None:
        """Abort what is open and release the connection, within a few seconds. Never raises."""
        await self._producer.close()


class EmitterFactory:
    """Makes the emitters of one worker; they share an admin client."""

    def __init__(self, settings: KafkaSettings) -> None:
        self._settings = settings
        self._admin = KafkaAdmin(settings)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._admin.close()

    def emitter(self, record_type: RecordType, source: Source) -> KafkaEmitter:
        """An emitter for one partition, not yet started."""
        return KafkaEmitter(self._settings, self._admin, record_type, source)
