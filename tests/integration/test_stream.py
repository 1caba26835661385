"""Records through a real worker: what the database refuses, races, forms, headers, decision sets.

Each test ends by proving the guarantees from outside, where the truth of every record is known.
"""

from __future__ import annotations

import asyncio
import dataclasses
import hashlib
import json
from collections import Counter
from collections.abc import AsyncIterator
from datetime import date
from decimal import Decimal
from pathlib import Path

import pytest

from connectors.postgres.pool import max_concurrency
from schemas.decision_set import CONTRACT_VERSION, DecisionSet, Limits
from schemas.envelope import last_header
from schemas.reasons import Reason
from schemas.verdict import Verdict
from streams.demo.encoding import UNKNOWN_SCHEMA_ID, Encoder, Form, confluent_head
from streams.demo.publishing import publish
from tests.faults.gate import Gate
from tests.integration.stream import (
    Sent,
    committed,
    events,
    fetch,
    producer,
    query,
    report,
    send,
    statement,
    turned_away,
    until_ready,
)
from tests.servers import Database, Services, execute

POISON = "POISON1"
SECRET_PAY = "7654321.09"
PARTITIONS = 16


async def test_one_poisoned_record_costs_only_itself(gate: Gate) -> None:
    """A record whose data the database refuses is persist_failed, with SQLSTATE and constraint and
    no value anywhere but in its own bytes; all its neighbours commit."""
    await execute(
        gate.database.owner_dsn,
        "ALTER TABLE payroll_ledger ADD CONSTRAINT payroll_test_poison"
        f" CHECK (employee_id <> '{POISON}')",
    )
    good = [statement(f"A{n:05d}") for n in range(30)]
    bad = statement(POISON, gross_pay=SECRET_PAY)
    records = [Sent(members, committed(members)) for members in good]
    records.insert(17, Sent(bad, turned_away(Reason.PERSIST_FAILED)))
    await send(gate, "payroll", records)
    worker = await gate.worker()
    await gate.drain()
    assert await worker.stop() == 0
    await gate.prove()
    (row,) = await query(gate, "SELECT reason, detail, key FROM quarantine")
    (event,) = await events(gate, "payroll.quarantine")
    said = last_header(event.headers, "wb-detail") or b""
    assert said.decode() == row["detail"]
    assert "23514" in row["detail"]
    assert "payroll_test_poison" in row["detail"]
    assert row["key"] is not None
    headers = b" ".join(value or b"" for _, value in event.headers)
    for value in (POISON, SECRET_PAY):
        assert value not in row["detail"] + worker.text()
        assert value.encode() not in headers
    assert event.value == json.dumps(bad).encode()


async def test_a_poisoned_receipt_leaves_no_half_record(gate: Gate) -> None:
    """A signature the database refuses leaves neither ledger row nor receipt; neighbours commit
    with all of theirs."""
    await execute(
        gate.database.owner_dsn,
        "ALTER TABLE dvir_signature ADD CONSTRAINT dvir_test_poison"
        f" CHECK (signer_id <> '{POISON}')",
    )

    def signed(key: str, *signers: str) -> dict[str, object]:
        signatures = [{"role": "driver", "signer_id": s, "receipt": "r"} for s in signers]
        return report(key, signatures=signatures)

    good = [signed(f"r/{n}", "D-7", "M-1") for n in range(20)]
    records = [Sent(members, committed(members)) for members in good]
    poisoned = signed("r/poisoned", "D-7", POISON)
    records.insert(9, Sent(poisoned, turned_away(Reason.PERSIST_FAILED)))
    await send(gate, "dvir", records)
    await gate.worker()
    await gate.drain()
    await gate.prove()
    rows = await query(gate, "SELECT count(*) FROM dvir_signature")
    assert rows[0][0] == 40
    (row,) = await query(gate, "SELECT detail FROM quarantine")
    assert "23514" in row["detail"]
    assert "dvir_test_poison" in row["detail"]
    assert POISON not in row["detail"]


async def test_all_poisoned_alike_is_not_the_datas_fault(gate: Gate) -> None:
    """When the database refuses every record of a batch for one reason, nothing is quarantined: the
    partition waits and says why, and goes on once the cause is gone."""
    await execute(
        gate.database.owner_dsn,
        "ALTER TABLE payroll_ledger ADD CONSTRAINT payroll_test_poison CHECK (gross_pay < 0)",
    )
    good = [statement(f"A{n:05d}") for n in range(10)]
    await send(gate, "payroll", [Sent(members, committed(members)) for members in good])
    worker = await gate.worker()
    (cause,) = await until_ready(worker, ready=False)
    assert "23514" in cause
    assert "payroll_test_poison" in cause
    await execute(
        gate.database.owner_dsn, "ALTER TABLE payroll_ledger DROP CONSTRAINT payroll_test_poison"
    )
    await gate.drain()
    await until_ready(worker, ready=True)
    await gate.prove()


async def test_publishing_everything_again_changes_nothing(gate: Gate) -> None:
    """The same input a second time: no new row and no new event, each record that had committed is
    a duplicate, each that was turned away is turned away again."""
    part = gate.stock[:300]
    await gate.publish(300)
    await gate.worker()
    await gate.drain()
    await gate.prove()
    before = await _committed_events(gate)
    again = [
        dataclasses.replace(
            made, truth=dataclasses.replace(made.truth, verdict=Verdict.DUPLICATE, receipts=0)
        )
        if made.truth.verdict is Verdict.COMMITTED
        else made
        for made in part
    ]
    placed = await publish(gate.services.bootstrap, gate.prefix, again, lambda _: None)
    for name, places in placed.items():
        gate.placed[name].update(places)
    await gate.drain()
    await gate.prove()
    assert await _committed_events(gate) == before


async def _committed_events(gate: Gate) -> list[tuple[str, int, int, bytes]]:
    topics = ("payroll.committed", "dvir.committed")
    found = [event for topic in topics for event in await events(gate, topic)]
    return sorted((e.topic, e.partition, e.offset, e.value) for e in found)


@pytest.mark.timeout(120)
async def test_one_key_from_two_partitions_at_once(gate: Gate) -> None:
    """Two workers race for the same keys: one row and one event each, the other record is a
    duplicate when it says the same and a collision when it does not."""
    same = [statement(f"A{n:05d}") for n in range(200)]
    other = [statement(f"B{n:05d}") for n in range(60)]
    for partition in (0, 1):
        changed = [{**members, "gross_pay": f"{partition + 1}.00"} for members in other]
        records = [*same, *changed]
        records.sort(key=lambda m: hashlib.sha256(str(m["employee_id"]).encode()).digest())
        await send(gate, "payroll", [Sent(members, None, partition) for members in records])
    await asyncio.gather(gate.worker(), gate.worker())
    await gate.drain()
    rows = await query(gate, "SELECT encode(key, 'hex') AS key FROM payroll_ledger")
    assert len(rows) == 260
    found = await events(gate, "payroll.committed")
    places = Counter(last_header(event.headers, "wb-event-id") for event in found)
    assert (len(found), max(places.values())) == (260, 1)
    assert Counter(event.key for event in found).most_common(1)[0][1] == 1
    (counts,) = await query(
        gate,
        "SELECT sum(records_in), sum(committed), sum(duplicate), sum(quarantined)"
        " FROM partition_cursor",
    )
    assert tuple(map(int, counts)) == (520, 260, 200, 60)
    reasons = {event.key for event in await events(gate, "payroll.quarantine")}
    assert reasons == {b"idempotency_collision"}


@pytest.fixture
async def wide(
    services: Services, database: Database, topic_prefix: str, tmp_path: Path
) -> AsyncIterator[Gate]:
    """A gate with many more partitions than a worker has sessions."""
    gate = Gate(services, database, topic_prefix, tmp_path, partitions=PARTITIONS)
    await gate.prepare()
    try:
        yield gate
    finally:
        await gate.finish()


@pytest.mark.timeout(120)
async def test_database_connections_stay_below_their_bound(wide: Gate) -> None:
    """With many more partitions than sessions, the peak of sessions in use is the bound, and the
    server never sees more than the pool."""
    pool_size = 5
    for number in range(PARTITIONS):
        members = [statement(f"P{number:02d}{n:04d}") for n in range(40)]
        await send(wide, "payroll", [Sent(m, committed(m), number) for m in members])
    worker = await wide.worker(pool_size=pool_size, concurrency=PARTITIONS, batch_records=10)
    most = 0
    draining = asyncio.create_task(wide.drain())
    while not draining.done():
        (row,) = await query(
            wide,
            "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'weighbridge-worker'"
            " AND datname = current_database()",
        )
        most = max(most, row[0])
        await asyncio.sleep(0.02)
    await draining
    _, metrics = await fetch(worker, "/metrics")
    (line,) = [x for x in metrics.splitlines() if x.startswith("weighbridge_database_connections")]
    peak = float(line.split()[1])
    assert 1 < peak <= max_concurrency(pool_size, 1)
    assert most <= max_concurrency(pool_size, 1)
    await wide.prove()


async def test_every_form_of_avro(gate: Gate) -> None:
    """Single-object and Confluent-framed Avro commit as JSON does, with one digest; an id that the
    store does not have, and a body cut short, are turned away for what they are."""
    encoder = Encoder("payroll")
    avro_members = {**statement("AVRO01"), **_in_avro_types(statement("AVRO01"))}
    as_json = statement("AVRO01")
    single = encoder.encode(avro_members, Form.AVRO)
    framed = encoder.encode(avro_members, Form.CONFLUENT)
    duplicate = dataclasses.replace(committed(as_json), verdict=Verdict.DUPLICATE)
    await send(
        gate,
        "payroll",
        [
            Sent(single, committed(as_json)),
            Sent(framed, duplicate),
            Sent(as_json, duplicate),
            Sent(
                confluent_head(UNKNOWN_SCHEMA_ID) + framed[5:], turned_away(Reason.UNKNOWN_SCHEMA)
            ),
            Sent(b"\xc3\x01" + bytes(8) + single[10:], turned_away(Reason.UNKNOWN_SCHEMA)),
            Sent(framed[:-1], turned_away(Reason.MALFORMED_AVRO)),
            Sent(single + b"\x00", turned_away(Reason.MALFORMED_AVRO)),
        ],
    )
    await gate.worker()
    await gate.drain()
    await gate.prove()


def _in_avro_types(members: dict[str, object]) -> dict[str, object]:
    return {
        "pay_period_start": date.fromisoformat(str(members["pay_period_start"])),
        "pay_period_end": date.fromisoformat(str(members["pay_period_end"])),
        "gross_pay": Decimal(str(members["gross_pay"])),
    }


async def test_schema_store_away(gate: Gate) -> None:
    """While the schema store is away nothing is quarantined: readiness is red with the cause, and
    heals by itself once it is back."""
    store, away = gate.folder / "store", gate.folder / "away"
    await _move(store / "11.avsc", store / "88.avsc")
    worker = await gate.worker()
    first = statement("A00001")
    await send(gate, "payroll", [Sent(first, committed(first))])
    await gate.drain()
    await _move(store, away)
    encoder = Encoder("payroll")
    members = statement("A00002")
    framed = encoder.encode({**members, **_in_avro_types(members)}, Form.CONFLUENT)
    await send(gate, "payroll", [Sent(confluent_head(88) + framed[5:], committed(members))])
    (cause,) = await until_ready(worker, ready=False)
    assert "schema folder" in cause
    assert await query(gate, "SELECT FROM quarantine") == []
    await _move(away, store)
    await gate.drain()
    await until_ready(worker, ready=True)
    await gate.prove()


async def _move(source: Path, target: Path) -> None:
    await asyncio.to_thread(source.rename, target)


async def test_aborted_records_are_never_decided(gate: Gate) -> None:
    """Records of aborted transactions get no verdict; they and the markers are no lag, and both
    cursors move past them when nothing else comes."""
    good = statement("A00001")
    async with producer(gate, transactional_id=f"{gate.prefix}publisher") as client:
        await client.begin_transaction()
        topic = f"{gate.prefix}payroll.raw"
        for n in range(20):
            await client.send(topic, json.dumps(statement(f"X{n:05d}")).encode(), partition=0)
        await client.abort_transaction()
        async with client.transaction():
            sent = await client.send(topic, json.dumps(good).encode(), partition=0)
        offset = (await sent).offset
        gate.placed["payroll"] = {(0, offset): committed(good)}
        await client.begin_transaction()
        for n in range(20):
            await client.send(topic, json.dumps(statement(f"Y{n:05d}")).encode(), partition=0)
        await client.abort_transaction()
    worker = await gate.worker()
    await gate.drain()
    await gate.prove()
    await asyncio.sleep(1.5)  # lag is measured once a second
    _, metrics = await fetch(worker, "/metrics")
    lags = [x for x in metrics.splitlines() if x.startswith("weighbridge_lag_records{")]
    assert lags
    assert all(line.endswith(" 0.0") for line in lags)
    (cursor,) = await query(
        gate, "SELECT next_offset, records_in FROM partition_cursor WHERE records_in > 0"
    )
    assert (cursor["next_offset"], cursor["records_in"]) == (offset + 2 + 20 + 1, 1)


async def test_headers_of_a_quarantine_event(gate: Gate) -> None:
    """SPEC 3.5: inbound `wb-*` cannot pose as ours, key and timestamp are kept, a value too large
    for the topic is replaced by its digest and length while the table keeps every byte."""
    headers = (
        ("wb-reason", b"committed"),
        ("wb-event-id", b"mine"),
        ("wb-observed-at", b"2026-11-03T11:42:09Z"),
        ("correlation-id", b"c-77"),
        ("vendor", b"\x00\xff"),
    )
    junk, huge = b"\x7fjunk", b"[" + b"x" * 1_020_000 + b"]"
    oversize = Sent(huge, turned_away(Reason.OVERSIZE), key=b"k2")
    first = Sent(junk, turned_away(Reason.MALFORMED_JSON), key=b"k\x00", headers=headers)
    offsets = await send(gate, "payroll", [first, oversize])
    await gate.worker()
    await gate.drain()
    await gate.prove()
    found = {
        last_header(e.headers, "wb-event-id"): e for e in await events(gate, "payroll.quarantine")
    }
    one, two = (found[f"{gate.prefix}payroll.raw/1/0/{o}".encode()] for o in offsets)
    said = dict(one.headers)
    assert len(said) == len(one.headers)
    assert (one.key, one.value, one.partition) == (b"malformed_json", junk, 0)
    assert said["orig-wb-reason"] == b"committed"
    assert said["orig-wb-event-id"] == b"mine"
    assert said["wb-reason"] == b"malformed_json"
    assert said["wb-observed-at"] == headers[2][1]
    assert said["wb-key"] == b"k\x00"
    assert said["vendor"] == b"\x00\xff"
    assert said["correlation-id"] == b"c-77"
    rows = await query(
        gate, "SELECT record_value, kafka_timestamp FROM quarantine ORDER BY record_offset"
    )
    assert said["wb-timestamp"] == str(rows[0]["kafka_timestamp"]).encode()
    assert said["wb-raw-digest"] == hashlib.sha256(junk).hexdigest().encode()
    assert last_header(two.headers, "wb-truncated") == str(len(huge)).encode()
    assert json.loads(two.value or b"") == {
        "sha256": hashlib.sha256(huge).hexdigest(),
        "bytes": len(huge),
    }
    assert rows[1]["record_value"] == huge


async def _activate(gate: Gate, decision_set: DecisionSet) -> None:
    await query(
        gate,
        "INSERT INTO decision_set (digest, content) VALUES ($1, $2)",
        decision_set.digest,
        decision_set.as_json(),
    )
    await query(gate, "INSERT INTO activation (digest) VALUES ($1)", decision_set.digest)


async def test_a_decision_set_activated_under_a_running_worker(gate: Gate) -> None:
    """From the next batch on verdicts are those of the new set, and carry its digest."""
    nine = statement("123456789")
    await send(gate, "payroll", [Sent(nine, turned_away(Reason.SCHEMA_VIOLATION))])
    await gate.worker()
    await gate.drain()
    changed = DecisionSet(limits=Limits(allow_nine_digit_ids=True))
    await _activate(gate, changed)
    await send(gate, "payroll", [Sent(nine, committed(nine))])
    await gate.drain()
    await gate.prove()
    (row,) = await query(gate, "SELECT decision_set FROM payroll_ledger")
    (rejected,) = await query(gate, "SELECT decision_set FROM quarantine")
    assert (row["decision_set"], rejected["decision_set"]) == (
        changed.digest,
        DecisionSet().digest,
    )


async def test_a_decision_set_this_version_does_not_know(gate: Gate) -> None:
    """A worker that lacks the contract version in force stops, names the set and says what to do;
    nothing is decided by the old one."""
    first = statement("A00001")
    await send(gate, "payroll", [Sent(first, committed(first))])
    worker = await gate.worker()
    await gate.drain()
    unknown = DecisionSet(contract_version=CONTRACT_VERSION + 1)
    await _activate(gate, unknown)
    await send(gate, "payroll", [Sent(statement("A00002"), None)])
    assert await worker.ended() == 2
    said = worker.text()
    assert unknown.digest.hex()[:12] in said
    assert "Traceback" not in said
    assert len(await query(gate, "SELECT FROM payroll_ledger")) == 1
    other = await gate.worker()
    assert await other.ended() == 2
