"""What the tests of publishing share: files of runs, and what is on the topics afterwards."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from connectors.kafka.settings import KafkaSettings
from connectors.kafka.topics import create_topics
from schemas.chunk import Declaration, Member, chain_of
from schemas.record_types import RECORD_TYPES
from tests.connectors.kafka_tools import PARTITIONS, kafka_settings, read_all
from tests.servers import Services

PAYROLL = RECORD_TYPES["payroll"]
Found = tuple[int, bytes | None, bytes, tuple[tuple[str, bytes], ...]]
"""Partition, key, value and headers of a record."""


async def topics_of(services: Services, prefix: str, **changes: object) -> KafkaSettings:
    """Topics of a test's own, manifests included."""
    settings = kafka_settings(services.bootstrap, prefix, **changes)
    await create_topics(settings, [PAYROLL], partitions=PARTITIONS, replication=1)
    return settings


def statement(number: int, run: str) -> bytes:
    """A statement that commits, of some 200 bytes."""
    members = {
        "employee_id": f"EMP{number:07d}",
        "source_run_id": run,
        "pay_period_start": "2026-10-19",
        "pay_period_end": "2026-11-01",
        "gross_pay": f"{1000 + number % 977}.{number % 100:02d}",
        "tax_jurisdiction": "US-OH",
    }
    return json.dumps(members).encode()


def write_runs(path: Path, count: int, *, runs: int = 1) -> Path:
    """A file of statements of so many runs, interleaved."""
    lines = (statement(n, f"R{n % runs}") + b"\n" for n in range(count))
    path.write_bytes(b"".join(lines))
    return path


async def published(kafka: KafkaSettings, topic: str = "payroll.raw") -> list[Found]:
    """All that readers of committed data find in a raw topic, by partition."""
    found: list[Found] = []
    for partition in range(PARTITIONS):
        for record in await read_all(kafka, kafka.topic(topic), partition):
            found.append((partition, record.key, record.value, record.headers))  # noqa: PERF401
    return found


async def manifests(kafka: KafkaSettings) -> list[tuple[bytes, dict[str, Any]]]:
    """Key and content of the manifests of runs."""
    found = await read_all(kafka, kafka.topic("payroll.manifests"), 0)
    return [(record.key, json.loads(record.value)) for record in found]


def check_exactly_once(found: Sequence[Found], path: Path) -> None:
    """Every line of the file is on the topic once, in whole chunks, each in order."""
    lines = path.read_bytes().splitlines()
    assert sorted(value for _, _, value, _ in found) == sorted(lines)
    place = {line: number for number, line in enumerate(lines)}
    chunks: dict[str, list[tuple[int, bytes]]] = {}
    declared: dict[str, Declaration] = {}
    for _, _, value, headers in found:
        member = Member.parse(dict(headers)["wb-chunk"])
        chunks.setdefault(member.attempt, []).append((member.seq, value))
        if member.seq == 1:
            declared[member.attempt] = Declaration.parse(dict(headers)["wb-chunk-declare"])
    for attempt, members in chunks.items():
        assert [seq for seq, _ in members] == list(range(1, declared[attempt].count + 1))
        values = [value for _, value in members]
        assert [place[value] for value in values] == sorted(place[value] for value in values)
        assert chain_of(values) == declared[attempt].chain
    numbers = sorted((one.run, one.chunk) for one in declared.values())
    wanted = {one.run: one.of for one in declared.values()}
    assert numbers == sorted((run, n) for run, of in wanted.items() for n in range(1, of + 1))
