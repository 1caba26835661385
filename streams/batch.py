"""The protocol for one batch, numbered as in the specification and the README.

1. Fetch      `connectors.kafka.source` (bounded), then `resolve_schemas` here
2. Decide     `streams.decide.decide_batch`: pure
3. Persist    `persist`: one PostgreSQL transaction
4. Emit       `emit`: one Kafka transaction

`streams.partition` calls these in order for each batch of its partition and owns what happens when
one of them fails. Between deciding and settling is the place where chunks will be kept.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from connectors.errors import DatabaseUnavailable, OwnershipLost, invariant
from connectors.ports import (
    Claim,
    Counts,
    EmittedCursor,
    Emitter,
    Fetched,
    Interventions,
    LastRecord,
    Ledger,
    LedgerTransaction,
    OwedBatch,
    Page,
    SchemaStore,
)
from schemas import envelope
from schemas.avro_strict import AvroSchema, SchemaRef
from schemas.decision_set import DecisionSet
from schemas.envelope import Headers, RawRecord, Source
from schemas.quarantine import quarantine_event, quarantine_row
from schemas.record_type import COMMON_LEDGER_COLUMNS, RecordType
from schemas.verdict import Accepted, Decided, Event, Holder, Refused, Settled
from schemas.verdict_page import pack
from streams import set_aside
from streams.breaker import Breaker, Paused, outcomes
from streams.decide import decide_batch, schema_refs
from streams.settle import colliding_keys, count, keys_of, settle

SETTLE_ROUNDS_MAX = 20
"""How often one transaction settles again after a race or a refusal. Each round resolves at least
one rival or one refused record; beyond this the transaction starts afresh."""

NO_AUDIT = "-"
"""Stands for audit size and root in the offset metadata until there is an audit log."""


class DecisionSetChanged(OwnershipLost):
    """Another decision set came into force; the batch is to be decided again under it."""

    def __init__(self, digest: bytes) -> None:
        super().__init__(f"decision set {digest.hex()[:12]} is now in force")
        self.digest = digest


@dataclass(frozen=True, slots=True)
class DecidedBatch:
    """A batch after step 2: immutable, so every try of step 3 starts from the same."""

    fetched: Fetched
    decided: Sequence[Decided]
    decision_set: DecisionSet


@dataclass(frozen=True, slots=True)
class PersistedBatch:
    """A batch after step 3: what step 4 owes the output topics."""

    batch_number: int
    next_offset: int
    committed: Sequence[Event]
    quarantined: Sequence[Event]
    counts: Counts
    reasons: Mapping[str, int]
    safety_critical: int
    """How many of the quarantined are DVIRs with an open major or out-of-service defect."""
    correlation_id: str | None
    """Of the batch's first record, to find its line in the logs."""
    breaker: Breaker | None = None
    """The partition's breaker after this batch; it may have tripped."""


# Step 1, second half ------------------------------------------------------------------------------


async def resolve_schemas(
    store: SchemaStore, records: Sequence[RawRecord]
) -> Mapping[SchemaRef, AvroSchema | None]:
    """Find the writer schemas a batch names. Raises `SchemaStoreUnavailable` (retryable)."""
    return {ref: await store.find(ref) for ref in sorted(schema_refs(records), key=str)}


# Step 2 -------------------------------------------------------------------------------------------


def decide(
    fetched: Fetched,
    record_type: RecordType,
    source: Source,
    decision_set: DecisionSet,
    schemas: Mapping[SchemaRef, AvroSchema | None],
    holds: frozenset[int] = frozenset(),
) -> DecidedBatch:
    """Decide every record of a batch, except those that an operator set aside (`holds`). Pure;
    never raises for anything a record can hold."""
    records = set_aside.free(fetched.records, holds)
    decided = decide_batch(records, record_type, source, decision_set, schemas)
    every = set_aside.with_held(fetched.records, decided, source, holds)
    return DecidedBatch(fetched, every, decision_set)


# Step 3 -------------------------------------------------------------------------------------------


async def persist(
    ledger: Ledger,
    record_type: RecordType,
    source: Source,
    group: str,
    token: bytes,
    batch: DecidedBatch,
    breaker: Breaker | None = None,
) -> PersistedBatch:
    """Settle and write a batch in one transaction, moving D with it.

    A `breaker` that trips on the batch pauses the partition in the same transaction; the batch
    itself stands.

    Atomic: all of ledger, receipts, quarantine, verdict page and cursor, or nothing. Raises
    `ClaimRefused` when the partition is no longer ours or does not stand where the batch begins,
    `DecisionSetChanged` when the batch must be decided again, `DatabaseUnavailable` (retryable;
    when the commit's answer was lost the outcome is unknown, and D tells), `Paused`, `StopAll` on a
    stop mark.
    """
    async with ledger.transaction(source, group) as tx:
        claim = await tx.claim(token, batch.fetched.begin)
        if claim.active_decision_set != batch.decision_set.digest:
            raise DecisionSetChanged(claim.active_decision_set)
        refuse_paused(source, claim.interventions)
        batch = _with_holds(batch, source, claim.interventions.holds)
        settled = await _settle_and_write(tx, source, batch)
        quarantine_rows = _quarantine_rows(record_type, source, batch, settled)
        if quarantine_rows:
            await tx.write_quarantine(quarantine_rows)
        if breaker is not None:
            breaker = breaker.after(outcomes(settled, batch.fetched.records))
            if breaker.why is not None:
                await tx.pause(breaker.why)
        page = _page(batch, settled, claim)
        await tx.finish(page)
    return PersistedBatch(
        batch_number=page.batch_number,
        next_offset=page.next_offset,
        committed=[_committed_event(source, s) for s in settled if isinstance(s, Accepted)],
        quarantined=[quarantine_event(row) for row in quarantine_rows],
        counts=page.counts,
        reasons=Counter(str(s.reason) for s in settled if isinstance(s, Refused)),
        safety_critical=sum(isinstance(s, Refused) and s.safety_critical for s in settled),
        correlation_id=batch.decided[0].correlation_id if batch.decided else None,
        breaker=breaker,
    )


def refuse_paused(source: Source, interventions: Interventions) -> None:
    """Raises `Paused` while a pause is in force."""
    if interventions.pause is not None:
        message = (
            f"{source} is paused: {interventions.pause}. Look at the rejects, have their cause "
            f"mended, then `weighbridge resume {source} --why TEXT`"
        )
        raise Paused(message)


def _with_holds(batch: DecidedBatch, source: Source, holds: frozenset[int]) -> DecidedBatch:
    """The batch with the verdicts on positions that were set aside since it was decided."""
    fetched = batch.fetched
    mine = {offset for offset in holds if fetched.begin <= offset < fetched.next_offset}
    every = set_aside.with_held(fetched.records, batch.decided, source, mine)
    return replace(batch, decided=every)


async def _settle_and_write(
    tx: LedgerTransaction, source: Source, batch: DecidedBatch
) -> list[Settled]:
    """Probe, settle, write; again after a lost race or a refused record, until all rows are in."""
    keys = keys_of(batch.decided)
    refused: dict[int, Refused] = {}
    for _ in range(SETTLE_ROUNDS_MAX):
        held: Mapping[bytes, Holder] = await tx.probe(keys) if keys else {}
        colliding = colliding_keys(batch.decided, held)
        bodies = await tx.bodies(colliding) if colliding else {}
        settled = settle(batch.decided, source, held, bodies, refused)
        accepted = [s for s in settled if isinstance(s, Accepted)]
        if not accepted:
            return settled
        written = await tx.write_ledger(accepted)
        if written.refused:
            refused.update(written.refused)
        elif not written.raced:
            return settled
    message = f"{source}: the batch did not settle in {SETTLE_ROUNDS_MAX} rounds"
    raise DatabaseUnavailable(message)


def _quarantine_rows(
    record_type: RecordType, source: Source, batch: DecidedBatch, settled: Sequence[Settled]
) -> list[tuple[object, ...]]:
    digest = batch.decision_set.digest
    return [
        quarantine_row(outcome, record, source, record_type.name, digest)
        for outcome, record in zip(settled, batch.fetched.records, strict=True)
        if isinstance(outcome, Refused)
    ]


def _page(batch: DecidedBatch, settled: Sequence[Settled], claim: Claim) -> Page:
    """The verdict page and the cursor move of a settled batch; checks the balance (G1)."""
    fetched = batch.fetched
    counts = count(settled, records_in=len(fetched.records))
    invariant(counts.balanced, f"verdicts do not balance: {counts}")
    invariant(fetched.next_offset > fetched.begin, "a batch must move the cursor")
    cursor = claim.cursor
    invariant(cursor.counts.balanced, f"the cursor row does not balance: {cursor.counts}")
    last = cursor.last
    index = set_aside.last_read(fetched.records)
    if index is not None:
        final, final_decided = fetched.records[index], batch.decided[index]
        last = LastRecord(final.offset, final_decided.raw_digest, final.timestamp)
    return Page(
        begin=fetched.begin,
        next_offset=fetched.next_offset,
        batch_number=cursor.batch_number + 1,
        decision_set=batch.decision_set.digest,
        packed=pack(settled),
        counts=counts,
        last=last,
        emitted_offset=fetched.begin,  # step 4 of the batch before this one is done: E = D here
    )


# Step 4 -------------------------------------------------------------------------------------------


async def emit(emitter: Emitter, deployment: str, source: Source, batch: PersistedBatch) -> None:
    """Send a persisted batch's events and the group's offset in one Kafka transaction.

    Raises what `Emitter.emit` raises; afterwards the emitter is to be thrown away and the partition
    assigned again.
    """
    metadata = offset_metadata(deployment, source.incarnation, batch.batch_number)
    cursor = EmittedCursor(batch.next_offset, metadata)
    await emitter.emit(batch.committed, batch.quarantined, cursor)


def owed_events(record_type: RecordType, source: Source, owed: OwedBatch) -> PersistedBatch:
    """Rebuild what step 4 owes for a batch from its rows, read back from the database. Pure."""
    committed = [_event_of_row(record_type, source, row) for row in owed.committed_rows]
    quarantined = [quarantine_event(row) for row in owed.quarantine_rows]
    return PersistedBatch(
        batch_number=owed.batch_number,
        next_offset=owed.next_offset,
        committed=committed,
        quarantined=quarantined,
        counts=Counts(),
        reasons={},
        safety_critical=0,
        correlation_id=None,
    )


_OFFSET = COMMON_LEDGER_COLUMNS.index("record_offset")
_TRACEPARENT = COMMON_LEDGER_COLUMNS.index("traceparent")


def _event_of_row(record_type: RecordType, source: Source, row: Sequence[object]) -> Event:
    key, value = record_type.event_of(row)
    offset, traceparent = row[_OFFSET], row[_TRACEPARENT]
    invariant(isinstance(offset, int), "record_offset is an integer")
    return Event(key, value, committed_headers(source, int(str(offset)), traceparent))


def _committed_event(source: Source, accepted: Accepted) -> Event:
    headers = committed_headers(source, accepted.offset, accepted.traceparent)
    return Event(accepted.event_key, accepted.event_value, headers)


def committed_headers(source: Source, offset: int, traceparent: object) -> Headers:
    """Few headers: each costs a reader microseconds; the rest is inside the event."""
    identity = (envelope.EVENT_ID, str(source.position(offset)).encode())
    if traceparent is None:
        return (identity,)
    return (identity, (envelope.TRACEPARENT, str(traceparent).encode()))


# The text beside the group's offset ---------------------------------------------------------------


def offset_metadata(deployment: str, incarnation: int, batch_number: int) -> str:
    """What is stored beside the emitted cursor: who moved it, and with which batch."""
    return f"wb1 {deployment} {incarnation} {batch_number} {NO_AUDIT} {NO_AUDIT}"


@dataclass(frozen=True, slots=True)
class OffsetMetadata:
    """`offset_metadata`, read back."""

    deployment: str
    incarnation: int
    batch_number: int

    @classmethod
    def parse(cls, text: str) -> OffsetMetadata | None:
        """None when the text is not ours: somebody else moved the offset."""
        parts = text.split(" ")
        if len(parts) != 6 or parts[0] != "wb1" or not (parts[2] + parts[3]).isdigit():  # noqa: PLR2004
            return None
        return cls(parts[1], int(parts[2]), int(parts[3]))
