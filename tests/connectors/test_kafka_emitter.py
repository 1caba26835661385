"""KafkaEmitter beyond its port: what Kafka refuses, what is lost on the way, and how it ends."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

import pytest
from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka import errors as kafka_errors
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.structs import OffsetAndMetadata

from connectors.errors import (
    BrokerUnavailable,
    ConfigurationError,
    Fenced,
    InvariantViolation,
    Stop,
)
from connectors.kafka.emitter import EmitterFactory, KafkaEmitter
from connectors.kafka.settings import KafkaSettings
from connectors.ports import EmittedCursor
from schemas.envelope import Source
from schemas.verdict import Event
from tests.connectors.kafka_tools import (
    PAYROLL,
    admin,
    kafka_settings,
    make_topic,
    make_topics,
    producer,
    read_all,
)
from tests.servers import Services


@pytest.fixture
async def kafka(services: Services, topic_prefix: str) -> KafkaSettings:
    settings = kafka_settings(services.bootstrap, topic_prefix)
    await make_topics(settings)
    return settings


@pytest.fixture
async def factory(kafka: KafkaSettings) -> AsyncIterator[EmitterFactory]:
    async with EmitterFactory(kafka) as one:
        yield one


def event(value: bytes) -> Event:
    return Event(b"k", value, ())


def emitter_of(factory: EmitterFactory, kafka: KafkaSettings, partition: int = 0) -> KafkaEmitter:
    return factory.emitter(PAYROLL, Source(kafka.topic("payroll.raw"), partition))


async def emitted(factory: EmitterFactory, kafka: KafkaSettings) -> EmittedCursor | None:
    """E, read by a new owner, whose start has settled what was pending."""
    heir = emitter_of(factory, kafka)
    await heir.start()
    try:
        return await heir.committed()
    finally:
        await heir.close()


async def values(
    kafka: KafkaSettings, topic: str, isolation: str = "read_committed"
) -> list[bytes | None]:
    return [r.value for r in await read_all(kafka, kafka.topic(topic), 0, isolation)]


async def test_a_commit_succeeds_although_its_produce_failed(kafka: KafkaSettings) -> None:
    """Why results are checked: aiokafka alone loses the event and moves the offset."""
    place = TopicPartition(kafka.topic("payroll.raw"), 0)
    topic = kafka.topic("tight")
    await make_topic(kafka, topic, 1, max_message_bytes="2000")
    async with producer(kafka, transactional_id=f"trap/{topic}") as client:
        await client.begin_transaction()
        batch = client.create_batch()
        batch.append(timestamp=None, key=b"k", value=bytes(range(256)) * 20, headers=[])
        lost = await client.send_batch(batch, topic, partition=0)
        await client.send_offsets_to_transaction(
            {place: OffsetAndMetadata(9, "moved")}, f"{kafka.group}-trap"
        )
        await client.commit_transaction()
        with pytest.raises(kafka_errors.MessageSizeTooLargeError):
            await lost
    async with producer(kafka, transactional_id=f"trap/{topic}"), admin(kafka) as client:
        offsets = await client.list_consumer_group_offsets(
            f"{kafka.group}-trap", partitions=[place]
        )
    assert offsets[place] == OffsetAndMetadata(9, "moved")
    assert await read_all(kafka, topic, 0) == []


async def test_an_event_too_large_for_its_topic_stops_and_moves_nothing(
    services: Services, topic_prefix: str
) -> None:
    """The stop names topic, size and limit; no event of the batch is visible, E stands."""
    kafka = kafka_settings(services.bootstrap, topic_prefix, compression=None)
    await make_topic(kafka, kafka.topic("payroll.committed"), 3, max_message_bytes="50000")
    await make_topics(kafka)
    async with EmitterFactory(kafka) as factory:
        emitter = emitter_of(factory, kafka)
        await emitter.start()
        await emitter.emit([event(b"before")], [], EmittedCursor(1, "before"))
        too_large = [event(b"beside"), event(bytes(60_000)), event(b"after")]
        with pytest.raises(
            Stop, match=rf"topic {topic_prefix}payroll.committed refused .*60\d\d\d bytes.*50000"
        ):
            await emitter.emit(too_large, [event(b"rejected")], EmittedCursor(5, "lost"))
        with pytest.raises(InvariantViolation):
            await emitter.emit([], [], EmittedCursor(6, "used again"))
        await emitter.close()
        assert await emitted(factory, kafka) == EmittedCursor(1, "before")
        assert await values(kafka, "payroll.committed") == [b"before"]
        assert await values(kafka, "payroll.quarantine") == []


async def test_record_batches_are_no_larger_than_the_topic_takes(
    services: Services, topic_prefix: str
) -> None:
    """Events that fit one by one are never refused for being sent together."""
    kafka = kafka_settings(services.bootstrap, topic_prefix, compression=None)
    await make_topic(kafka, kafka.topic("payroll.committed"), 3, max_message_bytes="50000")
    await make_topics(kafka)
    async with EmitterFactory(kafka) as factory:
        emitter = emitter_of(factory, kafka)
        await emitter.start()
        await emitter.emit([event(bytes(1_000))] * 500, [], EmittedCursor(500, ""))
        await emitter.close()
    assert await values(kafka, "payroll.committed") == [bytes(1_000)] * 500


async def test_a_failed_transaction_is_aborted_at_once(
    services: Services, topic_prefix: str
) -> None:
    """Readers do not wait for the transaction timeout of an emitter that failed."""
    kafka = kafka_settings(services.bootstrap, topic_prefix, compression=None)
    await make_topic(kafka, kafka.topic("payroll.quarantine"), 3, max_message_bytes="50000")
    await make_topics(kafka)
    async with EmitterFactory(kafka) as factory:
        emitter = emitter_of(factory, kafka)
        await emitter.start()
        with pytest.raises(Stop):
            await emitter.emit([event(b"seen")], [event(bytes(60_000))], EmittedCursor(2, ""))
        await emitter.close()
        second = emitter_of(factory, kafka)
        await second.start()
        await second.emit([event(b"next")], [], EmittedCursor(2, ""))
        await second.close()
    assert await values(kafka, "payroll.committed", "read_uncommitted") == [b"seen", b"next"]
    assert await values(kafka, "payroll.committed") == [b"next"]


async def test_a_lost_produce_is_detected_before_the_commit(
    kafka: KafkaSettings, factory: EmitterFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A produce result that fails, for whatever reason, keeps offset and events back."""
    emitter = emitter_of(factory, kafka)
    await emitter.start()

    async def lost(*_: object, **__: object) -> asyncio.Future[None]:
        answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        answer.set_exception(kafka_errors.KafkaTimeoutError())
        return answer

    monkeypatch.setattr(AIOKafkaProducer, "send_batch", lost)
    with pytest.raises(BrokerUnavailable, match="emitting: KafkaTimeoutError"):
        await emitter.emit([event(b"lost")], [], EmittedCursor(1, ""))
    await emitter.close()
    assert await emitted(factory, kafka) is None


async def test_starting_ends_the_former_owners_open_transaction(
    kafka: KafkaSettings, factory: EmitterFactory
) -> None:
    """After a worker died inside its transaction the next owner's start ends it; E is settled."""
    dead = emitter_of(factory, kafka)
    async with producer(kafka, transactional_id=dead.transactional_id) as client:
        await client.begin_transaction()
        await client.send_and_wait(kafka.topic("payroll.committed"), b"half", b"k", 0)
        place = TopicPartition(kafka.topic("payroll.raw"), 0)
        offsets = {place: OffsetAndMetadata(1, "half")}
        await client.send_offsets_to_transaction(offsets, kafka.group)
        heir = emitter_of(factory, kafka)
        await heir.start()
        assert await heir.committed() is None
        await heir.emit([event(b"whole")], [], EmittedCursor(1, "whole"))
        await heir.close()
        assert await emitted(factory, kafka) == EmittedCursor(1, "whole")
        with pytest.raises(kafka_errors.ProducerFenced):
            await client.commit_transaction()
    assert await values(kafka, "payroll.committed") == [b"whole"]


async def test_an_emitter_fenced_between_batches_says_so_however_often(
    kafka: KafkaSettings, factory: EmitterFactory
) -> None:
    """Fencing is found at the next use, with or without events, and ends the emitter."""
    for owed in ([event(b"late")], []):
        old, new = emitter_of(factory, kafka), emitter_of(factory, kafka)
        await old.start()
        await new.start()
        with pytest.raises(Fenced, match="another producer has taken over"):
            await old.emit(owed, [], EmittedCursor(1, ""))
        await old.close()
        await new.close()
    assert await values(kafka, "payroll.committed") == []


async def test_a_transaction_past_its_timeout_is_fenced(
    services: Services, topic_prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The coordinator ends a transaction that takes too long; nothing of it becomes visible."""
    kafka = kafka_settings(services.bootstrap, topic_prefix, transaction_timeout_ms=1_000)
    await make_topics(kafka)
    real = AIOKafkaProducer.send_offsets_to_transaction

    async def slow(self: AIOKafkaProducer, *args: object) -> None:
        await asyncio.sleep(13)  # the coordinator looks every ten seconds
        await real(self, *args)

    monkeypatch.setattr(AIOKafkaProducer, "send_offsets_to_transaction", slow)
    monkeypatch.setattr("connectors.kafka.transaction.DEADLINE_FACTOR", 30)
    async with EmitterFactory(kafka) as factory:
        emitter = emitter_of(factory, kafka)
        await emitter.start()
        with pytest.raises(Fenced):
            await emitter.emit([event(b"late")], [], EmittedCursor(1, ""))
        await emitter.close()
    assert await values(kafka, "payroll.committed") == []


async def test_an_output_topic_without_the_partition_is_named_at_once(
    services: Services, topic_prefix: str
) -> None:
    """A missing topic, or one with fewer partitions than the raw topic, stops within seconds."""
    kafka = kafka_settings(services.bootstrap, topic_prefix)
    await make_topic(kafka, kafka.topic("payroll.committed"), 1)
    started_s = time.monotonic()
    async with EmitterFactory(kafka) as factory:
        emitter = emitter_of(factory, kafka, 2)
        with pytest.raises(Stop, match=r"payroll.committed has no partition 2.*topics verify"):
            await emitter.start()
        await emitter.close()
        emitter = emitter_of(factory, kafka, 0)
        with pytest.raises(Stop, match=r"payroll\.quarantine has no partition 0"):
            await emitter.start()
        await emitter.close()
    assert time.monotonic() - started_s < 5


async def test_an_impossible_transaction_timeout_names_both_settings(
    services: Services, topic_prefix: str
) -> None:
    """What the brokers refuse for good is a configuration error, not waited for."""
    kafka = kafka_settings(services.bootstrap, topic_prefix, transaction_timeout_ms=10**9)
    await make_topics(kafka)
    async with EmitterFactory(kafka) as factory:
        emitter = emitter_of(factory, kafka)
        with pytest.raises(ConfigurationError, match=r"transaction\.max\.timeout\.ms"):
            await emitter.start()
        await emitter.close()


async def test_a_cancelled_emission_is_aborted(
    kafka: KafkaSettings, factory: EmitterFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A revoked partition's emission is cancelled: no reader waits for what it left."""
    emitter = emitter_of(factory, kafka)
    await emitter.start()
    reached = asyncio.Event()

    async def endless(*_: object) -> None:
        reached.set()
        await asyncio.sleep(3600)

    monkeypatch.setattr(AIOKafkaProducer, "send_offsets_to_transaction", endless)
    emitting = asyncio.create_task(emitter.emit([event(b"no")], [], EmittedCursor(1, "")))
    await reached.wait()
    emitting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await emitting
    monkeypatch.undo()
    await emitter.close()
    heir = emitter_of(factory, kafka)
    await heir.start()
    await heir.emit([event(b"yes")], [], EmittedCursor(1, ""))
    await heir.close()
    assert await values(kafka, "payroll.committed") == [b"yes"]


async def test_an_answer_without_the_partition_is_no_missing_offset(
    kafka: KafkaSettings, factory: EmitterFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A coordinator that is loading answers with an error that aiokafka overlooks.

    Taken for "no offset", it would have what was emitted emitted again (G3).
    """

    async def overlooked(*_: object, **__: object) -> dict[TopicPartition, OffsetAndMetadata]:
        return {}

    emitter = emitter_of(factory, kafka)
    await emitter.start()
    monkeypatch.setattr(AIOKafkaAdminClient, "list_consumer_group_offsets", overlooked)
    with pytest.raises(BrokerUnavailable, match="did not answer for 1 partition"):
        await emitter.committed()
    await emitter.close()


class TestBrokerAway:
    """With the broker silent every call ends within its deadline, and closing does too."""

    @pytest.fixture
    async def kafka(self, services: Services, topic_prefix: str) -> KafkaSettings:
        settings = kafka_settings(
            services.bootstrap,
            topic_prefix,
            call_deadline_s=2.0,
            request_timeout_ms=1_000,
            transaction_timeout_ms=2_000,
        )
        await make_topics(settings)
        return settings

    async def test_emitting(
        self, services: Services, kafka: KafkaSettings, factory: EmitterFactory
    ) -> None:
        """An emission that is not answered is `BrokerUnavailable`; then closing ends as well."""
        emitter = emitter_of(factory, kafka)
        await emitter.start()
        await emitter.emit([event(b"before")], [], EmittedCursor(1, ""))
        services.kafka.pause()
        started_s = time.monotonic()
        with pytest.raises(BrokerUnavailable):
            await emitter.emit([event(b"unsure")], [], EmittedCursor(2, ""))
        await emitter.close()
        assert time.monotonic() - started_s < 12
        left = [task for task in asyncio.all_tasks() if "Sender" in repr(task.get_coro())]
        assert left == []  # nothing that could still commit when the broker is back
        services.kafka.resume()

    async def test_starting_and_reading_the_cursor(
        self, services: Services, kafka: KafkaSettings, factory: EmitterFactory
    ) -> None:
        """Assignment's calls end within their deadline."""
        emitter, late = emitter_of(factory, kafka), emitter_of(factory, kafka)
        await emitter.start()
        services.kafka.pause()
        started_s = time.monotonic()
        with pytest.raises(BrokerUnavailable):
            await emitter.committed()
        with pytest.raises(BrokerUnavailable):
            await late.start()
        await late.close()
        await emitter.close()
        assert time.monotonic() - started_s < 15
        services.kafka.resume()

    async def test_going_on_after_a_restart(
        self, services: Services, kafka: KafkaSettings, factory: EmitterFactory
    ) -> None:
        """When the broker is back a new emitter goes on, and nothing is visible twice."""
        emitter = emitter_of(factory, kafka)
        await emitter.start()
        await emitter.emit([event(b"1")], [], EmittedCursor(1, "1"))
        services.kafka.restart()
        heir = emitter_of(factory, kafka)
        emitted_before = None
        while emitted_before is None:
            try:
                await heir.start()
                emitted_before = await heir.committed()
                assert emitted_before is not None  # a coordinator still loading is no "none"
            except BrokerUnavailable:
                await heir.close()
                heir = emitter_of(factory, kafka)
        assert emitted_before == EmittedCursor(1, "1")
        await heir.emit([event(b"2")], [], EmittedCursor(2, "2"))
        await heir.close()
        await emitter.close()
        assert await values(kafka, "payroll.committed") == [b"1", b"2"]


@pytest.mark.parametrize("after_s", [0.0, 0.001, 0.01])
async def test_closed_in_the_middle_of_an_emission(
    factory: EmitterFactory, kafka: KafkaSettings, after_s: float
) -> None:
    """A partition may stop while its last batch is being emitted: that is no broken invariant, and
    the events are out together with the offset, or not at all."""
    emitter = emitter_of(factory, kafka)
    await emitter.start()
    emission = asyncio.create_task(
        emitter.emit([event(b"%d" % n) for n in range(500)], [], EmittedCursor(500, "m"))
    )
    await asyncio.sleep(after_s)
    await emitter.close()
    (outcome,) = await asyncio.gather(emission, return_exceptions=True)
    assert not isinstance(outcome, InvariantViolation)
    reached = await emitted(factory, kafka)
    assert len(await values(kafka, "payroll.committed")) == (0 if reached is None else 500)
