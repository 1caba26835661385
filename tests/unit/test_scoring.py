"""The scorer's pure core: what opens, closes and weighs a defect, in whatever order it is told."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.errors import ConfigurationError
from schemas.committed import UnreadableEvent, read_event
from schemas.dvir import RECORD_TYPE
from schemas.exact import EPOCH
from schemas.examples import load_examples
from streams.scoring import (
    DEFECTS_MAX,
    FACT,
    REPORTS_MAX,
    STATE,
    WINDOW_US,
    Certified,
    Defect,
    Fact,
    Reported,
    Score,
    UnitState,
    apply,
    facts_of,
    score,
)
from streams.weights import SHIPPED, load, parse
from tests.inspections import TRACTOR, TRAILER, certification, committed, defect, members

WEIGHTS = load(SHIPPED)
COMBINATION = [
    {"role": "power_unit", "vin": TRACTOR},
    {"role": "trailer", "unit_number": "T-9"},
]


def _states(records: Iterable[Mapping[str, Any]]) -> dict[str, UnitState]:
    """Through decoding and the bytes of facts and states, as the app does it."""
    found: dict[str, bytes] = {}
    for offset, record in enumerate(records):
        event = read_event(RECORD_TYPE, committed(record, offset).event_value)
        for unit, fact in facts_of(event):
            before = STATE.validate_json(found[unit]) if unit in found else UnitState()
            after = apply(before, FACT.validate_json(FACT.dump_json(fact)))
            found[unit] = STATE.dump_json(after)
    return {unit: STATE.validate_json(state) for unit, state in found.items()}


def _scores(*records: Mapping[str, Any]) -> dict[str, Decimal]:
    return {unit: score(state, WEIGHTS).value for unit, state in _states(records).items()}


def _score(*records: Mapping[str, Any]) -> Score:
    return score(_states(records)[TRACTOR], WEIGHTS)


# --- What opens and closes a defect ---------------------------------------------------------------


def test_open_defects_weigh_what_was_in_force_when_inspected() -> None:
    """A defect weighs by the method of its inspection's day, to the day."""
    last_day, first_day = "2025-12-31T23:59:59.999999Z", "2026-01-01T00:00:00Z"
    old = members("R1", defect("tires", "major"), inspected_at=last_day)
    new = members("R2", defect("tires", "major"), inspected_at=first_day)
    found = _score(old, new)
    weighed = [(one.method, one.weight) for one in found.open_defects]
    assert weighed == [("example-1", Decimal("12.00")), ("example-2", Decimal("4.00"))]
    assert (found.value, found.unweighted) == (Decimal("16.00"), 0)


def test_a_newer_clean_inspection_closes_nothing() -> None:
    """Only a certification, or the report itself, closes a report's defects (49 CFR 396.11)."""
    clean = members("R2", inspected_at="2026-03-09T10:00:00Z", condition="safe")
    assert _score(members("R1", defect()), clean).value == 4
    assert _score(clean, members("R1", defect())).value == 4


@pytest.mark.parametrize("outcome", ["repaired", "no_repair_needed"])
def test_a_defect_with_an_outcome_is_not_open(outcome: str) -> None:
    """Repaired and repair not necessary both take a defect out."""
    assert _score(members("R1", defect(outcome=outcome), defect("horn"))).value == 2


def test_a_resolved_report_has_no_open_defects() -> None:
    """A later version in condition resolved closes the report's defects."""
    resolved = members("R1", defect(), condition="resolved", report_version="2")
    assert _score(members("R1", defect(), report_version="1"), resolved).value == 0


def test_unregulated_defects_weigh_nothing() -> None:
    """Shown as open, weight 0; that nothing is said of it being regulated means that it is."""
    found = _score(members("R1", defect(regulated=False), defect("horn", regulated=None)))
    weighed = [(one.part, one.regulated, one.weight) for one in found.open_defects]
    assert weighed == [("tires", False, Decimal(0)), ("horn", True, Decimal("2.00"))]


def test_a_defect_without_weight_is_counted_not_forgotten() -> None:
    """No window on that day is no weight of zero: the score says that it is too low."""
    found = _score(members("R1", defect(), inspected_at="2019-06-01T00:00:00Z"))
    assert (found.value, found.unweighted) == (0, 1)


def test_a_review_changes_nothing() -> None:
    """The next driver's signature repairs nothing."""
    review = certification("R1", event="driver_review", driver_id="D-8")
    event = read_event(RECORD_TYPE, committed(review).event_value)
    assert list(facts_of(event)) == []


# --- Certifications -------------------------------------------------------------------------------


def test_a_certification_that_lists_no_defects_closes_all_of_its_report() -> None:
    """It belongs to the report of its source and report_id, and to no other one."""
    first, second = members("R1", defect(), defect("horn")), members("R2", defect("horn"))
    elsewhere = members("R1", defect("steering"), source="other")
    assert _score(first, second, elsewhere, certification("R1")).value == 2 + 4


def test_a_certification_that_lists_defects_closes_those() -> None:
    """Matched by the source's id, else by part and code; one listed as open stays open."""
    report = members(
        "R1",
        defect("tires", defect_id="D1"),
        defect("tires", defect_id="D2"),
        defect("horn"),
        defect("steering"),
    )
    certified = certification(
        "R1",
        defect("tires", "unknown", defect_id="D2", outcome="repaired"),
        defect("horn", "unknown", outcome="no_repair_needed"),
        defect("steering", outcome="open"),
    )
    found = _score(report, certified)
    assert [one.part for one in found.open_defects] == ["tires", "steering"]


def test_equal_defects_without_ids_are_closed_one_by_one() -> None:
    """One repaired tyre of two leaves one open."""
    report = members("R1", defect("tires"), defect("tires"))
    assert _score(report, certification("R1", defect("tires", outcome="repaired"))).value == 4


def test_a_certification_without_report_id_closes_nothing() -> None:
    """It names no report."""
    assert _score(members("R1", defect()), certification(None)).value == 4


def test_a_version_updated_after_its_certification_speaks_for_itself() -> None:
    """What a source says again after the repair is open again."""
    before = members("R1", defect(), source_updated_at="2026-03-04T00:00:00Z")
    after = members("R1", defect(), source_updated_at="2026-03-06T00:00:00Z")
    assert _score(before, certification("R1")).value == 0
    assert _score(before, certification("R1"), after).value == 4


# --- Units of a combination -----------------------------------------------------------------------


def test_each_unit_of_a_combination_has_its_own_score() -> None:
    """A defect belongs to the unit its index names, one without index to the first unit."""
    report = members(
        "R1",
        defect("tires", unit=1),
        defect("horn", unit=0),
        defect("steering"),
        units=COMBINATION,
    )
    assert _scores(report) == {TRACTOR: Decimal(6), "T-9": Decimal(4)}


def test_a_certification_speaks_of_the_units_it_names() -> None:
    """Naming the trailer alone, or listing the trailer's defects alone, leaves the tractor's."""
    report = members("R1", defect("tires", unit=1), defect("horn", unit=0), units=COMBINATION)
    only_named = certification("R1", units=[COMBINATION[1]])
    listed = certification("R1", defect("tires", unit=1, outcome="repaired"), units=COMBINATION)
    for certified in (only_named, listed):
        assert _scores(report, certified) == {TRACTOR: Decimal(2), "T-9": Decimal(0)}


def test_a_later_version_speaks_of_the_units_it_names() -> None:
    """A unit that a version no longer names keeps what was open: silence closes nothing."""
    wrong_truck = members("R1", defect(), report_version="1")
    corrected = members(
        "R1", defect(), report_version="2", units=[{"role": "power_unit", "vin": TRAILER}]
    )
    assert _scores(wrong_truck, corrected) == {TRACTOR: Decimal(4), TRAILER: Decimal(4)}


def test_a_unit_listed_twice_is_one_unit() -> None:
    """Units are told apart by VIN, else serial, else number."""
    twice = [*COMBINATION, {"role": "trailer", "unit_number": "T-9"}]
    report = members("R1", defect(unit=1), defect("horn", unit=2), units=twice)
    assert _scores(report) == {TRACTOR: Decimal(0), "T-9": Decimal(6)}


# --- Versions, order, repetition ------------------------------------------------------------------


def test_versions_count_as_numbers() -> None:
    """Version 10 is later than version 9."""
    ninth = members("R1", defect(), report_version="9")
    tenth = members("R1", report_version="10")
    assert _score(ninth, tenth).value == 0
    assert _score(tenth, ninth).value == 0


def test_versions_that_are_no_numbers_do_not_order() -> None:
    """Digests as versions leave the order to the source's time of update."""
    first = members(
        "R1", defect(), report_version="ff", source_updated_at="2026-03-02T00:00:00.000001Z"
    )
    second = members("R1", report_version="0a", source_updated_at="2026-03-02T00:00:00.000002Z")
    assert _score(second, first).value == 0
    assert _score(first, second).value == 0


_PARTS = ("tires", "horn", "steering")
_defects = st.lists(
    st.builds(
        defect,
        st.sampled_from(_PARTS),
        st.sampled_from(["minor", "major", "out_of_service", "unknown"]),
        unit=st.sampled_from([None, 0, 1]),
        defect_id=st.sampled_from([None, "D1", "D2"]),
        outcome=st.sampled_from(["open", "repaired"]),
        regulated=st.sampled_from([None, True, False]),
    ),
    max_size=3,
)
_days = st.integers(1, 28).map(lambda day: f"2026-02-{day:02}T12:00:00Z")
_changes = st.fixed_dictionaries(
    {
        "units": st.permutations(COMBINATION),
        "inspected_at": _days,
        "report_version": st.sampled_from([None, "1", "2", "10", "x"]),
        "source_updated_at": st.none() | _days,
        "condition": st.sampled_from(["unsafe", "resolved"]),
    }
)


@st.composite
def _records(draw: st.DrawFn) -> dict[str, Any]:
    make = draw(st.sampled_from([members, members, certification]))
    report_id = draw(st.sampled_from(["R1", "R2", None]))
    return make(report_id, *draw(_defects), **draw(_changes))


@given(st.lists(_records(), min_size=1, max_size=6), st.randoms(use_true_random=False))
def test_any_order_and_any_repetition_give_the_same_state(
    records: list[dict[str, Any]], chance: random.Random
) -> None:
    """The state is a function of the set of events: order, duplicates and replays are nothing."""
    events = [
        read_event(RECORD_TYPE, committed(record, offset).event_value)
        for offset, record in enumerate(records)
    ]
    again = [*events, *chance.choices(events, k=len(events))]
    chance.shuffle(again)

    def tell(told: Iterable[Mapping[str, Any]]) -> dict[str, UnitState]:
        states: dict[str, UnitState] = {}
        for event in told:
            for unit, fact in facts_of(event):
                states[unit] = apply(states.get(unit, UnitState()), fact)
        return states

    assert tell(again) == tell(events)


# --- Bounds ---------------------------------------------------------------------------------------

_DAY_US = 86_400_000_000
_THEN_US = 1_770_000_000_000_000


def _reported(number: int, opened: int, day: int = 0) -> Reported:
    defects = tuple(Defect(f"{number}/{n}", "horn", "minor", regulated=True) for n in range(opened))
    order = (-1, -1, 1, 0, number)
    return Reported(f"R{number}", order, _THEN_US + day * _DAY_US + number, defects)


def _after(*facts: Fact) -> UnitState:
    state = UnitState()
    for fact in facts:
        state = apply(state, fact)
    return state


def test_settled_reports_are_forgotten_before_open_ones() -> None:
    """Any number of clean reports pushes out no open defect."""
    open_one = _reported(0, 1)
    state = _after(open_one, *(_reported(n, 0) for n in range(1, 3 * REPORTS_MAX)))
    assert (len(state.reports), state.left_out_us) == (REPORTS_MAX, -1)
    assert state.reports["R0"].still_open() == open_one.defects


def test_past_the_bound_the_oldest_open_report_leaves_and_the_score_says_so() -> None:
    """At most so many reports, whatever the order; the score tells up to when it leaves out."""
    facts = [_reported(n, 1) for n in range(REPORTS_MAX + 3)]
    state, backwards = _after(*facts), _after(*reversed(facts))
    assert state == backwards
    assert sorted(state.reports) == sorted(f"R{n}" for n in range(3, REPORTS_MAX + 3))
    found = score(state, WEIGHTS)
    assert found.left_out_until is not None
    assert (found.left_out_until - EPOCH).microseconds == 2


def test_defects_are_bounded_over_all_reports() -> None:
    """The sum of remembered defects and certifications stays within the bound and one message."""
    facts: list[Fact] = [_reported(n, 400, day=n) for n in range(6)]
    ids = tuple(f"{n:016}" for n in range(DEFECTS_MAX))
    facts += [Certified("R5", _THEN_US + n, _THEN_US, ids) for n in range(3)]
    facts += [Certified("R5", _THEN_US, _THEN_US, (f"x{n}",)) for n in range(50)]
    state = _after(*facts)
    entries = state.reports.values()
    held = sum(len(e.report.defects) if e.report else 0 for e in entries)
    assert held + sum(len(e.certified) for e in entries) <= 2 * DEFECTS_MAX
    assert len(STATE.dump_json(state)) < 500_000


def test_reports_leave_by_age_and_are_not_taken_again() -> None:
    """What lies further before the newest inspection than the window does not count any more."""
    old, new = _reported(1, 1), _reported(2, 1, day=WINDOW_US // _DAY_US + 1)
    assert set(_after(old, new).reports) == set(_after(new, old).reports) == {"R2"}


def test_clean_reports_without_versions_take_no_room() -> None:
    """Nothing more can come of a clean report that has no id."""
    state = _states([members(None), members(None, inspected_at="2026-03-02T00:00:00Z")])[TRACTOR]
    assert (state.reports, score(state, WEIGHTS).value) == ({}, 0)


# --- Weights --------------------------------------------------------------------------------------

HEAD = "method,part,severity,weight,start,end"


def test_windows_that_touch_do_not_overlap() -> None:
    """Windows are half open: the end of one may be the start of the next."""
    rows = ["a,tires,minor,1,2025-01-01,2026-01-01", "b,tires,minor,2,2026-01-01,"]
    assert parse([HEAD, *rows]).of("tires", "minor", EPOCH.date()) is None


@pytest.mark.parametrize("end", ["", "2026-01-02"], ids=["open", "closed"])
def test_windows_that_overlap_refuse_to_load_by_name(end: str) -> None:
    """Both rows are named, with their lines."""
    rows = [f"a,tires,minor,1,2025-01-01,{end}", "b,tires,minor,2,2026-01-01,"]
    with pytest.raises(ValueError, match=r"overlap: line 2 \(a, tires.*and line 3 \(b, tires"):
        parse([HEAD, *rows])


@pytest.mark.parametrize(
    "row",
    [
        "a,tyres,minor,1,2025-01-01,",
        "a,tires,bad,1,2025-01-01,",
        "a,tires,minor,1e2,2025-01-01,",
        "a,tires,minor,-1,2025-01-01,",
        "a,tires,minor,1.001,2025-01-01,",
        "a,tires,minor,1,2025-01-01,2025-01-01",
        "a,tires,minor,1,01.02.2025,",
        ",tires,minor,1,2025-01-01,",
        "a,tires,minor,1,2025-01-01,,x",
    ],
)
def test_a_row_that_is_none_is_named_by_its_line(row: str) -> None:
    """Unknown parts, amounts that are not exact, windows that end before they begin."""
    with pytest.raises(ValueError, match="line 2: "):
        parse([HEAD, row])


def test_loading_names_the_file(tmp_path: Any) -> None:
    """A wrong table of weights is a wrong setting."""
    wrong = tmp_path / "weights.csv"
    wrong.write_text("part,weight\n")
    with pytest.raises(ConfigurationError, match=r"weights\.csv: line 1: the columns are method,"):
        load(wrong)
    with pytest.raises(ConfigurationError, match="FileNotFoundError"):
        load(tmp_path / "none.csv")


def test_the_shipped_weights_know_every_part_and_severity() -> None:
    """Each in both windows."""
    from schemas.dvir.model import Part, Severity

    for day in ("2025-12-31", "2026-01-01"):
        from datetime import date

        missing = [
            (part, severity)
            for part in Part
            for severity in Severity
            if WEIGHTS.of(part.value, severity.value, date.fromisoformat(day)) is None
        ]
        assert missing == []


# --- Reading committed events ---------------------------------------------------------------------


def test_every_valid_example_can_be_scored() -> None:
    """Whatever the gate commits, the scorer takes."""
    valid = [e for e in load_examples(RECORD_TYPE) if e.reason is None and e.members is not None]
    states = _states(example.members for example in valid if example.members is not None)
    assert all(score(state, WEIGHTS).unweighted == 0 for state in states.values())
    assert len(valid) > 5


@pytest.mark.parametrize(
    ("value", "rule"),
    [
        (None, "single-object"),
        (b"{}", "single-object"),
        (b"\x00\x00\x00\x00\x01", "single-object"),
        (b"\xc3\x01" + bytes(8), "too old"),
        (RECORD_TYPE.committed_schemas[0].head + b"\x02", "length within the value"),
    ],
)
def test_what_cannot_be_decoded_says_why(value: bytes | None, rule: str) -> None:
    """Never by a value."""
    with pytest.raises(UnreadableEvent, match=rule):
        read_event(RECORD_TYPE, value)
