"""What must come out, computed one record at a time with nothing of the protocol: the oracle."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from connectors.ports import Counts
from schemas.avro_strict import AvroSchema, SchemaRef
from schemas.decision_set import DecisionSet
from schemas.envelope import RawRecord, Source
from schemas.quarantine import quarantine_event, quarantine_row
from schemas.record_type import COMMON_LEDGER_COLUMNS, RecordType
from schemas.verdict import Accepted, Event, Holder, Refused, Settled
from streams.decide import decide_batch
from streams.settle import settle
from tests.protocol.worlds import Outside

_BODY = COMMON_LEDGER_COLUMNS.index("body")


@dataclass
class Oracle:
    """A ledger of plain dictionaries, given one record after the other."""

    record_type: RecordType
    schemas: Mapping[SchemaRef, AvroSchema | None] = field(default_factory=dict)
    refuses: Callable[[Accepted], Refused | None] = lambda _: None
    """Which rows the database does not take."""
    ledger: dict[bytes, tuple[Source, Accepted]] = field(default_factory=dict)
    quarantine: dict[tuple[Source, int], tuple[object, ...]] = field(default_factory=dict)
    verdicts: dict[tuple[Source, int], Settled] = field(default_factory=dict)

    def add(self, source: Source, record: RawRecord, decision_set: DecisionSet) -> None:
        """Decide and settle one record."""
        (decided,) = decide_batch([record], self.record_type, source, decision_set, self.schemas)
        held, bodies, refused = {}, {}, {}
        if isinstance(decided, Accepted):
            if decided.key in self.ledger:
                at, first = self.ledger[decided.key]
                held[decided.key] = Holder(at.position(first.offset), first.canonical_digest)
                bodies[decided.key] = str(first.row[_BODY])
            elif (refusal := self.refuses(decided)) is not None:
                refused[decided.offset] = refusal
        (outcome,) = settle([decided], source, held, bodies, refused)
        self.verdicts[source, record.offset] = outcome
        if isinstance(outcome, Accepted):
            self.ledger[outcome.key] = (source, outcome)
        elif isinstance(outcome, Refused):
            self.quarantine[source, record.offset] = quarantine_row(
                outcome, record, source, self.record_type.name, decision_set.digest
            )

    def rows(self, source: Source) -> list[Accepted]:
        """Committed records of a partition, in offset order."""
        found = [accepted for at, accepted in self.ledger.values() if at == source]
        return sorted(found, key=lambda accepted: accepted.offset)

    def rejects(self, source: Source) -> list[tuple[object, ...]]:
        """Quarantine rows of a partition, in offset order."""
        return [row for (at, _), row in sorted(self.quarantine.items()) if at == source]

    def committed_events(self, source: Source) -> list[Event]:
        """What readers of the committed topic see of a partition."""
        return [
            Event(row.event_key, row.event_value, _headers(source, row))
            for row in self.rows(source)
        ]

    def quarantine_events(self, source: Source) -> list[Event]:
        """What readers of the quarantine topic see of a partition."""
        return [quarantine_event(row) for row in self.rejects(source)]

    def counts(self, source: Source) -> Counts:
        """Records of a partition by verdict."""
        records_in = sum(at == source for at, _ in self.verdicts)
        committed, rejected = len(self.rows(source)), len(self.rejects(source))
        return Counts(records_in, committed, records_in - committed - rejected, rejected)


def _headers(source: Source, row: Accepted) -> tuple[tuple[str, bytes | None], ...]:
    return (("wb-event-id", str(source.position(row.offset)).encode()),)


def one_at_a_time(record_type: RecordType, source: Source, records: Sequence[RawRecord]) -> Outside:
    """Decide and settle every record by itself, in order."""
    oracle, decision_set = Oracle(record_type), DecisionSet()
    for record in records:
        oracle.add(source, record, decision_set)
    rows = oracle.rows(source)
    end = records[-1].offset + 1 if records else 0
    return Outside(
        ledger=[row.row for row in rows],
        receipts=sorted((r for row in rows for r in row.receipts), key=lambda r: (r[0], r[1])),
        quarantine=oracle.rejects(source),
        committed_events=oracle.committed_events(source),
        quarantine_events=oracle.quarantine_events(source),
        counts=oracle.counts(source),
        decided=end,
        emitted=end,
    )
