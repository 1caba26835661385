"""Scorer processes on real Kafka, fed with committed events as the gate emits them."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient

from connectors.kafka.settings import KafkaSettings
from connectors.kafka.topics import create_topics
from schemas.record_types import RECORD_TYPES
from tests.inspections import committed

PARTITIONS = 2
SESSION_TIMEOUT_MS = 6_000
DEADLINE_S = 60.0
POLL_S = 0.1


def _free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
    return port


@dataclass
class Scorer:
    """One worker process."""

    process: asyncio.subprocess.Process
    port: int
    log: Path

    def text(self) -> str:
        """Its log so far."""
        return self.log.read_text(encoding="utf-8", errors="replace")

    async def ended(self) -> int:
        """Wait for its end; the exit code."""
        return await asyncio.wait_for(self.process.wait(), DEADLINE_S)

    async def kill(self) -> None:
        """SIGKILL."""
        self.process.kill()
        await self.process.wait()

    async def stop(self) -> int:
        """SIGTERM; the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return await self.ended()

    async def page(self, unit: str) -> tuple[int, dict[str, Any]]:
        """Status and body of a unit's page; 0 while nobody answers."""
        with suppress(aiohttp.ClientError, OSError):
            url = f"http://127.0.0.1:{self.port}/score/{unit}/"
            async with aiohttp.ClientSession() as session, session.get(url) as answer:
                body = await answer.json() if answer.content_type.endswith("json") else {}
                return answer.status, body
        return 0, {}

    async def until(self, expected: Mapping[str, str], deadline_s: float = DEADLINE_S) -> None:
        """Wait until the units have these scores here."""
        ends_s = time.monotonic() + deadline_s
        found: dict[str, object] = {}
        while found != expected:
            if time.monotonic() > ends_s:
                message = f"{found}, not {expected}; log:\n{self.text()[-6000:]}"
                raise AssertionError(message)
            await asyncio.sleep(POLL_S)
            found = {unit: (await self.page(unit))[1].get("value") for unit in expected}


@dataclass
class Site:
    """The topics of one test, and the scorers that read them."""

    bootstrap: str
    prefix: str
    folder: Path
    scorers: list[Scorer] = field(default_factory=list)
    offset: int = 0

    @property
    def kafka(self) -> KafkaSettings:
        """How tests reach these topics."""
        return KafkaSettings(self.bootstrap, topic_prefix=self.prefix)

    @property
    def topic(self) -> str:
        """The topic of committed reports."""
        return self.prefix + RECORD_TYPES["dvir"].committed_topic

    @property
    def group(self) -> str:
        """The scorers' group."""
        return f"{self.prefix}weighbridge-scorer"

    async def prepare(self) -> None:
        """Create the gate's topics; a scorer makes its own."""
        types = [RECORD_TYPES["dvir"]]
        await create_topics(self.kafka, types, partitions=PARTITIONS, replication=1)

    def events(self, records: Sequence[Mapping[str, Any]]) -> list[tuple[bytes, bytes, bytes]]:
        """Key, value and event id of each."""
        found = []
        for record in records:
            accepted = committed(record, self.offset)
            event_id = f"dvir.raw/1/0/{self.offset}".encode()
            found.append((accepted.event_key, accepted.event_value, event_id))
            self.offset += 1
        return found

    async def emit(
        self,
        events: Sequence[tuple[bytes, bytes, bytes]],
        *,
        partition: int = 0,
        abort: bool = False,
        fast: bool = False,
    ) -> None:
        """Emit events in one transaction, as the gate does; with `abort`, abort it at the end;
        with `fast`, many of them in one request."""
        client = AIOKafkaProducer(
            bootstrap_servers=self.bootstrap, transactional_id=f"{self.prefix}gate"
        )
        await client.start()
        try:
            await client.begin_transaction()
            for key, value, event_id in events:
                headers = [("wb-event-id", event_id)]
                sent = await client.send(self.topic, value, key, partition, headers=headers)
                if not fast:
                    await sent
            await (client.abort_transaction() if abort else client.commit_transaction())
        finally:
            await client.stop()

    async def scorer(self, **settings: object) -> Scorer:
        """Start a worker as the documentation says."""
        environment = {k: v for k, v in os.environ.items() if not k.startswith("WEIGHBRIDGE_")}
        port = _free_port()
        given: dict[str, object] = {
            "kafka_bootstrap": self.bootstrap,
            "topic_prefix": self.prefix,
            "partitions": PARTITIONS,
            "session_timeout_ms": SESSION_TIMEOUT_MS,
            "scorer_http_port": port,
            **settings,
        }
        environment |= {f"WEIGHBRIDGE_{k.upper()}": str(v) for k, v in given.items()}
        log = self.folder / f"scorer-{len(self.scorers)}.log"
        with log.open("ab") as output:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "streams.scorer",
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=environment,
                cwd=Path(__file__).parents[2],
                start_new_session=True,
            )
        scorer = Scorer(process, port, log)
        self.scorers.append(scorer)
        return scorer

    async def offsets(self) -> dict[int, int]:
        """The group's committed offset in each partition of the committed topic."""
        admin = AIOKafkaAdminClient(bootstrap_servers=self.bootstrap)
        await admin.start()
        try:
            places = [TopicPartition(self.topic, n) for n in range(PARTITIONS)]
            found = await admin.list_consumer_group_offsets(self.group, partitions=places)
        finally:
            await admin.close()
        return {place.partition: one.offset for place, one in found.items()}

    async def until_offset(self, partition: int, expected: int) -> None:
        """Wait until the group has committed just that offset."""
        ends_s = time.monotonic() + DEADLINE_S
        while (found := (await self.offsets())[partition]) != expected:
            assert time.monotonic() < ends_s, f"committed {found}, not {expected}"
            await asyncio.sleep(POLL_S)

    async def finish(self) -> None:
        """End what still runs."""
        for scorer in self.scorers:
            if scorer.process.returncode is None:
                await scorer.kill()
