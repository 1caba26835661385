"""Failing inputs from public bug reports of systems that do this job, in our contracts' fields.

Each test stands for a kind of fault and tries its variants; its docstring names where one of the
kind was reported.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest

from schemas.avro_strict import AvroSchema, SchemaRef
from schemas.decision_set import DecisionSet
from schemas.envelope import NO_TIMESTAMP, Headers, Record, Source
from schemas.reasons import Reason
from schemas.record_types import RECORD_TYPES
from schemas.verdict import Accepted, Decided, Refused
from streams.decide import decide_batch

AT_MS = 1_741_600_000_000
STATEMENT: dict[str, Any] = {
    "employee_id": "E000123",
    "pay_period_start": "2025-03-01",
    "pay_period_end": "2025-03-15",
    "pay_date": "2025-03-20",
    "source_run_id": "acme/001/2025-05",
    "gross_pay": "1234.56",
    "tax_jurisdiction": "US-CA",
}
REPORT: dict[str, Any] = {
    "idempotency_key": "dvir-2025-0101",
    "driver_id": "D-0042",
    "inspected_at": "2025-03-09T06:15:00-05:00",
    "units": [{"role": "power_unit", "vin": "1M8GDM9AXKP042788"}],
    "defects": [{"code": "BRAKES", "part": "service_brakes", "severity": "major", "note": "worn"}],
    "certification": {"by": "D-0042", "at": "2025-03-09T06:16:00-05:00", "method": "drawn"},
}
Schemas = dict[SchemaRef, AvroSchema | None]


def _value(members: dict[str, Any], **changes: Any) -> bytes:
    return json.dumps({**members, **changes}).encode()


def _raw(members: dict[str, Any], name: str, token: bytes) -> bytes:
    """The members with the text of one JSON value as it is given."""
    return _value(members, **{name: "@@"}).replace(b'"@@"', token)


def _decide(
    name: str,
    values: Sequence[bytes | None],
    schemas: Schemas | None = None,
    headers: Headers = (),
    timestamp: int = AT_MS,
) -> list[Decided]:
    record_type = RECORD_TYPES[name]
    records = [Record(at, value, timestamp, None, headers) for at, value in enumerate(values)]
    source = Source(record_type.raw_topic, 0)
    return decide_batch(records, record_type, source, DecisionSet(), schemas or {})


def _outcomes(*args: Any, **kwargs: Any) -> list[str]:
    return [
        "committed" if isinstance(one, Accepted) else str(one.reason)
        for one in _decide(*args, **kwargs)
    ]


def _column(found: Decided, name: str, column: str) -> object:
    assert isinstance(found, Accepted), found
    return found.row[RECORD_TYPES[name].ledger_columns.index(column)]


# --- Text and structure ---------------------------------------------------------------------------


def test_nul_in_text() -> None:
    """A U+0000 is refused where it is text, in members' names too, and the six characters that
    spell its escape are kept (confluentinc/kafka-connect-jdbc#1216)."""

    def noted(note: bytes) -> bytes:
        return _value(REPORT).replace(b'"worn"', note)

    values = [
        noted(b'"left\\u0000rear"'),
        noted(b'"see C:\\\\u0000 tag"'),
        noted(b'"pads worn"'),
        noted(b'"left\x00rear"'),
        noted(b'"worn", "a\\u0000": 1'),
        noted(b'"\\ud83d rear"'),
        noted(b'"\\\\\\u0000"'),
    ]
    assert _outcomes("dvir", values) == [
        *("encoding", "committed", "committed", "encoding", "encoding", "encoding", "encoding")
    ]
    kept = _column(_decide("dvir", values)[1], "dvir", "body")
    assert "see C:\\\\u0000 tag" in str(kept)


def test_duplicate_members() -> None:
    """The same member twice is refused at every depth, however its name is spelled
    (msgspec/msgspec#648)."""
    twice = [
        _value(STATEMENT)[:-1] + b',"gross_pay":"9000.00"}',
        _value(STATEMENT)[:-1] + b',"gross\\u005fpay":"9000.00"}',
        _value(STATEMENT)[:-1] + b',"note":{"a":1,"a":1}}',
        _raw(STATEMENT, "earnings", b'[{"code":"REG","amount":"1","amount":"2"}]'),
    ]
    assert _outcomes("payroll", twice) == ["malformed_json"] * 4


@pytest.mark.parametrize("depth", [65, 300, 3_000, 200_000])
@pytest.mark.parametrize(("begin", "end"), [(b"[", b"]"), (b'{"a":', b"}")])
def test_deep_nesting(depth: int, begin: bytes, end: bytes) -> None:
    """Absurd nesting, closed or not, costs one record and not the process
    (simplejson/simplejson#28)."""
    closed = begin * depth + b"1" + end * depth
    values = [_raw(REPORT, "defects", closed), _raw(REPORT, "x", begin * depth)]
    if depth <= 3_000:
        assert _outcomes("dvir", values) == ["malformed_json", "malformed_json"]
    else:
        assert set(_outcomes("dvir", values)) <= {"malformed_json", "oversize"}


# --- Numbers --------------------------------------------------------------------------------------


def test_nan_and_infinity() -> None:
    """As bare words they are no JSON; quoted they are no amount (MagicStack/asyncpg#1067)."""
    bare = [b"NaN", b"-Infinity", b"Infinity", b"nan"]
    quoted = ["NaN", "sNaN", "-Infinity", "inf", "NaN123"]
    values = [_raw(STATEMENT, "gross_pay", token) for token in bare]
    values += [_value(STATEMENT, gross_pay=text) for text in quoted]
    expected = ["malformed_json"] * 4 + ["schema_violation"] * 5
    assert _outcomes("payroll", [*values, _value(STATEMENT)]) == [*expected, "committed"]


@pytest.mark.parametrize(
    ("token", "exact"),
    [
        (b"123456789012.34", "123456789012.34"),
        (b"0.1", "0.10"),
        (b"1000", "1000.00"),
        (b"1000.000", "1000.00"),
        (b"-0.0", "0.00"),
        (b"1234567890123456.78", None),
        (b"1.005", None),
        (b"1e3", None),
        (b"1E+3", None),
        (b"10e-1", None),
        (b"-1.00", None),
        (b"true", None),
    ],
)
def test_money_as_a_json_number(token: bytes, exact: str | None) -> None:
    """The number is what its text says: exact, or refused, never through a double
    (pydantic/pydantic#9180)."""
    (found,) = _decide("payroll", [_raw(STATEMENT, "gross_pay", token)])
    if exact is None:
        assert isinstance(found, Refused)
        assert found.reason is Reason.SCHEMA_VIOLATION
    else:
        assert str(_column(found, "payroll", "gross_pay")) == exact


def test_identifiers_as_numbers() -> None:
    """An identifier is text: a number is refused whatever its size, the same digits in quotes are
    fine (pydantic/pydantic#12164)."""
    values = [
        _value(STATEMENT, employee_id=given)
        for given in (9007199254740993, 9223372036854775808, "922337203685", 42, 10**30, True)
    ]
    refused = "schema_violation"
    assert _outcomes("payroll", values) == [
        refused,
        refused,
        "committed",
        refused,
        refused,
        refused,
    ]


# --- Kafka records --------------------------------------------------------------------------------


def test_headers_that_are_no_text() -> None:
    """Headers are opaque, may be null, repeat or have no name (ag2ai/faststream#2458)."""
    headers = (("trace", b"\xc2\x28"), ("flag", None), ("trace", b"second"), ("", b"empty-named"))
    assert _outcomes("payroll", [_value(STATEMENT)], headers=headers) == ["committed"]
    assert _outcomes("dvir", [_value(REPORT)], headers=headers) == ["committed"]


def test_tombstones_around_a_record() -> None:
    """A null value is visible as itself and inherits nothing from its neighbours
    (confluentinc/kafka-connect-jdbc#979)."""
    found = _outcomes("payroll", [None, _value(STATEMENT), None, None, b""])
    assert found == ["tombstone", "committed", "tombstone", "tombstone", "malformed_json"]


def test_no_timestamp_and_no_key() -> None:
    """Old producers send neither; the clock is not compared then (robinhood/faust#159)."""
    for name, members in (("payroll", STATEMENT), ("dvir", REPORT)):
        assert _outcomes(name, [_value(members)], timestamp=NO_TIMESTAMP) == ["committed"]


# --- Time and identity ----------------------------------------------------------------------------


def test_times_as_numbers() -> None:
    """A number has no unit and no zone, as text neither (pydantic/pydantic#7940)."""
    given = [1741518900, 1741518900000, "1741518900", "1741518900000", 1741518900.5]
    values = [_value(REPORT, inspected_at=one) for one in given]
    assert _outcomes("dvir", values) == ["schema_violation"] * 5


def test_blank_keys() -> None:
    """Blank, empty, null and absent keys are one fault, a key of another type is another one
    (teesofttech/PayBridge#119)."""
    blank = [_value(REPORT, idempotency_key=one) for one in ("   ", "", None, "\u2003")]
    blank.append(_value({n: v for n, v in REPORT.items() if n != "idempotency_key"}))
    assert _outcomes("dvir", blank) == ["missing_key"] * 5
    typed = [_value(REPORT, idempotency_key=one) for one in (["pr-1"], {}, 1, True)]
    assert _outcomes("dvir", typed) == ["schema_violation"] * 4


def test_blank_keys_of_payroll() -> None:
    """A statement's key is derived: absent and null say nothing, a blank one is a fault."""
    given = ("   ", "", None, "theirs", ["pr-1"])
    values = [_value(STATEMENT, idempotency_key=one) for one in given]
    assert _outcomes("payroll", [*values, _value(STATEMENT)]) == [
        *("missing_key", "missing_key", "committed", "committed", "schema_violation", "committed")
    ]


# --- Avro -----------------------------------------------------------------------------------------

MONEY = {"type": "bytes", "logicalType": "decimal", "precision": 14, "scale": 2}
DAY = {"type": "int", "logicalType": "date"}
PAYROLL_KINDS: dict[str, Any] = {
    "employee_id": "string",
    "pay_period_start": DAY,
    "pay_period_end": DAY,
    "source_run_id": "string",
    "tax_jurisdiction": "string",
    "gross_pay": MONEY,
    "pay_date": DAY,
}
DATUM: dict[str, Any] = {
    **STATEMENT,
    "pay_period_start": date(2025, 3, 1),
    "pay_period_end": date(2025, 3, 15),
    "pay_date": date(2025, 3, 20),
    "gross_pay": Decimal("1234.56"),
}
REF = SchemaRef("confluent", 11)
FRAME = b"\x00\x00\x00\x00\x0b"


def _schema(kinds: dict[str, Any]) -> AvroSchema:
    fields = [{"name": name, "type": kind} for name, kind in kinds.items()]
    return AvroSchema.from_text(json.dumps({"type": "record", "name": "Payroll", "fields": fields}))


def _avro(kinds: dict[str, Any], datum: dict[str, Any]) -> list[str]:
    schema = _schema({**PAYROLL_KINDS, **kinds})
    value = schema.confluent(11, {**DATUM, **datum})
    return _outcomes("payroll", [value], {REF: schema})


def test_avro_of_a_writers_own_schema() -> None:
    """A writer's schema with the fields that matter is read as ours."""
    assert _avro({}, {}) == ["committed"]
    assert _avro({"gross_pay": "string"}, {"gross_pay": "1234.56"}) == ["committed"]
    assert _avro({"bonus": ["null", "double"]}, {"bonus": 1.5}) == ["committed"]


def test_unframed_avro() -> None:
    """Bytes that name no schema are not guessed at; the first of them is told. Encodings are told
    apart by their first bytes, so what begins like none is `malformed_json`
    (confluentinc/confluent-kafka-dotnet#1601)."""
    body = _schema(PAYROLL_KINDS).confluent(11, DATUM)[5:]
    (found,) = _decide("payroll", [body])
    assert isinstance(found, Refused)
    assert found.reason is Reason.MALFORMED_JSON
    assert f"0x{body[0]:02x}" in found.violations[0].rule


def test_an_unknown_schema_id() -> None:
    """A definite "no such id" is a fact about the record (confluentinc/schema-registry#2648)."""
    value = _schema(PAYROLL_KINDS).confluent(0x7FFFFFFF, DATUM)
    missing: Schemas = {SchemaRef("confluent", 0x7FFFFFFF): None}
    assert _outcomes("payroll", [value, b"\xc3\x01" + b"?" * 8], missing) == ["unknown_schema"] * 2


@pytest.mark.parametrize("kind", [{"precision": 14}, {"precision": 14, "scale": 4}])
def test_a_decimal_of_another_scale(kind: dict[str, Any]) -> None:
    """The scale of whoever wrote it would make the pay a hundred times too large
    (fastavro/fastavro#282)."""
    foreign = {"type": "bytes", "logicalType": "decimal", **kind}
    assert _avro({"gross_pay": foreign}, {"gross_pay": Decimal(1234)}) == ["schema_violation"]
    optional = {"gross_pay": ["null", foreign]}
    assert _avro(optional, {"gross_pay": Decimal(1234)}) == ["schema_violation"]


def test_money_as_a_binary_float() -> None:
    """Float and double, optional too, whatever the value (SPEC's `float_money`)."""
    for kind in ("float", "double", ["null", "double"]):
        assert _avro({"gross_pay": kind}, {"gross_pay": 1000.0}) == ["float_money"]
    assert _avro({"net_pay": ["null", "double"]}, {"net_pay": None}) == ["float_money"]


def test_a_decimal_beyond_its_precision() -> None:
    """Bytes may hold more digits than the schema declares (fastavro/fastavro#445)."""
    schema = _schema(PAYROLL_KINDS)
    good = schema.confluent(11, {**DATUM, "gross_pay": Decimal("999999999999.99")})
    digits = (10**14 - 1).to_bytes(6, "big")
    values = [good, good.replace(digits, (10**14).to_bytes(6, "big"))]
    assert _outcomes("payroll", values, {REF: schema}) == ["committed", "schema_violation"]


def test_a_new_enum_symbol() -> None:
    """A symbol that this version does not know is neither a milder one nor null; what is known of
    the report still tells of danger (fastavro/fastavro#488)."""
    own = json.dumps(json.loads(RECORD_TYPES["dvir"].raw_schemas[-1].text))
    symbols = '"out_of_service", "unknown"'
    schema = AvroSchema.from_text(own.replace(symbols, symbols + ', "x"'))
    at = datetime(2025, 3, 9, 11, 15, tzinfo=UTC)
    defect = {"part": "steering", "severity": "x", "outcome": "open"}
    grave = {"part": "horn", "severity": "major", "outcome": "open"}
    datum = {
        "idempotency_key": "k",
        "driver_id": "D-1",
        "inspected_at": at,
        "units": [{"role": "bus", "unit_number": "7"}],
        "certification": {"by": "D-1", "at": at, "method": "paper"},
        "defects": [defect, grave],
    }
    (found,) = _decide("dvir", [schema.confluent(11, datum)], {REF: schema})
    assert isinstance(found, Refused)
    assert (found.reason, found.violations[0].path) == (
        Reason.SCHEMA_VIOLATION,
        "defects[0].severity",
    )
    assert found.safety_critical


@pytest.mark.parametrize(
    "body",
    [
        b"\x80\x80\x80\x80\x80\x80\x80\x80\x40abc",
        b"\x09abc",
        b"\x0aabc",
        b"\xff" * 11,
        b"",
        b"\x0eE000123" + b"\xff" * 9 + b"\x01",
    ],
)
def test_lengths_beyond_the_value(body: bytes) -> None:
    """A length is bounded by the message that holds it, negative ones and floods of continuation
    bytes included (apache/avro#3861)."""
    assert _outcomes("payroll", [FRAME + body], {REF: _schema(PAYROLL_KINDS)}) == ["malformed_avro"]


@pytest.mark.parametrize("kind", ["array", "map"])
def test_block_counts_beyond_the_value(kind: str) -> None:
    """A count claims no memory either."""
    items = (
        {"type": "array", "items": "null"} if kind == "array" else {"type": "map", "values": "null"}
    )
    schema = _schema({"many": items})
    for count in (b"\xfe\xff\xff\xff\x0f", b"\xff\xff\xff\xff\x0f\x02", b"\xff" * 9 + b"\x01\x00"):
        assert _outcomes("payroll", [FRAME + count], {REF: schema}) == ["malformed_avro"]


def test_branches_that_do_not_exist() -> None:
    """Negative and too large indexes of unions and enums, and booleans of other bytes."""
    kinds = (["null", "string"], {"type": "enum", "name": "E", "symbols": ["a", "b"]}, "boolean")
    for kind in kinds:
        schema = _schema({"one": kind})
        for body in (b"\x01", b"\x03", b"\x04", b"\xff"):
            if kind != "boolean" or body != b"\x01":
                values = [FRAME + body]
                assert _outcomes("payroll", values, {REF: schema}) == ["malformed_avro"]


@pytest.mark.parametrize("days", [-719_164, 2_932_897, 2**31 - 1, -(2**31)])
def test_dates_that_no_calendar_has(days: int) -> None:
    """Legal bytes, one bad record, and no clamped date (fastavro/fastavro#284)."""
    schema = _schema({**PAYROLL_KINDS, "pay_date": "int"})
    dated = _schema(PAYROLL_KINDS)
    value = schema.confluent(11, {**DATUM, "pay_date": days})
    (found,) = _decide("payroll", [value], {REF: dated})
    assert isinstance(found, Refused)
    assert (found.reason, found.violations[0].path) == (Reason.SCHEMA_VIOLATION, "pay_date")


def test_a_bad_value_before_malformed_bytes() -> None:
    """The first reason in the order wins, not the first that a decoder meets."""
    schema, dated = _schema({"pay_date": "int"}), _schema({"pay_date": DAY})
    value = schema.confluent(11, {"pay_date": 2_932_897})
    assert _outcomes("payroll", [value + b"\x00"], {REF: dated}) == ["malformed_avro"]
