"""From settings to parts: the one place that chooses implementations for the ports."""

from __future__ import annotations

import getpass
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from connectors.embedded.services import RunningServices, find_running
from connectors.errors import ConfigurationError
from connectors.kafka.emitter import EmitterFactory
from connectors.kafka.settings import KafkaSettings
from connectors.kafka.source import KafkaSource
from connectors.ports import SchemaStore
from connectors.postgres.ledger import PostgresLedger
from connectors.postgres.migrate import check_migrated
from connectors.postgres.pool import Pool, PoolSettings
from connectors.schema_store import FileSchemaStore, NoSchemaStore
from schemas.record_types import RECORD_TYPES
from streams.app import TypePorts, WorkerParts
from streams.breaker import BreakerPolicy
from streams.observer import Observer
from streams.partition import PartitionSettings
from streams.settings import Settings

WORKER_ROLE = "weighbridge_worker"
"""The role that migrations create for workers."""
OPERATOR_ROLE = "weighbridge_operator"
"""The role that migrations create for people who act."""


def kafka_bootstrap(settings: Settings) -> str:
    """Configured brokers, else the embedded one that `weighbridge dev` runs on this machine.

    Raises `ConfigurationError` saying what to set when there is neither.
    """
    if settings.kafka_bootstrap is not None:
        return settings.kafka_bootstrap
    return _embedded(settings, "Kafka", "WEIGHBRIDGE_KAFKA_BOOTSTRAP (or --kafka)").bootstrap


def worker_dsn(settings: Settings) -> str:
    """The same for PostgreSQL as the worker's role."""
    if settings.postgres_dsn is not None:
        return settings.postgres_dsn.get_secret_value()
    embedded = _embedded(settings, "PostgreSQL", "WEIGHBRIDGE_POSTGRES_DSN (or --postgres)")
    return embedded.dsn(user=WORKER_ROLE)


def owner_dsn(settings: Settings) -> str:
    """The same for PostgreSQL as the schema's owner. The embedded one is no stand-in where another
    PostgreSQL is configured."""
    if settings.postgres_owner_dsn is not None:
        return settings.postgres_owner_dsn.get_secret_value()
    hint = "WEIGHBRIDGE_POSTGRES_OWNER_DSN (or --owner)"
    if settings.postgres_dsn is not None:
        message = f"only the schema's owner can do this: set {hint}"
        raise ConfigurationError(message)
    return _embedded(settings, "owner of PostgreSQL", hint).dsn()


def operator_dsn(settings: Settings) -> str:
    """The same for PostgreSQL as the operator's role, which may record acts. The embedded one is no
    stand-in where another PostgreSQL is configured."""
    if settings.postgres_operator_dsn is not None:
        return settings.postgres_operator_dsn.get_secret_value()
    hint = "WEIGHBRIDGE_POSTGRES_OPERATOR_DSN (or --operator-dsn)"
    if settings.postgres_dsn is not None:
        message = f"an act must go on record, which only the operator's role can do: set {hint}"
        raise ConfigurationError(message)
    return _embedded(settings, "PostgreSQL", hint).dsn(user=OPERATOR_ROLE)


def operator_pool(settings: Settings) -> Pool:
    """Sessions of the operator's role, to open with `async with`. Raises like `operator_dsn`."""
    return Pool(
        PoolSettings(
            dsn=operator_dsn(settings),
            pool_size=1,
            application_name="weighbridge-operator",
            statement_cache_size=settings.statement_cache_size,
        )
    )


def reading_pool(settings: Settings) -> Pool:
    """Sessions of whichever role is configured, for commands that only look: the operator's, else
    the worker's. Raises like `worker_dsn`."""
    acting = settings.postgres_operator_dsn
    return Pool(
        PoolSettings(
            dsn=worker_dsn(settings) if acting is None else acting.get_secret_value(),
            pool_size=1,
            application_name="weighbridge-operator",
            statement_cache_size=settings.statement_cache_size,
        )
    )


def operator_name(settings: Settings) -> str:
    """Who acts: as configured, else the system's user."""
    return settings.operator or getpass.getuser()


def _embedded(settings: Settings, what: str, hint: str) -> RunningServices:
    embedded = find_running(settings.data_dir)
    if embedded is None:
        message = f"no {what}: set {hint}, or run `weighbridge dev` in another terminal"
        raise ConfigurationError(message)
    return embedded


def kafka_settings(settings: Settings) -> KafkaSettings:
    """The Kafka connector's view of the settings."""
    return KafkaSettings(
        bootstrap=kafka_bootstrap(settings),
        group=settings.group,
        topic_prefix=settings.topic_prefix,
        session_timeout_ms=settings.session_timeout_ms,
        transaction_timeout_ms=settings.transaction_timeout_ms,
        batch_records_max=settings.batch_records,
        batch_bytes_max=settings.batch_bytes,
        batch_linger_ms=settings.batch_linger_ms,
    )


def breakers(settings: Settings) -> dict[str, BreakerPolicy]:
    """The breaker's policy by record type, for those types that have one.

    Raises `ConfigurationError` for a type that does not exist, or figures that do not fit together.
    """
    named = {name.strip() for name in settings.breaker_types.split(",")} - {"", "none"}
    unknown = named - RECORD_TYPES.keys()
    if unknown:
        message = (
            f"breaker_types names {', '.join(sorted(unknown))}; there are "
            f"{', '.join(sorted(RECORD_TYPES))}, or `none`"
        )
        raise ConfigurationError(message)
    try:
        policy = BreakerPolicy(
            settings.breaker_window, settings.breaker_percent, settings.breaker_counted_min
        )
    except ValueError as error:
        message = f"settings breaker_window, breaker_percent, breaker_counted_min: {error}"
        raise ConfigurationError(message) from None
    return dict.fromkeys(named, policy)


def schema_store(folder: Path | None) -> SchemaStore:
    """The file-backed store, or one that knows the shipped schemas alone.

    Raises `ConfigurationError` for a folder that is not there; later that is waited for.
    """
    if folder is not None and not folder.is_dir():
        message = f"schema_store names {folder}, which is not a folder"
        raise ConfigurationError(message)
    return FileSchemaStore(folder) if folder is not None else NoSchemaStore()


@asynccontextmanager
async def worker_parts(settings: Settings, observer: Observer) -> AsyncIterator[WorkerParts]:
    """Everything a worker is put together from; what was opened is closed at the end."""
    kafka, policies = kafka_settings(settings), breakers(settings)
    async with AsyncExitStack() as stack:
        pool = await stack.enter_async_context(
            Pool(
                PoolSettings(
                    dsn=worker_dsn(settings),
                    pool_size=settings.pool_size,
                    batch_deadline_s=settings.batch_deadline_s,
                    statement_cache_size=settings.statement_cache_size,
                )
            )
        )
        observer.metrics.watch("weighbridge_database_connections_peak", lambda: pool.peak)
        await check_migrated(pool)
        emitters = await stack.enter_async_context(EmitterFactory(kafka))
        yield WorkerParts(
            source=KafkaSource(kafka),
            types={
                kafka.topic(t.raw_topic): TypePorts(
                    t, PostgresLedger(pool, t), policies.get(t.name)
                )
                for t in RECORD_TYPES.values()
            },
            make_emitter=emitters.emitter,
            schema_store=schema_store(settings.schema_store),
            observer=observer,
            group=settings.group,
            control_topic=kafka.control_topic,
            kafka_bootstrap=kafka.bootstrap,
            concurrency=settings.concurrency,
            shutdown_deadline_s=settings.shutdown_deadline_s,
            stall_s=settings.stall_s,
            partition=PartitionSettings(
                step_deadline_s=settings.batch_deadline_s + 15.0,
                stopped_retry_s=settings.stopped_retry_s,
            ),
        )
