"""Which partitions are behind, what belongs to which position, and pages of entries."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.errors import ConfigurationError, Stop
from connectors.ports import Cursor, EmittedCursor, Fetched
from schemas.decision_set import CONTRACT_VERSION, DecisionSet, Limits
from schemas.envelope import EVENT_ID, Record, Source, raw_digest
from schemas.quarantine import quarantine_event, quarantine_row
from schemas.reasons import Reason
from schemas.record_types import RECORD_TYPES
from schemas.restoring import EventFault, position_of, restored, told_record, told_refusal
from schemas.verdict import Accepted, Event, Refused, Verdict, Violation
from schemas.verdict_page import Entry, pack_entries, unpack
from streams.batch import committed_headers, offset_metadata
from streams.decide import decide_batch
from streams.healing.lost import Part, _merged, _Stream
from streams.healing.pages import PageCutter
from streams.healing.plan import Behind, Known, behind
from streams.healing.rebuild import Decider, rebuilt_committed, rebuilt_quarantined
from streams.healing.sets import read_decision_set

PAYROLL = RECORD_TYPES["payroll"]
SOURCE = Source("payroll.raw", 0)
PLACE = ("payroll.raw", 0)
OURS = "11111111-2222-3333-4444-555555555555"
SET = DecisionSet()


# --- Plan -----------------------------------------------------------------------------------------


def _plan(
    emitted: EmittedCursor | None, *, is_new: bool = False, cluster: str = "c", incarnation: int = 1
) -> Sequence[Behind]:
    source = Source("payroll.raw", 0, incarnation)
    cursor = Cursor(source, cluster, 0, 100, 5, None, 100)
    known = Known(OURS, "c", "g", {} if is_new else {PLACE: cursor}, {PLACE: 0})
    return behind(known, {PLACE: PAYROLL}, {PLACE: emitted})


def _emitted(offset: int, batch: int, deployment: str = OURS) -> EmittedCursor:
    return EmittedCursor(offset, offset_metadata(deployment, 1, batch))


def test_behind_when_offset_and_batch_are_ahead() -> None:
    """E > D with a later batch is what is healed, from D to E."""
    (found,) = _plan(_emitted(140, 9))
    assert (found.decided_offset, found.emitted_offset, found.batch_number) == (100, 140, 9)
    assert not found.is_new


def test_a_partition_the_database_has_never_seen() -> None:
    """Set back to before its first batch: from the log's start."""
    (found,) = _plan(_emitted(140, 9), is_new=True)
    assert (found.decided_offset, found.cursor.batch_number, found.is_new) == (0, 0, True)


@pytest.mark.parametrize("emitted", [None, _emitted(100, 5), _emitted(60, 3)])
def test_not_behind(emitted: EmittedCursor | None) -> None:
    """Nothing emitted, all emitted, or still owed: nothing to heal."""
    assert not _plan(emitted)


@pytest.mark.parametrize(
    ("emitted", "words"),
    [
        (_emitted(140, 9, "another"), "deployment another"),
        (EmittedCursor(140, "moved by hand"), "something else"),
        (_emitted(140, 5), "Did somebody move"),
        (_emitted(100, 6), "Did somebody move"),
    ],
)
def test_offsets_that_are_not_this_databases_future(emitted: EmittedCursor, words: str) -> None:
    """Another deployment's offset, or one that somebody moved, is not healed."""
    with pytest.raises(Stop, match=words):
        _plan(emitted)


@pytest.mark.parametrize("changes", [{"cluster": "other"}, {"incarnation": 2}])
def test_another_log(changes: dict[str, object]) -> None:
    """Only the same log, in the same incarnation, can be healed."""
    with pytest.raises(Stop, match="same log"):
        _plan(_emitted(140, 9), **changes)  # type: ignore[arg-type]


# --- Side by side ---------------------------------------------------------------------------------


async def _fetched(offsets: Sequence[int]) -> AsyncIterator[Fetched]:
    for offset in offsets:
        yield Fetched(0, 0, [Record(offset, b"", timestamp=1)])


def _stream(offsets: Sequence[int]) -> _Stream:
    return _Stream(_fetched(offsets), lambda record: record.offset)


async def _parts(raw: Sequence[int], one: Sequence[int], other: Sequence[int]) -> list[Part]:
    merged = _merged(_stream(raw), _stream(one), _stream(other))
    return [part async for part in merged]


@given(st.sets(st.integers(0, 30)), st.data())
def test_each_event_meets_its_record(raw: set[int], data: st.DataObject) -> None:
    """By offset, whichever stream a position is missing from; what comes again is a repeat."""
    committed = sorted(data.draw(st.sets(st.integers(0, 30))))
    quarantined = sorted(data.draw(st.sets(st.integers(0, 30))))
    again = committed[len(committed) // 2 :]
    parts = asyncio.run(_parts(sorted(raw), [*committed, *again], quarantined))
    found = {one.offset: one for part in parts for one in part.records}
    assert list(found) == sorted(raw | set(committed) | set(quarantined))
    for offset, one in found.items():
        assert (one.raw is not None) is (offset in raw)
        assert (one.committed is not None) is (offset in committed)
        assert (one.quarantined is not None) is (offset in quarantined)
    assert [offset for part in parts for offset, _ in part.repeats] == again


# --- Rebuilding -----------------------------------------------------------------------------------

STATEMENT = {
    "employee_id": "A10042",
    "pay_period_start": "2026-10-19",
    "pay_period_end": "2026-11-01",
    "source_run_id": "acme-hris/001/R2026-22",
    "gross_pay": "2307.69",
    "tax_jurisdiction": "US-PA",
}


def _record(**changes: object) -> Record:
    return Record(7, json.dumps({**STATEMENT, **changes}).encode(), 1_793_000_000_000)


def _decider() -> Decider:
    return Decider(PAYROLL, SOURCE, {SET.digest: SET}, {})


def _committed(record: Record) -> tuple[Accepted, Event]:
    (found,) = decide_batch([record], PAYROLL, SOURCE, SET, {})
    assert isinstance(found, Accepted)
    headers = committed_headers(SOURCE, found.offset, found.traceparent)
    return found, Event(found.event_key, found.event_value, headers)


def test_another_record_at_the_position() -> None:
    """A raw record other than the one that was decided is a recreated topic, not this verdict."""
    _, event = _committed(_record())
    told = restored(PAYROLL, event)
    with pytest.raises(EventFault, match="recreated"):
        rebuilt_committed(_decider(), told, event, _record(gross_pay="1.00"))


def test_an_event_that_was_altered() -> None:
    """Whatever byte of the value is another one, nothing is rebuilt from it."""
    _, event = _committed(_record())
    assert event.value is not None
    for at in range(10, len(event.value)):
        altered = bytearray(event.value)
        altered[at] ^= 1
        changed = Event(event.key, bytes(altered), event.headers)
        with pytest.raises((EventFault, KeyError)):  # KeyError: a decision set that nobody knows
            rebuilt_committed(_decider(), restored(PAYROLL, changed), changed, _record())


def _reject(reason: Reason, record: Record) -> Event:
    digest = raw_digest(record.value)
    refused = Refused(7, record.timestamp, digest, reason, (Violation("", "a rule"),), "c")
    return quarantine_event(quarantine_row(refused, record, SOURCE, "payroll", SET.digest))


@pytest.mark.parametrize("reason", [Reason.PERSIST_FAILED, Reason.IDEMPOTENCY_COLLISION])
def test_a_settled_reject_gets_its_key_by_deciding_again(reason: Reason) -> None:
    """What settling turned away is acceptable in itself, and had a key."""
    event = _reject(reason, _record())
    told, digest = told_refusal(event)
    rebuilt = rebuilt_quarantined(_decider(), told, digest, event, _record())
    assert rebuilt.outcome.key == _committed(_record())[0].key


@pytest.mark.parametrize("reason", [Reason.PROCESSING_ERROR, Reason.HELD_BY_OPERATOR])
@pytest.mark.parametrize("raw", [_record(), None], ids=["raw record", "event alone"])
def test_a_record_that_was_not_decided(reason: Reason, raw: Record | None) -> None:
    """It is not decided now either, and has no key."""
    event = _reject(reason, _record())
    told, digest = told_refusal(event)
    undecidable = Decider(PAYROLL, SOURCE, {}, {})
    rebuilt = rebuilt_quarantined(undecidable, told, digest, event, raw)
    assert (rebuilt.outcome.reason, rebuilt.outcome.key) == (reason, None)  # type: ignore[union-attr]


def test_a_reject_that_deciding_would_accept() -> None:
    """A reason that deciding does not yield again is not this version's verdict."""
    event = _reject(Reason.CLOCK_SKEW, _record())
    told, digest = told_refusal(event)
    with pytest.raises(EventFault, match="would be accepted"):
        rebuilt_quarantined(_decider(), told, digest, event, _record())


def test_what_an_event_does_not_repeat() -> None:
    """A value or message key that was too large is not in the event."""
    large = Record(7, b"x" * 1_000_001, 1)
    long_key = Record(7, None, 1, b"k" * 20_000)
    for record, word in ((large, "value"), (long_key, "message key")):
        event = _reject(Reason.OVERSIZE, record)
        told, _ = told_refusal(event)
        with pytest.raises(EventFault, match=word):
            told_record(event, told)


def test_events_of_others() -> None:
    """Without a readable event id an event is none of ours."""
    assert position_of(()) is None
    assert position_of(((EVENT_ID, None),)) is None
    assert position_of(((EVENT_ID, b"\xff/1"),)) is None
    assert position_of(((EVENT_ID, b"payroll.raw/1/0/7"),)) == SOURCE.position(7)


# --- Pages and sets -------------------------------------------------------------------------------


@given(
    st.lists(
        st.builds(
            Entry,
            offset=st.integers(0, 2**62),
            timestamp=st.integers(-1, 2**62),
            verdict=st.just(Verdict.QUARANTINED),
            reason=st.sampled_from(Reason),
            key=st.none() | st.binary(min_size=32, max_size=32).filter(any),
            raw_digest=st.binary(min_size=32, max_size=32),
        )
        | st.builds(
            Entry,
            offset=st.integers(0, 2**62),
            timestamp=st.integers(-1, 2**62),
            verdict=st.just(Verdict.DUPLICATE),
            reason=st.none(),
            key=st.binary(min_size=32, max_size=32).filter(any),
            raw_digest=st.binary(min_size=32, max_size=32),
            holder=st.tuples(st.integers(1, 9), st.integers(0, 99), st.integers(0, 2**62)),
        )
    )
)
def test_pages_of_entries(entries: list[Entry]) -> None:
    """What is packed is what is read."""
    assert list(unpack(pack_entries(entries))) == entries


@given(
    st.lists(
        st.tuples(st.sampled_from([b"A", b"B", b"C"]), st.lists(st.booleans(), max_size=4)),
        min_size=1,
    )
)
def test_never_more_pages_than_batches(batches: list[tuple[bytes, list[bool]]]) -> None:
    """However many records tell nothing of their set, pages hold all records in order, each under
    its own set, and there are no more of them than there were batches."""
    told = [digest if tells else None for digest, records in batches for tells in records]
    cutter = PageCutter(records_max=4)
    for digest in told:
        cutter.add(digest)
    pages = cutter.pages(b"before")
    assert 1 <= len(pages) <= len(batches)
    assert sum(records for records, _ in pages) == len(told)
    under = [digest for records, digest in pages for _ in range(records)]
    assert all(mine in (None, its) for mine, its in zip(told, under, strict=True))


def test_a_decision_set_from_a_file(tmp_path: Path) -> None:
    """However the JSON is laid out it is the set of the same digest; anything else is refused."""
    chosen, path = DecisionSet(limits=Limits(json_depth_max=9)), tmp_path / "set.json"
    path.write_text(json.dumps(json.loads(chosen.as_json()), indent=3), encoding="utf-8")
    assert read_decision_set(path).digest == chosen.digest
    newer = DecisionSet(contract_version=CONTRACT_VERSION + 1)
    for text in ("{", "[]", "{}", '{"limits": 1}', "\udcff", newer.as_json()):
        path.write_bytes(text.encode("utf-8", "surrogateescape"))
        with pytest.raises(ConfigurationError):
            read_decision_set(path)
