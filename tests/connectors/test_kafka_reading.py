"""Gathering a partition's records into batches, without a broker."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.errors import InvariantViolation
from connectors.kafka.reading import (
    BEHIND_FACTOR,
    MARKER_WAIT_S,
    PIECE_RECORDS_MAX,
    BatchBounds,
    Reading,
    size_of,
)
from schemas.envelope import Record

BOUNDS = BatchBounds(records_max=10, bytes_max=1_000, linger_s=0.05)


def record(offset: int, size: int = 10) -> Record:
    return Record(offset, bytes(size))


def reading(begin: int = 0) -> Reading:
    return Reading("t", 0, begin)


def test_nothing_gathered_is_never_due() -> None:
    """An idle partition asks for nothing."""
    one = reading(5)
    assert one.due_at_s(BOUNDS, 5) is None
    one.add((), 5, 100.0)
    assert one.due_at_s(BOUNDS, 5) is None


def test_a_thin_batch_is_due_after_the_linger() -> None:
    """The linger runs from the first record."""
    one = reading()
    one.add([record(0)], 1, 100.0)
    one.add([record(1)], 2, 100.04)
    assert one.due_at_s(BOUNDS, 2) == pytest.approx(100.05)


def test_a_batch_waits_longer_for_records_known_to_be_in_the_log() -> None:
    """Behind the last stable offset more is coming, so a part of a fetch is no batch yet."""
    one = reading()
    one.add([record(0)], 1, 100.0)
    assert one.due_at_s(BOUNDS, 50) == pytest.approx(100.0 + 0.05 * BEHIND_FACTOR)
    assert one.due_at_s(BOUNDS, None) == pytest.approx(100.05)


@pytest.mark.parametrize("records", [[record(n) for n in range(10)], [record(0, 1_000)]])
def test_a_full_batch_is_due_at_once(records: list[Record]) -> None:
    """Full in records or in bytes."""
    one = reading()
    one.add(records, 10, 100.0)
    assert one.wanted(BOUNDS) == 0
    due_at_s = one.due_at_s(BOUNDS, 10)
    assert due_at_s is not None
    assert due_at_s <= 100.0


def test_markers_alone_are_handed_out_after_a_while() -> None:
    """The cursor moves past them without any record, but not for every single one."""
    one = reading()
    one.add((), 7, 100.0)
    assert one.due_at_s(BOUNDS, 7) == 100.0 + MARKER_WAIT_S
    fetched = one.cut(BOUNDS, 101.0)
    assert (fetched.begin, fetched.next_offset, list(fetched.records)) == (0, 7, [])
    assert one.due_at_s(BOUNDS, 7) is None


def test_a_batch_takes_the_markers_behind_its_last_record_along() -> None:
    """`next_offset` is where the consumer stands, not the last record plus one."""
    one = reading()
    one.add([record(0)], 4, 100.0)
    assert one.cut(BOUNDS, 100.1).next_offset == 4


def test_after_something_unreadable_records_come_one_by_one() -> None:
    """All that can be read before it is handed out first."""
    one = reading()
    one.add([record(0)], 1, 100.0)
    one.cautious = True
    assert one.wanted(BOUNDS) == 0
    assert one.due_at_s(BOUNDS, 10) == 100.0
    one.cut(BOUNDS, 100.0)
    assert one.wanted(BOUNDS) == 1


def test_records_that_come_twice_or_out_of_order_break_an_invariant() -> None:
    """Handing a record out twice would be a second verdict; the process stops instead."""
    one = reading(5)
    with pytest.raises(InvariantViolation):
        one.add([record(4)], 5, 100.0)
    one.add([record(5)], 6, 100.0)
    with pytest.raises(InvariantViolation):
        one.add([record(5)], 6, 100.0)
    with pytest.raises(InvariantViolation):
        one.add((), 5, 100.0)


@given(
    st.lists(st.tuples(st.integers(0, 400), st.integers(0, 3)), max_size=60),
    st.integers(1, 12),
    st.integers(1, 900),
)
def test_batches_join_up_and_keep_their_bounds(
    made: list[tuple[int, int]], records_max: int, bytes_max: int
) -> None:
    """Any records with any gaps: none lost, none twice, in order, bounded, end to end."""
    bounds = BatchBounds(records_max, bytes_max, 0.05)
    offset, log = 0, []
    for size, gap in made:
        log.append(record(offset, size))
        offset += 1 + gap
    one, handed, at, next_in_log = reading(), [], 0, 0
    while next_in_log < len(log) or one.due_at_s(bounds, offset) is not None:
        wanted = one.wanted(bounds)
        assert wanted <= PIECE_RECORDS_MAX
        part = log[next_in_log : next_in_log + wanted]
        next_in_log += len(part)
        end = log[next_in_log].offset if next_in_log < len(log) else offset
        if part:
            one.add(part, end, 0.0)
        else:
            fetched = one.cut(bounds, 0.0)
            assert fetched.begin == at
            assert fetched.next_offset > fetched.begin
            at = fetched.next_offset
            assert len(fetched.records) <= records_max
            total = sum(map(size_of, fetched.records))
            assert total <= bytes_max or len(fetched.records) == 1
            handed += fetched.records
    assert handed == log
    assert at == offset
