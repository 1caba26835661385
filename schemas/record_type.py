"""What a record type declares. One folder under `schemas/` per type; see `record_types.py`.

A type knows its contract, its key and its ledger table. It knows nothing of Kafka or PostgreSQL
clients: table and column names here are data that `connectors/postgres` reads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from schemas.canonical import CANONICAL_VERSION
from schemas.decision_set import DecisionSet
from schemas.masking import Shown
from schemas.reasons import Reason
from schemas.totals import Totals
from schemas.verdict import Violation

if TYPE_CHECKING:
    from schemas.avro_strict import AvroSchema

COMMON_LEDGER_COLUMNS: tuple[str, ...] = (
    "key",  # bytea, 32 bytes, primary key
    "canonical_digest",  # bytea, 32 bytes: SHA-256 of the canonical body
    "canonical_version",  # smallint
    "raw_digest",  # bytea, 32 bytes
    "incarnation",  # integer
    "partition",  # integer
    "record_offset",  # bigint
    "kafka_timestamp",  # bigint, milliseconds since the epoch, -1 when the record had none
    "decision_set",  # bytea, 32 bytes
    "contract_version",  # smallint
    "writer_schema",  # bytea, 8 bytes CRC-64-AVRO of the schema it was written with; null for JSON
    "correlation_id",  # text
    "traceparent",  # text, nullable (W3C trace context, carried to the committed event)
    "supplied_key",  # text, nullable
    "flags",  # text[]
    "body",  # text: the canonical JSON of contract fields and unknown members (RFC 8785)
)
"""First columns of every ledger table, in COPY order."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of a record besides its decoded members, handed to a type's `decide`."""

    topic: str
    incarnation: int
    partition: int
    offset: int
    timestamp: int
    """Kafka timestamp in milliseconds, or -1."""
    observed_at: int
    """Milliseconds the clock-skew check compares with: `wb-observed-at`, else `timestamp`; -1
    switches the check off."""
    raw_digest: bytes
    header_correlation_id: str | None
    traceparent: str | None
    writer_schema: bytes | None


def common_values(
    facts: Facts,
    decision_set: DecisionSet,
    *,
    key: bytes,
    canonical_digest: bytes,
    correlation_id: str,
    supplied_key: str | None,
    flags: list[str],
    body: str,
) -> tuple[object, ...]:
    """The values of `COMMON_LEDGER_COLUMNS`, in their order: the beginning of every ledger row."""
    return (
        key,
        canonical_digest,
        CANONICAL_VERSION,
        facts.raw_digest,
        facts.incarnation,
        facts.partition,
        facts.offset,
        facts.timestamp,
        decision_set.digest,
        decision_set.contract_version,
        facts.writer_schema,
        correlation_id,
        facts.traceparent,
        supplied_key,
        flags,
        body,
    )


COMMON_STAMPS: tuple[str, ...] = (
    "incarnation",
    "partition",
    "kafka_timestamp",
    "raw_digest",
    "canonical_digest",
    "canonical_version",
    "decision_set",
    "contract_version",
    "writer_schema",
    "correlation_id",
    "flags",
)
"""Common columns that every committed event has as fields of the same name."""
_STAMPS = tuple((name, COMMON_LEDGER_COLUMNS.index(name)) for name in COMMON_STAMPS)
_OFFSET = COMMON_LEDGER_COLUMNS.index("record_offset")


def common_fields(row: Sequence[object], raw_topic: str) -> dict[str, object]:
    """What a committed event says of its record besides the contract's own fields, from the ledger
    row; chunk and audit index are filled in by later versions of the gate."""
    return {
        **{name: row[index] for name, index in _STAMPS},
        "topic": raw_topic,
        "offset": row[_OFFSET],
        "run": None,
        "chunk": None,
        "audit_index": None,
    }


@dataclass(frozen=True, slots=True)
class Refusal:
    """A type's own refusal of a decoded record."""

    reason: Reason
    violations: tuple[Violation, ...]
    key: bytes | None = None
    safety_critical: bool = False
    correlation_id: str | None = None
    """From the record's own field when it could be read."""


@dataclass(slots=True)
class Fit:
    """A decoded record that keeps its contract, ready for the ledger and the committed topic."""

    key: bytes
    canonical_digest: bytes
    row: tuple[object, ...]
    receipts: tuple[tuple[object, ...], ...]
    event_key: bytes
    event_value: bytes
    correlation_id: str
    safety_critical: bool = False


@dataclass(frozen=True, slots=True)
class Runs:
    """How the records of a type belong to runs whose totals are controlled; see `schemas.chunk`.

    Each function is pure, takes members as decoded, and never raises for what a record can hold.
    """

    field: str
    """The field that names the run."""
    run_of: Callable[[Mapping[str, object]], str | None]
    """The run's name, None when it cannot be read."""
    amount_of: Callable[[Mapping[str, object]], Decimal | None]
    """What the record adds to its run's total, with its sign; None when it cannot be read."""
    currency_of: Callable[[Mapping[str, object]], str]
    """The currency of that amount, ISO 4217."""


@dataclass(frozen=True, slots=True)
class RecordType:
    """One kind of record, and everything the generic code asks of it."""

    name: str
    """`payroll` or `dvir`; also the prefix of its topics, tables and constraints."""
    folder: Path
    raw_schemas: tuple[AvroSchema, ...]
    """Avro schemas of raw values, oldest first; versions are added, never edited."""
    committed_schemas: tuple[AvroSchema, ...]
    ledger_columns: tuple[str, ...]
    """`COMMON_LEDGER_COLUMNS`, then the type's own, in COPY order."""
    receipts_table: str | None
    receipt_columns: tuple[str, ...]
    decide: Callable[[Mapping[str, object], Facts, DecisionSet], Fit | Refusal]
    """Pure. Takes members as decoded (JSON numbers as int or `jiter.LosslessFloat`, Avro values as
    Python ones).
    Never raises for anything a record can hold."""
    event_of: Callable[[Sequence[object]], tuple[bytes, bytes]]
    """Pure. Ledger row (values in `ledger_columns` order, as written or as read back) to the
    committed event's (key, value): the same bytes that `decide` yielded."""
    restore: Callable[
        [Mapping[str, Any], str | None], tuple[tuple[object, ...], tuple[tuple[object, ...], ...]]
    ]
    """Pure. A committed event's decoded members and its `traceparent` to ledger row and receipts,
    as `decide` yielded them. Raises `ValueError`, `TypeError` or `LookupError` for what is no such
    event."""
    identify: Callable[[Mapping[str, object]], str | None]
    """Pure. The Kafka message key a publisher should use for these members; None if there is
    none to be found."""
    shown: Shown
    """What is no personal data; everything else is masked unless revealed."""
    runs: Runs | None = None
    """For a type that comes in runs."""
    observed_fields: tuple[str, ...] = ()
    """Fields that tell when a record was first seen, the best first: what a back-fill says in
    `wb-observed-at`. Empty where no clock is checked."""
    totals: Totals | None = None
    """What is added up over records of the type, if it has money."""

    @property
    def run_field(self) -> str | None:
        """The field that names the run a record belongs to, if the type has runs."""
        return None if self.runs is None else self.runs.field

    @property
    def raw_topic(self) -> str:
        """Topic upstream systems publish to."""
        return f"{self.name}.raw"

    @property
    def committed_topic(self) -> str:
        """Topic downstream scorers read."""
        return f"{self.name}.committed"

    @property
    def quarantine_topic(self) -> str:
        """Topic of rejects, keyed by reason."""
        return f"{self.name}.quarantine"

    @property
    def manifests_topic(self) -> str:
        """Topic of the manifests of published runs, for a type that has runs."""
        return f"{self.name}.manifests"

    @property
    def ledger_table(self) -> str:
        """The type's ledger table."""
        return f"{self.name}_ledger"

    @property
    def migrations(self) -> Path:
        """Folder of the type's own SQL migrations."""
        return self.folder / "migrations"

    @property
    def examples(self) -> Path:
        """Folder of examples: `valid/` and one folder per reason."""
        return self.folder / "examples"
