"""The quarantine row and the event made from it: SPEC 3.5, and its bounds."""

from __future__ import annotations

import hashlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas import envelope
from schemas.envelope import Headers, Record, Source, last_header, pack_headers
from schemas.quarantine import (
    EVENT_BYTES_MAX,
    ORIGINAL_HEADERS_BYTES_MAX,
    QUARANTINE_COLUMNS,
    TEXT_MAX,
    detail_json,
    quarantine_event,
    quarantine_row,
    reason_of,
    storable,
)
from schemas.reasons import Reason
from schemas.verdict import VIOLATIONS_MAX, Event, Refused, Violation

SOURCE = Source("payroll.raw", 3, 2)
DIGEST = bytes(range(32))
_KAFKA_HEADERS = st.lists(
    st.tuples(
        st.sampled_from(
            ["", "x", "wb-reason", "wb-chunk", "wb-event-id", "orig-wb-x", "correlation-id"]
        )
        | st.text(st.characters(codec="utf-8"), max_size=12),
        st.none() | st.binary(max_size=40),
    ),
    max_size=8,
).map(tuple)


def _row(record: Record, **changes: object) -> tuple[object, ...]:
    refused = Refused(
        **{  # type: ignore[arg-type]
            "offset": record.offset,
            "timestamp": record.timestamp,
            "raw_digest": hashlib.sha256(record.value or b"").digest(),
            "reason": Reason.SCHEMA_VIOLATION,
            "violations": (Violation("gross_pay", "at most two fraction digits"),),
            "correlation_id": "c-1",
            **changes,
        }
    )
    return quarantine_row(refused, record, SOURCE, "payroll", DIGEST)


def _event(record: Record, **changes: object) -> Event:
    return quarantine_event(_row(record, **changes))


def _names(event: Event) -> list[str]:
    return [name for name, _ in event.headers]


def test_event_says_everything() -> None:
    """Key is the reason, value the bytes untouched, and each header of SPEC 3.5 is there once."""
    record = Record(7, b"\x00\xffraw", 1_700_000_000_123, b"k\x00", (("traceparent", b"t"),))
    event = _event(record)
    assert (event.key, event.value) == (b"schema_violation", b"\x00\xffraw")
    headers = dict(event.headers)
    assert len(headers) == len(event.headers)
    identity = b"payroll.raw/2/3/7"
    assert {headers[n] for n in ("wb-event-id", "wb-position", "wb-quarantine-id")} == {identity}
    assert headers["wb-reason"] == event.key
    assert headers["wb-key"] == b"k\x00"
    assert headers["wb-timestamp"] == b"1700000000123"
    assert headers["wb-attempt"] == b"1"
    assert headers["wb-decision-set"] == DIGEST.hex().encode()
    assert headers["wb-raw-digest"] == hashlib.sha256(b"\x00\xffraw").hexdigest().encode()
    assert headers["correlation-id"] == b"c-1"
    assert headers["traceparent"] == b"t"
    assert "wb-safety" not in headers
    assert json.loads(headers["wb-detail"] or b"") == [
        {"path": "gross_pay", "rule": "at most two fraction digits"}
    ]


def test_danger_is_marked() -> None:
    """A reject that tells of a grave open defect says so in a header of its own."""
    event = _event(Record(1, b"x"), safety_critical=True)
    assert last_header(event.headers, "wb-safety") == b"critical"


def test_tombstone_stays_null() -> None:
    """A null value comes out null, not empty."""
    assert _event(Record(1, None)).value is None
    assert _event(Record(1, b"")).value == b""


@given(_KAFKA_HEADERS)
def test_no_inbound_header_can_pose_as_ours(headers: Headers) -> None:
    """Undeclared `wb-*` come out as `orig-wb-*`, declared inputs and all others as they were."""
    event = _event(Record(1, b"x", headers=headers))
    ours = [*envelope.INBOUND]
    own = [(n, v) for n, v in event.headers if n.startswith("wb-") and n not in ours]
    assert len({name for name, _ in own}) == len(own)
    assert last_header(event.headers, "wb-reason") == b"schema_violation"
    inbound = [(n, v) for n, v in headers if n != "correlation-id"]
    for name, value in inbound:
        foreign = name.startswith("wb-") and name not in envelope.INBOUND
        assert ((f"orig-{name}" if foreign else name), value) in event.headers
    assert [v for n, v in event.headers if n == "correlation-id"] == [b"c-1"]


@pytest.mark.parametrize("size", [EVENT_BYTES_MAX - 3_000, EVENT_BYTES_MAX, 3_000_000])
def test_events_are_bounded(size: int) -> None:
    """A value that does not fit becomes its digest and length; the row keeps every byte."""
    value = b"v" * size
    row = _row(Record(1, value))
    event = quarantine_event(row)
    total = len(event.value or b"") + sum(len(n) + len(v or b"") for n, v in event.headers)
    assert total <= EVENT_BYTES_MAX
    assert row[QUARANTINE_COLUMNS.index("record_value")] == value
    if size >= EVENT_BYTES_MAX:
        said = json.loads(event.value or b"")
        assert said == {"sha256": hashlib.sha256(value).hexdigest(), "bytes": size}
        assert last_header(event.headers, "wb-truncated") == str(size).encode()
    else:
        assert event.value == value
        assert "wb-truncated" not in _names(event)


@given(st.integers(EVENT_BYTES_MAX - 2_000, EVENT_BYTES_MAX))
def test_the_bound_holds_around_the_edge(size: int) -> None:
    """No size near the limit yields an event above it."""
    event = _event(Record(1, bytes(size), key=b"k" * 100))
    total = len(event.value or b"") + sum(len(n) + len(v or b"") for n, v in event.headers)
    assert total <= EVENT_BYTES_MAX


def test_huge_original_headers_and_keys_are_bounded() -> None:
    """Headers of a megabyte, and a key of one, do not make an event that no topic takes."""
    headers = tuple((f"h{n}", bytes(10_000)) for n in range(100))
    row = _row(Record(1, b"x", key=bytes(900_000), headers=headers))
    event = quarantine_event(row)
    size = sum(len(n) + len(v or b"") for n, v in event.headers) + len(event.value or b"")
    assert size <= EVENT_BYTES_MAX
    kept = sum(len(n) + len(v or b"") for n, v in event.headers if n.startswith("h"))
    assert kept <= ORIGINAL_HEADERS_BYTES_MAX
    assert row[QUARANTINE_COLUMNS.index("record_headers")] == pack_headers(headers)


def test_a_key_too_large_for_any_event_is_replaced() -> None:
    """A message key that alone fills the event leaves it as digest and length."""
    key = bytes(range(256)) * 4_000
    event = _event(Record(1, b"x" * 100, key=key))
    size = sum(len(n) + len(v or b"") for n, v in event.headers) + len(event.value or b"")
    assert size <= EVENT_BYTES_MAX
    said = json.loads(last_header(event.headers, "wb-key") or b"")
    assert said == {"sha256": hashlib.sha256(key).hexdigest(), "bytes": len(key)}


def test_detail_is_bounded() -> None:
    """At most eight violations of bounded length, the first ones first."""
    violations = [Violation(f"p{n}" + "x" * 500, "r" * 500) for n in range(20)]
    found = json.loads(detail_json(violations))
    assert len(found) == VIOLATIONS_MAX
    assert found[0]["path"].startswith("p0x")
    assert all(len(v["path"]) == len(v["rule"]) == TEXT_MAX for v in found)


@given(st.text(max_size=400))
def test_storable_text(text: str) -> None:
    """PostgreSQL takes it: no U+0000, no lone surrogate, bounded; harmless text is untouched."""
    found = storable(text)
    assert "\x00" not in found
    assert len(found) <= TEXT_MAX
    assert found.encode().decode() == found
    if len(text) <= TEXT_MAX and "\x00" not in text:
        assert found == text


def test_storable_replaces_what_cannot_be_stored() -> None:
    """U+0000 and a lone surrogate are replaced, not dropped with their neighbours."""
    assert storable("a\x00b\ud800c") == "a\ufffdb?c"


@pytest.mark.parametrize(
    ("resubmitted", "said", "attempt"),
    [
        (False, b"7", 1),
        (True, b"7", 7),
        (True, b"0", 1),
        (True, b"-3", 1),
        (True, b"1234567", 1),
        (True, b"\xb2", 1),
        (True, None, 1),
    ],
)
def test_attempts(*, resubmitted: bool, said: bytes | None, attempt: int) -> None:
    """Only a resubmission has a number of its own, and only one that is a small count."""
    headers: tuple[tuple[str, bytes | None], ...] = (("wb-attempt", said),)
    if resubmitted:
        headers += (("wb-resubmission-of", b"payroll.raw/1/0/1"),)
    row = _row(Record(1, b"x", headers=headers))
    assert row[QUARANTINE_COLUMNS.index("attempt")] == attempt


@pytest.mark.parametrize("reason", list(Reason))
def test_reason_reads_back(reason: Reason) -> None:
    """Each reason of the closed list is found again in its row."""
    assert reason_of(_row(Record(1, b"x"), reason=reason)) is reason
