"""The commands on real services: what scripts and operators do, one after the other."""

from __future__ import annotations

import csv
import json
import re
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from connectors.embedded.services import find_running
from schemas.record_types import RECORD_TYPES
from tests.cli.command import Outcome, call, finish, start
from tests.cli.test_commands import REPORT, STATEMENT
from tests.connectors.kafka_tools import kafka_settings, make_topic, read_all
from tests.servers import Database, Services, execute, run_apart

GROUP = "commands"
DEADLINE_S = 40.0
TOPICS = [f"{name}.{kind}" for name in RECORD_TYPES for kind in ("raw", "committed", "quarantine")]


class Place:
    """Topics and a database of one test, and the settings that lead there."""

    def __init__(self, services: Services, database: Database, prefix: str, folder: Path) -> None:
        self.services, self.database = services, database
        self.prefix, self.folder = prefix, folder
        self.processes: list[subprocess.Popen[str]] = []
        self.settings: dict[str, object] = {
            "kafka_bootstrap": services.bootstrap,
            "postgres_dsn": database.worker_dsn,
            "postgres_owner_dsn": database.owner_dsn,
            "group": GROUP,
            "topic_prefix": prefix,
            "session_timeout_ms": 6_000,
            "http_port": 0,
            "partitions": 2,
            "data_dir": folder / "none",
        }

    def call(self, *arguments: object, **settings: object) -> Outcome:
        """Run a command here."""
        return call(*arguments, **{**self.settings, **settings})

    def start(self, *arguments: object, **settings: object) -> subprocess.Popen[str]:
        """Start a command here."""
        process = start(*arguments, **{**self.settings, **settings})
        self.processes.append(process)
        return process

    def records(self, name: str, count: int, first: int = 0) -> Path:
        """A file of statements that commit."""
        path = self.folder / name
        members = ({**STATEMENT, "employee_id": f"E{first + n:07d}"} for n in range(count))
        if path.suffix == ".csv":
            with path.open("w", newline="", encoding="utf-8") as file:
                writer = csv.DictWriter(file, STATEMENT)
                writer.writeheader()
                writer.writerows(members)
        else:
            lines = (json.dumps(one) + "\n" for one in members)
            path.write_text("".join(lines), encoding="utf-8")
        return path

    def create(self) -> None:
        """The topics of every record type."""
        assert self.call("topics", "create").code == 0


@pytest.fixture
def place(
    services: Services, database: Database, topic_prefix: str, tmp_path: Path
) -> Iterator[Place]:
    """Where the commands of one test work."""
    found = Place(services, database, topic_prefix, tmp_path)
    yield found
    for process in found.processes:
        if process.poll() is None:
            process.kill()
        process.communicate()


class Log:
    """Reads what a process says on standard error until words are found."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.lines: list[str] = []

    def until(self, words: str) -> str:
        """The line that holds the words; fails when the process ends before."""
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self.lines.append(line)
            if words in line:
                return line
        message = f"{words!r} not in {self.lines}"
        raise AssertionError(message)


def _get(port: int, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def _statuses(place: Place) -> list[dict[str, Any]]:
    outcome = place.call("status", "--json")
    assert outcome.code == 0, outcome
    return [json.loads(line) for line in outcome.out.splitlines()]


def _until_decided(place: Place, records: int) -> list[dict[str, Any]]:
    """Wait until so many records are decided and their events emitted; the partitions then."""
    ends_s = time.monotonic() + DEADLINE_S
    while True:
        found = _statuses(place)
        # A partition that never had a record has no offset of the group.
        done = all(p["decided"] == p["end"] == (p["emitted"] or p["end"]) for p in found)
        if found and done and sum(p["in"] for p in found) >= records:
            return found
        assert time.monotonic() < ends_s, found
        time.sleep(0.2)


def test_migrate_twice(services: Services, topic_prefix: str, tmp_path: Path) -> None:
    """The first migration says what it applied, the second that there is nothing to do."""
    name = "m" + topic_prefix.strip(".")
    run_apart(execute(services.dsn(), f"CREATE DATABASE {name}"))
    try:
        dsn = services.dsn(name)
        first = call("db", "migrate", postgres_owner_dsn=dsn, data_dir=tmp_path)
        assert first.code == 0
        assert {"applied core/0003_core", "applied payroll/0001_ledger"} <= set(
            first.out.splitlines()
        )
        second = call("db", "migrate", "--owner", dsn, data_dir=tmp_path)
        assert (second.code, second.out) == (0, "database is up to date\n")
    finally:
        run_apart(execute(services.dsn(), f"DROP DATABASE {name} WITH (FORCE)"))


def test_topics_create_twice_and_verify(place: Place) -> None:
    """Topics that are there are left alone; verifying finds nothing wrong with what was made."""
    first = place.call("topics", "create", "--partitions", 3)
    assert first.code == 0
    assert set(first.out.split()) >= {place.prefix + name for name in TOPICS}
    assert place.call("topics", "create").out == "all topics exist\n"
    verified = place.call("topics", "verify", "--json")
    assert verified.code == 0
    assert not [x for x in verified.out.splitlines() if json.loads(x)["level"] == "error"]


async def test_topics_verify_finds_what_is_wrong(place: Place) -> None:
    """A compacted topic and missing ones: exit code 1, each named with what to do."""
    kafka = kafka_settings(place.services.bootstrap, place.prefix)
    await make_topic(kafka, kafka.topic("payroll.raw"), 2, cleanup_policy="compact")
    outcome = place.call("topics", "verify", "--json")
    assert outcome.code == 1
    found = {
        (f["topic"].removeprefix(place.prefix), f["message"])
        for f in map(json.loads, outcome.out.splitlines())
    }
    assert any(topic == "payroll.raw" and "compacted" in said for topic, said in found)
    assert any(topic == "dvir.raw" and "topics create" in said for topic, said in found)
    text = place.call("topics", "verify")
    assert text.code == 1
    assert f"error: {place.prefix}dvir.raw: does not exist" in text.out


def test_publish_files_and_folders(place: Place) -> None:
    """NDJSON, CSV and a folder of both are published row by row, and what cannot be cut into rows
    is refused as a whole; the summary adds up."""
    place.create()
    one = place.records("one.ndjson", 30)
    outcome = place.call("publish", "payroll", one, "--json")
    assert outcome.code == 0
    summary = json.loads(outcome.out)
    assert summary["records"] == 30
    folder = place.folder / "many"
    folder.mkdir()
    place.records("many/a.csv", 20, 100)
    place.records("many/b.ndjson", 10, 200)
    outcome = place.call("publish", "payroll", folder, "--json")
    assert (outcome.code, json.loads(outcome.out)["records"]) == (0, 30)
    (place.folder / "bad.csv").write_bytes(b'a,b\n"never closed\n')
    outcome = place.call("publish", "payroll", place.folder / "bad.csv")
    assert outcome.code == 1
    assert "Traceback" not in outcome.err
    text = place.call("publish", "payroll", one)
    assert text.code == 0
    assert "already published completely at" in text.out
    assert "0 records acknowledged" in text.out
    text = place.call("publish", "payroll", one, "--again")
    assert text.code == 0
    assert "30 records acknowledged" in text.out


def test_publish_with_a_manifest_and_without_writing(place: Place) -> None:
    """A file that is not what its manifest says is 1 and named; a dry run plans and leaves nothing;
    a folder that takes no state is 2 and names the way out."""
    place.create()
    one = place.records("one.ndjson", 30)
    manifest = place.folder / "one.manifest.json"
    manifest.write_text('{"manifest_version": 1, "total": {"row_count": 31}}', encoding="utf-8")
    outcome = place.call("publish", "payroll", one, "--manifest", manifest)
    assert outcome.code == 1
    assert "total: row_count: manifest 31, file 30" in outcome.out
    outcome = place.call("publish", "payroll", one, "--dry-run", "--chunk-records", 10)
    assert outcome.code == 0
    assert "30 records would go" in outcome.out
    assert STATEMENT["source_run_id"] in outcome.out
    outcome = place.call("publish", "payroll", one, "--state-dir", one / "sub")
    assert outcome.code == 2
    manifest.write_text("{}", encoding="utf-8")
    outcome = place.call("publish", "payroll", one, "--manifest", manifest)
    assert (outcome.code, "manifest_version" in outcome.err) == (2, True)
    assert _held(place) == 0


@pytest.mark.timeout(120)
def test_worker_and_status(place: Place) -> None:
    """A worker serves its health, weighs what is published, stops on SIGTERM with 0 within its
    deadline, and `status` says what the tables say."""
    place.create()
    worker = place.start("worker", "--log-format", "json")
    log = Log(worker)
    port = int(json.loads(log.until("worker_started"))["http"].rpartition(":")[2])
    assert _get(port, "/live") == (200, '{"live": true}')
    assert place.call("publish", "payroll", place.records("one.ndjson", 50)).code == 0
    bad = place.folder / "bad.ndjson"
    bad.write_text(json.dumps({**STATEMENT, "employee_id": "x"}) + "\njunk\n", encoding="utf-8")
    both = (bad, place.folder / "one.ndjson")
    assert place.call("publish", "payroll", *both, "--again").code == 0
    found = _until_decided(place, 102)
    totals = {name: sum(p[name] for p in found) for name in ("in", "committed", "duplicate")}
    assert totals == {"in": 102, "committed": 50, "duplicate": 50}
    assert sum(p["quarantined"] for p in found) == 2
    assert all(p["balanced"] and p["lag"] == 0 and p["group"] == GROUP for p in found)
    status, body = _get(port, "/ready")
    assert (status, json.loads(body)) == (200, {"ready": True, "causes": [], "notes": []})
    _, metrics = _get(port, "/metrics")
    committed = re.findall(r'weighbridge_records_total\{.*verdict="committed"\} (\S+)', metrics)
    assert sum(map(float, committed)) == 50
    text = place.call("status")
    assert text.code == 0
    assert "1 malformed_json" in text.out
    assert "1 schema_violation" in text.out
    assert "BROKEN" not in text.out
    began_s = time.monotonic()
    worker.send_signal(signal.SIGTERM)
    assert finish(worker, 25).code == 0
    assert time.monotonic() - began_s < 20


def test_interrupted_publish_tells_the_truth_and_goes_on(place: Place) -> None:
    """Ctrl-C in the middle: exit code 130, the topic holds exactly what the summary says, and the
    same command brings the rest."""
    place.create()
    path = place.records("big.ndjson", 80_000)
    process = place.start("publish", "payroll", path, "--json")
    ends_s = time.monotonic() + DEADLINE_S
    while _held(place) == 0:
        assert time.monotonic() < ends_s
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    outcome = finish(process)
    assert outcome.code == 130
    summary = json.loads(outcome.out)
    assert 0 < summary["records"] < 80_000
    assert summary["files"][0]["outcome"] == "interrupted"
    assert _held(place) == summary["records"]
    text = place.call("publish", "payroll", path)
    assert text.code == 0
    assert f"{80_000 - summary['records']} records acknowledged" in text.out
    assert _held(place) == 80_000


def _held(place: Place) -> int:
    """Records in the raw payroll topic that readers of committed data find."""
    kafka = kafka_settings(place.services.bootstrap, place.prefix)
    topic = kafka.topic("payroll.raw")
    return sum(len(run_apart(read_all(kafka, topic, number))) for number in range(2))


def test_worker_without_migrations(place: Place, services: Services, topic_prefix: str) -> None:
    """Exit code 2 and the command to run."""
    place.create()
    name = "u" + topic_prefix.strip(".")
    run_apart(execute(services.dsn(), f"CREATE DATABASE {name}"))
    try:
        outcome = place.call("worker", postgres_dsn=services.dsn(name))
        assert outcome.code == 2
        assert "weighbridge db migrate" in outcome.err
        assert "Traceback" not in outcome.err
    finally:
        run_apart(execute(services.dsn(), f"DROP DATABASE {name} WITH (FORCE)"))


def test_worker_without_topics(place: Place) -> None:
    """Exit code 2, the topics that are missing, and the command that makes them."""
    outcome = place.call("worker")
    assert outcome.code == 2
    assert f"{place.prefix}payroll.raw" in outcome.err
    assert "topics create" in outcome.err
    assert "Traceback" not in outcome.err


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_dev(tmp_path: Path) -> None:
    """`dev` starts both services, other commands find them by the folder alone, a second one on
    the same folder is refused, and Ctrl-C stops everything."""
    data_dir = tmp_path / "dev"
    dev = start("dev", "--data-dir", data_dir)
    try:
        log = Log(dev)
        log.until("running; Ctrl-C stops")
        second = call("dev", "--data-dir", data_dir)
        assert (second.code, str(data_dir) in second.err) == (2, True)
        assert "Traceback" not in second.err
        path = tmp_path / "one.ndjson"
        path.write_text(json.dumps(REPORT) + "\n", encoding="utf-8")
        assert call("publish", "dvir", path, "--data-dir", data_dir).code == 0
        worker = start("worker", "--data-dir", data_dir, "--http-port", 0)
        ends_s = time.monotonic() + DEADLINE_S
        try:
            while not _committed(said := call("status", "--json", "--data-dir", data_dir)):
                assert time.monotonic() < ends_s, said
        finally:
            worker.send_signal(signal.SIGINT)
            assert finish(worker).code == 0
        dev.send_signal(signal.SIGINT)
        assert finish(dev).code == 0
        assert find_running(data_dir) is None
        assert call("status", "--data-dir", data_dir).code == 2
    finally:
        if dev.poll() is None:
            dev.terminate()
            finish(dev)


def _committed(status: Outcome) -> int:
    return sum(json.loads(line)["committed"] for line in status.out.splitlines())
