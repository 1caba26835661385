"""The guarantees over several lives of a topic, where a partition and an offset name no record.

`Gate.prove` compares with what the raw topic holds now; here, records may be gone from it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from schemas.envelope import EVENT_ID, Position, last_header
from schemas.verdict import Verdict
from streams.demo.made import Truth
from streams.demo.reading import Place
from tests.faults.gate import Gate
from tests.integration.stream import events, query

Lives = Mapping[int, Mapping[Place, Truth]]
"""What must become of each record that could be read, by incarnation."""


async def prove_lives(gate: Gate, type_name: str, lives: Lives) -> None:
    """G1, G2 and G3 of a record type: each record its verdict, each key one row, each row and each
    reject one event, and counts that add up, in tables and topics as a reader sees them."""
    topic = f"{gate.prefix}{type_name}.raw"
    ledger = await query(
        gate, f"SELECT incarnation, partition, record_offset, key FROM {type_name}_ledger"
    )
    rejects = await query(
        gate,
        "SELECT incarnation, partition, record_offset, reason FROM quarantine WHERE topic = $1",
        topic,
    )
    became = {tuple(row)[:3]: Verdict.COMMITTED.name for row in ledger}
    became |= {tuple(row)[:3]: row["reason"] for row in rejects}
    assert len(became) == len(ledger) + len(rejects)
    wanted: dict[tuple[int, ...], str] = {}
    for incarnation, truths in lives.items():
        for place, truth in truths.items():
            said = truth.verdict.name if truth.reason is None else str(truth.reason)
            wanted[incarnation, *place] = said
    duplicates = {place for place, said in wanted.items() if said == Verdict.DUPLICATE.name}
    kept = {place: said for place, said in wanted.items() if place not in duplicates}
    wrong = {
        place: (wanted.get(place), became.get(place))
        for place in kept.keys() | became.keys()
        if kept.get(place) != became.get(place)
    }
    assert not wrong, f"wanted and found: {wrong}"
    assert len({row["key"] for row in ledger}) == len(ledger)
    assert await _events(gate, topic, f"{type_name}.committed") == Counter(
        tuple(row)[:3] for row in ledger
    )
    assert await _events(gate, topic, f"{type_name}.quarantine") == Counter(
        tuple(row)[:3] for row in rejects
    )
    await _counts(gate, topic, wanted, became)


async def _events(gate: Gate, raw_topic: str, topic: str) -> Counter[tuple[int, ...]]:
    found: Counter[tuple[int, ...]] = Counter()
    for event in await events(gate, topic):
        position = Position.parse((last_header(event.headers, EVENT_ID) or b"").decode())
        assert position.topic == raw_topic
        found[position.incarnation, position.partition, position.offset] += 1
    return found


async def _counts(
    gate: Gate,
    topic: str,
    wanted: Mapping[tuple[int, ...], str],
    became: Mapping[tuple[int, ...], str],
) -> None:
    for row in await query(
        gate,
        "SELECT partition, records_in, committed, duplicate, quarantined, held "
        "FROM partition_cursor WHERE topic = $1",
        topic,
    ):
        mine = [said for place, said in wanted.items() if place[1] == row["partition"]]
        kept = [said for place, said in became.items() if place[1] == row["partition"]]
        committed = kept.count(Verdict.COMMITTED.name)
        assert row["records_in"] == len(mine)
        assert row["committed"] == committed
        assert row["quarantined"] == len(kept) - committed
        assert row["duplicate"] == len(mine) - len(kept)
        assert row["held"] == 0
