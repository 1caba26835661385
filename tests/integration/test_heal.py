"""A database set back to a copy is healed from the output topics, on real servers.

What a pass does not prove: that a database which went on after it was set back can be healed; that
is refused.
"""

from __future__ import annotations

import asyncio
import json
import random
import signal
from collections.abc import Iterable
from typing import Any

import asyncpg
import pytest

from schemas.decision_set import DecisionSet, Limits
from schemas.record_types import RECORD_TYPES
from streams.demo.encoding import confluent_head
from tests.faults.gate import Gate
from tests.integration.healing import (
    Past,
    age_out,
    harmed_heal,
    heal,
    past_of,
    run_worker_until_drained,
    stopped,
)
from tests.integration.stream import Sent, events, producer, report, send, statement
from tests.servers import execute

SEED = 20261201
POISON = "POISON1"
LATE_SCHEMA = 77
TRACE, PARENT = "traceparent", b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


@pytest.mark.timeout(150)
async def test_a_database_set_back_is_healed(gate: Gate) -> None:
    """Stopped workers, a dry run that changes nothing, a heal after which every row is as it was, a
    second heal that finds nothing, and a stream that goes on with nothing lost or repeated."""
    async with past_of(gate) as past:
        await gate.publish(250)
        await run_worker_until_drained(gate)
        await past.keep()
        await gate.publish(300)
        await run_worker_until_drained(gate)
        await past.set_back()
        await stopped(gate)
        before = await past.everything(past.name)

        tried = await heal(gate, "--dry-run", "--json")
        assert tried.code == 1, tried
        assert await past.everything(past.name) == before

        done = await heal(gate, "--why", "restored from the copy", "--json")
        assert done.code == 0, done
        await past.assert_healed()
        said, foretold = json.loads(done.out), json.loads(tried.out)
        assert said["partitions"] == foretold["partitions"]
        assert {p["topic"] for p in said["partitions"]} == set(gate.topics)
        for kind in ("committed", "quarantined", "decided_again"):
            assert sum(p[kind] for p in said["partitions"]) > 0
        assert said["stop_marks_cleared"] >= 1
        acts = await past.query(past.name, "SELECT * FROM operations ORDER BY number")
        assert [a["number"] for a in acts] == said["acts"]
        assert {(a["act"], a["who"], a["why"]) for a in acts} == {
            ("heal", "an operator", "restored from the copy")
        }

        healed = await past.everything(past.name)
        again = await heal(gate)
        assert (again.code, again.out.split("\n")[0]) == (0, "nothing to heal")
        assert await past.everything(past.name) == healed

        await gate.publish(100)
        await run_worker_until_drained(gate)
        await gate.prove()


@pytest.mark.timeout(150)
async def test_killed_at_any_moment(gate: Gate) -> None:
    """SIGKILL at each step of a heal: nothing has changed before its commit, all of it after; the
    next heal ends what is left to do. Set back to before its first batch, to make most of it."""
    chance = random.Random(SEED)
    async with past_of(gate) as past:
        await past.keep()
        await gate.publish(300)
        await run_worker_until_drained(gate)
        await past.set_back()
        await stopped(gate)
        before = await past.everything(past.name)
        for act, nth_max in (
            ("after-rows", 3),
            ("after-page", 4),
            ("after-act", 4),
            ("before-commit", 1),
        ):
            code = await harmed_heal(gate, act, chance.randint(1, nth_max))
            assert code == -signal.SIGKILL, act
            assert await past.everything(past.name) == before, act
        assert await harmed_heal(gate, "after-commit", 1) == -signal.SIGKILL
        await past.assert_healed()
        again = await heal(gate)
        assert (again.code, again.out.split("\n")[0]) == (0, "nothing to heal"), again
        await gate.publish(40)
        await run_worker_until_drained(gate)
        await gate.prove()


def _sent(values: Iterable[object], partition: int = 0) -> list[Sent]:
    return [Sent(value, None, partition, key=b"k") for value in values]


async def _special_records(gate: Gate, committed_before: dict[str, Any]) -> None:
    """Duplicates and collisions of what was committed before and after the copy, rejects of many
    kinds, records that leave nothing in an event, transactions."""
    await send(gate, "payroll", _sent([statement("B00001"), statement("B00002")]))
    records = [
        Sent(committed_before, None, 1),
        Sent({**committed_before, "gross_pay": "1.00"}, None, 1),
        Sent(None, None, key=b"k"),
        Sent(None, None, key=b"k" * 20_000),
        Sent(b"x" * 1_000_001, None, 1, headers=(("trace", b"\xc3\x28"), ("flag", None))),
        Sent(b"{", None, headers=(("correlation-id", b"c-1"), ("wb-fake", b"1"), ("x", b"y"))),
        Sent({**statement("B00003"), "correlation_id": "own"}, None, headers=((TRACE, PARENT),)),
        Sent({"correlation_id": "from the field"}, None),
        Sent(statement(POISON), None),
        Sent(statement("123456789"), None, 1),
        Sent(confluent_head(LATE_SCHEMA) + b"body", None),
        Sent({**statement("B00004"), "note": [1, {"deep": "1.50"}], "earnings": []}, None, 1),
    ]
    await send(gate, "payroll", records)
    for end in ("commit_transaction", "abort_transaction"):
        async with producer(gate, transactional_id=f"{gate.prefix}{end}") as client:
            await client.begin_transaction()
            for number in range(3):
                value = json.dumps(statement(f"{end[0].upper()}0000{number}")).encode()
                await client.send_and_wait(f"{gate.prefix}payroll.raw", value, partition=1)
            await getattr(client, end)()
    await send(gate, "payroll", _sent([statement("B00001"), statement("C00001")], partition=1))
    signed = [{"role": "driver", "signer_id": "D-7", "signed_at": "2026-11-03T11:42:09Z"}]
    grave = [{"part": "other", "severity": "major", "outcome": "open"}]
    dvirs = [report("r/1", signatures=signed), report("r/2", certification=None, defects=grave)]
    await send(gate, "dvir", _sent([*dvirs, report("r/3", defects=grave, payload="{}"), dvirs[0]]))


@pytest.mark.timeout(150)
async def test_records_that_are_hard_to_tell(gate: Gate) -> None:
    """Whatever a record and its verdict are, and though a schema that was unknown is known by now:
    its row is as it was."""
    await execute(
        gate.database.owner_dsn,
        "ALTER TABLE payroll_ledger ADD CONSTRAINT payroll_test_poison"
        f" CHECK (employee_id <> '{POISON}')",
    )
    async with past_of(gate) as past:
        first = statement("A00001")
        await send(gate, "payroll", _sent([first, statement("A00002")]))
        await run_worker_until_drained(gate)
        await past.keep()
        await _special_records(gate, first)
        await run_worker_until_drained(gate)
        await past.set_back()
        schema = (RECORD_TYPES["payroll"].raw_schemas[-1]).text
        (gate.folder / "store" / f"{LATE_SCHEMA}.avsc").write_text(schema, encoding="utf-8")
        done = await heal(gate)
        assert done.code == 0, done
        await past.assert_healed()
        reasons = {r[0] for r in await past.query(past.name, "SELECT reason FROM quarantine")}
        assert {
            "tombstone",
            "oversize",
            "unknown_schema",
            "persist_failed",
            "uncertified",
        } < reasons
        assert "idempotency_collision" in reasons
        wanted = "SELECT FROM quarantine WHERE safety_critical OR octet_length(record_key) > 16384"
        assert len(await past.query(past.name, wanted)) == 2


@pytest.mark.timeout(150)
async def test_raw_records_aged_out(gate: Gate) -> None:
    """Without raw records verdicts come from their events alone, and it is said; where a position
    has neither, a duplicate and a marker look the same: heal stops and names it."""
    async with past_of(gate) as past:
        await send(gate, "payroll", _sent(statement(f"A{n:05d}") for n in range(5)))
        await run_worker_until_drained(gate)
        await past.keep()
        fresh = [statement(f"B{n:05d}") for n in range(30)]
        await send(gate, "payroll", _sent([*fresh, b"{", None, {"a": 1}, statement("C00001")]))
        await run_worker_until_drained(gate)
        await past.set_back()
        await age_out(gate, "payroll.raw", 0, 38)
        done = await heal(gate, "--json")
        assert done.code == 0, done
        (partition,) = json.loads(done.out)["partitions"]
        assert partition["from_events_alone"] == 33
        await past.assert_healed()

        await past.drop()
        await past.keep()
        again = [fresh[0], statement("D00001")]
        await send(gate, "payroll", _sent([*again, statement("D00002")]))
        await run_worker_until_drained(gate)
        await past.set_back()
        await age_out(gate, "payroll.raw", 0, 40)
        before = await past.everything(past.name)
        refused = await heal(gate)
        assert refused.code == 3
        assert "payroll.raw/1/0/39: " in refused.err
        assert "no event" in refused.err
        assert await past.everything(past.name) == before


@pytest.mark.timeout(200)
async def test_what_does_not_fit_stops_the_heal(gate: Gate) -> None:
    """A decision set that is gone, a running worker, a database that went on, an event that is
    missing: heal says which and changes nothing."""
    async with past_of(gate) as past:
        nine = statement("123456789")
        await send(gate, "payroll", _sent([nine, statement("A00001")]))
        await run_worker_until_drained(gate)
        await past.keep()
        changed = DecisionSet(limits=Limits(allow_nine_digit_ids=True))
        await execute(
            gate.database.owner_dsn,
            f"INSERT INTO decision_set VALUES ('\\x{changed.digest.hex()}', '{changed.as_json()}')",
            f"INSERT INTO activation (digest) VALUES ('\\x{changed.digest.hex()}')",
        )
        await send(gate, "payroll", _sent([nine, nine, statement("A00002")]))
        await run_worker_until_drained(gate)
        await past.set_back()

        await _assert_refused(past, changed.digest.hex())
        await _assert_one_at_a_time(past)
        await _go_on(past)
        await _assert_refused(past, "holds its key")
        await past.set_back_again()

        file = gate.folder / "changed.json"
        file.write_text(json.dumps(json.loads(changed.as_json()), indent=2), encoding="utf-8")
        done = await heal(gate, "--decision-set", file)
        assert done.code == 0, done
        assert f"{changed.digest.hex()} was stored again" in done.out
        assert "activate it again" in done.out
        ledgers = "SELECT key, decision_set FROM payroll_ledger ORDER BY key"
        assert await past.query(past.name, ledgers) == await past.query(past.lost, ledgers)
        verdicts = await past.verdicts(past.name)
        assert verdicts == await past.verdicts(past.lost)

        worker = await gate.worker()
        await worker.says("state=running")
        await asyncio.sleep(1)  # until all its partitions are
        before = await past.everything(past.name)
        running = await heal(gate, session_timeout_ms=1_000)
        assert running.code == 3
        assert "1 worker(s)" in running.err
        assert await past.everything(past.name) == before
        assert await worker.stop() == 0

        await past.drop()
        await past.keep()
        offsets = await send(gate, "payroll", _sent([statement("E00001"), statement("E00002")]))
        await run_worker_until_drained(gate)
        await past.set_back()
        committed = await events(gate, "payroll.committed")
        lost = next(e for e in committed if e.headers[0][1].endswith(f"/0/{offsets[0]}".encode()))
        await age_out(gate, "payroll.committed", 0, lost.offset + 1)
        await _assert_refused(past, f"payroll.raw/1/0/{offsets[0]}: ", "would be committed")


async def _assert_refused(past: Past, *words: str) -> None:
    before = await past.everything(past.name)
    refused = await heal(past.gate)
    assert refused.code == 3, refused
    assert all(one in refused.err for one in words), refused.err
    assert await past.everything(past.name) == before


async def _assert_one_at_a_time(past: Past) -> None:
    connection = await asyncpg.connect(past.gate.services.dsn(past.name))
    try:
        await connection.execute("SELECT pg_advisory_lock(hashtext('weighbridge heal'))")
        await _assert_refused(past, "another `weighbridge heal`")
    finally:
        await connection.close()


async def _go_on(past: Past) -> None:
    """The database that was set back commits, in another partition, a key that was committed."""
    sql = "SELECT * FROM payroll_ledger WHERE employee_id = 'A00002'"
    (row,) = await past.query(past.lost, sql)
    changed = {**row, "partition": 1, "record_offset": 7}
    connection = await asyncpg.connect(past.gate.services.dsn(past.name))
    try:
        changed_set = DecisionSet(limits=Limits(allow_nine_digit_ids=True))
        await connection.execute(
            "INSERT INTO decision_set VALUES ($1, $2)", changed_set.digest, changed_set.as_json()
        )
        await connection.copy_records_to_table(
            "payroll_ledger", columns=list(changed), records=[tuple(changed.values())]
        )
    finally:
        await connection.close()
