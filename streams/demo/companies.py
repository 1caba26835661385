"""The invented companies: who works there, where, and how they are paid. Pure but for one file.

All names are made up. Jurisdictions come from the authorities the project ships.
"""

from __future__ import annotations

import csv
import random
from dataclasses import dataclass
from datetime import date, timedelta
from importlib.resources import files

EXCHANGE_SHARE = 0.08
"""Share of people who work in another state than their company's own."""


@dataclass(frozen=True, slots=True)
class PayGroup:
    """People of one company who are paid together."""

    code: str
    frequency: str
    """`biweekly` or `monthly`."""
    weight: int
    """Size, relative to the other groups."""


@dataclass(frozen=True, slots=True)
class Company:
    """A haulier with a payroll and a fleet."""

    slug: str
    """Its place in a source run id, `hris/<slug>/<run>`."""
    name: str
    id_prefix: str
    """Start of its employee ids; empty for the company whose ids look like `219E05`."""
    state: str
    groups: tuple[PayGroup, ...]
    hourly_cents: tuple[int, int]
    """Least and greatest hourly wage."""


def _two(drivers: int, office: int) -> tuple[PayGroup, ...]:
    return PayGroup("DRV", "biweekly", drivers), PayGroup("OFF", "monthly", office)


COMPANIES: tuple[Company, ...] = (
    Company("tamarack", "Tamarack Freight Lines", "TAM", "US-PA", _two(14, 4), (2450, 3900)),
    Company("bluemesa", "Blue Mesa Logistics", "BML", "US-CO", _two(9, 3), (2300, 3600)),
    Company("harrow-finch", "Harrow & Finch Carriers", "HF", "US-MI", _two(11, 3), (2200, 3700)),
    Company("ostrander", "Ostrander Cold Chain", "OCC", "US-OH", _two(8, 2), (2350, 3500)),
    Company("palisade", "Palisade Tank Services", "PTS", "US-TX", _two(7, 2), (2800, 4400)),
    Company(
        "quillback",
        "Quillback Parcel",
        "",
        "US-MO",
        (PayGroup("ALL", "monthly", 9),),
        (1900, 2800),
    ),
    Company("redstart", "Redstart Intermodal", "RIM", "US-IN", _two(6, 2), (2400, 3650)),
    Company(
        "sable-creek",
        "Sable Creek Haulage",
        "SCH",
        "US-DE",
        (PayGroup("DRV", "biweekly", 5),),
        (2250, 3300),
    ),
)


@dataclass(frozen=True, slots=True)
class Employee:
    """One person on a payroll."""

    employee_id: str
    company: Company
    jurisdiction: str
    residence: str | None
    hourly_cents: int


@dataclass(frozen=True, slots=True)
class Run:
    """One pay run of one pay group."""

    company: Company
    group: PayGroup
    source_run_id: str
    period_start: date
    period_end: date
    pay_date: date


def shipped_authorities() -> tuple[str, ...]:
    """Keys of the shipped authorities below the federal level that have not ended."""
    text = files("schemas").joinpath("rules/authorities.csv").read_text(encoding="utf-8")
    rows = csv.DictReader(text.splitlines())
    return tuple(
        row["key"] for row in rows if row["level"] != "federal" and not row["effective_end"]
    )


def employee(
    company: Company, group: PayGroup, number: int, authorities: tuple[str, ...]
) -> Employee:
    """The `number`th person of a pay group: always the same one, without keeping a list."""
    chance = random.Random(f"{company.slug}/{group.code}/{number}")
    at_home = [key for key in authorities if key.split(":")[0] == company.state]
    abroad = chance.random() < EXCHANGE_SHARE
    jurisdiction = chance.choice(authorities if abroad else at_home)
    residence = jurisdiction.split(":")[0] if chance.random() < 0.3 else None  # noqa: PLR2004
    low, high = company.hourly_cents
    return Employee(
        employee_id=_employee_id(company, group, number),
        company=company,
        jurisdiction=jurisdiction,
        residence=residence,
        hourly_cents=chance.randrange(low, high, 5),
    )


def _employee_id(company: Company, group: PayGroup, number: int) -> str:
    """Six to twelve of A-Z and 0-9, never nine digits; some look like numbers in an exponent."""
    if not company.id_prefix:
        return f"{100 + number // 100:03d}E{number % 100:02d}"
    return f"{company.id_prefix}{group.code[0]}{number:05d}"


def runs(as_of: date) -> list[Run]:
    """The pay runs of the four weeks before `as_of`, by pay date."""
    made: list[Run] = []
    for place, company in enumerate(COMPANIES):
        for group in company.groups:
            if group.frequency == "monthly":
                made.append(_monthly(company, group, as_of - timedelta(days=5 + place)))
            else:
                made += [
                    _biweekly(company, group, as_of - timedelta(days=days + place % 5))
                    for days in (16, 2)
                ]
    return sorted(made, key=lambda run: (run.pay_date, run.source_run_id))


def _biweekly(company: Company, group: PayGroup, pay_date: date) -> Run:
    end = pay_date - timedelta(days=5)
    year, week, _ = end.isocalendar()
    run_id = f"hris/{company.slug}/{year}-W{week:02d}-{group.code}"
    return Run(company, group, run_id, end - timedelta(days=13), end, pay_date)


def _monthly(company: Company, group: PayGroup, pay_date: date) -> Run:
    end = pay_date.replace(day=1) - timedelta(days=1)
    run_id = f"hris/{company.slug}/{end:%Y-%m}-{group.code}"
    return Run(company, group, run_id, end.replace(day=1), end, pay_date)
