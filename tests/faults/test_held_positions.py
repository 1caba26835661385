"""Positions that an operator set aside: the way past what would stop a partition for good."""

from __future__ import annotations

import pytest

from connectors.errors import ConfigurationError
from schemas.envelope import DETAIL, Position, last_header
from schemas.reasons import Reason
from streams import interventions
from streams.settings import Settings
from tests.faults.gate import Gate
from tests.integration.stream import (
    Sent,
    committed,
    events,
    query,
    send,
    statement,
    turned_away,
    until_ready,
)
from tests.servers import execute

HELD = turned_away(Reason.HELD_BY_OPERATOR)
PLACE = "payroll.raw/1/0"


async def _send(gate: Gate, count: int, held: int | None = None, first: int = 0) -> None:
    made = [statement(f"A{n:06d}") for n in range(first, first + count)]
    await send(
        gate,
        "payroll",
        [Sent(one, HELD if n == held else committed(one)) for n, one in enumerate(made, first)],
    )


async def _begun(gate: Gate) -> None:
    """The partition has a cursor."""
    await _send(gate, 2)
    worker = await gate.worker()
    await gate.drain()
    await worker.stop()


async def _add(gate: Gate, offset: int, *options: object) -> None:
    position = f"{gate.prefix}{PLACE}/{offset}"
    outcome = await gate.command(
        "quarantine", "add", "--position", position, "--why", "hangs the worker", *options
    )
    assert outcome.code == 0, outcome.err


@pytest.mark.timeout(120)
async def test_a_held_record_is_kept_and_its_neighbours_commit(gate: Gate) -> None:
    """The record gets the verdict when its turn comes, with its bytes, and nothing else changes;
    what cannot be meant is refused."""
    await _begun(gate)
    await _send(gate, 10, held=7, first=2)
    settings = Settings.load(**gate.settings)
    for wrong, says in (
        ("1/0/1", "has its verdict already"),
        ("2/0/7", "is in incarnation 1"),
        ("1/0/99", "no record at 99"),
        ("1/5/1", "decided nothing"),
    ):
        position = Position.parse(f"{gate.prefix}payroll.raw/{wrong}")
        with pytest.raises(ConfigurationError, match=says):
            await interventions.set_aside(settings, position, position.offset, "why")
    await _add(gate, 7)
    await _add(gate, 7)  # set aside twice is set aside
    await gate.worker()
    await gate.drain()
    await gate.prove()
    (row,) = await query(gate, "SELECT record_offset, record_value, detail FROM quarantine")
    assert row["record_offset"] == 7
    assert b"A000007" in row["record_value"]
    acts = await query(gate, "SELECT act, who, why, target FROM operations ORDER BY number")
    assert [tuple(act) for act in acts] == [
        ("hold-position", "pat", "hangs the worker", f"{gate.prefix}{PLACE}/7")
    ] * 2


@pytest.mark.timeout(150)
async def test_a_record_that_alone_exceeds_every_deadline(gate: Gate) -> None:
    """Slowness is never a reason: the partition stops, names the position and the way past it, and
    goes on once that was gone; all before it was decided."""
    await execute(
        gate.database.owner_dsn,
        "CREATE FUNCTION sleepy() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
        "IF NEW.employee_id = 'A000005' THEN PERFORM pg_sleep(60); END IF; RETURN NEW; END $$",
        "CREATE TRIGGER sleepy BEFORE INSERT ON payroll_ledger "
        "FOR EACH ROW EXECUTE FUNCTION sleepy()",
    )
    await _send(gate, 8, held=5)
    worker = await gate.worker(batch_deadline_s=1.5, stopped_retry_s=1)
    position = f"{gate.prefix}{PLACE}/5"
    await worker.says(f"quarantine add --position {position}")
    assert f"{position} --why" in " ".join(await until_ready(worker, ready=False))
    (row,) = await query(gate, "SELECT count(*) FROM payroll_ledger")
    assert row[0] == 5
    await _add(gate, 5)
    await gate.drain()
    await gate.prove()


@pytest.mark.timeout(120)
@pytest.mark.parametrize("act", ["damage", "lose"])
async def test_a_record_that_cannot_be_read(gate: Gate, act: str) -> None:
    """The partition stops after its good neighbours and names the position; set aside, it is kept
    with what bytes could be had, counts as one record, and reading goes on, also in the next
    worker."""
    await _begun(gate)
    await _send(gate, 10, held=6, first=2)
    worker = await gate.worker(act, nth=6, stopped_retry_s=1)
    await worker.says(f"quarantine add --position {gate.prefix}payroll.raw/N/0/6 ")
    await _add(gate, 6)
    await gate.drain()
    await worker.stop()
    if act == "lose":  # the next worker knows the log by the record before
        successor = await gate.worker(act, nth=6)
        await _send(gate, 3, first=12)
        await gate.drain()
        assert "state=stopped" not in successor.text()
    (row,) = await query(gate, "SELECT * FROM quarantine")
    (event,) = await events(gate, "payroll.quarantine")
    assert row["record_offset"] == 6
    assert row["reason"] == "held_by_operator"
    kept = "its bytes, unchecked" if act == "damage" else "no bytes"
    assert kept in row["detail"]
    assert kept.encode() in (last_header(event.headers, DETAIL) or b"")
    assert (row["record_value"] is not None) == (act == "damage")
    (cursor,) = await query(
        gate,
        "SELECT records_in, committed, quarantined FROM partition_cursor "
        "WHERE topic = $1 AND partition = 0",
        f"{gate.prefix}payroll.raw",
    )
    more = 3 if act == "lose" else 0
    assert tuple(cursor) == (12 + more, 11 + more, 1)
    if act == "damage":
        await gate.prove()
