"""What the tests of the stream share: records of their own, and looks at tables and health."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import aiohttp
import asyncpg
from aiokafka import AIOKafkaProducer, ConsumerRecord

from schemas.envelope import Headers
from schemas.reasons import Reason
from schemas.verdict import Verdict
from streams.demo.made import Truth, payroll_key
from streams.demo.reading import read_topic
from tests.faults.gate import Gate, Harmed

READY_DEADLINE_S = 45.0


def statement(employee_id: str = "A10042", **changes: object) -> dict[str, Any]:
    """A payroll statement that keeps its contract."""
    return {
        "employee_id": employee_id,
        "pay_period_start": "2026-10-19",
        "pay_period_end": "2026-11-01",
        "source_run_id": "acme-hris/001/R2026-22",
        "gross_pay": "2307.69",
        "tax_jurisdiction": "US-OH:columbus",
        **changes,
    }


def report(key: str, **changes: object) -> dict[str, Any]:
    """A DVIR that keeps its contract; send it without a timestamp far from its own."""
    return {
        "idempotency_key": key,
        "inspected_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "inspection_type": "post_trip",
        "driver_id": "D-7",
        "units": [{"role": "power_unit", "vin": "1M8GDM9AXKP042788"}],
        "condition": "safe",
        "certification": {"by": "D-7", "at": "2026-11-03T11:42:09Z", "method": "drawn"},
        **changes,
    }


def committed(members: Mapping[str, Any]) -> Truth:
    """The truth about a statement, or report, that commits."""
    if "employee_id" in members:
        cents = int(Decimal(str(members["gross_pay"])) * 100)
        identity, run = payroll_key(members), str(members["source_run_id"])
        return Truth(Verdict.COMMITTED, identity=identity, run=run, cents=cents)
    receipts = len(members.get("signatures", ()))
    return Truth(Verdict.COMMITTED, identity=members["idempotency_key"], receipts=receipts)


def turned_away(reason: Reason) -> Truth:
    """The truth about a record that does not."""
    return Truth(Verdict.QUARANTINED, reason)


@dataclass(frozen=True, slots=True)
class Sent:
    """A record to send, and what must become of it; None where that is settled by a race."""

    value: object
    """Bytes, None, or members to be written as JSON."""
    truth: Truth | None
    partition: int = 0
    key: bytes | None = None
    headers: Headers = ()


def _bytes(value: object) -> bytes | None:
    return value if value is None or isinstance(value, bytes) else json.dumps(value).encode()


@asynccontextmanager
async def producer(gate: Gate, **options: object) -> AsyncIterator[AIOKafkaProducer]:
    """aiokafka's own producer."""
    client = AIOKafkaProducer(
        bootstrap_servers=gate.services.bootstrap,
        acks="all",
        max_request_size=2_000_000,
        **options,
    )
    await client.start()
    try:
        yield client
    finally:
        await client.stop()


async def send(gate: Gate, type_name: str, records: Iterable[Sent]) -> list[int]:
    """Send records in order, each acknowledged; their offsets. Truths go to the gate's."""
    records = list(records)
    async with producer(gate, linger_ms=5) as client:
        futures = [
            await client.send(
                f"{gate.prefix}{type_name}.raw",
                _bytes(one.value),
                key=one.key,
                partition=one.partition,
                headers=list(one.headers),
            )
            for one in records
        ]
        offsets = [(await future).offset for future in futures]
    truths = gate.placed.setdefault(type_name, {})
    for one, offset in zip(records, offsets, strict=True):
        if one.truth is not None:
            truths[one.partition, offset] = one.truth
    return offsets


async def query(gate: Gate, sql: str, *values: object) -> list[Any]:
    """Ask the database as its owner."""
    connection = await asyncpg.connect(gate.database.owner_dsn)
    try:
        rows: list[Any] = await connection.fetch(sql, *values)
    finally:
        await connection.close()
    return rows


async def events(gate: Gate, topic: str) -> list[ConsumerRecord]:
    """What a `read_committed` reader finds in one of the gate's topics."""
    return [r async for r in read_topic(gate.services.bootstrap, gate.prefix + topic)]


async def port(worker: Harmed) -> int:
    """Where a worker's health server listens; known from its log."""
    await worker.says("worker_started")
    match = re.search(r"http=[^ ]*:(\d+)", worker.text())
    assert match, worker.text()
    return int(match.group(1))


async def fetch(worker: Harmed, path: str) -> tuple[int, str]:
    """Status and body of a request to a worker's health server."""
    url = f"http://127.0.0.1:{await port(worker)}{path}"
    async with aiohttp.ClientSession() as session, session.get(url) as response:
        return response.status, await response.text()


async def until_ready(worker: Harmed, *, ready: bool) -> list[str]:
    """Wait until /ready says so; the causes it names."""
    ends_s = time.monotonic() + READY_DEADLINE_S
    while True:
        status, body = await fetch(worker, "/ready")
        causes: list[str] = json.loads(body)["causes"]
        if (status == 200) is ready:
            assert ready is not bool(causes)
            return causes
        if time.monotonic() > ends_s:
            message = f"/ready did not become {ready}: {body}\n{worker.text()[-3000:]}"
            raise AssertionError(message)
        await asyncio.sleep(0.2)
