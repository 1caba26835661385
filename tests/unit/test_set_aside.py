"""Positions that an operator set aside."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from connectors.ports import Fetched, Unread
from schemas.decision_set import DecisionSet
from schemas.envelope import Record, Source
from schemas.reasons import Reason
from schemas.record_types import RECORD_TYPES
from schemas.verdict import Refused
from streams import batch as steps
from streams import set_aside
from streams.set_aside import Alone

SOURCE = Source("payroll.raw", 3, 2)


@given(st.sets(st.integers(0, 9)), st.sets(st.integers(0, 30)))
def test_a_held_record_is_not_looked_into(offsets: set[int], holds: set[int]) -> None:
    """Every record has one verdict, in order; exactly the held ones are `held_by_operator`."""
    records = [Record(offset, b"not json") for offset in sorted(offsets)]
    decided = steps.decide(
        Fetched(0, 10, records),
        RECORD_TYPES["payroll"],
        SOURCE,
        DecisionSet(),
        {},
        frozenset(holds),
    ).decided
    assert [one.offset for one in decided] == sorted(offsets)
    for one in decided:
        assert isinstance(one, Refused)
        assert (one.reason is Reason.HELD_BY_OPERATOR) == (one.offset in holds)


def test_what_could_not_be_read_says_so() -> None:
    """The detail names what stood in the way and what was kept, and no value."""
    lost = set_aside.held(Unread(7, None, why="CorruptRecordException"), SOURCE)
    kept = set_aside.held(Unread(8, b"secret", why="CorruptRecordException"), SOURCE)
    assert lost.violations[1].rule == "cannot be read (CorruptRecordException); kept: no bytes"
    assert kept.violations[1].rule.endswith("kept: its bytes, unchecked")
    assert lost.correlation_id == "payroll.raw-3-7"


def test_a_log_is_not_recognised_by_what_could_not_be_read() -> None:
    """The last record that was read stands for the log; without any, the one before stays."""
    records = [Record(1, b"a"), Record(2, b"b"), Unread(3, None)]
    assert set_aside.last_read(records) == 1
    assert set_aside.last_read([Unread(3, None)]) is None
    assert set_aside.last_read([]) is None


def test_one_record_that_runs_out_of_time_is_counted_in_a_row() -> None:
    """Another record in between begins the count anew."""
    alone = Alone()
    assert [alone.again(5), alone.again(5), alone.again(6), alone.again(5)] == [1, 2, 1, 1]
    assert "quarantine add --position payroll.raw/2/3/5" in set_aside.too_slow(SOURCE, 5, 3)
