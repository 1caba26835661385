"""The Kafka and PostgreSQL of a test session: embedded, or named in the environment.

`WEIGHBRIDGE_TEST_KAFKA` (`host:port`) and `WEIGHBRIDGE_TEST_POSTGRES` (DSN of a superuser, any
database) name servers to use instead. Tests that stop, pause or kill a server need embedded ones.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote, urlsplit

import asyncpg
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaError

from connectors.embedded.kafka import EmbeddedKafka
from connectors.embedded.postgres import EmbeddedPostgres
from connectors.embedded.server import Server
from connectors.embedded.services import EmbeddedServices
from connectors.errors import ConfigurationError

KAFKA_VARIABLE = "WEIGHBRIDGE_TEST_KAFKA"
POSTGRES_VARIABLE = "WEIGHBRIDGE_TEST_POSTGRES"
WORKER_ROLE = "weighbridge_worker"
OPERATOR_ROLE = "weighbridge_operator"
TEMPLATE = "weighbridge_template"

COORDINATOR_TRIES = 300

PREFIX = "wb-tests-"
YOUNG_S = 60

T = TypeVar("T")


def run_apart(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on a loop of its own in a thread of its own, beside the test's loop."""
    outcome: list[T] = []
    failure: list[BaseException] = []

    def body() -> None:
        try:
            outcome.append(asyncio.run(coroutine))
        except BaseException as error:  # noqa: BLE001 - handed to the caller
            failure.append(error)

    thread = threading.Thread(target=body)
    thread.start()
    thread.join()
    if failure:
        raise failure[0]
    return outcome[0]


async def await_coordinator(bootstrap: str) -> None:
    """Wait until groups have a coordinator: Kafka makes its offsets topic when first asked."""
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    try:
        for _ in range(COORDINATOR_TRIES):
            try:
                await admin.find_coordinator("warm-up")
            except KafkaError:
                await asyncio.sleep(0.1)
            else:
                return
    finally:
        await admin.close()


class ExternalPostgres:
    """A PostgreSQL that somebody else runs."""

    def __init__(self, superuser_dsn: str) -> None:
        self._parts = urlsplit(superuser_dsn)

    def dsn(self, database: str = "postgres", user: str | None = None) -> str:
        """Address of a database; with `user`, as that role, which needs no password there."""
        netloc = self._parts.netloc
        if user is not None and user != self._parts.username:
            netloc = f"{quote(user)}@{netloc.rpartition('@')[2]}"
        return self._parts._replace(netloc=netloc, path=f"/{quote(database)}").geturl()


def sweep() -> None:
    """End servers of test sessions that were killed, and remove their data."""
    for folder in Path(tempfile.gettempdir()).glob(PREFIX + "*"):
        # One that is younger may belong to a session that has not taken its lock yet.
        try:
            if time.time() - folder.stat().st_mtime < YOUNG_S:
                continue
            EmbeddedServices(folder).end_leftovers()
        except FileNotFoundError:
            continue  # Another session has just removed it.
        except ConfigurationError:
            continue  # A session that runs now.
        shutil.rmtree(folder, ignore_errors=True)


class Services:
    """What the fixture `services` gives."""

    def __init__(self) -> None:
        sweep()
        # Not below pytest's own temporary folders: those are closed to the user that PostgreSQL
        # runs as when root runs the tests, and too long for a socket's path.
        self._folder = Path(tempfile.mkdtemp(prefix=PREFIX))
        self._embedded = EmbeddedServices(self._folder, fsync=False)
        self._kafka_address = os.environ.get(KAFKA_VARIABLE)
        dsn = os.environ.get(POSTGRES_VARIABLE)
        self._external_postgres = ExternalPostgres(dsn) if dsn else None

    @property
    def kafka(self) -> EmbeddedKafka:
        """The embedded Kafka. Fails where Kafka is external."""
        if self._kafka_address:
            message = f"this test stops its Kafka, which {KAFKA_VARIABLE} does not allow"
            raise RuntimeError(message)
        return self._embedded.kafka

    @property
    def postgres(self) -> EmbeddedPostgres:
        """The embedded PostgreSQL. Fails where PostgreSQL is external."""
        if self._external_postgres:
            message = f"this test stops its PostgreSQL, which {POSTGRES_VARIABLE} does not allow"
            raise RuntimeError(message)
        return self._embedded.postgres

    @property
    def bootstrap(self) -> str:
        """What Kafka clients connect to."""
        return self._kafka_address or self._embedded.bootstrap

    def dsn(self, database: str = "postgres", user: str | None = None) -> str:
        """Address of a database as the superuser, or as `user`."""
        if self._external_postgres:
            return self._external_postgres.dsn(database, user)
        return self._embedded.postgres.dsn(database, user or "postgres")

    def start(self) -> None:
        """Start what is not external."""
        if not self._kafka_address and not self._external_postgres:
            self._embedded.start()
        else:
            for server in self._servers():
                server.start()
        run_apart(await_coordinator(self.bootstrap))

    def stop(self) -> None:
        """Stop what was started, and remove its data."""
        self.mend()
        self._embedded.stop()
        shutil.rmtree(self._folder, ignore_errors=True)

    def mend(self) -> None:
        """Bring back what a test left paused or dead, so that the next one is not told lies."""
        for server in self._servers():
            if server.is_running:
                server.resume()
            else:
                server.start()

    def _servers(self) -> list[Server]:
        servers: list[Server] = []
        if not self._kafka_address:
            servers.append(self._embedded.kafka)
        if not self._external_postgres:
            servers.append(self._embedded.postgres)
        return servers


@dataclass(frozen=True)
class Database:
    """A database of one test's own, migrated."""

    name: str
    owner_dsn: str
    worker_dsn: str
    operator_dsn: str


async def execute(dsn: str, *statements: str) -> None:
    """Run statements one by one outside any transaction."""
    connection = await asyncpg.connect(dsn)
    try:
        for statement in statements:
            await connection.execute(statement)
    finally:
        await connection.close()


async def make_template(services: Services) -> None:
    """A migrated database that tests clone."""
    from connectors.postgres.migrate import migrate

    await execute(
        services.dsn(),
        f"DROP DATABASE IF EXISTS {TEMPLATE} WITH (FORCE)",
        f"CREATE DATABASE {TEMPLATE}",
    )
    await migrate(services.dsn(TEMPLATE))


def cloned(services: Services, name: str, template: str) -> Database:
    """A migrated database of its own, by this name."""
    run_apart(execute(services.dsn(), f"CREATE DATABASE {name} TEMPLATE {template}"))
    return Database(
        name,
        services.dsn(name),
        services.dsn(name, WORKER_ROLE),
        services.dsn(name, OPERATOR_ROLE),
    )


def dropped(services: Services, name: str) -> None:
    """It is gone, whoever still uses it."""
    run_apart(execute(services.dsn(), f"DROP DATABASE IF EXISTS {name} WITH (FORCE)"))
