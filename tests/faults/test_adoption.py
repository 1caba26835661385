"""A raw topic that was created again is adopted: nothing is lost, doubled or mixed up."""

from __future__ import annotations

import json

import pytest

from connectors.errors import ConfigurationError
from schemas.envelope import EVENT_ID, last_header
from schemas.verdict import Verdict
from streams.demo.made import Truth
from streams.demo.reading import Place
from streams.interventions import adopt
from streams.settings import Settings
from tests.faults.gate import Gate
from tests.faults.lives import prove_lives
from tests.integration.stream import events, query, statement
from tests.servers import execute

PAYROLL_RAW = "payroll.raw"


async def _adopt(gate: Gate) -> list[dict[str, object]]:
    outcome = await gate.command(
        "topics", "adopt", gate.prefix + PAYROLL_RAW, "--why", "created again by mistake", "--json"
    )
    assert outcome.code == 0, outcome.err
    return [json.loads(line) for line in outcome.out.splitlines()]


async def _try(gate: Gate, topic: str) -> None:
    await adopt(Settings.load(**gate.settings), topic, None, lambda _: None)


def _next_life(gate: Gate) -> dict[Place, object]:
    """Take the truths of the life that has ended."""
    return gate.placed.pop("payroll")  # type: ignore[return-value]


@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    ("records", "running"), [(60, False), (1_200, True)], ids=["shorter", "longer, running"]
)
async def test_recreated_and_adopted(gate: Gate, records: int, running: bool) -> None:  # noqa: FBT001 - a case
    """Whether the new log is shorter or longer, and a worker runs or not: it goes on in the next
    incarnation without a restart; keys of the first stay taken; no event comes twice; ids of the
    two differ; the act tells who, why and what ended."""
    await gate.publish()
    worker = await gate.worker(stopped_retry_s=1)
    await gate.drain()
    if not running:  # it takes Kafka's clients half a minute to notice
        await worker.stop()
        worker = None
    await gate.recreate(gate.prefix + PAYROLL_RAW)
    first = _next_life(gate)
    await gate.publish(records)
    worker = worker or await gate.worker(stopped_retry_s=1)
    await worker.says("topics adopt", deadline_s=90)
    adopted = await _adopt(gate)
    assert {one["partition"] for one in adopted} == set(range(gate.partitions))
    assert {one["incarnation"] for one in adopted} == {2}
    assert {one["owed_offsets_emitted"] for one in adopted} == {0}
    await gate.drain()
    await gate.publish(100)
    await gate.drain()
    assert await worker.stop() == 0
    await prove_lives(gate, "payroll", {1: first, 2: gate.placed["payroll"]})
    (act,) = await query(gate, "SELECT who, why, target, detail FROM operations")
    assert (act["who"], act["why"]) == ("pat", "created again by mistake")
    assert act["target"] == gate.prefix + PAYROLL_RAW
    detail = json.loads(act["detail"])["partitions"]
    assert {one["incarnation_before"] for one in detail} == {1}
    assert sum(one["counts_before"]["records_in"] for one in detail) == len(first)
    with pytest.raises(ConfigurationError, match="nothing is wrong"):
        await _try(gate, gate.prefix + PAYROLL_RAW)


@pytest.mark.timeout(240)
async def test_what_was_owed_comes_out_before_the_next_life_begins(gate: Gate) -> None:
    """A worker died between persist and emit, then the topic was replaced: adoption says that
    events were owed and emits them, under the ids of the life they belong to."""
    await gate.publish()
    victim = await gate.worker("kill-after-persist", nth=5)
    await victim.acted()
    await victim.ended()
    topic = gate.prefix + PAYROLL_RAW
    rows = await query(
        gate, "SELECT partition, next_offset FROM partition_cursor WHERE topic = $1", topic
    )
    decided = {row["partition"]: row["next_offset"] for row in rows}
    first = {
        place: truth
        for place, truth in _next_life(gate).items()
        if place[1] < decided.get(place[0], 0)
    }
    await gate.recreate(topic)
    adopted = await _adopt(gate)
    owed = sum(int(str(one["owed_offsets_emitted"])) for one in adopted)
    dvir = await query(
        gate,
        "SELECT count(*) FROM verdict_page WHERE topic <> $1 AND consumer_group = 'gate'",
        topic,
    )
    assert owed > 0 or dvir[0][0] > 0
    await prove_lives(gate, "payroll", {1: first})
    await gate.worker(stopped_retry_s=1)
    await gate.drain()
    await prove_lives(gate, "payroll", {1: first})


@pytest.mark.timeout(240)
async def test_the_same_record_in_both_lives_is_a_duplicate(gate: Gate) -> None:
    """G2 holds across incarnations, and the event names the position of the first life."""
    from tests.integration.stream import Sent, committed, send

    one = statement("A00001")
    await send(gate, "payroll", [Sent(one, committed(one))])
    worker = await gate.worker()
    await gate.drain()
    await worker.stop()
    await gate.recreate(gate.prefix + PAYROLL_RAW)
    await send(gate, "payroll", [Sent(one, None), Sent(statement("A00002"), None)])
    await _adopt(gate)
    await gate.worker()
    await gate.drain()
    ids = [last_header(e.headers, EVENT_ID) for e in await events(gate, "payroll.committed")]
    topic = gate.prefix + PAYROLL_RAW
    assert ids == [f"{topic}/1/0/0".encode(), f"{topic}/2/0/1".encode()]
    (row,) = await query(
        gate,
        "SELECT committed, duplicate, incarnation FROM partition_cursor "
        "WHERE topic = $1 AND partition = 0",
        topic,
    )
    assert tuple(row) == (2, 1, 2)


@pytest.mark.timeout(180)
async def test_another_cluster_with_the_same_topic(gate: Gate) -> None:
    """The worker stops and names both clusters; adopted, the log is read anew in the next life:
    what was committed is a duplicate, and no statement gets a second row or event."""
    await gate.publish(300)
    worker = await gate.worker(stopped_retry_s=1)
    await gate.drain()
    first = dict(gate.placed["payroll"])
    topic = gate.prefix + PAYROLL_RAW
    await execute(
        gate.database.owner_dsn,
        f"UPDATE partition_cursor SET cluster_id = 'elsewhere' WHERE topic = '{topic}'",
    )
    await worker.stop()
    worker = await gate.worker(stopped_retry_s=1)
    await worker.says("decided against Kafka cluster elsewhere, this is cluster")
    await _adopt(gate)
    await gate.drain()
    again = {
        place: Truth(Verdict.DUPLICATE) if truth.verdict is Verdict.COMMITTED else truth
        for place, truth in first.items()
    }
    await prove_lives(gate, "payroll", {1: first, 2: again})


@pytest.mark.timeout(120)
async def test_what_cannot_be_adopted_is_refused(gate: Gate) -> None:
    """A topic that is not ours, was never decided, is not there, or has lost a partition: each
    refusal says what to do, and nothing is on record."""
    topic = gate.prefix + PAYROLL_RAW
    with pytest.raises(ConfigurationError, match=topic):
        await _try(gate, "orders")
    with pytest.raises(ConfigurationError, match="decided nothing"):
        await _try(gate, topic)
    await gate.publish(100)
    worker = await gate.worker()
    await gate.drain()
    await worker.stop()
    refused = await gate.command("topics", "adopt", topic)
    assert (refused.code, "nothing is wrong" in refused.err) == (2, True)
    gate.partitions = 1
    await gate.recreate(topic)
    with pytest.raises(ConfigurationError, match="topics create --partitions"):
        await _try(gate, topic)
    assert not await query(gate, "SELECT FROM operations")
