"""The law of restoring: what an event tells is what was written, row for row."""

from __future__ import annotations

from schemas.decision_set import DecisionSet
from schemas.envelope import CORRELATION_ID, Record, Source
from schemas.quarantine import QUARANTINE_COLUMNS, quarantine_event, quarantine_row
from schemas.record_type import RecordType
from schemas.restoring import restored, told_refusal
from schemas.verdict import Accepted, Decided, Event, Refused
from streams.batch import committed_headers
from streams.healing.rebuild import Decider, rebuilt_committed, rebuilt_quarantined

SET = DecisionSet()
HEADERS_AT = QUARANTINE_COLUMNS.index("record_headers")


def restores(record_type: RecordType, record: Record, source: Source, found: Decided) -> None:
    """From the event of a decided record comes the row it was made of, with the raw record and
    without it."""
    decider = Decider(record_type, source, {SET.digest: SET}, {})
    if isinstance(found, Accepted):
        _committed(decider, record, found)
    else:
        _quarantined(decider, record, found)


def _committed(decider: Decider, record: Record, found: Accepted) -> None:
    headers = committed_headers(decider.source, found.offset, found.traceparent)
    event = Event(found.event_key, found.event_value, headers)
    told = restored(decider.record_type, event)
    for raw in (record, None):
        rebuilt = rebuilt_committed(decider, told, event, raw)
        assert isinstance(rebuilt.outcome, Accepted)
        assert rebuilt.outcome.row == found.row
        assert rebuilt.outcome.receipts == found.receipts
        assert rebuilt.decision_set == SET.digest


def _quarantined(decider: Decider, record: Record, found: Refused) -> None:
    row = quarantine_row(found, record, decider.source, decider.record_type.name, SET.digest)
    event = quarantine_event(row)
    told, digest = told_refusal(event)
    rebuilt = rebuilt_quarantined(decider, told, digest, event, record)
    assert rebuilt.quarantine_row == row
    assert (rebuilt.outcome.key, rebuilt.decision_set) == (found.key, SET.digest)
    alone = rebuilt_quarantined(decider, told, digest, event, None).quarantine_row
    assert alone is not None
    if any(name == CORRELATION_ID or name.startswith("orig-") for name, _ in record.headers):
        alone, row = _but_headers(alone), _but_headers(row)
    assert alone == row


def _but_headers(row: tuple[object, ...]) -> tuple[object, ...]:
    return row[:HEADERS_AT] + row[HEADERS_AT + 1 :]
