"""Dates and instants as a source writes them, read in the declared forms or not at all.

A date becomes `YYYY-MM-DD`, an instant RFC 3339 in UTC. Forms that could read one text in two ways
are refused when the profile is read; a local time that its zone has twice, or never, is refused
where it occurs. Pure but for reading the tz database.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from functools import lru_cache
from typing import Final
from zoneinfo import ZoneInfo

from connectors.profiles.forms import DateFormat, TimeFormat
from connectors.profiles.numbers import Unmapped, number_text
from schemas.exact import EPOCH, instant_of, instant_text

_EXCEL: Final = {"excel-1900": date(1899, 12, 30), "excel-1904": date(1904, 1, 1)}
"""The day that a spreadsheet counts from. With 1900, days up to 60 are refused: Excel counts a
29 February 1900 that never was."""
_EXCEL_DAY: Final = re.compile("[0-9]{1,6}")
_EXCEL_FIRST: Final = {"excel-1900": 61, "excel-1904": 0}
_TOKEN: Final = re.compile("YYYY|YY|MM|M|DD|D|[^YMD]")
_WIDTHS: Final = {
    "YYYY": (4, 4),
    "YY": (2, 2),
    "MM": (2, 2),
    "M": (1, 2),
    "DD": (2, 2),
    "D": (1, 2),
}
_NAIVE: Final = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})[T ]([0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,6})?)"
)
_EPOCH_MS: Final = re.compile("[0-9]{1,13}")


class FormError(ValueError):
    """A declared form that cannot be read, or two that contradict each other."""


# --- Dates ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Form:
    """A compiled form of dates."""

    text: str
    tokens: tuple[str, ...]
    pattern: re.Pattern[str]

    @property
    def shape(self) -> tuple[tuple[int, int] | str, ...]:
        """Widths of its numbers, and the marks between them."""
        return tuple(_WIDTHS.get(token, token) for token in self.tokens)


def date_reader(declared: DateFormat) -> Callable[[str], str]:
    """A function from a cell's text to `YYYY-MM-DD`; it raises `Unmapped`. Raises `FormError`."""
    forms = [_form(text, declared.pivot) for text in declared.forms if text not in _EXCEL]
    excel = [text for text in declared.forms if text in _EXCEL]
    _check(forms, excel)
    if declared.pivot is not None and not any("YY" in form.tokens for form in forms):
        message = "pivot is for a form with YY"
        raise FormError(message)
    rule = f"a date as {' or '.join(declared.forms)}"

    @lru_cache(maxsize=4096)
    def read(text: str) -> str:
        for form in forms:
            found = form.pattern.fullmatch(text)
            if found is not None:
                return _date(found, declared.pivot)
        if excel and _EXCEL_DAY.fullmatch(text) and int(text) >= _EXCEL_FIRST[excel[0]]:
            return (_EXCEL[excel[0]] + timedelta(days=int(text))).isoformat()
        raise Unmapped(rule)

    return read


def _date(found: re.Match[str], pivot: int | None) -> str:
    year = int(found["Y"])
    if len(found["Y"]) == 2 and pivot is not None:  # noqa: PLR2004 - a two-digit year
        year += 2000 if year < pivot else 1900
    try:
        return date(year, int(found["M"]), int(found["D"])).isoformat()
    except ValueError:
        message = "a date that exists"
        raise Unmapped(message) from None


def _form(text: str, pivot: int | None) -> _Form:
    tokens = tuple(_TOKEN.findall(text))
    if sorted(token[0] for token in tokens if token in _WIDTHS) != ["D", "M", "Y"]:
        message = f"date form {text!r}: YYYY or YY, MM or M, DD or D, each once, or excel-1900"
        raise FormError(message)
    if "".join(tokens) != text or any(t not in _WIDTHS and t.isalnum() for t in tokens):
        message = f"date form {text!r}: marks between year, month and day are no letters or digits"
        raise FormError(message)
    if "YY" in tokens and pivot is None:
        message = f"date form {text!r} has a two-digit year: declare pivot"
        raise FormError(message)
    for left, right in itertools.pairwise(tokens):
        if left in _WIDTHS and right in _WIDTHS and ({left, right} & {"M", "D"}):
            message = f"date form {text!r}: where one number ends cannot be told"
            raise FormError(message)
    pattern = "".join(
        f"(?P<{token[0]}>[0-9]{{{_WIDTHS[token][0]},{_WIDTHS[token][1]}}})"
        if token in _WIDTHS
        else re.escape(token)
        for token in tokens
    )
    return _Form(text, tokens, re.compile(pattern))


def _check(forms: list[_Form], excel: list[str]) -> None:
    """Refuse forms of which two could read one text."""
    if len(excel) > 1:
        message = "excel-1900 and excel-1904 contradict each other"
        raise FormError(message)
    for index, one in enumerate(forms):
        if excel and all(token in _WIDTHS for token in one.tokens) and _longest(one) <= 6:  # noqa: PLR2004 - an Excel day's digits
            message = f"date forms {one.text!r} and {excel[0]!r} read the same texts"
            raise FormError(message)
        for other in forms[index + 1 :]:
            if _overlap(one, other):
                message = f"date forms {one.text!r} and {other.text!r} read the same texts"
                raise FormError(message)


def _longest(form: _Form) -> int:
    return sum(_WIDTHS[token][1] for token in form.tokens)


def _overlap(one: _Form, other: _Form) -> bool:
    bare = [all(token in _WIDTHS for token in form.tokens) for form in (one, other)]
    if all(bare):
        return _longest(one) == _longest(other)
    if len(one.shape) != len(other.shape):
        return False
    for left, right in zip(one.shape, other.shape, strict=True):
        if isinstance(left, str) or isinstance(right, str):
            if left != right:
                return False
        elif left[1] < right[0] or right[1] < left[0]:
            return False
    return True


# --- Instants -------------------------------------------------------------------------------------


def zone_of(name: object) -> ZoneInfo:
    """A zone of the tz database. Raises `Unmapped`."""
    try:
        return ZoneInfo(name)  # type: ignore[arg-type]
    except (ValueError, OSError, TypeError, KeyError):
        message = "a time zone of the tz database"
        raise Unmapped(message) from None


def time_reader(declared: TimeFormat) -> Callable[[object, ZoneInfo | None], str]:
    """A function from a value and the zone of naive times to RFC 3339; it raises `Unmapped`."""
    rule = f"an instant as {' or '.join(declared.forms)}"

    def read(value: object, zone: ZoneInfo | None) -> str:
        for form in declared.forms:
            if form == "naive":
                found = _naive(value, zone)
            elif form == "epoch_ms":
                found = _epoch_ms(value)
            else:
                found = _rfc3339(value)
            if found is not None:
                return found
        raise Unmapped(rule)

    return read


def _rfc3339(value: object) -> str | None:
    try:
        instant_of(value)
    except ValueError:
        return None
    return str(value)


def _epoch_ms(value: object) -> str | None:
    text = number_text(value)
    if not isinstance(text, str) or _EPOCH_MS.fullmatch(text) is None:
        return None
    return instant_text(EPOCH + timedelta(milliseconds=int(text)))


def _naive(value: object, zone: ZoneInfo | None) -> str | None:
    found = _NAIVE.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        return None
    if zone is None:
        message = "a time with an offset, or a zone"
        raise Unmapped(message)
    try:
        local = datetime.fromisoformat(f"{found[1]}T{_micros(found[2])}").replace(tzinfo=zone)
    except ValueError:
        message = "a time that exists"
        raise Unmapped(message) from None
    if local.utcoffset() != local.replace(fold=1).utcoffset():
        message = "a local time that its zone has exactly once"
        raise Unmapped(message)
    try:
        return instant_text(instant_of(local))
    except (ValueError, OverflowError):
        message = "an instant in the UTC years 1970 to 2199"
        raise Unmapped(message) from None


def _micros(clock: str) -> str:
    """Six fraction digits: what every Python reads."""
    whole, _, fraction = clock.partition(".")
    return f"{whole}.{fraction.ljust(6, '0')}" if fraction else whole
