"""The breaker: when a partition's share of rejects is too much."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.envelope import CHUNK, Record, Source
from schemas.reasons import Reason
from schemas.verdict import Accepted, Refused, Settled
from streams.breaker import Breaker, BreakerPolicy, Outcome, outcomes
from streams.decide import refused

POLICY = BreakerPolicy(window=10, percent=50, counted_min=4)
GOOD, BAD = Outcome(turned_away=False), Outcome(turned_away=True)
SOURCE = Source("payroll.raw", 0)


def _member(*, bad: bool, chunk: bytes = b"c") -> Outcome:
    return Outcome(bad, chunk)


def test_a_share_needs_enough_records() -> None:
    """Below the minimum count nothing is said, however bad the few are."""
    assert Breaker(POLICY).after([BAD] * 3).why is None
    assert Breaker(POLICY).after([BAD] * 4).why == (
        "4 of the last 4 records or chunks were turned away, 50 % or more"
    )


def test_only_the_newest_records_count() -> None:
    """What lies before the window is forgotten."""
    breaker = Breaker(POLICY).after([BAD] * 3)
    breaker = breaker.after([GOOD] * 10)
    assert breaker.after([BAD] * 4).why is None
    assert breaker.after([BAD] * 5).why is not None


def test_once_tripped_it_stays_so() -> None:
    """Good records do not un-trip it: only an operator lets the partition go on."""
    assert Breaker(POLICY).after([BAD] * 4).after([GOOD] * 20).why is not None


def test_a_batch_makes_a_new_breaker() -> None:
    """A transaction that is rolled back leaves the breaker as it was."""
    before = Breaker(POLICY).after([BAD] * 3)
    before.after([BAD] * 3)
    assert before == Breaker(POLICY).after([BAD] * 3)


def test_a_chunk_counts_once() -> None:
    """A thousand rejects of one chunk are one, and it counts as turned away by its own share."""
    flood = [_member(bad=True)] * 1_000
    assert Breaker(POLICY).after([*flood, GOOD, GOOD, GOOD]).why is None
    mostly_good = [
        outcome
        for chunk in (b"a", b"b", b"c", b"d", b"e")
        for outcome in [_member(bad=True, chunk=chunk), *[_member(bad=False, chunk=chunk)] * 9]
    ]
    assert Breaker(POLICY).after(mostly_good).why is None
    bad_chunks = [_member(bad=True, chunk=bytes([n])) for n in range(4)] * 50
    assert Breaker(POLICY).after(bad_chunks).why is not None


@given(st.lists(st.booleans(), max_size=60), st.lists(st.integers(1, 20), max_size=8))
def test_cutting_into_batches_changes_nothing_it_remembers(
    bad: list[bool], cuts: Sequence[int]
) -> None:
    """What has been seen depends on the records, not on the batches they came in."""
    every = [Outcome(b, None if n % 3 else b"%d" % (n // 7)) for n, b in enumerate(bad)]
    policy = BreakerPolicy(window=100, percent=100, counted_min=100)
    breaker, at = Breaker(policy), 0
    for cut in cuts:
        breaker = breaker.after(every[at : at + cut])
        at += cut
    assert breaker.after(every[at:]).seen == Breaker(policy).after(every).seen


@pytest.mark.parametrize("wrong", [(0, 50, 1), (10, 0, 5), (10, 101, 5), (10, 50, 11), (10, 50, 0)])
def test_figures_that_do_not_fit_together_are_refused(wrong: tuple[int, int, int]) -> None:
    """A breaker that could never trip, or always, is a mistake."""
    with pytest.raises(ValueError, match="breaker"):
        BreakerPolicy(*wrong)


def _settled(offset: int, reason: Reason | None) -> Settled:
    if reason is None:
        return Accepted(offset, -1, b"", b"", b"", (), (), b"", b"", "c")
    return refused(Record(offset, b"x"), SOURCE, reason, ())


def test_what_the_breaker_sees_of_a_batch() -> None:
    """Control totals and what an operator set aside never count; duplicates and commits do."""
    reasons = [None, Reason.ENCODING, Reason.CONTROL_TOTAL_MISMATCH, Reason.HELD_BY_OPERATOR]
    settled = [_settled(n, reason) for n, reason in enumerate(reasons)]
    headers = ((CHUNK, b"0b4e/17"),)
    records = [Record(0, b"x"), *(Record(n, b"x", headers=headers) for n in (1, 2, 3))]
    assert outcomes(settled, records) == [GOOD, Outcome(turned_away=True, chunk=b"0b4e")]
    assert isinstance(settled[1], Refused)
