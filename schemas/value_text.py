"""Text of exact values: decoded members as JSON, and columns' values as JSON. Pure.

Nothing is rounded: a JSON number keeps its own text, a decimal becomes text in its full scale.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import date, datetime, timedelta
from decimal import Decimal
from functools import lru_cache
from typing import Any

from jiter import LosslessFloat

from schemas.columns import Kind, ListOf, MapOf, Scalar, Struct, Type, unscaled_within
from schemas.exact import EPOCH, Unfit, instant_text
from schemas.masking import MASK

Write = Callable[[Any], str]

quoted: Write = json.JSONEncoder(ensure_ascii=False).encode
"""Text as a JSON string."""

# --- Decoded members ------------------------------------------------------------------------------


def json_text(value: object) -> str:  # noqa: PLR0911 - one return per type
    """Decoded members as JSON: of JSON the same values, of Avro what `value_text` writes."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case str():
            return quoted(value)
        case int():  # Python refuses to write very long numbers by itself
            return str(value) if -(2**63) <= value < 2**63 else format(Decimal(value), "f")
        case LosslessFloat():
            return bytes(value).decode("ascii")
        case Mapping():
            members = (f"{quoted(str(name))}:{json_text(one)}" for name, one in value.items())
            return "{" + ",".join(members) + "}"
        case list() | tuple():
            return "[" + ",".join(map(json_text, value)) + "]"
        case _:
            return quoted(_avro_text(value))


def _avro_text(value: object) -> str:
    """Types that only Avro yields."""
    match value:
        case Decimal():
            return format(value, "f")
        case bytes():
            return value.hex()
        case datetime():
            return instant_text(value)
        case date():
            return value.isoformat()
        case Unfit():
            return f"not {value.rule}"
        case _:  # binary floating point; not a JSON number, for it is no decimal one
            return repr(value)


# --- Values of columns ----------------------------------------------------------------------------


def plain_text(kind: Scalar) -> Write:
    """How a single value is written where no quotes are needed; null is the caller's."""
    if kind.masked:
        return lambda _: MASK
    if kind.kind is Kind.DECIMAL:
        return _decimal(kind.precision, kind.scale)
    return _PLAIN[kind.kind]


_BARE = frozenset({Kind.INT, Kind.LONG, Kind.BOOLEAN, Kind.JSON})
"""Kinds whose text is JSON as it is."""


def value_text(kind: Type) -> Write:
    """How a value is written as JSON: decimals, dates and instants as text, bytes in hexadecimal,
    null as null."""
    match kind:
        case Scalar(Kind.TEXT, masked=False):
            write = quoted
        case Scalar():
            plain = plain_text(kind)
            bare = kind.kind in _BARE and not kind.masked
            write = plain if bare else lambda value: f'"{plain(value)}"'
        case ListOf(item):
            one = value_text(item)
            write = lambda value: "[" + ",".join(map(one, value)) + "]"  # noqa: E731
        case MapOf(value):
            one = value_text(value)
            write = lambda value: (  # noqa: E731
                "{" + ",".join(f"{quoted(name)}:{one(v)}" for name, v in value.items()) + "}"
            )
        case Struct(members):
            heads = [(m.name, f"{quoted(m.name)}:", value_text(m.type)) for m in members]
            write = lambda value: (  # noqa: E731
                "{" + ",".join([h + w(value.get(n)) for n, h, w in heads]) + "}"
            )
    return lambda value: "null" if value is None else write(value)


def _decimal(precision: int, scale: int) -> Write:
    """The full scale, always: 1000.00, -0.05."""

    @lru_cache(maxsize=8192)
    def write(value: bytes) -> str:
        number = unscaled_within(value, precision)
        digits = str(abs(number)).rjust(scale + 1, "0")
        sign = "-" if number < 0 else ""
        return f"{sign}{digits[:-scale]}.{digits[-scale:]}" if scale else f"{sign}{digits}"

    return write


@lru_cache(maxsize=4096)
def _date(days: int) -> str:
    return (EPOCH.date() + timedelta(days=days)).isoformat()


def _instant(micros: int) -> str:
    return instant_text(EPOCH + timedelta(microseconds=micros))


_PLAIN: dict[Kind, Write] = {
    Kind.TEXT: str,
    Kind.BYTES: bytes.hex,
    Kind.INT: str,
    Kind.LONG: str,
    Kind.BOOLEAN: lambda value: "true" if value else "false",
    Kind.DOUBLE: repr,
    Kind.DATE: _date,
    Kind.INSTANT: _instant,
    Kind.JSON: json_text,
}
