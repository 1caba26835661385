"""Delays between tries."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from streams.backoff import Backoff


@given(
    st.floats(0.01, 5.0),
    st.floats(5.0, 120.0),
    st.integers(0, 2**32),
    st.integers(1, 200),
)
def test_delays_double_up_to_a_bound_and_jitter_by_half(
    first_s: float, max_s: float, seed: int, failures: int
) -> None:
    """The n-th delay lies between half and the whole of first x 2^n, and never above the bound."""
    backoff = Backoff(first_s, max_s, random.Random(seed))
    for number in range(failures):
        ceiling_s = min(max_s, first_s * 2.0 ** min(number, 60))
        assert ceiling_s / 2 <= backoff.next_s() <= ceiling_s


def test_reset_begins_anew() -> None:
    """After a success the next failure waits as briefly as the first."""
    backoff = Backoff(0.5, 30.0, random.Random(1))
    for _ in range(10):
        backoff.next_s()
    backoff.reset()
    assert backoff.next_s() <= 0.5


def test_those_that_failed_together_do_not_return_together() -> None:
    """Partitions share one source of randomness, so their delays differ."""
    chance = random.Random(7)
    delays = {Backoff(0.5, 30.0, chance).next_s() for _ in range(50)}
    assert len(delays) == 50


def test_days_of_failures_do_not_overflow() -> None:
    """A system that is away for days costs neither an overflow nor a huge number."""
    backoff = Backoff(0.5, 30.0, random.Random(1))
    assert all(backoff.next_s() <= 30.0 for _ in range(5_000))
