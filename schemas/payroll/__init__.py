"""Payroll statements: everything that belongs to the record type."""

from schemas.payroll.checks import LEDGER_COLUMNS, decide, event_of, identify
from schemas.payroll.runs import RUNS
from schemas.payroll.versions import COMMITTED, FOLDER, RAW
from schemas.record_type import RecordType

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
    runs=RUNS,
)
