"""Profiles on the command line: `profiles`, and `--profile` of other commands."""

from __future__ import annotations

import json
import shlex
from collections import Counter
from pathlib import Path

import pytest

from connectors.profiles import profile_text, shipped_profiles
from tests.cli.command import Run

SAMPLES = Path(__file__).parents[1] / "samples"


def test_ls_and_show(run: Run) -> None:
    """What is shipped, for people and scripts, and its text to copy."""
    outcome = run("profiles", "ls")
    assert outcome.code == 0
    listed = json.loads(run("profiles", "ls", "--json").out)
    assert [one["name"] for one in listed] == shipped_profiles()
    assert all(one["name"] in outcome.out and one["about"] in outcome.out for one in listed)
    shown = run("profiles", "show", "geotab")
    assert (shown.code, shown.out) == (0, profile_text("geotab"))
    gone = run("profiles", "show", "gone")
    assert gone.code == 2
    assert "samsara-history" in gone.err


def test_check_of_a_profile(run: Run, folder: Path) -> None:
    """A copy of a shipped one is good; a fault is named by its key, with exit code 2."""
    copy = folder / "mine.toml"
    text = run("profiles", "show", "payroll-csv").out
    copy.write_text(text, encoding="utf-8")
    good = run("profiles", "check", copy)
    assert good.code == 0
    assert "csv into payroll records" in good.out
    copy.write_text(text.replace("optional", "optoinal", 1), encoding="utf-8")
    bad = run("profiles", "check", copy)
    assert bad.code == 2
    assert "fields.pay_date.optoinal: no such key" in bad.err
    assert "Traceback" not in bad.err


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("--profile", "gone"), "no profile 'gone'"),
        (("--with", "a=b"), "say --profile too"),
        (("--profile", "geotab"), "--with defects=FILE"),
        (("--profile", "geotab", "--with", "defects"), "--with takes NAME=FILE"),
        (("--profile", "motive", "--type", "payroll"), "profile motive makes dvir, not payroll"),
        (("--profile", "motive", "--raw"), "one of them"),
        (("--profile", "payroll-csv"), "profile payroll-csv reads files that end in .csv"),
    ],
)
def test_wrong_use_of_a_profile(run: Run, arguments: tuple[str, ...], why: str) -> None:
    """Exit code 2, and what to change."""
    outcome = run("check", SAMPLES / "motive_inspection_reports.json", *arguments)
    assert outcome.code == 2
    assert why in outcome.err


def test_publish_takes_a_profile(run: Run, folder: Path) -> None:
    """Of its own record type; a dry run reads the file by it."""
    page = folder / "page.json"
    page.write_bytes((SAMPLES / "motive_inspection_reports.json").read_bytes())
    dry = ("--dry-run", "--json", "--kafka", "127.0.0.1:1")
    outcome = run("publish", "dvir", page, "--profile", "motive", *dry)
    assert outcome.code == 0
    assert json.loads(outcome.out)["files"][0]["rows"] == 3
    other = run("publish", "payroll", page, "--profile", "motive", "--dry-run")
    assert (other.code, "makes dvir, not payroll" in other.err) == (2, True)


def test_no_value_of_a_record_is_told(run: Run, folder: Path) -> None:
    """Neither by a verdict nor by a refusal."""
    path = folder / "p.csv"
    rows = (SAMPLES / "payroll_ugly.csv").read_bytes()
    path.write_bytes(rows.replace(b"see note", b"SECRET7").replace(b"Phila. PA", b"SECRET8"))
    outcome = run("check", path, "--profile", SAMPLES / "payroll_ugly.toml")
    assert "SECRET" not in outcome.out + outcome.err


def _table() -> list[tuple[str, str]]:
    """Command lines of the samples' README and what it says of them."""
    rows = []
    for line in (SAMPLES / "README.md").read_text("utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("| `weighbridge check "):
            rows.append((cells[0].strip("`"), cells[1]))
    return rows


@pytest.mark.parametrize(("command", "said"), _table())
def test_the_samples_readme_tells_the_truth(
    run: Run, monkeypatch: pytest.MonkeyPatch, command: str, said: str
) -> None:
    """Its verdicts are those that its command lines give."""
    monkeypatch.chdir(SAMPLES)
    outcome = run(*shlex.split(command)[1:], "--json")
    if said.startswith("refused whole"):
        assert outcome.code == 2
        assert said.removeprefix("refused whole: ") in outcome.err
        return
    verdicts = [json.loads(line) for line in outcome.out.splitlines()]
    tally = Counter(one["reason"] or one["verdict"] for one in verdicts)
    order = ("committed", "duplicate")
    names = [*(n for n in order if n in tally), *sorted(n for n in tally if n not in order)]
    assert ", ".join(f"{tally[name]} {name}" for name in names) == said
    assert outcome.code == (1 if set(tally) - set(order) else 0)
