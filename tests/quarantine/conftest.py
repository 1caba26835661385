"""A gate with a worker, and the desk where its rejects are handled."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from dataclasses import dataclass
from typing import Any

import pytest

from tests.cli.command import ROOT, Outcome, Run, make_run
from tests.faults.conftest import gate
from tests.faults.gate import GROUP, Gate
from tests.integration.stream import query

__all__ = ["gate"]

WHO = "Pat Example"


@dataclass
class Desk:
    """Where rejects of a gate are handled: the commands, and looks past them."""

    gate: Gate
    run: Run
    said: list[str]
    """Everything that any command has printed, on either output."""

    async def call(self, *arguments: object) -> Outcome:
        """A command of `weighbridge quarantine`, in this process."""
        outcome = await asyncio.to_thread(self.run, "quarantine", *arguments)
        self.said += [outcome.out, outcome.err]
        assert "Traceback" not in outcome.err
        return outcome

    async def ask(self, *arguments: object, code: int = 0) -> Any:
        """The JSON that a command answers."""
        outcome = await self.call(*arguments, "--json")
        assert outcome.code == code, outcome
        return json.loads(outcome.out)

    async def ids(self, *filters: object) -> list[str]:
        """Ids of rejects, in the order of `ls --each`."""
        found = await self.ask("ls", "--each", "--limit", 10_000, *filters)
        return [one["quarantine_id"] for one in found["items"]]

    async def killed(self, act: str, nth: int, portion: int, *arguments: object) -> str:
        """A `resubmit` in a process of its own that kills itself; what it said."""
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "tests.quarantine.acting_resubmission",
            act,
            str(nth),
            str(portion),
            *map(str, arguments),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            cwd=ROOT,
            env=dict(os.environ),
        )
        out, _ = await process.communicate()
        assert process.returncode == -9, out.decode()
        return out.decode()

    async def query(self, sql: str, *values: object) -> list[Any]:
        """Ask the database as its owner."""
        return await query(self.gate, sql, *values)


@pytest.fixture
def desk(gate: Gate, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Desk:
    """Commands as the operator, with the gate's services in the environment."""
    settings: dict[str, object] = {
        "kafka_bootstrap": gate.services.bootstrap,
        "postgres_dsn": gate.database.worker_dsn,
        "postgres_operator_dsn": gate.database.operator_dsn,
        "operator": WHO,
        "group": GROUP,
        "topic_prefix": gate.prefix,
        "schema_store": gate.folder / "store",
        "data_dir": gate.folder / "none",
    }
    for name, value in settings.items():
        monkeypatch.setenv(f"WEIGHBRIDGE_{name.upper()}", str(value))
    return Desk(gate, make_run(capsys, monkeypatch), [])
