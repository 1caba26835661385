"""Amounts as a source writes them, read exactly or not at all.

A format declares every mark that may stand in a cell; what it does not declare is refused, never
stripped. The result is plain decimal text for the contract (`-1234.56`), digits kept as written.
Pure.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import ROUND_HALF_EVEN, Context, Decimal
from functools import lru_cache
from typing import Final

from jiter import LosslessFloat

from connectors.profiles.forms import NumberFormat
from schemas.exact import plain

LENGTH_MAX: Final = 40
"""Longer than any amount of the contracts, and short enough to multiply exactly."""
METRES: Final = {"m": Decimal(1), "km": Decimal(1000), "mi": Decimal("1609.344")}
"""The international mile is 1,609.344 m exactly."""
_MILLIMETRE: Final = Decimal("0.001")
_EXACT: Final = Context(prec=2 * LENGTH_MAX)
_LARGE: Final = 10**LENGTH_MAX
_PLAIN: Final = re.compile(r"-?[0-9]+(?:\.[0-9]+)?")
_UNICODE_MINUS: Final = "\u2212"


class Unmapped(Exception):
    """A value is not in the form that its profile declares. The message is the rule, no value."""


def number_reader(declared: NumberFormat) -> Callable[[str], str]:
    """A function from a cell's text to plain decimal text; it raises `Unmapped`."""
    pattern = re.compile(_digits(declared))
    marks = str.maketrans("", "", "".join(declared.group))
    implied, zeros = declared.implied_decimals, frozenset(declared.zero)
    rule = f"an amount as declared, such as {example(declared)}"

    @lru_cache(maxsize=4096)
    def read(text: str) -> str:
        if text in zeros:
            return "0"
        rest, negative = _unsigned(text, declared)
        found = pattern.fullmatch(rest) if len(text) <= LENGTH_MAX else None
        if found is None:
            raise Unmapped(rule)
        whole, fraction = found[1].translate(marks), found[2] or ""
        if implied is not None:
            digits = whole.rjust(implied + 1, "0")
            whole, fraction = digits[:-implied].lstrip("0") or "0", digits[-implied:]
        return f"{'-' if negative else ''}{whole}{'.' if fraction else ''}{fraction}"

    return read


def _digits(declared: NumberFormat) -> str:
    """The regular expression of an amount without sign and currency."""
    if declared.implied_decimals is not None:
        return "([0-9]+)()"
    plain_digits = "[0-9]+" if declared.leading_zeros else "0|[1-9][0-9]*"
    grouped = (f"[1-9][0-9]{{0,2}}(?:{re.escape(mark)}[0-9]{{3}})+" for mark in declared.group)
    return f"({'|'.join([plain_digits, *grouped])})(?:{re.escape(declared.decimal)}([0-9]+))?"


def _unsigned(text: str, declared: NumberFormat) -> tuple[str, bool]:
    """The text without its sign and currency mark, and whether it is negative."""
    forms = declared.negative
    if "brackets" in forms and text[:1] == "(" and text[-1:] == ")":
        return _without_currency(text[1:-1], declared), True
    if "trailing" in forms and text[-1:] == "-":
        return _without_currency(text[:-1], declared), True
    rest, negative = _leading(text, forms)
    without = _without_currency(rest, declared)
    if without == rest or negative:
        return without, negative
    return _leading(without, forms)


def _leading(text: str, forms: tuple[str, ...]) -> tuple[str, bool]:
    if ("leading" in forms and text[:1] == "-") or (
        "unicode_minus" in forms and text[:1] == _UNICODE_MINUS
    ):
        return text[1:], True
    return text, False


def _without_currency(text: str, declared: NumberFormat) -> str:
    """One declared mark before or after the amount, and one blank between them, are left out."""
    for mark in declared.currency:
        if text.startswith(mark):
            return _one_blank(text[len(mark) :], 0)
        if text.endswith(mark):
            return _one_blank(text[: -len(mark)], -1)
    return text


def _one_blank(text: str, at: int) -> str:
    if text and text[at] in " \u00a0":
        return text[1:] if at == 0 else text[:-1]
    return text


def example(declared: NumberFormat) -> str:
    """An amount in the format, for messages."""
    if declared.implied_decimals is not None:
        return "0000123456"
    mark = declared.group[0] if declared.group else ""
    return f"1{mark}234{declared.decimal}56"


def number_text(value: object) -> object:
    """The text of a JSON number as it was written; anything else, and a number with more digits
    than any id or amount has, as it is."""
    if type(value) is int:
        return str(value) if abs(value) < _LARGE else value
    if type(value) is LosslessFloat:
        return bytes(value).decode("ascii")
    return value


def metres(value: object, unit: str) -> str:
    """A distance in metres: exact, and a conversion rounded half to even at the third decimal.

    Raises `Unmapped` for what is not plain decimal notation.
    """
    text = number_text(value)
    if not isinstance(text, str) or len(text) > LENGTH_MAX or _PLAIN.fullmatch(text) is None:
        message = "a distance in plain decimal notation"
        raise Unmapped(message)
    if unit == "m":
        return text
    product = _EXACT.multiply(Decimal(text), METRES[unit])
    return plain(product.quantize(_MILLIMETRE, ROUND_HALF_EVEN, _EXACT))
