"""Rejects in PostgreSQL: found, sent again once, dismissed once, foreseen; on many rows too."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import pytest

from connectors.postgres import rejects, resubmissions
from connectors.postgres.ledger import PostgresLedger
from connectors.postgres.pool import Pool, PoolSettings
from connectors.postgres.rejects import Which
from connectors.postgres.resubmissions import Intent
from connectors.schema_store import NoSchemaStore
from schemas.decision_set import DecisionSet
from schemas.envelope import Position, Record, Source
from schemas.examples import Example, load_examples
from schemas.masking import MASK
from schemas.quarantine import QUARANTINE_COLUMNS, quarantine_row
from schemas.reasons import Reason
from schemas.record_types import RECORD_TYPES
from schemas.resubmission import SentMark, named
from schemas.verdict import Accepted, Duplicate, Refused
from streams import batch as steps
from streams import quarantine as desk
from streams.decide import decide
from streams.foresight import Candidate, Foresight
from tests.connectors.rows import GROUP, TOKEN
from tests.servers import Database

MANY = 100_000
SECONDS_MAX = 15.0
"""Ten times what it takes on two cores that nobody else uses."""
PAYROLL = RECORD_TYPES["payroll"]
NOW_MS = 1_793_706_129_000
EPOCH = datetime(2026, 11, 3, tzinfo=UTC)
SOURCE = Source("payroll.raw", 0)
STATEMENT = {
    "employee_id": "A10042",
    "pay_period_start": "2026-10-19",
    "pay_period_end": "2026-11-01",
    "source_run_id": "acme/1",
    "gross_pay": "2307.69",
    "tax_jurisdiction": "US-OH:columbus",
}


@pytest.fixture
async def pool(database: Database) -> AsyncIterator[Pool]:
    """Sessions of the operator's role."""
    async with Pool(PoolSettings(database.operator_dsn, pool_size=1)) as pool:
        yield pool


@pytest.fixture
async def owner(database: Database) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(database.owner_dsn)
    yield connection
    await connection.close()


def refuse(source: Source, record: Record, schemas: Mapping[Any, Any]) -> tuple[object, ...] | None:
    """The quarantine row of a record, None when deciding accepts it."""
    record_type = RECORD_TYPES[source.topic.removesuffix(".raw")]
    found = decide(record, record_type, source, DecisionSet(), schemas)
    if isinstance(found, Accepted):
        return None
    return quarantine_row(found, record, source, record_type.name, DecisionSet().digest)


async def put(owner: asyncpg.Connection, *members: Mapping[str, object] | bytes | None) -> None:
    """Quarantine rows at offsets 0, 1, ..., a minute apart."""
    for offset, one in enumerate(members):
        value = json.dumps(one).encode() if isinstance(one, Mapping) else one
        row = refuse(SOURCE, Record(offset, value), {})
        assert row is not None
        places = ", ".join(f"${n}" for n in range(1, len(row) + 2))
        await owner.execute(
            f"INSERT INTO quarantine ({', '.join(QUARANTINE_COLUMNS)}, quarantined_at) "
            f"VALUES ({places})",
            *row,
            EPOCH + timedelta(minutes=offset),
        )


def intent(offset: int, value: bytes | None = None, digest: bytes = bytes(32)) -> Intent:
    """An intent for the reject at an offset."""
    at = SOURCE.position(offset)
    corrected = value is not None
    return Intent(
        at, bytes(32), digest, 2, offset % 2, corrected, b"k" if corrected else None, value
    )


# --- Finding --------------------------------------------------------------------------------------


async def test_lists_are_in_order_and_bounded(pool: Pool, owner: asyncpg.Connection) -> None:
    """The newest first, grouped by content; the oldest first for whoever acts."""
    await put(owner, b"x", b"y", b"x", None)
    found, total = await rejects.listed(pool, Which(), 2, 1)
    assert ([one.position.offset for one in found], total) == ([2, 1], 4)
    groups = await rejects.grouped(pool, Which(), 10, 0)
    assert [(g.newest.offset, g.records) for g in groups.groups] == [(3, 1), (2, 2), (1, 1)]
    assert (groups.groups_in_all, groups.records_in_all) == (3, 4)
    assert groups.groups[1].first_seen == EPOCH
    assert [one.position.offset for one in await rejects.in_order(pool, Which(), 3)] == [0, 1, 2]
    until = Which(since=EPOCH + timedelta(minutes=1), until=EPOCH + timedelta(minutes=3))
    assert await rejects.counted(pool, until) == 2
    nothing = await rejects.grouped(pool, Which(positions=()), 10, 0)
    assert nothing.groups == []


@pytest.mark.timeout(120)
async def test_a_run_among_many(pool: Pool, owner: asyncpg.Connection) -> None:
    """One run's rejects are found among a hundred thousand, and its hundred thousand as well, in
    seconds."""
    await owner.execute(
        "INSERT INTO quarantine (topic, incarnation, partition, record_offset, kafka_timestamp, "
        "record_type, reason, detail, correlation_id, decision_set, raw_digest, attempt, "
        "safety_critical, record_value, record_headers) SELECT 'payroll.raw', 1, 0, n, -1, "
        "'payroll', 'schema_violation', '[]', 'c', sha256('d'), sha256(n::text::bytea), 1, false, "
        'convert_to(\'{"employee_id": "A\' || n || \'", "source_run_id": "big", "team": "\' '
        "|| CASE WHEN n % 1000 = 7 THEN 'acme/7' ELSE 'acme/8' END || '\", \"pad\": \"' "
        f"|| repeat(md5(n::text), 20) || '\"}}', 'UTF8'), '[]' FROM generate_series(1, {MANY}) n"
    )
    store = NoSchemaStore()
    told: list[tuple[int, int]] = []
    for run, expected in (("acme/7", 0), ("big", MANY)):
        began_s = time.monotonic()
        told.clear()
        found = await desk.of_run(
            pool, store, Which(), run, lambda done, total: told.append((done, total))
        )
        assert found.which.positions is not None
        assert (len(found.which.positions), found.unreadable) == (expected, 0)
        assert told[-1][0] == told[-1][1]
        assert await rejects.counted(pool, found.which) == expected
        assert time.monotonic() - began_s < SECONDS_MAX


# --- Acts -----------------------------------------------------------------------------------------


async def test_the_same_bytes_are_recorded_once(
    database: Database, pool: Pool, owner: asyncpg.Connection
) -> None:
    """However many record the same at once, one act of each reject and content remains; numbers
    become visible in order."""
    await put(owner, *(b"x" for _ in range(20)))
    intents = [intent(n) for n in range(20)]
    async with AsyncExitStack() as stack:
        pools = [
            await stack.enter_async_context(Pool(PoolSettings(database.operator_dsn, pool_size=1)))
            for _ in range(4)
        ]
        recorded = await asyncio.gather(
            *(resubmissions.record(one, f"p{n}", "w", intents) for n, one in enumerate(pools))
        )
    assert sorted(recorded) == [0, 0, 0, 20]
    other = await resubmissions.record(pool, "p", "w", [intent(3, b"new", bytes([1] * 32))])
    assert other == 1
    waiting = await resubmissions.owed(pool, "payroll.raw", 0)
    assert [one.number for one in waiting] == sorted(one.number for one in waiting)
    assert [(one.value, one.key) for one in waiting] == [(b"x", None)] * 20 + [(b"new", b"k")]
    assert len(await owner.fetch("SELECT FROM operations WHERE act = 'resubmit'")) == 21
    before = await resubmissions.earlier(pool, [(SOURCE.position(3), bytes(32))])
    assert [one.who[0] for one in before.values()] == ["p"]
    assert await rejects.counted(pool, Which(state="resubmitted")) == 20
    assert await rejects.counted(pool, Which()) == 0


async def test_what_is_sent_is_noted_where_it_stands(pool: Pool, owner: asyncpg.Connection) -> None:
    """Records follow one another in their partition; noting it twice is harmless."""
    await put(owner, *(b"x" for _ in range(5)))
    await resubmissions.record(pool, "p", "w", [intent(n) for n in range(5)])
    waiting = await resubmissions.owed(pool, "payroll.raw", 0)
    mark = SentMark(waiting[0].number, waiting[3].number, bytes(8), ((0, 100), (1, 50)))
    assert await resubmissions.unsent(pool) == {"payroll.raw": 5}
    for _ in range(2):
        await resubmissions.note_sent(pool, "payroll.raw", mark)
    assert await resubmissions.unsent(pool) == {"payroll.raw": 1}
    assert await resubmissions.last_sent(pool, "payroll.raw") == mark.last
    left = await resubmissions.owed(pool, "payroll.raw", mark.last)
    assert [one.number for one in left] == [waiting[4].number]
    at = []
    for n in range(5):
        (sent,) = (await rejects.history(pool, SOURCE.position(n))).sent
        at.append(sent.position and (sent.position.partition, sent.position.offset))
    assert at == [(0, 100), (1, 50), (0, 101), (1, 51), None]
    origin = (await rejects.history(pool, Position("payroll.raw", 1, 0, 101))).sent_for
    assert origin == SOURCE.position(2)


async def test_a_dismissal_is_recorded_once(
    database: Database, pool: Pool, owner: asyncpg.Connection
) -> None:
    """Also when two people dismiss at once."""
    await put(owner, b"x", b"y")
    targets = [(SOURCE.position(n), bytes(32)) for n in range(2)]
    async with Pool(PoolSettings(database.operator_dsn, pool_size=1)) as other:
        new = await asyncio.gather(
            *(resubmissions.dismiss(one, "p", "w", targets) for one in (pool, other))
        )
    assert sorted(new) == [0, 2]
    assert await rejects.counted(pool, Which(state="dismissed")) == 2
    assert await rejects.counted(pool, Which()) == 0


# --- Foresight ------------------------------------------------------------------------------------


async def test_the_verdict_now(pool: Pool, database: Database, owner: asyncpg.Connection) -> None:
    """What would commit, duplicate or collide is foreseen against the ledger and against what is
    sent before it; nothing is written."""
    committed = json.dumps(STATEMENT).encode()
    async with Pool(PoolSettings(database.worker_dsn)) as worker:
        ledger = PostgresLedger(worker, PAYROLL)
        await ledger.begin(SOURCE, GROUP, TOKEN, "cluster", 0)
        fetched = steps.Fetched(0, 1, [Record(0, committed)])
        batch = steps.decide(fetched, PAYROLL, SOURCE, DecisionSet(), {})
        await steps.persist(ledger, PAYROLL, SOURCE, GROUP, TOKEN, batch)
    await put(owner, *(b"x" for _ in range(5)))
    found = await rejects.whole(pool, [SOURCE.position(n) for n in range(5)])
    other = {**STATEMENT, "employee_id": "B20000"}
    values = [
        committed,
        json.dumps({**STATEMENT, "gross_pay": "1.00"}).encode(),
        json.dumps(other).encode(),
        json.dumps(other).encode(),
        None,
    ]
    foresight = Foresight(pool, NoSchemaStore(), NOW_MS)
    candidates = [Candidate(one, value) for one, value in zip(found, values, strict=True)]
    now = await foresight.verdicts(candidates)
    assert [named(one) for one in now] == [
        "duplicate",
        "quarantined idempotency_collision",
        "committed",
        "duplicate",
        "quarantined malformed_json",
    ]
    assert isinstance(now[0], Duplicate)
    assert now[0].holder == SOURCE.position(0)
    assert isinstance(now[1], Refused)
    assert {v.path for v in now[1].violations} == {"", "gross_pay"}
    (again,) = await foresight.verdicts([candidates[3]])
    assert named(again) == "duplicate"
    assert await owner.fetchval("SELECT count(*) FROM payroll_ledger") == 1


class Store:
    """The schemas an example comes with."""

    def __init__(self, example: Example) -> None:
        self._schemas = example.schemas

    async def find(self, ref: Any) -> Any:
        return self._schemas.get(ref)


def _texts(value: object, masked: object) -> Iterator[str]:
    """The texts that were masked."""
    if masked == MASK and isinstance(value, str):
        yield value
    elif isinstance(value, Mapping) and isinstance(masked, Mapping):
        for name in value:
            yield from _texts(value[name], masked[name])
    elif isinstance(value, list) and isinstance(masked, list):
        for one, other in zip(value, masked, strict=True):
            yield from _texts(one, other)


async def test_every_example_is_shown_masked_and_foreseen(
    pool: Pool, owner: asyncpg.Connection
) -> None:
    """Of every kind of reject: the verdict now is its reason, no masked text is anywhere in what is
    shown, and all of it is there once revealed."""
    hidden = 0
    for number, (record_type, example) in enumerate(
        (one, example) for one in RECORD_TYPES.values() for example in load_examples(one)
    ):
        source = Source(record_type.raw_topic, 0)
        given = example.record
        record = Record(number, given.value, given.timestamp, b"key-of-it", given.headers)
        row = refuse(source, record, example.schemas)
        if row is None:
            continue
        await owner.copy_records_to_table("quarantine", columns=QUARANTINE_COLUMNS, records=[row])
        reject = await desk.one(pool, source.position(number))
        now_ms = given.timestamp if given.timestamp >= 0 else NOW_MS
        masked = await desk.show(pool, Store(example), GROUP, reject, now_ms, revealed=False)
        revealed = await desk.show(pool, Store(example), GROUP, reject, now_ms, revealed=True)
        if example.reason is not Reason.CLOCK_SKEW:
            assert named(masked.now) == f"quarantined {example.reason}", example.name
        said = json.dumps(masked.as_dict(), ensure_ascii=False)
        all_of_it = json.dumps(revealed.as_dict(), ensure_ascii=False)
        for text in _texts(revealed.members, masked.members):
            assert json.dumps(text, ensure_ascii=False)[1:-1] in all_of_it
            if len(text) > 5:
                assert text not in said, example.name
                hidden += 1
    assert hidden > 10
