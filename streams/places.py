"""`TOPIC/PARTITION` as commands take it, and the cursor it names."""

from __future__ import annotations

from connectors.errors import ConfigurationError
from connectors.kafka.settings import KafkaSettings
from connectors.ports import Cursor
from connectors.postgres import reports
from connectors.postgres.pool import Pool
from schemas.record_type import RecordType
from schemas.record_types import RECORD_TYPES

Place = tuple[str, int]
"""Raw topic, by its name on the cluster, and partition."""


def parse_place(text: str) -> Place:
    """Read `TOPIC/PARTITION`. Raises `ConfigurationError` on anything else."""
    topic, _, number = text.rpartition("/")
    if not topic or not (number.isascii() and number.isdigit()):
        message = f"not a partition (TOPIC/PARTITION, such as payroll.raw/0): {text!r}"
        raise ConfigurationError(message)
    return topic, int(number)


def record_type_of(kafka: KafkaSettings, topic: str) -> RecordType:
    """The record type of a raw topic. Raises `ConfigurationError` naming those there are."""
    by_topic = {kafka.topic(t.raw_topic): t for t in RECORD_TYPES.values()}
    if topic not in by_topic:
        message = f"{topic} is no raw topic of this deployment; there are {', '.join(by_topic)}"
        raise ConfigurationError(message)
    return by_topic[topic]


async def cursors_of(pool: Pool, group: str, topic: str) -> list[Cursor]:
    """The decided cursors of a topic, by partition. Raises `ConfigurationError` without any."""
    found = [
        report.cursor
        for report in await reports.partitions(pool)
        if report.group == group and report.cursor.source.topic == topic
    ]
    if not found:
        message = f"group {group} has decided nothing of topic {topic} yet"
        raise ConfigurationError(message)
    return found


async def cursor_of(pool: Pool, group: str, place: Place) -> Cursor:
    """The decided cursor of a partition. Raises `ConfigurationError` when there is none."""
    for cursor in await cursors_of(pool, group, place[0]):
        if cursor.source.partition == place[1]:
            return cursor
    message = f"group {group} has decided nothing of {place[0]}/{place[1]} yet"
    raise ConfigurationError(message)
