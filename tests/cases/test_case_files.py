"""Each case through `weighbridge check`, and all of them through the real stream at once."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pytest

from schemas.envelope import NO_TIMESTAMP, OBSERVED_AT, REASON, Headers, last_header
from streams.demo.reading import look
from tests.cases.case_files import FOLDER, Case, CaseRecord, load, write_store
from tests.cli.command import Run, make_run
from tests.faults.gate import Gate
from tests.integration.stream import events, producer, query

CASES = load()
SETTLED = {"duplicate": "committed", "idempotency_collision": "committed"}
"""What a record that is alone in its file is, where its verdict depends on another's."""


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    return make_run(capsys, monkeypatch)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_check_says_so(case: Case, run: Run, tmp_path: Path) -> None:
    """Offline, each record by itself. A null value is no file, so tombstones are the stream's."""
    write_store(tmp_path, [case])
    for record in case.records:
        if record.value is None:
            continue
        (tmp_path / "value").write_bytes(record.value)
        arguments = ["check", tmp_path / "value", "--raw", "--json", "--type", case.type_name]
        arguments += ["--schema-store", tmp_path]
        if record.timestamp_ms != NO_TIMESTAMP:
            arguments += ["--timestamp", record.timestamp_ms]
        found = run(*arguments)
        expected = SETTLED.get(record.verdict, record.verdict)
        said = json.loads(found.out)
        assert expected == (said["reason"] or said["verdict"]), record.value
        assert found.code == (0 if expected == "committed" else 1)


def test_records_of_a_file_are_settled_against_each_other(run: Run, tmp_path: Path) -> None:
    """The same statement twice in one file, and one key with two contents."""
    case = next(case for case in CASES if case.name == "h22-same-key-twice")
    path = tmp_path / "run.ndjson"
    path.write_bytes(b"\n".join(record.value or b"" for record in case.records))
    found = [json.loads(line) for line in run("check", path, "--json").out.splitlines()]
    assert [one["reason"] or one["verdict"] for one in found] == [r.verdict for r in case.records]


@pytest.mark.timeout(300)
async def test_the_stream_says_so(gate: Gate) -> None:
    """All cases through Kafka, a worker and PostgreSQL: each record's verdict in table and topic,
    the neighbours' unharmed, every reject's bytes kept, every count right."""
    write_store(gate.folder / "store", CASES)
    placed = await _publish(gate)
    worker = await gate.worker()
    await gate.drain()
    assert worker.running
    for type_name in ("payroll", "dvir"):
        became = await _verdicts(gate, type_name)
        wrong = {
            (case.name, offset): (record.verdict, became.get(offset))
            for (name, offset), (case, record) in placed.items()
            if name == type_name and became.get(offset) != record.verdict
        }
        assert not wrong
        seen = await look(gate.outside, type_name)
        assert {r.place: r.digest for r in seen.quarantine}.items() <= seen.raw.items()
        assert sorted(b.place for b in seen.events) == sorted(b.place for b in seen.ledger)
        rejects = await events(gate, f"{type_name}.quarantine")
        found = [last_header(event.headers, REASON) for event in rejects]
        assert sorted(map(bytes.decode, found)) == sorted(r.reason for r in seen.quarantine)


async def _publish(gate: Gate) -> dict[tuple[str, int], tuple[Case, CaseRecord]]:
    """One partition, in order; the clock check sees the case's own time, retention does not."""
    placed = {}
    async with producer(gate) as client:
        for case in CASES:
            for record in case.records:
                sent = await client.send_and_wait(
                    f"{gate.prefix}{case.type_name}.raw",
                    record.value,
                    key=b"a key" if record.value is None else None,
                    partition=0,
                    headers=list(_headers(record)),
                    timestamp_ms=-1 if record.timestamp_ms == NO_TIMESTAMP else None,
                )
                placed[case.type_name, sent.offset] = case, record
    return placed


def _headers(record: CaseRecord) -> Headers:
    if record.timestamp_ms == NO_TIMESTAMP:
        return record.headers
    at = datetime.fromtimestamp(record.timestamp_ms / 1000, UTC)
    return (*record.headers, (OBSERVED_AT, at.isoformat().encode()))


async def _verdicts(gate: Gate, type_name: str) -> dict[int, str]:
    """By offset in partition 0, from the tables; what has no row is a duplicate."""
    topic = f"{gate.prefix}{type_name}.raw"
    seen = await look(gate.outside, type_name)
    became = dict.fromkeys((offset for _, offset in seen.raw), "duplicate")
    for row in await query(gate, f"SELECT record_offset FROM {type_name}_ledger"):
        became[row["record_offset"]] = "committed"
    rejects = "SELECT record_offset, reason FROM quarantine WHERE topic = $1"
    for row in await query(gate, rejects, topic):
        became[row["record_offset"]] = row["reason"]
    return became


# --- Files ----------------------------------------------------------------------------------------


def test_files_are_read_as_written(run: Run) -> None:
    """A byte order mark is no part of a name; digits keep their zeros; U+2028 and U+0085 end no
    line, CR LF does, and an empty line is no record."""
    for name, type_name, count in (
        ("h17-csv-bom.csv", "payroll", 1),
        ("h18-csv-leading-zeros.csv", "payroll", 2),
        ("h19-line-separators.ndjson", "dvir", 2),
    ):
        found = run("check", FOLDER / name, "--json", "--type", type_name)
        verdicts = [json.loads(line)["verdict"] for line in found.out.splitlines()]
        assert (found.code, verdicts) == (0, ["committed"] * count)


@pytest.mark.timeout(180)
async def test_published_files_arrive_as_written(gate: Gate) -> None:
    """The same files by `publish`, to the ledger."""
    await gate.worker()
    for name, type_name in _files():
        (gate.folder / name).write_bytes((FOLDER / name).read_bytes())
        options = ("--backfill",) if type_name == "dvir" else ()
        outcome = await gate.command("publish", type_name, gate.folder / name, *options)
        assert outcome.code == 0, outcome
    await gate.drain()
    rows = await query(gate, "SELECT employee_id, gross_pay FROM payroll_ledger ORDER BY 1")
    assert [tuple(row) for row in rows] == [
        ("000100", Decimal("50.00")),
        ("000123", Decimal("1234.50")),
        ("E000123", Decimal("1234.56")),
    ]
    bodies = [row["body"] for row in await query(gate, "SELECT body FROM dvir_ledger")]
    notes = {json.loads(body)["defects"][0]["note"] for body in bodies}
    assert notes == {"left\u2028right\u0085end", "pads worn"}


def _files() -> Iterator[tuple[str, str]]:
    yield "h17-csv-bom.csv", "payroll"
    yield "h18-csv-leading-zeros.csv", "payroll"
    yield "h19-line-separators.ndjson", "dvir"
