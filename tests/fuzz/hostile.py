"""Inputs made to hurt: each as large as a value may be, and of one kind of excess."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from schemas.avro_strict import AvroSchema, SchemaRef
from schemas.envelope import Headers
from schemas.examples import VALID, avro_datum, load_examples
from schemas.record_type import RecordType

SIZE = 1_000_000
"""Bytes: what the default decision set takes."""


def members_of(record_type: RecordType) -> dict[str, Any]:
    """Members of a valid record with every field that has an example."""
    found: dict[str, Any] = {}
    for example in load_examples(record_type):
        if example.name.startswith(VALID) and example.members is not None:
            found = {**example.members, **found} if len(example.members) > len(found) else found
    return found


def valid(record_type: RecordType) -> bytes:
    """A valid record with every field that has an example."""
    return json.dumps(members_of(record_type)).encode()


def json_values(record_type: RecordType) -> Iterator[tuple[str, bytes]]:
    """Values that begin as JSON."""
    members = members_of(record_type)
    for name in ("earnings", "defects", "correlation_id", "idempotency_key"):
        members.pop(name, None)
    if record_type.name == "dvir":
        members["idempotency_key"] = "hostile"
    head = json.dumps({**members, "gross_pay": "1.00"})[:-1].encode()
    bare = json.dumps({n: one for n, one in members.items() if n != "gross_pay"})[:-1].encode()
    digits = b"9" * (SIZE - len(head) - 100)
    yield "lists in lists", b"[" * SIZE
    yield "objects in objects", b'{"a":' * (SIZE // 5)
    yield "closed nesting", b'{"a":' + b"[" * (SIZE // 2 - 50) + b"]" * (SIZE // 2 - 50) + b"}"
    yield "nesting at the limit", head + b',"x":' + b"[" * 60 + b"1" + b"]" * 60 + b"}"
    yield "repeats in repeats", b'{"a":0,"a":' * 150 + b"1" + b"}" * 150
    yield "repeats at one level", b'{"a":0' + b',"a":0' * (SIZE // 6 - 10) + b"}"
    yield "a long whole number", head + b',"x":' + digits + b"}"
    yield "a long fraction", head + b',"x":0.' + digits + b"}"
    yield "a long exponent", head + b',"x":1e' + digits + b"}"
    yield "a great exponent", head + b',"x":1e999999999}'
    yield "a long amount", bare + b',"gross_pay":"' + digits[9:] + b'"}'
    yield "many members", head + _joined(b',"m%d":%d', SIZE - len(head) - 10) + b"}"
    yield "many numbers", head + b',"x":[0' + b",0" * ((SIZE - len(head)) // 2 - 20) + b"]}"
    yield "many objects", head + b',"x":[{}' + b",{}" * ((SIZE - len(head)) // 3 - 20) + b"]}"
    yield "many lines", head + b',"earnings":[{}' + b",{}" * ((SIZE - len(head)) // 3 - 20) + b"]}"
    yield "many defects", head + b',"defects":[{}' + b",{}" * ((SIZE - len(head)) // 3 - 20) + b"]}"
    yield "a long text", head + b',"x":"' + b"x" * (SIZE - len(head) - 10) + b'"}'
    yield "escapes", head + b',"x":"' + b"\\u00e9" * ((SIZE - len(head)) // 6 - 5) + b'"}'
    yield "surrogates", head + b',"x":"' + b"\\ud83d" * ((SIZE - len(head)) // 6 - 5) + b'"}'
    yield "zero characters", head + b',"x":"' + b"\\u0000" * ((SIZE - len(head)) // 6 - 5) + b'"}'
    yield "backslashes", head + b',"x":"' + b"\\\\" * ((SIZE - len(head)) // 2 - 5) + b'"}'
    yield "an open text", head + b',"x":"' + b"\\" * (SIZE - len(head) - 10)
    yield "a long name", head + b',"' + b"n" * (SIZE - len(head) - 10) + b'":1}'
    yield "blanks", b" " * (SIZE - 2) + b"{}"
    yield "a long key", b'{"idempotency_key":"' + b"k" * (SIZE - 100) + b'"}'
    yield "a long correlation id", head + b',"correlation_id":"' + b"c" * (SIZE // 2) + b'"}'


def _joined(form: bytes, size: int) -> bytes:
    parts, total, number = [], 0, 0
    while total < size - 30:
        part = form % (number, number)
        parts.append(part)
        total += len(part)
        number += 1
    return b"".join(parts)


WRITERS: dict[int, dict[str, Any]] = {
    1: {"type": "record", "name": "R", "fields": [{"name": "next", "type": ["null", "R"]}]},
    2: {"type": "record", "name": "R", "fields": [{"name": "r", "type": "R"}]},
    3: {
        "type": "record",
        "name": "R",
        "fields": [{"name": "a", "type": {"type": "array", "items": ["null", "R", "int"]}}],
    },
    4: {
        "type": "record",
        "name": "R",
        "fields": [{"name": "m", "type": {"type": "map", "values": "boolean"}}],
    },
    5: {"type": "record", "name": "R", "fields": [{"name": "gross_pay", "type": "bytes"}]},
    6: {
        "type": "record",
        "name": "R",
        "fields": [
            {
                "name": "gross_pay",
                "type": {"type": "bytes", "logicalType": "decimal", "precision": 1000, "scale": 2},
            },
            {
                "name": "x",
                "type": {
                    "type": "bytes",
                    "logicalType": "decimal",
                    "precision": 1000,
                    "scale": 1000,
                },
            },
        ],
    },
    7: {
        "type": "record",
        "name": "R",
        "fields": [{"name": "employee_id", "type": "string"}, {"name": "d", "type": "double"}],
    },
    8: {
        "type": "record",
        "name": "R",
        "fields": [{"name": "n", "type": {"type": "array", "items": "null"}}],
    },
    9: {
        "type": "record",
        "name": "R",
        "fields": [
            {
                "name": "a",
                "type": {
                    "type": "array",
                    "items": {
                        "type": "record",
                        "name": "W",
                        "fields": [
                            {"name": "b", "type": "boolean"},
                            *({"name": f"n{i}", "type": "null"} for i in range(200)),
                        ],
                    },
                },
            }
        ],
    },
    10: {"type": "record", "name": "R0", "fields": [{"name": "n", "type": "null"}]},
    11: {"type": "enum", "name": "E", "symbols": ["A", "B"]},
    12: {"type": "array", "items": "int"},
}
_bomb: Any = "null"
for _level in range(24):
    _bomb = {
        "type": "record",
        "name": f"R{_level}",
        "fields": [
            {"name": "a", "type": _bomb},
            {"name": "b", "type": f"R{_level - 1}" if _level else "null"},
        ],
    }
WRITERS[13] = _bomb
UNKNOWN_ID = 404


def stored_schemas() -> dict[SchemaRef, AvroSchema | None]:
    """A schema store with schemas of every shape, and one id it definitely has not."""
    found: dict[SchemaRef, AvroSchema | None] = {
        SchemaRef("confluent", number): AvroSchema.from_text(json.dumps(schema))
        for number, schema in WRITERS.items()
    }
    found[SchemaRef("confluent", UNKNOWN_ID)] = None
    return found


def confluent(number: int, body: bytes) -> bytes:
    """A value in Confluent framing."""
    return b"\x00" + number.to_bytes(4, "big") + body


def varint(number: int) -> bytes:
    """Avro's zig-zag number."""
    number = (number << 1) ^ (number >> 63)
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def avro_values(record_type: RecordType) -> Iterator[tuple[str, bytes]]:
    """Values in Avro framings."""
    some = SIZE - 100
    yield "records in records", confluent(1, b"\x02" * some)
    yield "records in records, closed", confluent(1, b"\x02" * 300 + b"\x00")
    yield "a record that never ends", confluent(2, b"")
    yield "arrays in arrays", confluent(3, b"\x02\x02" * (some // 2))
    yield (
        "many items",
        confluent(3, varint(some // 2 - 10) + b"\x04\x00" * (some // 2 - 10) + b"\x00"),
    )
    yield "many blocks", confluent(3, b"\x02\x00" * (some // 2) + b"\x00")
    yield "empty blocks", confluent(3, b"\x01\x00" * (some // 2))
    yield (
        "a map's entries",
        confluent(
            4, b"".join(b"\x02\x08%04x\x01" % i for i in range(min(65_000, SIZE // 8))) + b"\x00"
        ),
    )
    yield "more items than bytes", confluent(8, varint(2**62) + b"\x00")
    yield "as many items as bytes", confluent(8, varint(1_000) + b"\x00" * 1_000)
    yield "bytes for money", confluent(5, varint(some - 10) + b"\x7f" * (some - 10))
    yield "a long decimal", confluent(6, varint(some // 2) + b"\x7f" * (some // 2) + b"\x02\x01")
    yield "the longest decimal", confluent(6, (varint(415) + b"\x7f" + b"\xff" * 414) * 2)
    yield "a length that lies", confluent(7, varint(2**62) + b"x")
    yield "a negative length", confluent(7, varint(-1) + b"x")
    yield (
        "fields that take no byte",
        confluent(9, varint(some - 20) + b"\x01" * (some - 20) + b"\x00"),
    )
    yield "nulls in nulls", confluent(13, b"")
    yield "no record", confluent(11, b"\x02")
    yield "no record, many", confluent(12, varint(some - 10) + b"\x02" * (some - 10) + b"\x00")
    yield "an id there is not", confluent(UNKNOWN_ID, b"\x02" * some)
    schema = record_type.raw_schemas[-1]
    yield "our head alone", schema.head
    yield "our head, zeros", schema.head + b"\x00" * some
    yield "our head, ones", schema.head + b"\xff" * some
    yield "our head, twos", schema.head + b"\x02" * some
    for example in load_examples(record_type):
        if example.name.startswith(VALID) and example.members is not None:
            if any(isinstance(one, float) for one in example.members.values()):
                continue
            yield (
                f"{example.name} and more",
                schema.single_object(avro_datum(schema, example.members)) + b"\x00" * some,
            )
            break


def headers() -> Iterator[tuple[str, Headers]]:
    """Headers of every excess."""
    yield "many", tuple((f"h{i}", b"x" * 50) for i in range(10_000))
    yield "large", (("wb-source-error", b"\xff" * 900_000), ("correlation-id", b"\x00" * 900_000))
    yield (
        "no values",
        tuple((name, None) for name in ("correlation-id", "traceparent", "wb-attempt")),
    )
    yield "odd names", (("", b""), ("\x00", b"x"), ("\ud800", b"x"), ("n" * 100_000, b"x"))
    yield "a long number", (("wb-attempt", b"9" * 100_000), ("wb-resubmission-of", b"x"))
    yield "digits that are none", (("wb-attempt", "١".encode()), ("wb-resubmission-of", b"x"))
    yield "a long instant", (("wb-observed-at", b"2026-11-03T06:42:09." + b"9" * 900_000 + b"Z"),)
    yield "traces", (("traceparent", b"00-" + b"0" * 900_000), ("traceparent", b"\xff" * 55))
