"""A gate whose database is set back to a copy, and the look at what healing made of it."""

from __future__ import annotations

import asyncio
import datetime as dt
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
from aiokafka import TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.records_to_delete import RecordsToDelete

from schemas.verdict_page import Entry, unpack
from tests.cli.command import ROOT, Outcome, environment, finish, start
from tests.faults.gate import GROUP, Gate, Harmed
from tests.servers import execute

CLOCK_OR_PROCESS = {
    "partition_cursor": {"owner_token", "updated_at", "emitted_offset"},
    "payroll_ledger": {"committed_at"},
    "dvir_ledger": {"committed_at"},
    "quarantine": {"quarantined_at"},
}
"""Columns that no event tells."""
OF_PEOPLE = {"operations", "stop_mark"}
BY_BATCH = {"verdict_page"}
TIME_TOLERANCE = dt.timedelta(seconds=10)

Table = list[tuple[object, ...]]


class Past:
    """The database of a gate, and copies of it."""

    def __init__(self, gate: Gate) -> None:
        self.gate = gate
        self.name = gate.database.name
        self.lost = f"{self.name}_lost"
        """What the database was before it was set back, untouched."""
        self.copy = f"{self.name}_copy"

    async def keep(self) -> None:
        """Take a cold copy; no worker may run."""
        await self._admin(f"CREATE DATABASE {self.copy} TEMPLATE {self.name}")

    async def set_back(self) -> None:
        """Put the copy in the place of the database."""
        await self._admin(
            f"ALTER DATABASE {self.name} RENAME TO {self.lost}",
            f"CREATE DATABASE {self.name} TEMPLATE {self.copy}",
        )

    async def set_back_again(self) -> None:
        """The same once more: whatever happened to the database since is undone."""
        await self._admin(
            f"DROP DATABASE {self.name} WITH (FORCE)",
            f"CREATE DATABASE {self.name} TEMPLATE {self.copy}",
        )

    async def drop(self) -> None:
        """Remove the copies."""
        for name in (self.lost, self.copy):
            await self._admin(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")

    async def _admin(self, *statements: str) -> None:
        await execute(self.gate.services.dsn(), *statements)

    async def query(self, database: str, sql: str, *values: object) -> list[Any]:
        """Ask one of the databases as its owner."""
        connection = await asyncpg.connect(self.gate.services.dsn(database))
        try:
            return list(await connection.fetch(sql, *values))
        finally:
            await connection.close()

    async def tables(self, database: str) -> dict[str, Table]:
        """Every row of every table, without what only clock and process tell."""
        names = await self.query(
            database, "SELECT tablename FROM pg_tables WHERE schemaname = 'public' ORDER BY 1"
        )
        found = {}
        for (name,) in names:
            if name in OF_PEOPLE | BY_BATCH:
                continue
            rows = await self.query(database, f"SELECT * FROM {name}")
            left_out = CLOCK_OR_PROCESS.get(name, set())
            found[name] = sorted(
                (tuple(v for k, v in row.items() if k not in left_out) for row in rows), key=repr
            )
        return found

    async def everything(self, database: str) -> dict[str, Table]:
        """Every row of every table, whole: to see that nothing at all has changed."""
        names = await self.query(
            database, "SELECT tablename FROM pg_tables WHERE schemaname = 'public' ORDER BY 1"
        )
        return {
            name: sorted(map(tuple, await self.query(database, f"SELECT * FROM {name}")), key=repr)
            for (name,) in names
        }

    async def verdicts(self, database: str) -> dict[tuple[str, int], list[tuple[Entry, bytes]]]:
        """The entries of all pages in order, with the decision set of their page; pages join up."""
        rows = await self.query(
            database, "SELECT * FROM verdict_page ORDER BY topic, partition, batch_number"
        )
        found: dict[tuple[str, int], list[tuple[Entry, bytes]]] = {}
        ends: dict[tuple[str, int], int] = {}
        for row in rows:
            place = row["topic"], row["partition"]
            assert ends.get(place, row["begin_offset"]) == row["begin_offset"]
            ends[place] = row["next_offset"]
            entries = list(unpack(row["page"]))
            assert len(entries) == row["record_count"]
            found.setdefault(place, []).extend((e, row["decision_set"]) for e in entries)
        return found

    async def assert_healed(self) -> None:
        """The database is as the lost one was, row for row."""
        was, now = await self.tables(self.lost), await self.tables(self.name)
        for name, rows in was.items():
            assert now[name] == rows, name
        assert await self.verdicts(self.name) == await self.verdicts(self.lost)
        for table, column, order in (
            ("payroll_ledger", "committed_at", "key"),
            ("dvir_ledger", "committed_at", "key"),
            ("quarantine", "quarantined_at", "topic, partition, record_offset"),
        ):
            sql = f"SELECT {column} FROM {table} ORDER BY {order}"
            pairs = zip(
                await self.query(self.lost, sql), await self.query(self.name, sql), strict=True
            )
            assert all(abs(one[0] - other[0]) < TIME_TOLERANCE for one, other in pairs)


async def age_out(gate: Gate, topic: str, partition: int, before: int) -> None:
    """Delete records as retention does."""
    admin = AIOKafkaAdminClient(bootstrap_servers=gate.services.bootstrap)
    await admin.start()
    try:
        place = TopicPartition(gate.prefix + topic, partition)
        await admin.delete_records({place: RecordsToDelete(before)})
    finally:
        await admin.close()


@asynccontextmanager
async def past_of(gate: Gate) -> AsyncIterator[Past]:
    """The past of a gate's database; its copies are dropped afterwards."""
    past = Past(gate)
    try:
        yield past
    finally:
        await gate.finish()
        await past.drop()


def _settings(gate: Gate, **settings: object) -> dict[str, object]:
    return {
        "kafka_bootstrap": gate.services.bootstrap,
        "postgres_owner_dsn": gate.database.owner_dsn,
        "postgres_dsn": gate.database.worker_dsn,
        "group": GROUP,
        "topic_prefix": gate.prefix,
        "session_timeout_ms": 6_000,
        "schema_store": gate.folder / "store",
        "operator": "an operator",
        **settings,
    }


async def heal(gate: Gate, *arguments: object, **settings: object) -> Outcome:
    """Run `weighbridge heal`."""
    process = start("heal", *arguments, **_settings(gate, **settings))
    return await asyncio.to_thread(finish, process)


async def harmed_heal(gate: Gate, act: str, nth: int) -> int:
    """Run a heal that kills itself at a point; its exit code."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.faults.acting_heal",
        act,
        str(nth),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        env=environment(**_settings(gate)),
        cwd=ROOT,
        start_new_session=True,
    )
    return await asyncio.wait_for(process.wait(), 60)


async def run_worker_until_drained(gate: Gate) -> None:
    """A worker decides all there is, and ends."""
    worker = await gate.worker()
    await gate.drain()
    assert await worker.stop() == 0


async def stopped(gate: Gate) -> Harmed:
    """A worker that finds the database set back, and ends."""
    worker = await gate.worker()
    assert await worker.ended() == 3
    assert "set back" in worker.text()
    return worker
