"""The ports in memory, for simulation and unit tests: one broker, one database, no I/O.

They keep the same promises as the real ones, with the same errors: a second emitter of one
transactional id fences the first, a claim needs the token and the place, a transaction is all or
nothing. Faults are acted out by `Faults`, a hook called at named points.
"""

from __future__ import annotations

import asyncio
import bisect
import dataclasses
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from connectors.errors import (
    ClaimRefused,
    ConfigurationError,
    Fenced,
    StopAll,
    invariant,
)
from connectors.ports import (
    Claim,
    Cursor,
    EmittedCursor,
    Fetched,
    Interventions,
    LogRange,
    OwedBatch,
    Page,
    Written,
)
from schemas.avro_strict import AvroSchema, SchemaRef
from schemas.decision_set import DecisionSet
from schemas.envelope import Position, RawRecord, Record, Source
from schemas.record_type import COMMON_LEDGER_COLUMNS, RecordType
from schemas.verdict import Accepted, Event, Holder, Refused, Verdict
from schemas.verdict_page import unpack

Place = tuple[str, int]
Hook = Callable[[str], None]
"""Called with the name of a point in the protocol; may raise to act out a fault there."""

_COLUMN = {name: index for index, name in enumerate(COMMON_LEDGER_COLUMNS)}


def no_faults(point: str) -> None:
    """The hook of a world in which nothing goes wrong."""


# --- Kafka ----------------------------------------------------------------------------------------


@dataclass(slots=True)
class MemoryBroker:
    """Raw logs, output topics as `read_committed` sees them, and group offsets."""

    hook: Hook = no_faults
    cluster: str = "memory"
    logs: dict[Place, list[Record]] = field(default_factory=dict)
    starts: dict[Place, int] = field(default_factory=dict)
    ends: dict[Place, int] = field(default_factory=dict)
    outputs: dict[Place, list[Event]] = field(default_factory=dict)
    offsets: dict[tuple[str, Place], EmittedCursor] = field(default_factory=dict)
    epochs: dict[str, int] = field(default_factory=dict)
    positions: dict[Place, int] = field(default_factory=dict)

    def append(self, topic: str, partition: int, record: Record) -> int:
        """Add a record to a raw log, at the log's end whatever offset it carries."""
        place = (topic, partition)
        offset = self.ends.get(place, 0)
        self.logs.setdefault(place, []).append(dataclasses.replace(record, offset=offset))
        self.ends[place] = offset + 1
        return offset

    def marker(self, topic: str, partition: int) -> None:
        """A transaction marker or an aborted record: takes an offset, is never delivered."""
        place = (topic, partition)
        self.ends[place] = self.ends.get(place, 0) + 1

    def read(self, topic: str, partition: int, begin: int, records_max: int) -> Fetched | None:
        """What a consumer standing at `begin` gets, None when it stands at the end."""
        place = (topic, partition)
        log = self.logs.get(place, [])
        first = bisect.bisect_left(log, begin, key=lambda r: r.offset)
        records = log[first : first + records_max]
        at_end = first + records_max >= len(log)
        next_offset = self.ends.get(place, 0) if at_end else records[-1].offset + 1
        return Fetched(begin, next_offset, records) if next_offset > begin else None

    async def cluster_id(self) -> str:
        """The cluster's id."""
        return self.cluster

    async def log_range(self, topic: str, partition: int) -> LogRange:
        """What the log holds."""
        place = (topic, partition)
        end = self.ends.get(place, 0)
        return LogRange(self.starts.get(place, 0), end, end)

    async def read_record(self, topic: str, partition: int, offset: int) -> RawRecord | None:
        """The record at this offset, if there is one."""
        for record in self.logs.get((topic, partition), []):
            if record.offset == offset:
                return record
        return None

    def seek(
        self,
        topic: str,
        partition: int,
        offset: int,
        aside: frozenset[int] = frozenset(),  # noqa: ARG002 - every record here can be read
    ) -> None:
        """Remember where reading goes on."""
        self.positions[topic, partition] = offset


@dataclass(slots=True)
class MemoryEmitter:
    """`Emitter` over a `MemoryBroker`."""

    broker: MemoryBroker
    record_type: RecordType
    source: Source
    group: str
    epoch: int = -1

    @property
    def transactional_id(self) -> str:
        """The id that fences."""
        return f"weighbridge/{self.source.topic}/{self.source.partition}/{self.group}"

    async def start(self) -> None:
        """Take the next epoch of the transactional id."""
        self.broker.hook("init_producer_id")
        await asyncio.sleep(0)
        self.epoch = self.broker.epochs.get(self.transactional_id, 0) + 1
        self.broker.epochs[self.transactional_id] = self.epoch

    async def committed(self) -> EmittedCursor | None:
        """The group's offset."""
        self.broker.hook("read_emitted")
        await asyncio.sleep(0)
        return self.broker.offsets.get((self.group, (self.source.topic, self.source.partition)))

    async def emit(
        self,
        committed: Sequence[Event],
        quarantined: Sequence[Event],
        cursor: EmittedCursor,
    ) -> None:
        """All or nothing, unless fenced."""
        self.broker.hook("emit_begin")
        await asyncio.sleep(0)
        self.broker.hook("emit_middle")
        await asyncio.sleep(0)
        if self.broker.epochs.get(self.transactional_id) != self.epoch:
            message = f"{self.transactional_id} has a newer owner"
            raise Fenced(message)
        prefix = self.source.topic.removesuffix(self.record_type.raw_topic)
        number = self.source.partition
        for topic, events in (
            (self.record_type.committed_topic, committed),
            (self.record_type.quarantine_topic, quarantined),
        ):
            self.broker.outputs.setdefault((prefix + topic, number), []).extend(events)
        self.broker.offsets[self.group, (self.source.topic, number)] = cursor
        self.broker.hook("emit_committed")

    async def close(self) -> None:
        """Nothing to release."""


# --- PostgreSQL -----------------------------------------------------------------------------------


@dataclass(slots=True)
class Tables:
    """What a database holds for one record type."""

    cursors: dict[tuple[str, int, str], Cursor] = field(default_factory=dict)
    tokens: dict[tuple[str, int, str], bytes] = field(default_factory=dict)
    ledger: dict[bytes, tuple[object, ...]] = field(default_factory=dict)
    receipts: list[tuple[object, ...]] = field(default_factory=list)
    quarantine: dict[tuple[str, int, int, int], tuple[object, ...]] = field(default_factory=dict)
    pages: dict[tuple[str, int, int, str], list[Page]] = field(default_factory=dict)
    pauses: dict[tuple[str, int, str], str] = field(default_factory=dict)
    holds: set[Position] = field(default_factory=set)

    def copy(self) -> Tables:
        """A snapshot: what a transaction works on, or a backup that a test sets back to."""
        return Tables(
            dict(self.cursors),
            dict(self.tokens),
            dict(self.ledger),
            list(self.receipts),
            dict(self.quarantine),
            {key: list(pages) for key, pages in self.pages.items()},
            dict(self.pauses),
            set(self.holds),
        )


class MemoryLedger:
    """`Ledger` in memory. Transactions run one at a time on a copy of the tables."""

    def __init__(
        self,
        record_type: RecordType,
        hook: Hook = no_faults,
        refuses: Callable[[Accepted], Refused | None] = lambda _: None,
    ) -> None:
        self.record_type = record_type
        self.tables = Tables()
        self.hook = hook
        self.refuses = refuses
        """Stands in for constraints: a `persist_failed` verdict for a row it does not take."""
        self.sets: dict[bytes, DecisionSet] = {}
        self.active = self.activate(DecisionSet())
        self.stop_mark: str | None = None
        self._lock = asyncio.Lock()

    def activate(self, decision_set: DecisionSet) -> DecisionSet:
        """Bring a decision set into force."""
        self.sets[decision_set.digest] = decision_set
        self.active = decision_set
        return decision_set

    async def deployment(self) -> str:
        """A fixed id."""
        return "memory-deployment"

    async def take(
        self, source_topic: str, partition: int, group: str, token: bytes
    ) -> Cursor | None:
        """Step (b)."""
        self.hook("take")
        async with self._lock:
            self._check_stop_mark()
            key = (source_topic, partition, group)
            cursor = self.tables.cursors.get(key)
            if cursor is not None:
                self.tables.tokens[key] = token
            return cursor

    async def begin(
        self, source: Source, group: str, token: bytes, cluster_id: str, first_offset: int
    ) -> Cursor:
        """Create the cursor row."""
        self.hook("begin")
        async with self._lock:
            key = (source.topic, source.partition, group)
            if key in self.tables.cursors:
                message = f"{source}: another worker began it first"
                raise ClaimRefused(message)
            cursor = Cursor(source, cluster_id, first_offset, first_offset, 0, None, None)
            self.tables.cursors[key] = cursor
            self.tables.tokens[key] = token
            return cursor

    @asynccontextmanager
    async def transaction(self, source: Source, group: str) -> AsyncIterator[MemoryTransaction]:
        """Work on a copy; on leaving without error the copy becomes the truth."""
        async with self._lock:
            work = self.tables.copy()
            self.hook("transaction_begin")
            yield MemoryTransaction(self, work, source, group)
            self.hook("commit_begin")
            self.tables = work
            self.hook("commit_done")

    def check_claim(self, source: Source, group: str, token: bytes, begin: int) -> Cursor:
        """The claim's conditions. Raises `ClaimRefused` or `StopAll`."""
        self._check_stop_mark()
        key = (source.topic, source.partition, group)
        cursor = self.tables.cursors.get(key)
        if cursor is None or self.tables.tokens.get(key) != token or cursor.next_offset != begin:
            message = f"{source}: the cursor is not ours at {begin}"
            raise ClaimRefused(message)
        return cursor

    def _check_stop_mark(self) -> None:
        if self.stop_mark is not None:
            raise StopAll(self.stop_mark)

    async def owed(
        self, source: Source, group: str, emitted_offset: int, decided_offset: int
    ) -> AsyncIterator[OwedBatch]:
        """The batches between E and D."""
        at = emitted_offset
        for page in list(self._pages(source, group)):
            if page.begin < emitted_offset:
                continue
            invariant(page.begin == at, f"{source}: pages do not join up at {at}")
            at = page.next_offset
            yield self._owed_batch(source, page)
        invariant(at == decided_offset, f"{source}: pages end at {at}, not {decided_offset}")

    def _pages(self, source: Source, group: str) -> list[Page]:
        key = (source.topic, source.incarnation, source.partition, group)
        return self.tables.pages.get(key, [])

    def _owed_batch(self, source: Source, page: Page) -> OwedBatch:
        committed, quarantined = [], []
        for entry in unpack(page.packed):
            if entry.verdict is Verdict.COMMITTED and entry.key is not None:
                committed.append(self.tables.ledger[entry.key])
            elif entry.verdict is Verdict.QUARANTINED:
                place = (source.topic, source.incarnation, source.partition, entry.offset)
                quarantined.append(self.tables.quarantine[place])
        return OwedBatch(page.batch_number, page.next_offset, committed, quarantined)

    async def batch_end(self, source: Source, group: str, batch_number: int) -> int | None:
        """Where that batch ended."""
        for page in self._pages(source, group):
            if page.batch_number == batch_number:
                return page.next_offset
        return None

    async def interventions(self, source: Source, group: str) -> Interventions:
        """Pause and holds."""
        cursor = self.tables.cursors.get((source.topic, source.partition, group))
        return Interventions() if cursor is None else _interventions(self.tables, cursor, group)

    async def decision_set(self, digest: bytes) -> DecisionSet:
        """A stored set."""
        if digest not in self.sets:
            message = f"decision set {digest.hex()} is not stored"
            raise ConfigurationError(message)
        return self.sets[digest]

    async def active_decision_set(self) -> DecisionSet:
        """The one in force."""
        self.hook("active_decision_set")
        return self.active

    async def set_stop_mark(self, why: str) -> None:
        """Stop everything."""
        self.stop_mark = why


@dataclass(slots=True)
class MemoryTransaction:
    """`LedgerTransaction` on a copy of the tables."""

    ledger: MemoryLedger
    work: Tables
    source: Source
    group: str

    async def claim(self, token: bytes, begin: int) -> Claim:
        """Check token and place."""
        self.ledger.hook("claim")
        await asyncio.sleep(0)
        cursor = self.ledger.check_claim(self.source, self.group, token, begin)
        interventions = _interventions(self.work, cursor, self.group)
        return Claim(cursor, self.ledger.active.digest, interventions)

    async def probe(self, keys: Sequence[bytes]) -> Mapping[bytes, Holder]:
        """Which keys are held."""
        self.ledger.hook("probe")
        await asyncio.sleep(0)
        return {
            key: _holder(self.work.ledger[key], self.source.topic)
            for key in keys
            if key in self.work.ledger
        }

    async def bodies(self, keys: Sequence[bytes]) -> Mapping[bytes, str]:
        """Bodies of committed rows."""
        return {key: str(self.work.ledger[key][_COLUMN["body"]]) for key in keys}

    async def write_ledger(self, accepted: Sequence[Accepted]) -> Written:
        """All rows, or the refusals."""
        self.ledger.hook("write_ledger")
        await asyncio.sleep(0)
        refused = {a.offset: r for a in accepted if (r := self.ledger.refuses(a)) is not None}
        if refused:
            return Written(refused=refused)
        for row in sorted(accepted, key=lambda a: a.key):
            invariant(row.key not in self.work.ledger, "a key is written once (G2)")
            self.work.ledger[row.key] = row.row
            self.work.receipts.extend(row.receipts)
        return Written()

    async def write_quarantine(self, rows: Sequence[tuple[object, ...]]) -> None:
        """Rejects."""
        self.ledger.hook("write_quarantine")
        for row in rows:
            topic, incarnation, partition, offset = row[:4]
            place = (str(topic), int(str(incarnation)), int(str(partition)), int(str(offset)))
            invariant(place not in self.work.quarantine, "a position has one verdict (G1)")
            self.work.quarantine[place] = row

    async def pause(self, why: str) -> None:
        """Pause the partition."""
        self.work.pauses.setdefault((self.source.topic, self.source.partition, self.group), why)

    async def finish(self, page: Page) -> None:
        """Page, counts and D."""
        self.ledger.hook("finish")
        await asyncio.sleep(0)
        source = self.source
        key = (source.topic, source.partition, self.group)
        cursor = self.work.cursors[key]
        page_key = (source.topic, source.incarnation, source.partition, self.group)
        self.work.pages.setdefault(page_key, []).append(page)
        self.work.cursors[key] = dataclasses.replace(
            cursor,
            next_offset=page.next_offset,
            batch_number=page.batch_number,
            last=page.last,
            emitted_offset=page.emitted_offset,
            counts=cursor.counts + page.counts,
        )


def _interventions(tables: Tables, cursor: Cursor, group: str) -> Interventions:
    source = cursor.source
    return Interventions(
        tables.pauses.get((source.topic, source.partition, group)),
        frozenset(
            held.offset
            for held in tables.holds
            if held == source.position(held.offset) and held.offset >= cursor.next_offset
        ),
    )


def _holder(row: Sequence[object], topic: str) -> Holder:
    source = Source(
        topic, int(str(row[_COLUMN["partition"]])), int(str(row[_COLUMN["incarnation"]]))
    )
    digest = row[_COLUMN["canonical_digest"]]
    invariant(isinstance(digest, bytes), "a digest is bytes")
    held = digest if isinstance(digest, bytes) else b""
    return Holder(source.position(int(str(row[_COLUMN["record_offset"]]))), held)


# --- Schemas --------------------------------------------------------------------------------------


@dataclass(slots=True)
class MemorySchemaStore:
    """`SchemaStore` from a dictionary."""

    schemas: dict[SchemaRef, AvroSchema] = field(default_factory=dict)
    hook: Hook = no_faults

    async def find(self, ref: SchemaRef) -> AvroSchema | None:
        """The schema, or a definite no."""
        self.hook("find_schema")
        return self.schemas.get(ref)
