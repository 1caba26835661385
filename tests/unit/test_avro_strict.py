"""Strict Avro: what lenient decoders let pass is refused with its reason."""

from __future__ import annotations

import io
import json
import re
from datetime import UTC, date, datetime
from decimal import Context, Decimal
from typing import Any

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.avro_strict import AvroFault, AvroSchema, SchemaRef, schema_ref
from schemas.avro_writers import writer_faults
from schemas.canonical import unknown
from schemas.exact import Unfit, date_of, decimal_of, instant_of
from schemas.reasons import Reason


def _money(scale: int | None = 2, precision: int = 4) -> dict[str, Any]:
    schema = {"type": "bytes", "logicalType": "decimal", "precision": precision}
    return schema if scale is None else {**schema, "scale": scale}


FIELDS = [
    {"name": "text", "type": ["null", "string"]},
    {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["a", "b"]}},
    {"name": "flag", "type": "boolean"},
    {"name": "pay", "type": _money()},
    {"name": "day", "type": {"type": "int", "logicalType": "date"}},
    {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
    {"name": "list", "type": {"type": "array", "items": "string"}},
    {"name": "map", "type": {"type": "map", "values": "long"}},
]


def _schema(fields: list[dict[str, Any]]) -> AvroSchema:
    return AvroSchema.from_text(json.dumps({"type": "record", "name": "R", "fields": fields}))


SCHEMA = _schema(FIELDS)
DATUM = {
    "text": "héllo",
    "kind": "b",
    "flag": True,
    "pay": Decimal("12.34"),
    "day": date(2026, 11, 1),
    "at": datetime(2026, 11, 1, 12, 0, 0, 123456, UTC),
    "list": ["x", "y"],
    "map": {"k": 7},
}


def _one(kind: object, body: bytes) -> object:
    found = _schema([{"name": "f", "type": kind}]).decode(body, 0)
    assert isinstance(found, dict)
    return found["f"]


def _reason(kind: object, body: bytes) -> Reason:
    with pytest.raises(AvroFault) as caught:
        _one(kind, body)
    assert caught.value.path.startswith("f") or caught.value.path == ""
    return caught.value.reason


def test_known_fingerprint() -> None:
    """The fingerprint is the one of the Avro specification, little-endian: of "null" for instance
    0x63dd24e7cc258f8a."""
    assert AvroSchema.from_text('"null"').fingerprint == bytes.fromhex("8a8f25cce724dd63")


def test_decodes_what_fastavro_writes() -> None:
    """Good bytes come out as the values that went in, in both framings."""
    single, framed = SCHEMA.single_object(DATUM), SCHEMA.confluent(7, DATUM)
    assert SCHEMA.decode(single, 10) == DATUM
    assert SCHEMA.decode(framed, 5) == DATUM
    assert schema_ref(single) == SchemaRef("single_object", SCHEMA.fingerprint)
    assert schema_ref(framed) == SchemaRef("confluent", 7)
    assert schema_ref(b"\x00\x00\x00") is None
    assert schema_ref(b"{}") is None


MALFORMED = [
    ("long", b"\xff" * 11),
    ("long", b"\x80"),
    ("int", b"\x80\x80\x80\x80\x10"),
    ("string", b"\x0a\x61\x62\x63"),
    ("string", b"\x09\x61"),
    ("string", b"\x80\x80\x80\x80\x80\x80\x80\x80\x40\x61"),
    ("boolean", b"\x02"),
    ("boolean", b""),
    ("double", b"\x00" * 7),
    (["null", "string"], b"\x01"),
    (["null", "string"], b"\x04"),
    ({"type": "enum", "name": "E", "symbols": ["a"]}, b"\x01"),
    ({"type": "enum", "name": "E", "symbols": ["a"]}, b"\x02"),
    ({"type": "fixed", "name": "F", "size": 4}, b"\x00"),
    ({"type": "array", "items": "null"}, b"\x80\x80\x80\x80\x80\x01"),
    ({"type": "array", "items": "long"}, b"\x04\x02"),
    ({"type": "array", "items": "long"}, b"\x01\xff\x7f\x02"),
    ({"type": "map", "values": "long"}, b"\x04\x02a\x02\x02a\x02\x00"),
    ({"type": "array", "items": "long"}, b"\x01\x04\x02\x00"),
    ({"type": "map", "values": "null"}, b"\x01\x06\x02a\x00"),
    ("long", b"\x82\x00"),
    ("string", b"\x82\x80\x00a"),
    ("null", b"\x00"),
]


@pytest.mark.parametrize(("kind", "body"), MALFORMED, ids=str)
def test_bytes_of_no_such_schema(kind: object, body: bytes) -> None:
    """Negative or out-of-range branches and symbols, lengths and counts beyond the value, cut-off
    and left-over bytes are `malformed_avro`, without allocating what they claim."""
    assert _reason(kind, body) is Reason.MALFORMED_AVRO


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (_money(), b"\x04\x27\x10"),
        ({"type": "int", "logicalType": "date"}, b"\xf7\xe4\x57"),
        ({"type": "int", "logicalType": "date"}, b"\xc2\x82\xe6\x02"),
        ({"type": "long", "logicalType": "timestamp-micros"}, b"\xff" * 9 + b"\x01"),
        ({"type": "long", "logicalType": "timestamp-millis"}, b"\xfe" + b"\xff" * 8 + b"\x01"),
    ],
    ids=str,
)
def test_values_that_no_contract_can_take(kind: object, body: bytes) -> None:
    """Legal bytes with a value out of range are kept for the contract to refuse, in any field."""
    found = _one(kind, body)
    assert isinstance(found, Unfit)
    for read in (lambda one: decimal_of(one, 14, 2), date_of, instant_of, unknown):
        with pytest.raises(ValueError, match=re.escape(found.rule)):
            read(found)


def test_text_that_is_not_text() -> None:
    """Text that is not UTF-8, or holds U+0000, is `encoding`."""
    assert _reason("string", b"\x02\xff") is Reason.ENCODING
    assert _reason("string", b"\x02\x00") is Reason.ENCODING


def test_hostile_nesting() -> None:
    """A recursive schema cannot exhaust the stack."""
    schema = AvroSchema.from_text(
        json.dumps(
            {"type": "record", "name": "N", "fields": [{"name": "n", "type": ["null", "N"]}]}
        )
    )
    with pytest.raises(AvroFault) as caught:
        schema.decode(b"\x02" * 100_000 + b"\x00", 0)
    assert caught.value.reason is Reason.MALFORMED_AVRO


@given(st.binary(max_size=80))
def test_any_bytes_decode_or_fault(body: bytes) -> None:
    """No bytes make the decoder raise anything but a fault."""
    try:
        SCHEMA.decode(body, 0)
    except AvroFault as fault:
        assert fault.rule


@given(st.integers(0, 200), st.integers(0, 255))
def test_never_more_lenient_than_fastavro(place: int, byte: int) -> None:
    """A changed byte that we accept decodes to what fastavro reads, all of it."""
    body = bytearray(SCHEMA.single_object(DATUM)[10:])
    body[place % len(body)] = byte
    try:
        found = SCHEMA.decode(bytes(body), 0)
    except AvroFault:
        return
    assert isinstance(found, dict)
    if any(isinstance(value, Unfit) for value in found.values()):
        return
    stream = io.BytesIO(bytes(body))
    assert found == fastavro.schemaless_reader(stream, SCHEMA.parsed, None)
    assert stream.read() == b""


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("double", Reason.FLOAT_MONEY),
        (["null", "float"], Reason.FLOAT_MONEY),
        (_money(None), Reason.SCHEMA_VIOLATION),
        (_money(4, 14), Reason.SCHEMA_VIOLATION),
        ("long", Reason.SCHEMA_VIOLATION),
        ("bytes", Reason.SCHEMA_VIOLATION),
        (_money(2, 9), None),
        (["null", _money(2, 14)], None),
        ("string", None),
    ],
    ids=str,
)
def test_a_writers_decimal_must_be_ours(kind: object, reason: Reason | None) -> None:
    """Another scale, a whole number or a binary float where money is due refuses every record of
    that writer; another precision or text does not."""
    writer = _schema([{"name": "pay", "type": kind}, {"name": "extra", "type": "double"}])
    faults = list(writer_faults(writer, SCHEMA))
    assert [fault.reason for fault in faults] == ([] if reason is None else [reason])
    assert all(fault.path == "pay" for fault in faults)


def _named_twice(scale: int) -> AvroSchema:
    """A writer who names its decimal at one field and refers to it at the money."""
    money = {**_money(scale), "type": "fixed", "name": "Money", "size": 8}
    return _schema([{"name": "fee", "type": money}, {"name": "pay", "type": "Money"}])


@pytest.mark.parametrize(("scale", "faults"), [(2, []), (3, [Reason.SCHEMA_VIOLATION])])
def test_a_decimal_by_its_name(scale: int, faults: list[Reason]) -> None:
    """A named type is looked up before it is judged."""
    assert [fault.reason for fault in writer_faults(_named_twice(scale), SCHEMA)] == faults


def test_a_logical_type_on_the_wrong_base_is_none() -> None:
    """Avro ignores it, so cents in a long that calls itself a decimal are a whole number."""
    cents = {"type": "long", "logicalType": "decimal", "precision": 4, "scale": 2}
    writer = _schema([{"name": "pay", "type": cents}])
    assert [fault.reason for fault in writer_faults(writer, SCHEMA)] == [Reason.SCHEMA_VIOLATION]
    assert _one({"type": "long", "logicalType": "date"}, b"\x02") == 1


def test_a_writers_schema_costs_no_more_than_ours() -> None:
    """A schema that refers to its own types over and over is judged at once."""
    kinds: Any = "double"
    for level in range(40):
        fields = [{"name": "a", "type": kinds}, {"name": "b", "type": f"L{level - 1}"}]
        kinds = {"type": "record", "name": f"L{level}", "fields": fields[: 2 if level else 1]}
    writer = _schema([{"name": "x", "type": kinds}, {"name": "pay", "type": "double"}])
    assert [fault.path for fault in writer_faults(writer, SCHEMA)] == ["pay"]


def test_what_only_looks_like_a_type_is_none() -> None:
    """A default or a note may hold anything, also what looks like a type with an odd name."""
    note = {"type": "record", "name": {"a": 1}, "fields": []}
    writer = _schema([{"name": "pay", "type": "double", "note": note}])
    assert [fault.path for fault in writer_faults(writer, SCHEMA)] == ["pay"]


@pytest.mark.parametrize(
    "text",
    [
        *("", "[" * 3_000, "5", "null", '"foo"', "{}", '{"type":"array"}', '{"type":"R"}'),
        '{"type":"fixed","name":"F","size":-5}',
        '{"type":"bytes","logicalType":"decimal","precision":1000000000,"scale":2}',
        '{"type":"record","name":"R","fields":[{"name":"a\\u0000","type":"int"}]}',
        '{"type":"enum","name":"E","symbols":["a\\ud800"]}',
        '{"type":"record","name":"R","fields":[{"name":"a","type":"int"},{"name":"a","type":"int"}]}',
        '{"type":"bytes","logicalType":"decimal","precision":9,"scale":-0.0}',
        '{"type":"bytes","logicalType":"decimal","precision":9.0,"scale":2}',
        '{"type":"record","name":"R","fields":[{"name":-1,"type":"int"}]}',
        '{"type":"record","name":"R","fields":[{"name":"","type":["null","R"]}]}',
    ],
    ids=lambda text: text[:40],
)
def test_what_is_no_schema(text: str) -> None:
    """A text that is no schema, or none that can be read safely, is a `ValueError`."""
    with pytest.raises(ValueError, match="not an Avro schema"):
        AvroSchema.from_text(text)


def test_items_of_no_bytes_are_refused() -> None:
    """Nested lists of nothing would make a short value a long work."""
    nothing = {"type": "record", "name": "Nothing", "fields": []}
    kind = {"type": "array", "items": {"type": "array", "items": nothing}}
    assert _reason(kind, b"\x02\x02\x00\x00") is Reason.MALFORMED_AVRO
    assert _one(kind, b"\x02\x00\x00") == [[]]


def _doubled(innermost: object, levels: int) -> dict[str, Any]:
    """A record that holds the one before it twice, and so on."""
    kind: Any = innermost
    name = kind["name"] if isinstance(kind, dict) else kind
    for level in range(levels):
        again = f"D{level - 1}" if level else name
        fields = [{"name": "a", "type": kind}, {"name": "b", "type": again}]
        kind = {"type": "record", "name": f"D{level}", "fields": fields}
    found: dict[str, Any] = kind
    return found


@pytest.mark.parametrize(
    "innermost", ["null", {"type": "fixed", "name": "F", "size": 0}, "Nothing"], ids=str
)
def test_values_of_no_bytes_are_counted(innermost: object) -> None:
    """Records of records of nothing would make work without end from a value of a few bytes; a few
    such values are as Avro has them."""
    nothing = {"name": "n", "type": {"type": "record", "name": "Nothing", "fields": []}}
    few, many = (
        _schema([nothing, {"name": "x", "type": _doubled(innermost, levels)}]) for levels in (4, 60)
    )
    assert isinstance(few.decode(b"", 0), dict)
    with pytest.raises(AvroFault) as caught:
        many.decode(b"", 0)
    assert caught.value.reason is Reason.MALFORMED_AVRO


def test_many_values_that_take_bytes_are_read() -> None:
    """Only values of no bytes are counted: a wide record is none of them."""
    inner = {"type": "record", "name": "I", "fields": [{"name": "a", "type": "int"}]}
    fields = [
        {"name": "f0", "type": inner},
        *({"name": f"f{i}", "type": "I"} for i in range(1, 90)),
    ]
    decoded = _schema(fields).decode(b"\x02" * 90, 0)
    assert isinstance(decoded, dict)
    assert len(decoded) == 90


def test_long_decimals_of_unknown_members_are_exact() -> None:
    """Python's default precision of 28 digits rounds nothing here."""
    schema = _schema([{"name": "f", "type": _money(3, 40)}])
    exact = Decimal("1234567890123456789012345678901234567.123")
    number = int(exact.scaleb(3, Context(prec=40)))
    body = number.to_bytes(17, "big")
    assert schema.decode(bytes([34]) + body, 0) == {"f": exact}


@pytest.mark.parametrize(("levels", "fits"), [(9, True), (10, False)])
def test_nesting_is_limited_as_in_json(levels: int, *, fits: bool) -> None:
    """Depth counts records and lists inside each other, whatever the stack could take."""
    text = '{"type":"record","name":"N","fields":[{"name":"n","type":["null","N"]}]}'
    schema = AvroSchema.from_text(text)
    value = b"\x02" * levels + b"\x00"
    if fits:
        assert schema.decode(value, 0, 10)
        return
    with pytest.raises(AvroFault) as caught:
        schema.decode(value, 0, 10)
    assert caught.value.reason is Reason.MALFORMED_AVRO
