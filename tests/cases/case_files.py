"""The cases beside this file: inputs of one kind of fault each, with the verdict due to each input.

A record's value is text (`value`, null for a tombstone), bytes (`base64`), or too long to write out
(`begin`, `fill` times `count`, `end`). `schemas` are the writers' schemas by Confluent id.
"""

from __future__ import annotations

import json
from base64 import b64decode
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from schemas.envelope import Headers

FOLDER = Path(__file__).parent
AT_MS = 1_741_600_000_000
"""Kafka timestamp of a record that states none: 2025-03-10, a day after the reports'."""


@dataclass(frozen=True, slots=True)
class CaseRecord:
    """One input."""

    value: bytes | None
    headers: Headers
    timestamp_ms: int
    verdict: str
    """`committed`, `duplicate`, or the reason it is quarantined for."""


@dataclass(frozen=True, slots=True)
class Case:
    """One kind of fault."""

    name: str
    about: str
    type_name: str
    records: tuple[CaseRecord, ...]
    schemas: dict[int, dict[str, Any]]


def load() -> list[Case]:
    """All cases, by name."""
    return [_case(path) for path in sorted(FOLDER.glob("*.json"))]


def write_store(folder: Path, cases: list[Case]) -> None:
    """Writers' schemas, as the schema store keeps them."""
    for case in cases:
        for number, schema in case.schemas.items():
            (folder / f"{number}.avsc").write_text(json.dumps(schema), encoding="utf-8")


def _case(path: Path) -> Case:
    found = json.loads(path.read_text(encoding="utf-8"))
    return Case(
        path.stem,
        found["about"],
        found["type"],
        tuple(_record(one) for one in found["records"]),
        {int(number): schema for number, schema in found.get("schemas", {}).items()},
    )


def _record(found: dict[str, Any]) -> CaseRecord:
    headers = tuple(
        (name, None if value is None else b64decode(value))
        for name, value in found.get("headers", ())
    )
    return CaseRecord(_value(found), headers, found.get("timestamp_ms", AT_MS), found["verdict"])


def _value(found: dict[str, Any]) -> bytes | None:
    if "base64" in found:
        return b64decode(found["base64"])
    if "fill" in found:
        text: str = found["begin"] + found["fill"] * found["count"] + found["end"]
        return text.encode()
    return None if found["value"] is None else str(found["value"]).encode()
