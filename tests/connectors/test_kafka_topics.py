"""Creating topics, and naming what is wrong with them, on a real broker."""

from __future__ import annotations

import pytest

from connectors.kafka.settings import KafkaSettings
from connectors.kafka.topics import Finding, create_topics, verify_topics
from schemas.decision_set import Limits
from schemas.record_types import RECORD_TYPES
from tests.connectors.kafka_tools import PAYROLL, admin, delete_topic, kafka_settings, make_topic
from tests.servers import Services


@pytest.fixture
def kafka(services: Services, topic_prefix: str) -> KafkaSettings:
    return kafka_settings(services.bootstrap, topic_prefix)


async def findings(kafka: KafkaSettings, **changes: object) -> dict[str, list[Finding]]:
    """What is found, by topic without prefix."""
    found: dict[str, list[Finding]] = {}
    for one in await verify_topics(kafka, [PAYROLL], **changes):  # type: ignore[arg-type]
        found.setdefault(one.topic.removeprefix(kafka.topic_prefix), []).append(one)
    return found


async def test_created_topics_are_as_they_must_be(kafka: KafkaSettings) -> None:
    """What `create` makes, `verify` has nothing against; a second time nothing is created."""
    created = await create_topics(kafka, [PAYROLL], partitions=3, replication=1)
    assert sorted(name.removeprefix(kafka.topic_prefix) for name in created) == [
        "payroll.committed",
        "payroll.quarantine",
        "payroll.raw",
        "weighbridge.control",
    ]
    assert await create_topics(kafka, [PAYROLL], partitions=3, replication=1) == []
    assert await findings(kafka, pause_s_max=60) == {}
    async with admin(kafka) as client:
        described = await client.describe_topics(created)
    assert {len(topic["partitions"]) for topic in described} == {3, 1}


async def test_a_type_with_runs_has_a_topic_of_manifests(kafka: KafkaSettings) -> None:
    """One partition, kept and verified like the others."""
    payroll = RECORD_TYPES["payroll"]
    created = await create_topics(kafka, [payroll], partitions=3, replication=1)
    topic = kafka.topic("payroll.manifests")
    assert topic in created
    async with admin(kafka) as client:
        (described,) = await client.describe_topics([topic])
    assert len(described["partitions"]) == 1
    assert await verify_topics(kafka, [payroll], pause_s_max=60) == []
    await delete_topic(kafka, topic)
    (one,) = await verify_topics(kafka, [payroll], pause_s_max=60)
    assert (one.level, one.topic) == ("error", topic)


async def test_missing_topics_are_errors(kafka: KafkaSettings) -> None:
    """Each is named, with the command that makes it."""
    found = await findings(kafka, pause_s_max=60)
    assert len(found) == 4
    assert all(one.level == "error" and "topics create" in one.message for (one,) in found.values())


@pytest.mark.parametrize(
    ("config", "level", "why"),
    [
        ({"cleanup_policy": "compact"}, "error", "cleanup.policy=delete"),
        ({"cleanup_policy": "compact,delete"}, "error", "cleanup.policy=delete"),
        ({"message_timestamp_type": "LogAppendTime"}, "error", "=CreateTime"),
        ({"max_message_bytes": "900000"}, "error", "max.message.bytes=1001024"),
        ({"min_insync_replicas": "2"}, "error", "takes no record"),
        ({"unclean_leader_election_enable": "true"}, "error", "unclean.leader.election"),
        ({"retention_ms": "86400000"}, "warning", "keeps records 1.0 days"),
        ({"retention_bytes": "1000000000"}, "warning", "retention.bytes=-1"),
    ],
)
async def test_a_setting_that_loses_or_refuses_records_is_found(
    kafka: KafkaSettings, config: dict[str, str], level: str, why: str
) -> None:
    """The message says what to change."""
    await make_topic(kafka, kafka.topic("payroll.committed"), 2, **config)
    await create_topics(kafka, [PAYROLL], partitions=2, replication=1)
    found = await findings(kafka, pause_s_max=60)
    assert set(found) == {"payroll.committed"}
    assert any(one.level == level and why in one.message for one in found["payroll.committed"])


async def test_topics_of_one_type_have_equally_many_partitions(kafka: KafkaSettings) -> None:
    """Events go to the output partition with the number of their source."""
    await make_topic(kafka, kafka.topic("payroll.quarantine"), 2)
    await create_topics(kafka, [PAYROLL], partitions=3, replication=1)
    (one, *_) = (await findings(kafka, pause_s_max=60))["payroll.quarantine"]
    assert one.level == "error"
    assert "has 2 partitions" in one.message
    assert "has 3" in one.message


async def test_the_decision_sets_limits_must_fit_the_topics(kafka: KafkaSettings) -> None:
    """An event that deciding lets through is one that its topic takes."""
    limits = Limits(value_bytes_max=3_000_000, event_bytes_max=2_000_000)
    await create_topics(kafka, [PAYROLL], partitions=1, replication=1)
    found = await findings(kafka, limits=limits, pause_s_max=60)
    assert [one.level for one in found["payroll.committed"]] == ["error"]
    assert [one.level for one in found["payroll.raw"]] == ["warning"]
    assert set(found) == {"payroll.committed", "payroll.raw"}


async def test_topics_are_created_large_enough_for_the_limits(kafka: KafkaSettings) -> None:
    """With the limits known beforehand there is nothing to find."""
    limits = Limits(value_bytes_max=3_000_000, event_bytes_max=2_000_000)
    await create_topics(kafka, [PAYROLL], partitions=1, replication=1, limits=limits)
    assert await findings(kafka, limits=limits, pause_s_max=60) == {}


async def test_a_cluster_that_forgets_offsets_between_runs_is_warned_of(
    kafka: KafkaSettings,
) -> None:
    """Kafka keeps an idle group's offsets seven days by default; a month's pause is longer."""
    await create_topics(kafka, [PAYROLL], partitions=1, replication=1)
    (one,) = (await findings(kafka, pause_s_max=400 * 86_400))["cluster"]
    assert one.level == "warning"
    assert "offsets.retention.minutes=576000" in one.message


async def test_a_transaction_timeout_the_brokers_refuse_is_found(
    services: Services, topic_prefix: str
) -> None:
    """Before the first worker fails on it."""
    kafka = kafka_settings(services.bootstrap, topic_prefix, transaction_timeout_ms=10**8)
    await create_topics(kafka, [PAYROLL], partitions=1, replication=1)
    (one,) = (await findings(kafka, pause_s_max=60))["cluster"]
    assert one.level == "error"
    assert "transaction_timeout_ms" in one.message
