"""Driver vehicle inspection reports: everything that belongs to the record type."""

from schemas.dvir.checks import LEDGER_COLUMNS, RECEIPT_COLUMNS, decide, event_of, identify
from schemas.dvir.versions import COMMITTED, FOLDER, RAW
from schemas.record_type import RecordType

RECORD_TYPE = RecordType(
    name="dvir",
    folder=FOLDER,
    raw_schemas=RAW,
    committed_schemas=(COMMITTED,),
    ledger_columns=LEDGER_COLUMNS,
    receipts_table="dvir_signature",
    receipt_columns=RECEIPT_COLUMNS,
    decide=decide,
    event_of=event_of,
    identify=identify,
    observed_fields=("received_at", "inspected_at"),
)
