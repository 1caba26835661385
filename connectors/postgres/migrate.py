"""Bringing a database up to date: core migrations first, then each record type's.

A migration is a file `NNNN_name.sql` in `connectors/postgres/migrations` or in
`schemas/<type>/migrations`, applied once, in its own transaction, and remembered with its SHA-256.
A file that was applied is never edited: a change is another migration.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import asyncpg

import schemas
from connectors.errors import ConfigurationError, WeighbridgeError
from connectors.postgres.connection import CONNECT_TIMEOUT_S, check_version, connect
from connectors.postgres.errors import (
    DRIVER_ERRORS,
    INSUFFICIENT_PRIVILEGE,
    UNDEFINED_TABLE,
    PostgresUnavailable,
    fault_of,
    translate,
)
from connectors.postgres.pool import Pool
from connectors.postgres.queries import query
from schemas.decision_set import DecisionSet

CORE = Path(__file__).with_name("migrations")
LOCK_TIMEOUT = "60s"
"""How long a migration waits for a table in use, or for another migration."""

_FILE_NAME = re.compile(r"(\d{4})_[a-z0-9_]+\.sql", re.ASCII)


@dataclass(frozen=True, slots=True)
class Migration:
    """One file, as it is on disk."""

    name: str
    """Folder's owner and file stem, such as `core/0003_core` or `payroll/0001_ledger`."""
    sql: str

    @property
    def checksum(self) -> bytes:
        """SHA-256 over the text as UTF-8, line ends as LF: a checkout's line ends do not count."""
        return hashlib.sha256(self.sql.replace("\r\n", "\n").encode()).digest()


def migrations(schemas_folder: Path | None = None) -> list[Migration]:
    """All migrations in the order in which they apply.

    Raises `ConfigurationError` naming a file whose name or number is out of the pattern.
    """
    root = schemas_folder if schemas_folder is not None else Path(schemas.__path__[0])
    found = _read(CORE, "core")
    for folder in sorted(root.glob("*/migrations")):
        found += _read(folder, folder.parent.name)
    return found


def _read(folder: Path, owner: str) -> list[Migration]:
    found: list[Migration] = []
    for number, path in enumerate(sorted(folder.glob("*.sql")), start=1):
        match = _FILE_NAME.fullmatch(path.name)
        if match is None or int(match.group(1)) != number:
            message = (
                f"migration {owner}/{path.name}: expected a file named {number:04d}_<name>.sql "
                "(lower-case letters, digits and _; numbered from 0001 without gaps)"
            )
            raise ConfigurationError(message)
        found.append(Migration(f"{owner}/{path.stem}", path.read_text(encoding="utf-8")))
    return found


def pending(known: Sequence[Migration], applied: Mapping[str, bytes]) -> list[Migration]:
    """Migrations still to apply. Pure.

    Raises `ConfigurationError` when an applied migration was changed afterwards.
    """
    for migration in known:
        checksum = applied.get(migration.name)
        if checksum is not None and checksum != migration.checksum:
            message = (
                f"migration {migration.name} was changed after it had been applied to this "
                "database; restore the file and put the change into a new migration"
            )
            raise ConfigurationError(message)
    return [m for m in known if m.name not in applied]


async def migrate(owner_dsn: str) -> list[str]:
    """Apply what is missing and return the names of what was applied.

    Guarantees: each migration is all or nothing; running again, or twice at once, applies nothing
    twice. Makes the roles and, once, the deployment's id and the first decision set.
    Raises `ConfigurationError` (changed or misnamed file, wrong server version, missing privilege)
    and `DatabaseUnavailable` (retryable). Blocks until a migration running elsewhere is done.
    """
    known = migrations()
    try:
        connection = await connect(owner_dsn, timeout=CONNECT_TIMEOUT_S)
    except DRIVER_ERRORS as error:
        raise translate(error, starting=True) from None
    try:
        return await _migrate(connection, known)
    except DRIVER_ERRORS as error:
        raise _explained(error) from None
    finally:
        await _close(connection)


async def _migrate(connection: asyncpg.Connection, known: Sequence[Migration]) -> list[str]:
    check_version(connection)
    await connection.execute(f"SET lock_timeout = '{LOCK_TIMEOUT}'")
    await connection.execute(query("lock_migrations"))
    await connection.execute("SET client_min_messages = warning")
    await connection.execute(query("create_schema_migration"))
    applied = {
        r["name"]: r["checksum"] for r in await connection.fetch(query("applied_migrations"))
    }
    to_apply = pending(known, applied)
    unknown = applied.keys() - {m.name for m in known}
    if unknown:
        message = f"this database was migrated by a newer version: {', '.join(sorted(unknown))}"
        raise ConfigurationError(message)
    for migration in to_apply:
        await _apply(connection, migration)
    await _activate_first(connection)
    return [m.name for m in to_apply]


async def _apply(connection: asyncpg.Connection, migration: Migration) -> None:
    try:
        async with connection.transaction():
            await connection.execute(migration.sql)
            await connection.execute(query("record_migration"), migration.name, migration.checksum)
    except asyncpg.PostgresError as error:
        reason = str(_explained(error))
        if not isinstance(_explained(error), ConfigurationError):
            raise
        message = f"migration {migration.name} failed and was rolled back: {reason}"
        raise ConfigurationError(message) from None


async def _activate_first(connection: asyncpg.Connection) -> None:
    first = DecisionSet()
    async with connection.transaction():
        await connection.execute(query("store_decision_set"), first.digest, first.as_json())
        await connection.execute(query("activate_first"), first.digest)


def _explained(error: BaseException) -> WeighbridgeError:
    """While migrating, anything but a lost or busy server is for somebody to put right."""
    if isinstance(error, asyncpg.PostgresError):
        fault = fault_of(error)
        if fault.sqlstate == INSUFFICIENT_PRIVILEGE:
            return ConfigurationError(
                "the owner's role lacks a privilege (SQLSTATE 42501). It must own the database's "
                "schema and have CREATEROLE, unless an administrator has created the roles "
                "weighbridge_worker and weighbridge_reader beforehand"
            )
        if fault.sqlstate[:2] in {"22", "23", "42", "0A"}:
            return ConfigurationError(f"the server refused a statement ({fault})")
    return translate(error)


async def _close(connection: asyncpg.Connection) -> None:
    """Say goodbye; a server that does not answer is left without one."""
    try:
        await connection.close(timeout=CONNECT_TIMEOUT_S)
    except DRIVER_ERRORS:
        connection.terminate()
    except asyncio.CancelledError:
        connection.terminate()
        raise


async def check_migrated(pool: Pool) -> None:
    """Raises `ConfigurationError` unless every migration this version knows has been applied.

    A database that is ahead is accepted, so that workers can be replaced one by one.
    """
    try:
        async with pool.transaction() as session:
            rows = await session.fetch(query("applied_migrations"))
    except PostgresUnavailable as error:
        if error.sqlstate != UNDEFINED_TABLE:
            raise
        message = "this database has never been migrated; run `weighbridge db migrate`"
        raise ConfigurationError(message) from None
    missing = pending(migrations(), {r["name"]: r["checksum"] for r in rows})
    if missing:
        names = ", ".join(m.name for m in missing)
        message = f"this database lacks migrations {names}; run `weighbridge db migrate`"
        raise ConfigurationError(message)
