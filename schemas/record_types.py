"""Finds the record types: every folder below `schemas/` that declares a `RECORD_TYPE`.

Adding a record type is adding a folder; what it lacks is named here, at start, not at the first
record.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from types import MappingProxyType

from schemas.record_type import COMMON_LEDGER_COLUMNS, RecordType

_ROOT = Path(__file__).parent
_PARTS = (
    "raw.v1.avsc",
    "committed.v1.avsc",
    "model.py",
    "checks.py",
    "migrations",
    "examples",
    "README.md",
)


def find(root: Path) -> Mapping[str, RecordType]:
    """The record types below a folder. Raises `RuntimeError` that names what one lacks."""
    found: dict[str, RecordType] = {}
    for folder in sorted(path.parent for path in root.glob("*/raw.v1.avsc")):
        missing = [part for part in _PARTS if not (folder / part).exists()]
        if missing:
            message = f"record type {folder.name} lacks {', '.join(missing)}"
            raise RuntimeError(message)
        declared = getattr(import_module(f"schemas.{folder.name}"), "RECORD_TYPE", None)
        if not isinstance(declared, RecordType) or declared.name != folder.name:
            message = f"schemas.{folder.name} must declare RECORD_TYPE with name {folder.name!r}"
            raise RuntimeError(message)
        common = declared.ledger_columns[: len(COMMON_LEDGER_COLUMNS)]
        if common != COMMON_LEDGER_COLUMNS:
            message = f"record type {folder.name}: ledger columns begin with the common ones"
            raise RuntimeError(message)
        found[folder.name] = declared
    return MappingProxyType(found)


RECORD_TYPES: Mapping[str, RecordType] = find(_ROOT)
"""Record type by name."""
