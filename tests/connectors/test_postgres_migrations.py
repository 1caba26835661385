"""Migrations: applied once, in order, unchanged; and what they make is what the code expects."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import pytest

from connectors.errors import ConfigurationError, DatabaseUnavailable
from connectors.postgres import migrate as migrating
from connectors.postgres.ledger import PostgresLedger
from connectors.postgres.migrate import Migration, check_migrated, migrate, migrations, pending
from connectors.postgres.pool import Pool, PoolSettings
from schemas.decision_set import DecisionSet
from schemas.quarantine import QUARANTINE_COLUMNS
from schemas.record_type import RecordType
from schemas.record_types import RECORD_TYPES
from tests.connectors.rows import (
    DVIR,
    DVIR_SOURCE,
    GROUP,
    PAYROLL,
    PAYROLL_SOURCE,
    TOKEN,
    dvir,
    key_of,
    payroll,
    write_batch,
)


@pytest.fixture
async def owner(database: Any) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(database.owner_dsn)
    yield connection
    await connection.close()


@pytest.fixture
async def empty(owner: asyncpg.Connection, database: Any) -> AsyncIterator[str]:
    """The owner's DSN of a database without any migration."""
    name = f"empty_{secrets.token_hex(4)}"
    await owner.execute(f"CREATE DATABASE {name}")
    yield urlsplit(database.owner_dsn)._replace(path=f"/{name}").geturl()
    await owner.execute(f"DROP DATABASE {name} WITH (FORCE)")


# --- the files ------------------------------------------------------------------------------------


def test_core_comes_first_and_files_are_numbered() -> None:
    """Core migrations precede the record types', each numbered from 0001 without gaps."""
    names = [m.name for m in migrations()]
    owners = [name.partition("/")[0] for name in names]
    assert owners == ["core"] * owners.count("core") + sorted(o for o in owners if o != "core")
    assert {"payroll/0001_ledger", "dvir/0001_ledger"} <= set(names)


@pytest.mark.parametrize(
    "name", ["1_short.sql", "0001-dash.sql", "0002_gap.sql", "0001_Upper.sql", "0001_.sql"]
)
def test_a_misnamed_file_is_refused_by_name(tmp_path: Path, name: str) -> None:
    """A migration that would sort or apply wrongly is named, not skipped."""
    folder = tmp_path / "widget" / "migrations"
    folder.mkdir(parents=True)
    (folder / name).write_text("SELECT 1")
    with pytest.raises(ConfigurationError, match=f"widget/{name}"):
        migrations(tmp_path)


def test_a_new_folder_is_found(tmp_path: Path) -> None:
    """A record type's migrations are found by their folder."""
    folder = tmp_path / "widget" / "migrations"
    folder.mkdir(parents=True)
    (folder / "0001_ledger.sql").write_text("SELECT 1")
    assert migrations(tmp_path)[-1] == Migration("widget/0001_ledger", "SELECT 1")


def test_line_ends_do_not_change_a_checksum() -> None:
    """A checkout with other line ends is the same migration; any other change is not."""
    assert Migration("a", "x\r\ny\r\n").checksum == Migration("a", "x\ny\n").checksum
    assert Migration("a", "x\ny\n").checksum != Migration("a", "x\ny").checksum


def test_pending_names_a_changed_migration() -> None:
    """An applied migration whose file has changed is refused by name."""
    known = [Migration("core/0001_a", "one"), Migration("core/0002_b", "two")]
    applied = {"core/0001_a": known[0].checksum}
    assert pending(known, applied) == [known[1]]
    with pytest.raises(ConfigurationError, match="core/0001_a was changed"):
        pending([Migration("core/0001_a", "edited")], applied)


# --- applying them --------------------------------------------------------------------------------


async def test_migrations_apply_once(empty: str) -> None:
    """The first run applies all in order; a second, or one beside it, applies nothing."""
    first, second = await asyncio.gather(migrate(empty), migrate(empty))
    assert sorted([first, second], key=len) == [[], [m.name for m in migrations()]]
    assert await migrate(empty) == []


async def test_databases_of_one_server_share_its_roles(empty: str, database: Any) -> None:
    """A second database is migrated although the roles exist, and has an id of its own."""
    await migrate(empty)
    ids = []
    for dsn in (empty, database.owner_dsn):
        connection = await asyncpg.connect(dsn)
        ids.append(await connection.fetchval("SELECT id FROM deployment"))
        await connection.close()
    assert len(set(ids)) == 2


async def test_an_edited_migration_is_refused(empty: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A changed checksum of an applied migration is a configuration error that names it."""
    await migrate(empty)
    edited = [
        Migration(m.name, m.sql + "\n-- edited") if m.name == "dvir/0001_ledger" else m
        for m in migrations()
    ]
    monkeypatch.setattr(migrating, "migrations", lambda: edited)
    with pytest.raises(ConfigurationError, match="dvir/0001_ledger was changed"):
        await migrate(empty)


async def test_a_failing_migration_leaves_nothing(
    empty: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A migration is all or nothing; those before it stay, and the error names it."""
    broken = Migration("core/0002_b", "CREATE TABLE half (); SELECT 1 FROM not_there")
    known = [Migration("core/0001_a", "CREATE TABLE whole ()"), broken]
    monkeypatch.setattr(migrating, "migrations", lambda: known)
    with pytest.raises(ConfigurationError, match="core/0002_b failed") as caught:
        await migrate(empty)
    assert "42P01" in str(caught.value)
    connection = await asyncpg.connect(empty)
    tables = await connection.fetch(
        "SELECT relname FROM pg_class WHERE relname = ANY ($1)",
        [
            "half",
            "whole",
        ],
    )
    assert [row["relname"] for row in tables] == ["whole"]
    await connection.close()


async def test_a_database_of_a_newer_version_is_not_touched(
    empty: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unknown applied migrations mean that this code is the older one."""
    await migrate(empty)
    monkeypatch.setattr(migrating, "migrations", lambda: migrations()[:-1])
    with pytest.raises(ConfigurationError, match="newer version"):
        await migrate(empty)


async def test_an_owner_without_privileges_is_told_which(empty: str, database: Any) -> None:
    """A role that may not create is told what it needs."""
    name = urlsplit(empty).path
    as_worker = urlsplit(database.worker_dsn)._replace(path=name).geturl()
    with pytest.raises(ConfigurationError, match="CREATEROLE"):
        await migrate(as_worker)


async def test_nobody_listening_is_retryable() -> None:
    """A server that is not there may come."""
    with pytest.raises(DatabaseUnavailable):
        await migrate("postgresql://nobody@127.0.0.1:1/none")


async def test_the_first_decision_set_is_stored_and_in_force(owner: asyncpg.Connection) -> None:
    """A fresh database decides by the default set; migrating again does not activate it again."""
    row = await owner.fetchrow(
        "SELECT digest, content FROM activation JOIN decision_set USING (digest)"
    )
    first = DecisionSet()
    assert (row["digest"], row["content"]) == (first.digest, first.as_json())


async def test_migrating_again_keeps_what_is_in_force(
    owner: asyncpg.Connection, database: Any
) -> None:
    """A later activation stays in force through another run."""
    other = DecisionSet(rules_version="another pack")
    await owner.execute("INSERT INTO decision_set VALUES ($1, $2)", other.digest, other.as_json())
    await owner.execute("INSERT INTO activation (digest) VALUES ($1)", other.digest)
    await migrate(database.owner_dsn)
    newest = await owner.fetchval("SELECT digest FROM activation ORDER BY number DESC LIMIT 1")
    assert newest == other.digest


async def test_a_worker_checks_that_the_database_is_migrated(
    empty: str, database: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A database without, or with too few, migrations is refused at the start; a newer is not."""
    async with Pool(PoolSettings(empty)) as pool:
        with pytest.raises(ConfigurationError, match="never been migrated"):
            await check_migrated(pool)
    async with Pool(PoolSettings(database.worker_dsn)) as pool:
        await check_migrated(pool)
        known = migrations()
        monkeypatch.setattr(migrating, "migrations", lambda: known[:-1])
        await check_migrated(pool)
        more = [*known, Migration("payroll/9999_more", "SELECT 1")]
        monkeypatch.setattr(migrating, "migrations", lambda: more)
        with pytest.raises(ConfigurationError, match="payroll/9999_more"):
            await check_migrated(pool)


# --- what they make -------------------------------------------------------------------------------


async def columns(owner: asyncpg.Connection, table: str) -> tuple[str, ...]:
    rows = await owner.fetch(
        "SELECT attname FROM pg_attribute WHERE attrelid = $1::regclass AND attnum > 0 "
        "ORDER BY attnum",
        table,
    )
    return tuple(row["attname"] for row in rows)


@pytest.mark.parametrize("record_type", RECORD_TYPES.values(), ids=lambda t: t.name)
async def test_a_types_tables_have_its_columns(
    owner: asyncpg.Connection, record_type: RecordType
) -> None:
    """Ledger and receipts tables have exactly the declared columns, in order."""
    assert await columns(owner, record_type.ledger_table) == (
        *record_type.ledger_columns,
        "committed_at",
    )
    if record_type.receipts_table is not None:
        assert await columns(owner, record_type.receipts_table) == record_type.receipt_columns


@pytest.mark.parametrize("record_type", RECORD_TYPES.values(), ids=lambda t: t.name)
async def test_a_types_constraints_carry_its_name(
    owner: asyncpg.Connection, record_type: RecordType
) -> None:
    """Constraints of a type begin with its name, or their refusals would not count as data."""
    rows = await owner.fetch(
        "SELECT conname FROM pg_constraint WHERE conrelid = ANY ($1::text[]::regclass[])",
        [t for t in (record_type.ledger_table, record_type.receipts_table) if t],
    )
    assert rows
    assert all(row["conname"].startswith(f"{record_type.name}_") for row in rows)


async def test_the_quarantine_table_has_its_columns(owner: asyncpg.Connection) -> None:
    """The table has the columns of the rows that `schemas.quarantine` makes."""
    assert await columns(owner, "quarantine") == (*QUARANTINE_COLUMNS, "quarantined_at")


async def test_rows_of_these_tests_have_the_types_columns() -> None:
    """The records of these tests have the shape of the real types' records."""
    for stand_in in (PAYROLL, DVIR):
        real = RECORD_TYPES[stand_in.name]
        assert stand_in.ledger_columns == real.ledger_columns
        assert stand_in.receipt_columns == real.receipt_columns


async def test_payroll_current_shows_the_last_word(
    owner: asyncpg.Connection, database: Any
) -> None:
    """A corrected, reversed or voided statement gives way to what corrects it, chains included."""

    def corrects(name: str) -> str:
        return key_of(name).hex()

    batch = [
        payroll(0, "plain"),
        payroll(1, "first"),
        payroll(2, "second", statement_type="correction", corrects=corrects("first")),
        payroll(3, "third", statement_type="correction", corrects=corrects("second")),
        payroll(4, "wrong", gross_pay=Decimal("100.00")),
        payroll(
            5,
            "reversal",
            statement_type="reversal",
            corrects=corrects("wrong"),
            gross_pay=Decimal("100.00"),
        ),
        payroll(6, "disputed"),
        payroll(7, "one answer", statement_type="correction", corrects=corrects("disputed")),
        payroll(8, "better answer", statement_type="correction", corrects=corrects("disputed")),
        payroll(9, "of itself", statement_type="correction", corrects=corrects("of itself")),
    ]
    async with Pool(PoolSettings(database.worker_dsn)) as pool:
        ledger = PostgresLedger(pool, PAYROLL)
        await ledger.begin(PAYROLL_SOURCE, GROUP, TOKEN, "cluster", 0)
        async with ledger.transaction(PAYROLL_SOURCE, GROUP) as tx:
            await write_batch(tx, 1, 0, batch)
    rows = await owner.fetch(
        "SELECT record_offset, idempotency_key, standing_gross_pay FROM payroll_current "
        "ORDER BY record_offset"
    )
    assert [row["record_offset"] for row in rows] == [0, 3, 5, 8, 9]
    assert rows[0]["idempotency_key"] == key_of("plain").hex()
    standing = {row["record_offset"]: row["standing_gross_pay"] for row in rows}
    assert standing[5] == 0
    assert standing[3] == Decimal("1234.56")


async def test_dvir_current_shows_the_latest_version(
    owner: asyncpg.Connection, database: Any
) -> None:
    """Of the versions of one report the latest is shown, per source, report and event."""

    def at(hour: int) -> datetime:
        return datetime(2026, 11, 2, hour, tzinfo=UTC)

    report = {"source": "vendor", "report_id": "R1"}
    batch = [
        dvir(0, **report, source_updated_at=at(9)),
        dvir(1, **report, source_updated_at=at(12)),
        dvir(2, **report, source_updated_at=at(10)),
        dvir(3, **report, event="repair_certification", source_updated_at=at(8)),
        dvir(4, source="another vendor", report_id="R1"),
        dvir(5, source=None, report_id="R1"),
        dvir(6, source=None, report_id="R1"),
        dvir(7),
        dvir(8),
    ]
    async with Pool(PoolSettings(database.worker_dsn)) as pool:
        ledger = PostgresLedger(pool, DVIR)
        await ledger.begin(DVIR_SOURCE, GROUP, TOKEN, "cluster", 0)
        async with ledger.transaction(DVIR_SOURCE, GROUP) as tx:
            await write_batch(tx, 1, 0, batch)
    rows = await owner.fetch("SELECT record_offset, ledger_key FROM dvir_current ORDER BY 1")
    assert [row["record_offset"] for row in rows] == [1, 3, 4, 6, 7, 8]
    assert rows[0]["ledger_key"] == key_of(1).hex()
