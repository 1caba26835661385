"""The gate as a process of its own: started, killed, told to stop, watched from outside."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import asyncpg
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaError

from connectors.embedded.processes import end_leftovers, tail
from connectors.errors import Stop, WeighbridgeError
from streams.demo.reading import Outside

STOP_DEADLINE_S = 30.0
CONFIG_FILE = "weighbridge.toml"
LOG_FILE = "worker.log"
OWED = '"emitting_owed"'
"""What the worker logs when it emits what a batch before the crash has settled (step (c))."""


class WorkerEnded(WeighbridgeError):
    """The worker ended although nobody told it to; the message shows the end of its log."""


class WorkerProcess:
    """`weighbridge worker` on the configuration file of `folder`, its log beside it."""

    def __init__(self, folder: Path) -> None:
        self.config = folder / CONFIG_FILE
        self.log = folder / LOG_FILE
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        """Start it in a session of its own: Ctrl-C reaches only the demo, which stops it."""
        # Settings come from the file alone: the environment would win over it.
        environment = {k: v for k, v in os.environ.items() if not k.startswith("WEIGHBRIDGE_")}
        command = [sys.executable, "-m", "streams.cli", "worker", "--config", str(self.config)]
        with self.log.open("ab") as output:
            self._process = await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=environment,
                start_new_session=True,
            )

    async def kill(self) -> int:
        """SIGKILL: no goodbye to anybody. Returns the process id that was."""
        process = self._running()
        process.kill()
        await process.wait()
        self._process = None
        return process.pid

    async def stop(self) -> int:
        """SIGTERM, and the exit code it ends with. Raises `Stop` past the deadline."""
        process = self._running()
        process.send_signal(signal.SIGTERM)
        try:
            code = await asyncio.wait_for(process.wait(), STOP_DEADLINE_S)
        except TimeoutError:
            message = f"the worker did not stop within {STOP_DEADLINE_S:.0f} s\n{tail(self.log)}"
            raise Stop(message) from None
        self._process = None
        return code

    @property
    def owed_partitions(self) -> int:
        """How often an assignment found durable verdicts whose events were not out, by its log."""
        return self.log.read_text(encoding="utf-8", errors="replace").count(OWED)

    def check(self) -> None:
        """Raises `WorkerEnded` unless it runs."""
        self._running()

    def _running(self) -> asyncio.subprocess.Process:
        process = self._process
        if process is None or process.returncode is not None:
            code = "unknown" if process is None else process.returncode
            message = f"the worker ended by itself (exit code {code})\n{tail(self.log)}"
            raise WorkerEnded(message)
        return process

    async def abandon(self) -> None:
        """Whatever happened: it does not run afterwards."""
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            await self._process.wait()
        self._process = None


def end_left_worker(folder: Path) -> int:
    """End a worker that a demo killed in this folder has left; how many there were."""
    return end_leftovers(folder / "worker", str(folder / CONFIG_FILE), signal.SIGTERM)


@dataclass(frozen=True, slots=True)
class Standing:
    """How far the gate is in one raw partition."""

    topic: str
    partition: int
    decided: int
    """Offset up to which verdicts are durable in PostgreSQL."""
    emitted: int
    """Offset up to which events are committed in Kafka."""
    records_in: int


class Watch:
    """Looks at both cursors from outside, with clients of its own."""

    def __init__(self, outside: Outside, topics: Collection[str]) -> None:
        self._outside = outside
        self._topics = tuple(topics)
        self._admin = AIOKafkaAdminClient(bootstrap_servers=outside.kafka_bootstrap)
        self._connection: asyncpg.Connection | None = None
        self.ends: Mapping[TopicPartition, int] = {}
        """End of each raw partition, read once after everything was published."""

    async def __aenter__(self) -> Self:
        await self._admin.start()
        self._connection = await asyncpg.connect(self._outside.dsn)
        self.ends = await self._read_ends()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._admin.close()
        if self._connection is not None:
            self._connection.terminate()

    async def _read_ends(self) -> Mapping[TopicPartition, int]:
        consumer = AIOKafkaConsumer(
            *self._topics,
            bootstrap_servers=self._outside.kafka_bootstrap,
            isolation_level="read_committed",
        )
        try:
            await consumer.start()
            partitions = sorted(consumer.assignment())
            found: Mapping[TopicPartition, int] = await consumer.end_offsets(partitions)
        finally:
            await consumer.stop()
        return found

    async def records_in(self) -> int:
        """Records with a durable verdict so far. Cheap: for a progress bar."""
        return sum(standing[2] for standing in (await self._decided()).values())

    async def standings(self) -> list[Standing]:
        """Both cursors of every partition. A partition without one stands at 0."""
        decided = await self._decided()
        try:
            emitted = await self._admin.list_consumer_group_offsets(
                self._outside.group, partitions=list(self.ends)
            )
        except KafkaError as error:
            if not error.retriable:
                raise
            emitted = {}  # a fresh broker has no group coordinator yet, so nothing is emitted
        found = []
        for place in sorted(self.ends):
            _, next_offset, records_in = decided.get((place.topic, place.partition), (0, 0, 0))
            offset = emitted[place].offset if place in emitted else 0
            found.append(
                Standing(place.topic, place.partition, next_offset, max(0, offset), records_in)
            )
        return found

    def drained(self, standings: Collection[Standing]) -> bool:
        """Whether everything published is decided and its events are emitted."""
        ends = {(place.topic, place.partition): end for place, end in self.ends.items()}
        return all(min(s.decided, s.emitted) >= ends[s.topic, s.partition] for s in standings)

    async def _decided(self) -> dict[tuple[str, int], tuple[int, int, int]]:
        connection = self._connection
        if connection is None:
            return {}
        rows = await connection.fetch(
            "SELECT topic, partition, next_offset, records_in FROM partition_cursor"
            " WHERE consumer_group = $1",
            self._outside.group,
        )
        return {
            (row["topic"], row["partition"]): (
                row["partition"],
                row["next_offset"],
                row["records_in"],
            )
            for row in rows
        }
