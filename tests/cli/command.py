"""Calling the command as a shell does: arguments in, exit code and both outputs out."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from streams.cli import main

ROOT = Path(__file__).parents[2]
DEADLINE_S = 60.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a command ended."""

    code: int
    out: str
    err: str


Run = Callable[..., Outcome]


def make_run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """A function that calls the command in this process, through its entry point."""

    def run(*arguments: object) -> Outcome:
        monkeypatch.setattr(sys, "argv", ["weighbridge", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = capsys.readouterr()
        code = ended.value.code
        return Outcome(code if isinstance(code, int) else 0, out, err)

    return run


def environment(**settings: object) -> dict[str, str]:
    """The environment of a command's process: nothing of the developer's, and these settings."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith("WEIGHBRIDGE_")}
    if cache := os.environ.get("WEIGHBRIDGE_CACHE"):
        clean["WEIGHBRIDGE_CACHE"] = cache
    return clean | {f"WEIGHBRIDGE_{k.upper()}": str(v) for k, v in settings.items()}


def start(*arguments: object, **settings: object) -> subprocess.Popen[str]:
    """Start the command as a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "streams.cli", *map(str, arguments)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(**settings),
        cwd=ROOT,
        text=True,
        start_new_session=True,
    )


def finish(process: subprocess.Popen[str], deadline_s: float = DEADLINE_S) -> Outcome:
    """Wait for its end; kills it past the deadline."""
    try:
        out, err = process.communicate(timeout=deadline_s)
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate()
    return Outcome(process.returncode, out, err)


def call(*arguments: object, deadline_s: float = DEADLINE_S, **settings: object) -> Outcome:
    """Run the command as a process of its own."""
    return finish(start(*arguments, **settings), deadline_s)
