"""A range of a raw topic decided again, compared with the stored verdicts. Writes nothing.

Deciding is a function of the record and the decision set (G4), so under the active set nothing may
differ, and under another one exactly what differs is shown. Settling is recorded and never done
again: a duplicate, a collision, or what the database or an operator turned away was accepted by
deciding, or was never decided, so it does not differ for that.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field

from connectors.errors import PartitionStop
from connectors.kafka.range_reader import RangeReader
from connectors.kafka.settings import KafkaSettings
from connectors.ports import Cursor, SchemaStore
from connectors.postgres import reports
from connectors.postgres.pool import Pool
from connectors.postgres.verdicts import stored_verdicts
from schemas.decision_set import DecisionSet
from schemas.envelope import RawRecord, Source
from schemas.reasons import Reason
from schemas.record_type import RecordType
from schemas.verdict import Accepted, Decided, Verdict
from schemas.verdict_page import Entry
from streams.batch import resolve_schemas
from streams.decide import Schemas, decide_batch
from streams.replaying.asked import Wanted, topic_of
from streams.replaying.export import Progressed
from streams.replaying.extent import Extent, Span, fix_extent
from streams.replaying.selection import Selection

ACCEPTED_BUT_SETTLED_AWAY = frozenset(
    {Reason.IDEMPOTENCY_COLLISION, Reason.PERSIST_FAILED, Reason.CONTROL_TOTAL_MISMATCH}
)
"""Reasons that settling gives to records that deciding accepted."""
NEVER_DECIDED = frozenset({Reason.HELD_BY_OPERATOR})
ACCEPTED = "accepted"


@dataclass(frozen=True, slots=True)
class Difference:
    """A record that would be decided otherwise."""

    position: str
    was: str
    would_be: str


@dataclass(slots=True)
class Compared:
    """What a dry-run found."""

    extent: Extent
    decision_set: DecisionSet
    listed_max: int
    read: int = 0
    same: int = 0
    groups: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Differences by what the verdict was and would be."""
    listed: list[Difference] = field(default_factory=list)
    """The first of them, at most `listed_max`."""
    set_aside: int = 0
    """Held, or set aside by an operator: they have no verdict of deciding's."""
    not_yet_decided: int = 0
    no_longer_stored: int = 0

    @property
    def differ(self) -> int:
        """How many records would be decided otherwise."""
        return self.groups.total()

    def as_dict(self) -> dict[str, object]:
        """For `--json`."""
        groups = sorted(self.groups.items(), key=lambda one: (-one[1], one[0]))
        return {
            "topic": self.extent.topic,
            "partitions": [
                {"partition": s.partition, "first": s.first, "end": s.end, "missing": s.missing}
                for s in self.extent.spans
            ],
            "decision_set": self.decision_set.digest.hex(),
            "read": self.read,
            "same": self.same,
            "differ": self.differ,
            "groups": [{"was": w, "would_be": b, "records": n} for (w, b), n in groups],
            "differences": [
                {"position": d.position, "was": d.was, "would_be": d.would_be} for d in self.listed
            ],
            "set_aside": self.set_aside,
            "not_yet_decided": self.not_yet_decided,
            "no_longer_stored": self.no_longer_stored,
        }


async def compare(
    settings: KafkaSettings,
    pool: Pool,
    record_type: RecordType,
    schema_store: SchemaStore,
    wanted: Wanted,
    decision_set: DecisionSet,
    *,
    listed_max: int,
    on_progress: Progressed,
) -> Compared:
    """Decide a range again and compare. Raises like `export`, and `DatabaseUnavailable`."""
    topic = settings.topic(topic_of(record_type, "raw"))
    cursors = {
        report.cursor.source.partition: report.cursor
        for report in await reports.partitions(pool)
        if report.group == settings.group and report.cursor.source.topic == topic
    }
    async with RangeReader(settings, topic) as reader:
        extent = await fix_extent(reader, wanted)
        found = Compared(extent, decision_set, listed_max)
        selection = Selection(record_type, topic, wanted.filters, quarantine=False)
        passed = 0
        for span in extent.spans:
            stored = _Stored(pool, topic, settings.group, span, cursors.get(span.partition))
            async for fetched in reader.read(span.partition, span.first, span.end):
                entries = await stored.upto(fetched.next_offset)
                schemas = await resolve_schemas(schema_store, fetched.records)
                chosen = _chosen(selection, span.partition, fetched.records, schemas)
                decided = decide_batch(chosen, record_type, stored.source, decision_set, schemas)
                for one in decided:
                    _compare(found, stored, one, entries.get(one.offset))
                passed += fetched.next_offset - fetched.begin
                on_progress(passed, extent.offsets, found.read)
        await reader.check_same_topic()
    return found


def _chosen(
    selection: Selection, partition: int, records: Sequence[RawRecord], schemas: Schemas
) -> list[RawRecord]:
    if not selection.filtered:
        return list(records)
    return [
        record
        for record in records
        if selection.in_time(record)
        and selection.wanted(partition, record, selection.members(record, schemas), schemas)
    ]


class _Stored:
    """Stored verdicts of one partition, read alongside its records."""

    def __init__(
        self, pool: Pool, topic: str, group: str, span: Span, cursor: Cursor | None
    ) -> None:
        self.source = Source(topic, span.partition) if cursor is None else cursor.source
        self.decided_end = 0 if cursor is None else cursor.next_offset
        self._pages: AsyncIterator[Sequence[Entry]] = stored_verdicts(
            pool, self.source, group, span.first, span.end
        )
        self._ahead: list[Entry] = []

    async def upto(self, end: int) -> dict[int, Entry]:
        """Entries not handed out yet, by offset, as far as `end`."""
        found, self._ahead = self._ahead, []
        while not found or found[-1].offset < end - 1:
            page = await anext(self._pages, None)
            if page is None:
                break
            found += page
        self._ahead = [entry for entry in found if entry.offset >= end]
        return {entry.offset: entry for entry in found if entry.offset < end}


def _compare(found: Compared, stored: _Stored, now: Decided, entry: Entry | None) -> None:
    found.read += 1
    if entry is None:
        if now.offset >= stored.decided_end:
            found.not_yet_decided += 1
        else:
            found.no_longer_stored += 1
        return
    if entry.raw_digest != now.raw_digest:
        place = (stored.source.topic, stored.source.partition)
        why = f"the record at offset {now.offset} is not the one that was decided"
        raise PartitionStop(place, why)
    if entry.verdict is Verdict.HELD or entry.reason in NEVER_DECIDED:
        found.set_aside += 1
        return
    would_be = ACCEPTED if isinstance(now, Accepted) else f"quarantined: {now.reason}"
    if would_be == _decided_as(entry):
        found.same += 1
        return
    was = entry.verdict.name.lower()
    was = was if entry.reason is None else f"{was}: {entry.reason}"
    found.groups[was, would_be] += 1
    if len(found.listed) < found.listed_max:
        position = str(stored.source.position(now.offset))
        found.listed.append(Difference(position, was, would_be))


def _decided_as(entry: Entry) -> str:
    """What deciding said before settling had its word."""
    if entry.reason is None or entry.reason in ACCEPTED_BUT_SETTLED_AWAY:
        return ACCEPTED
    return f"quarantined: {entry.reason}"
