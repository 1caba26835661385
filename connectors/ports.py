"""The ports: what the stream asks of the outside, and what it may rely on.

Each port has a real implementation (`kafka/`, `postgres/`, `schema_store/`) and one in memory
(`memory.py`); one test suite per port runs on both.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Protocol

from schemas.avro_strict import AvroSchema, SchemaRef
from schemas.decision_set import DecisionSet
from schemas.envelope import RawRecord, Record, Source
from schemas.verdict import Accepted, Event, Holder, Refused, Settled

# --- Kafka: reading -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Fetched:
    """A batch as read: records of one partition, and where the consumer stands afterwards."""

    begin: int
    """The position before the fetch: where the batch before it ended."""
    next_offset: int
    """The position after it; beyond the last record where markers or aborted records follow."""
    records: Sequence[RawRecord]


@dataclass(frozen=True, slots=True)
class Unread(Record):
    """What stands for a record that cannot be read, at an offset that an operator set aside.

    Its bytes are those that could be had without checking them, or none.
    """

    why: str = ""
    """What stood in the way, without any value."""


@dataclass(frozen=True, slots=True)
class LogRange:
    """What a partition's log holds now."""

    start_offset: int
    last_stable_offset: int
    """What `read_committed` may reach: lag is this minus the position, so markers are no lag."""
    end_offset: int


# --- Kafka: the emitted cursor --------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class EmittedCursor:
    """The group's committed offset for a partition, with the text stored beside it."""

    next_offset: int
    metadata: str


class Emitter(Protocol):
    """The transactional producer of one partition, in one consumer group.

    Its transactional id is `weighbridge/<topic>/<partition>/<group>`, so starting it fences the
    producer that any earlier owner holds (step (a)).
    """

    async def start(self) -> None:
        """InitProducerId. Raises `BrokerUnavailable`. May be called once."""

    async def committed(self) -> EmittedCursor | None:
        """The emitted cursor E, read from the group coordinator. None when the group has none.

        Only meaningful after `start`: then no transaction of this partition is pending.
        Raises `BrokerUnavailable`.
        """

    async def emit(
        self,
        committed: Sequence[Event],
        quarantined: Sequence[Event],
        cursor: EmittedCursor,
    ) -> None:
        """Step 4: all events and the group's offset in one Kafka transaction.

        Atomic. Every produce result is checked before the commit. Raises `Fenced`,
        `BrokerUnavailable`, or `Stop` when an output topic refuses an event; after any of these
        the transaction is aborted where it can be, its outcome is unknown where the commit's answer
        was lost, and this emitter must be closed: E tells what happened.
        """

    async def close(self) -> None:
        """Abort what is open and release the connection, within a few seconds. Never raises."""


# --- PostgreSQL: the decided cursor and the ledger ------------------------------------------------


@dataclass(frozen=True, slots=True)
class Counts:
    """Records by verdict; the G1 balance is `records_in == sum of the rest`."""

    records_in: int = 0
    committed: int = 0
    duplicate: int = 0
    quarantined: int = 0
    held: int = 0
    close_records: int = 0

    @property
    def balanced(self) -> bool:
        """Guarantee G1 for whatever these counts cover; close records stand outside it."""
        return self.records_in == self.committed + self.duplicate + self.quarantined + self.held

    def __add__(self, other: Counts) -> Counts:
        return Counts(
            self.records_in + other.records_in,
            self.committed + other.committed,
            self.duplicate + other.duplicate,
            self.quarantined + other.quarantined,
            self.held + other.held,
            self.close_records + other.close_records,
        )


@dataclass(frozen=True, slots=True)
class LastRecord:
    """The last decided record, by which a log is recognised again (step (d))."""

    offset: int
    raw_digest: bytes
    timestamp: int


@dataclass(frozen=True, slots=True)
class Cursor:
    """The decided cursor of a partition, as stored in `partition_cursor`."""

    source: Source
    cluster_id: str
    first_offset: int
    """Where this incarnation's reading began."""
    next_offset: int
    """D: the first offset without a verdict or hold."""
    batch_number: int
    """Number of the last persisted batch; 0 before the first."""
    last: LastRecord | None
    emitted_offset: int | None
    """The last emitted cursor known here; a mirror, not the truth."""
    counts: Counts = field(default_factory=Counts)


@dataclass(frozen=True, slots=True)
class Interventions:
    """What keeps a partition, or single positions of it, from going on; read at assignment and at
    every claim."""

    pause: str | None = None
    """Why the partition is paused, until an operator resumes it."""
    holds: frozenset[int] = frozenset()
    """Offsets from D on that an operator set aside."""


@dataclass(frozen=True, slots=True)
class Claim:
    """What the claim of a batch found (start of step 3)."""

    cursor: Cursor
    active_decision_set: bytes
    """Digest of the decision set now in force."""
    interventions: Interventions = Interventions()


@dataclass(frozen=True, slots=True)
class Written:
    """How the database took the ledger rows of a batch.

    Exactly one of these holds: all rows are in (`not raced and not refused`); another transaction
    took one of the keys since the probe (`raced`); the database refused some records for their data
    (`refused`). In the latter two nothing was written and the batch is to be settled again.
    """

    raced: bool = False
    refused: Mapping[int, Refused] = field(default_factory=dict)
    """Offset of each refused record to its `persist_failed` verdict."""


@dataclass(frozen=True, slots=True)
class Page:
    """A batch's verdict page and the cursor move that goes with it."""

    begin: int
    next_offset: int
    batch_number: int
    decision_set: bytes
    packed: bytes
    """`schemas.verdict_page.pack` of the settled records."""
    counts: Counts
    last: LastRecord | None
    emitted_offset: int | None


class LedgerTransaction(Protocol):
    """Step 3, inside one PostgreSQL transaction. Leaving the context commits.

    All methods raise `DatabaseUnavailable` (retryable) when the session is lost, a timeout strikes,
    or the server refuses for a reason that is not the data's.
    """

    async def claim(self, token: bytes, begin: int) -> Claim:
        """Lock the cursor row. Raises `ClaimRefused` unless the token is ours and D is `begin`;
        `StopAll` when the deployment carries a stop mark."""

    async def probe(self, keys: Sequence[bytes]) -> Mapping[bytes, Holder]:
        """Which of these keys the ledger (or `retired_key`) already holds."""

    async def bodies(self, keys: Sequence[bytes]) -> Mapping[bytes, str]:
        """Canonical bodies of committed rows, to name the fields in which a collision differs."""

    async def write_ledger(self, accepted: Sequence[Accepted]) -> Written:
        """Write ledger rows and receipts in key order: all of them or, see `Written`, none."""

    async def write_quarantine(self, rows: Sequence[tuple[object, ...]]) -> None:
        """Write quarantine rows, in the order of `schemas.quarantine.QUARANTINE_COLUMNS`."""

    async def pause(self, why: str) -> None:
        """Pause the partition from the next claim on, for whichever worker owns it."""

    async def finish(self, page: Page) -> None:
        """Store the verdict page, add to the counts and move D. Last call before the commit."""


@dataclass(frozen=True, slots=True)
class OwedBatch:
    """A persisted batch whose emission is not known to have happened, read back for step (c)."""

    batch_number: int
    next_offset: int
    committed_rows: Sequence[Sequence[object]]
    """Ledger rows in offset order, values in the type's `ledger_columns` order."""
    quarantine_rows: Sequence[Sequence[object]]


class Ledger(Protocol):
    """The ledger of one record type as the stream sees it."""

    async def deployment(self) -> str:
        """The random id made by the first `db migrate`."""

    async def take(
        self, source_topic: str, partition: int, group: str, token: bytes
    ) -> Cursor | None:
        """Step (b): make `token` the owner of the cursor row; None when there is no row yet.

        Fences the former owner's writes. Sessions of our role and application name that block the
        row longer than the lock timeout are terminated. Raises `DatabaseUnavailable`, `StopAll`.
        """

    async def begin(
        self, source: Source, group: str, token: bytes, cluster_id: str, first_offset: int
    ) -> Cursor:
        """Create the cursor row of a partition never seen before, at `first_offset`."""

    def transaction(
        self, source: Source, group: str
    ) -> AbstractAsyncContextManager[LedgerTransaction]:
        """One transaction with the session timeouts of the batch deadline; rolls back on error.

        A commit is never cancelled: past its deadline the connection is closed and
        `DatabaseUnavailable` is raised; D tells what happened.
        """

    def owed(
        self, source: Source, group: str, emitted_offset: int, decided_offset: int
    ) -> AsyncIterator[OwedBatch]:
        """The batches between E and D in order. Raises `InvariantViolation` when the pages do
        not join up from E to D."""

    async def batch_end(self, source: Source, group: str, batch_number: int) -> int | None:
        """Where the batch of this number ended; None if there is no such page."""

    async def interventions(self, source: Source, group: str) -> Interventions:
        """What keeps the partition, or positions of it, from going on now."""

    async def decision_set(self, digest: bytes) -> DecisionSet:
        """A stored decision set. Raises `ConfigurationError` when this code cannot read it."""

    async def active_decision_set(self) -> DecisionSet:
        """The decision set now in force."""

    async def set_stop_mark(self, why: str) -> None:
        """Stop every partition of the deployment at its next claim."""


# --- Schemas --------------------------------------------------------------------------------------


class SchemaStore(Protocol):
    """Where writer schemas are found by the id a value carries."""

    async def find(self, ref: SchemaRef) -> AvroSchema | None:
        """The schema, or None for a definite "no such id".

        Found schemas are cached for ever, a "no" for a short time. Raises
        `SchemaStoreUnavailable` when the store cannot be asked.
        """


__all__ = [
    "Claim",
    "Counts",
    "Cursor",
    "EmittedCursor",
    "Emitter",
    "Fetched",
    "Interventions",
    "LastRecord",
    "Ledger",
    "LedgerTransaction",
    "LogRange",
    "OwedBatch",
    "Page",
    "SchemaStore",
    "Settled",
    "Unread",
    "Written",
]
