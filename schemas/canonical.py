"""The canonical form of a record and its digest: the one definition.

RFC 8785 (JSON Canonicalization Scheme) with decimals as strings: members sorted by UTF-16 code
units, no white space, strings escaped as little as allowed. By value: contract decimals are strings
in plain notation without trailing zeros (`"1000"` for 1000.00, `"0"` for -0), dates `YYYY-MM-DD`,
instants UTC with `Z`. Numbers of unknown members stay numbers, in plain notation without trailing
zeros where that is short, else as digits, `E` and exponent: the contract does not know whether two
notations mean different things there, but equal values have one form. Absent, null and
default-valued members are left out at every depth; list order counts. Pure.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal, InvalidOperation

from jiter import LosslessFloat

from schemas.exact import Unfit, instant_text, plain

NUMBER_DIGITS_MAX = 1_000
"""Digits of an unknown number. A body must be readable again, to rebuild its event after a crash,
and JSON parsers have limits of their own."""
CANONICAL_VERSION = 1
"""Stored with every row; raised with any change of the form."""
_PLAIN_DIGITS_MAX = 40
"""Numbers that need more digits in plain notation are written with an exponent: a small text such
as 1e999999999 must not become a gigabyte."""

_SHORT = _PLAIN_DIGITS_MAX // 2

_fast = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), sort_keys=True, allow_nan=False)
_quote = json.JSONEncoder(ensure_ascii=False).encode


def canonical_body(members: Mapping[str, object]) -> str:
    """The canonical JSON text of prepared members.

    Prepared: contract values as the texts described above, unknown members through `unknown`.
    """
    try:
        body = _fast.encode(members)
    except TypeError:
        return _write(members)  # a number that json would have to round
    # Python sorts by code points, RFC 8785 by UTF-16 code units; they differ beyond U+FFFF only.
    return body if body.isascii() or max(body) < "\ue000" else _write(members)


def digest_of(body: str) -> bytes:
    """SHA-256 of the canonical body, 32 bytes; in SQL `sha256(convert_to(body, 'UTF8'))`."""
    return hashlib.sha256(body.encode()).digest()


def unknown(value: object) -> object:
    """An unknown member's value with nulls left out of objects and numbers by value.

    Raises `ValueError` for what has no JSON form (NaN or an infinity from Avro) and for exponents
    beyond any number.
    """
    if value is None or isinstance(value, (str, bool)):
        return value
    if isinstance(value, int):
        return value if -(2**63) <= value < 2**63 else _by_value(Decimal(value))
    if isinstance(value, LosslessFloat):
        return _by_value(_decimal(bytes(value).decode("ascii")))
    if isinstance(value, Mapping):
        return {str(k): unknown(v) for k, v in value.items() if v is not None}
    if isinstance(value, (list, tuple)):
        return [unknown(v) for v in value]
    return _unknown_avro(value)


def _decimal(text: str) -> Decimal:
    try:
        return Decimal(text)
    except InvalidOperation:
        message = "a number whose exponent has at most 18 digits"
        raise ValueError(message) from None


def _unknown_avro(value: object) -> object:
    """Types that only Avro yields."""
    if isinstance(value, Decimal):
        return _by_value(value)
    if isinstance(value, float):
        return _by_value(Decimal(repr(value)))
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, datetime):
        return instant_text(value)
    if isinstance(value, Unfit):
        raise ValueError(value.rule)  # noqa: TRY004 - the value is at fault, not its type
    return str(value)


def _by_value(value: Decimal) -> object:
    if not value.is_finite():
        message = "a finite number"
        raise ValueError(message)
    if len(value.as_tuple().digits) > NUMBER_DIGITS_MAX:
        message = f"a number of at most {NUMBER_DIGITS_MAX} digits"
        raise ValueError(message)
    whole = value == value.to_integral_value() if value.adjusted() < _PLAIN_DIGITS_MAX else False
    if whole and abs(value) < 2**63:
        return int(value)
    return value


def _write(value: object) -> str:
    """The slow, complete writer."""
    if isinstance(value, Mapping):
        keys = sorted(value, key=lambda k: k.encode("utf-16-be", "surrogatepass"))
        return "{" + ",".join(f"{_quote(k)}:{_write(value[k])}" for k in keys) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ",".join(map(_write, value)) + "]"
    if isinstance(value, Decimal):
        return _number(value)
    if isinstance(value, str):
        return _quote(value)
    return json.dumps(value)


def _number(value: Decimal) -> str:
    """A number by value. Normalising is done on the digits: Decimal's own would round them."""
    if abs(value.adjusted()) < _SHORT and len(text := plain(value)) <= _SHORT:
        return text  # as the digits would say, for most numbers at a third of the cost
    sign, digits, exponent = value.as_tuple()
    text = "".join(map(str, digits)).lstrip("0")
    if not text:
        return "0"
    stripped = text.rstrip("0")
    power = int(exponent) + len(text) - len(stripped)
    mark = "-" if sign else ""
    if abs(power) + len(stripped) <= _PLAIN_DIGITS_MAX:
        return plain(Decimal((sign, tuple(map(int, stripped)), power)))
    return f"{mark}{stripped}E{power}"
