"""`weighbridge replay` without any service: usage, options that do not go together, manifests."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.cli.command import Run


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "--out FILE"),
        (("--out", "-"), "must not look whole"),
        (("--out", "x.xlsx"), "--format"),
        (("--out", "x.csv", "--reveal"), "--why"),
        (("--out", "x.csv", "--why", "audit"), "--reveal"),
        (("--out", "x.csv", "--dry-run"), "--out"),
        (("--dry-run", "--topic", "committed"), "raw topic"),
        (("--out", "x.csv", "--limits", "{here}"), "--dry-run"),
        (("--dry-run", "--limits", "{here}", "--decision-set", "{here}"), "say one"),
        (("--out", "x.csv", "--from", "5"), "PARTITION:OFFSET"),
        (("--out", "x.csv", "--from", "0:-5"), "PARTITION:OFFSET"),
        (("--out", "x.csv", "--from", "0:1", "--from", "0:2"), "twice"),
        (("--out", "x.csv", "--partition", 1, "--from", "0:1"), "--partition"),
        (("--out", "x.csv", "--since", "2026-11-01"), "RFC 3339"),
        (("--out", "x.csv", "--until", "2026-11-01T00:00:00"), "offset"),
        (("--out", "none/x.csv"), "no folder"),
        (("--out", "x.csv", "--from-manifest", "{here}", "--run", "R"), "already"),
        (("--out", "x.csv", "--from-manifest", "{here}"), "no manifest"),
        (("--out", "{here}"), "--force"),
    ],
)
def test_usage_is_told_before_anything_is_asked(
    run: Run, folder: Path, arguments: tuple[str, ...], said: str
) -> None:
    """Exit code 2 and what to change, with no service in reach and no file left."""
    here = folder / "here.csv"
    here.write_text("{}", encoding="utf-8")
    given = [str(one).format(here=here) for one in arguments]
    outcome = run("replay", "payroll", *given, "--kafka", "127.0.0.1:1")
    assert (outcome.code, outcome.out) == (2, "")
    assert said in outcome.err
    assert list(folder.iterdir()) == [here]


def test_dvirs_have_no_run(run: Run) -> None:
    """A filter that cannot match is a mistake."""
    outcome = run("replay", "dvir", "--out", "x.csv", "--run", "R", "--kafka", "127.0.0.1:1")
    assert outcome.code == 2
    assert "belong to no run" in outcome.err


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"format_version": 9}, "version 9"),
        ({"record_type": "dvir"}, "record type dvir"),
        ({"topic_id": "x"}, "damaged"),
        ({"kind": "other"}, "another kind"),
        ({"filters": {"since": None, "until": None, "run": None, "key": "***"}}, "--key"),
    ],
)
def test_a_manifest_that_cannot_be_repeated(
    run: Run, folder: Path, changes: dict[str, object], said: str
) -> None:
    """It is named, with the reason."""
    manifest = {
        "format_version": 1,
        "record_type": "payroll",
        "kind": "committed",
        "topic_id": "f6b4e184-f745-489a-bfaf-7751ff95ec1a",
        "partitions": [{"partition": 0, "first": 0, "end": 1}],
        "filters": {"since": None, "until": None, "run": None, "key": None},
        **changes,
    }
    path = folder / "m.json"
    path.write_text(json.dumps(manifest), encoding="utf-8")
    outcome = run("replay", "payroll", "--out", "x.csv", "--from-manifest", path)
    assert outcome.code == 2
    assert said in outcome.err


@pytest.mark.parametrize("options", [("--out", "x.csv"), ("--out", "x.jsonl", "--topic", "raw")])
def test_without_kafka_there_is_no_file(run: Run, folder: Path, options: tuple[str, ...]) -> None:
    """Exit code 4, in one line."""
    outcome = run("replay", "payroll", *options, "--kafka", "127.0.0.1:1")
    assert outcome.code == 4
    assert "Traceback" not in outcome.err
    assert list(folder.iterdir()) == []


def test_parquet_without_its_library(
    run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Said before anything is asked, with what to install."""
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.delitem(sys.modules, "connectors.export.parquet_file", raising=False)
    monkeypatch.delattr("connectors.export.parquet_file", raising=False)
    outcome = run("replay", "payroll", "--out", "x.parquet", "--kafka", "127.0.0.1:1")
    assert outcome.code == 2
    assert "pip install 'weighbridge[parquet]'" in outcome.err
    assert list(folder.iterdir()) == []
