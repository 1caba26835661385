"""From settings to parts: the one place that chooses implementations for the ports."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from connectors.embedded.services import find_running
from connectors.errors import ConfigurationError
from connectors.kafka.emitter import EmitterFactory
from connectors.kafka.settings import KafkaSettings
from connectors.kafka.source import KafkaSource
from connectors.ports import SchemaStore
from connectors.postgres.ledger import PostgresLedger
from connectors.postgres.migrate import check_migrated
from connectors.postgres.pool import Pool, PoolSettings
from connectors.schema_store import FileSchemaStore, NoSchemaStore
from schemas.record_type import RecordType
from schemas.record_types import RECORD_TYPES
from streams.app import TypePorts, WorkerParts
from streams.observer import Observer
from streams.partition import PartitionSettings
from streams.settings import Settings

WORKER_ROLE = "weighbridge_worker"
"""The role that migrations create for workers."""


@dataclass(frozen=True, slots=True)
class Endpoints:
    """Where Kafka and PostgreSQL are."""

    kafka_bootstrap: str
    worker_dsn: str
    owner_dsn: str | None


def endpoints(settings: Settings) -> Endpoints:
    """Configured services, else the embedded ones that `weighbridge dev` runs on this machine.

    Raises `ConfigurationError` saying what to set when there are neither.
    """
    configured = settings.kafka_bootstrap, settings.postgres_dsn
    owner = settings.postgres_owner_dsn.get_secret_value() if settings.postgres_owner_dsn else None
    if configured[0] is not None and configured[1] is not None:
        return Endpoints(configured[0], configured[1].get_secret_value(), owner)
    embedded = find_running(settings.data_dir)
    if embedded is None:
        message = (
            "no Kafka and PostgreSQL: set WEIGHBRIDGE_KAFKA_BOOTSTRAP and WEIGHBRIDGE_POSTGRES_DSN "
            "(or --kafka and --postgres), or run `weighbridge dev` in another terminal"
        )
        raise ConfigurationError(message)
    return Endpoints(
        configured[0] or embedded.bootstrap,
        configured[1].get_secret_value() if configured[1] else embedded.dsn(user=WORKER_ROLE),
        owner or embedded.dsn(),
    )


def kafka_settings(settings: Settings) -> KafkaSettings:
    """The Kafka connector's view of the settings."""
    return KafkaSettings(
        bootstrap=endpoints(settings).kafka_bootstrap,
        group=settings.group,
        topic_prefix=settings.topic_prefix,
        session_timeout_ms=settings.session_timeout_ms,
        transaction_timeout_ms=settings.transaction_timeout_ms,
        batch_records_max=settings.batch_records,
        batch_bytes_max=settings.batch_bytes,
        batch_linger_ms=settings.batch_linger_ms,
    )


def schema_store(folder: Path | None) -> SchemaStore:
    """The file-backed store, or one that knows no schema at all."""
    return FileSchemaStore(folder) if folder is not None else NoSchemaStore()


@asynccontextmanager
async def worker_parts(
    settings: Settings,
    observer: Observer,
    record_types: Callable[[], list[RecordType]] | None = None,
) -> AsyncIterator[WorkerParts]:
    """Everything a worker is put together from; what was opened is closed at the end."""
    kafka = kafka_settings(settings)
    types = record_types() if record_types is not None else list(RECORD_TYPES.values())
    async with AsyncExitStack() as stack:
        pool = await stack.enter_async_context(
            Pool(
                PoolSettings(
                    dsn=endpoints(settings).worker_dsn,
                    pool_size=settings.pool_size,
                    batch_deadline_s=settings.batch_deadline_s,
                    statement_cache_size=settings.statement_cache_size,
                )
            )
        )
        await check_migrated(pool)
        emitters = await stack.enter_async_context(EmitterFactory(kafka))
        yield WorkerParts(
            source=KafkaSource(kafka),
            types={
                kafka.topic(t.raw_topic): TypePorts(
                    t, kafka.topic(t.raw_topic), PostgresLedger(pool, t)
                )
                for t in types
            },
            make_emitter=emitters.emitter,
            schema_store=schema_store(settings.schema_store),
            observer=observer,
            group=settings.group,
            control_topic=kafka.control_topic,
            kafka_bootstrap=kafka.bootstrap,
            concurrency=settings.concurrency,
            shutdown_deadline_s=settings.shutdown_deadline_s,
            partition=PartitionSettings(step_deadline_s=settings.batch_deadline_s + 15.0),
        )
