"""Every command on every page of docs/ is run, in order, as its reader would.

In a folder of its own, with Kafka, PostgreSQL and a worker running and settings in the environment.
Topics have the names the page says, one partition each, and are gone before the next page. After a
command that sends records, the worker is waited for, as a reader's own pace would.
"""

from __future__ import annotations

import asyncio
import doctest
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from aiokafka.admin import AIOKafkaAdminClient

from tests.cli.command import environment
from tests.docs.page import Command, FileToWrite, steps
from tests.servers import Database, Services, run_apart

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs").glob("*.md"))
COMMAND_DEADLINE_S = 90.0
QUIET_DEADLINE_S = 60.0
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
SENDS = ("publish", "resubmit")


class Reader:
    """Somebody who follows a page."""

    def __init__(self, folder: Path, settings: dict[str, object]) -> None:
        self._folder = folder
        self._environment = environment(**settings) | {
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "COLUMNS": "160",
        }
        self._running: list[subprocess.Popen[str]] = []

    def write(self, file: FileToWrite) -> None:
        """Write a file that the page shows."""
        (self._folder / file.name).write_text(file.text, encoding="utf-8")

    def start(self, text: str) -> subprocess.Popen[str]:
        """Type a command that keeps running."""
        with (self._folder / f"background-{len(self._running)}.log").open("w") as log:
            process = subprocess.Popen(
                ["/bin/bash", "-c", f"exec {text}"],
                cwd=self._folder,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                text=True,
                start_new_session=True,
            )
        self._running.append(process)
        return process

    def run(self, text: str) -> subprocess.CompletedProcess[str]:
        """Type a command and wait for its end."""
        return subprocess.run(
            ["/bin/bash", "-c", text],
            cwd=self._folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=COMMAND_DEADLINE_S,
            check=False,
        )

    def until_quiet(self) -> None:
        """Wait until the worker has decided and emitted everything that was sent."""
        ends_s = time.monotonic() + QUIET_DEADLINE_S
        while True:
            told = self.run("weighbridge status --json")
            found = [json.loads(line) for line in told.stdout.splitlines()]
            done = all(p["decided"] == p["end"] == (p["emitted"] or p["end"]) for p in found)
            if told.returncode == 0 and len(found) == 2 and done:
                return
            assert time.monotonic() < ends_s, told
            time.sleep(0.3)

    def leave(self) -> None:
        """End what still runs."""
        for process in reversed(self._running):
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGTERM)
                try:
                    process.wait(20)
                except subprocess.TimeoutExpired:
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()


@pytest.fixture
def reader(services: Services, database: Database, tmp_path: Path) -> Iterator[Reader]:
    """A reader at a running deployment."""
    group = database.name
    found = Reader(
        tmp_path,
        {
            "kafka_bootstrap": services.bootstrap,
            "postgres_dsn": database.worker_dsn,
            "postgres_operator_dsn": database.operator_dsn,
            "postgres_owner_dsn": database.owner_dsn,
            "group": group,
            "session_timeout_ms": 6_000,
            "http_port": 0,
            "partitions": 1,
            "data_dir": tmp_path / "none",
        },
    )
    before = run_apart(_topics(services.bootstrap))
    try:
        assert found.run("weighbridge topics create").returncode == 0
        found.start("weighbridge worker")
        found.until_quiet()
        yield found
    finally:
        found.leave()
        run_apart(_delete_topics(services.bootstrap, before))


async def _topics(bootstrap: str) -> set[str]:
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    try:
        return set(await admin.list_topics())
    finally:
        await admin.close()


async def _delete_topics(bootstrap: str, kept: set[str]) -> None:
    """Delete the topics made since, and wait until the broker no longer lists them."""
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    try:
        while new := {t for t in await admin.list_topics() if not t.startswith("__")} - kept:
            await admin.delete_topics(sorted(new))
            await asyncio.sleep(0.2)
    finally:
        await admin.close()


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_command_of_the_page_does_what_the_page_says(page: Path, reader: Reader) -> None:
    """Exit codes and shown output are as on the page. A pass says nothing of the prose around."""
    checker = doctest.OutputChecker()
    for step in steps(page):
        if isinstance(step, FileToWrite):
            reader.write(step)
            continue
        where = f"{page.name}, line {step.line}: {step.text}"
        if step.background:
            reader.start(step.text)
            continue
        told = reader.run(step.text)
        assert told.returncode == step.code, f"{where}\n{told}"
        if step.output is not None:
            same = checker.check_output(step.output, told.stdout, FLAGS)
            assert same, f"{where}\nexpected:\n{step.output}\ngot:\n{told.stdout}\n{told.stderr}"
        if _sends(step):
            reader.until_quiet()


def _sends(command: Command) -> bool:
    return command.text.startswith("weighbridge ") and any(w in command.text for w in SENDS)
