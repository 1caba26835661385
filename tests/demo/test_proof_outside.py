"""The proof on real topics and tables: it reads only what is committed, and notices tampering."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest
from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, RecordsToDelete

from streams.demo.generate import generate
from streams.demo.plan import RECORDS_MIN
from streams.demo.proof import prove
from streams.demo.publishing import Placed, publish
from streams.demo.reading import look, read_topic
from streams.demo.site import Site
from streams.demo.worker_process import Watch, WorkerProcess
from tests.servers import Database, Services, execute

pytestmark = pytest.mark.slow


def site_of(folder: Path, services: Services, database: Database, topic_prefix: str) -> Site:
    return Site(
        folder,
        services.bootstrap,
        database.worker_dsn,
        database.owner_dsn,
        group=f"{topic_prefix}gate",
        topic_prefix=topic_prefix,
        embedded=False,
    )


async def failed(site: Site, placed: Placed, type_name: str) -> set[str]:
    seen = await look(site.outside, type_name)
    checks = prove(type_name, seen, placed[type_name])
    return {check.name.partition(".")[2] for check in checks if not check.ok}


async def weigh(site: Site) -> Placed:
    """Publish the smallest demo and let a worker decide all of it."""
    await asyncio.to_thread(site.prepare, 50)
    as_of = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
    records = generate(as_of, statements=RECORDS_MIN, dvirs=RECORDS_MIN)
    placed = await publish(site.kafka_bootstrap, site.topic_prefix, records, lambda _: None)
    worker = WorkerProcess(site.folder)
    try:
        async with Watch(site.outside, site.topics) as watch:
            await worker.start()
            while not watch.drained(await watch.standings()):
                worker.check()
                await asyncio.sleep(0.1)
        assert await worker.stop() == 0
    finally:
        await worker.abandon()
    return placed


@asynccontextmanager
async def producer(
    site: Site, transactional_id: str | None = None
) -> AsyncIterator[AIOKafkaProducer]:
    client = AIOKafkaProducer(
        bootstrap_servers=site.kafka_bootstrap, transactional_id=transactional_id
    )
    await client.start()
    try:
        yield client
    finally:
        await client.stop()


async def test_tampering_is_noticed(
    services: Services, database: Database, topic_prefix: str
) -> None:
    """An aborted event does not count; a repeated or missing event, a missing row and a cent do."""
    with tempfile.TemporaryDirectory(prefix="wb-proof-") as folder:
        site = site_of(Path(folder), services, database, topic_prefix)
        placed = await weigh(site)
    assert await failed(site, placed, "payroll") == set()
    assert await failed(site, placed, "dvir") == set()

    committed = f"{topic_prefix}payroll.committed"
    events = [event async for event in read_topic(site.kafka_bootstrap, committed)]
    event = events[0]
    again = {"key": event.key, "headers": list(event.headers), "partition": event.partition}

    async with producer(site, f"{topic_prefix}stranger") as stranger:
        await stranger.begin_transaction()
        await (await stranger.send(committed, event.value, **again))
        await stranger.abort_transaction()
    assert await failed(site, placed, "payroll") == set()

    async with producer(site) as plain:
        await plain.send_and_wait(committed, event.value, **again)
    assert "no_event_twice" in await failed(site, placed, "payroll")

    await _forget_first_events(site, TopicPartition(committed, event.partition), event.offset + 1)
    # The repeated event stands in for the forgotten one: what is wrong now is nothing.
    assert await failed(site, placed, "payroll") == set()
    second = next(e for e in events if e.partition == event.partition and e.offset > event.offset)
    await _forget_first_events(site, TopicPartition(committed, event.partition), second.offset + 1)
    assert await failed(site, placed, "payroll") == {
        "ledger_rows_are_keys_are_events",
        "money_to_the_cent",
        "money_of_each_run",
    }

    await execute(
        database.owner_dsn,
        "ALTER TABLE dvir_ledger DISABLE TRIGGER ALL",
        "DELETE FROM dvir_ledger WHERE key = (SELECT min(key) FROM dvir_ledger)",
    )
    assert await failed(site, placed, "dvir") >= {
        "ledger_rows_are_keys_are_events",
        "keys_are_the_sources",
        "each_record_as_intended",
        "signature_receipts",
    }


async def _forget_first_events(site: Site, place: TopicPartition, before: int) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=site.kafka_bootstrap)
    await admin.start()
    try:
        await admin.delete_records({place: RecordsToDelete(before)})
    finally:
        await admin.close()


async def test_a_cent_in_the_database_is_noticed(
    services: Services, database: Database, topic_prefix: str
) -> None:
    """One cent more in one row of the ledger fails the proof, of the total and of its run."""
    with tempfile.TemporaryDirectory(prefix="wb-proof-") as folder:
        site = site_of(Path(folder), services, database, topic_prefix)
        placed = await weigh(site)
    await execute(
        database.owner_dsn,
        "ALTER TABLE payroll_ledger DISABLE TRIGGER ALL",
        "UPDATE payroll_ledger SET gross_pay = gross_pay + 0.01"
        " WHERE key = (SELECT min(key) FROM payroll_ledger)",
    )
    assert await failed(site, placed, "payroll") == {
        "ledger_rows_are_keys_are_events",
        "money_to_the_cent",
        "money_of_each_run",
    }
