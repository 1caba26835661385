"""The table of faults as text. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Self
from xml.etree.ElementTree import Element

from tests.faults.arena import Fault, Outcome

HEAD = """\
# Faults

What `python -m tests.faults --write` found on real Kafka and PostgreSQL, each behind a TCP proxy,
with two to four workers under load. After each fault the truth is read from outside: topics by
plain clients with `read_committed`, tables by SQL, held against what each published record was made
for.

*Heal* is the time from the end of a round's last injection until every published record has its
verdict and its event, new worker processes included where the fault ended them (median, most).
"""
INJECTED = """\
## Injected again and again

| fault | how injected | how often | lost | doubled | wrongly quarantined | heal, s |
| --- | --- | ---: | ---: | ---: | ---: | ---: |
"""
SCRIPTED = """\
## Acted out, one story each

Each is a test; the module's docstrings say what it shows.

| story | where | outcome | s |
| --- | --- | --- | ---: |
"""


@dataclass(frozen=True, slots=True)
class Row:
    """A fault and what it did."""

    fault: Fault
    outcome: Outcome
    error: str
    """Why the gate did not come through; empty if it did."""

    @property
    def well(self) -> bool:
        """Whether nothing went wrong."""
        return not self.error and self.outcome.harm.none

    @property
    def cells(self) -> tuple[str, ...]:
        """The row of the table."""
        harm, heals = self.outcome.harm, self.outcome.heals_s
        healed = f"{statistics.median(heals):.1f}, {max(heals):.1f}" if heals else "-"
        if self.error:
            healed = f"NOT: {self.error}"
        counts = (self.outcome.injections, harm.lost, harm.doubled, harm.misjudged)
        return (self.fault.name, self.fault.how, *map(str, counts), healed)

    @property
    def line(self) -> str:
        """The row for a terminal."""
        name, _, often, lost, doubled, misjudged, healed = self.cells
        failed = "; ".join(self.outcome.harm.failed)
        return (
            f"{name:26} {often:>4} injected, {lost} lost, {doubled} doubled, "
            f"{misjudged} misjudged, healed in {healed} s {failed}"
        )


@dataclass(frozen=True, slots=True)
class Script:
    """A test that acts out one story."""

    name: str
    module: str
    passed: bool
    seconds: float

    @classmethod
    def of(cls, case: Element) -> Self:
        """From a `testcase` of a JUnit report."""
        failed = any(child.tag in ("failure", "error", "skipped") for child in case)
        module = case.get("classname", "").replace(".", "/") + ".py"
        return cls(case.get("name", ""), module, not failed, float(case.get("time", "0")))

    @property
    def cells(self) -> tuple[str, ...]:
        """The row of the table."""
        story = self.name.removeprefix("test_").replace("_", " ")
        return story, self.module, "as told" if self.passed else "FAILED", f"{self.seconds:.0f}"


def written(rows: Sequence[Row], scripts: Sequence[Script]) -> str:
    """The page."""
    harms = [row.outcome.harm for row in rows]
    total = (
        f"In all: {sum(row.outcome.injections for row in rows)} injections, "
        f"{sum(row.outcome.records for row in rows)} records, "
        f"{sum(harm.lost for harm in harms)} lost, {sum(harm.doubled for harm in harms)} doubled, "
        f"{sum(harm.misjudged for harm in harms)} wrongly quarantined; "
        f"{sum(not row.well for row in rows)} of {len(rows)} faults not survived.\n"
    )
    parts = [HEAD, INJECTED + _table(row.cells for row in rows) + "\n" + total]
    if scripts:
        parts.append(SCRIPTED + _table(script.cells for script in scripts))
    return "\n".join(parts)


def _table(rows: Iterable[tuple[str, ...]]) -> str:
    return "".join(f"| {' | '.join(cells)} |\n" for cells in rows)
