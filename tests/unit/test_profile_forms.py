"""Amounts, dates and instants in declared forms: read as declared, or refused."""

from __future__ import annotations

import re
from datetime import date, timedelta
from decimal import Decimal

import jiter
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from connectors.profiles.dates import FormError, date_reader, time_reader, zone_of
from connectors.profiles.forms import DateFormat, NumberFormat, TimeFormat
from connectors.profiles.numbers import Unmapped, example, metres, number_reader

# --- Amounts --------------------------------------------------------------------------------------

US = NumberFormat(group=(",",), currency=("$",), negative=("leading", "brackets"), zero=("-",))
EU = NumberFormat(decimal=",", group=(".", "\u00a0"), currency=("€",))


@pytest.mark.parametrize(
    ("declared", "text", "amount"),
    [
        (US, "1,234.56", "1234.56"),
        (US, "$1,234,567.8", "1234567.8"),
        (US, "-$5.00", "-5.00"),
        (US, "$-5.00", "-5.00"),
        (US, "($5.00)", "-5.00"),
        (US, "$ 5", "5"),
        (US, "-", "0"),
        (US, "0.50", "0.50"),
        (US, "-0.00", "-0.00"),
        (EU, "1.234,56 €", "1234.56"),
        (EU, "-1\u00a0234,5", "-1234.5"),
        (NumberFormat(negative=("trailing",)), "250.00-", "-250.00"),
        (NumberFormat(negative=("unicode_minus",)), "\u2212250", "-250"),
        (NumberFormat(implied_decimals=2), "0000123456", "1234.56"),
        (NumberFormat(implied_decimals=2), "7", "0.07"),
        (NumberFormat(leading_zeros=True), "007.5", "007.5"),
    ],
)
def test_declared_amounts_are_read(declared: NumberFormat, text: str, amount: str) -> None:
    """Every mark that the format declares, and nothing is rounded or filled in."""
    assert number_reader(declared)(text) == amount


@pytest.mark.parametrize(
    ("declared", "text"),
    [
        (US, text)
        for text in (
            "", " 1", "1 ", "1.", ".5", "1,23,45", "1,234,56", "12,34.00", "0,123", "1.234,56",
            "1e3", "1_000", "NaN", "Infinity", "+1", "--1", "-(1)", "(1", "1)", "€1", "1-", "$",
            "()", "１", "\u2212" + "1", "007", "1,234.5\n", "$$1", "($1", "1" * 41,
        )
    ]
    + [
        (EU, "1.234\u00a0567"),
        (EU, "1,234.56"),
        (NumberFormat(), "1,000"),
        (NumberFormat(implied_decimals=2), "12.34"),
        (NumberFormat(negative=()), "-1"),
    ],
)  # fmt: skip
def test_what_is_not_declared_is_refused(declared: NumberFormat, text: str) -> None:
    """By the rule, without the value."""
    with pytest.raises(Unmapped) as refused:
        number_reader(declared)(text)
    assert str(refused.value) == f"an amount as declared, such as {example(declared)}"


formats = st.builds(
    lambda decimal, group, currency, negative, zero, leading_zeros: NumberFormat(
        decimal=decimal,
        group=tuple(mark for mark in group if mark != decimal),
        currency=tuple(currency),
        negative=tuple(negative),
        zero=tuple(zero),
        leading_zeros=leading_zeros,
    ),
    st.sampled_from(".,"),
    st.lists(st.sampled_from(".,' \u00a0"), unique=True, max_size=3),
    st.lists(st.sampled_from(["$", "€", "USD"]), unique=True, max_size=2),
    st.lists(st.sampled_from(["leading", "trailing", "brackets", "unicode_minus"]), unique=True),
    st.lists(st.sampled_from(["-", "n/a"]), unique=True),
    st.booleans(),
) | st.builds(lambda n: NumberFormat(implied_decimals=n), st.integers(1, 4))
texts = st.text("0123456789.,'- \u00a0()\u2212$€USDn/a+eE_１", max_size=12) | st.text(max_size=6)


def naive(declared: NumberFormat, text: str) -> Decimal:
    """The value by brute force: the digits and the decimal mark, negative if any sign is there."""
    if text in declared.zero:
        return Decimal(0)
    kept = "".join(c for c in text if c in "0123456789" or c == declared.decimal)
    value = Decimal(kept.replace(declared.decimal, "."))
    if declared.implied_decimals:
        value = value.scaleb(-declared.implied_decimals)
    return -value if any(sign in text for sign in "-(\u2212") else value


@given(formats, texts)
def test_any_text_is_read_naively_or_refused(declared: NumberFormat, text: str) -> None:
    """No cell becomes another amount than its digits say, in any format."""
    try:
        found = number_reader(declared)(text)
    except Unmapped:
        return
    assert re.fullmatch(r"-?[0-9]+(\.[0-9]+)?", found)
    assert Decimal(found) == naive(declared, text)


@given(formats, st.integers(0, 10**12), st.integers(0, 99), st.booleans())
def test_every_amount_written_in_a_format_is_read_back(
    declared: NumberFormat,
    whole: int,
    cents: int,
    negative: bool,  # noqa: FBT001 - an example
) -> None:
    """A format takes what its source writes: grouped, signed and marked as declared."""
    assume(declared.implied_decimals is None)
    mark = declared.group[0] if declared.group else ""
    text = f"{whole:,}".replace(",", mark) + f"{declared.decimal}{cents:02d}"
    if declared.currency:
        text = declared.currency[0] + text
    negative = negative and bool(declared.negative)
    if negative:
        form = declared.negative[0]
        text = {
            "leading": "-" + text,
            "trailing": text + "-",
            "brackets": f"({text})",
            "unicode_minus": "\u2212" + text,
        }[form]
    expected = Decimal(f"{whole}.{cents:02d}")
    assert Decimal(number_reader(declared)(text)) == (-expected if negative else expected)


@pytest.mark.parametrize(
    ("value", "unit", "found"),
    [
        (256215, "mi", "412338072.96"),
        ("0.0001", "mi", "0.161"),
        (412338, "km", "412338000"),
        ("412338.0175", "km", "412338017.5"),
        ("412338017.12345", "m", "412338017.12345"),
    ],
)
def test_distances_are_converted_exactly(value: object, unit: str, found: str) -> None:
    """Miles are 1,609.344 m; a conversion is rounded half to even at the third decimal, metres are
    left to the gate."""
    assert metres(value, unit) == found


@pytest.mark.parametrize("value", ["1e5", "1,000", "", "12 mi", True, None, [1], "9" * 41])
def test_what_is_no_distance_is_refused(value: object) -> None:
    """Only plain decimal notation."""
    with pytest.raises(Unmapped):
        metres(value, "mi")


@given(st.integers(0, 10**9), st.integers(0, 999_999))
def test_miles_are_within_half_a_millimetre(whole: int, micro: int) -> None:
    """The one rounding there is."""
    text = f"{whole}.{micro:06d}"
    difference = Decimal(metres(text, "mi")) - Decimal(text) * Decimal("1609.344")
    assert abs(difference) <= Decimal("0.0005")


def test_a_json_number_keeps_its_text() -> None:
    """412338017.0 is not made an integer, nor a float."""
    (value,) = jiter.from_json(b"[412338017.0]", float_mode="lossless-float")
    assert metres(value, "m") == "412338017.0"


# --- Dates ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("forms", "pivot", "text", "found"),
    [
        (("MM/DD/YYYY",), None, "11/06/2026", "2026-11-06"),
        (("DD.MM.YYYY",), None, "06.11.2026", "2026-11-06"),
        (("D.M.YYYY",), None, "6.11.2026", "2026-11-06"),
        (("MM/DD/YY",), 70, "11/06/26", "2026-11-06"),
        (("MM/DD/YY",), 70, "11/06/70", "1970-11-06"),
        (("YYYYMMDD",), None, "20261106", "2026-11-06"),
        (("excel-1900",), None, "46332", "2026-11-06"),
        (("excel-1904",), None, "44870", "2026-11-06"),
        (("YYYY-MM-DD", "MM/DD/YYYY"), None, "2028-02-29", "2028-02-29"),
    ],
)
def test_declared_dates_are_read(
    forms: tuple[str, ...], pivot: int | None, text: str, found: str
) -> None:
    """Order, pivot and base are declared, so nothing is ambiguous."""
    assert date_reader(DateFormat(forms=forms, pivot=pivot))(text) == found


@pytest.mark.parametrize(
    ("forms", "text"),
    [
        (("MM/DD/YYYY",), "13/01/2026"),
        (("MM/DD/YYYY",), "1/2/2026"),
        (("MM/DD/YYYY",), "02/30/2026"),
        (("MM/DD/YYYY",), "11/06/2026 "),
        (("MM/DD/YYYY",), "11/06/26"),
        (("YYYY-MM-DD",), "2026-11-06T00:00:00-05:00"),
        (("YYYY-MM-DD",), "２０２６-11-06"),
        (("YYYY-MM-DD",), "0000-11-06"),
        (("excel-1900",), "60"),
        (("excel-1900",), "46332.5"),
    ],
)
def test_other_dates_are_refused(forms: tuple[str, ...], text: str) -> None:
    """Never moved, never completed."""
    with pytest.raises(Unmapped):
        date_reader(DateFormat(forms=forms))(text)


@pytest.mark.parametrize(
    ("forms", "pivot", "why"),
    [
        (("MM/DD/YYYY", "DD/MM/YYYY"), None, "read the same texts"),
        (("MM/DD/YYYY", "D/M/YYYY"), None, "read the same texts"),
        (("YYYYMMDD", "DDMMYYYY"), None, "read the same texts"),
        (("YYMMDD", "excel-1900"), 50, "read the same texts"),
        (("DD/MM/YY", "YY/MM/DD"), 50, "read the same texts"),
        (("excel-1900", "excel-1904"), None, "contradict"),
        (("MM/DD/YY",), None, "declare pivot"),
        (("MM/DD/YYYY",), 50, "pivot is for"),
        (("YYYYMD",), None, "cannot be told"),
        (("MM/YYYY",), None, "each once"),
        (("DD MMM YYYY",), None, "each once"),
        (("DDxMMxYYYY",), None, "no letters"),
    ],
)
def test_forms_that_leave_a_guess_are_refused(
    forms: tuple[str, ...], pivot: int | None, why: str
) -> None:
    """When the profile is read, before any date is."""
    with pytest.raises(FormError, match=why):
        date_reader(DateFormat(forms=forms, pivot=pivot))


@given(
    st.dates(date(1, 1, 1)), st.sampled_from(["MM/DD/YYYY", "DD.MM.YYYY", "YYYYMMDD", "D-M-YYYY"])
)
def test_every_date_written_in_a_form_is_read_back(day: date, form: str) -> None:
    """And each as itself."""
    text = (
        form.replace("YYYY", f"{day.year:04d}")
        .replace("MM", f"{day.month:02d}")
        .replace("DD", f"{day.day:02d}")
        .replace("M", str(day.month))
        .replace("D", str(day.day))
    )
    assert date_reader(DateFormat(forms=(form,)))(text) == day.isoformat()


@given(st.integers(61, 2_900_000 - 1))
def test_days_of_a_spreadsheet_count_on(number: int) -> None:
    """Day 61 is 1 March 1900, each number the next day."""
    found = None
    try:
        found = date_reader(DateFormat(forms=("excel-1900",)))(str(number))
    except Unmapped:
        assert number > 999_999
    if found is not None:
        assert date.fromisoformat(found) == date(1900, 3, 1) + timedelta(days=number - 61)


# --- Instants -------------------------------------------------------------------------------------

NEW_YORK = zone_of("America/New_York")
ALL = TimeFormat(forms=("rfc3339", "epoch_ms", "naive"), zone="America/New_York")


@pytest.mark.parametrize(
    ("value", "found"),
    [
        ("2026-11-03T11:42:09.125Z", "2026-11-03T11:42:09.125Z"),
        ("2026-11-03T00:00:00-05:00", "2026-11-03T00:00:00-05:00"),
        (1793706129000, "2026-11-03T11:42:09Z"),
        ("1793706129001", "2026-11-03T11:42:09.001Z"),
        (0, "1970-01-01T00:00:00Z"),
        ("2026-11-03T06:42:09", "2026-11-03T11:42:09Z"),
        ("2026-07-01 06:42:09.5", "2026-07-01T10:42:09.5Z"),
    ],
)
def test_declared_instants_are_read(value: object, found: str) -> None:
    """Milliseconds exactly; naive times by the declared zone, with its summer time."""
    assert time_reader(ALL)(value, NEW_YORK) == found


@pytest.mark.parametrize(
    ("value", "rule"),
    [
        ("2026-11-01T01:30:00", "exactly once"),
        ("2026-03-08T02:30:00", "exactly once"),
        ("2026-02-30T02:30:00", "exists"),
        ("1969-12-31T02:30:00", "1970 to 2199"),
        ("2026-11-03", "an instant as"),
        (-1, "an instant as"),
        (17937061290000, "an instant as"),
        (True, "an instant as"),
        (None, "an instant as"),
    ],
)
def test_other_instants_are_refused(value: object, rule: str) -> None:
    """A local time that occurs twice, or never, is nobody's to choose."""
    with pytest.raises(Unmapped, match=rule):
        time_reader(ALL)(value, NEW_YORK)


def test_a_naive_time_needs_a_zone() -> None:
    """The machine's own zone is none."""
    with pytest.raises(Unmapped, match="or a zone"):
        time_reader(ALL)("2026-11-03T06:42:09", None)


@pytest.mark.parametrize("name", ["Mars/Olympus", "../../etc/passwd", "", 7, None, "America"])
def test_zones_that_are_none_are_refused(name: object) -> None:
    """Whatever a report says."""
    with pytest.raises(Unmapped, match="a time zone"):
        zone_of(name)
