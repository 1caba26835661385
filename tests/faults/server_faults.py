"""Faults of the servers: PostgreSQL, Kafka and the schema store restart, freeze, refuse."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import asyncpg
from aiokafka import AIOKafkaProducer

from connectors.embedded.server import Server
from schemas.record_types import RECORD_TYPES
from tests.faults.arena import Arena, Fault
from tests.faults.gate import GROUP

AWAY_S = 0.5, 4.0
LOCKED_S = 0.5, 8.0
CURSOR = "partition_cursor"

Inject = Callable[[Arena, random.Random], Awaitable[None]]
ServerOf = Callable[[Arena], Server]


def _postgres(arena: Arena) -> Server:
    return arena.gate.services.postgres


def _kafka(arena: Arena) -> Server:
    return arena.gate.services.kafka


# --- The server itself ----------------------------------------------------------------------------


def restart(server_of: ServerOf) -> Inject:
    """An orderly stop, and a start."""

    async def inject(arena: Arena, _: random.Random) -> None:
        await asyncio.to_thread(server_of(arena).restart)

    return inject


def crash(server_of: ServerOf) -> Inject:
    """SIGKILL, and a start."""

    async def inject(arena: Arena, _: random.Random) -> None:
        await asyncio.to_thread(server_of(arena).kill)
        await asyncio.to_thread(server_of(arena).start)

    return inject


def freeze(server_of: ServerOf) -> Inject:
    """SIGSTOP to all its processes for a while."""

    async def inject(arena: Arena, chance: random.Random) -> None:
        server_of(arena).pause()
        await asyncio.sleep(chance.uniform(*AWAY_S))
        server_of(arena).resume()

    return inject


# --- PostgreSQL -----------------------------------------------------------------------------------


@asynccontextmanager
async def _owner(arena: Arena) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(arena.gate.database.owner_dsn)
    try:
        yield connection
    finally:
        await connection.close()


async def _terminate(connection: asyncpg.Connection) -> None:
    """End all sessions of workers."""
    await connection.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
        "WHERE datname = current_database() AND pid <> pg_backend_pid()"
    )


async def terminate(arena: Arena, _: random.Random) -> None:
    """What an administrator or a failover does to sessions."""
    async with _owner(arena) as connection:
        await _terminate(connection)


async def read_only(arena: Arena, chance: random.Random) -> None:
    """After a failover workers find a standby, in sessions that stay read-only when it is over."""
    name = arena.gate.database.name
    async with _owner(arena) as connection:
        await connection.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
        await _terminate(connection)
        await asyncio.sleep(chance.uniform(*AWAY_S))
        await connection.execute("SET default_transaction_read_only = off")
        await connection.execute(f"ALTER DATABASE {name} RESET default_transaction_read_only")


async def no_connections(arena: Arena, chance: random.Random) -> None:
    """The limit of connections is reached."""
    name = arena.gate.database.name
    async with _owner(arena) as connection:
        await connection.execute(f"ALTER DATABASE {name} CONNECTION LIMIT 0")
        await _terminate(connection)
        await asyncio.sleep(chance.uniform(*AWAY_S))
        await connection.execute(f"ALTER DATABASE {name} CONNECTION LIMIT -1")


async def lock(arena: Arena, chance: random.Random) -> None:
    """Somebody holds the ledger: an index is built, a report is run by hand."""
    table = chance.choice([*(f"{name}_ledger" for name in RECORD_TYPES), CURSOR])
    async with _owner(arena) as connection, connection.transaction():
        await connection.execute(f"LOCK TABLE {table} IN SHARE MODE")
        await asyncio.sleep(chance.uniform(*LOCKED_S))


async def deadlock(arena: Arena, _: random.Random) -> None:
    """Locks in the order opposite to the workers': PostgreSQL ends one of the two."""
    with contextlib.suppress(asyncpg.DeadlockDetectedError):
        async with _owner(arena) as connection, connection.transaction():
            await connection.execute("LOCK TABLE payroll_ledger, quarantine IN SHARE MODE")
            await asyncio.sleep(0.3)
            await connection.execute(f"SELECT FROM {CURSOR} FOR UPDATE")


def refuse(state: str) -> Inject:
    """Let PostgreSQL answer the end of every batch with this SQLSTATE for a while."""

    async def inject(arena: Arena, chance: random.Random) -> None:
        async with _owner(arena) as connection:
            await connection.execute(
                "CREATE OR REPLACE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS "
                f"$$ BEGIN RAISE EXCEPTION 'acted out' USING ERRCODE = '{state}'; END $$"
            )
            await connection.execute(
                f"CREATE TRIGGER refuse BEFORE UPDATE ON {CURSOR} EXECUTE FUNCTION refuse()"
            )
            await asyncio.sleep(chance.uniform(*AWAY_S))
            await connection.execute(f"DROP TRIGGER refuse ON {CURSOR}")

    return inject


# --- Kafka ----------------------------------------------------------------------------------------


def _intruder(arena: Arena, transactional_id: str) -> AIOKafkaProducer:
    return AIOKafkaProducer(
        bootstrap_servers=arena.gate.services.bootstrap, transactional_id=transactional_id
    )


async def fence(arena: Arena, chance: random.Random) -> None:
    """InitProducerId for a partition's transactional id by somebody who is not its owner."""
    topic = chance.choice(arena.gate.topics)
    partition = chance.randrange(arena.gate.partitions)
    intruder = _intruder(arena, f"weighbridge/{topic}/{partition}/{GROUP}")
    await intruder.start()
    await intruder.stop()


async def open_transaction(arena: Arena, chance: random.Random) -> None:
    """A publisher's transaction stays open on raw partitions, then is aborted: the last stable
    offset stands still, and records that never were must not be read."""
    publisher = _intruder(arena, "a-slow-publisher")
    await publisher.start()
    try:
        await publisher.begin_transaction()
        for topic in arena.gate.topics:
            for partition in range(arena.gate.partitions):
                await publisher.send_and_wait(topic, b"never committed", partition=partition)
        await asyncio.sleep(chance.uniform(*AWAY_S))
        await publisher.abort_transaction()
    finally:
        await publisher.stop()


async def schemas_away(arena: Arena, chance: random.Random) -> None:
    """The schema store is gone while a worker that knows no schema yet starts."""
    store = arena.gate.folder / "store"
    hidden = store.rename(store.with_name("hidden"))
    for victim in arena.workers:
        victim.send(15)
        await victim.ended()
    await arena.keep_workers()
    await asyncio.sleep(chance.uniform(*AWAY_S))
    hidden.rename(store)


_SQLSTATES = {
    "40001": ("serialization", "serialization_failure"),
    "40P01": ("deadlock-victim", "deadlock_detected"),
    "53100": ("disk-full", "disk_full"),
    "53200": ("out-of-memory", "out_of_memory"),
    "57014": ("statement-cancelled", "query_canceled"),
}

SERVER_FAULTS = (
    Fault("postgres-restart", "stopped in order and started", restart(_postgres), 5, 3),
    Fault("postgres-crash", "SIGKILL and crash recovery", crash(_postgres), 5, 3),
    Fault("postgres-frozen", "SIGSTOP for 0.5 to 4 s", freeze(_postgres), 4, 3),
    Fault("sessions-terminated", "pg_terminate_backend on every session", terminate, 10, 12),
    Fault("read-only", "default_transaction_read_only after a failover", read_only, 5, 3),
    Fault("connection-limit", "CONNECTION LIMIT 0 (53300)", no_connections, 5, 3),
    Fault("table-locked", "LOCK TABLE ... IN SHARE MODE for 0.5 to 8 s", lock, 4, 3),
    Fault("deadlock", "locks taken in the opposite order", deadlock, 5, 4),
    *(
        Fault(name, f"{said} ({state}) from a trigger", refuse(state), 3, 3)
        for state, (name, said) in _SQLSTATES.items()
    ),
    Fault("kafka-restart", "stopped in order and started", restart(_kafka), 4, 2),
    Fault("kafka-crash", "SIGKILL and a start", crash(_kafka), 4, 2),
    Fault("kafka-frozen", "SIGSTOP for 0.5 to 4 s", freeze(_kafka), 4, 3),
    Fault("owner-fenced", "InitProducerId by an intruder", fence, 8, 8),
    Fault("open-transaction", "a publisher's, then aborted", open_transaction, 4, 4),
    Fault("schemas-away", "the schema store gone while workers start", schemas_away, 3, 2),
)
