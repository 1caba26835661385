"""The vehicles and drivers of the invented companies. Pure."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from streams.demo.companies import COMPANIES, Company

VIN_LETTERS = "ABCDEFGHJKLMNPRSTUVWXYZ0123456789"
_VALUES = dict(
    zip("ABCDEFGHJKLMNPRSTUVWXYZ", (*range(1, 9), 1, 2, 3, 4, 5, 7, 9, *range(2, 10)), strict=True)
) | {str(digit): digit for digit in range(10)}
_WEIGHTS = (8, 7, 6, 5, 4, 3, 2, 10, 0, 9, 8, 7, 6, 5, 4, 3, 2)
_CHECK_AT = 8
TRACTOR_MAKERS = ("1XK", "4V4", "1FU", "3AK")
TRAILER_MAKERS = ("1UY", "1GR", "1JJ")
MODEL_YEARS = "LMNPRST"
"""2020 to 2026."""


def check_digit(vin: str) -> str:
    """Character nine of a VIN: weighted sum modulo 11, ten is written X (49 CFR 565.15)."""
    rest = sum(_VALUES[c] * w for c, w in zip(vin, _WEIGHTS, strict=True)) % 11
    return "X" if rest == 10 else str(rest)  # noqa: PLR2004 - the one value without a digit


def make_vin(chance: random.Random, makers: tuple[str, ...], serial: int) -> str:
    """A VIN whose check digit holds; the serial makes it unique."""
    described = "".join(chance.choice(VIN_LETTERS) for _ in range(5))
    year, plant = chance.choice(MODEL_YEARS), chance.choice("ABCDEFGH")
    vin = f"{chance.choice(makers)}{described}0{year}{plant}{serial % 1_000_000:06d}"
    return vin[:_CHECK_AT] + check_digit(vin) + vin[_CHECK_AT + 1 :]


@dataclass(slots=True)
class Vehicle:
    """A tractor or trailer, and what its odometer shows now."""

    role: str
    unit_number: str
    vin: str | None
    legacy_serial: str | None = None
    odometer_m: int = 0


@dataclass(slots=True)
class Fleet:
    """One company's yard."""

    company: Company
    tractors: list[Vehicle] = field(default_factory=list)
    trailers: list[Vehicle] = field(default_factory=list)
    drivers: list[str] = field(default_factory=list)


def fleets(chance: random.Random, tractors: int) -> list[Fleet]:
    """About `tractors` tractors in all, four trailers to three of them, a driver for each."""
    made = [Fleet(company) for company in COMPANIES]
    for number in range(max(tractors, len(made))):
        fleet = made[number % len(made)]
        prefix = fleet.company.id_prefix or "QP"
        fleet.tractors.append(
            Vehicle(
                "power_unit",
                f"{prefix}-{100 + number}",
                make_vin(chance, TRACTOR_MAKERS, 10_000 + number),
                odometer_m=chance.randrange(20_000_000, 900_000_000),
            )
        )
        fleet.drivers.append(f"{prefix}-D{number:04d}")
        for extra in range(1 + (number % 3 == 0)):
            fleet.trailers.append(_trailer(chance, prefix, number * 2 + extra))
    return made


def _trailer(chance: random.Random, prefix: str, number: int) -> Vehicle:
    """Most have a VIN; a few home-made or old ones have a state's serial number."""
    if chance.random() < 0.04:  # noqa: PLR2004 - share of trailers without a VIN
        serial = f"ST{chance.randrange(10**6):06d}"
        return Vehicle("trailer", f"{prefix}-T{number:04d}", None, legacy_serial=serial)
    vin = make_vin(chance, TRAILER_MAKERS, 500_000 + number)
    return Vehicle("trailer", f"{prefix}-T{number:04d}", vin)
