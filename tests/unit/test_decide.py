"""Deciding: the order of checks before a type's own contract, headers, bounds, our own faults."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from typing import Any

import pytest

from schemas.avro_strict import AvroSchema, SchemaRef
from schemas.decision_set import DecisionSet, Limits
from schemas.envelope import Headers, Record, Source
from schemas.payroll import RECORD_TYPE
from schemas.reasons import Reason
from schemas.verdict import Accepted, Decided, Refused, Violation
from streams.decide import decide, decide_batch, schema_refs

SOURCE = Source("payroll.raw", 2)
STATEMENT: dict[str, Any] = {
    "employee_id": "A10042",
    "pay_period_start": "2026-10-19",
    "pay_period_end": "2026-11-01",
    "source_run_id": "acme-hris/001/R2026-22",
    "gross_pay": "2307.69",
    "tax_jurisdiction": "US-PA:510101",
}
GOOD = json.dumps(STATEMENT).encode()
TRACE = b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def _decide(
    value: bytes | None,
    headers: Headers = (),
    limits: Limits | None = None,
    schemas: dict[SchemaRef, AvroSchema | None] | None = None,
) -> Decided:
    record = Record(5, value, 1_793_706_129_000, headers=headers)
    decision_set = DecisionSet(limits=limits or Limits())
    return decide(record, RECORD_TYPE, SOURCE, decision_set, schemas or {})


def _reason(value: bytes | None, **rest: Any) -> Reason:
    found = _decide(value, **rest)
    assert isinstance(found, Refused), found
    assert found.raw_digest == hashlib.sha256(value or b"").digest()
    return found.reason


def _column(found: Decided, name: str) -> object:
    assert isinstance(found, Accepted), found
    return found.row[RECORD_TYPE.ledger_columns.index(name)]


# --- Order ----------------------------------------------------------------------------------------

UNMAPPED = (("wb-source-error", b"6 columns, the header has 5"),)


def test_the_order_of_what_is_seen_first() -> None:
    """No value before its size, size before what the publisher says, that before the bytes."""
    small = Limits(value_bytes_max=10)
    assert _reason(None, headers=UNMAPPED) is Reason.TOMBSTONE
    assert _reason(b"\xff" * 11, headers=UNMAPPED, limits=small) is Reason.OVERSIZE
    assert _reason(b"a,b,c", headers=UNMAPPED) is Reason.MALFORMED_ROW
    assert _reason(GOOD, headers=UNMAPPED) is Reason.MALFORMED_ROW


@pytest.mark.parametrize("row", [b"1,M\xfcller", b"1,a\x00b"])
def test_an_unmapped_row_that_is_no_text(row: bytes) -> None:
    """Encoding comes before a row that could not be mapped; the publisher's words are kept."""
    found = _decide(row, UNMAPPED)
    assert isinstance(found, Refused)
    assert found.reason is Reason.ENCODING
    assert found.violations[1].rule == "6 columns, the header has 5"


@pytest.mark.parametrize(
    ("why", "path", "rule"),
    [
        (b"gross_pay: an amount", "gross_pay", "an amount"),
        (b"earnings[12].amount: a: b", "earnings[12].amount", "a: b"),
        (b"gross: an amount", "", "gross: an amount"),
        (b"gross_pay:an amount", "", "gross_pay:an amount"),
        (b"gross_pay: ", "", "gross_pay:"),
        (b"gross_pay[12345]: x", "", "gross_pay[12345]: x"),
        (b"gross_pay.a.b: x", "", "gross_pay.a.b: x"),
        (b"3 columns, the header has 2", "", "3 columns, the header has 2"),
        (b"gross_pay." + b"x" * 65 + b": x", "", "gross_pay." + "x" * 65 + ": x"),
    ],
)
def test_a_publisher_may_name_the_field_to_blame(why: bytes, path: str, rule: str) -> None:
    """`FIELD: rule` with a path into the contract lets operators filter by field; anything else is
    the rule as a whole."""
    found = _decide(b"a,b", (("wb-source-error", why),))
    assert isinstance(found, Refused)
    assert found.violations == (Violation(path, rule),)


@pytest.mark.parametrize("why", [b"", b" ", b"\xff", "é".encode() * 500, b"a\x00b"])
def test_whatever_the_publisher_says_is_bounded_text(why: bytes) -> None:
    """The header is opaque bytes; what is told of it is short text that can be stored."""
    found = _decide(b"a,b", (("wb-source-error", why),))
    assert isinstance(found, Refused)
    assert found.reason is Reason.MALFORMED_ROW
    assert 0 < len(found.violations[0].rule) <= 200
    assert "\x00" not in found.violations[0].rule


# --- Framing --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"", Reason.MALFORMED_JSON),
        (b"\x1epr-2025\x8e\xbb", Reason.MALFORMED_JSON),
        (b"\xff\xfe{\x00}\x00", Reason.MALFORMED_JSON),
        (b"\xef\xbb\xbf" + GOOD, Reason.MALFORMED_JSON),
        (b"\xc3", Reason.MALFORMED_JSON),
        (b"\xc3\x02" + b"0" * 20, Reason.MALFORMED_JSON),
        (b"Obj\x01", Reason.MALFORMED_JSON),
        (b"{\x00}\x00", Reason.ENCODING),
        (GOOD.replace(b"A10042", b"A\x00"), Reason.ENCODING),
        (GOOD.replace(b"A10042", b"A\xff"), Reason.ENCODING),
        (b"\x00", Reason.MALFORMED_AVRO),
        (b"\x00\x00\x00\x00", Reason.MALFORMED_AVRO),
        (b"\xc3\x01\x00", Reason.MALFORMED_AVRO),
        (b"\x00\x00\x00\x00\x63", Reason.UNKNOWN_SCHEMA),
        (b"\xc3\x01" + b"\x00" * 8, Reason.UNKNOWN_SCHEMA),
    ],
    ids=lambda one: repr(one)[:40],
)
def test_first_bytes_tell_the_encodings_apart(value: bytes, reason: Reason) -> None:
    """What begins like none of the three is no JSON, whatever its bytes; what begins like JSON is
    text first; a cut frame is malformed Avro."""
    assert _reason(value) is reason


def test_unframed_avro_is_told_its_first_byte() -> None:
    """A producer that forgot the frame sees what was found instead of one."""
    found = _decide(b"\x1epr-1")
    assert isinstance(found, Refused)
    assert "0x1e" in found.violations[0].rule


def test_white_space_around_json_is_none_of_our_business() -> None:
    """RFC 8259 allows it."""
    assert isinstance(_decide(b" \n\t\r" + GOOD + b"\n"), Accepted)


def test_schema_refs_names_what_the_store_is_asked_for() -> None:
    """Only values that are framed Avro name a schema."""
    values = [
        None,
        b"",
        GOOD,
        b"\x00\x00\x00\x00\x07x",
        b"\x00\x00",
        b"\xc3\x01abcdefgh",
        b"\xc3\x02",
    ]
    refs = schema_refs([Record(at, value) for at, value in enumerate(values)])
    assert refs == {SchemaRef("confluent", 7), SchemaRef("single_object", b"abcdefgh")}


def test_a_schema_of_something_else() -> None:
    """A registered schema may be anything; its values break the contract."""
    for text in ('"string"', '"null"', '{"type":"array","items":"long"}'):
        schemas: dict[SchemaRef, AvroSchema | None] = {
            SchemaRef("confluent", 7): AvroSchema.from_text(text)
        }
        value = b"\x00\x00\x00\x00\x07" + (b"" if text == '"null"' else b"\x00")
        assert _reason(value, schemas=schemas) is Reason.SCHEMA_VIOLATION


# --- Headers --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "headers",
    [
        (("trace", b"\xc3\x28"), ("flag", None), ("trace", b"second"), ("", b"empty-named")),
        (("correlation-id", None), ("correlation-id", b"\xff\xfe")),
        (("traceparent", None), ("traceparent", b"\xff")),
        (("wb-source-error", None),),
        (("wb-observed-at", b"\xff"), ("wb-observed-at", None)),
        (("wb-anything", b"x"), ("wb-position", b"forged"), ("wb-key", None)),
    ],
)
def test_headers_decide_nothing_by_their_form(headers: Headers) -> None:
    """Headers are opaque, may be null, repeat or have no name; the record means the same."""
    found, bare = _decide(GOOD, headers), _decide(GOOD)
    assert isinstance(found, Accepted)
    assert isinstance(bare, Accepted)
    assert (found.key, found.canonical_digest) == (bare.key, bare.canonical_digest)


@pytest.mark.parametrize(
    ("header", "found"),
    [
        (b"abc", "abc"),
        (b"  ", "payroll.raw-2-5"),
        (b"", "payroll.raw-2-5"),
        (None, "payroll.raw-2-5"),
        (b"\xffx", "�x"),
        (b"a" * 500, "a" * 200),
    ],
)
def test_correlation_ids_are_bounded_text(header: bytes | None, found: str) -> None:
    """Of accepted and refused records alike; one that says nothing is none."""
    headers = (("correlation-id", header),)
    for value in (GOOD, b"{", GOOD.replace(b"A10042", b"x")):
        assert _decide(value, headers).correlation_id == found


@pytest.mark.parametrize(
    ("header", "kept"),
    [
        (TRACE, True),
        (TRACE.upper(), False),
        (TRACE + b"\n", False),
        (TRACE + b"-00", False),
        (b"ff" + TRACE[2:], False),
        (TRACE[:3] + b"0" * 32 + TRACE[35:], False),
        (TRACE[:36] + b"0" * 16 + TRACE[52:], False),
        (b"", False),
    ],
)
def test_traceparent_only_in_its_form(header: bytes, *, kept: bool) -> None:
    """W3C Trace Context, section 3.2; anything else is left out."""
    found = _column(_decide(GOOD, (("traceparent", header),)), "traceparent")
    assert found == (header.decode() if kept else None)


# --- Bounds ---------------------------------------------------------------------------------------


def test_the_event_has_a_bound_of_its_own() -> None:
    """An event that would not fit its topic is refused before anything is persisted; its key is
    known."""
    fits = _decide(GOOD)
    assert isinstance(fits, Accepted)
    found = _decide(GOOD, limits=Limits(event_bytes_max=len(fits.event_value) + 100))
    assert isinstance(found, Refused)
    assert (found.reason, found.key) == (Reason.OVERSIZE, fits.key)


def test_no_limit_allows_nesting_that_could_break_us() -> None:
    """A decision set may lower the depth, and raise it only as far as everything takes it."""
    deep = GOOD[:-1] + b',"x":' + b"[" * 127 + b"]" * 127 + b"}"
    assert _reason(deep) is Reason.MALFORMED_JSON
    found = _decide(deep, limits=Limits(json_depth_max=10_000))
    assert isinstance(found, Accepted)
    assert RECORD_TYPE.event_of(found.row) == (found.event_key, found.event_value)
    deeper = deep.replace(b"[", b"[[", 1).replace(b"]", b"]]", 1)
    assert _reason(deeper, limits=Limits(json_depth_max=10_000)) is Reason.MALFORMED_JSON


# --- Our own faults -------------------------------------------------------------------------------


def _failing(error: Exception) -> Any:
    def fail(*_: object) -> Any:
        raise error

    return dataclasses.replace(RECORD_TYPE, decide=fail)


def test_our_own_bug_costs_one_record() -> None:
    """Its verdict tells the exception's class and nothing that the exception says."""
    record_type = _failing(KeyError("A10042"))
    records = [Record(0, None), Record(1, GOOD), Record(2, b"{")]
    found = decide_batch(records, record_type, SOURCE, DecisionSet(), {})
    reasons = [one.reason for one in found if isinstance(one, Refused)]
    assert reasons == [Reason.TOMBSTONE, Reason.PROCESSING_ERROR, Reason.MALFORMED_JSON]
    assert isinstance(found[1], Refused)
    assert [v.rule for v in found[1].violations] == ["deciding failed with KeyError"]


def test_memory_that_runs_out_is_no_records_fault() -> None:
    """It is infrastructure, so no record is quarantined for it (G5)."""
    with pytest.raises(MemoryError):
        decide_batch([Record(0, GOOD)], _failing(MemoryError()), SOURCE, DecisionSet(), {})
