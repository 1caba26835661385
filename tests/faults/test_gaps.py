"""Records that aged out before they were decided."""

from __future__ import annotations

import json

import pytest
from aiokafka import TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, RecordsToDelete

from tests.faults.gate import Gate
from tests.faults.lives import prove_lives
from tests.integration.stream import query, until_ready

PAYROLL_RAW = "payroll.raw"


@pytest.mark.timeout(240)
async def test_a_gap_is_accepted_once_and_on_record(gate: Gate) -> None:
    """Without the option the partition stops and names both offsets. With it, reading goes on at
    the log's start: counts balance, the missing have no verdict, other partitions are untouched,
    the act says from where to where; started so again, there is no gap and nothing on record."""
    topic = gate.prefix + PAYROLL_RAW
    await gate.publish()
    worker = await gate.worker()
    await gate.drain()
    await worker.stop()
    await gate.publish(300)
    start = await _delete_up_to(gate, topic, keep=20)
    begin = await _decided(gate, topic)
    assert begin < start
    stopped = await gate.worker()
    await stopped.says(
        f"{topic}/0: offset {begin} is wanted, but the log begins at {start}: records aged out"
    )
    assert f"{topic}/0 stopped" in " ".join(await until_ready(stopped, ready=False))
    await stopped.stop()
    options = ["--accept-gap", f"{topic}/0", "--accept-gap", f"{topic}/1"]
    worker = await gate.worker(options=options)
    await worker.says(f"{topic}/0: accepted the gap from offset {begin} to {start}")
    await worker.says(f"{topic}/1: no gap to accept")
    await gate.drain()
    await until_ready(worker, ready=True)
    await worker.stop()
    again = await gate.worker(options=options)
    await again.says(f"{topic}/0: no gap to accept")
    await gate.publish(100)
    await gate.drain()
    for place in [p for p in gate.placed["payroll"] if p[0] == 0 and begin <= p[1] < start]:
        del gate.placed["payroll"][place]
    await prove_lives(gate, "payroll", {1: gate.placed["payroll"]})
    (act,) = await query(gate, "SELECT act, who, target, detail, database_role FROM operations")
    assert (act["act"], act["target"]) == ("accept-gap", f"{topic}/0")
    assert act["database_role"] == "weighbridge_operator"
    detail = json.loads(act["detail"])
    assert (detail["from"], detail["to"], detail["incarnation"]) == (begin, start, 1)
    missing = await query(
        gate,
        "SELECT record_offset FROM quarantine WHERE topic = $1 AND partition = 0 "
        "AND record_offset >= $2 AND record_offset < $3",
        topic,
        begin,
        start,
    )
    assert not missing


async def _delete_up_to(gate: Gate, topic: str, *, keep: int) -> int:
    """As retention does: the log begins so many offsets before its end."""
    async with gate.watch() as watch:
        place = TopicPartition(topic, 0)
        start = watch.ends[place] - keep
    admin = AIOKafkaAdminClient(bootstrap_servers=gate.services.bootstrap)
    await admin.start()
    try:
        await admin.delete_records({place: RecordsToDelete(before_offset=start)})
    finally:
        await admin.close()
    return start


async def _decided(gate: Gate, topic: str) -> int:
    (row,) = await query(
        gate,
        "SELECT next_offset FROM partition_cursor WHERE topic = $1 AND partition = 0",
        topic,
    )
    return int(row["next_offset"])


@pytest.mark.timeout(60)
async def test_a_partition_that_was_never_decided_has_no_gap_to_accept(gate: Gate) -> None:
    """The worker does not start on a mistaken name: exit code 2, saying what is wrong."""
    worker = await gate.worker(options=["--accept-gap", f"{gate.prefix}{PAYROLL_RAW}/0"])
    assert await worker.ended() == 2
    assert "decided nothing" in worker.text()
    worker = await gate.worker(options=["--accept-gap", "orders/0"])
    assert await worker.ended() == 2
    assert "no raw topic" in worker.text()
