"""Faults after which the gate must stop and say why, or make good; never go on regardless."""

from __future__ import annotations

import asyncio
import shutil
import signal
import subprocess
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.structs import OffsetAndMetadata

from connectors.embedded.postgres import EmbeddedPostgres
from streams.demo.reading import look
from tests.faults.gate import GROUP, Gate

PAYROLL_RAW = "payroll.raw"
CLUSTER = "cluster"
"""The folder of PostgreSQL's own files in its data folder."""


async def _limit(gate: Gate, topic: str, bytes_max: int) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=gate.services.bootstrap)
    await admin.start()
    try:
        resource = ConfigResource(
            ConfigResourceType.TOPIC,
            gate.prefix + topic,
            {"max.message.bytes": str(bytes_max)},
        )
        await admin.alter_configs([resource])
    finally:
        await admin.close()


@pytest.mark.timeout(180)
async def test_event_too_large_for_its_output_topic(gate: Gate) -> None:
    """An output topic that refuses an event: nothing of the batch is visible, its offset does not
    move, the partition stops and says so; once the limit is raised everything comes out once."""
    await _limit(gate, "payroll.committed", 300)
    await gate.publish(100)
    worker = await gate.worker()
    await worker.says("max.message.bytes is 300")
    await worker.says("state=stopped")
    async with gate.watch() as watch:
        standings = [s for s in await watch.standings() if PAYROLL_RAW in s.topic]
    assert any(s.decided > s.emitted for s in standings)
    assert not (await look(gate.outside, "payroll")).events
    await worker.stop()
    await _limit(gate, "payroll.committed", 1_048_588)
    await gate.worker()
    await gate.drain()
    await gate.prove()


@pytest.mark.timeout(180)
async def test_rightful_owner_fenced(gate: Gate) -> None:
    """Somebody else takes the transactional id while the group still assigns the partition to this
    worker: it gets a new producer, makes good what is owed, and goes on."""
    await gate.publish()
    worker = await gate.worker()
    await gate.drain()
    for number in range(gate.partitions):
        intruder = AIOKafkaProducer(
            bootstrap_servers=gate.services.bootstrap,
            transactional_id=f"weighbridge/{gate.prefix}{PAYROLL_RAW}/{number}/{GROUP}",
        )
        await intruder.start()
        await intruder.stop()
    await gate.publish()
    await gate.drain()
    assert "Fenced" in worker.text()
    assert await worker.stop() == 0
    await gate.prove()


@pytest.mark.timeout(240)
async def test_database_set_back_under_a_running_worker(gate: Gate) -> None:
    """A database restored from a cold copy knows less than what is emitted: the worker stops with
    exit code 3, leaves a stop mark that stops every other worker too, and emits nothing more."""
    postgres = gate.services.postgres
    await gate.publish()
    worker = await gate.worker()
    await gate.drain()
    copy = gate.folder / "cold-copy"
    await asyncio.to_thread(_cold_copy, postgres, copy)
    await gate.publish()
    await gate.drain()
    before = await look(gate.outside, "payroll")
    await asyncio.to_thread(_set_back, postgres, copy)
    await gate.publish()
    assert await worker.ended() == 3
    assert "set back" in worker.text()
    after = await look(gate.outside, "payroll")
    assert len(after.events) == len(before.events)
    other = await gate.worker()
    assert await other.ended() == 3
    assert len((await look(gate.outside, "payroll")).events) == len(before.events)


def _cold_copy(postgres: EmbeddedPostgres, copy: Path) -> None:
    postgres.stop()
    _copy(postgres.data_dir / CLUSTER, copy)
    postgres.start()


def _set_back(postgres: EmbeddedPostgres, copy: Path) -> None:
    postgres.stop()
    shutil.rmtree(postgres.data_dir / CLUSTER)
    _copy(copy, postgres.data_dir / CLUSTER)
    postgres.start()


def _copy(source: Path, target: Path) -> None:
    """With owners and modes, which PostgreSQL insists on."""
    subprocess.run(["cp", "-a", str(source), str(target)], check=True)  # noqa: S607


@pytest.mark.timeout(240)
@pytest.mark.parametrize("records", [60, 1_200], ids=["shorter", "longer"])
async def test_topic_recreated_under_a_running_worker(gate: Gate, records: int) -> None:
    """A raw topic deleted and created again, shorter or longer than before: its partitions stop
    and say so; no record of the new topic gets a row or an event; the other topic goes on."""
    await gate.publish()
    worker = await gate.worker()
    await gate.drain()
    before = await look(gate.outside, "payroll")
    await gate.recreate(gate.prefix + PAYROLL_RAW)
    await gate.publish(records)
    await worker.says("recreated", deadline_s=90)
    await worker.says("state=stopped", deadline_s=90)
    after = await look(gate.outside, "payroll")
    assert (len(after.ledger), len(after.events)) == (len(before.ledger), len(before.events))
    assert len(after.quarantine) == len(before.quarantine)
    assert worker.running


@pytest.mark.timeout(180)
async def test_the_groups_offset_moved_by_an_operator(gate: Gate) -> None:
    """An offset that somebody moved back while the metadata stayed stops its partition alone, says
    where to put it back to, and is not taken for a database that was set back; put back, all goes
    on and nothing is repeated."""
    await gate.publish()
    worker = await gate.worker()
    await gate.drain()
    await worker.stop()
    topic = gate.prefix + PAYROLL_RAW
    place = TopicPartition(topic, 0)
    admin = AIOKafkaAdminClient(bootstrap_servers=gate.services.bootstrap)
    await admin.start()
    try:
        right = (await admin.list_consumer_group_offsets(GROUP, partitions=[place]))[place]
    finally:
        await admin.close()
    await _commit(gate, place, right.offset - 5, right.metadata)
    await gate.publish(200)
    stopped = await gate.worker()
    await stopped.says(f"Put it back to {right.offset} with metadata")
    assert "set back" not in stopped.text()
    assert stopped.running
    await stopped.stop()
    await _commit(gate, place, right.offset, right.metadata)
    await gate.worker()
    await gate.drain()
    await gate.prove()


async def _commit(gate: Gate, place: TopicPartition, offset: int, metadata: str) -> None:
    """As an operator's tool does: without joining the group."""
    consumer = AIOKafkaConsumer(
        bootstrap_servers=gate.services.bootstrap, group_id=GROUP, enable_auto_commit=False
    )
    await consumer.start()
    try:
        consumer.assign([place])
        await consumer.commit({place: OffsetAndMetadata(offset, metadata)})
    finally:
        await consumer.stop()


@pytest.mark.timeout(120)
async def test_told_to_stop_while_kafka_is_dead(gate: Gate) -> None:
    """SIGTERM ends a worker within its deadlines although no broker answers; what it had decided
    comes out later."""
    await gate.publish()
    worker = await gate.worker(shutdown_deadline_s=5)
    await worker.says("event=batch ")
    await asyncio.to_thread(gate.services.kafka.kill)
    await asyncio.sleep(3)
    worker.send(signal.SIGTERM)
    assert await worker.ended(40) == 0
    await asyncio.to_thread(gate.services.kafka.start)
    await gate.worker()
    await gate.drain()
    await gate.prove()


@pytest.mark.timeout(60)
async def test_started_while_kafka_is_away(gate: Gate) -> None:
    """A worker that cannot reach Kafka at its start says so in one line, exit code 4."""
    worker = await gate.worker(bootstrap="127.0.0.1:1")
    assert await worker.ended(40) == 4
    assert "Traceback" not in worker.text()
    assert "Kafka" in worker.text().splitlines()[-1]
