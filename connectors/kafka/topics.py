"""Creating the topics, and saying what is wrong with those that exist.

For each record type: raw, committed, quarantine, with one and the same number of partitions,
because an event goes to the output partition with the number of its source; for a type that has
runs, a topic of their manifests, with one partition. And the control topic.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from aiokafka.admin import NewTopic

from connectors.errors import BrokerUnavailable, ConfigurationError
from connectors.kafka.admin import KafkaAdmin
from connectors.kafka.settings import KafkaSettings
from schemas.decision_set import Limits
from schemas.quarantine import EVENT_BYTES_MAX
from schemas.record_type import RecordType

DAY_MS = 24 * 3600 * 1000
RETENTION_MS = 35 * DAY_MS
"""A monthly run and its aftermath: how long raw records and events can be read again."""
PAUSE_S_MAX = 35 * 24 * 3600
"""The longest time that may pass between two runs, during which the group is idle."""
RECORD_OVERHEAD_BYTES = 1024
"""Upper bound of what Kafka adds to one record that is alone in its batch."""
MESSAGE_BYTES_DEFAULT = 1_048_588
"""Kafka's own default of max.message.bytes."""
SAFE_REPLICATION = 3
"""From this many replicas on, an acknowledged write can be asked to be on two."""
VISIBLE_TRIES, VISIBLE_PAUSE_S = 100, 0.1


@dataclass(frozen=True, slots=True)
class Finding:
    """Something about a topic, or about the cluster, that is not as it must or should be."""

    level: Literal["error", "warning"]
    topic: str
    """The topic, or `cluster`."""
    message: str
    """What is wrong and what to change."""


async def create_topics(
    settings: KafkaSettings,
    record_types: Sequence[RecordType],
    *,
    partitions: int,
    replication: int,
    limits: Limits | None = None,
) -> list[str]:
    """Create the topics that are missing and return their names; existing ones are left alone.

    Returns once the brokers show them: a created topic is not known everywhere at once.

    Raises `ConfigurationError` when the cluster refuses, `BrokerUnavailable` (retryable).
    """
    config = {
        "cleanup.policy": "delete",
        "message.timestamp.type": "CreateTime",
        "retention.ms": str(RETENTION_MS),
        "retention.bytes": "-1",
        "min.insync.replicas": "2" if replication >= SAFE_REPLICATION else "1",
        "max.message.bytes": str(max(MESSAGE_BYTES_DEFAULT, _bytes_needed(limits or Limits()))),
        "unclean.leader.election.enable": "false",
    }
    names = {name: partitions for of_type in record_types for name in _topics(settings, of_type)}
    names.update(dict.fromkeys(_single(settings, record_types), 1))
    topics = [
        NewTopic(name, number, replication, topic_configs=config) for name, number in names.items()
    ]
    async with KafkaAdmin(settings) as admin:
        created = await admin.create(topics)
        for _ in range(VISIBLE_TRIES):
            if not created or len(await admin.topics(created)) == len(created):
                return created
            await asyncio.sleep(VISIBLE_PAUSE_S)
    message = "the topics were created, but the brokers do not show all of them yet; try again"
    raise BrokerUnavailable(message)


async def verify_topics(
    settings: KafkaSettings,
    record_types: Sequence[RecordType],
    *,
    limits: Limits | None = None,
    pause_s_max: int = PAUSE_S_MAX,
) -> list[Finding]:
    """What is wrong with topics and cluster, errors first; empty when all is as it must be.

    `limits` are those of the decision set in force. Raises `BrokerUnavailable` (retryable) and
    `ConfigurationError` when describing is not allowed.
    """
    async with KafkaAdmin(settings) as admin:
        names = [name for of_type in record_types for name in _topics(settings, of_type)]
        names += _single(settings, record_types)
        found = await admin.topics(names)
        configs = await admin.topic_configs(sorted(found))
        brokers = len((await admin.cluster())["brokers"])
        findings = list(_missing(names, found))
        for of_type in record_types:
            findings += _partition_counts(settings, of_type, found)
        for name, replicas in found.items():
            findings += _safety(name, configs[name], min(replicas.values()), brokers)
        for of_type in record_types:
            findings += _sizes(settings, of_type, configs, limits or Limits())
        findings += await _cluster(admin, settings, pause_s_max)
    return sorted(findings, key=lambda finding: finding.level)


def _topics(settings: KafkaSettings, of_type: RecordType) -> list[str]:
    names = (of_type.raw_topic, of_type.committed_topic, of_type.quarantine_topic)
    return [settings.topic(name) for name in names]


def _single(settings: KafkaSettings, record_types: Sequence[RecordType]) -> list[str]:
    """The topics with one partition: the control topic and the manifests."""
    of_runs = [of_type for of_type in record_types if of_type.runs is not None]
    return [settings.control_topic, *(settings.topic(one.manifests_topic) for one in of_runs)]


def _bytes_needed(limits: Limits) -> int:
    largest = max(limits.value_bytes_max, limits.event_bytes_max, EVENT_BYTES_MAX)
    return largest + RECORD_OVERHEAD_BYTES


def _missing(names: Sequence[str], found: Mapping[str, object]) -> Iterator[Finding]:
    for name in names:
        if name not in found:
            yield Finding("error", name, "does not exist; `weighbridge topics create` makes it")


def _partition_counts(
    settings: KafkaSettings, of_type: RecordType, found: Mapping[str, Mapping[int, int]]
) -> Iterator[Finding]:
    raw, *outputs = _topics(settings, of_type)
    for name in outputs:
        if name in found and raw in found and len(found[name]) != len(found[raw]):
            yield Finding(
                "error",
                name,
                f"has {len(found[name])} partitions, {raw} has {len(found[raw])}: events go to the "
                "partition with the number of their source. Add partitions to the one with fewer",
            )


def _safety(name: str, config: Mapping[str, str], replicas: int, brokers: int) -> Iterator[Finding]:
    """What would lose, reorder or rewrite records."""
    if "compact" in config["cleanup.policy"]:
        yield Finding("error", name, "is compacted: set cleanup.policy=delete, or records vanish")
    if config["message.timestamp.type"] != "CreateTime":
        yield Finding("error", name, "stamps records itself: set message.timestamp.type=CreateTime")
    if config.get("unclean.leader.election.enable") == "true":
        yield Finding(
            "error",
            name,
            "may elect a replica that lacks acknowledged records: set "
            "unclean.leader.election.enable=false",
        )
    retention_ms = int(config["retention.ms"])
    if 0 <= retention_ms < RETENTION_MS:
        yield Finding(
            "warning",
            name,
            f"keeps records {retention_ms / DAY_MS:.1f} days: set retention.ms={RETENTION_MS} (35 "
            "days) or more",
        )
    if config.get("retention.bytes", "-1") != "-1":
        yield Finding(
            "warning", name, "drops records by size, whatever their age: set retention.bytes=-1"
        )
    yield from _replicas(name, int(config["min.insync.replicas"]), replicas, brokers)


def _replicas(name: str, in_sync_min: int, replicas: int, brokers: int) -> Iterator[Finding]:
    if in_sync_min > replicas:
        yield Finding(
            "error",
            name,
            f"takes no record: min.insync.replicas={in_sync_min}, but it has {replicas} replica(s)",
        )
    elif replicas >= SAFE_REPLICATION and in_sync_min == 1:
        yield Finding(
            "warning", name, "acknowledges what only one broker holds: set min.insync.replicas=2"
        )
    elif brokers >= SAFE_REPLICATION > replicas:
        yield Finding(
            "warning",
            name,
            f"has {replicas} replica(s) on a cluster of {brokers} brokers: use {SAFE_REPLICATION}",
        )


def _sizes(
    settings: KafkaSettings,
    of_type: RecordType,
    configs: Mapping[str, Mapping[str, str]],
    limits: Limits,
) -> Iterator[Finding]:
    """Events that deciding lets through must fit their topic."""
    raw, committed, quarantine = _topics(settings, of_type)
    needs = (
        ("error", committed, limits.event_bytes_max, "committed events"),
        ("error", quarantine, EVENT_BYTES_MAX, "quarantine events"),
        ("warning", raw, limits.value_bytes_max, "values that the decision set accepts"),
    )
    for level, name, size, what in needs:
        needed = size + RECORD_OVERHEAD_BYTES
        if name in configs and int(configs[name]["max.message.bytes"]) < needed:
            yield Finding(
                "error" if level == "error" else "warning",
                name,
                f"takes {configs[name]['max.message.bytes']} bytes, {what} take up to {size}: set "
                f"max.message.bytes={needed} or more",
            )


async def _cluster(admin: KafkaAdmin, settings: KafkaSettings, pause_s_max: int) -> list[Finding]:
    """Broker settings that the protocol leans on, as far as we may read them."""
    names = ("offsets.retention.minutes", "transaction.max.timeout.ms")
    try:
        config = await admin.broker_config(names)
    except ConfigurationError:
        return [Finding("warning", "cluster", "broker settings could not be read: not checked")]
    findings = []
    kept_minutes = int(config["offsets.retention.minutes"])
    if kept_minutes * 60 < pause_s_max:
        findings.append(
            Finding(
                "warning",
                "cluster",
                f"forgets the offsets of an idle group after {kept_minutes / 1440:.1f} days, "
                f"sooner than the longest pause between runs ({pause_s_max / 86400:.0f} days): set "
                f"offsets.retention.minutes={pause_s_max // 60} or more on the brokers",
            )
        )
    timeout_ms_max = int(config["transaction.max.timeout.ms"])
    if settings.transaction_timeout_ms > timeout_ms_max:
        findings.append(
            Finding(
                "error",
                "cluster",
                f"allows transactions {timeout_ms_max} ms at most, transaction_timeout_ms is "
                f"{settings.transaction_timeout_ms}: lower it",
            )
        )
    return findings
