"""Which run a statement belongs to, and what it adds to the run's total. Pure.

Read from members as decoded, before and whether or not they keep the contract: a control total
covers what was sent, refused statements and duplicates included (SPEC 5).
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal

from schemas.chunk import is_run
from schemas.exact import decimal_of
from schemas.payroll.model import CURRENCIES, DEFAULT_CURRENCY, StatementType
from schemas.record_type import Runs
from schemas.totals import Total, Totals

RUN_FIELD = "source_run_id"
NEGATIVE = frozenset({StatementType.REVERSAL.value, StatementType.VOID.value})
"""Types whose gross pay, a magnitude, counts negative in totals."""


def run_of(members: Mapping[str, object]) -> str | None:
    """The source run, None when it cannot be read."""
    found = members.get(RUN_FIELD)
    return found if isinstance(found, str) and is_run(found) else None


def amount_of(members: Mapping[str, object]) -> Decimal | None:
    """Signed gross pay, exact; None when it cannot be read."""
    try:
        amount = decimal_of(members.get("gross_pay"), 14, 2)
    except (ValueError, TypeError):
        return None
    kind = members.get("statement_type")
    return -amount if isinstance(kind, str) and kind in NEGATIVE else amount


def currency_of(members: Mapping[str, object]) -> str:
    """The currency; the contract's default when there is none that can be read."""
    found = members.get("currency")
    return found if isinstance(found, str) and found in CURRENCIES else DEFAULT_CURRENCY


RUNS = Runs(RUN_FIELD, run_of, amount_of, currency_of)

# A reversal or void takes back the magnitudes it states, hours included.
TOTALS = Totals(
    of=(
        Total("gross_pay", 14, 2, per_currency=True, required=True),
        Total("hours", 9, 4),
    ),
    kind_field="statement_type",
    kind_default=StatementType.REGULAR.value,
    signs={kind.value: -1 if kind.value in NEGATIVE else 1 for kind in StatementType},
    currency_field="currency",
    currency_default=DEFAULT_CURRENCY,
    currencies=CURRENCIES,
)
