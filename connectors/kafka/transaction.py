"""TransactionalProducer: messages and a group's offset in one Kafka transaction.

What the emitter of a partition and a publication of a file have in common. Starting it fences
whoever used its transactional id before. aiokafka's commit succeeds even when a produce in it
failed: every produce result is awaited and checked before the offset joins the transaction.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

import structlog
from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka import errors as kafka
from aiokafka.structs import OffsetAndMetadata, RecordMetadata

from connectors.errors import (
    BrokerUnavailable,
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
from schemas.envelope import Headers

log = structlog.get_logger("weighbridge.transaction")

REFUSED = (
    kafka.MessageSizeTooLargeError,
    kafka.RecordListTooLargeError,
    kafka.InvalidTimestampError,
    kafka.InvalidTopicError,
    kafka.PolicyViolationError,
)
"""Answers to a produce that the same message gets every time."""
DEADLINE_FACTOR = 1.0
"""Of the transaction timeout: the coordinator ends the transaction then anyway."""


class Message(Protocol):
    """What is sent: `schemas.verdict.Event` has this shape."""

    @property
    def key(self) -> bytes | None:
        """Message key."""

    @property
    def value(self) -> bytes | None:
        """Message value."""

    @property
    def headers(self) -> Headers:
        """Message headers."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """Messages for one partition, in order."""

    topic: str
    partition: int
    messages: Sequence[Message]


class State(Enum):
    """A producer's life; it has no way back."""

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


class TransactionalProducer:
    """One transactional id, from its start to the first failure."""

    def __init__(
        self,
        settings: KafkaSettings,
        admin: KafkaAdmin,
        transactional_id: str,
        *,
        on_behalf_of: str,
        topics: Sequence[str],
    ) -> None:
        """`on_behalf_of` begins the message of a refusal; `topics` are those that it sends to."""
        self.transactional_id = transactional_id
        self._settings = settings
        self._admin = admin
        self._on_behalf_of = on_behalf_of
        self._topics = topics
        self._producer: AIOKafkaProducer | None = None
        self._state = State.NEW

    def _move(self, state: State) -> None:
        legal = state in LEGAL_MOVES[self._state]
        invariant(legal, f"{self.transactional_id}: {self._state.value} -> {state.value}")
        self._state = state

    async def start(self) -> None:
        """InitProducerId: fences the former owner of the id and ends its open transaction.

        Raises `BrokerUnavailable` (retryable), `ConfigurationError` when the brokers do not allow
        it.
        """
        fresh = self._state is State.NEW and self._producer is None
        invariant(fresh, f"{self.transactional_id} is started once")
        limits = await self._admin.message_bytes_max(self._topics)
        self._producer = AIOKafkaProducer(
            **self._settings.client_options(),
            transactional_id=self.transactional_id,
            transaction_timeout_ms=self._settings.transaction_timeout_ms,
            acks="all",
            compression_type=self._settings.compression,
            max_batch_size=min([self._settings.produce_batch_bytes_max, *limits.values()]),
            retry_backoff_ms=self._settings.emit_retry_backoff_ms,
        )
        async with bounded(f"{self.transactional_id}: starting", self._settings.call_deadline_s):
            await self._producer.start()
        self._move(State.READY)

    async def transact(
        self, deliveries: Sequence[Delivery], group: str, place: TopicPartition, to: EmittedCursor
    ) -> None:
        """Send everything and move the group's offset at `place`, together or not at all.

        Raises `Fenced`, `BrokerUnavailable`, or `Stop` when a topic refuses a message. After any
        error, cancellation included, what could be aborted is, and this producer can only be
        closed. The outcome is unknown if the commit was under way: the offset tells. It may be
        closed meanwhile, when its partition stops for another reason.
        """
        ready = self._state is State.READY
        invariant(ready, f"{self.transactional_id} is {self._state.value}")
        self._move(State.EMITTING)
        try:
            await self._transact(deliveries, group, place, to)
        except BaseException:
            if self._state is State.EMITTING:  # closed meanwhile, it has been aborted
                self._move(State.BROKEN)
                await self._abort()
            raise
        if self._state is State.EMITTING:
            self._move(State.READY)

    async def _transact(
        self, deliveries: Sequence[Delivery], group: str, place: TopicPartition, to: EmittedCursor
    ) -> None:
        producer, what = self._started(), f"{self.transactional_id}: emitting"
        deadline_s = DEADLINE_FACTOR * self._settings.transaction_timeout_ms / 1000
        try:
            async with bounded(what, deadline_s):
                await producer.begin_transaction()
                await self._produce(producer, deliveries)
                offset = OffsetAndMetadata(to.next_offset, to.metadata)
                await producer.send_offsets_to_transaction({place: offset}, group)
                await producer.commit_transaction()
        except STATE_ERRORS as error:
            raise death_of(producer, what, error) from None

    def _started(self) -> AIOKafkaProducer:
        if self._producer is None:
            message = f"{self.transactional_id} was not started"
            raise BrokerUnavailable(message)
        return self._producer

    async def _produce(self, producer: AIOKafkaProducer, deliveries: Sequence[Delivery]) -> None:
        """Send all; return once every message is acknowledged by all replicas."""
        sent: list[_Sent] = []
        for one in deliveries:
            await self._send(producer, one, sent)
        results = await asyncio.gather(*(one.answer for one in sent), return_exceptions=True)
        for batch, result in zip(sent, results, strict=True):
            await self._check(batch, result)

    async def _send(
        self, producer: AIOKafkaProducer, delivery: Delivery, sent: list[_Sent]
    ) -> None:
        """Fill record batches and queue them. aiokafka holds the next until the one before left."""
        timestamp = int(time.time() * 1000)  # the message's own time: that of its sending
        messages, at = delivery.messages, 0
        while at < len(messages):
            batch, first = producer.create_batch(), at
            while at < len(messages) and batch.append(
                key=messages[at].key,
                value=messages[at].value,
                timestamp=timestamp,
                headers=list(messages[at].headers),
            ):
                at += 1
            size = batch.size()
            answer = await producer.send_batch(batch, delivery.topic, partition=delivery.partition)
            answer.add_done_callback(look_at)
            sent.append(_Sent(delivery.topic, at - first, size, answer))

    async def _check(self, one: _Sent, result: object) -> None:
        """Raise what went wrong with a produce; only a place in the log is an acknowledgement."""
        if isinstance(result, REFUSED):
            limit = await self._limit_of(one.topic)
            message = (
                f"{self._on_behalf_of}: topic {one.topic} refused {one.messages} event(s) of "
                f"together {one.size_bytes} bytes before compression ({type(result).__name__}); "
                f"its max.message.bytes is {limit}. Raise it: `weighbridge topics verify` says to "
                "what"
            )
            raise Stop(message)
        if isinstance(result, BaseException):
            raise result
        acknowledged = isinstance(result, RecordMetadata)
        invariant(acknowledged, f"{one.topic}: a produce was answered by nothing")

    async def _limit_of(self, topic: str) -> str:
        try:
            return str((await self._admin.message_bytes_max(self._topics)).get(topic, "unknown"))
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

    __slots__ = ("answer", "messages", "size_bytes", "topic")

    def __init__(
        self, topic: str, messages: int, size_bytes: int, answer: asyncio.Future[RecordMetadata]
    ) -> None:
        self.topic = topic
        self.messages = messages
        self.size_bytes = size_bytes
        self.answer = answer
