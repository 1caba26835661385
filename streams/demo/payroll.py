"""Payroll statements: runs of several companies, what comes after them, and their faults.

Pure: everything follows from the random source handed in.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal

from schemas.envelope import CORRELATION_ID, Headers
from schemas.reasons import Reason
from schemas.verdict import Verdict
from streams.demo import plan
from streams.demo.companies import Employee, Run, employee, runs, shipped_authorities
from streams.demo.encoding import Encoder, Form
from streams.demo.faults import TRANSPORT_FAULTS, Fault, pick
from streams.demo.made import Made, Truth, dollars, payroll_key, signed_cents

TYPE = "payroll"
OFF_CYCLE, ADJUSTMENT, CORRECTION, REVERSAL, VOID = (
    "off_cycle",
    "adjustment",
    "correction",
    "reversal",
    "void",
)
LATER_KINDS = {
    OFF_CYCLE: 0.015,
    ADJUSTMENT: 0.01,
    CORRECTION: 0.008,
    REVERSAL: 0.004,
    VOID: 0.002,
}
"""Statements beside the regular ones, with their shares."""
CORRECTING = frozenset({CORRECTION, REVERSAL, VOID})
REASONS = (
    Reason.TOMBSTONE,
    Reason.OVERSIZE,
    Reason.ENCODING,
    Reason.MALFORMED_ROW,
    Reason.MALFORMED_JSON,
    Reason.MALFORMED_AVRO,
    Reason.UNKNOWN_SCHEMA,
    Reason.MISSING_KEY,
    Reason.FLOAT_MONEY,
    Reason.SCHEMA_VIOLATION,
    Reason.UNRESOLVED_JURISDICTION,
    Reason.IDEMPOTENCY_COLLISION,
)
"""Reasons a payroll record can get by itself or against an earlier one."""
FORMS = {Form.JSON: 62, Form.JSON_NUMBERS: 22, Form.AVRO: 11, Form.CONFLUENT: 5}
PAST = 400
"""How many committed statements are remembered for duplicates and corrections."""
PERIODS_PER_YEAR = {"biweekly": 26, "monthly": 12}
QUARTERS = {"biweekly": (280, 400), "monthly": (640, 704)}
"""Quarter hours worked in a period, least and most."""
FULL_TIME_QUARTERS = 320
"""Eighty hours in two weeks; what is above is paid at time and a half."""

Members = dict[str, object]


@dataclass(frozen=True, slots=True)
class Statement:
    """A committed statement, remembered."""

    members: Members
    cents: int
    """Gross pay, unsigned."""
    made: Made


class PayrollMaker:
    """Makes statements one after another."""

    def __init__(
        self, chance: random.Random, encoder: Encoder, as_of: datetime, count: int
    ) -> None:
        self._chance = chance
        self._encoder = encoder
        self._authorities = shipped_authorities()
        self._plan = plan.kinds(chance, count, REASONS, LATER_KINDS)
        self._seats = self._people(runs(as_of.date()))
        self._past: deque[Statement] = deque(maxlen=PAST)
        self._standing: deque[Statement] = deque(maxlen=PAST)
        """Regular statements nobody has corrected yet."""
        self._number = 0
        self._as_of = as_of

    def __iter__(self) -> Iterator[Made]:
        """All records, in the order they are published; timestamps never go back."""
        now = datetime.min.replace(tzinfo=self._as_of.tzinfo)
        for kind in self._plan:
            self._number += 1
            if kind in self._own:
                made = self._own[kind](self, now, str(kind))
            else:
                run, person = next(self._seats)
                # A run is published in the night before its pay date.
                now = max(now, _night_before(run.pay_date, self._as_of))
                members, cents = self._regular(run, person)
                if kind == plan.PLAIN:
                    made = self._commit(members, cents, now, standing=True)
                else:
                    made = self._fault(Reason(kind), members, now)
            now += timedelta(milliseconds=self._chance.randrange(2, 60))
            yield made

    # -- kinds that refer to the past --------------------------------------------------------------

    def _duplicate(self, now: datetime, _: str) -> Made:
        """A re-send: mostly the same bytes, now and then the same statement in another encoding."""
        earlier = self._chance.choice(self._past)
        value = earlier.made.value
        if self._chance.random() < 0.3:  # noqa: PLR2004 - share of re-sends that are encoded anew
            value = self._encoder.encode(earlier.members, self._form())
        truth = Truth(Verdict.DUPLICATE, identity=earlier.made.truth.identity)
        return Made(TYPE, earlier.made.key, value, earlier.made.headers, _ms(now), truth)

    def _conflict(self, now: datetime, _: str) -> Made:
        """The key of a committed statement with another content."""
        earlier = self._chance.choice(self._past)
        cents = earlier.cents + self._chance.choice((-1, 1, 100, 25_000))
        members = earlier.members | {"gross_pay": dollars(cents)}
        return self._refused(Reason.IDEMPOTENCY_COLLISION, members, now)

    def _later(self, now: datetime, kind: str) -> Made:
        """An off-cycle payment or adjustment of, or a correction to, an earlier statement."""
        correcting = kind in CORRECTING and bool(self._standing)
        earlier = self._standing.popleft() if correcting else self._chance.choice(self._past)
        cents = earlier.cents if kind in {REVERSAL, VOID} else self._chance.randrange(2_500, 90_000)
        members: Members = {
            name: earlier.members[name]
            for name in (
                "employee_id",
                "pay_period_start",
                "pay_period_end",
                "source_run_id",
                "pay_group",
                "pay_frequency",
                "tax_jurisdiction",
            )
        }
        members |= {
            "statement_id": f"{kind[:3].upper()}-{self._number}",
            "statement_type": kind if correcting or kind not in CORRECTING else ADJUSTMENT,
            "pay_date": now.date(),
            "gross_pay": dollars(cents),
        }
        if correcting:
            members["corrects"] = earlier.made.truth.identity
        return self._commit(members, cents, now, standing=False)

    _own: Mapping[plan.Kind, Callable[[PayrollMaker, datetime, str], Made]] = {
        plan.DUPLICATE: _duplicate,
        plan.CONFLICT: _conflict,
        Reason.IDEMPOTENCY_COLLISION: _conflict,
        **dict.fromkeys(LATER_KINDS, _later),
    }

    # -- one record --------------------------------------------------------------------------------

    def _regular(self, run: Run, person: Employee) -> tuple[Members, int]:
        """A regular statement, sometimes with its lists; wages are exact in cents."""
        quarters = self._chance.randrange(*QUARTERS[run.group.frequency])
        base, overtime = _wages(quarters, person.hourly_cents, run.group.frequency)
        gross = base + overtime
        taxes, deductions = _taxes(gross), _deductions(self._chance, gross)
        members: Members = {
            "employee_id": person.employee_id,
            "pay_period_start": run.period_start,
            "pay_period_end": run.period_end,
            "pay_date": run.pay_date,
            "source_run_id": run.source_run_id,
            "gross_pay": dollars(gross),
            "net_pay": dollars(gross - sum(taxes.values()) - sum(deductions.values())),
            "hours": Decimal(quarters) / 4,
            "pay_group": run.group.code,
            "pay_frequency": run.group.frequency,
            "tax_jurisdiction": person.jurisdiction,
        }
        if person.residence is not None:
            members["residence_jurisdiction"] = person.residence
        if self._chance.random() < 0.5:  # noqa: PLR2004 - half of the sources send the lists
            periods = (
                run.pay_date.timetuple().tm_yday * PERIODS_PER_YEAR[run.group.frequency] // 365
            )
            members["earnings"] = _lines({"REG": base, "OT": overtime})
            members["taxes"] = _lines(taxes)
            members["deductions"] = _lines(deductions, times=max(1, periods))
            members["ytd_gross"] = dollars(gross * max(1, periods))
        if self._chance.random() < 0.3:  # noqa: PLR2004 - some spell the default out
            members |= {"currency": "USD", "statement_type": "regular"}
        return members, gross

    def _commit(self, members: Members, cents: int, now: datetime, *, standing: bool) -> Made:
        truth = Truth(
            Verdict.COMMITTED,
            identity=payroll_key(members),
            run=str(members["source_run_id"]),
            cents=signed_cents(str(members.get("statement_type", "regular")), cents),
        )
        value = self._encoder.encode(members, self._form())
        made = Made(TYPE, self._key(members), value, self._headers(members), _ms(now), truth)
        statement = Statement(members, cents, made)
        self._past.append(statement)
        if standing:
            self._standing.append(statement)
        return made

    def _refused(self, reason: Reason, members: Members, now: datetime) -> Made:
        value = self._encoder.encode(members, Form.JSON)
        truth = Truth(Verdict.QUARANTINED, reason)
        return Made(TYPE, self._key(members), value, self._headers(members), _ms(now), truth)

    def _fault(self, reason: Reason, members: Members, now: datetime) -> Made:
        faults = {**TRANSPORT_FAULTS, **PAYROLL_FAULTS}
        value, headers = pick(self._chance, faults[reason])(self._chance, self._encoder, members)
        headers = (*self._headers(members), *headers)
        truth = Truth(Verdict.QUARANTINED, reason)
        return Made(TYPE, self._key(members), value, headers, _ms(now), truth)

    def _form(self) -> Form:
        return plan.weighted(self._chance, FORMS)

    def _headers(self, members: Members) -> Headers:
        """A third of the publishers send a correlation id."""
        if self._chance.random() < 0.67:  # noqa: PLR2004
            return ()
        return ((CORRELATION_ID, f"{members['source_run_id']}#{self._number}".encode()),)

    @staticmethod
    def _key(members: Members) -> bytes:
        return str(members["employee_id"]).encode()

    def _people(self, of_runs: list[Run]) -> Iterator[tuple[Run, Employee]]:
        """Who is paid in which run: as many as the plan has statements that need a person."""
        seats = sum(kind not in self._own for kind in self._plan)
        sizes = plan.shares(seats, [run.group.weight for run in of_runs])
        for run, size in zip(of_runs, sizes, strict=True):
            for number in range(size):
                yield run, employee(run.company, run.group, number, self._authorities)


def _night_before(pay_date: date, as_of: datetime) -> datetime:
    """Ten in the evening before the pay date, or just before `as_of` if that is not yet over."""
    night = datetime.combine(pay_date - timedelta(days=1), time(22), tzinfo=as_of.tzinfo)
    return min(night, as_of - timedelta(hours=1))


def _ms(moment: datetime) -> int:
    return int(moment.timestamp()) * 1000 + moment.microsecond // 1000


def _wages(quarters: int, hourly_cents: int, frequency: str) -> tuple[int, int]:
    """Base and overtime pay in cents; half a cent goes up."""
    regular = min(quarters, FULL_TIME_QUARTERS) if frequency == "biweekly" else quarters
    base = (regular * hourly_cents + 2) // 4
    overtime = ((quarters - regular) * hourly_cents * 3 + 4) // 8
    return base, overtime


def _taxes(gross: int) -> dict[str, int]:
    """Withheld taxes in cents; plausible figures, not a tax table."""
    return {
        "FIT": gross * 11 // 100,
        "OASDI": gross * 62 // 1000,
        "MED": gross * 145 // 10_000,
        "SIT": gross * 307 // 10_000,
    }


def _deductions(chance: random.Random, gross: int) -> dict[str, int]:
    """What an employee had withheld, in cents."""
    possible = {"401K": gross * chance.choice((3, 4, 6)) // 100, "MEDICAL": 8_450, "DUES": 2_100}
    return {code: amount for code, amount in possible.items() if chance.random() < 0.6}  # noqa: PLR2004


def _lines(amounts: Mapping[str, int], times: int = 0) -> list[Members]:
    """List members; with `times`, the year's sum including this statement."""
    return [
        {"code": code, "amount": dollars(cents)}
        | ({"ytd": dollars(cents * times)} if times else {})
        for code, cents in amounts.items()
        if cents
    ]


# What can be wrong with a statement that decodes --------------------------------------------------


def _with(**changed: object) -> Fault:
    """A fault that is a member with a wrong value, or without one (None)."""

    def fault(
        chance: random.Random,  # noqa: ARG001 - the shape of a fault
        encoder: Encoder,
        members: Mapping[str, object],
    ) -> tuple[bytes | None, Headers]:
        wrong = {k: v for k, v in {**members, **changed}.items() if v is not None}
        return encoder.encode(wrong, Form.JSON), ()

    return fault


def _float_money(
    chance: random.Random,  # noqa: ARG001 - the shape of a fault
    encoder: Encoder,
    members: Mapping[str, object],
) -> tuple[bytes | None, Headers]:
    """A producer whose own schema says double."""
    return encoder.encode(members, Form.FLOAT_SCHEMA), ()


PAYROLL_FAULTS: dict[Reason, tuple[Fault, ...]] = {
    Reason.MISSING_KEY: (_with(idempotency_key=""), _with(idempotency_key="   ")),
    Reason.FLOAT_MONEY: (_float_money,),
    Reason.SCHEMA_VIOLATION: (
        _with(gross_pay="1840.125"),
        _with(gross_pay="-1840.12"),
        _with(gross_pay="1,840.12"),
        _with(gross_pay="1.84e3"),
        _with(gross_pay=None),
        _with(employee_id="123456789"),
        _with(employee_id="tam-17"),
        _with(statement_type="bonus"),
        _with(statement_type="correction"),
        _with(pay_period_start="19.10.2026"),
        _with(pay_period_end="1999-12-31"),
        _with(source_run_id=" hris/tamarack "),
    ),
    Reason.UNRESOLVED_JURISDICTION: (
        _with(tax_jurisdiction="US"),
        _with(tax_jurisdiction="US-ZZ"),
        _with(tax_jurisdiction="US-PA:999999"),
        # Denver is an authority of the shipped pack from 2024 on only.
        _with(
            tax_jurisdiction="US-CO:denver",
            pay_period_start=date(2023, 10, 2),
            pay_period_end=date(2023, 10, 15),
        ),
    ),
}
