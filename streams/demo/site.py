"""Where a demo runs: embedded services in a folder of its own, or configured ones, set apart.

On configured services everything is new and gone afterwards: topics under a prefix, a group and a
database of their own, so a demo can neither find nor leave anything in anybody's ledger.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import secrets
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import asyncpg
from aiokafka.admin import AIOKafkaAdminClient
from rich.console import Console

from connectors.embedded.services import (
    KAFKA_FOLDER,
    LOCK_FILE,
    POSTGRES_FOLDER,
    EmbeddedServices,
)
from connectors.errors import ConfigurationError, DatabaseUnavailable
from connectors.kafka.settings import KafkaSettings
from connectors.kafka.topics import create_topics
from connectors.postgres.migrate import migrate
from schemas.record_types import RECORD_TYPES
from streams.demo.encoding import Encoder, schema_store_files
from streams.demo.reading import Outside
from streams.demo.worker_process import CONFIG_FILE, LOG_FILE, end_left_worker
from streams.progress import download_progress
from streams.settings import Settings

FOLDER_PREFIX = "weighbridge-demo-"
MARKER = "weighbridge-demo"
"""File in every folder of a demo, locked while it runs: only such a folder is ever removed."""
KEPT = "kept"
"""Empty file in a folder that is to stay: the next demo does not tidy it away."""
STORE_FOLDER = "schema-store"
PARTITIONS = 4
SESSION_TIMEOUT_MS = 6_000
"""Kafka's own minimum: how long the killed worker's partitions wait for the next one."""


@dataclass(frozen=True, slots=True)
class Site:
    """Addresses, and the folder of configuration, schema store and log."""

    folder: Path
    kafka_bootstrap: str
    worker_dsn: str
    owner_dsn: str
    group: str
    topic_prefix: str
    embedded: bool

    @property
    def outside(self) -> Outside:
        """What the proof and the watch look at."""
        return Outside(self.kafka_bootstrap, self.owner_dsn, self.group, self.topic_prefix)

    @property
    def topics(self) -> list[str]:
        """The raw topics."""
        return [f"{self.topic_prefix}{t.raw_topic}" for t in RECORD_TYPES.values()]

    def prepare(self, batch_records: int) -> None:
        """Migrate, create topics, write schema store and configuration file."""
        asyncio.run(migrate(self.owner_dsn))
        kafka = KafkaSettings(
            bootstrap=self.kafka_bootstrap, group=self.group, topic_prefix=self.topic_prefix
        )
        types = list(RECORD_TYPES.values())
        asyncio.run(create_topics(kafka, types, partitions=PARTITIONS, replication=1))
        store = self.folder / STORE_FOLDER
        store.mkdir(exist_ok=True)
        encoders = {name: Encoder(name) for name in ("payroll", "dvir")}
        for name, content in schema_store_files(encoders).items():
            (store / name).write_text(content, encoding="utf-8")
        self._write_config(store, batch_records)

    def _write_config(self, store: Path, batch_records: int) -> None:
        """The worker's settings, which also serve other commands: `--config FILE`."""
        settings: dict[str, str | int] = {
            "kafka_bootstrap": self.kafka_bootstrap,
            "postgres_dsn": self.worker_dsn,
            "group": self.group,
            "topic_prefix": self.topic_prefix,
            "session_timeout_ms": SESSION_TIMEOUT_MS,
            "batch_records": batch_records,
            "schema_store": str(store),
            "http_port": 0,
            "log_format": "json",
            "data_dir": str(self.folder),
        }
        # A JSON string or number is a TOML one.
        lines = [f"{name} = {json.dumps(value)}\n" for name, value in settings.items()]
        config = self.folder / CONFIG_FILE
        config.touch(mode=0o600)
        config.write_text("".join(lines), encoding="utf-8")


@contextmanager
def open_site(settings: Settings, console: Console, *, keep: bool) -> Iterator[Site]:
    """A site to run on; afterwards everything is stopped and removed, unless it is to be kept.

    Raises `ConfigurationError` when it cannot be had.
    """
    if settings.kafka_bootstrap is not None and settings.postgres_dsn is not None:
        with _configured(settings, console, keep=keep) as site:
            yield site
        return
    if settings.kafka_bootstrap is not None or settings.postgres_dsn is not None:
        message = (
            "demo needs Kafka and PostgreSQL configured (kafka_bootstrap, postgres_dsn), or neither"
        )
        raise ConfigurationError(message)
    with _embedded(settings, console, keep=keep) as site:
        yield site


# Embedded -----------------------------------------------------------------------------------------


@contextmanager
def _embedded(settings: Settings, console: Console, *, keep: bool) -> Iterator[Site]:
    sweep()
    folder = _folder(settings)
    services = EmbeddedServices(folder)
    with _held(folder), _tidied(folder, services.stop):
        with download_progress(console) as progress:
            services.start(progress)
        yield Site(
            folder,
            services.bootstrap,
            services.postgres.dsn(user="weighbridge_worker"),
            services.postgres.dsn(),
            group="weighbridge",
            topic_prefix="",
            embedded=True,
        )
        if keep:
            (folder / KEPT).touch()


@contextmanager
def _held(folder: Path) -> Iterator[None]:
    """Hold a demo's folder, for as long as this process lives: the kernel's lock ends with it.

    Raises `ConfigurationError` when another process holds it.
    """
    lock = os.open(folder / MARKER, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        message = f"a demo is running in {folder}"
        raise ConfigurationError(message) from None
    finally:
        os.close(lock)


@contextmanager
def _tidied(folder: Path, stop: Callable[[], None]) -> Iterator[None]:
    """Stop and remove everything at the end, unless it is to be kept."""
    try:
        yield
    finally:
        if not (folder / KEPT).exists():
            # A second Ctrl-C must not interrupt what cleans up after the first one.
            before = {n: signal.signal(n, signal.SIG_IGN) for n in (signal.SIGINT, signal.SIGTERM)}
            try:
                stop()
                _remove(folder)
            finally:
                for number, handler in before.items():
                    signal.signal(number, handler)


def _folder(settings: Settings) -> Path:
    """A new folder, or the one named by the user: empty, for all in it is removed afterwards."""
    if "data_dir" in settings.model_fields_set:
        folder = settings.data_dir.expanduser().resolve()
        folder.mkdir(parents=True, exist_ok=True)
        if (folder / MARKER).exists():
            message = (
                f"{folder} holds an earlier demo, and a demo counts from nothing: name another "
                "folder, or end and remove that one with `weighbridge demo --stop --data-dir "
                f"{folder}`"
            )
            raise ConfigurationError(message)
        if any(folder.iterdir()):
            message = f"{folder} is not empty: a demo needs a folder of its own"
            raise ConfigurationError(message)
    else:
        folder = Path(tempfile.mkdtemp(prefix=FOLDER_PREFIX)).resolve()
    return folder


def sweep() -> int:
    """End and remove what demos left behind that were killed; how many folders there were."""
    found = 0
    for folder in Path(tempfile.gettempdir()).glob(f"{FOLDER_PREFIX}*"):
        if folder.is_dir() and not (folder / KEPT).exists():
            # A demo that still runs holds its folder's lock; another user's folder is not ours.
            with suppress(ConfigurationError, OSError):
                end_left(folder)
                found += 1
    return found


def end_left(folder: Path) -> int:
    """End services and worker that were left in this folder, and remove it; how many processes.

    Raises `ConfigurationError` when a running demo holds it, or it is not a demo's.
    """
    folder = folder.expanduser().resolve()
    if not (folder / MARKER).exists():
        message = f"{folder} is not the folder of a demo"
        raise ConfigurationError(message)
    with _held(folder):
        # The worker first: it stops in order only while its services are there.
        ended = end_left_worker(folder) + EmbeddedServices(folder).end_leftovers()
        _remove(folder)
    return ended


def _remove(folder: Path) -> None:
    """Remove what a demo has put into its folder, and the folder if nothing else is in it."""
    for name in (KAFKA_FOLDER, POSTGRES_FOLDER, STORE_FOLDER):
        shutil.rmtree(folder / name, ignore_errors=True)
    for name in (LOCK_FILE, CONFIG_FILE, LOG_FILE, KEPT, MARKER):
        (folder / name).unlink(missing_ok=True)
    with suppress(OSError):
        folder.rmdir()


# Configured ---------------------------------------------------------------------------------------


@contextmanager
def _configured(settings: Settings, console: Console, *, keep: bool) -> Iterator[Site]:
    name = f"wbdemo_{secrets.token_hex(4)}"
    bootstrap, dsn = str(settings.kafka_bootstrap), settings.postgres_dsn
    owner = settings.postgres_owner_dsn or dsn
    worker_dsn = dsn.get_secret_value() if dsn is not None else ""
    owner_dsn = owner.get_secret_value() if owner is not None else ""
    console.print(
        f"using the configured Kafka and PostgreSQL, set apart: database {name}, group {name},"
        f" topics {name}.*"
    )
    asyncio.run(_in_database(owner_dsn, f'CREATE DATABASE "{name}"'))
    folder = Path(tempfile.mkdtemp(prefix=FOLDER_PREFIX)).resolve()
    site = Site(
        folder,
        bootstrap,
        _with_database(worker_dsn, name),
        _with_database(owner_dsn, name),
        group=name,
        topic_prefix=f"{name}.",
        embedded=False,
    )

    def remove() -> None:
        try:
            asyncio.run(_drop_topics(site))
        finally:
            asyncio.run(_in_database(owner_dsn, f'DROP DATABASE "{name}" WITH (FORCE)'))

    with _held(folder), _tidied(folder, remove):
        yield site
        if keep:
            (folder / KEPT).touch()


def _with_database(dsn: str, name: str) -> str:
    return urlunsplit(urlsplit(dsn)._replace(path=f"/{name}"))


async def _in_database(dsn: str, statement: str) -> None:
    """Run a statement of ours as owner. Raises `ConfigurationError`, `DatabaseUnavailable`."""
    try:
        connection = await asyncpg.connect(dsn)
    except (OSError, asyncpg.PostgresError) as error:
        message = f"PostgreSQL cannot be reached as the owner ({type(error).__name__})"
        raise DatabaseUnavailable(message) from None
    try:
        await connection.execute(statement)
    except asyncpg.InsufficientPrivilegeError:
        message = (
            "a demo on configured services makes a database of its own: postgres_owner_dsn must "
            "name a role with CREATEDB and CREATEROLE. Unset both DSNs to use embedded services"
        )
        raise ConfigurationError(message) from None
    finally:
        await connection.close()


async def _drop_topics(site: Site) -> None:
    """Delete the demo's topics; Kafka forgets the group's offsets with them."""
    admin = AIOKafkaAdminClient(bootstrap_servers=site.kafka_bootstrap)
    await admin.start()
    try:
        own = [name for name in await admin.list_topics() if name.startswith(site.topic_prefix)]
        await admin.delete_topics(own)
    finally:
        await admin.close()


def log_kept(folder: Path) -> Path:
    """Move the worker's log out of a folder that is about to be removed."""
    kept = Path(tempfile.gettempdir()) / f"{FOLDER_PREFIX}failed-{os.getpid()}.log"
    with suppress(OSError):
        shutil.copyfile(folder / LOG_FILE, kept)
    return kept
