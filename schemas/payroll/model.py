"""The payroll statement: its model. One statement of pay of one employee in one run."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Self

from pydantic import PlainValidator, StringConstraints, model_validator

from schemas.contract import (
    Contract,
    CorrelationId,
    Day,
    Magnitude,
    Money,
    Printable128,
    Quantity,
    Text64,
    Text200,
    at_most,
)

LINES_MAX = 200
"""Most earnings, deductions or taxes of one statement."""
STATEMENT_ID_LENGTH_MAX = 200

DEFAULT_CURRENCY = "USD"
# ISO 4217, active codes whose minor unit is 2, without fund codes; ANG and BGN left it in 2025.
CURRENCIES = frozenset(
    {
        "AED", "AFN", "ALL", "AMD", "ANG", "AOA", "ARS", "AUD", "AWG", "AZN", "BAM", "BBD", "BDT",
        "BGN", "BMD", "BND", "BOB", "BRL", "BSD", "BTN", "BWP", "BYN", "BZD", "CAD", "CDF", "CHF",
        "CNY", "COP", "CRC", "CUP", "CVE", "CZK", "DKK", "DOP", "DZD", "EGP", "ERN", "ETB", "EUR",
        "FJD", "FKP", "GBP", "GEL", "GHS", "GIP", "GMD", "GTQ", "GYD", "HKD", "HNL", "HTG", "HUF",
        "IDR", "ILS", "INR", "IRR", "JMD", "KES", "KGS", "KHR", "KPW", "KYD", "KZT", "LAK", "LBP",
        "LKR", "LRD", "LSL", "MAD", "MDL", "MGA", "MKD", "MMK", "MNT", "MOP", "MRU", "MUR", "MVR",
        "MWK", "MXN", "MYR", "MZN", "NAD", "NGN", "NIO", "NOK", "NPR", "NZD", "PAB", "PEN", "PGK",
        "PHP", "PKR", "PLN", "QAR", "RON", "RSD", "RUB", "SAR", "SBD", "SCR", "SDG", "SEK", "SGD",
        "SHP", "SLE", "SOS", "SRD", "SSP", "STN", "SVC", "SYP", "SZL", "THB", "TJS", "TMT", "TOP",
        "TRY", "TTD", "TWD", "TZS", "UAH", "USD", "UYU", "UZS", "VED", "VES", "WST", "XCD", "XCG",
        "YER", "ZAR", "ZMW", "ZWG",
    }
)  # fmt: skip


class StatementType(StrEnum):
    """What a statement does; reversal and void count negative in totals."""

    REGULAR = "regular"
    OFF_CYCLE = "off_cycle"
    ADJUSTMENT = "adjustment"
    CORRECTION = "correction"
    REVERSAL = "reversal"
    VOID = "void"


CORRECTING = frozenset({StatementType.CORRECTION, StatementType.REVERSAL, StatementType.VOID})
"""Types that must name the statement they correct."""


def _currency(value: object) -> str:
    if not isinstance(value, str) or value not in CURRENCIES:
        message = "an ISO 4217 currency with two decimals"
        raise ValueError(message)
    return value


def _statement_id(value: object) -> str | None:
    """Empty is absent, in key and digest."""
    if value is None or value == "":
        return None
    if not isinstance(value, str) or len(value) > STATEMENT_ID_LENGTH_MAX:
        message = "text of at most 200 characters"
        raise ValueError(message)
    return value


EmployeeId = Annotated[str, StringConstraints(strict=True, pattern=r"^[A-Z0-9]{6,12}$")]
Key = Annotated[str, StringConstraints(strict=True, pattern=r"^[0-9a-f]{64}$")]


class Line(Contract):
    """One line of earnings, deductions or taxes. Unknown members of a line are kept."""

    code: Text64
    amount: Money
    ytd: Money | None = None
    """The year's sum, this statement included."""


Lines = Annotated[tuple[Line, ...], at_most(LINES_MAX)]


class PayrollStatement(Contract):
    """A statement as published. Building it with a float amount raises `TypeError`."""

    employee_id: EmployeeId
    pay_period_start: Day
    pay_period_end: Day
    pay_date: Day | None = None
    source_run_id: Printable128
    statement_id: Annotated[str | None, PlainValidator(_statement_id)] = None
    statement_type: StatementType = StatementType.REGULAR
    corrects: Key | None = None
    idempotency_key: Text200 | None = None
    """Kept as `supplied_key`; the key itself is always derived."""
    correlation_id: CorrelationId | None = None
    gross_pay: Magnitude
    net_pay: Money | None = None
    ytd_gross: Money | None = None
    hours: Quantity | None = None
    earnings: Lines = ()
    deductions: Lines = ()
    taxes: Lines = ()
    pay_code: Text64 | None = None
    pay_group: Text64 | None = None
    pay_frequency: Text64 | None = None
    currency: Annotated[str, PlainValidator(_currency)] = DEFAULT_CURRENCY
    tax_jurisdiction: Text64
    residence_jurisdiction: Text64 | None = None

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        """Rules that concern more than one field."""
        start, end = self.pay_period_start, self.pay_period_end
        if end < start:
            message = "pay_period_end: not before pay_period_start"
            raise ValueError(message)
        if (end.year, end.month, end.day) > (start.year + 1, start.month, start.day):
            message = "pay_period_end: at most one year after pay_period_start"
            raise ValueError(message)
        if self.statement_type in CORRECTING and self.corrects is None:
            message = "corrects: required for correction, reversal and void"
            raise ValueError(message)
        return self
