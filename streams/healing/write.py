"""Writing the lost verdicts of one partition back, inside the one transaction.

`take_in` writes ledger and quarantine rows and remembers an entry for every record; `finish`, once
the rows of all partitions are back, finds who holds the keys of the duplicates and stores the
verdict pages, which move D to E.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from connectors.errors import Stop, invariant
from connectors.ports import Counts, LastRecord, Page, SchemaStore
from connectors.postgres.healing import HealEntry, HealTransaction
from schemas import restoring
from schemas.avro_strict import AvroSchema, SchemaRef
from schemas.envelope import Position, RawRecord, pack_headers
from schemas.restoring import EventFault
from schemas.verdict import Accepted, Event, Holder, Refused, Verdict
from schemas.verdict_page import Entry, pack_entries
from streams.batch import resolve_schemas
from streams.healing.lost import EventFound, LostRecord, Part
from streams.healing.pages import PageCutter
from streams.healing.plan import Behind
from streams.healing.rebuild import Decider, Rebuilt, rebuilt_committed, rebuilt_quarantined
from streams.healing.sets import DecisionSets


@dataclass(slots=True)
class Tally:
    """What was found of one partition."""

    committed: int = 0
    quarantined: int = 0
    duplicate: int = 0
    """Positions in neither output topic, decided again."""
    from_events_alone: int = 0
    """Verdicts whose raw record the raw topic no longer holds."""
    pages: int = 0
    first_number: int = 0
    """Number of the first page; batches before it, after the last known one, stay without."""
    last_decision_set: bytes | None = None

    @property
    def records(self) -> int:
        """All of them."""
        return self.committed + self.quarantined + self.duplicate


class PartitionHealer:
    """Heals one partition; `place` is its number among those to heal."""

    def __init__(
        self,
        tx: HealTransaction,
        behind: Behind,
        place: int,
        sets: DecisionSets,
        store: SchemaStore,
        active: bytes,
        before: bytes | None,
    ) -> None:
        self._tx = tx
        self._behind = behind
        self._place = place
        self._sets = sets
        self._store = store
        self._active = active
        self._before = active if before is None else before
        """The set that the last batch before D was decided under."""
        self._current = self._before
        """The set of the last verdict so far: what is in no topic was decided under it, or under
        the one after it."""
        self._expected = behind.decided_offset
        self.raw_start = 0
        self.hint = ""
        """Said of a verdict that is not found: where it may have gone."""
        self.tally = Tally()

    def _position(self, offset: int) -> Position:
        return self._behind.source.position(offset)

    # -- rows --------------------------------------------------------------------------------------

    async def take_in(self, part: Part) -> None:
        """Write back what a part tells. Raises `Stop` naming the position that does not fit."""
        self._check_complete(part.records)
        told = [await self._told(one) for one in part.records]
        if None in told:
            await self._sets.offer(self._current)
            await self._sets.offer(self._active)
        decider = await self._decider([one.raw for one in part.records if one.raw is not None])
        entries: list[HealEntry] = []
        committed, rejects = [], []
        for index, (lost, found) in enumerate(zip(part.records, told, strict=True)):
            if found is None:
                following = next((t.decision_set for t in told[index:] if t is not None), None)
                entries.append(self._again(decider, lost, following))
                continue
            rebuilt = self._rebuilt(decider, lost, found)
            self._current = rebuilt.decision_set
            entries.append(_entry(rebuilt, found.found.event))
            if rebuilt.quarantine_row is not None:
                rejects.append((rebuilt.quarantine_row, found.found.emitted_at))
            elif isinstance(rebuilt.outcome, Accepted):
                committed.append((rebuilt.outcome, found.found.emitted_at))
        await self._check_free([one for one, _ in committed])
        await self._tx.write_ledger(self._behind.record_type, committed)
        await self._tx.write_quarantine(rejects)
        await self._tx.write_entries(self._place, entries)
        self._count(part, entries)
        await self._check_repeats(part.repeats)

    def _check_complete(self, records: Sequence[LostRecord]) -> None:
        """Where the raw log is gone, every offset must have its event: a duplicate and a marker
        look the same there."""
        for one in records:
            if one.raw is None and one.offset >= self.raw_start:
                message = f"{self._position(one.offset)}: has an event, but no raw record"
                raise Stop(message)
            self._check_gone_before(one.offset)
            self._expected = one.offset + 1

    def _check_gone_before(self, offset: int) -> None:
        gone_to = min(offset, self.raw_start)
        if self._expected < gone_to:
            message = (
                f"{self._position(self._expected)}: it and what follows up to {gone_to} have no "
                f"event, and the raw log begins at {self.raw_start}: duplicates or transaction "
                "markers stood there, which nothing tells apart any more. Restore a newer copy of "
                "the database"
            )
            raise Stop(message)

    def check_end(self) -> None:
        """The range must be told up to E."""
        self._check_gone_before(self._behind.emitted_offset)

    async def _told(self, lost: LostRecord) -> _Told | None:
        """What the event says; None when there is none."""
        if lost.committed is None and lost.quarantined is None:
            return None
        if lost.committed is not None and lost.quarantined is not None:
            message = f"{self._position(lost.offset)}: both output topics have an event of it"
            raise Stop(message)
        found = lost.committed or lost.quarantined
        invariant(found is not None, "one of both is there")
        try:
            told = _told(self._behind, lost)
        except EventFault as fault:
            raise self._unfit(lost.offset, fault) from None
        await self._sets.require(told.decision_set, self._position(lost.offset))
        return told

    async def _decider(self, raws: Sequence[RawRecord]) -> Decider:
        schemas: dict[SchemaRef, AvroSchema | None] = {**await resolve_schemas(self._store, raws)}
        return Decider(self._behind.record_type, self._behind.source, self._sets.known, schemas)

    def _rebuilt(self, decider: Decider, lost: LostRecord, told: _Told) -> Rebuilt:
        try:
            if isinstance(told.outcome, Accepted):
                return rebuilt_committed(decider, told.outcome, told.found.event, lost.raw)
            return rebuilt_quarantined(
                decider, told.outcome, told.decision_set, told.found.event, lost.raw
            )
        except EventFault as fault:
            raise self._unfit(lost.offset, fault) from None

    def _unfit(self, offset: int, fault: EventFault) -> Stop:
        return Stop(
            f"{self._position(offset)}: {fault}. Heal with the version and the schema store that "
            "decided it; nothing was changed"
        )

    def _again(self, decider: Decider, lost: LostRecord, following: bytes | None) -> HealEntry:
        """A record that left no event: it must be acceptable under a set that was in force there,
        and somebody must hold its key, which `finish` finds out."""
        invariant(lost.raw is not None, "a record without event has raw bytes")
        raw: RawRecord = lost.raw  # type: ignore[assignment]
        reason = None
        for digest in dict.fromkeys((self._current, following, self._active)):
            if digest is None or digest not in self._sets.known:
                continue
            again = decider.again(raw, digest)
            if isinstance(again, Accepted):
                entry = Entry(
                    again.offset,
                    again.timestamp,
                    Verdict.DUPLICATE,
                    None,
                    again.key,
                    again.raw_digest,
                )
                return HealEntry(entry, again.canonical_digest, None)
            reason = reason or again.reason
        message = (
            f"{self._position(lost.offset)}: neither output topic has an event of it, and decided "
            f"again it would be quarantined as {reason}: its event is missing{self.hint}. Nothing "
            "was changed"
        )
        raise Stop(message)

    async def _check_free(self, committed: Sequence[Accepted]) -> None:
        """Keys to be written back must be free: else the database went on after it was set back."""
        behind, keys = self._behind, [one.key for one in committed]
        held = await self._tx.holders(behind.record_type, behind.source, keys)
        for one in committed:
            if one.key in held:
                message = (
                    f"{self._position(one.offset)}: its event says committed, but in this database "
                    f"{held[one.key].position} holds its key: the database went on after it was "
                    "set back, and two events of one key are out. Nothing was changed"
                )
                raise Stop(message)

    async def _check_repeats(self, repeats: Sequence[tuple[int, Event]]) -> None:
        """An event that comes again must be the same event."""
        if not repeats:
            return
        known = await self._tx.events(self._place, sorted({offset for offset, _ in repeats}))
        for offset, event in repeats:
            if known.get(offset) != _digest(event):
                message = (
                    f"{self._position(offset)}: the output topics have two events of it that "
                    "differ, or one out of order: another deployment wrote to them. Nothing was "
                    "changed"
                )
                raise Stop(message)

    def _count(self, part: Part, entries: Sequence[HealEntry]) -> None:
        tally = self.tally
        for one in entries:
            tally.committed += one.entry.verdict is Verdict.COMMITTED
            tally.quarantined += one.entry.verdict is Verdict.QUARANTINED
            tally.duplicate += one.entry.verdict is Verdict.DUPLICATE
        tally.from_events_alone += sum(1 for one in part.records if one.raw is None)
        tally.last_decision_set = self._current

    # -- pages -------------------------------------------------------------------------------------

    async def finish(self) -> None:
        """Store the pages and move D to E. Call it when all partitions have been taken in."""
        behind, tally = self._behind, self.tally
        pages = await self._page_sizes()
        tally.pages, tally.first_number = len(pages), behind.batch_number - len(pages) + 1
        fits = tally.first_number > behind.cursor.batch_number
        invariant(fits, f"{behind.source}: more pages than batches were lost")
        await self._tx.renumber(behind.source, tally.first_number - 1)
        begin, last = behind.decided_offset, behind.cursor.last
        after = begin - 1
        for number, (records, digest) in enumerate(pages, start=tally.first_number):
            found = await self._next(after, records)
            entries = [one.entry for one in found]
            if entries:
                final = entries[-1]
                last = LastRecord(final.offset, final.raw_digest, final.timestamp)
                after = final.offset
            is_last = number == behind.batch_number
            end = behind.emitted_offset if is_last else after + 1
            page = Page(
                begin=begin,
                next_offset=end,
                batch_number=number,
                decision_set=digest,
                packed=pack_entries(entries),
                counts=_counts(entries, records),
                last=last,
                emitted_offset=end,
            )
            invariant(page.counts.balanced, f"verdicts do not balance: {page.counts}")
            await self._tx.finish(behind.record_type, behind.source, page)
            begin = end

    async def _page_sizes(self) -> list[tuple[int, bytes]]:
        """How many records each page gets, and its decision set; one empty page for none."""
        cutter = PageCutter()
        after = self._behind.decided_offset - 1
        while found := await self._tx.entries(self._place, after):
            for one in found:
                cutter.add(one.decision_set)
            after = found[-1].entry.offset
        return cutter.pages(self._before)

    async def _next(self, after: int, records: int) -> list[HealEntry]:
        """The entries of one page, holders filled in."""
        found: list[HealEntry] = []
        while len(found) < records:
            part = await self._tx.entries(self._place, after)
            invariant(part, "entries are read back as they were written")
            part = part[: records - len(found)]
            after = part[-1].entry.offset
            found += await self._with_holders(part)
        return found

    async def _with_holders(self, part: Sequence[HealEntry]) -> list[HealEntry]:
        behind = self._behind
        keys = sorted({e.entry.key for e in part if e.canonical_digest is not None and e.entry.key})
        held = await self._tx.holders(behind.record_type, behind.source, keys)
        return [
            one if one.canonical_digest is None else self._held(one, held.get(one.entry.key or b""))
            for one in part
        ]

    def _held(self, one: HealEntry, holder: Holder | None) -> HealEntry:
        """A duplicate with the position that holds its key, which in its own partition came
        before it."""
        position = self._position(one.entry.offset)
        if holder is None:
            what = "committed"
        elif holder.canonical_digest != one.canonical_digest:
            what = "an idempotency_collision"
        elif _same_log(holder.position, position) and holder.position.offset > position.offset:
            what = "committed, before the record that holds its key"
        else:
            at = (holder.position.incarnation, holder.position.partition, holder.position.offset)
            return dataclasses.replace(one, entry=dataclasses.replace(one.entry, holder=at))
        message = (
            f"{position}: neither output topic has an event of it, and decided again it would be "
            f"{what}: its event is missing{self.hint}. Nothing was changed"
        )
        raise Stop(message)


@dataclass(frozen=True, slots=True)
class _Told:
    """What an event says."""

    outcome: Accepted | Refused
    decision_set: bytes
    found: EventFound


def _told(behind: Behind, lost: LostRecord) -> _Told:
    if lost.committed is not None:
        accepted = restoring.restored(behind.record_type, lost.committed.event)
        if accepted.offset != lost.offset:
            message = "its event tells of another position"
            raise EventFault(message)
        return _Told(accepted, restoring.decision_set_of(accepted), lost.committed)
    found = lost.quarantined
    invariant(found is not None, "one of both is there")
    refused, digest = restoring.told_refusal(found.event)  # type: ignore[union-attr]
    return _Told(refused, digest, found)  # type: ignore[arg-type]


def _entry(rebuilt: Rebuilt, event: Event) -> HealEntry:
    outcome = rebuilt.outcome
    refused = isinstance(outcome, Refused)
    entry = Entry(
        outcome.offset,
        outcome.timestamp,
        Verdict.QUARANTINED if refused else Verdict.COMMITTED,
        outcome.reason if isinstance(outcome, Refused) else None,
        outcome.key,
        outcome.raw_digest,
    )
    return HealEntry(entry, None, rebuilt.decision_set, _digest(event))


def _digest(event: Event) -> bytes:
    """SHA-256 of all of an event."""
    parts = (event.key, event.value or b"", pack_headers(event.headers))
    lengths = b"".join(len(one).to_bytes(4, "big") for one in parts)
    return hashlib.sha256(lengths + b"".join(parts)).digest()


def _same_log(one: Position, other: Position) -> bool:
    return (one.incarnation, one.partition) == (other.incarnation, other.partition)


def _counts(entries: Sequence[Entry], records_in: int) -> Counts:
    verdicts = [one.verdict for one in entries]
    return Counts(
        records_in=records_in,
        committed=verdicts.count(Verdict.COMMITTED),
        duplicate=verdicts.count(Verdict.DUPLICATE),
        quarantined=verdicts.count(Verdict.QUARANTINED),
    )
