"""Commands of operators, as far as they go without services."""

from __future__ import annotations

import pytest

from tests.cli.command import Run


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("resume", "payroll.raw/0"), "--why"),
        (("resume", "payroll.raw", "--why", "x"), "TOPIC/PARTITION"),
        (("resume", "payroll.raw/0", "--why", "x"), "WEIGHBRIDGE_POSTGRES_OPERATOR_DSN"),
        (("quarantine", "add", "--why", "x"), "--position"),
        (("quarantine", "add", "--position", "a/1/0/5"), "--why"),
        (("quarantine", "add", "--position", "a/0/5", "--why", "x"), "not a position"),
        (("topics", "adopt"), "TOPIC"),
        (("topics", "adopt", "payroll.raw"), "weighbridge dev"),
        (("worker", "--accept-gap", "payroll.raw"), "TOPIC/PARTITION"),
    ],
)
def test_what_is_missing_is_named(run: Run, arguments: tuple[str, ...], says: str) -> None:
    """Exit code 2, and the message says what to give."""
    outcome = run(*arguments)
    assert (outcome.code, outcome.out) == (2, "")
    assert says in outcome.err


@pytest.mark.parametrize(
    "command", [("resume",), ("quarantine", "add"), ("topics", "adopt"), ("worker",)]
)
def test_help_tells_what_an_act_does_and_how_it_ends(run: Run, command: tuple[str, ...]) -> None:
    """Nobody needs another page to act: effect, role and exit codes are in the help."""
    shown = " ".join(run(*command, "--help").out.split())
    assert "xit code" in shown
    assert "operator's role" in shown
    assert "record" in shown
