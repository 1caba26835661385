"""The weighted defect score of a unit: what events say of it, its state, its score. Pure.

    committed event ──facts_of──▶ one fact per unit ──apply──▶ state of the unit ──score──▶ Score

The state is the same whatever the order in which facts arrive, and however often: each report keeps
its latest version and what has been certified, and only a newer word replaces an older one. So
duplicates, replays and late events change nothing, and nobody has to see events in order. It holds
within the bounds of a state, see `apply`.

What opens and closes a defect (49 CFR 396.11, 396.13):

- A report's version replaces its earlier ones, for the units it names. Its defects are open unless
  their outcome says otherwise or the report's condition is `resolved`. Later reports of the unit,
  clean ones too, close nothing.
- A `repair_certification` belongs to the report of the same source and report_id. It closes the
  defects it lists as repaired or no_repair_needed, or, listing none, all that report has on the
  units the certification names. A version updated after it speaks for itself.
- A `driver_review` changes nothing.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from pydantic import TypeAdapter

from schemas.exact import EPOCH
from streams.weights import Weights

REPORTS_MAX = 50
"""Reports remembered per unit; settled ones are forgotten first, then the oldest open ones."""
DEFECTS_MAX = 1_000
"""Open defects and certified ones remembered per unit, over all its reports; one report may list
as many."""
WINDOW_US = 400 * 86_400 * 1_000_000
"""How far before a unit's newest inspection a report counts: as far back as the gate takes one."""
VERSION_DIGITS_MAX = 18
ZERO = Decimal("0.00")
UNORDERED = -1
_MICROSECOND = timedelta(microseconds=1)

Order = tuple[int, ...]
"""Which version of a report is the later one: version number, time of its last update (both
`UNORDERED` when not known), then the raw record's incarnation, partition and offset."""


# --- Facts: what one event says of one unit -------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Defect:
    """An open defect. Times are microseconds since the epoch."""

    identity: str
    """Tells it apart within its report and unit: the same in all versions and in certifications."""
    part: str
    severity: str
    regulated: bool


@dataclass(frozen=True, slots=True)
class Reported:
    """A version of a report, as far as one unit is concerned."""

    report: str
    order: Order
    inspected_us: int
    defects: tuple[Defect, ...] = ()
    """Those that are open."""
    has_versions: bool = True
    """Whether another version can come: without a report_id none can."""

    @property
    def updated_us(self) -> int:
        """When its source changed it last, or `UNORDERED`."""
        return self.order[1]


@dataclass(frozen=True, slots=True)
class Certified:
    """A certification of repairs, as far as one unit is concerned."""

    report: str
    at_us: int
    inspected_us: int
    closes: tuple[str, ...] | None
    """Identities of defects; None: all of the report."""


Fact = Reported | Certified


def facts_of(event: Mapping[str, Any]) -> Iterator[tuple[str, Fact]]:
    """Each unit of a decoded committed event, by its identity, with what the event says of it.

    A defect without a unit index belongs to the first unit. Units of one identity are one unit.
    """
    names = [unit["vin"] or unit["legacy_serial"] or unit["unit_number"] for unit in event["units"]]
    of_unit: dict[str, list[Mapping[str, Any]]] = {name: [] for name in names}
    for defect in event["defects"]:
        of_unit[names[defect["unit"] or 0]].append(defect)
    if event["event"] == "report":
        for name, defects in of_unit.items():
            yield name, _reported(event, defects)
    elif event["event"] == "repair_certification" and event["report_id"] is not None:
        for name, defects in of_unit.items():
            if defects or not event["defects"]:
                yield name, _certified(event, defects)


def _reported(event: Mapping[str, Any], defects: Sequence[Mapping[str, Any]]) -> Reported:
    still_open = tuple(
        Defect(identity, defect["part"], defect["severity"], defect["regulated"] is not False)
        for identity, defect in zip(_identities(defects), defects, strict=True)
        if defect["outcome"] == "open"
    )
    return Reported(
        report=_report_of(event),
        order=_order_of(event),
        inspected_us=_us(event["inspected_at"]),
        defects=() if event["condition"] == "resolved" else still_open,
        has_versions=event["report_id"] is not None,
    )


def _certified(event: Mapping[str, Any], defects: Sequence[Mapping[str, Any]]) -> Certified:
    closes = tuple(
        identity
        for identity, defect in zip(_identities(defects), defects, strict=True)
        if defect["outcome"] != "open"
    )
    # The source's clock where it has one: that is what a version's update is compared with.
    at = event["source_updated_at"] or event["certification"]["at"]
    return Certified(
        report=_report_of(event),
        at_us=_us(at),
        inspected_us=_us(event["inspected_at"]),
        closes=closes if defects else None,
    )


def _report_of(event: Mapping[str, Any]) -> str:
    """What the versions of one report share; a report without an id has one version."""
    if event["report_id"] is None:
        return json.dumps([event["idempotency_key"]])
    return json.dumps([event["source"], event["report_id"]])


def _order_of(event: Mapping[str, Any]) -> Order:
    """A version that is no plain number, such as a digest of the content, orders nothing."""
    version = event["report_version"] or ""
    numbered = version.isascii() and version.isdigit() and len(version) <= VERSION_DIGITS_MAX
    updated_at = event["source_updated_at"]
    return (
        int(version) if numbered else UNORDERED,
        UNORDERED if updated_at is None else _us(updated_at),
        event["incarnation"],
        event["partition"],
        event["offset"],
    )


def _identities(defects: Sequence[Mapping[str, Any]]) -> list[str]:
    """By the source's id, else by part and code and how many of the same came before it. Short
    digests, because ids may be long and a state is bounded."""
    found, seen = [], dict[tuple[str, ...], int]()
    for defect in defects:
        own_id = defect["defect_id"]
        name = ("id", own_id) if own_id else ("part", defect["part"], defect["code"] or "")
        ordinal = seen.get(name, 0)
        seen[name] = ordinal + 1
        text = json.dumps([*name] if own_id else [*name, ordinal])
        found.append(hashlib.sha256(text.encode()).hexdigest()[:16])
    return found


def _us(instant: datetime) -> int:
    return (instant - EPOCH) // _MICROSECOND


# --- State: what is known of one unit -------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Entry:
    """What is known of one report."""

    report: Reported | None = None
    """Its latest version; None while only a certification has come."""
    all_us: int = UNORDERED
    """When all its defects were certified last."""
    certified: Mapping[str, int] = field(default_factory=dict)
    """When single defects were certified last, by identity."""
    inspected_us: int = UNORDERED

    def still_open(self) -> tuple[Defect, ...]:
        """Its defects that nothing has closed."""
        report = self.report
        if report is None:
            return ()
        # Never certified is before all times; a version without an update is as old as can be.
        return tuple(
            defect
            for defect in report.defects
            if max(self.all_us, self.certified.get(defect.identity, UNORDERED))
            < max(report.updated_us, 0)
        )


@dataclass(frozen=True, slots=True)
class UnitState:
    """All that is remembered of one unit."""

    reports: Mapping[str, Entry] = field(default_factory=dict)
    newest_us: int = UNORDERED
    """The newest inspection."""
    left_out_us: int = UNORDERED
    """The newest inspection of a report that left with defects still open, for want of room."""


def apply(state: UnitState, fact: Fact) -> UnitState:
    """The state after a fact; the same state when the fact says nothing new.

    Bounds: at most `REPORTS_MAX` reports and `DEFECTS_MAX` defects. Past them the report with the
    oldest inspection leaves, settled ones (nothing open) first; that an open one left is told by
    `left_out_us`. A report inspected more than `WINDOW_US` before the newest one leaves too, and is
    not taken any more. A version that arrives after its settled report has left counts as open:
    too high a score is the safe side.
    """
    newest_us = max(state.newest_us, fact.inspected_us)
    entry = _joined(state.reports.get(fact.report, Entry()), fact)
    reports = {**state.reports, fact.report: entry}
    if isinstance(fact, Reported) and not fact.has_versions and not fact.defects:
        reports.pop(fact.report)  # clean, and nothing else can come of it
    kept = {name: one for name, one in reports.items() if one.inspected_us >= newest_us - WINDOW_US}
    return _within_bounds(replace(state, reports=kept, newest_us=newest_us))


def _joined(entry: Entry, fact: Fact) -> Entry:
    inspected_us = entry.inspected_us
    if isinstance(fact, Reported):
        if entry.report is not None and fact.order <= entry.report.order:
            return entry
        return replace(entry, report=fact, inspected_us=fact.inspected_us)
    if entry.report is None:
        inspected_us = max(inspected_us, fact.inspected_us)
    if fact.closes is None:
        return replace(entry, all_us=max(entry.all_us, fact.at_us), inspected_us=inspected_us)
    certified = dict(entry.certified)
    for identity in fact.closes:
        certified[identity] = max(certified.get(identity, UNORDERED), fact.at_us)
    if len(certified) > DEFECTS_MAX:
        latest = sorted(certified.items(), key=lambda one: (one[1], one[0]))[-DEFECTS_MAX:]
        certified = dict(latest)
    return replace(entry, certified=certified, inspected_us=inspected_us)


def _within_bounds(state: UnitState) -> UnitState:
    reports, left_out_us = dict(state.reports), state.left_out_us
    sizes = {name: len(_defects(one)) + len(one.certified) for name, one in reports.items()}
    if len(reports) <= REPORTS_MAX and sum(sizes.values()) <= DEFECTS_MAX:
        return state
    leaving = sorted(
        reports, key=lambda name: (bool(reports[name].still_open()), reports[name].inspected_us)
    )
    # The last one stays, so the bound holds but for a single report that is larger by itself.
    for name in leaving[:-1]:
        if len(reports) <= REPORTS_MAX and sum(sizes.values()) <= DEFECTS_MAX:
            break
        gone = reports.pop(name)
        sizes.pop(name)
        if gone.still_open():
            left_out_us = max(left_out_us, gone.inspected_us)
    return UnitState(reports, state.newest_us, left_out_us)


def _defects(entry: Entry) -> tuple[Defect, ...]:
    return () if entry.report is None else entry.report.defects


# --- Score ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class OpenDefect:
    """An open defect with its weight."""

    report: str
    inspected_at: datetime
    part: str
    severity: str
    regulated: bool
    method: str | None
    """The method its weight is of; None: no weight was in force, or none is needed."""
    weight: Decimal | None


@dataclass(frozen=True, slots=True)
class Score:
    """The sum of the weights of all open defects of a unit."""

    value: Decimal
    unweighted: int
    """Regulated defects for which no weight was in force on their day: the score is too low."""
    open_defects: tuple[OpenDefect, ...]
    newest_inspection: datetime | None
    left_out_until: datetime | None
    """Not None: open defects of inspections up to this one are left out for want of room."""


def score(state: UnitState, weights: Weights) -> Score:
    """The unit's score: each open defect weighs what was in force when it was inspected; an
    unregulated one weighs nothing."""
    found = [
        _weighed(entry.report, defect, weights)
        for entry in sorted(state.reports.values(), key=lambda one: one.inspected_us)
        if entry.report is not None
        for defect in entry.still_open()
    ]
    return Score(
        value=sum((one.weight for one in found if one.weight is not None), ZERO),
        unweighted=sum(one.weight is None for one in found),
        open_defects=tuple(found),
        newest_inspection=_instant(state.newest_us),
        left_out_until=_instant(state.left_out_us),
    )


def _weighed(report: Reported, defect: Defect, weights: Weights) -> OpenDefect:
    at = EPOCH + report.inspected_us * _MICROSECOND
    method: str | None = None
    weight: Decimal | None = ZERO
    if defect.regulated:
        method, weight = weights.of(defect.part, defect.severity, at.date()) or (None, None)
    return OpenDefect(
        report.report, at, defect.part, defect.severity, defect.regulated, method, weight
    )


def _instant(us: int) -> datetime | None:
    return None if us == UNORDERED else EPOCH + us * _MICROSECOND


# --- As bytes, for topics and tables --------------------------------------------------------------

FACT: TypeAdapter[Fact] = TypeAdapter(Fact)
STATE: TypeAdapter[UnitState] = TypeAdapter(UnitState)
SCORE: TypeAdapter[Score] = TypeAdapter(Score)
"""JSON of each: `dump_json` and `validate_json`. Weights are text, as decimals are everywhere."""
