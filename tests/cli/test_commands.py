"""The commands without any service: help, usage, `check`, settings, and what is unreachable."""

from __future__ import annotations

import csv
import json
import socket
import time
from pathlib import Path
from typing import Any

import click
import pytest

from streams.cli import cli
from streams.settings import Settings
from tests.cli.command import Outcome, Run, call

PASSWORD = "t0p-secret"
STATEMENT = {
    "employee_id": "A10042",
    "pay_period_start": "2026-10-19",
    "pay_period_end": "2026-11-01",
    "source_run_id": "acme-hris/001/R2026-22",
    "gross_pay": "2307.69",
    "tax_jurisdiction": "US-OH:columbus",
}
REPORT = {
    "idempotency_key": "eld/acme/R1/1",
    "inspected_at": "2026-11-03T11:42:09Z",
    "inspection_type": "post_trip",
    "driver_id": "D-7",
    "units": [{"role": "power_unit", "vin": "1M8GDM9AXKP042788"}],
    "condition": "safe",
    "certification": {"by": "D-7", "at": "2026-11-03T11:42:09Z", "method": "drawn"},
}
INSPECTED_MS = 1_793_706_129_000


def _commands(
    group: click.Group, path: tuple[str, ...] = ()
) -> list[tuple[tuple[str, ...], click.Command]]:
    found: list[tuple[tuple[str, ...], click.Command]] = []
    for name, command in group.commands.items():
        here = (*path, name)
        found.append((here, command))
        if isinstance(command, click.Group):
            found += _commands(command, here)
    return found


ALL = [pytest.param(path, command, id=" ".join(path)) for path, command in _commands(cli)]
NEED_SERVICES = [
    ("status",),
    ("worker",),
    ("topics", "create"),
    ("topics", "verify"),
    ("publish", "payroll", "one.ndjson"),
]


def _lines(outcome: Outcome) -> list[dict[str, Any]]:
    return [json.loads(line) for line in outcome.out.splitlines()]


def _ndjson(path: Path, *records: object) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return path


def _closed_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
    return port


# --- Help and usage -------------------------------------------------------------------------------


@pytest.mark.parametrize("flag", ["-h", "--help"])
@pytest.mark.parametrize(("path", "command"), ALL)
def test_help_names_every_option(
    run: Run, path: tuple[str, ...], command: click.Command, flag: str
) -> None:
    """Each command explains itself and each of its options, without any service."""
    outcome = run(*path, flag)
    assert outcome.code == 0
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            assert parameter.opts[0] in outcome.out
            assert parameter.help
    assert command.help
    sentence = " ".join(command.help.split()).split(". ")[0]
    assert sentence in " ".join(outcome.out.split())


def test_help_of_all_names_commands_and_exit_codes(run: Run) -> None:
    """The first page leads on."""
    outcome = run("--help")
    assert outcome.code == 0
    assert all(name in outcome.out for name in cli.commands)
    assert "Exit codes:" in outcome.out


def test_version(run: Run) -> None:
    """`--version` says one."""
    outcome = run("--version")
    assert outcome.code == 0
    assert "weighbridge" in outcome.out or "version" in outcome.out


@pytest.mark.parametrize(
    "arguments",
    [
        ("frobnicate",),
        ("check", "--frob"),
        ("check",),
        ("check", "nofile.ndjson"),
        ("check", "."),
        ("publish",),
        ("publish", "payroll"),
        ("publish", "invoices", "."),
        ("topics",),
        ("topics", "frob"),
        ("worker", "--http-port", "x"),
        ("demo", "--records", "1"),
    ],
    ids=" ".join,
)
def test_wrong_usage(run: Run, arguments: tuple[str, ...]) -> None:
    """Exit code 2 and a line that says what is wrong and where help is; no traceback."""
    outcome = run(*arguments)
    assert outcome.code == 2
    said = outcome.err + outcome.out
    assert "Usage:" in said or "-h" in said
    assert "Traceback" not in said


# --- check ----------------------------------------------------------------------------------------


def test_check_ndjson(run: Run, folder: Path) -> None:
    """Duplicates and collisions inside one file show, each with the record it is measured by."""
    path = _ndjson(
        folder / "one.ndjson",
        STATEMENT,
        {**STATEMENT, "gross_pay": "2307.690"},
        {**STATEMENT, "gross_pay": "1.00"},
        {**STATEMENT, "employee_id": "x"},
    )
    outcome = run("check", path, "--json")
    assert outcome.code == 1
    lines = _lines(outcome)
    assert [set(line) for line in lines] == [{"index", "verdict", "reason", "detail"}] * 4
    assert [(x["index"], x["verdict"], x["reason"]) for x in lines] == [
        (0, "committed", None),
        (1, "duplicate", None),
        (2, "quarantined", "idempotency_collision"),
        (3, "quarantined", "schema_violation"),
    ]
    assert "record 0" in lines[1]["detail"][0]["rule"]
    assert {"path": "gross_pay", "rule": "differs from the committed record"} in lines[2]["detail"]
    assert lines[3]["detail"][0]["path"] == "employee_id"


def test_check_shows_a_table(run: Run, folder: Path) -> None:
    """For people: a line per record, the reason, and the sum; nothing of it cut off."""
    bad = {**REPORT, "units": [{"role": "power_unit", "vin": "O" * 17}]}
    outcome = run("check", _ndjson(folder / "one.ndjson", REPORT, bad))
    assert outcome.code == 1
    assert "units[0].vin" in outcome.out
    assert "dvir: 2 records: 1 committed, 1 quarantined" in outcome.out


def test_check_passes_what_is_right(run: Run, folder: Path) -> None:
    """Exit code 0 when no record would be turned away; a duplicate is not turned away."""
    outcome = run("check", _ndjson(folder / "one.ndjson", STATEMENT, STATEMENT))
    assert outcome.code == 0
    assert "1 committed, 1 duplicate" in outcome.out


def test_check_csv(run: Run, folder: Path) -> None:
    """Rows of a CSV are records; one that cannot be mapped is malformed_row."""
    path = folder / "one.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(STATEMENT)
        writer.writerow(STATEMENT.values())
        writer.writerow([*STATEMENT.values(), "one too many"])
    outcome = run("check", path, "--json")
    assert outcome.code == 1
    assert [(x["verdict"], x["reason"]) for x in _lines(outcome)] == [
        ("committed", None),
        ("quarantined", "malformed_row"),
    ]


def test_check_raw(run: Run, folder: Path) -> None:
    """With --raw the whole file is one message, whatever its name and line breaks."""
    path = folder / "message.bin"
    path.write_text(json.dumps(STATEMENT, indent=2), encoding="utf-8")
    outcome = run("check", "--raw", path, "--json")
    assert outcome.code == 0
    assert [line["verdict"] for line in _lines(outcome)] == ["committed"]


def test_check_raw_empty_message(run: Run, folder: Path) -> None:
    """An empty message is no JSON; it is a record all the same."""
    (folder / "empty.bin").touch()
    outcome = run("check", "--raw", folder / "empty.bin", "--type", "payroll", "--json")
    assert (outcome.code, _lines(outcome)[0]["reason"]) == (1, "malformed_json")


@pytest.mark.parametrize(("record", "name"), [(STATEMENT, "payroll"), (REPORT, "dvir")])
def test_check_guesses_the_type(run: Run, folder: Path, record: object, name: str) -> None:
    """From the first records that can be read, unreadable ones before them notwithstanding."""
    path = folder / "one.ndjson"
    path.write_text("junk\n[1]\n" + json.dumps(record) + "\n", encoding="utf-8")
    outcome = run("check", path)
    assert outcome.code == 1
    assert outcome.out.splitlines()[-1].startswith(f"{name}: 3 records")


def test_check_named_type_wins(run: Run, folder: Path) -> None:
    """A type that is named is not guessed."""
    outcome = run("check", _ndjson(folder / "one.ndjson", STATEMENT), "--type", "dvir", "--json")
    assert (outcome.code, _lines(outcome)[0]["reason"]) == (1, "missing_key")


@pytest.mark.parametrize("content", ["", "junk\n", '{"a": 1}\n'])
def test_check_cannot_guess(run: Run, folder: Path, content: str) -> None:
    """Exit code 2 and what to add when no record tells the type."""
    (folder / "one.ndjson").write_text(content, encoding="utf-8")
    outcome = run("check", "one.ndjson")
    assert outcome.code == 2
    assert "--type" in outcome.err


def test_check_empty_file(run: Run, folder: Path) -> None:
    """Nothing in a file of a named type is nothing wrong."""
    (folder / "one.ndjson").touch()
    assert run("check", "one.ndjson", "--type", "payroll", "--json") == Outcome(0, "", "")


@pytest.mark.parametrize(
    ("timestamp", "reason"),
    [
        ("none", None),
        (str(INSPECTED_MS), None),
        (str(INSPECTED_MS + 401 * 86_400_000), "clock_skew"),
        (str(2**63 - 1), "clock_skew"),
        ("0", "clock_skew"),
    ],
)
def test_check_timestamp(run: Run, folder: Path, timestamp: str, reason: str | None) -> None:
    """A record's own time is measured against the timestamp that is assumed."""
    path = _ndjson(folder / "one.ndjson", REPORT)
    outcome = run("check", path, "--json", "--timestamp", timestamp)
    assert (_lines(outcome)[0]["reason"], outcome.code) == (reason, 1 if reason else 0)


def test_check_timestamp_now(run: Run, folder: Path) -> None:
    """`now` is this moment."""
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    path = _ndjson(folder / "one.ndjson", {**REPORT, "inspected_at": now})
    assert run("check", path, "--timestamp", "now").code == 0
    old = _ndjson(folder / "old.ndjson", {**REPORT, "inspected_at": "2001-01-01T00:00:00Z"})
    assert run("check", old, "--timestamp", "now").code == 1


@pytest.mark.parametrize("timestamp", ["garbage", "-1", "1.5", "٣", ""])
def test_check_timestamp_garbage(run: Run, folder: Path, timestamp: str) -> None:
    """Anything but milliseconds, `now` and `none` is wrong usage."""
    path = _ndjson(folder / "one.ndjson", REPORT)
    outcome = run("check", path, "--timestamp", timestamp)
    assert outcome.code == 2
    assert "--timestamp" in outcome.err


def test_check_names_no_value(run: Run, folder: Path) -> None:
    """What a record holds does not show in what is said about it."""
    path = _ndjson(folder / "one.ndjson", {**STATEMENT, "gross_pay": "98765.4321"})
    for arguments in ((), ("--json",)):
        outcome = run("check", path, *arguments)
        assert outcome.code == 1
        assert "98765" not in outcome.out + outcome.err


# --- settings -------------------------------------------------------------------------------------


def _shown(outcome: Outcome, name: str) -> str:
    assert outcome.code == 0, outcome
    (line,) = [x for x in outcome.out.splitlines() if x.split()[:1] == [name]]
    return line.split()[1]


def test_settings_mask_passwords(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither a DSN from the command line nor one from the environment is shown."""
    monkeypatch.setenv("WEIGHBRIDGE_POSTGRES_OWNER_DSN", f"postgresql://o:{PASSWORD}@h/x")
    outcome = run("settings", "--postgres", f"postgresql://u:{PASSWORD}@h/x")
    assert _shown(outcome, "postgres_dsn") == _shown(outcome, "postgres_owner_dsn") == "**********"
    assert PASSWORD not in outcome.out + outcome.err


def test_settings_show_all(run: Run) -> None:
    """Every setting is there by its whole name, with its meaning."""
    outcome = run("settings")
    for name, field in Settings.model_fields.items():
        assert _shown(outcome, name)
        assert (field.description or "?").split()[0] in outcome.out


def test_settings_precedence(run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Flag before environment before file before default."""
    assert _shown(run("settings"), "group") == "weighbridge"
    (folder / "weighbridge.toml").write_text('group = "file"\npool_size = 7\n', encoding="utf-8")
    assert _shown(run("settings"), "group") == "file"
    monkeypatch.setenv("WEIGHBRIDGE_GROUP", "environment")
    assert _shown(run("settings"), "group") == "environment"
    flagged = run("settings", "--group", "flag")
    assert _shown(flagged, "group") == "flag"
    assert _shown(flagged, "pool_size") == "7"


def test_settings_named_file(run: Run, folder: Path) -> None:
    """--config names another file than the default one."""
    (folder / "weighbridge.toml").write_text('group = "default"\n', encoding="utf-8")
    (folder / "other.toml").write_text('group = "other"\n', encoding="utf-8")
    assert _shown(run("settings", "--config", "other.toml"), "group") == "other"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"frob = 1\n", "frob: there is no such setting"),
        (b'pool_size = "many"\n', "pool_size: "),
        (b"pool_size = 0\n", "pool_size: "),
        (b'group = ""\nhttp_port = 70000\n', "http_port: "),
        (b'log_format = "xml"\n', "log_format: "),
        (b"[worker]\ngroup = 1\n", "worker: there is no such setting"),
        (b"frob = \n", "line 1"),
        (b"\xff\xfe", "cannot be read as TOML"),
    ],
)
def test_settings_file_is_wrong(run: Run, folder: Path, content: bytes, said: str) -> None:
    """Exit code 2 and the name of each setting that is wrong; no traceback."""
    (folder / "weighbridge.toml").write_bytes(content)
    outcome = run("settings")
    assert outcome.code == 2
    assert said in outcome.err
    assert len(outcome.err.splitlines()) == 1


def test_settings_file_is_not_there(run: Run) -> None:
    """A file that is named must be there."""
    outcome = run("settings", "--config", "none.toml")
    assert (outcome.code, "none.toml" in outcome.err) == (2, True)


def test_settings_from_the_environment_are_wrong(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """The setting is named, its value is not: it may be a secret."""
    monkeypatch.setenv("WEIGHBRIDGE_POOL_SIZE", PASSWORD)
    outcome = run("settings")
    assert (outcome.code, "pool_size" in outcome.err) == (2, True)
    assert PASSWORD not in outcome.err


# --- Services that are not there ------------------------------------------------------------------


@pytest.mark.parametrize("arguments", [*NEED_SERVICES, ("db", "migrate")], ids=" ".join)
def test_without_services(run: Run, folder: Path, arguments: tuple[str, ...]) -> None:
    """Nothing configured and no `dev` running: exit code 2 and what to set or run."""
    _ndjson(folder / "one.ndjson", STATEMENT)
    outcome = run(*arguments)
    assert outcome.code == 2
    assert "WEIGHBRIDGE_" in outcome.err
    assert "weighbridge dev" in outcome.err


def test_migrating_needs_the_owner(run: Run) -> None:
    """With the workers' DSN alone, the message names the other one."""
    outcome = run("db", "migrate", "--postgres", "postgresql://w@127.0.0.1/x")
    assert outcome.code == 2
    assert "WEIGHBRIDGE_POSTGRES_OWNER_DSN" in outcome.err


@pytest.mark.parametrize(
    "arguments", [x for x in NEED_SERVICES if x[0] in {"topics", "publish"}], ids=" ".join
)
def test_unreachable_kafka(run: Run, folder: Path, arguments: tuple[str, ...]) -> None:
    """Exit code 4, soon, for commands that need Kafka alone; PostgreSQL need not be configured."""
    _ndjson(folder / "one.ndjson", STATEMENT)
    began_s = time.monotonic()
    outcome = run(*arguments, "--kafka", f"127.0.0.1:{_closed_port()}")
    assert outcome.code == 4
    assert time.monotonic() - began_s < 30
    assert outcome.err.splitlines()[-1].startswith("weighbridge: ")
    assert "Traceback" not in outcome.err


@pytest.mark.parametrize(
    "arguments", [("status",), ("worker", "--http-port", "0"), ("db", "migrate")], ids=" ".join
)
def test_unreachable_postgres(
    run: Run, arguments: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exit code 4, soon, and no word of the password."""
    dsn = f"postgresql://u:{PASSWORD}@127.0.0.1:{_closed_port()}/x"
    monkeypatch.setenv("WEIGHBRIDGE_POSTGRES_OWNER_DSN", dsn)
    began_s = time.monotonic()
    kafka = f"127.0.0.1:{_closed_port()}"
    outcome = run(*arguments, "--postgres", dsn, "--kafka", kafka)
    assert outcome.code == 4
    assert time.monotonic() - began_s < 30
    assert "PostgreSQL" in outcome.err
    assert PASSWORD not in outcome.err + outcome.out


@pytest.mark.parametrize("command", ["worker", "status", "db"])
@pytest.mark.parametrize("address", ["h:port", "[h"])
def test_unreadable_dsn(
    run: Run, command: str, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exit code 2 and no word of the DSN, which may hold a password."""
    monkeypatch.setenv("WEIGHBRIDGE_HTTP_PORT", "0")
    dsn = f"postgresql://u:{PASSWORD}@{address}/x"
    monkeypatch.setenv("WEIGHBRIDGE_POSTGRES_OWNER_DSN", dsn)
    monkeypatch.setenv("WEIGHBRIDGE_POSTGRES_DSN", dsn)
    outcome = run(command, *(["migrate"] if command == "db" else []), "--kafka", "127.0.0.1:1")
    assert outcome.code == 2
    assert "DSN" in outcome.err
    assert PASSWORD not in outcome.err + outcome.out


def test_module_is_the_command(folder: Path) -> None:
    """`python -m streams.cli` is `weighbridge`, exit codes and all."""
    path = _ndjson(folder / "one.ndjson", {**STATEMENT, "gross_pay": 1.25})
    outcome = call("check", path, "--json")
    assert (outcome.code, outcome.err) == (0, "")
    assert _lines(outcome)[0]["verdict"] == "committed"
    assert call("frobnicate").code == 2


# --- schema ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["payroll", "dvir"])
def test_schema_prints_the_published_file(run: Run, name: str) -> None:
    """The schema's text as shipped, of committed events unless raw ones are asked for."""
    folder = Path(__file__).parents[2] / "schemas" / name
    for option, file in (("--committed", "committed"), ("--raw", "raw")):
        printed = run("schema", name, option)
        assert (printed.code, printed.err) == (0, "")
        assert printed.out == (folder / f"{file}.v1.avsc").read_text(encoding="utf-8")
    assert run("schema", name).out == run("schema", name, "--committed", "--version", 1).out


def test_schema_prints_the_fingerprint_as_it_stands_in_values(run: Run) -> None:
    """Eight bytes, little-endian; a version that is not there is wrong usage."""
    assert run("schema", "dvir", "--fingerprint").out == "70d560eeaa6b244e\n"
    missing = run("schema", "dvir", "--version", 9)
    assert missing.code == 2
    assert "versions 1 to 1" in missing.err
