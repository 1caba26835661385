"""What must hold whatever a record is: a verdict, always the same, storable, at a bounded cost."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType

from schemas.decision_set import DecisionSet
from schemas.envelope import Record, Source
from schemas.json_strict import storable_text
from schemas.quarantine import quarantine_event, quarantine_row
from schemas.reasons import Reason
from schemas.record_type import RecordType
from schemas.verdict import Accepted, Decided
from schemas.verdict_page import pack, unpack
from streams.decide import Schemas, decide_batch

DECISION_SET = DecisionSet()
CPU_S_PER_RECORD = 0.5
"""Of this process, whatever else the machine does: many times what any record needs."""
CPU_S_PER_MEGABYTE = 4.0


class TooSlow(BaseException):
    """An input took more processor time than any may."""


@contextmanager
def cpu_bounded(size_bytes: int) -> Iterator[None]:
    """Raise `TooSlow` once this much work has been done; a hang is noticed by a signal."""
    allowed_s = CPU_S_PER_RECORD + CPU_S_PER_MEGABYTE * size_bytes / 1_000_000

    def stop(_: int, __: FrameType | None) -> None:
        message = f"more than {allowed_s:.1f} s of processor time for {size_bytes} bytes"
        raise TooSlow(message)

    before, began_s = signal.signal(signal.SIGPROF, stop), time.process_time()
    signal.setitimer(signal.ITIMER_PROF, allowed_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
    if time.process_time() - began_s > allowed_s:  # in one call that no signal interrupts
        stop(0, None)


def lawful(record_type: RecordType, records: Sequence[Record], schemas: Schemas) -> list[Decided]:
    """Decide records one by one and hold each to the laws, then all together and backwards.

    Fails by `AssertionError`, by `TooSlow`, or with whatever escapes the decider.
    """
    source = Source(record_type.raw_topic, 3)
    found = [_one(record_type, source, record, schemas) for record in records]
    together = decide_batch(records, record_type, source, DECISION_SET, schemas)
    assert together == found, "a verdict depends on the batch"
    backwards = decide_batch(records[::-1], record_type, source, DECISION_SET, schemas)
    assert backwards[::-1] == found, "a verdict depends on the order"
    return found


def size_of(record: Record) -> int:
    """Bytes of a record's value and headers."""
    return len(record.value or b"") + sum(len(n) + len(v or b"") for n, v in record.headers)


def _one(record_type: RecordType, source: Source, record: Record, schemas: Schemas) -> Decided:
    size = size_of(record)
    with cpu_bounded(size):
        (found,) = decide_batch([record], record_type, source, DECISION_SET, schemas)
    assert found.correlation_id
    assert storable_text(found.correlation_id)
    if isinstance(found, Accepted):
        assert record_type.event_of(found.row) == (found.event_key, found.event_value)
        assert len(found.row) == len(record_type.ledger_columns)
    else:
        assert found.reason is not Reason.PROCESSING_ERROR, found.violations
        assert 0 < len(found.violations) <= 8
        with cpu_bounded(size):
            row = quarantine_row(found, record, source, record_type.name, DECISION_SET.digest)
            event = quarantine_event(row)
        assert event.key == str(found.reason).encode()
        assert all(not isinstance(text, str) or storable_text(text) for text in row)
        value = len(event.value or b"") + sum(len(n) + len(v or b"") for n, v in event.headers)
        assert value < 1_100_000, "an event outgrows its topic"
    (entry,) = unpack(pack([found]))
    assert entry.offset == record.offset
    return found
