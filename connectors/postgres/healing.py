"""What `heal` does to the database: one transaction of the schema's owner, all or nothing.

Rows are copied as events told them; nothing here decides. Whatever it waits for, workers of the
partitions it has taken wait too, and are fenced when it commits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

import asyncpg

from connectors.errors import Stop, invariant
from connectors.ports import Cursor, Page
from connectors.postgres.errors import DRIVER_ERRORS, UNIQUE_VIOLATION, fault_of, translate
from connectors.postgres.ledger import stored_decision_set
from connectors.postgres.operations import Act, append_act
from connectors.postgres.pool import Session
from connectors.postgres.queries import query
from connectors.postgres.transaction import (
    CURSOR_COLUMNS,
    PostgresTransaction,
    Statements,
    cursor_of,
)
from schemas.decision_set import DecisionSet
from schemas.envelope import Source
from schemas.quarantine import QUARANTINE_COLUMNS
from schemas.reasons import Reason
from schemas.record_type import RecordType
from schemas.verdict import Accepted, Holder, Verdict
from schemas.verdict_page import Entry

ENTRY_COLUMNS = (
    "place",
    "record_offset",
    "kafka_timestamp",
    "verdict",
    "reason",
    "key",
    "raw_digest",
    "canonical_digest",
    "decision_set",
    "event_digest",
)
PART_ENTRIES = 2_000
"""How many entries are read back at once."""


@dataclass(frozen=True, slots=True)
class HealEntry:
    """A lost verdict: the entry of a page and what is needed until that is written."""

    entry: Entry
    canonical_digest: bytes | None
    """Of a duplicate, to find the row that holds its key."""
    decision_set: bytes | None
    """Of the event it came from; None for a record that has none."""
    event_digest: bytes | None = None
    """SHA-256 of the event it came from; None for a record that has none."""


@dataclass(frozen=True, slots=True)
class Newest:
    """What people did last, as far as this database knows."""

    act: datetime | None
    activation: datetime | None


class HealTransaction:
    """One heal, for one consumer group. All methods raise `DatabaseUnavailable` (retryable)."""

    def __init__(self, session: Session, group: str) -> None:
        self._session = session
        self._group = group

    async def begin(self) -> None:
        """Lift the limit on the transaction's time. Raises `Stop` when another heal is running."""
        await self._session.execute(query("heal_limits"))
        lock = await self._session.one("an answer about the lock", query("heal_lock"))
        if not lock["taken"]:
            message = "another `weighbridge heal` is at work on this database; wait for it to end"
            raise Stop(message)
        await self._session.execute(query("create_heal_entry"))

    # -- what the database knows -------------------------------------------------------------------

    async def deployment(self) -> str:
        """The random id made by the first migration."""
        row = await self._session.one("the deployment's id", query("deployment"))
        return str(row["id"])

    async def cursors(self) -> Mapping[tuple[str, int], Cursor]:
        """The group's cursor rows by topic and partition."""
        rows = await self._session.fetch(query("heal_cursors", cursor=CURSOR_COLUMNS), self._group)
        return {(row["topic"], row["partition"]): cursor_of(row) for row in rows}

    async def active_decision_set(self) -> bytes:
        """Digest of the decision set in force."""
        row = await self._session.one("an active decision set", query("active_decision_set"))
        digest: bytes = row["digest"]
        return digest

    async def decision_set(self, digest: bytes) -> DecisionSet | None:
        """A stored decision set, None for one that is not there. Raises `ConfigurationError` when
        this version cannot decide by it."""
        row = await self._session.fetchrow(query("decision_set"), digest)
        return None if row is None else stored_decision_set(digest, row)

    async def store_decision_set(self, decision_set: DecisionSet) -> None:
        """Store a set that the database has lost. It comes into force by nothing but this."""
        await self._session.execute(
            query("store_decision_set"), decision_set.digest, decision_set.as_json()
        )

    async def last_page(self, cursor: Cursor) -> tuple[bytes, datetime] | None:
        """Decision set of the last batch before D, and when it was persisted."""
        row = await self._session.fetchrow(
            query("heal_last_page"), *self._place(cursor.source), cursor.batch_number
        )
        return None if row is None else (row["decision_set"], row["stored_at"])

    async def newest(self) -> Newest:
        """What people did last."""
        row = await self._session.one("the newest acts", query("heal_newest"))
        return Newest(row["act"], row["activation"])

    def _place(self, source: Source) -> tuple[str, int, str, int]:
        return source.topic, source.partition, self._group, source.incarnation

    # -- cursor ------------------------------------------------------------------------------------

    async def take(self, cursor: Cursor, token: bytes, *, is_new: bool) -> None:
        """Own the cursor row, so that no worker that began before this can write. Raises `Stop`
        when it has moved since it was read."""
        source = cursor.source
        if is_new:
            await self._session.execute(
                query("begin"),
                source.topic,
                source.partition,
                self._group,
                source.incarnation,
                cursor.cluster_id,
                cursor.first_offset,
                token,
            )
        row = await self._session.fetchrow(
            query("take", cursor=CURSOR_COLUMNS),
            source.topic,
            source.partition,
            self._group,
            token,
        )
        if row is None or cursor_of(row) != cursor:
            message = f"{source}: its cursor moved meanwhile; stop all workers and heal again"
            raise Stop(message)

    async def renumber(self, source: Source, batch_number: int) -> None:
        """Let the next page have the number after this one."""
        topic, partition, group, _ = self._place(source)
        await self._session.execute(query("heal_renumber"), topic, partition, group, batch_number)

    async def finish(self, record_type: RecordType, source: Source, page: Page) -> None:
        """Store a page and move D with it."""
        await self._as_worker(record_type, source).finish(page)

    # -- rows --------------------------------------------------------------------------------------

    def _as_worker(self, record_type: RecordType, source: Source) -> PostgresTransaction:
        statements = Statements(record_type)
        return PostgresTransaction(self._session, record_type, statements, source, self._group)

    async def holders(
        self, record_type: RecordType, source: Source, keys: Sequence[bytes]
    ) -> Mapping[bytes, Holder]:
        """Who holds these keys now."""
        return await self._as_worker(record_type, source).probe(keys) if keys else {}

    async def write_ledger(
        self, record_type: RecordType, committed: Sequence[tuple[Accepted, datetime]]
    ) -> None:
        """Write ledger rows and receipts; the time of a row is that of its event."""
        rows = sorted(((one.key, (*one.row, at)) for one, at in committed), key=_first)
        columns = (*record_type.ledger_columns, "committed_at")
        await self._copy(record_type.ledger_table, columns, [row for _, row in rows])
        receipts = [receipt for one, _ in committed for receipt in one.receipts]
        if receipts:
            table = record_type.receipts_table
            invariant(table is not None, f"{record_type.name} has receipts but no table for them")
            await self._copy(str(table), record_type.receipt_columns, receipts)

    async def write_quarantine(self, rows: Sequence[tuple[tuple[object, ...], datetime]]) -> None:
        """Write rejects; the time of a row is that of its event."""
        columns = (*QUARANTINE_COLUMNS, "quarantined_at")
        await self._copy("quarantine", columns, [(*row, at) for row, at in rows])

    async def _copy(
        self, table: str, columns: Sequence[str], rows: Sequence[Sequence[object]]
    ) -> None:
        if not rows:
            return
        try:
            await self._session.copy(table, columns, rows)
        except asyncpg.PostgresError as error:
            fault = fault_of(error)
            if fault.sqlstate != UNIQUE_VIOLATION:
                raise translate(error) from None
            message = (
                f"table {table} already holds a row that was to be written back ({fault}): this "
                "database went on after it was set back"
            )
            raise Stop(message) from None
        except DRIVER_ERRORS as error:
            raise translate(error) from None

    # -- entries -----------------------------------------------------------------------------------

    async def write_entries(self, place: int, entries: Sequence[HealEntry]) -> None:
        """Remember verdicts of a partition until its pages are written."""
        rows = [
            (
                place,
                one.entry.offset,
                one.entry.timestamp,
                int(one.entry.verdict),
                None if one.entry.reason is None else one.entry.reason.value,
                one.entry.key,
                one.entry.raw_digest,
                one.canonical_digest,
                one.decision_set,
                one.event_digest,
            )
            for one in entries
        ]
        await self._copy("heal_entry", ENTRY_COLUMNS, rows)

    async def events(self, place: int, offsets: Sequence[int]) -> Mapping[int, bytes | None]:
        """Digest of the event that each of these offsets' entries came from."""
        rows = await self._session.fetch(query("heal_events"), place, list(offsets))
        return {row["record_offset"]: row["event_digest"] for row in rows}

    async def entries(self, place: int, after: int) -> list[HealEntry]:
        """The next entries beyond an offset, in order; none at the end."""
        rows = await self._session.fetch(query("heal_entries"), place, after, PART_ENTRIES)
        return [
            HealEntry(
                Entry(
                    offset=row["record_offset"],
                    timestamp=row["kafka_timestamp"],
                    verdict=Verdict(row["verdict"]),
                    reason=None if row["reason"] is None else Reason(row["reason"]),
                    key=row["key"],
                    raw_digest=row["raw_digest"],
                ),
                row["canonical_digest"],
                row["decision_set"],
            )
            for row in rows
        ]

    # -- end ---------------------------------------------------------------------------------------

    async def clear_stop_marks(self, why: str, naming: str) -> int:
        """Clear the marks in force whose text names this remedy; how many there were."""
        return len(await self._session.fetch(query("heal_clear_stop_marks"), why, naming))

    async def record(self, act: Act) -> int:
        """Append an act; its number."""
        return await append_act(self._session, act)


def _first(pair: tuple[bytes, object]) -> bytes:
    return pair[0]
