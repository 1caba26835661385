"""What the tests of the Kafka connector share: topics of a test's own, and ways around the code."""

from __future__ import annotations

import asyncio
import struct
import time
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRecord, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.record.util import calc_crc32c

from connectors.kafka.settings import KafkaSettings
from connectors.kafka.source import KafkaSource
from connectors.kafka.topics import create_topics
from connectors.ports import Fetched
from schemas.masking import Shown
from schemas.record_type import COMMON_LEDGER_COLUMNS, RecordType

PARTITIONS = 3
Place = tuple[str, int]


def _never(*_: object) -> None:
    """Deciding and emitting are none of the connector's business."""


PAYROLL = RecordType(
    name="payroll",
    folder=Path(),
    raw_schemas=(),
    committed_schemas=(),
    ledger_columns=COMMON_LEDGER_COLUMNS,
    receipts_table=None,
    receipt_columns=(),
    decide=_never,  # type: ignore[arg-type]
    event_of=_never,  # type: ignore[arg-type]
    restore=_never,  # type: ignore[arg-type]
    identify=lambda members: str(members["employee_id"]) if "employee_id" in members else None,
    shown=Shown(frozenset(), message_key=False),
)


def kafka_settings(bootstrap: str, prefix: str, **changes: object) -> KafkaSettings:
    """Settings of a test: topics and group are its own."""
    options: dict[str, object] = {
        "session_timeout_ms": 6_000,
        "call_deadline_s": 10.0,
        "close_deadline_s": 1.0,
        **changes,
    }
    return KafkaSettings(bootstrap, group=f"{prefix}group", topic_prefix=prefix, **options)  # type: ignore[arg-type]


async def make_topics(settings: KafkaSettings, partitions: int = PARTITIONS) -> None:
    """The topics of one record type."""
    await create_topics(settings, [PAYROLL], partitions=partitions, replication=1)
    await _until_led(settings, settings.topic("payroll.raw"), partitions)


async def make_topic(settings: KafkaSettings, name: str, partitions: int, **config: str) -> None:
    """A topic with settings of its own; `max_message_bytes` stands for max.message.bytes."""
    dotted = {key.replace("_", "."): value for key, value in config.items()}
    async with admin(settings) as client:
        await client.create_topics([NewTopic(name, partitions, 1, topic_configs=dotted)])
    await _until_led(settings, name, partitions)


async def delete_topic(settings: KafkaSettings, name: str) -> None:
    """Delete a topic and wait until it is gone."""
    async with admin(settings) as client:
        await client.delete_topics([name])
        for _ in range(200):
            if (await client.describe_topics([name]))[0]["error_code"] != 0:
                return
            await asyncio.sleep(0.05)


async def _until_led(settings: KafkaSettings, name: str, partitions: int) -> None:
    async with admin(settings) as client:
        for _ in range(200):
            (topic,) = await client.describe_topics([name])
            if len(topic["partitions"]) == partitions:
                return
            await asyncio.sleep(0.05)
    message = f"{name} did not come up"
    raise TimeoutError(message)


@asynccontextmanager
async def admin(settings: KafkaSettings) -> AsyncIterator[AIOKafkaAdminClient]:
    """aiokafka's own admin client."""
    client = AIOKafkaAdminClient(bootstrap_servers=settings.bootstrap)
    await client.start()
    try:
        yield client
    finally:
        await client.close()


@asynccontextmanager
async def producer(settings: KafkaSettings, **options: object) -> AsyncIterator[AIOKafkaProducer]:
    """aiokafka's own producer."""
    client = AIOKafkaProducer(bootstrap_servers=settings.bootstrap, **options)
    await client.start()
    try:
        yield client
    finally:
        await client.stop()


async def produce(
    settings: KafkaSettings,
    topic: str,
    partition: int,
    values: Sequence[bytes | None],
    **options: object,
) -> None:
    """Plain records, acknowledged."""
    async with producer(settings, linger_ms=5, **options) as client:
        sent = [await client.send(topic, v, b"k", partition) for v in values]
        await asyncio.gather(*sent)


async def produce_aborted(
    settings: KafkaSettings, topic: str, partition: int, values: Sequence[bytes]
) -> None:
    """Records whose transaction is aborted."""
    async with producer(settings, transactional_id=f"aborted/{topic}/{partition}") as client:
        await client.begin_transaction()
        sent = [await client.send(topic, v, b"k", partition) for v in values]
        await asyncio.gather(*sent)
        await client.abort_transaction()


async def send_broken_header(client: AIOKafkaProducer, topic: str) -> None:
    """Three records in one batch; the second has a header whose name begins with 0xFF."""
    batch = client.create_batch()
    odd_headers = [("QQQQ", b"\xff\x00"), ("plain", None)]
    for value, headers in ((b"before", []), (b"odd", odd_headers), (b"after", [])):
        batch.append(timestamp=5, key=b"k", value=value, headers=headers)
    build = batch._build

    def broken() -> bytearray:
        raw = bytearray(build())
        raw[raw.index(b"QQQQ")] = 0xFF
        struct.pack_into(">I", raw, 17, calc_crc32c(bytes(raw[21:])))
        return raw

    batch._build = broken
    await (await client.send_batch(batch, topic, partition=0))


async def read_all(
    settings: KafkaSettings, topic: str, partition: int, isolation: str = "read_committed"
) -> list[ConsumerRecord]:
    """Everything that can be read of a partition now."""
    place = TopicPartition(topic, partition)
    consumer = AIOKafkaConsumer(
        bootstrap_servers=settings.bootstrap,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        isolation_level=isolation,
    )
    await consumer.start()
    try:
        consumer.assign([place])
        await consumer.seek_to_beginning(place)
        end = (await consumer.end_offsets([place]))[place]
        found: list[ConsumerRecord] = []
        while await consumer.position(place) < end:
            for records in (await consumer.getmany(place, timeout_ms=200)).values():
                found.extend(records)
        return found
    finally:
        await consumer.stop()


@dataclass
class Member:
    """A source in the group, and what the group gave it."""

    source: KafkaSource
    held: set[Place] = field(default_factory=set)
    assignments: int = 0
    revocations: int = 0

    def on_assigned(self, places: Collection[Place]) -> None:
        self.held |= set(places)
        self.assignments += 1

    def on_revoked(self, places: Collection[Place]) -> None:
        self.held -= set(places)
        self.revocations += 1

    async def batch(
        self, ready: Collection[Place] | None = None, wait_s: float = 10.0
    ) -> tuple[str, int, Fetched]:
        """The next batch, however long it takes up to `wait_s`."""
        until_s = time.monotonic() + wait_s
        while time.monotonic() < until_s:
            wanted = self.held if ready is None else ready
            found = await self.source.next_batch(wanted, timeout_s=0.1)
            if found is not None:
                return found
        message = f"no batch in {wait_s} s"
        raise TimeoutError(message)

    async def poll_until(self, condition: Callable[[], bool], wait_s: float = 20.0) -> None:
        """Poll without taking anything."""
        until_s = time.monotonic() + wait_s
        while not condition():
            if time.monotonic() > until_s:
                message = f"not so within {wait_s} s"
                raise TimeoutError(message)
            await self.source.next_batch((), timeout_s=0.05)


@asynccontextmanager
async def member(
    settings: KafkaSettings, topics: Sequence[str], *, partitions: int | None = None
) -> AsyncIterator[Member]:
    """A source that has joined and holds `partitions` of the partitions (default: all)."""
    one = Member(KafkaSource(settings))
    await one.source.start(topics, one.on_assigned, one.on_revoked)
    try:
        wanted = PARTITIONS * len(topics) if partitions is None else partitions
        await one.poll_until(lambda: len(one.held) == wanted)
        yield one
    finally:
        await one.source.stop()
