"""Sending rejects again: records and "sent up to here" in one Kafka transaction.

One transactional id and one group per deployment. The group never reads; its committed offset, kept
for partition 0 of each raw topic, is the number of the last act that was sent, so a record and the
knowledge that it was sent are one. Whoever starts fences whoever sent before: two people cannot
send at once, and what a killed one left open is aborted.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any, Self

from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.structs import OffsetAndMetadata, RecordMetadata

from connectors.errors import BrokerUnavailable, Stop, WeighbridgeError, invariant
from connectors.kafka.admin import KafkaAdmin
from connectors.kafka.faults import bounded
from connectors.kafka.producer import STATE_ERRORS, death_of, end, look_at
from connectors.kafka.settings import KafkaSettings
from connectors.kafka.transaction import REFUSED
from schemas.resubmission import MARK_DIGEST_BYTES, Outgoing, SentMark

PARTITIONS_MAX = 100
"""Partitions of one transaction: each is named beside the offset, whose text brokers bound at 4096
bytes (offset.metadata.max.bytes)."""
KEPT_FOR_PARTITION = 0
"""The partition whose committed offset stands for the topic."""


class KafkaResubmitter:
    """A context manager; entering it fences whoever sent for this deployment before.

    Entering raises `BrokerUnavailable`, `ConfigurationError`.
    """

    def __init__(self, settings: KafkaSettings, admin: KafkaAdmin, deployment: str) -> None:
        self._settings = settings
        self._admin = admin
        self.transactional_id = f"weighbridge-resubmit/{deployment}"
        """Also the name of the group."""
        self._producer: AIOKafkaProducer | None = None

    async def __aenter__(self) -> Self:
        producer = AIOKafkaProducer(
            **self._settings.client_options(),
            transactional_id=self.transactional_id,
            transaction_timeout_ms=self._settings.transaction_timeout_ms,
            acks="all",
            compression_type=self._settings.compression,
            max_batch_size=self._settings.produce_batch_bytes_max,
            retry_backoff_ms=self._settings.emit_retry_backoff_ms,
        )
        try:
            what = f"{self.transactional_id}: starting"
            async with bounded(what, self._settings.call_deadline_s):
                await producer.start()
        except BaseException:
            await end(producer, self._settings.close_deadline_s)
            raise
        self._producer = producer
        return self

    async def __aexit__(self, *_: object) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            await end(producer, self._settings.close_deadline_s)

    async def sent(self, topic: str) -> SentMark | None:
        """What the last transaction of this topic sent; None when Kafka knows of none, which is
        also so a while after the last one (offsets.retention.minutes).

        Raises `BrokerUnavailable`, and `Stop` when somebody else has moved the offset.
        """
        found = await self._admin.committed(self.transactional_id, topic, KEPT_FOR_PARTITION)
        if found is None:
            return None
        mark = SentMark.parse(found.metadata)
        if mark is None or mark.last != found.next_offset:
            message = (
                f"group {self.transactional_id}: its offset for {topic}/{KEPT_FOR_PARTITION} "
                "was moved by somebody else, so it is not known what was sent"
            )
            raise Stop(message)
        return mark

    async def send(self, topic: str, waiting: Sequence[Outgoing]) -> SentMark:
        """Send the first of these, as many as one transaction takes, and say which those were.

        Atomic: all of them stand in the log and are known to, or none. Raises `Fenced` when another
        has started since, `BrokerUnavailable` (when the commit's answer was lost the outcome is
        unknown: `sent` tells), `Stop` when the topic refuses a record. Afterwards it is of no use.
        """
        producer, what = self._started(), f"{topic}: sending again"
        deadline_s = self._settings.transaction_timeout_ms / 1000
        try:
            async with bounded(what, deadline_s):
                await producer.begin_transaction()
                mark = await self._transact(producer, topic, waiting)
                await producer.commit_transaction()
        except STATE_ERRORS as error:
            await self._abort(producer)
            raise death_of(producer, what, error) from None
        except BaseException:
            await self._abort(producer)
            raise
        return mark

    def _started(self) -> AIOKafkaProducer:
        if self._producer is None:
            message = f"{self.transactional_id}: not connected"
            raise BrokerUnavailable(message)
        return self._producer

    async def _transact(
        self, producer: AIOKafkaProducer, topic: str, waiting: Sequence[Outgoing]
    ) -> SentMark:
        batches, taken = _fill(producer, waiting)
        answers: list[asyncio.Future[RecordMetadata]] = []
        for partition, batch in batches.items():
            answers.append(await producer.send_batch(batch, topic, partition=partition))
            answers[-1].add_done_callback(look_at)
        results = await asyncio.gather(*answers, return_exceptions=True)
        bases = tuple(_base_offset(topic, one) for one in results)
        last = waiting[taken - 1]
        mark = SentMark(
            waiting[0].number,
            last.number,
            last.digest[:MARK_DIGEST_BYTES],
            tuple(zip(batches, bases, strict=True)),
        )
        place = TopicPartition(topic, KEPT_FOR_PARTITION)
        offset = OffsetAndMetadata(mark.last, mark.text())
        await producer.send_offsets_to_transaction({place: offset}, self.transactional_id)
        return mark

    async def _abort(self, producer: AIOKafkaProducer) -> None:
        """Abort what is open, so that no worker waits for it. Fails quietly: the end follows."""
        try:
            async with bounded("aborting", self._settings.close_deadline_s):
                await producer.abort_transaction()
        except (WeighbridgeError, *STATE_ERRORS):
            return


def _fill(producer: AIOKafkaProducer, waiting: Sequence[Outgoing]) -> tuple[dict[int, Any], int]:
    """One record batch per partition, so that its records stand one after the other; and how many
    records they took, from the beginning, before one of them was full."""
    batches: dict[int, Any] = {}
    timestamp = int(time.time() * 1000)
    for taken, one in enumerate(waiting):
        if one.partition not in batches:
            if len(batches) == PARTITIONS_MAX:
                return batches, taken
            batches[one.partition] = producer.create_batch()
        appended = batches[one.partition].append(
            key=one.key, value=one.value, timestamp=timestamp, headers=list(one.headers)
        )
        if appended is None:
            invariant(taken > 0, "the first record of a batch always fits")
            return batches, taken
    return batches, len(waiting)


def _base_offset(topic: str, result: object) -> int:
    """Where a record batch begins in the log; only a place is an acknowledgement."""
    if isinstance(result, REFUSED):
        message = (
            f"topic {topic} refused a record that is sent again ({type(result).__name__}); raise "
            "its max.message.bytes: `weighbridge topics verify` says to what"
        )
        raise Stop(message)
    if isinstance(result, BaseException):
        raise result
    if not isinstance(result, RecordMetadata) or result.offset < 0:
        message = f"{topic}: a produce was answered without its place"
        raise BrokerUnavailable(message)
    return int(result.offset)
