"""A flood of rejects pauses its partition; an operator lets it go on."""

from __future__ import annotations

import asyncio
import json

import pytest

from schemas.reasons import Reason
from tests.faults.gate import Gate, Harmed
from tests.integration.stream import (
    Sent,
    committed,
    fetch,
    query,
    report,
    send,
    statement,
    turned_away,
    until_ready,
)


def _good(first: int, count: int) -> list[Sent]:
    made = [statement(f"A{n:06d}") for n in range(first, first + count)]
    return [Sent(one, committed(one)) for one in made]


def _bad(count: int) -> list[Sent]:
    return [Sent(b"not json", turned_away(Reason.MALFORMED_JSON)) for _ in range(count)]


SETTINGS = {"breaker_window": 100, "breaker_counted_min": 50, "stopped_retry_s": 1}


@pytest.mark.timeout(180)
async def test_a_flood_pauses_its_partition_until_it_is_resumed(gate: Gate) -> None:
    """What was decided comes out; nothing more is decided there, by this worker or the next; the
    other partition and the other type go on; status, readiness and metrics name the cause; resumed,
    on record, all goes on and each record has had its one verdict."""
    place = f"{gate.prefix}payroll.raw/0"
    early = await gate.command("resume", place, "--why", "none")
    assert (early.code, "is not paused" in early.err) == (2, True)
    other = [statement(f"B{n:06d}") for n in range(30)]
    await send(gate, "payroll", [*_good(0, 30), *_bad(400), *_good(30, 30)])
    await send(gate, "payroll", [Sent(one, committed(one), partition=1) for one in other])
    worker = await gate.worker(**SETTINGS)
    await worker.says("breaker_tripped")
    (cause,) = await until_ready(worker, ready=False)
    assert f"`weighbridge resume {place} --why TEXT`" in cause
    labels = f'{{partition="0",topic="{gate.prefix}payroll.raw"}}'
    metrics = await _metrics_with(worker, f"weighbridge_scalable_lag_records{labels} 0.0")
    assert f"weighbridge_partition_paused{labels} 1.0" in metrics
    assert f"weighbridge_lag_records{labels} 0.0" not in metrics
    await _until_booked(gate, 60)
    before = await _standing(gate)
    assert 50 <= before["quarantined"] < 400
    await worker.stop()
    successor = await gate.worker(**SETTINGS)
    assert "is paused" in " ".join(await until_ready(successor, ready=False))
    vehicle = report("r/1")
    await send(gate, "dvir", [Sent(vehicle, committed(vehicle))])
    await asyncio.sleep(2)
    assert await _standing(gate) == before
    outcome = await gate.command("status", "--json")
    assert outcome.code == 3
    shown = [json.loads(line) for line in outcome.out.splitlines()]
    (paused,) = [one for one in shown if one["paused"]]
    assert f"{paused['topic']}/{paused['partition']}" == place
    assert (paused["lag"] > 0, paused["scalable_lag"]) == (True, 0)
    assert "PAUSED" in (await gate.command("status")).out

    resumed = 0
    async with asyncio.timeout(60):
        while (await _standing(gate))["quarantined"] < 400 or resumed == 0:
            outcome = await gate.command("resume", place, "--why", "the source is mended")
            resumed += outcome.code == 0
            await asyncio.sleep(0.5)
    await gate.drain()
    await gate.prove()
    acts = await query(gate, "SELECT act, who, why, target FROM operations")
    assert {tuple(act) for act in acts} == {("resume", "pat", "the source is mended", place)}
    assert len(acts) == resumed


async def _metrics_with(worker: Harmed, line: str) -> str:
    """The exposition, once it holds a line: lags are measured every second."""
    for _ in range(50):
        _, metrics = await fetch(worker, "/metrics")
        if line in metrics:
            return metrics
        await asyncio.sleep(0.2)
    raise AssertionError(line)


async def _standing(gate: Gate) -> dict[str, int]:
    rows = await query(
        gate,
        "SELECT next_offset, quarantined FROM partition_cursor WHERE topic = $1 AND partition = 0",
        f"{gate.prefix}payroll.raw",
    )
    return dict(rows[0])


async def _until_booked(gate: Gate, count: int) -> None:
    async with asyncio.timeout(20):
        while True:
            (row,) = await query(gate, "SELECT count(*) FROM payroll_ledger")
            if row[0] >= count:
                return
            await asyncio.sleep(0.1)


@pytest.mark.timeout(120)
async def test_dvirs_are_not_paused_by_default(gate: Gate) -> None:
    """A flood among DVIRs is quarantined and goes on."""
    await send(gate, "dvir", [Sent(b"not json", turned_away(Reason.MALFORMED_JSON))] * 300)
    worker = await gate.worker(**SETTINGS)
    await gate.drain()
    await until_ready(worker, ready=True)
    await gate.prove()
