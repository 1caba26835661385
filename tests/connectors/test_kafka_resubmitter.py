"""Sending again on a real broker: what is sent, what is known of it, and who may."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from connectors.errors import Fenced, Stop
from connectors.kafka.admin import KafkaAdmin
from connectors.kafka.resubmitter import KafkaResubmitter
from connectors.kafka.settings import KafkaSettings
from schemas.envelope import raw_digest
from schemas.resubmission import Outgoing
from tests.connectors.kafka_tools import kafka_settings, make_topics, read_all

DEPLOYMENT = "d1"


def outgoing(number: int, partition: int, value: bytes = b"v") -> Outgoing:
    """A record to send; its value says which."""
    content = b"%d %b" % (number, value)
    headers = (("wb-attempt", b"2"),)
    return Outgoing(number, partition, raw_digest(content), b"k", content, headers)


@pytest.fixture
async def kafka(services: Any, topic_prefix: str) -> KafkaSettings:
    """Settings of the test, and its topics."""
    settings = kafka_settings(services.bootstrap, topic_prefix, produce_batch_bytes_max=10_000)
    await make_topics(settings)
    return settings


async def _values(kafka: KafkaSettings, topic: str, partition: int) -> Sequence[tuple[int, int]]:
    """Offset and number of what `read_committed` readers see."""
    found = await read_all(kafka, topic, partition)
    return [(record.offset, int(record.value.split()[0])) for record in found]


async def test_what_is_sent_is_known(kafka: KafkaSettings) -> None:
    """Records and the mark are one: as many as fit are sent, in order, where the mark says."""
    topic = kafka.topic("payroll.raw")
    async with (
        KafkaAdmin(kafka) as admin,
        KafkaResubmitter(kafka, admin, DEPLOYMENT) as resubmitter,
    ):
        assert await resubmitter.sent(topic) is None
        waiting = [outgoing(10 + n, n % 2) for n in range(5)]
        mark = await resubmitter.send(topic, waiting)
        assert (mark.first, mark.last) == (10, 14)
        bases = dict(mark.base_offsets)
        for partition in (0, 1):
            found = await _values(kafka, topic, partition)
            numbers = [one.number for one in waiting if one.partition == partition]
            assert found == [(bases[partition] + n, one) for n, one in enumerate(numbers)]
    async with (
        KafkaAdmin(kafka) as admin,
        KafkaResubmitter(kafka, admin, DEPLOYMENT) as resubmitter,
    ):
        # Only starting settles what the coordinator has answered and not yet applied.
        assert await resubmitter.sent(topic) == mark
        large = [outgoing(20 + n, 2, b"x" * 3_000) for n in range(10)]
        first = await resubmitter.send(topic, large)
        assert 20 < first.last < 29
        rest = [one for one in large if one.number > first.last]
        assert (await resubmitter.send(topic, rest)).first == first.last + 1


async def test_the_later_one_fences_the_earlier(kafka: KafkaSettings) -> None:
    """Two cannot send at once; nothing of the earlier one's last attempt is seen."""
    topic = kafka.topic("payroll.raw")
    async with KafkaAdmin(kafka) as admin, KafkaResubmitter(kafka, admin, DEPLOYMENT) as earlier:
        mark = await earlier.send(topic, [outgoing(1, 0)])
        async with KafkaResubmitter(kafka, admin, DEPLOYMENT) as later:
            assert await later.sent(topic) == mark
            with pytest.raises(Fenced):
                await earlier.send(topic, [outgoing(2, 0)])
            await later.send(topic, [outgoing(2, 0)])
        assert [number for _, number in await _values(kafka, topic, 0)] == [1, 2]


async def test_a_record_the_topic_refuses(services: Any, topic_prefix: str) -> None:
    """It stops the run with the advice, and is neither seen nor marked."""
    kafka = kafka_settings(services.bootstrap, topic_prefix, compression=None)
    await make_topics(kafka)
    topic = kafka.topic("payroll.raw")
    async with KafkaAdmin(kafka) as admin, KafkaResubmitter(kafka, admin, DEPLOYMENT) as one:
        with pytest.raises(Stop, match=r"max\.message\.bytes"):
            await one.send(topic, [outgoing(1, 0), outgoing(2, 1, b"x" * 3_000_000)])
        assert await one.sent(topic) is None
        assert await _values(kafka, topic, 0) == []
