"""A gate on real servers that can be harmed, and the look from outside at what it made of it.

Records come from the demo's generator, which knows the truth about each; the look uses plain
clients. So `prove` finds a lost, doubled, altered or misjudged record whatever fault was acted out.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from aiokafka.admin import AIOKafkaAdminClient

from connectors.kafka.settings import KafkaSettings
from connectors.kafka.topics import create_topics
from schemas.record_types import RECORD_TYPES
from streams.demo.encoding import Encoder, schema_store_files
from streams.demo.generate import generate
from streams.demo.made import Made
from streams.demo.proof import prove
from streams.demo.publishing import Placed, publish
from streams.demo.reading import Outside, look
from streams.demo.worker_process import Watch
from tests.cli.command import Outcome, call
from tests.servers import Database, Services

GROUP = "gate"
SESSION_TIMEOUT_MS = 6_000
DRAIN_DEADLINE_S = 90.0
POLL_S = 0.1
SEED = 20_261_130
STATEMENTS, DVIRS = 1_500, 500


def make_stock(seed: int, statements: int = STATEMENTS, dvirs: int = DVIRS) -> list[Made]:
    """Generated records with every reason, duplicates and collisions among them."""
    as_of = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
    return list(generate(as_of, seed=seed, statements=statements, dvirs=dvirs))


class Harmed:
    """A worker process: the real command, or one that harms itself at a point."""

    def __init__(self, process: asyncio.subprocess.Process, log: Path) -> None:
        self.process = process
        self.log = log

    @property
    def running(self) -> bool:
        """Whether it has not ended."""
        return self.process.returncode is None

    def send(self, number: signal.Signals) -> None:
        """Send it a signal."""
        self.process.send_signal(number)

    async def acted(self, deadline_s: float = 60.0) -> None:
        """Wait until it has harmed itself."""
        await until(lambda: "acting" in self.text(), deadline_s, f"no act; log: {self.text()}")

    async def ended(self, deadline_s: float = 60.0) -> int:
        """Wait for its end; the exit code."""
        return await asyncio.wait_for(self.process.wait(), deadline_s)

    async def stop(self) -> int:
        """SIGTERM; the exit code."""
        self.send(signal.SIGTERM)
        return await self.ended()

    async def says(self, words: str, deadline_s: float = 60.0) -> None:
        """Wait until its log contains these words."""
        await until(lambda: words in self.text(), deadline_s, f"{words!r} not in: {self.text()}")

    def text(self) -> str:
        """Its log so far."""
        return self.log.read_text(encoding="utf-8", errors="replace")

    async def finish(self) -> None:
        """Whatever state it is in: end it."""
        if self.running:
            self.process.kill()
            await self.process.wait()


async def until(condition: Callable[[], bool], deadline_s: float, otherwise: str) -> None:
    """Poll a condition; fails with `otherwise` past the deadline."""
    ends_s = time.monotonic() + deadline_s
    while not condition():
        if time.monotonic() > ends_s:
            raise AssertionError(otherwise)
        await asyncio.sleep(POLL_S)


@dataclass
class Gate:
    """Topics, a database and workers of one test."""

    services: Services
    database: Database
    prefix: str
    folder: Path
    partitions: int = 2
    batch_records: int = 40
    stock: list[Made] = field(default_factory=lambda: make_stock(seed=SEED))
    """Records to publish, in this order: the truth about one depends on those before it."""
    placed: Placed = field(default_factory=dict)
    workers: list[Harmed] = field(default_factory=list)

    @property
    def kafka(self) -> KafkaSettings:
        """How tests reach this gate's topics."""
        return KafkaSettings(
            bootstrap=self.services.bootstrap, group=GROUP, topic_prefix=self.prefix
        )

    @property
    def outside(self) -> Outside:
        """Where to look."""
        return Outside(self.services.bootstrap, self.database.owner_dsn, GROUP, self.prefix)

    @property
    def topics(self) -> list[str]:
        """The raw topics."""
        return [self.prefix + t.raw_topic for t in RECORD_TYPES.values()]

    async def prepare(self) -> None:
        """Create topics and the schema store."""
        types = list(RECORD_TYPES.values())
        await create_topics(self.kafka, types, partitions=self.partitions, replication=1)
        store = self.folder / "store"
        store.mkdir()
        encoders = {name: Encoder(name) for name in ("payroll", "dvir")}
        for name, content in schema_store_files(encoders).items():
            (store / name).write_text(content, encoding="utf-8")

    async def publish(self, count: int = 450) -> None:
        """Publish the next records of the stock, each acknowledged."""
        part = self.stock[:count]
        assert len(part) == count, "the stock of records is used up"
        placed = await publish(self.services.bootstrap, self.prefix, part, lambda _: None)
        self.stock = self.stock[count:]
        for name, places in placed.items():
            self.placed.setdefault(name, {}).update(places)

    async def worker(
        self,
        act: str | None = None,
        nth: int = 1,
        *,
        dsn: str | None = None,
        bootstrap: str | None = None,
        options: Sequence[str] = (),
        **settings: object,
    ) -> Harmed:
        """Start a worker; with `act`, one that harms itself (see `acting_worker`)."""
        environment = {k: v for k, v in os.environ.items() if not k.startswith("WEIGHBRIDGE_")}
        given: dict[str, object] = {
            **self.settings,
            "kafka_bootstrap": bootstrap or self.services.bootstrap,
            "postgres_dsn": dsn or self.database.worker_dsn,
            "session_timeout_ms": SESSION_TIMEOUT_MS,
            "batch_records": self.batch_records,
            "batch_deadline_s": 6.0,
            "transaction_timeout_ms": 8_000,
            "schema_store": self.folder / "store",
            "http_port": 0,
            **settings,
        }
        environment |= {f"WEIGHBRIDGE_{k.upper()}": str(v) for k, v in given.items()}
        module = "streams.cli" if act is None else "tests.faults.acting_worker"
        arguments = ["worker"] if act is None else [act, str(nth)]
        arguments += options
        log = self.folder / f"worker-{len(self.workers)}.log"
        with log.open("ab") as output:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                module,
                *arguments,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=environment,
                cwd=Path(__file__).parents[2],
                start_new_session=True,
            )
        worker = Harmed(process, log)
        self.workers.append(worker)
        return worker

    @property
    def settings(self) -> dict[str, object]:
        """What leads commands to this gate."""
        return {
            "kafka_bootstrap": self.services.bootstrap,
            "postgres_dsn": self.database.worker_dsn,
            "postgres_operator_dsn": self.database.operator_dsn,
            "group": GROUP,
            "topic_prefix": self.prefix,
        }

    async def command(self, *arguments: object) -> Outcome:
        """Run a command of an operator here, as a process of its own."""
        return await asyncio.to_thread(partial(call, *arguments, operator="pat", **self.settings))

    async def recreate(self, topic: str) -> None:
        """Delete a topic and create it again."""
        admin = AIOKafkaAdminClient(bootstrap_servers=self.services.bootstrap)
        await admin.start()
        try:
            await admin.delete_topics([topic])
            while (await admin.describe_topics([topic]))[0]["error_code"] == 0:  # noqa: ASYNC110
                await asyncio.sleep(0.1)
            types = list(RECORD_TYPES.values())  # with our retention: the stock's records are old
            await create_topics(self.kafka, types, partitions=self.partitions, replication=1)
            while (await admin.describe_topics([topic]))[0]["error_code"] != 0:  # noqa: ASYNC110
                await asyncio.sleep(0.1)
        finally:
            await admin.close()

    @asynccontextmanager
    async def watch(self) -> AsyncIterator[Watch]:
        """Both cursors, from outside."""
        async with Watch(self.outside, self.topics) as watch:
            yield watch

    async def drain(self, deadline_s: float = DRAIN_DEADLINE_S) -> None:
        """Wait until everything published is decided and its events are emitted."""
        ends_s = time.monotonic() + deadline_s
        async with self.watch() as watch:
            while not watch.drained(standings := await watch.standings()):
                if time.monotonic() > ends_s:
                    logs = "\n".join(w.text()[-3000:] for w in self.workers)
                    message = f"not drained in {deadline_s} s: {standings}\n{logs}"
                    raise AssertionError(message)
                await asyncio.sleep(POLL_S)

    async def decided(self) -> int:
        """Records with a durable verdict."""
        async with self.watch() as watch:
            return await watch.records_in()

    async def prove(self) -> None:
        """G1, G2 and G3, read from topics and tables; and each verdict as intended."""
        failed = []
        for name in RECORD_TYPES:
            seen = await look(self.outside, name)
            failed += [c for c in prove(name, seen, self.placed.get(name, {})) if not c.ok]
        assert not failed, json.dumps([f"{c.name}: {c.expected} / {c.found}" for c in failed])

    async def finish(self) -> None:
        """End what still runs."""
        for worker in self.workers:
            await worker.finish()
