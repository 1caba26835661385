"""Exact reading of untrusted scalars: amounts, dates, timestamps. Never rounds, never guesses.

Each function takes a value as decoded (JSON text or number, or a typed Avro value) and returns the
Python value, or raises `ValueError` with the rule broken, which names no value. A binary float
where money is due raises `FloatMoneyError`, a `TypeError`. Pure.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import lru_cache

from jiter import LosslessFloat

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
FIRST_INSTANT = EPOCH
LAST_INSTANT = datetime(2200, 1, 1, tzinfo=UTC)
"""Instants lie in the UTC years 1970 to 2199."""
_EPOCH_DAY = date(1970, 1, 1).toordinal()

_AMOUNT = re.compile(r"-?[0-9]+(?:\.[0-9]+)?")
_AMOUNT_LENGTH_MAX = 400
"""Zeros before and after an amount say nothing, but nobody writes more of them than this."""
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_TIMESTAMP = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})[Tt]([0-9]{2}:[0-9]{2}:[0-9]{2})(\.[0-9]{1,6})?"
    r"([Zz]|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])"
)


@dataclass(frozen=True, slots=True)
class Unfit:
    """Stands for a value that Avro can hold and no contract can take, such as a date before the
    year 1. A value, not an exception: bytes behind it may be malformed, which comes first."""

    rule: str


class FloatMoneyError(TypeError):
    """A binary floating-point number stands where an exact amount is due."""


def decimal_of(value: object, precision: int, scale: int) -> Decimal:
    """An exact amount of at most `precision` digits, `scale` of them after the point.

    Text and JSON numbers must be `digits[.digits]` with no sign but `-`; trailing zeros are not
    significant. The result has exactly `scale` fraction digits; -0 is 0.
    """
    if type(value) is str:
        text = value
    elif type(value) is LosslessFloat:
        text = bytes(value).decode("ascii")
    elif type(value) is int:
        return _decimal_of_decimal(Decimal(value), precision, scale)
    elif isinstance(value, Decimal):
        return _decimal_of_decimal(value, precision, scale)
    elif isinstance(value, float):
        message = "a binary floating-point number is not an amount"
        raise FloatMoneyError(message)
    else:
        raise ValueError(_rule(value, "an amount as text or a plain number"))
    return _decimal_of_text(text, precision, scale)


@lru_cache(maxsize=8192)
def _decimal_of_text(text: str, precision: int, scale: int) -> Decimal:
    if len(text) > _AMOUNT_LENGTH_MAX or _AMOUNT.fullmatch(text) is None:
        message = "plain decimal notation, digits[.digits]"
        raise ValueError(message)
    return _decimal_of_decimal(Decimal(text), precision, scale)


def _decimal_of_decimal(value: Decimal, precision: int, scale: int) -> Decimal:
    if not value.is_finite():
        message = "a finite amount"
        raise ValueError(message)
    if value == 0:
        return _ZERO[scale]
    if value.adjusted() >= precision - scale:
        message = f"at most {precision - scale} digits before the point"
        raise ValueError(message)
    exact = value.quantize(_UNIT[scale])
    if exact != value:
        message = f"at most {scale} fraction digits"
        raise ValueError(message)
    return exact


_UNIT = {scale: Decimal(1).scaleb(-scale) for scale in range(10)}
_ZERO = {scale: Decimal(0).scaleb(-scale) for scale in range(10)}


def plain(value: Decimal) -> str:
    """The one text of a finite decimal by value: no exponent, no trailing zeros, no -0."""
    if value == 0:
        return "0"
    text = format(value, "f")
    return text.rstrip("0").rstrip(".") if "." in text else text


def unscaled(value: Decimal, scale: int) -> bytes:
    """Avro's decimal: the unscaled integer as big-endian two's complement, shortest form."""
    number = int(value.scaleb(scale))
    return number.to_bytes(
        (number if number >= 0 else ~number).bit_length() // 8 + 1, "big", signed=True
    )


def date_of(value: object) -> date:
    """A calendar date, `YYYY-MM-DD` in text; never a timestamp, which a zone would move."""
    if type(value) is str:
        return _date_of_text(value)
    if type(value) is date:
        return value
    raise ValueError(_rule(value, "a date as YYYY-MM-DD"))


def _rule(value: object, otherwise: str) -> str:
    return value.rule if isinstance(value, Unfit) else otherwise


@lru_cache(maxsize=4096)
def _date_of_text(text: str) -> date:
    if _DATE.fullmatch(text) is None:
        message = "a date as YYYY-MM-DD"
        raise ValueError(message)
    try:
        return date.fromisoformat(text)
    except ValueError:
        message = "a date that exists"
        raise ValueError(message) from None


def days(value: date) -> int:
    """Avro's date: days since 1970-01-01."""
    return value.toordinal() - _EPOCH_DAY


def instant_of(value: object) -> datetime:
    """An instant in UTC with microseconds kept, from RFC 3339 text with an offset, or an aware
    datetime. Refused: numbers, naive times, more than six fraction digits, second 60, instants
    outside the UTC years 1970 to 2199."""
    if type(value) is str:
        found = _instant_of_text(value)
    elif isinstance(value, datetime):
        if value.utcoffset() is None:
            message = "a timestamp with an offset"
            raise ValueError(message)
        found = value.astimezone(UTC)
    else:
        raise ValueError(_rule(value, "a timestamp as RFC 3339 text"))
    if not FIRST_INSTANT <= found < LAST_INSTANT:
        message = "an instant in the UTC years 1970 to 2199"
        raise ValueError(message)
    return found


def _instant_of_text(text: str) -> datetime:
    match = _TIMESTAMP.fullmatch(text)
    if match is None:
        message = "a timestamp as RFC 3339 with an offset and at most six fraction digits"
        raise ValueError(message)
    day, clock, fraction, offset = match.groups()
    zone = "+00:00" if offset in "Zz" else offset
    try:
        found = datetime.fromisoformat(f"{day}T{clock}{(fraction or '.0').ljust(7, '0')}{zone}")
        return found.astimezone(UTC)
    except (ValueError, OverflowError):
        message = "a time that exists"
        raise ValueError(message) from None


def instant_text(value: datetime) -> str:
    """The one text of an instant: UTC, `Z`, fraction digits only as far as they are not zero."""
    text = value.strftime("%Y-%m-%dT%H:%M:%S")
    if value.microsecond:
        text += f".{value.microsecond:06d}".rstrip("0")
    return text + "Z"


def micros(value: datetime) -> int:
    """Avro's timestamp-micros: microseconds since the epoch, exactly."""
    return (value - EPOCH) // timedelta(microseconds=1)


def integer_of(value: object) -> int:
    """A whole number; JSON true is not 1."""
    if type(value) is not int:
        message = "a whole number"
        raise ValueError(message)
    return value
