"""KafkaEmitter: step 4, a batch's events and the group's offset in one Kafka transaction.

One producer per partition, with a transactional id of its own, so that the next owner's start
fences this one. Events go to the output partition with the number of their source partition.
aiokafka's commit succeeds even when a produce in it failed: every produce result is awaited and
checked before the offset joins the transaction.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from enum import Enum
from typing import Self

import structlog
from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka import errors as kafka
from aiokafka.structs import OffsetAndMetadata, RecordMetadata

from connectors.errors import (
    BrokerUnavailable,
    ConfigurationError,
    InfrastructureError,
    Stop,
    WeighbridgeError,
    invariant,
)
from connectors.kafka.admin import KafkaAdmin
from connectors.kafka.faults import bounded
from connectors.kafka.producer import STATE_ERRORS, death_of, end, look_at
from connectors.kafka.settings import KafkaSettings
from connectors.ports import EmittedCursor
from schemas.envelope import Source
from schemas.record_type import RecordType
from schemas.verdict import Event

log = structlog.get_logger("weighbridge.emitter")

REFUSED = (
    kafka.MessageSizeTooLargeError,
    kafka.RecordListTooLargeError,
    kafka.InvalidTimestampError,
    kafka.InvalidTopicError,
    kafka.PolicyViolationError,
)
"""Answers to a produce that the same event gets every time."""


EMIT_DEADLINE_FACTOR = 1.0
"""Of the transaction timeout: the coordinator ends the transaction then anyway."""


class State(Enum):
    """An emitter's life; it has no way back."""

    NEW = "new"
    READY = "ready"
    EMITTING = "emitting"
    BROKEN = "broken"
    CLOSED = "closed"


LEGAL_MOVES: dict[State, frozenset[State]] = {
    State.NEW: frozenset({State.READY, State.CLOSED}),
    State.READY: frozenset({State.EMITTING, State.CLOSED}),
    State.EMITTING: frozenset({State.READY, State.BROKEN, State.CLOSED}),
    State.BROKEN: frozenset({State.CLOSED}),
    State.CLOSED: frozenset(),
}


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
        self._producer: AIOKafkaProducer | None = None
        self._state = State.NEW

    @property
    def transactional_id(self) -> str:
        """The id by which the next owner fences this one."""
        return f"weighbridge/{self._source.topic}/{self._source.partition}/{self._settings.group}"

    def _move(self, state: State) -> None:
        legal = state in LEGAL_MOVES[self._state]
        invariant(legal, f"{self.transactional_id}: {self._state.value} -> {state.value}")
        self._state = state

    # -- (a) ---------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Step (a): InitProducerId, which fences the former owner and ends its open transaction.

        Raises `BrokerUnavailable` (retryable), `Stop` when an output topic lacks this partition,
        `ConfigurationError` when the brokers do not allow it.
        """
        fresh = self._state is State.NEW and self._producer is None
        invariant(fresh, f"{self.transactional_id} is started once")
        await self._check_partitions()
        self._producer = AIOKafkaProducer(
            **self._settings.client_options(),
            transactional_id=self.transactional_id,
            transaction_timeout_ms=self._settings.transaction_timeout_ms,
            acks="all",
            compression_type=self._settings.compression,
            max_batch_size=await self._batch_bytes_max(),
            retry_backoff_ms=self._settings.emit_retry_backoff_ms,
        )
        async with bounded(f"{self.transactional_id}: starting", self._settings.call_deadline_s):
            await self._producer.start()
        self._move(State.READY)

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

    async def _batch_bytes_max(self) -> int:
        """The largest record batch that both output topics take, as far as we may know it."""
        limits = await self._limits()
        return min([self._settings.produce_batch_bytes_max, *limits.values()])

    async def _limits(self) -> dict[str, int]:
        topics = [self._committed_topic, self._quarantine_topic]
        try:
            configs = await self._admin.topic_configs(topics)
        except ConfigurationError:
            return {}  # describing settings needs a right that producing does not
        return {topic: int(config["max.message.bytes"]) for topic, config in configs.items()}

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
        """Step 4: see `connectors.ports.Emitter.emit`.

        After any error, cancellation included, what could be aborted is, and this emitter can only
        be closed. The outcome is unknown if the commit was under way: E tells.
        """
        invariant(self._state is State.READY, f"{self.transactional_id} is {self._state.value}")
        self._move(State.EMITTING)
        try:
            await self._transact(committed, quarantined, cursor)
        except BaseException:
            self._move(State.BROKEN)
            await self._abort()
            raise
        self._move(State.READY)

    async def _transact(
        self, committed: Sequence[Event], quarantined: Sequence[Event], cursor: EmittedCursor
    ) -> None:
        producer, what = self._started(), f"{self.transactional_id}: emitting"
        deadline_s = EMIT_DEADLINE_FACTOR * self._settings.transaction_timeout_ms / 1000
        try:
            async with bounded(what, deadline_s):
                await producer.begin_transaction()
                await self._produce(producer, committed, quarantined)
                place = TopicPartition(self._source.topic, self._source.partition)
                offset = OffsetAndMetadata(cursor.next_offset, cursor.metadata)
                await producer.send_offsets_to_transaction({place: offset}, self._settings.group)
                await producer.commit_transaction()
        except STATE_ERRORS as error:
            raise death_of(producer, what, error) from None

    def _started(self) -> AIOKafkaProducer:
        if self._producer is None:
            message = f"{self.transactional_id} was not started"
            raise BrokerUnavailable(message)
        return self._producer

    async def _produce(
        self,
        producer: AIOKafkaProducer,
        committed: Sequence[Event],
        quarantined: Sequence[Event],
    ) -> None:
        """Send all events; return once every one of them is acknowledged by all replicas."""
        sent: list[_Sent] = []
        await self._send(producer, self._committed_topic, committed, sent)
        await self._send(producer, self._quarantine_topic, quarantined, sent)
        results = await asyncio.gather(*(one.answer for one in sent), return_exceptions=True)
        for one, result in zip(sent, results, strict=True):
            await self._check(one, result)

    async def _send(
        self,
        producer: AIOKafkaProducer,
        topic: str,
        events: Sequence[Event],
        sent: list[_Sent],
    ) -> None:
        """Fill record batches and queue them. aiokafka holds the next until the one before left."""
        timestamp = int(time.time() * 1000)  # the event's own time: that of its emission
        at = 0
        while at < len(events):
            batch, first = producer.create_batch(), at
            while at < len(events) and batch.append(
                key=events[at].key,
                value=events[at].value,
                timestamp=timestamp,
                headers=list(events[at].headers),
            ):
                at += 1
            size = batch.size()
            answer = await producer.send_batch(batch, topic, partition=self._source.partition)
            answer.add_done_callback(look_at)
            sent.append(_Sent(topic, at - first, size, answer))

    async def _check(self, one: _Sent, result: object) -> None:
        """Raise what went wrong with a produce; only a place in the log is an acknowledgement."""
        if isinstance(result, REFUSED):
            limit = await self._limit_of(one.topic)
            message = (
                f"{self._source}: topic {one.topic} refused {one.events} event(s) of together "
                f"{one.size_bytes} bytes before compression ({type(result).__name__}); its "
                f"max.message.bytes is {limit}. Raise it: `weighbridge topics verify` says to what"
            )
            raise Stop(message)
        if isinstance(result, BaseException):
            raise result
        acknowledged = isinstance(result, RecordMetadata)
        invariant(acknowledged, f"{one.topic}: a produce was answered by nothing")

    async def _limit_of(self, topic: str) -> str:
        try:
            return str((await self._limits()).get(topic, "unknown"))
        except InfrastructureError:
            return "unknown"

    # -- end ---------------------------------------------------------------------------------------

    async def _abort(self) -> None:
        """Abort what is open, so that no reader waits for it. Fails quietly: closing follows."""
        if self._producer is None:
            return
        try:
            async with bounded("aborting", self._settings.close_deadline_s):
                await self._producer.abort_transaction()
        except (WeighbridgeError, *STATE_ERRORS) as error:
            log.info("not_aborted", id=self.transactional_id, error=type(error).__name__)

    async def close(self) -> None:
        """Abort what is open and release the connection, within a few seconds. Never raises."""
        if self._state is State.CLOSED:
            return
        was, self._state = self._state, State.CLOSED
        if self._producer is None:
            return
        if was is State.EMITTING:
            await self._abort()
        await end(self._producer, self._settings.close_deadline_s)


class _Sent:
    """A record batch on its way."""

    __slots__ = ("answer", "events", "size_bytes", "topic")

    def __init__(
        self, topic: str, events: int, size_bytes: int, answer: asyncio.Future[RecordMetadata]
    ) -> None:
        self.topic = topic
        self.events = events
        self.size_bytes = size_bytes
        self.answer = answer


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
