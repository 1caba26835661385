"""Which authority a jurisdiction key names on a date.

A fixed list for now: United States, states and DC, and the localities that have a rule in the
shipped pack (`authorities.csv`; windows half-open). Resolution never falls back to a higher level.
Pure but for reading the shipped file when imported.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from datetime import date
from functools import lru_cache
from importlib.resources import files
from typing import Final

LEVELS: Final = {"federal": 1, "state": 2, "municipal": 3}
"""Rank of a level; counties count as municipal."""
FEDERAL_KEY: Final = "US"


@dataclass(frozen=True, slots=True)
class Authority:
    """A taxing authority in one window."""

    key: str
    level: int
    start: date
    end: date | None
    """First day no longer in force; None while open."""


def _load() -> dict[str, Authority]:
    found: dict[str, Authority] = {}
    text = files("schemas.rules").joinpath("authorities.csv").read_text(encoding="utf-8")
    for row in csv.DictReader(text.splitlines()):
        if row["key"] in found:
            message = f"authorities.csv: {row['key']} has two rows"
            raise ValueError(message)
        end = row["effective_end"]
        found[row["key"]] = Authority(
            row["key"],
            LEVELS[row["level"]],
            date.fromisoformat(row["effective_start"]),
            date.fromisoformat(end) if end else None,
        )
    return found


AUTHORITIES: Final = _load()


@lru_cache(maxsize=4096)
def resolve(key: str, on: date, *, federal_alone: bool) -> Authority | None:
    """The authority that `key` names, if it is in force on that day; None otherwise.

    `US` by itself names one only where the decision set's limits allow it.
    """
    found = AUTHORITIES.get(key)
    if found is None or on < found.start or (found.end is not None and on >= found.end):
        return None
    if key == FEDERAL_KEY and not federal_alone:
        return None
    return found
