"""Payroll statements: everything that belongs to the record type."""

from schemas.masking import STAMPS_SHOWN, Shown
from schemas.payroll.checks import LEDGER_COLUMNS, decide, event_of, identify
from schemas.payroll.model import CURRENCIES, DEFAULT_CURRENCY, StatementType
from schemas.payroll.versions import COMMITTED, FOLDER, RAW
from schemas.record_type import RecordType
from schemas.totals import Total, Totals

# An amount is personal together with the employee: what names the employee is masked, and with it
# the key and the digests, which are hashes over few unknown characters.
SHOWN = Shown(
    fields=STAMPS_SHOWN
    | {
        "pay_period_start",
        "pay_period_end",
        "pay_date",
        "source_run_id",
        "statement_type",
        "gross_pay",
        "net_pay",
        "ytd_gross",
        "hours",
        *(
            f"{lines}[].{name}"
            for lines in ("earnings", "deductions", "taxes")
            for name in ("code", "amount", "ytd")
        ),
        "pay_code",
        "pay_group",
        "pay_frequency",
        "currency",
        "tax_jurisdiction",
        "authority",
        "authority_level",
        "rule_ids",
    },
    message_key=False,
)

# A reversal or void takes back the magnitudes it states, hours included.
TOTALS = Totals(
    of=(
        Total("gross_pay", 14, 2, per_currency=True, required=True),
        Total("hours", 9, 4),
    ),
    kind_field="statement_type",
    kind_default=StatementType.REGULAR.value,
    signs={
        kind.value: -1 if kind in {StatementType.REVERSAL, StatementType.VOID} else 1
        for kind in StatementType
    },
    currency_field="currency",
    currency_default=DEFAULT_CURRENCY,
    currencies=CURRENCIES,
)

RECORD_TYPE = RecordType(
    name="payroll",
    folder=FOLDER,
    raw_schemas=RAW,
    committed_schemas=(COMMITTED,),
    ledger_columns=LEDGER_COLUMNS,
    receipts_table=None,
    receipt_columns=(),
    decide=decide,
    event_of=event_of,
    identify=identify,
    shown=SHOWN,
    run_field="source_run_id",
    totals=TOTALS,
)
