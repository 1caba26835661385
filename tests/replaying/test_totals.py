"""Sums over records: exact, signed, and silent about what cannot be read."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jiter import LosslessFloat

from schemas.exact import unscaled
from schemas.record_types import RECORD_TYPES
from schemas.totals import Sums, stated_amount, unscaled_amount

TOTALS = RECORD_TYPES["payroll"].totals
AMOUNTS = st.integers(0, 10**14 - 1).map(lambda cents: Decimal(cents).scaleb(-2))
ROWS = st.lists(
    st.tuples(
        AMOUNTS, st.sampled_from(["regular", "reversal", "void"]), st.sampled_from(["USD", "EUR"])
    ),
    max_size=8,
)


def _of(rows: list[tuple[Decimal, str, str]], currency: str) -> Decimal:
    found = [-amount if kind != "regular" else amount for amount, kind, c in rows if c == currency]
    return sum(found, Decimal("0.00"))


@given(ROWS)
def test_sums_are_exact_and_signed(rows: list[tuple[Decimal, str, str]]) -> None:
    """As a publisher states amounts and as Avro writes them, the same sums."""
    assert TOTALS is not None
    stated, written = Sums(TOTALS, stated_amount), Sums(TOTALS, unscaled_amount)
    for amount, kind, currency in rows:
        members: dict[str, Any] = {"statement_type": kind, "currency": currency}
        stated.add({**members, "gross_pay": str(amount)})
        written.add({**members, "gross_pay": unscaled(amount, 2)})
    expected = {c: str(_of(rows, c)) for c in sorted({c for *_, c in rows})}
    assert stated.as_dict() == written.as_dict() == {"gross_pay": expected, "hours": "0.0000"}
    assert stated.unreadable == written.unreadable == 0


@pytest.mark.parametrize(
    "members",
    [
        None,
        {},
        {"gross_pay": "1.001"},
        {"gross_pay": 1.5},
        {"gross_pay": "-1.00"},
        {"gross_pay": "1.00", "currency": "ZEBRA"},
        {"gross_pay": "1.00", "statement_type": "other"},
        {"gross_pay": "1.00", "statement_type": ["void"]},
        {"gross_pay": "1.00", "hours": "many"},
    ],
)
def test_what_cannot_be_read_adds_nothing(members: dict[str, Any] | None) -> None:
    """Not even in part, and no word of it becomes a sum's name."""
    assert TOTALS is not None
    sums = Sums(TOTALS, stated_amount)
    sums.add(members)
    assert (sums.unreadable, sums.as_dict()) == (1, {"gross_pay": {}, "hours": "0.0000"})


def test_defaults_and_json_numbers_count() -> None:
    """An amount without kind and currency is a regular one in the default currency."""
    assert TOTALS is not None
    sums = Sums(TOTALS, stated_amount)
    sums.add({"gross_pay": LosslessFloat(b"10.5"), "hours": 2})
    assert sums.as_dict() == {"gross_pay": {"USD": "10.50"}, "hours": "2.0000"}
