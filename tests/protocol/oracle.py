"""What must come out, computed one record at a time with nothing of the protocol: the oracle."""

from __future__ import annotations

from collections.abc import Sequence

from connectors.ports import Counts
from schemas.decision_set import DecisionSet
from schemas.envelope import RawRecord, Source
from schemas.quarantine import quarantine_event, quarantine_row
from schemas.record_type import RecordType
from schemas.verdict import Accepted, Event, Refused
from streams.decide import decide_batch
from streams.settle import settle
from tests.protocol.worlds import Outside


def one_at_a_time(record_type: RecordType, source: Source, records: Sequence[RawRecord]) -> Outside:
    """Decide and settle every record by itself, in order, into plain lists."""
    decision_set = DecisionSet()
    rows: list[Accepted] = []
    quarantine: list[tuple[object, ...]] = []
    duplicates = 0
    for record in records:
        decided = decide_batch([record], record_type, source, decision_set, {})
        outcome = settle([*rows, *decided], source, {}, {}, {})[-1]
        if isinstance(outcome, Accepted):
            rows.append(outcome)
        elif isinstance(outcome, Refused):
            quarantine.append(
                quarantine_row(outcome, record, source, record_type.name, decision_set.digest)
            )
        else:
            duplicates += 1
    end = records[-1].offset + 1 if records else 0
    return Outside(
        ledger=[row.row for row in rows],
        receipts=sorted((r for row in rows for r in row.receipts), key=lambda r: (r[0], r[1])),
        quarantine=quarantine,
        committed_events=[
            Event(
                row.event_key,
                row.event_value,
                (("wb-event-id", str(source.position(row.offset)).encode()),),
            )
            for row in rows
        ],
        quarantine_events=[quarantine_event(row) for row in quarantine],
        counts=Counts(len(records), len(rows), duplicates, len(quarantine)),
        decided=end,
        emitted=end,
    )
