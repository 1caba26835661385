"""Sending many plain records to one topic: batched, acknowledged, within bounded memory.

For publishers. Idempotent (KIP-98): aiokafka's own retries write a record once. Records with equal
keys keep their order. aiokafka's `send` costs about ten microseconds and a future per record;
record batches built here cost one.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Self

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError, KafkaTimeoutError
from aiokafka.partitioner import murmur2
from aiokafka.structs import RecordMetadata

from connectors.errors import BrokerUnavailable, WeighbridgeError, invariant
from connectors.kafka.faults import bounded, translated
from connectors.kafka.producer import end
from connectors.kafka.settings import KafkaSettings
from schemas.envelope import Headers

BATCH_BYTES = 256 * 1024
IN_FLIGHT_BYTES_MAX = 8 * 1024 * 1024
STALLED_S = 60.0
"""Without any acknowledgement for this long a publication gives up; it can be repeated."""
RECORD_OVERHEAD_BYTES = 128
"""Upper bound of Kafka's framing of one record that is alone in its batch."""
KEYLESS_RUN = 500
"""Records without a key go to one partition this many at a time: full batches, all partitions."""


@dataclass(slots=True)
class Load:
    """One record batch on its way."""

    first_mark: int
    """The mark of its first record."""
    records: int = 0
    flagged: int = 0
    """How many of them were put with a flag."""
    size_bytes: int = 0
    builder: Any = field(default=None, repr=False)


@lru_cache(maxsize=100_000)
def partition_of(key: bytes, partitions: int) -> int:
    """Where Kafka's own Java client puts a key, so that all publishers agree."""
    return int(murmur2(key) & 0x7FFFFFFF) % partitions


class Outbox:
    """Sends to one topic, as a context manager; leaving it does not wait for acknowledgements."""

    def __init__(
        self,
        settings: KafkaSettings,
        topic: str,
        *,
        partitions: int,
        record_bytes_max: int,
        on_acknowledged: Callable[[Load], None],
    ) -> None:
        self._settings = settings
        self._topic = topic
        self._partitions = partitions
        self._record_bytes_max = record_bytes_max
        self._on_acknowledged = on_acknowledged
        self._producer: AIOKafkaProducer | None = None
        self._filling: dict[int, Load] = {}
        self._under_way: dict[int, Load] = {}
        self._keyless = 0
        self._failure: WeighbridgeError | None = None
        self._answered = asyncio.Event()
        self._answered_at_s = 0.0

    async def __aenter__(self) -> Self:
        producer = AIOKafkaProducer(
            **self._settings.client_options(),
            enable_idempotence=True,
            acks="all",
            compression_type=self._settings.compression,
            max_batch_size=min(BATCH_BYTES, self._record_bytes_max),
        )
        try:
            async with bounded(f"{self._topic}: connecting", self._settings.call_deadline_s):
                await producer.start()
        except BaseException:
            await end(producer, self._settings.close_deadline_s)
            raise
        self._producer = producer
        self._answered_at_s = time.monotonic()
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._producer is not None:
            await end(self._producer, self._settings.close_deadline_s)

    # -- putting -----------------------------------------------------------------------------------

    async def put(
        self,
        key: bytes | None,
        value: bytes,
        headers: Headers,
        *,
        mark: int,
        flagged: bool = False,
    ) -> bool:
        """Take a record; False when it is larger than the topic takes. Marks only grow.

        Waits while too much is under way. Raises what went wrong with records put before:
        `BrokerUnavailable` (the publication may be repeated), `ConfigurationError`.
        """
        size = len(key or b"") + len(value) + sum(len(n) + len(v or b"") for n, v in headers)
        if size + RECORD_OVERHEAD_BYTES > self._record_bytes_max:
            return False
        partition = self._partition(key)
        load = self._filling.get(partition)
        if load is None or not _append(load, key, value, headers):
            if load is not None:
                await self._send(partition)
            load = self._filling[partition] = Load(mark, builder=self._started().create_batch())
            taken = _append(load, key, value, headers)
            invariant(taken, "the first record of a batch always fits")
        load.records += 1
        load.flagged += flagged
        load.size_bytes += len(value)
        return True

    def _partition(self, key: bytes | None) -> int:
        if key is not None:
            return partition_of(key, self._partitions)
        self._keyless += 1
        return self._keyless // KEYLESS_RUN % self._partitions

    def _started(self) -> AIOKafkaProducer:
        if self._producer is None:
            message = f"{self._topic}: not connected"
            raise BrokerUnavailable(message)
        return self._producer

    async def _send(self, partition: int) -> None:
        """Hand a batch to the producer, which keeps one waiting per partition."""
        await self._wait_while(lambda: self._bytes_under_way() > IN_FLIGHT_BYTES_MAX)
        load = self._filling.pop(partition)
        self._under_way[id(load)] = load
        while True:
            try:
                answer = await self._started().send_batch(
                    load.builder, self._topic, partition=partition
                )
            except KafkaTimeoutError:
                self._check()  # the batch was not taken; the broker may come back
            except KafkaError as error:
                what = f"{self._topic}: sending"
                raise translated(what, error) from None
            else:
                load.builder = None
                answer.add_done_callback(lambda done: self._take_answer(load, done))
                # Filling batches never waits otherwise; the producer's tasks need their turn.
                await asyncio.sleep(0)
                return

    def _bytes_under_way(self) -> int:
        return sum(load.size_bytes for load in self._under_way.values())

    def _take_answer(self, load: Load, answer: asyncio.Future[RecordMetadata]) -> None:
        """Only a place in the log is an acknowledgement."""
        self._answered.set()
        if answer.cancelled():
            return
        error = answer.exception()
        if error is not None:
            self._failure = self._failure or translated(f"{self._topic}: sending", error)
        elif isinstance(answer.result(), RecordMetadata):
            self._answered_at_s = time.monotonic()
            del self._under_way[id(load)]
            self._on_acknowledged(load)

    # -- waiting -----------------------------------------------------------------------------------

    async def settle(self) -> None:
        """Send what is left and wait until everything is acknowledged. Raises like `put`."""
        for partition in list(self._filling):
            await self._send(partition)
        await self._wait_while(lambda: bool(self._under_way))
        self._check()

    def unsure_from(self) -> int | None:
        """The first mark that is not known to be acknowledged; None when all are."""
        waiting = (*self._under_way.values(), *self._filling.values())
        return min((load.first_mark for load in waiting), default=None)

    async def _wait_while(self, condition: Callable[[], bool]) -> None:
        while condition():
            self._check()
            self._answered.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(1.0):
                    await self._answered.wait()

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure
        if self._under_way and time.monotonic() - self._answered_at_s > STALLED_S:
            message = f"{self._topic}: no acknowledgement for {STALLED_S:g} s"
            raise BrokerUnavailable(message)


def _append(load: Load, key: bytes | None, value: bytes, headers: Headers) -> bool:
    """Whether the batch has taken the record."""
    taken = load.builder.append(timestamp=None, key=key, value=value, headers=list(headers))
    return taken is not None
