"""Payroll statements: everything that belongs to the record type."""

from schemas.masking import STAMPS_SHOWN, Shown
from schemas.payroll.checks import LEDGER_COLUMNS, decide, event_of, identify
from schemas.payroll.restore import restore
from schemas.payroll.runs import RUNS, TOTALS
from schemas.payroll.versions import COMMITTED, FOLDER, RAW
from schemas.record_type import RecordType

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
    restore=restore,
    identify=identify,
    shown=SHOWN,
    runs=RUNS,
    totals=TOTALS,
)
