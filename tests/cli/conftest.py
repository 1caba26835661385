"""A place without services or settings, and the command to call there."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.command import Run, make_run


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder of a command that finds no services and no settings file."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WEIGHBRIDGE_DATA_DIR", str(tmp_path / "none"))
    return tmp_path


@pytest.fixture
def run(
    folder: Path,  # noqa: ARG001 - where the command runs
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Run:
    """The command, called in this process."""
    return make_run(capsys, monkeypatch)
