"""Partitions that make no progress for causes nobody thought of: named, dumped, healed.

What a pass does not prove: that every cause is healed by assigning again.
"""

from __future__ import annotations

import asyncio
import json

import asyncpg
import pytest

from tests.faults.gate import Gate
from tests.integration.stream import (
    Sent,
    committed,
    fetch,
    producer,
    query,
    send,
    statement,
    until_ready,
)

STALL_S = 2


@pytest.mark.timeout(180)
@pytest.mark.parametrize(
    ("act", "step"),
    [("hang-fetch", "fetch"), ("pause-consumer", "fetch"), ("hang-schemas", "schemas")],
)
async def test_a_stall_is_named_and_healed(gate: Gate, act: str, step: str) -> None:
    """A fetch that never returns, a consumer paused by a bug, a batch that hangs: readiness turns
    red with partition, position, step and duration, one line dumps the state, and the partition
    goes on by itself; nothing is lost or doubled."""
    gate.batch_records = 20
    await gate.publish(600)
    worker = await gate.worker(act, nth=6, stall_s=STALL_S)
    await worker.acted()
    if act == "hang-fetch":  # given up about when it would be seen
        await worker.says("event=fetch_stalled")
    else:
        causes = " ".join(await until_ready(worker, ready=False))
        await worker.says("event=partition_stalled")
        assert f"waits in step {step}" in causes
        assert "no progress for" in causes
        line = next(x for x in worker.text().splitlines() if "event=partition_stalled" in x)
        for word in ("last_stable_offset=", "in_flight=", "epoch=", "position=", "state=running"):
            assert word in line
    await gate.drain()
    await until_ready(worker, ready=True)
    await gate.prove()
    assert await worker.stop() == 0


@pytest.mark.timeout(180)
async def test_a_lock_held_by_a_foreign_session(gate: Gate) -> None:
    """A session that locks the cursors: red with the cause as long as it does; green and complete
    afterwards, and no record was turned away for it."""
    await gate.publish(300)
    worker = await gate.worker(stall_s=STALL_S)
    await worker.says("event=batch ")
    foreign = await asyncpg.connect(gate.database.owner_dsn)
    transaction = foreign.transaction()
    await transaction.start()
    await foreign.execute("LOCK TABLE partition_cursor IN ACCESS EXCLUSIVE MODE")
    try:
        await gate.publish(200)
        causes = " ".join(await until_ready(worker, ready=False))
        await asyncio.sleep(3)
    finally:
        await transaction.rollback()
        await foreign.close()
    assert "a lock was not free within the lock timeout" in causes
    await gate.drain()
    await until_ready(worker, ready=True)
    await gate.prove()


@pytest.mark.timeout(120)
async def test_a_foreign_open_transaction_is_named_and_is_no_stall(gate: Gate) -> None:
    """A publisher that leaves its transaction open holds back what follows it. Readiness stays
    green and notes it, lag is 0, nothing is assigned again; once it ends, all comes through."""
    one, two = statement("A000001"), statement("A000002")
    topic = f"{gate.prefix}payroll.raw"
    async with producer(gate, transactional_id=f"foreign/{gate.prefix}") as client:
        await client.begin_transaction()
        sent = await client.send_and_wait(topic, json.dumps(one).encode(), partition=0)
        gate.placed.setdefault("payroll", {})[0, sent.offset] = committed(one)
        await send(gate, "payroll", [Sent(two, committed(two))])
        worker = await gate.worker(stall_s=STALL_S)
        await worker.says("event=open_transaction")
        status, body = await fetch(worker, "/ready")
        (note,) = json.loads(body)["notes"]
        assert status == 200
        assert f"{topic}/0: a publisher's transaction, open at offset 0, has kept 2 offsets" in note
        _, metrics = await fetch(worker, "/metrics")
        labels = f'{{partition="0",topic="{topic}"}}'
        assert f"weighbridge_open_transaction_offsets{labels} 2.0" in metrics
        assert f"weighbridge_lag_records{labels} 0.0" in metrics
        await asyncio.sleep(2 * STALL_S)
        assert "partition_stalled" not in worker.text()
        await client.commit_transaction()
    await gate.drain()
    await gate.prove()
    (row,) = await query(gate, "SELECT count(*) FROM payroll_ledger")
    assert row[0] == 2
