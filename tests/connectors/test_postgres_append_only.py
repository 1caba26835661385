"""The book cannot be rewritten: neither by the worker's role nor, in passing, by anyone."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest

from connectors.postgres.ledger import PostgresLedger
from connectors.postgres.operations import Act, record_acts
from connectors.postgres.pool import Pool, PoolSettings
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
    refused,
    write_batch,
)
from tests.servers import OPERATOR_ROLE

APPEND_ONLY = [
    "activation",
    "decision_set",
    "deployment",
    "dvir_ledger",
    "dvir_signature",
    "operations",
    "partition_pause",
    "payroll_ledger",
    "position_hold",
    "quarantine",
    "resubmission",
    "resubmission_sent",
    "retired_key",
    "stop_mark",
    "verdict_page",
]
WRITABLE_BY_THE_WORKER = {
    "dvir_ledger": {"INSERT"},
    "dvir_signature": {"INSERT"},
    "payroll_ledger": {"INSERT"},
    "quarantine": {"INSERT"},
    "verdict_page": {"INSERT"},
    "partition_cursor": {"INSERT", "UPDATE"},
}
CHANGES = ["UPDATE {0} SET {1} = {1}", "DELETE FROM {0}", "TRUNCATE {0} CASCADE"]


@pytest.fixture
async def filled(database: Any) -> Any:
    """A database with at least one row in every append-only table."""
    async with Pool(PoolSettings(database.worker_dsn)) as pool:
        for record_type, source, row in (
            (PAYROLL, PAYROLL_SOURCE, payroll(0)),
            (DVIR, DVIR_SOURCE, dvir(0)),
        ):
            ledger = PostgresLedger(pool, record_type)
            await ledger.begin(source, GROUP, TOKEN, "cluster", 0)
            async with ledger.transaction(source, GROUP) as tx:
                rejects = [refused(1)] if record_type is PAYROLL else []
                await write_batch(tx, 1, 0, [row, *rejects])
        await ledger.set_stop_mark("a reason")
    owner = await asyncpg.connect(database.owner_dsn)
    await owner.execute(
        "INSERT INTO retired_key VALUES ('payroll', $1, $2, 1, 0, 44)", key_of("old"), bytes(32)
    )
    number = await owner.fetchval(
        "INSERT INTO operations (act, who, target) VALUES ('dismiss', 'someone', 'a/1/0/1') "
        "RETURNING number"
    )
    await owner.execute(
        "INSERT INTO resubmission (number, topic, incarnation, partition, record_offset, digest, "
        "attempt, to_partition, corrected) SELECT $1, topic, incarnation, partition, "
        "record_offset, raw_digest, 2, 0, false FROM quarantine",
        number,
    )
    await owner.execute("INSERT INTO resubmission_sent VALUES ($1, 1, 0, 2)", number)
    await owner.execute(
        "INSERT INTO partition_pause (topic, partition, consumer_group, why) "
        "VALUES ('a', 0, 'g', 'w')"
    )
    await owner.execute("INSERT INTO position_hold VALUES ('a', 1, 0, 7, $1)", number)
    await owner.close()
    return database


@pytest.fixture
async def worker(filled: Any) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(filled.worker_dsn)
    yield connection
    await connection.close()


@pytest.fixture
async def superuser(filled: Any) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(filled.owner_dsn)
    yield connection
    await connection.close()


async def first_column(connection: asyncpg.Connection, table: str) -> str:
    """A column that may appear in an UPDATE (identity columns may not)."""
    return str(
        await connection.fetchval(
            "SELECT attname FROM pg_attribute WHERE attrelid = $1::regclass AND attnum > 0 "
            "AND attidentity = '' ORDER BY attnum LIMIT 1",
            table,
        )
    )


async def test_every_table_but_the_cursor_is_append_only(superuser: asyncpg.Connection) -> None:
    """No table is forgotten: all but the cursor and the list of migrations have both triggers."""
    tables = await superuser.fetch(
        "SELECT relname::text, count(tgname) FILTER (WHERE tgenabled = 'A') AS guards "
        "FROM pg_class LEFT JOIN pg_trigger ON tgrelid = pg_class.oid AND NOT tgisinternal "
        "WHERE relkind IN ('r', 'p') AND relnamespace = 'public'::regnamespace GROUP BY relname"
    )
    guards = {row["relname"]: row["guards"] for row in tables}
    assert sorted(guards) == sorted([*APPEND_ONLY, "partition_cursor", "schema_migration"])
    assert {name for name, number in guards.items() if number == 2} == set(APPEND_ONLY)


@pytest.mark.parametrize("change", CHANGES, ids=["update", "delete", "truncate"])
async def test_the_worker_lacks_the_privilege(worker: asyncpg.Connection, change: str) -> None:
    """The worker's role can neither change nor remove a row of an append-only table."""
    for table in APPEND_ONLY:
        column = await first_column(worker, table)
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await worker.execute(change.format(table, column))


@pytest.mark.parametrize("role", ["origin", "replica"])
@pytest.mark.parametrize("change", CHANGES, ids=["update", "delete", "truncate"])
async def test_the_trigger_refuses_even_a_superuser(
    superuser: asyncpg.Connection, change: str, role: str
) -> None:
    """Whoever is connected, and in whatever replication role, the trigger refuses."""
    await superuser.execute(f"SET session_replication_role = {role}")
    for table in APPEND_ONLY:
        column = await first_column(superuser, table)
        before = await superuser.fetchval(f"SELECT count(*) FROM {table}")
        assert before > 0
        with pytest.raises(asyncpg.RestrictViolationError):
            await superuser.execute(change.format(table, column))
        assert await superuser.fetchval(f"SELECT count(*) FROM {table}") == before


async def test_the_worker_holds_no_other_write_privilege(worker: asyncpg.Connection) -> None:
    """Table by table, the worker may write exactly what the protocol writes."""
    rows = await worker.fetch(
        "SELECT relname::text AS name, privilege FROM pg_class, "
        "unnest(ARRAY['INSERT', 'UPDATE', 'DELETE', 'TRUNCATE', 'REFERENCES', 'TRIGGER']) "
        "AS privilege WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'v') "
        "AND has_table_privilege(oid, privilege)"
    )
    held: dict[str, set[str]] = {}
    for row in rows:
        held.setdefault(row["name"], set()).add(row["privilege"])
    assert held == WRITABLE_BY_THE_WORKER


async def test_the_worker_can_set_a_stop_mark_but_not_clear_one(
    worker: asyncpg.Connection, superuser: asyncpg.Connection
) -> None:
    """Clearing a stop mark is an act of the owner."""
    await worker.execute("INSERT INTO stop_mark (why) VALUES ('another reason')")
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await worker.execute("INSERT INTO stop_mark (why, clears) VALUES ('no', 1)")
    await superuser.execute(
        "INSERT INTO stop_mark (why, clears) SELECT 'healed', number FROM stop_mark WHERE "
        "why = 'a reason'"
    )
    assert [row["why"] for row in await worker.fetch("TABLE stop_mark_in_force")] == [
        "another reason"
    ]


async def test_the_worker_can_pause_a_partition_but_not_resume_one(
    worker: asyncpg.Connection,
) -> None:
    """Resuming, and setting a position aside, are acts of an operator."""
    place = "INSERT INTO partition_pause (topic, partition, consumer_group, why"
    await worker.execute(f"{place}) VALUES ('b', 0, 'g', 'flood')")
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await worker.execute(f"{place}, resumes, act) VALUES ('b', 0, 'g', 'no', 1, 1)")
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await worker.execute("INSERT INTO position_hold VALUES ('b', 1, 0, 7, 1)")


async def test_a_pause_is_resumed_by_an_act_or_not_at_all(superuser: asyncpg.Connection) -> None:
    """Nobody can end a pause without saying so on record."""
    with pytest.raises(asyncpg.CheckViolationError):
        await superuser.execute(
            "INSERT INTO partition_pause (topic, partition, consumer_group, why, resumes) "
            "VALUES ('a', 0, 'g', 'no act', 1)"
        )


async def test_the_operator_reads_and_adds_acts(superuser: asyncpg.Connection, filled: Any) -> None:
    """The role of people who act reads every table, and writes nothing but acts, under its own
    name."""
    async with Pool(PoolSettings(filled.operator_dsn)) as pool:
        number, _ = await record_acts(
            pool,
            [
                Act("dismiss", "a person", "payroll.raw/1/0/7", "sent by mistake"),
                Act("resubmit", "a person", "payroll.raw/1/0/8", digest_before=bytes(32)),
            ],
        )
    row = await superuser.fetchrow("SELECT * FROM operations WHERE number = $1", number)
    assert (row["database_role"], row["who"]) == (OPERATOR_ROLE, "a person")
    await superuser.execute(f"SET ROLE {OPERATOR_ROLE}")
    relations = await superuser.fetch(
        "SELECT relname::text AS name FROM pg_class WHERE relkind IN ('r', 'v') "
        "AND relnamespace = 'public'::regnamespace"
    )
    for relation in relations:
        await superuser.fetch(f"SELECT * FROM {relation['name']} LIMIT 1")
        for privilege in ("INSERT", "UPDATE", "DELETE", "TRUNCATE"):
            assert not await superuser.fetchval(
                "SELECT has_table_privilege($1, $2)", relation["name"], privilege
            )
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await superuser.execute(
            "INSERT INTO operations (act, who, target, database_role) VALUES ('a', 'b', 'c', 'd')"
        )


async def test_the_reader_reads_and_writes_nothing(superuser: asyncpg.Connection) -> None:
    """The role for reports can read every table and view, and write none."""
    await superuser.execute("SET ROLE weighbridge_reader")
    relations = await superuser.fetch(
        "SELECT relname::text AS name FROM pg_class WHERE relkind IN ('r', 'v') "
        "AND relnamespace = 'public'::regnamespace"
    )
    for relation in relations:
        await superuser.fetch(f"SELECT * FROM {relation['name']} LIMIT 1")
        for privilege in ("INSERT", "UPDATE", "DELETE", "TRUNCATE"):
            assert not await superuser.fetchval(
                "SELECT has_table_privilege($1, $2)", relation["name"], privilege
            )
