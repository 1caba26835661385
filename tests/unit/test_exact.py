"""Exact reading of amounts, dates and timestamps."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal

import jiter
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.exact import (
    FloatMoneyError,
    date_of,
    decimal_of,
    instant_of,
    instant_text,
    micros,
    plain,
    unscaled,
)


def _json(text: str) -> object:
    return jiter.from_json(text.encode(), float_mode="lossless-float")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1234.56", "1234.56"),
        ("0.1", "0.10"),
        ("1000.000000", "1000.00"),
        ("-0", "0.00"),
        ("-0.00", "0.00"),
        ("0000123456", "123456.00"),
        ("999999999999.99", "999999999999.99"),
        ("-180.00", "-180.00"),
    ],
)
def test_amounts_that_are_exact(text: str, value: str) -> None:
    """Plain notation is read to the cent; trailing zeros and the sign of zero say nothing."""
    found = decimal_of(text, 14, 2)
    assert str(found) == value
    assert found.as_tuple().exponent == -2


@pytest.mark.parametrize(
    "text",
    [
        *("1.5E3", "1e3", "NaN", "-Infinity", "sNaN", "1_000.00", "1,234.56", " 1.00", "1.00 "),
        *(
            "１０００.00",
            "(250.00)",
            "250.00-",
            "−250.00",
            "+1.00",
            "",
            "-",
            ".5",
            "5.",
            "$1",
            "0x1",
        ),
        *("1.005", "2307.6923", "1980.0000000000002", "1000000000000", "9" * 70, "1.00\n", "½"),
    ],
)
def test_amounts_that_are_refused(text: str) -> None:
    """Whatever is not `digits[.digits]` within precision and scale is refused, never rounded."""
    with pytest.raises(ValueError, match=r"digits|notation"):
        decimal_of(text, 14, 2)


@pytest.mark.parametrize(
    "number", ["1e3", "1E+3", "10e-1", "1.0e0", "1234567890123456.78", "0.001"]
)
def test_json_numbers_keep_their_text(number: str) -> None:
    """An exponent in a JSON number is seen, and no digit is lost to a double."""
    with pytest.raises(ValueError, match=r"digits|notation"):
        decimal_of(_json(number), 14, 2)


@pytest.mark.parametrize("number", ["123456789012.34", "0.1", "5", "-180.50"])
def test_json_numbers_are_exact(number: str) -> None:
    """A JSON number in plain notation is the decimal it spells."""
    assert decimal_of(_json(number), 14, 2) == Decimal(number)


def test_a_binary_float_is_a_type_error() -> None:
    """A Python float is never an amount."""
    with pytest.raises(FloatMoneyError):
        decimal_of(1.5, 14, 2)
    assert issubclass(FloatMoneyError, TypeError)


@given(st.decimals(min_value=-(10**12) + 1, max_value=10**12 - 1, places=2))
def test_amounts_round_trip(amount: Decimal) -> None:
    """Text, JSON number and Avro's unscaled bytes of one amount are one value."""
    text = plain(amount)
    assert decimal_of(text, 14, 2) == amount
    assert decimal_of(_json(text), 14, 2) == amount
    assert int.from_bytes(unscaled(amount, 2), "big", signed=True) == int(amount * 100)
    assert plain(decimal_of(text + ("00" if "." in text else ".00"), 14, 2)) == text


@pytest.mark.parametrize(
    "text",
    [
        *("2026-02-30", "20261101", "2026-11-1", "11/06/2026", "2026-W45-1", "46332", "0000-01-01"),
        *("2026-11-06T00:00:00-05:00", "2026-11-06 ", "２０２６-11-06"),
    ],
)
def test_dates_that_are_refused(text: str) -> None:
    """A date is `YYYY-MM-DD` and exists; a timestamp is none, a zone would move the day."""
    with pytest.raises(ValueError, match="date"):
        date_of(text)


@pytest.mark.parametrize(
    "value",
    [
        *("2026-11-03T06:42:09", "2026-11-03T11:42:60Z", "2026-11-03T11:42:09.1234567Z"),
        *("1969-12-31T23:59:59Z", "2200-01-01T00:00:00Z", "2026-11-03", "2026-11-03 11:42:09Z"),
        *("2026-11-03T24:00:00Z", "2026-11-03T11:42:09+24:00", "2026-11-03T11:42Z", 1741518900),
        *("0001-01-01T00:00:00+14:00", datetime(2026, 11, 3)),  # noqa: DTZ001 - naive on purpose
    ],
)
def test_timestamps_that_are_refused(value: object) -> None:
    """Numbers, naive times, leap seconds, too many digits and instants far away are refused."""
    with pytest.raises(ValueError, match=r"timestamp|instant|time"):
        instant_of(value)


@given(
    st.datetimes(datetime(1970, 1, 1), datetime(2199, 12, 31)),  # noqa: DTZ001 - UTC is put on
    st.integers(-14 * 60, 14 * 60),
)
def test_instants_round_trip(naive: datetime, offset_minutes: int) -> None:
    """An instant is the same in every offset, to the microsecond."""
    instant = naive.replace(tzinfo=UTC)
    sign, minutes = ("-" if offset_minutes < 0 else "+"), abs(offset_minutes)
    local = naive + timedelta(minutes=offset_minutes)
    text = f"{local.isoformat(timespec='microseconds')}{sign}{minutes // 60:02d}:{minutes % 60:02d}"
    if local.year >= 1:
        assert instant_of(text) == instant
    assert instant_of(instant_text(instant)) == instant
    assert micros(instant) == (naive - datetime(1970, 1, 1)) // timedelta(microseconds=1)  # noqa: DTZ001
