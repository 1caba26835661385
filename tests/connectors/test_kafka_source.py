"""KafkaSource on a real broker: batches, bounds, positions, and what stops a partition."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
import uuid

import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka import errors as kafka_errors

from connectors.errors import BrokerUnavailable, ConfigurationError, OwnershipLost, PartitionStop
from connectors.kafka.log import KafkaLog
from connectors.kafka.settings import KafkaSettings
from tests.connectors.kafka_tools import (
    Place,
    admin,
    delete_topic,
    kafka_settings,
    make_topic,
    make_topics,
    member,
    produce,
    produce_aborted,
    producer,
    send_broken_header,
)
from tests.servers import Services


@pytest.fixture
async def kafka(services: Services, topic_prefix: str) -> KafkaSettings:
    settings = kafka_settings(services.bootstrap, topic_prefix, batch_records_max=100)
    await make_topics(settings)
    return settings


@pytest.fixture
def raw(kafka: KafkaSettings) -> str:
    return kafka.topic("payroll.raw")


def numbers(first: int, last: int) -> list[bytes]:
    return [str(n).encode() for n in range(first, last)]


async def test_batches_are_bounded_in_records_and_join_up(kafka: KafkaSettings, raw: str) -> None:
    """Every batch begins where the one before it ended, none is larger than asked, none missing."""
    await produce(kafka, raw, 1, numbers(0, 250))
    async with member(kafka, [raw]) as one:
        one.source.seek(raw, 1, 0)
        sizes, values, at = [], [], 0
        while len(values) < 250:
            topic, partition, fetched = await one.batch()
            assert (topic, partition, fetched.begin) == (raw, 1, at)
            at = fetched.next_offset
            sizes.append(len(fetched.records))
            values += [record.value for record in fetched.records]
    assert values == numbers(0, 250)
    assert max(sizes) == 100
    assert at == 250


async def test_batches_are_bounded_in_bytes_even_when_compressed(
    services: Services, topic_prefix: str
) -> None:
    """A batch holds at most the bytes asked for, counted after decompression; one record may."""
    kafka = kafka_settings(services.bootstrap, topic_prefix, batch_bytes_max=100_000)
    await make_topics(kafka)
    raw = kafka.topic("payroll.raw")
    sent = [bytes(30_000)] * 10 + [bytes(200_000)] + [bytes(10)] * 500 + [bytes(60_000)] * 3
    await produce(kafka, raw, 0, sent, compression_type="lz4", max_batch_size=1_000_000)
    async with member(kafka, [raw]) as one:
        one.source.seek(raw, 0, 0)
        batches = []
        while sum(map(len, batches)) < len(sent):
            _, _, fetched = await one.batch()
            batches.append([len(record.value or b"") for record in fetched.records])
    assert [size for batch in batches for size in batch] == [len(value) for value in sent]
    assert all(sum(batch) <= 100_000 or len(batch) == 1 for batch in batches)
    assert [200_000] in batches


async def test_aborted_records_are_invisible_and_the_position_moves_past_markers(
    kafka: KafkaSettings, raw: str
) -> None:
    """A batch without any record still moves the position over aborted records and markers."""
    await produce_aborted(kafka, raw, 0, numbers(0, 10))
    async with member(kafka, [raw]) as one:
        one.source.seek(raw, 0, 0)
        _, _, fetched = await one.batch()
        assert (fetched.begin, fetched.next_offset, list(fetched.records)) == (0, 11, [])
        assert await one.source.lag(raw, 0) == 0
        await produce(kafka, raw, 0, [b"after"])
        _, _, fetched = await one.batch()
    assert (fetched.begin, fetched.next_offset) == (11, 12)
    assert [record.value for record in fetched.records] == [b"after"]


async def test_records_between_aborted_ones_leave_gaps_that_batches_span(
    kafka: KafkaSettings, raw: str
) -> None:
    """Offsets of aborted records fall inside batches, which still join up."""
    await produce(kafka, raw, 0, numbers(0, 3))
    await produce_aborted(kafka, raw, 0, numbers(100, 105))
    await produce(kafka, raw, 0, numbers(3, 6))
    async with member(kafka, [raw]) as one:
        one.source.seek(raw, 0, 0)
        values, at = [], 0
        while at < 12:
            _, _, fetched = await one.batch()
            assert fetched.begin == at
            at = fetched.next_offset
            values += [record.value for record in fetched.records]
    assert values == numbers(0, 6)


@pytest.mark.parametrize("codec", [None, "gzip", "snappy", "lz4", "zstd"])
async def test_every_codec_is_read(kafka: KafkaSettings, raw: str, codec: str | None) -> None:
    """Topics compressed with any of Kafka's codecs are read."""
    await produce(kafka, raw, 0, [b"x" * 1000] * 20, compression_type=codec)
    async with member(kafka, [raw]) as one:
        one.source.seek(raw, 0, 0)
        _, _, fetched = await one.batch()
    assert [record.value for record in fetched.records] == [b"x" * 1000] * 20


async def test_a_codec_without_its_library_names_topic_and_codec(
    kafka: KafkaSettings, raw: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A missing decompressor is a fault of the installation, not of the record."""
    await produce(kafka, raw, 0, [b"x" * 1000] * 20, compression_type="zstd")
    monkeypatch.setattr("aiokafka.codec.has_zstd", lambda: False)
    async with member(kafka, [raw]) as one:
        one.source.seek(raw, 0, 0)
        with pytest.raises(ConfigurationError, match=f"{raw} .*with zstd.*cramjam"):
            await one.batch()


async def test_keys_values_headers_and_timestamps_arrive_untouched(
    kafka: KafkaSettings, raw: str
) -> None:
    """Binary, null, empty and repeated headers pass as they are."""
    headers = [("a", b"\x00\xff"), ("a", None), ("", b""), ("wb-chunk", b"1/1")]
    async with producer(kafka) as client:
        await client.send_and_wait(raw, b"\xc3(", None, 0, 1_793_000_000_123, headers)
        await client.send_and_wait(raw, None, b"\xff", 0)
    async with member(kafka, [raw]) as one:
        one.source.seek(raw, 0, 0)
        _, _, fetched = await one.batch()
    first, second = fetched.records
    assert (first.offset, first.timestamp) == (0, 1_793_000_000_123)
    assert (first.key, first.value, first.headers) == (None, b"\xc3(", tuple(headers))
    assert (second.key, second.value, second.headers) == (b"\xff", None, ())


async def test_a_thin_batch_waits_to_fill_and_a_full_one_does_not(
    services: Services, topic_prefix: str
) -> None:
    """`batch_linger` collects records that come one by one; a full batch leaves at once."""
    kafka = kafka_settings(
        services.bootstrap, topic_prefix, batch_linger_ms=1_500, batch_records_max=10
    )
    await make_topics(kafka)
    raw = kafka.topic("payroll.raw")
    async with member(kafka, [raw]) as one, producer(kafka) as client:
        one.source.seek(raw, 0, 0)
        getting = asyncio.create_task(one.batch())
        for value in numbers(0, 4):
            await client.send_and_wait(raw, value, b"k", 0)
            await asyncio.sleep(0.1)
        _, _, thin = await getting
        assert [record.value for record in thin.records] == numbers(0, 4)
        await asyncio.gather(*[await client.send(raw, v, b"k", 0) for v in numbers(0, 10)])
        started_s = time.monotonic()
        _, _, full = await one.batch()
    assert len(full.records) == 10
    assert time.monotonic() - started_s < 1.0


async def test_partitions_take_turns(kafka: KafkaSettings, raw: str) -> None:
    """No partition with a backlog starves another."""
    for partition in range(3):
        await produce(kafka, raw, partition, numbers(0, 300))
    async with member(kafka, [raw]) as one:
        for partition in range(3):
            one.source.seek(raw, partition, 0)
        served = [(await one.batch())[1] for _ in range(9)]
    assert all(served.count(partition) == 3 for partition in range(3))


async def test_a_partition_that_is_not_ready_is_left_alone_and_loses_nothing(
    kafka: KafkaSettings, raw: str
) -> None:
    """Only partitions that can take a batch are served; the others go on where they stand."""
    await produce(kafka, raw, 0, numbers(0, 150))
    await produce(kafka, raw, 1, numbers(0, 150))
    async with member(kafka, [raw]) as one:
        one.source.seek(raw, 0, 0)
        one.source.seek(raw, 1, 0)
        only: set[Place] = {(raw, 0)}
        first = [await one.batch(only), await one.batch(only)]
        assert {partition for _, partition, _ in first} == {0}
        assert await one.source.next_batch(only, timeout_s=0.3) is None
        values: list[bytes | None] = []
        while len(values) < 150:
            _, partition, fetched = await one.batch({(raw, 1)})
            assert partition == 1
            values += [record.value for record in fetched.records]
    assert values == numbers(0, 150)


async def test_polling_keeps_the_membership_while_nothing_is_ready(
    services: Services, topic_prefix: str
) -> None:
    """A worker all of whose partitions are paused stays in the group past the poll interval."""
    kafka = kafka_settings(services.bootstrap, topic_prefix, poll_interval_ms_max=2_000)
    await make_topics(kafka)
    raw = kafka.topic("payroll.raw")
    await produce(kafka, raw, 0, [b"waiting"])
    async with member(kafka, [raw]) as one:
        one.source.seek(raw, 0, 0)
        until_s = time.monotonic() + 5
        while time.monotonic() < until_s:
            assert await one.source.next_batch((), timeout_s=0.2) is None
        assert one.revocations == 0
        _, _, fetched = await one.batch()
    assert [record.value for record in fetched.records] == [b"waiting"]


async def test_partitions_move_to_a_second_member_and_back(kafka: KafkaSettings, raw: str) -> None:
    """Dynamic membership: joining takes part of the partitions, leaving gives them back."""
    async with member(kafka, [raw]) as one:
        one.source.seek(raw, 0, 0)
        async with asyncio.timeout(30):
            joining = asyncio.create_task(_hold_one(kafka, raw))
            await one.poll_until(lambda: len(one.held) == 2)
            assert one.revocations == 1
            (taken,) = {0, 1, 2} - {partition for _, partition in one.held}
            with pytest.raises(OwnershipLost, match="taken it away"):
                one.source.seek(raw, taken, 0)
            await one.poll_until(joining.done)
            await joining
            await one.poll_until(lambda: len(one.held) == 3)


async def _hold_one(kafka: KafkaSettings, raw: str) -> None:
    async with member(kafka, [raw], partitions=1):
        pass


async def test_a_batch_of_a_former_assignment_is_never_handed_out(
    kafka: KafkaSettings, raw: str
) -> None:
    """What was gathered before a seek is dropped: the next batch begins at the new place."""
    await produce(kafka, raw, 0, numbers(0, 50))
    async with member(kafka, [raw]) as one:
        one.source.seek(raw, 0, 0)
        # Long enough to gather, too short for the batch to become due.
        assert await one.source.next_batch({(raw, 0)}, timeout_s=0.01) is None
        one.source.seek(raw, 0, 20)
        _, _, fetched = await one.batch()
    assert fetched.begin == 20
    assert [record.value for record in fetched.records] == numbers(20, 50)


async def test_cancelled_waiting_loses_no_record(kafka: KafkaSettings, raw: str) -> None:
    """`next_batch` may be cancelled at any moment; every record still comes once."""
    async with member(kafka, [raw]) as one:
        one.source.seek(raw, 0, 0)
        sending = asyncio.create_task(produce(kafka, raw, 0, numbers(0, 400)))
        values: list[bytes | None] = []
        for wait_ms in [1, 3, 7, 2, 11] * 400:
            getting = asyncio.create_task(one.source.next_batch(one.held, timeout_s=1.0))
            done, _ = await asyncio.wait({getting}, timeout=wait_ms / 1000)
            if not done:
                getting.cancel()
            (found,) = await asyncio.gather(getting, return_exceptions=True)
            if isinstance(found, tuple):
                values += [record.value for record in found[2].records]
            if len(values) == 400:
                break
        await sending
    assert values == numbers(0, 400)


async def test_an_offset_out_of_range_stops_that_partition_alone(
    kafka: KafkaSettings, raw: str
) -> None:
    """The stop names topic, partition, the offset wanted and those available; others go on."""
    await produce(kafka, raw, 0, numbers(0, 5))
    await produce(kafka, raw, 1, numbers(0, 5))
    async with member(kafka, [raw]) as one:
        one.source.seek(raw, 0, 99)
        with pytest.raises(PartitionStop, match=rf"{raw}/0: offset 99 is wanted.* 0 to 5") as stop:
            await one.batch()
        assert stop.value.place == (raw, 0)
        one.source.seek(raw, 1, 0)
        _, partition, fetched = await one.batch()
    assert (partition, len(fetched.records)) == (1, 5)


async def test_a_header_name_that_is_not_utf8_costs_nobody_anything(
    kafka: KafkaSettings, raw: str
) -> None:
    """aiokafka's consumer cannot get past it; the record is delivered, and so are all others."""
    await produce(kafka, raw, 0, numbers(0, 3))
    async with producer(kafka) as client:
        await send_broken_header(client, raw)
    await produce(kafka, raw, 0, numbers(3, 6))
    async with member(kafka, [raw]) as one:
        one.source.seek(raw, 0, 0)
        records, at = [], 0
        while at < 9:
            _, _, fetched = await one.batch()
            assert fetched.begin == at
            at = fetched.next_offset
            records += fetched.records
        odd = await one.source.read_record(raw, 0, 4)
    values = [*numbers(0, 3), b"before", b"odd", b"after", *numbers(3, 6)]
    assert [record.value for record in records] == values
    assert [record.offset for record in records] == list(range(9))
    assert records[4].headers == (("\ufffdQQQ", b"\xff\x00"), ("plain", None))
    assert odd is not None
    assert (odd.value, odd.timestamp, odd.headers) == (b"odd", 5, records[4].headers)


async def test_a_header_name_that_is_not_utf8_in_an_aborted_transaction_stays_invisible(
    kafka: KafkaSettings, raw: str
) -> None:
    """Reading leniently is still reading committed records only."""
    async with producer(kafka, transactional_id=f"odd/{raw}") as client:
        await client.begin_transaction()
        await send_broken_header(client, raw)
        await client.abort_transaction()
        await client.begin_transaction()
        await send_broken_header(client, raw)
        await client.commit_transaction()
    async with member(kafka, [raw]) as one:
        one.source.seek(raw, 0, 0)
        records, at = [], 0
        while at < 8:
            _, _, fetched = await one.batch()
            at = fetched.next_offset
            records += fetched.records
    assert [(r.offset, r.value) for r in records] == [(4, b"before"), (5, b"odd"), (6, b"after")]


async def test_a_record_that_is_damaged_stops_after_its_good_neighbours(
    kafka: KafkaSettings, raw: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What can be read before it is handed out, then its offset is named."""
    await produce(kafka, raw, 0, numbers(0, 3))
    async with producer(kafka) as client:
        await send_broken_header(client, raw)

    async def damaged(*_: object) -> None:
        raise kafka_errors.CorruptRecordException

    monkeypatch.setattr(KafkaLog, "read_leniently", damaged)
    async with member(kafka, [raw]) as one:
        one.source.seek(raw, 0, 0)
        values: list[bytes | None] = []
        while len(values) < 4:
            _, _, fetched = await one.batch()
            values += [record.value for record in fetched.records]
        assert values == [*numbers(0, 3), b"before"]
        with pytest.raises(PartitionStop, match="at or after offset 4 cannot be decoded"):
            await one.batch()


async def test_a_recreated_topic_is_never_read_on(kafka: KafkaSettings) -> None:
    """Records of a topic created again under the old name are not taken for those it replaced.

    Either the group takes the partition away when the topic is gone, or the partition stops; which
    of the two comes first is up to Kafka.
    """
    topic = kafka.topic("short")
    await make_topic(kafka, topic, 1)
    await produce(kafka, topic, 0, numbers(0, 10))
    async with member(kafka, [topic], partitions=1) as one:
        await one.source.log_range(topic, 0)
        one.source.seek(topic, 0, 0)
        _, _, fetched = await one.batch()
        assert len(fetched.records) == 10
        await delete_topic(kafka, topic)
        await make_topic(kafka, topic, 1)
        await produce(kafka, topic, 0, numbers(500, 530))
        with contextlib.suppress(PartitionStop):
            while one.held:
                assert await one.source.next_batch(one.held, timeout_s=0.1) is None
        with pytest.raises(TimeoutError):
            await one.batch({(topic, 0)}, wait_s=1.0)


async def test_a_batch_leaves_only_under_the_topic_id_that_assignment_saw(
    kafka: KafkaSettings, raw: str
) -> None:
    """Even if Kafka says nothing, a changed topic id stops the partition before a record leaves."""
    await produce(kafka, raw, 0, numbers(0, 5))
    async with member(kafka, [raw]) as one:
        one.source._topic_ids[raw, 0] = uuid.uuid4()  # what assignment saw was another topic
        one.source.seek(raw, 0, 0)
        with pytest.raises(PartitionStop, match="deleted and created again") as stop:
            await one.batch()
    assert stop.value.place == (raw, 0)


async def test_a_topic_that_does_not_exist_is_named_at_once(kafka: KafkaSettings) -> None:
    """Starting on a missing topic is a configuration error, not endless silence."""
    with pytest.raises(ConfigurationError, match=r"no topic .*nowhere.* topics create"):
        async with member(kafka, [kafka.topic("nowhere")]):
            pass


async def test_lag_counts_what_may_be_read_and_no_markers(kafka: KafkaSettings, raw: str) -> None:
    """Lag is the last stable offset minus the position: it reaches 0 behind a marker."""
    await produce(kafka, raw, 0, numbers(0, 120))
    await produce_aborted(kafka, raw, 0, numbers(0, 5))
    async with member(kafka, [raw]) as one:
        assert await one.source.lag(raw, 0) is None
        one.source.seek(raw, 0, 0)
        _, _, fetched = await one.batch()
        assert await one.source.lag(raw, 0) == 126 - fetched.next_offset
        while fetched.next_offset < 126:
            _, _, fetched = await one.batch()
        assert await one.source.lag(raw, 0) == 0


async def test_what_the_log_holds(kafka: KafkaSettings, raw: str) -> None:
    """Range and single records are read without the group; markers and gaps are no records."""
    await produce(kafka, raw, 2, numbers(0, 4))
    await produce_aborted(kafka, raw, 2, numbers(0, 2))
    async with member(kafka, [raw]) as one:
        source = one.source
        held = await source.log_range(raw, 2)
        assert (held.start_offset, held.last_stable_offset, held.end_offset) == (0, 7, 7)
        record = await source.read_record(raw, 2, 3)
        assert record is not None
        assert (record.offset, record.value) == (3, b"3")
        assert await source.read_record(raw, 2, 6) is None  # the marker
        assert await source.read_record(raw, 2, 7) is None  # the end
        assert await source.partitions_of(raw) == [0, 1, 2]
        async with admin(kafka) as client:
            assert await source.cluster_id() == (await client.describe_cluster())["cluster_id"]


async def test_records_of_many_sizes_all_arrive(services: Services, topic_prefix: str) -> None:
    """Whatever the sizes, no record is skipped, repeated or reordered by the byte bound."""
    kafka = kafka_settings(services.bootstrap, topic_prefix, batch_bytes_max=1_000_000)
    await make_topics(kafka)
    raw = kafka.topic("payroll.raw")
    sizes = [10, 900_000, 10, 10, 400_000, 400_000, 400_000, 1, 0] * 4
    sent = [os.urandom(size) for size in sizes]
    await produce(kafka, raw, 0, sent, max_request_size=2_000_000)
    async with member(kafka, [raw]) as one:
        one.source.seek(raw, 0, 0)
        values: list[bytes | None] = []
        while len(values) < len(sent):
            _, _, fetched = await one.batch()
            values += [record.value for record in fetched.records]
    assert values == sent


async def test_a_record_larger_than_a_fetch_is_a_stop_and_no_skip(
    kafka: KafkaSettings, raw: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """aiokafka would step over such a record. Brokers since Kafka 0.10.1 return it whole, so the
    error is acted out here; what a pass does not show is that a broker still sends one."""
    await produce(kafka, raw, 0, [b"large"])
    real = AIOKafkaConsumer.getmany

    async def getmany(self: AIOKafkaConsumer, *places: TopicPartition, **options: object) -> object:
        if TopicPartition(raw, 0) in places:
            place = TopicPartition(raw, 0)
            raise kafka_errors.RecordTooLargeError(place, 0, 1)
        return await real(self, *places, **options)

    async with member(kafka, [raw]) as one:
        one.source.seek(raw, 0, 0)
        with monkeypatch.context() as patch:
            patch.setattr(AIOKafkaConsumer, "getmany", getmany)
            with pytest.raises(PartitionStop, match="at offset 0 is larger than a fetch"):
                await one.batch()
        with pytest.raises(TimeoutError):
            await one.batch({(raw, 0)}, wait_s=0.5)
        one.source.seek(raw, 0, 0)
        _, _, fetched = await one.batch()
    assert [record.value for record in fetched.records] == [b"large"]


async def test_membership_that_ends_on_an_error_begins_again(
    kafka: KafkaSettings, raw: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """aiokafka's coordination does not come back by itself: the source joins again (G5)."""
    await produce(kafka, raw, 0, [b"before"])
    async with member(kafka, [raw]) as one:

        async def getmany(*_: object, **__: object) -> object:
            raise kafka_errors.KafkaError  # what aiokafka wraps its own surprises in

        with monkeypatch.context() as patch:
            patch.setattr(AIOKafkaConsumer, "getmany", getmany)
            with pytest.raises(BrokerUnavailable, match="group"):
                await one.source.next_batch((), timeout_s=1.0)
        assert one.held == set()
        await one.poll_until(lambda: len(one.held) == 3)
        one.source.seek(raw, 0, 0)
        _, _, fetched = await one.batch()
    assert [record.value for record in fetched.records] == [b"before"]


async def test_reading_goes_on_after_the_broker_was_away(
    services: Services, kafka: KafkaSettings, raw: str
) -> None:
    """A restart of the broker costs time and nothing else: no record is lost or repeated."""
    await produce(kafka, raw, 0, numbers(0, 150))
    async with member(kafka, [raw]) as one:
        one.source.seek(raw, 0, 0)
        _, _, first = await one.batch()
        services.kafka.restart()
        await produce(kafka, raw, 0, numbers(150, 300))
        values = [record.value for record in first.records]
        until_s = time.monotonic() + 40
        while len(values) < 300 and time.monotonic() < until_s:
            with contextlib.suppress(BrokerUnavailable):
                found = await one.source.next_batch({(raw, 0)}, timeout_s=0.2)
                if found is not None:
                    values += [record.value for record in found[2].records]
            if one.revocations and (raw, 0) in one.held and await one.source.lag(raw, 0) is None:
                # The group may have been rebuilt; assignment seeks to where the cursor stands.
                one.source.seek(raw, 0, len(values))
    assert values == numbers(0, 300)


async def test_calls_end_within_their_deadline_while_the_broker_is_silent(
    services: Services, topic_prefix: str
) -> None:
    """A hanging broker is `BrokerUnavailable`, and stopping does not wait for it."""
    kafka = kafka_settings(
        services.bootstrap, topic_prefix, call_deadline_s=1.0, request_timeout_ms=1_000
    )
    await make_topics(kafka)
    raw = kafka.topic("payroll.raw")
    async with member(kafka, [raw]) as one:
        await one.source.log_range(raw, 0)
        services.kafka.pause()
        for call in (one.source.log_range(raw, 0), one.source.cluster_id()):
            with pytest.raises(BrokerUnavailable):
                await call
        started_s = time.monotonic()
        await one.source.stop()
        assert time.monotonic() - started_s < 6
        services.kafka.resume()
