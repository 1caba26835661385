"""Weights of defects: a dated table of our own, not constants. Pure but for reading its file.

A row holds for one part and severity in a half-open window of days, `[start, end)`, an empty end
meaning open; it names the method it belongs to. So a score can be told again as of any day, and a
new method begins on its day without touching what was inspected before. Two windows of one part and
severity that overlap refuse to load.

The shipped `weights.csv` holds example values: published methods change, and their lists are not
ours to ship.
"""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from itertools import pairwise
from pathlib import Path

from connectors.errors import ConfigurationError
from schemas.dvir.model import Part, Severity
from schemas.exact import date_of, decimal_of

SHIPPED = Path(__file__).with_name("weights.csv")
COLUMNS = ("method", "part", "severity", "weight", "start", "end")
ROWS_MAX = 10_000
_PRECISION, _SCALE = 7, 2


@dataclass(frozen=True, slots=True)
class Weight:
    """One row."""

    method: str
    part: str
    severity: str
    weight: Decimal
    start: date
    end: date | None
    line: int
    """Where it stands in its file."""

    def holds_on(self, day: date) -> bool:
        """Whether the day is in its window."""
        return self.start <= day and (self.end is None or day < self.end)

    def __str__(self) -> str:
        end = "" if self.end is None else self.end
        return (
            f"line {self.line} ({self.method}, {self.part}, {self.severity}, {self.start}..{end})"
        )


class Weights:
    """All rows, by part and severity."""

    def __init__(self, rows: Iterable[Weight]) -> None:
        """Raises `ValueError` naming both rows when two windows overlap."""
        by_subject: dict[tuple[str, str], list[Weight]] = defaultdict(list)
        for row in rows:
            by_subject[row.part, row.severity].append(row)
        for found in by_subject.values():
            found.sort(key=lambda row: (row.start, row.line))
            for one, later in pairwise(found):
                if one.end is None or later.start < one.end:
                    message = f"windows overlap: {one} and {later}"
                    raise ValueError(message)
        self._by_subject: Mapping[tuple[str, str], list[Weight]] = by_subject

    def of(self, part: str, severity: str, day: date) -> tuple[str, Decimal] | None:
        """Method and weight in force on a day; None when there is none, which is not zero."""
        for row in self._by_subject.get((part, severity), ()):
            if row.holds_on(day):
                return row.method, row.weight
        return None


def parse(lines: Iterable[str]) -> Weights:
    """Weights from the lines of a CSV file. Raises `ValueError` naming line and rule."""
    reader = csv.DictReader(lines, strict=True)
    if tuple(reader.fieldnames or ()) != COLUMNS:
        message = f"line 1: the columns are {','.join(COLUMNS)}"
        raise ValueError(message)
    rows: list[Weight] = []
    try:
        for written in reader:
            if len(rows) == ROWS_MAX:
                message = f"at most {ROWS_MAX} rows"
                raise ValueError(message)  # noqa: TRY301 - a rule like those of a row
            rows.append(_row(written, reader.line_num))
    except (ValueError, csv.Error) as error:
        message = f"line {reader.line_num}: {error}"
        raise ValueError(message) from None
    return Weights(rows)


def _row(written: Mapping[str | None, str | None], line: int) -> Weight:
    values = {name: (written.get(name) or "").strip() for name in COLUMNS}
    if None in written or not values["method"]:
        message = f"a value for each of {','.join(COLUMNS)}, the end alone may be empty"
        raise ValueError(message)
    weight = decimal_of(values["weight"], _PRECISION, _SCALE)
    start = date_of(values["start"])
    end = date_of(values["end"]) if values["end"] else None
    if weight < 0 or (end is not None and end <= start):
        message = "a weight is not negative, and a window ends after it begins"
        raise ValueError(message)
    part, severity = Part(values["part"]), Severity(values["severity"])
    return Weight(values["method"], part.value, severity.value, weight, start, end, line)


def load(path: Path) -> Weights:
    """Weights from a file. Raises `ConfigurationError` naming the file and what is wrong in it."""
    try:
        with path.open(encoding="utf-8", newline="") as lines:
            return parse(lines)
    except (OSError, UnicodeDecodeError) as error:
        message = f"weights {path}: {type(error).__name__}"
        raise ConfigurationError(message) from None
    except ValueError as error:
        message = f"weights {path}: {error}"
        raise ConfigurationError(message) from None
