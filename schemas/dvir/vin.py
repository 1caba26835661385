"""Vehicle identification numbers, 49 CFR 565: form, check digit, placeholders. Pure.

Length and alphabet are rules; a check digit that fails, where it binds, is a remark. Nothing is
ever repaired: an O is not made a 0.
"""

from __future__ import annotations

FORM = r"^[A-HJ-NPR-Z0-9]{17}$"
"""Seventeen characters without I, O and Q."""

_VALUES = dict(zip("ABCDEFGHJKLMNPRSTUVWXYZ", map(int, "12345678123457923456789"), strict=True))
_WEIGHTS = (8, 7, 6, 5, 4, 3, 2, 10, 0, 9, 8, 7, 6, 5, 4, 3, 2)
_MODEL_YEARS = frozenset("ABCDEFGHJKLMNPRSTVWXY123456789")
"""Codes of position 10 in use since model year 1980; U, Z and 0 are none (49 CFR 565.15)."""
_CHECK, _YEAR = 8, 9
_ALIKE_MAX = 2
"""A VIN of so few different characters identifies no vehicle."""


def check_digit(vin: str) -> str:
    """The check digit the other sixteen characters call for (49 CFR 565.15(c))."""
    total = sum(
        (int(c) if c.isdigit() else _VALUES[c]) * weight
        for c, weight in zip(vin, _WEIGHTS, strict=True)
    )
    return "X" if total % 11 == 10 else str(total % 11)  # noqa: PLR2004 - ten is written X


def check_digit_fails(vin: str) -> bool:
    """Whether the check digit binds (North American maker, a model-year code) and is wrong."""
    return vin[0] in "12345" and vin[_YEAR] in _MODEL_YEARS and vin[_CHECK] != check_digit(vin)


def is_placeholder(vin: str) -> bool:
    """Whether this is a known filler; seventeen ones pass the check digit."""
    return len(set(vin)) <= _ALIKE_MAX or vin.startswith("123456789")
