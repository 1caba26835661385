"""The whole demo through its command, on real services, small."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import asyncpg
import psutil
import pytest

from streams.demo import dvirs, payroll
from tests.servers import Services

DEADLINE_S = 110
COUNTS = ["--records", "600", "--dvirs", "200"]
MEMBERS = {
    "in",
    "committed",
    "duplicate",
    "quarantined",
    "reasons",
    "balanced",
    "proof",
    "seconds",
}
pytestmark = [pytest.mark.slow, pytest.mark.timeout(DEADLINE_S + 10)]


def demo(
    *arguments: str, environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "streams.cli", "demo", *arguments],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        env={**os.environ, **(environment or {})},
        check=False,
    )


def check_object(line: str) -> None:
    """What a script may rely on in the last line of `--json`."""
    found = json.loads(line)
    assert found.keys() == MEMBERS
    assert found["in"] == 800
    assert found["in"] == found["committed"] + found["duplicate"] + found["quarantined"]
    assert found["reasons"].keys() == {str(r) for r in (*payroll.REASONS, *dvirs.REASONS)}
    assert sum(found["reasons"].values()) == found["quarantined"]
    assert found["balanced"] is True
    assert found["proof"]
    assert all(found["proof"].values())
    assert found["seconds"] > 0


def leftovers(folder: Path) -> list[psutil.Process]:
    """Processes with the folder somewhere on their command line."""
    return [
        p
        for p in psutil.process_iter(["cmdline"])
        if any(str(folder) in argument for argument in p.info["cmdline"] or ())
        and p.pid != os.getpid()
    ]


@pytest.mark.services
def test_a_demo_proves_itself_and_leaves_nothing() -> None:
    """`demo --json` on its own services ends with 0, one object and no process or file behind."""
    folder = Path("/tmp") / f"wb-demo-test-{os.getpid()}"  # noqa: S108 - open to PostgreSQL's user
    ended = demo(*COUNTS, "--json", "--data-dir", str(folder))
    assert ended.returncode == 0, ended.stderr[-4000:]
    check_object(ended.stdout.splitlines()[-1])
    assert "SIGKILL" in ended.stderr
    assert leftovers(folder) == []
    assert not folder.exists()


async def _databases(dsn: str) -> set[str]:
    connection = await asyncpg.connect(dsn)
    try:
        return {r[0] for r in await connection.fetch("SELECT datname FROM pg_database")}
    finally:
        await connection.close()


def test_a_demo_on_configured_services_stays_apart(services: Services) -> None:
    """Configured services are used in a database, group and topics of its own, gone after."""
    before = asyncio.run(_databases(services.dsn()))
    environment = {
        "WEIGHBRIDGE_KAFKA_BOOTSTRAP": services.bootstrap,
        "WEIGHBRIDGE_POSTGRES_DSN": services.dsn(user="weighbridge_worker"),
        "WEIGHBRIDGE_POSTGRES_OWNER_DSN": services.dsn(),
    }
    ended = demo(*COUNTS, "--json", environment=environment)
    assert ended.returncode == 0, ended.stderr[-4000:]
    check_object(ended.stdout.splitlines()[-1])
    assert "configured" in ended.stderr
    assert asyncio.run(_databases(services.dsn())) == before


def begun(folder: Path, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "streams.cli", "demo", "--data-dir", str(folder)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
    )


def await_log(folder: Path, text: str) -> None:
    """Wait until the demo's worker has logged this."""
    until = time.monotonic() + 60
    while time.monotonic() < until:
        log = folder / "worker.log"
        if log.exists() and text in log.read_text(encoding="utf-8"):
            return
        time.sleep(0.05)
    pytest.fail(f"the worker did not log {text}")


def await_folder(folder: Path) -> None:
    """Wait until the demo has begun its folder: from then on it must tidy up."""
    until = time.monotonic() + 60
    while not folder.exists():
        assert time.monotonic() < until, "the demo began no folder"
        time.sleep(0.05)


@pytest.mark.services
@pytest.mark.parametrize("what", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("when", ["starting", "weighing"])
def test_told_to_stop_it_stops_everything(when: str, what: signal.Signals) -> None:
    """Interrupted at any moment, the demo ends with 130 and no process or folder stays behind."""
    folder = Path("/tmp") / f"wb-demo-int-{os.getpid()}"  # noqa: S108 - open to PostgreSQL's user
    process = begun(folder)
    if when == "weighing":
        await_log(folder, "worker_started")
    else:
        await_folder(folder)
    process.send_signal(what)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130, said[-4000:]
    assert leftovers(folder) == []
    assert not folder.exists()


@pytest.mark.services
def test_what_a_killed_demo_leaves_is_found_and_ended() -> None:
    """After kill -9 of the demo, `--stop` ends servers and worker and removes the folder."""
    folder = Path("/tmp") / f"wb-demo-kill-{os.getpid()}"  # noqa: S108 - open to PostgreSQL's user
    process = begun(folder)
    await_log(folder, "worker_started")
    process.kill()
    process.communicate(timeout=60)
    assert len(leftovers(folder)) >= 3
    refused = demo(*COUNTS, "--data-dir", str(folder))
    assert refused.returncode == 2
    assert "--stop" in refused.stderr
    assert demo("--stop", "--data-dir", str(folder)).returncode == 0
    assert leftovers(folder) == []
    assert not folder.exists()


@pytest.mark.services
def test_kept_services_stay_up_and_say_so() -> None:
    """`--keep` leaves both servers serving after the command has ended, until `--stop`."""
    folder = Path("/tmp") / f"wb-demo-keep-{os.getpid()}"  # noqa: S108 - open to PostgreSQL's user
    try:
        ended = demo(*COUNTS, "--keep", "--data-dir", str(folder))
        assert ended.returncode == 0, ended.stdout[-4000:]
        assert "weighbridge status --config" in ended.stdout
        assert ended.stdout.splitlines()[-1].startswith("OK")
        dsn = next(w for w in ended.stdout.split() if w.startswith("postgresql://"))
        assert "postgres" in asyncio.run(_databases(dsn))
    finally:
        demo("--stop", "--data-dir", str(folder))
    assert leftovers(folder) == []


@pytest.mark.parametrize("arguments", [["--stop"], []])
def test_a_folder_that_is_not_a_demos_is_left_alone(arguments: list[str], tmp_path: Path) -> None:
    """Neither a demo nor `--stop` touches a folder that holds anything else."""
    (tmp_path / "weighbridge.toml").write_text('group = "mine"\n', encoding="utf-8")
    ended = demo(*arguments, "--data-dir", str(tmp_path))
    assert ended.returncode == 2
    assert [path.name for path in tmp_path.iterdir()] == ["weighbridge.toml"]


def test_too_few_records_are_wrong_usage() -> None:
    """A count without room for every reason ends with 2 before anything is started."""
    ended = demo("--records", "10")
    assert ended.returncode == 2
    assert "at least" in ended.stderr
