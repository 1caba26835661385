"""Step 3 inside PostgreSQL: claim, probe, write, finish, all in one READ COMMITTED transaction.

Writes are set-based: keys are probed with `= ANY`, free ones written with COPY in key order. The
specification's race path, `INSERT ... ON CONFLICT DO NOTHING` in a savepoint, is not needed: after
a unique violation the savepoint is rolled back, `Written.raced` makes the caller probe again, and
under READ COMMITTED that probe sees the winner, who has committed by then. The guarantee is the
same (one row per key, G2) with one way to write instead of two.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import attrgetter

import asyncpg

from connectors.errors import (
    ClaimRefused,
    DatabaseUnavailable,
    StopAll,
    WeighbridgeError,
    invariant,
)
from connectors.ports import Claim, Counts, Cursor, Interventions, LastRecord, Page, Written
from connectors.postgres.errors import (
    DRIVER_ERRORS,
    UNENCODABLE,
    UNIQUE_VIOLATION,
    Fault,
    fault_of,
    translate,
)
from connectors.postgres.pool import Row, Session
from connectors.postgres.queries import identifier, query
from schemas.envelope import Position, Source
from schemas.quarantine import QUARANTINE_COLUMNS
from schemas.reasons import Reason
from schemas.record_type import RecordType
from schemas.verdict import Accepted, Holder, Refused, Violation

CURSOR_COLUMNS = (
    "topic",
    "partition",
    "incarnation",
    "cluster_id",
    "first_offset",
    "next_offset",
    "batch_number",
    "last_offset",
    "last_digest",
    "last_timestamp",
    "emitted_offset",
    "records_in",
    "committed",
    "duplicate",
    "quarantined",
    "held",
    "close_records",
)
"""What `cursor_of` reads."""

_by_key = attrgetter("key")


def cursor_of(row: Row) -> Cursor:
    """A cursor row as the port's `Cursor`."""
    last = None
    if row["last_offset"] is not None:
        last = LastRecord(row["last_offset"], row["last_digest"], row["last_timestamp"])
    return Cursor(
        source=Source(row["topic"], row["partition"], row["incarnation"]),
        cluster_id=row["cluster_id"],
        first_offset=row["first_offset"],
        next_offset=row["next_offset"],
        batch_number=row["batch_number"],
        last=last,
        emitted_offset=row["emitted_offset"],
        counts=Counts(
            row["records_in"],
            row["committed"],
            row["duplicate"],
            row["quarantined"],
            row["held"],
            row["close_records"],
        ),
    )


def interventions_of(row: Row) -> Interventions:
    """The columns `pause` and `holds` of a row."""
    return Interventions(row["pause"], frozenset(row["holds"]))


class Statements:
    """A record type's statements, with its names filled in once."""

    def __init__(self, record_type: RecordType) -> None:
        ledger = record_type.ledger_table
        self.take = query("take", cursor=CURSOR_COLUMNS)
        self.read_cursor = query("read_cursor", cursor=CURSOR_COLUMNS)
        self.claim = query("claim", cursor=CURSOR_COLUMNS)
        self.probe = query("probe", ledger=ledger)
        self.bodies = query("bodies", ledger=ledger)
        self.finish = query("finish")
        self.begin_incarnation = query("begin_incarnation", cursor=CURSOR_COLUMNS)
        self.ledger_rows = query("ledger_rows", ledger=ledger, columns=record_type.ledger_columns)
        self.quarantine_rows = query("quarantine_rows", columns=QUARANTINE_COLUMNS)
        self.primary_key = identifier(f"{ledger}_pkey")
        """Constraint whose violation is a lost race, not a fault of the data."""


class PostgresTransaction:
    """`LedgerTransaction` on one session."""

    def __init__(
        self,
        session: Session,
        record_type: RecordType,
        statements: Statements,
        source: Source,
        group: str,
    ) -> None:
        self._session = session
        self._type = record_type
        self._statements = statements
        self._source = source
        self._group = group

    async def claim(self, token: bytes, begin: int) -> Claim:
        """Lock the cursor row; the token must be ours and D must be where this batch begins."""
        row = await self._session.fetchrow(
            self._statements.claim, self._source.topic, self._source.partition, self._group
        )
        if row is None:
            message = f"{self._source}: there is no cursor row"
            raise ClaimRefused(message)
        if row["stop_mark"] is not None:
            raise StopAll(row["stop_mark"])
        if row["owner_token"] != token:
            message = f"{self._source}: another worker owns the cursor"
            raise ClaimRefused(message)
        cursor = cursor_of(row)
        if cursor.source != self._source or cursor.next_offset != begin:
            message = (
                f"{self._source}: the batch begins at offset {begin}, the cursor stands at "
                f"{cursor.next_offset} of incarnation {cursor.source.incarnation}"
            )
            raise ClaimRefused(message)
        invariant(row["active"] is not None, "a migrated database has an active decision set")
        return Claim(cursor, row["active"], interventions_of(row))

    async def probe(self, keys: Sequence[bytes]) -> Mapping[bytes, Holder]:
        """Which keys the ledger or `retired_key` holds."""
        rows = await self._session.fetch(self._statements.probe, sorted(keys), self._type.name)
        topic = self._source.topic
        return {
            key: Holder(Position(topic, incarnation, partition, offset), digest)
            for key, digest, incarnation, partition, offset in rows
        }

    async def bodies(self, keys: Sequence[bytes]) -> Mapping[bytes, str]:
        """Canonical bodies of committed rows."""
        rows = await self._session.fetch(self._statements.bodies, sorted(keys))
        return {row["key"]: row["body"] for row in rows}

    async def write_ledger(self, accepted: Sequence[Accepted]) -> Written:
        """Write ledger rows and receipts in key order: all of them or, see `Written`, none.

        A batch that the database refuses for its data is searched for all culprits at once, so the
        caller settles again only once. One code for every record of a batch of several is not the
        data's fault: `DatabaseUnavailable`.
        """
        if not accepted:
            return Written()
        records = sorted(accepted, key=_by_key)
        width = len(self._type.ledger_columns)
        invariant(all(len(a.row) == width for a in records), "a ledger row has every column")
        fault = await self._try(records)
        if fault is None:
            return Written()
        if self._is_race(fault):
            return Written(raced=True)
        return await self._isolate(records, fault)

    async def _try(self, records: Sequence[Accepted]) -> Fault | None:
        """Write these in a savepoint; None when they are in, else why the data was refused.

        Raises `DatabaseUnavailable` for whatever is not the data's fault.
        """
        session = self._session
        await session.execute("SAVEPOINT records")
        try:
            await session.copy(
                self._type.ledger_table, self._type.ledger_columns, [a.row for a in records]
            )
            await self._copy_receipts(records)
        except asyncpg.PostgresError as error:
            fault = fault_of(error)
            if not fault.is_data(self._type.name):
                raise translate(error) from None
        except WeighbridgeError:
            raise
        except DRIVER_ERRORS as error:
            if not isinstance(error, asyncpg.DataError):
                raise translate(error) from None
            fault = Fault(UNENCODABLE)
        except Exception:  # noqa: BLE001 - encoders raise anything for a value they cannot take
            fault = Fault(UNENCODABLE)
        else:
            # Released, or the cursor's update would run in the savepoint and need a multixact.
            await session.execute("RELEASE SAVEPOINT records")
            return None
        await session.execute("ROLLBACK TO SAVEPOINT records; RELEASE SAVEPOINT records")
        return fault

    async def _copy_receipts(self, records: Sequence[Accepted]) -> None:
        receipts = [receipt for a in records for receipt in a.receipts]
        if not receipts:
            return
        table, columns = self._type.receipts_table, self._type.receipt_columns
        invariant(table is not None, f"{self._type.name} has receipts but no table for them")
        width = len(columns)
        invariant(all(len(r) == width for r in receipts), "a receipt has every column")
        await self._session.copy(str(table), columns, receipts)

    def _is_race(self, fault: Fault) -> bool:
        return (
            fault.sqlstate == UNIQUE_VIOLATION and fault.constraint == self._statements.primary_key
        )

    async def _isolate(self, records: Sequence[Accepted], fault: Fault) -> Written:
        """Bisect down to single records. Good parts stay written while the rest is tried, so that
        records which only clash with one another are found too; at the end all is taken back."""
        culprits: dict[int, Refused] = {}
        codes: set[str] = set()
        await self._session.execute("SAVEPOINT isolation")
        pending = _halves(records) if len(records) > 1 else []
        if not pending:
            culprits[records[0].offset] = _persist_failed(records[0], fault)
        while pending:
            part = pending.pop()
            part_fault = await self._try(part)
            if part_fault is None:
                continue
            if self._is_race(part_fault):
                await self._take_back()
                return Written(raced=True)
            if len(part) > 1:
                pending += _halves(part)
                continue
            culprits[part[0].offset] = _persist_failed(part[0], part_fault)
            codes.add(part_fault.sqlstate)
        if not culprits:
            await self._session.execute("RELEASE SAVEPOINT isolation")
            return Written()
        if len(records) > 1 and len(culprits) == len(records) and len(codes) == 1:
            message = f"PostgreSQL refused every record of a batch with {fault}"
            raise DatabaseUnavailable(message)
        await self._take_back()
        return Written(refused=culprits)

    async def _take_back(self) -> None:
        await self._session.execute("ROLLBACK TO SAVEPOINT isolation; RELEASE SAVEPOINT isolation")

    async def write_quarantine(self, rows: Sequence[tuple[object, ...]]) -> None:
        """Write quarantine rows. A position that is there already has had its verdict (G1)."""
        if not rows:
            return
        try:
            await self._session.copy("quarantine", QUARANTINE_COLUMNS, rows)
        except asyncpg.PostgresError as error:
            fault = fault_of(error)
            twice = fault.constraint == "quarantine_pkey"
            invariant(
                not twice,
                f"{self._source}: a position of this batch is in quarantine already; does another "
                "consumer group work on this database?",
            )
            raise translate(error) from None
        except DRIVER_ERRORS as error:
            raise translate(error) from None

    async def pause(self, why: str) -> None:
        """Pause the partition from the next claim on."""
        source = self._source
        await self._session.execute(
            query("pause"), source.topic, source.partition, self._group, why
        )

    async def finish(self, page: Page) -> None:
        """Store the verdict page, add to the counts and move D."""
        counts, last, source = page.counts, page.last, self._source
        row = await self._session.fetchrow(
            self._statements.finish,
            source.topic,
            source.partition,
            self._group,
            source.incarnation,
            page.batch_number,
            page.begin,
            page.next_offset,
            page.decision_set,
            counts.records_in,
            page.packed,
            counts.records_in,
            counts.committed,
            counts.duplicate,
            counts.quarantined,
            counts.held,
            counts.close_records,
            last.offset if last else None,
            last.raw_digest if last else None,
            last.timestamp if last else None,
            page.emitted_offset,
        )
        invariant(
            row is not None,
            f"{source}: batch {page.batch_number} from {page.begin} does not follow the cursor",
        )


def _halves(records: Sequence[Accepted]) -> list[Sequence[Accepted]]:
    """Second half first: the list is used as a stack, so keys are still written in order."""
    middle = len(records) // 2
    return [records[middle:], records[:middle]]


def _persist_failed(accepted: Accepted, fault: Fault) -> Refused:
    constraint = f" constraint {fault.constraint}" if fault.constraint else ""
    return Refused(
        offset=accepted.offset,
        timestamp=accepted.timestamp,
        raw_digest=accepted.raw_digest,
        reason=Reason.PERSIST_FAILED,
        violations=(Violation(fault.column or "", f"SQLSTATE {fault.sqlstate}{constraint}"),),
        correlation_id=accepted.correlation_id,
        key=accepted.key,
        safety_critical=accepted.safety_critical,
    )
