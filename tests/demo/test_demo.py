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


@pytest.mark.services
@pytest.mark.parametrize("after_s", [1.0, 6.0, 9.0])
def test_ctrl_c_stops_everything(after_s: float) -> None:
    """Interrupted at any moment, the demo ends with 130 and no process or folder stays behind."""
    folder = Path("/tmp") / f"wb-demo-int-{os.getpid()}"  # noqa: S108 - open to PostgreSQL's user
    process = subprocess.Popen(
        [sys.executable, "-m", "streams.cli", "demo", "--data-dir", str(folder)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    time.sleep(after_s)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130, said[-4000:]
    assert leftovers(folder) == []
    assert not folder.exists()


def test_too_few_records_are_wrong_usage() -> None:
    """A count without room for every reason ends with 2 before anything is started."""
    ended = demo("--records", "10")
    assert ended.returncode == 2
    assert "at least" in ended.stderr
