"""Finding record types, and the authorities their jurisdictions name."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest

from schemas.record_types import RECORD_TYPES, find
from schemas.rules.authorities import AUTHORITIES, LEVELS, resolve


def test_both_types_are_found() -> None:
    """Each folder with a raw schema is a record type, under its own name."""
    assert list(RECORD_TYPES) == ["dvir", "payroll"]
    assert all(record_type.name == name for name, record_type in RECORD_TYPES.items())


@pytest.mark.parametrize(
    "missing", ["committed.v1.avsc", "model.py", "checks.py", "migrations", "examples", "README.md"]
)
def test_a_folder_that_lacks_a_part_is_named(tmp_path: Path, missing: str) -> None:
    """At start, with the part, not at the first record."""
    folder = tmp_path / "cargo"
    for name in ("raw.v1.avsc", "committed.v1.avsc", "model.py", "checks.py", "README.md"):
        folder.mkdir(exist_ok=True)
        (folder / name).touch()
    for name in ("migrations", "examples"):
        (folder / name).mkdir()
    path = folder / missing
    path.rmdir() if path.is_dir() else path.unlink()
    with pytest.raises(RuntimeError, match=f"cargo lacks {missing}"):
        find(tmp_path)


def test_authorities_lie_in_each_other() -> None:
    """A key begins with its parent's, and its level is as deep as its form says."""
    for key, authority in AUTHORITIES.items():
        depth = 1 + ("-" in key) + (":" in key)
        assert (authority.key, authority.level) == (key, depth)
    assert {authority.level for authority in AUTHORITIES.values()} == set(LEVELS.values())


def test_windows_are_half_open() -> None:
    """In force on the first day, not on the day before."""
    key, start = "US-PA:510101", AUTHORITIES["US-PA:510101"].start
    assert resolve(key, start, federal_alone=False) is AUTHORITIES[key]
    assert resolve(key, date.fromordinal(start.toordinal() - 1), federal_alone=False) is None


def test_nothing_falls_back() -> None:
    """Unknown keys name nobody, and the nation by itself only where it is allowed."""
    day = date(2026, 1, 1)
    for key in ("US-PA:999999", "US-XX", "us-pa", " US-PA", "US-PA:", "", "US-PA:510101:1"):
        assert resolve(key, day, federal_alone=True) is None
    assert resolve("US", day, federal_alone=False) is None
    assert resolve("US", day, federal_alone=True) is AUTHORITIES["US"]
