"""Driver vehicle inspection reports: everything that belongs to the record type."""

from schemas.dvir.checks import LEDGER_COLUMNS, RECEIPT_COLUMNS, decide, event_of, identify
from schemas.dvir.restore import restore
from schemas.dvir.versions import COMMITTED, FOLDER, RAW
from schemas.masking import STAMPS_SHOWN, Shown
from schemas.record_type import RecordType

# Vehicles are shown, persons are not, nor is free text, what a vendor wrote beside it, where the
# vehicle was, and links, which may carry their own credentials.
SHOWN = Shown(
    fields=STAMPS_SHOWN
    | {
        "idempotency_key",
        "source",
        "report_id",
        "report_version",
        "source_updated_at",
        "event",
        "inspection_type",
        "inspected_at",
        "received_at",
        *(
            f"units[].{name}"
            for name in (
                "role",
                "vin",
                "legacy_serial",
                "unit_number",
                "odometer_m",
                "odometer_source_unit",
                "engine_hours",
            )
        ),
        "condition",
        "condition_source",
        "certification.at",
        "certification.method",
        "signatures[].role",
        "signatures[].signed_at",
        *(
            f"defects[].{name}"
            for name in (
                "defect_id",
                "unit",
                "code",
                "part",
                "regulated",
                "severity",
                "outcome",
                "repaired_at",
            )
        ),
        "attachments[].media_type",
        "attachments[].bytes",
        "carrier",
        "capture_method",
        "unit_identifier",
        "defects_open",
        "critical",
        "raw_digest",
        "canonical_digest",
    },
    message_key=True,
)

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
    restore=restore,
    identify=identify,
    shown=SHOWN,
    observed_fields=("received_at", "inspected_at"),
)
