"""The same world as `worlds.MemoryWorld`, on real Kafka and PostgreSQL, seen from outside."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import asyncpg
from aiokafka import AIOKafkaProducer

from connectors.kafka.admin import KafkaAdmin
from connectors.kafka.emitter import EmitterFactory
from connectors.kafka.log import KafkaLog
from connectors.kafka.settings import KafkaSettings
from connectors.kafka.topics import create_topics
from connectors.memory import MemorySchemaStore
from connectors.ports import Counts, LogRange
from connectors.postgres.ledger import PostgresLedger
from connectors.postgres.pool import Pool, PoolSettings
from schemas.envelope import RawRecord, Record
from schemas.quarantine import QUARANTINE_COLUMNS
from schemas.record_type import RecordType
from schemas.verdict import Event
from streams.assignment import Ports
from streams.demo.reading import read_topic
from streams.metrics import Metrics
from streams.observer import Observer
from tests.protocol.worlds import GROUP, Outside
from tests.servers import Database, Services


class Log:
    """`LogReader` without a consumer: nothing here reads on, so seeking does nothing."""

    def __init__(self, settings: KafkaSettings) -> None:
        self._admin = KafkaAdmin(settings)
        self._log = KafkaLog(settings)

    async def cluster_id(self) -> str:
        return await self._admin.cluster_id()

    async def log_range(self, topic: str, partition: int) -> LogRange:
        return await self._log.log_range(topic, partition)

    async def read_record(self, topic: str, partition: int, offset: int) -> RawRecord | None:
        return await self._log.read_record(topic, partition, offset)

    def seek(
        self, topic: str, partition: int, offset: int, aside: frozenset[int] = frozenset()
    ) -> None:
        """Nothing to move."""

    async def close(self) -> None:
        await self._admin.close()
        await self._log.close()


class RealWorld:
    """One raw partition with its ledger and outputs on real servers."""

    def __init__(
        self,
        record_type: RecordType,
        settings: KafkaSettings,
        pool: Pool,
        emitters: EmitterFactory,
        owner_dsn: str,
    ) -> None:
        self.schemas = MemorySchemaStore()
        self.topic = settings.topic(record_type.raw_topic)
        self.fatal: list[BaseException] = []
        self.log = Log(settings)
        self._settings = settings
        self._owner_dsn = owner_dsn
        self.ports = Ports(
            record_type=record_type,
            ledger=PostgresLedger(pool, record_type),
            log=self.log,
            make_emitter=lambda s: emitters.emitter(record_type, s),
            group=GROUP,
            observer=Observer(Metrics(), self.fatal.append),
        )

    async def publish(self, records: Sequence[Record]) -> Sequence[RawRecord]:
        """Publish, and read back with an independent consumer."""
        producer = AIOKafkaProducer(bootstrap_servers=self._settings.bootstrap, acks="all")
        await producer.start()
        try:
            for record in records:
                await producer.send_and_wait(
                    self.topic,
                    record.value,
                    key=record.key or b"none",
                    partition=0,
                    timestamp_ms=record.timestamp,
                    headers=list(record.headers),
                )
        finally:
            await producer.stop()
        return [record async for record in read_topic(self._settings.bootstrap, self.topic)]

    async def outside(self) -> Outside:
        """Tables by SQL, topics with `read_committed`."""
        record_type = self.ports.record_type
        connection = await asyncpg.connect(self._owner_dsn)
        try:
            ledger = await connection.fetch(
                f"SELECT {', '.join(record_type.ledger_columns)} FROM {record_type.ledger_table}"
                " ORDER BY record_offset"
            )
            quarantine = await connection.fetch(
                f"SELECT {', '.join(QUARANTINE_COLUMNS)} FROM quarantine ORDER BY record_offset"
            )
            cursor = await connection.fetchrow("SELECT * FROM partition_cursor")
        finally:
            await connection.close()
        async with KafkaAdmin(self._settings) as admin:
            emitted = await admin.committed(GROUP, self.topic, 0)
        return Outside(
            ledger=[tuple(row) for row in ledger],
            receipts=[],
            quarantine=[tuple(row) for row in quarantine],
            committed_events=await self._events(record_type.committed_topic),
            quarantine_events=await self._events(record_type.quarantine_topic),
            counts=Counts(
                cursor["records_in"],
                cursor["committed"],
                cursor["duplicate"],
                cursor["quarantined"],
            ),
            decided=cursor["next_offset"],
            emitted=-1 if emitted is None else emitted.next_offset,
        )

    async def _events(self, topic: str) -> list[Event]:
        found = read_topic(self._settings.bootstrap, self._settings.topic(topic))
        return [Event(r.key, r.value, tuple(r.headers)) async for r in found]


@asynccontextmanager
async def real_world(
    record_type: RecordType, services: Services, database: Database, prefix: str
) -> AsyncIterator[RealWorld]:
    """A fresh world: topics under a prefix, an empty database."""
    settings = KafkaSettings(bootstrap=services.bootstrap, group=GROUP, topic_prefix=prefix)
    await create_topics(settings, [record_type], partitions=1, replication=1)
    pool_settings = PoolSettings(dsn=database.worker_dsn, pool_size=2)
    async with Pool(pool_settings) as pool, EmitterFactory(settings) as emitters:
        world = RealWorld(record_type, settings, pool, emitters, database.owner_dsn)
        try:
            yield world
        finally:
            await world.log.close()
