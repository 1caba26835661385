"""`weighbridge replay` on real services: what analysts do, and what stops them."""

from __future__ import annotations

import asyncio
import csv
import hashlib
import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import asyncpg
import duckdb
import pytest

from tests.cli.command import ROOT, Outcome, Run, environment, finish
from tests.cli.test_commands import STATEMENT
from tests.cli.test_commands_real import Log, Place, _until_decided
from tests.connectors.kafka_tools import kafka_settings
from tests.replaying.events import Message, plain
from tests.servers import Database, Services, run_apart

SECRET = "ZEBRA777"


class Here(Place):
    """Commands are called in this process: most of a process of their own is its start."""

    run: Run
    environment: pytest.MonkeyPatch

    def call(self, *arguments: object, **settings: object) -> Outcome:
        """Run a command here."""
        with self.environment.context() as patch:
            for name, value in {**self.settings, **settings}.items():
                patch.setenv(f"WEIGHBRIDGE_{name.upper()}", str(value))
            return self.run(*arguments)


@pytest.fixture
def place(
    services: Services,
    database: Database,
    topic_prefix: str,
    tmp_path: Path,
    run: Run,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Place]:
    """Where the commands of one test work."""
    found = Here(services, database, topic_prefix, tmp_path)
    found.run, found.environment = run, monkeypatch
    found.settings["postgres_operator_dsn"] = database.operator_dsn
    found.settings["operator"] = "ann"
    found.settings["partitions"] = 1
    yield found
    for process in found.processes:
        if process.poll() is None:
            process.kill()
        process.communicate()


def _publish(place: Place, *statements: dict[str, Any]) -> None:
    path = place.folder / f"s{time.monotonic_ns()}.ndjson"
    lines = (json.dumps({**STATEMENT, **one}) for one in statements)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    assert place.call("publish", "payroll", path).code == 0


async def _acts(dsn: str) -> list[Any]:
    connection = await asyncpg.connect(dsn)
    try:
        return list(await connection.fetch("SELECT act, who, why, target FROM operations"))
    finally:
        await connection.close()


@pytest.mark.timeout(180)
def test_what_an_analyst_does(place: Place) -> None:
    """Masked and revealed files of what a worker made, rejects, and the range decided again."""
    place.create()
    worker = place.start("worker", "--log-format", "json")
    Log(worker).until("worker_started")
    _publish(
        place,
        *({"employee_id": f"E{n:07d}", "gross_pay": f"10.{n:02d}"} for n in range(20)),
        {"employee_id": "E0000003", "gross_pay": "10.03"},  # a duplicate
        {"employee_id": "E0000004", "gross_pay": "99.00"},  # a collision
        {"employee_id": SECRET, "gross_pay": "-1.00"},
        {"employee_id": "123456789"},
        {"employee_id": "987654321"},
    )
    _until_decided(place, 25)
    worker.send_signal(signal.SIGTERM)
    assert finish(worker).code == 0
    _masked_and_checked(place)
    _revealed(place)
    _rejects(place)
    _decided_again(place)


def _masked_and_checked(place: Place) -> None:
    out = place.folder / "run.parquet"
    done = place.call("replay", "payroll", "--run", STATEMENT["source_run_id"], "--out", out)
    assert done.code == 0, done
    assert "gross_pay: 201.90 USD" in done.out
    manifest = json.loads(out.with_name("run.parquet.manifest.json").read_text(encoding="utf-8"))
    assert manifest["sha256"] == hashlib.sha256(out.read_bytes()).hexdigest()
    assert (manifest["written"], manifest["bytes"]) == (20, out.stat().st_size)
    sums = "SELECT count(*), sum(gross_pay)::varchar, count(employee_id) FROM read_parquet(?)"
    assert duckdb.execute(sums, [str(out)]).fetchone() == (20, "201.90", 0)
    again = place.call("replay", "payroll", "--run", STATEMENT["source_run_id"], "--out", out)
    assert again.code == 2
    assert "--force" in again.err
    short = place.call("replay", "payroll", "--to", "0:999", "--out", out, "--force", "--json")
    assert short.code == 1
    assert "incomplete: partition 0: offsets up to 999 are wanted; the log ends at" in short.err
    assert json.loads(short.out)["written"] == 20


def _revealed(place: Place) -> None:
    out = place.folder / "shown.csv"
    options = ("--reveal", "--why", "audit 7", "--key", "E0000003")
    unrecorded = place.call(
        "replay", "payroll", "--out", out, *options, postgres_operator_dsn="", operator=""
    )
    assert unrecorded.code == 2
    assert "on record" in unrecorded.err
    assert not out.exists()
    assert place.call("replay", "payroll", "--out", out, *options).code == 0
    with out.open(encoding="utf-8", newline="") as file:
        (row,) = csv.DictReader(file)
    assert row["employee_id"] == "E0000003"
    (act,) = run_apart(_acts(place.database.owner_dsn))
    assert (act["act"], act["who"], act["why"]) == ("reveal", "ann", "audit 7")
    assert act["target"].startswith(f"{place.prefix}payroll.committed 0:0-")


def _rejects(place: Place) -> None:
    out = place.folder / "rejects.jsonl"
    done = place.call("replay", "payroll", "--topic", "quarantine", "--out", out, "--json")
    assert done.code == 0, done
    text = out.read_text(encoding="utf-8")
    rows = [json.loads(line) for line in text.splitlines()]
    reasons = {"idempotency_collision": 1, "schema_violation": 3}
    assert json.loads(done.out)["by"] == reasons
    assert {row["reason"] for row in rows} == set(reasons)
    assert rows[1]["detail"][0]["path"] == "gross_pay"
    assert rows[1]["value"]["pay_period_start"] == "2026-10-19"
    assert rows[1]["position"].startswith(f"{place.prefix}payroll.raw/1/0/")
    assert SECRET not in text
    assert "123456789" not in text


def _decided_again(place: Place) -> None:
    same = place.call("replay", "payroll", "--dry-run", "--json")
    assert same.code == 0, same
    found = json.loads(same.out)
    assert (found["read"], found["same"], found["differ"]) == (25, 25, 0)
    limits = place.folder / "limits.json"
    limits.write_text('{"allow_nine_digit_ids": true}', encoding="utf-8")
    _publish(place, {"employee_id": "E0000099"})
    other = place.call(
        "replay", "payroll", "--dry-run", "--limits", limits, "--json", "--listed", 1
    )
    assert other.code == 1, other
    found = json.loads(other.out)
    assert found["groups"] == [
        {"was": "quarantined: schema_violation", "would_be": "accepted", "records": 2}
    ]
    (listed,) = found["differences"]
    assert listed["position"].startswith(f"{place.prefix}payroll.raw/1/0/")
    assert (found["same"], found["not_yet_decided"]) == (23, 1)
    text = place.call("replay", "payroll", "--dry-run", "--limits", limits)
    assert text.code == 1
    assert "2 would differ" in text.out
    limits.write_text('{"no_such_limit": 1}', encoding="utf-8")
    wrong = place.call("replay", "payroll", "--dry-run", "--limits", limits)
    assert wrong.code == 2
    assert "no_such_limit" in wrong.err


def _fill(place: Place, records: int) -> None:
    """A raw topic of many records, of which none need be one."""
    settings = kafka_settings(place.services.bootstrap, place.prefix)
    value = json.dumps({"n": "x" * 60}).encode()
    topic = settings.topic("payroll.raw")
    asyncio.run(plain(settings, topic, 0, [Message(value)] * records))


@pytest.mark.timeout(120)
def test_ctrl_c_and_a_full_disk_leave_nothing(place: Place) -> None:
    """130 and 3, said in words, with no half file under any name."""
    place.create()
    _fill(place, 30_000)
    folder = place.folder / "out"
    folder.mkdir()
    arguments = ("replay", "payroll", "--topic", "raw", "--out", str(folder / "raw.jsonl"))
    process = place.start(*arguments)
    ends_s = time.monotonic() + 40
    while not list(folder.iterdir()):
        assert time.monotonic() < ends_s
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    outcome = finish(process)
    assert outcome.code == 130, outcome
    assert "nothing was left at" in outcome.err
    assert list(folder.iterdir()) == []
    limited = ["bash", "-c", 'ulimit -f 64; exec "$@"', "-", sys.executable, "-m", "streams.cli"]
    full = subprocess.run(
        [*limited, *arguments],
        env=environment(**place.settings),
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert full.returncode == 3, full
    assert "File too large; nothing was left under that name" in full.stderr
    assert list(folder.iterdir()) == []
