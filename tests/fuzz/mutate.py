"""Values and files changed at random, from a seed, knowing what they are made of."""

from __future__ import annotations

import base64
import json
import random
from collections.abc import Sequence
from typing import Any

from schemas.envelope import NO_TIMESTAMP, Headers, Record
from schemas.examples import Example, avro_datum, load_examples
from schemas.record_type import RecordType
from tests.fuzz.hostile import UNKNOWN_ID, WRITERS, confluent, varint

SIZE_MAX = 60_000
"""Of a mutated value; what is as large as allowed is in `hostile`."""
_TOKENS: Sequence[bytes] = (
    *(
        b"null",
        b"true",
        b"0",
        b"-0",
        b"-0.0",
        b"1e3",
        b"1E400",
        b"1e999999999",
        b"NaN",
        b"Infinity",
    ),
    *(b"9007199254740993", b"9223372036854775808", b"0.1", b"1.005", b"-1", b"00", b"1.", b".5"),
    *(b'""', b'" "', b'"1.00"', b'"NaN"', b'"2026-02-30"', b'"2026-11-03T06:42:09Z"', b'"US"'),
    *(b'"\\u0000"', b'"\\ud800"', b'"\\udfff\\ud800"', b'"\xff"', b'"\x00"', b'"\xed\xa0\x80"'),
    *(b"[]", b"{}", b"[[]]", b'{"a":0,"a":1}', b'{"":0,"":{"":0,"":1}}', b"[" * 70 + b"]" * 70),
    *(b"\xef\xbb\xbf", b"\xc3\x01", b"\x00\x00\x00\x00\x01", b",", b":", b"{", b"[", b'"', b"}"),
)
_MEMBERS = ("idempotency_key", "gross_pay", "earnings", "defects", "units", "correlation_id", "x")
_VARINTS: Sequence[bytes] = (
    *(varint(n) for n in (0, 1, -1, 2, 3, 63, 64, -64, -65, 2**31, -(2**31) - 1, 2**62)),
    *(
        b"\x80",
        b"\xff" * 9,
        b"\xff" * 10,
        b"\x80" * 9 + b"\x02",
        b"\x80\x00",
        b"\xff" * 9 + b"\x01",
    ),
)
_HEADER_NAMES = (
    *("correlation-id", "traceparent", "wb-observed-at", "wb-source-error", "wb-attempt"),
    *("wb-resubmission-of", "wb-chunk", "wb-chunk-declare", "wb-close", "wb-event-id", "wb-reason"),
    *("orig-wb-x", "", "\x00", "\ud800", "é"),
)
_HEADER_VALUES = (
    *(b"", b"1", b"\x00", b"\xff\xfe", b"2026-11-03T06:42:09Z", b"9" * 30, b"x" * 3_000),
    b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
    "٣".encode(),
)


class Mutator:
    """Makes records of one type from a seed."""

    def __init__(self, record_type: RecordType, chance: random.Random) -> None:
        self._type = record_type
        self._chance = chance
        self._examples = load_examples(record_type)
        self._values = [
            e.record.value
            for e in self._examples
            if e.record.value and len(e.record.value) < 10_000
        ]
        self._avro = [avro for e in self._examples for avro in _in_avro(record_type, e)]

    def record(self) -> Record:
        """One record."""
        chance = self._chance
        value: bytes | None = chance.choice(
            [self._json, self._json, self._framed, self._framed, self._any]
        )()
        timestamp = chance.choice([NO_TIMESTAMP, 0, 1_793_706_300_000, -(2**62), 2**63 - 1])
        headers: Headers = self._headers() if chance.random() < 0.3 else ()
        if chance.random() < 0.01:
            value = None
        return Record(chance.randrange(100), value, timestamp, b"k", headers)

    # -- JSON --------------------------------------------------------------------------------------

    def _json(self) -> bytes:
        value = self._chance.choice(self._values)
        for _ in range(self._chance.choice([1, 1, 2, 4])):
            value = self._chance.choice(
                [self._token, self._repeat_member, self._spliced, self._bytes, self._nested]
            )(value)[:SIZE_MAX]
        return value

    def _token(self, value: bytes) -> bytes:
        """Another value where one stands: between a colon, comma or bracket and the next."""
        starts = [at + 1 for at, byte in enumerate(value) if byte in b":,["]
        if not starts:
            return self._chance.choice(_TOKENS)
        begin = self._chance.choice(starts)
        end = begin
        while end < len(value) and value[end] not in b",}]":
            end += 1
        return value[:begin] + self._chance.choice(_TOKENS) + value[end:]

    def _repeat_member(self, value: bytes) -> bytes:
        """A member once more, perhaps nested in itself."""
        name = self._chance.choice(_MEMBERS)
        one = b'"%s":%s' % (name.encode(), self._chance.choice(_TOKENS))
        at = value.find(b"{") + 1
        return value[:at] + one + b"," + value[at:] if at else one

    def _nested(self, value: bytes) -> bytes:
        """The value inside itself, or inside many."""
        depth = self._chance.choice([1, 2, 30, 63, 64, 65, 130])
        opened, closed = self._chance.choice(
            [(b"[", b"]"), (b'{"x":', b"}"), (b'{"x":0,"x":', b"}"), (b'[{"":[],"":', b"}]")]
        )
        inner = opened * depth + b"1" + closed * depth
        at = value.find(b"{") + 1
        return value[:at] + b'"x":' + inner + b"," + value[at:] if at else inner

    # -- Avro --------------------------------------------------------------------------------------

    def _framed(self) -> bytes:
        chance = self._chance
        body = chance.choice(self._avro)[10:]
        for _ in range(chance.choice([0, 1, 1, 2, 4])):
            body = chance.choice([self._varint, self._bytes, self._spliced])(body)[:SIZE_MAX]
        head = chance.choice(
            [
                self._type.raw_schemas[-1].head,
                self._type.raw_schemas[-1].head,
                *(confluent(number, b"") for number in [*WRITERS, UNKNOWN_ID, 0, 2**32 - 1]),
                b"\xc3\x01" + chance.randbytes(8),
                b"\xc3\x01\x00",
                b"\x00\x00",
            ]
        )
        return head + body

    def _varint(self, body: bytes) -> bytes:
        """A number, length, count or branch that says something else."""
        at = self._chance.randrange(len(body) + 1)
        return body[:at] + self._chance.choice(_VARINTS) + body[at + self._chance.randint(0, 2) :]

    # -- bytes -------------------------------------------------------------------------------------

    def _any(self) -> bytes:
        head = self._chance.choice([b"", b"{", b"[", b'"', b"\x00", b"\xc3\x01", b"\xef\xbb\xbf{}"])
        return head + self._chance.randbytes(self._chance.choice([0, 1, 9, 200]))

    def _bytes(self, value: bytes) -> bytes:
        """A bit turned over, bytes cut out, put in or repeated, the end cut off."""
        chance, changed = self._chance, bytearray(value)
        at = chance.randrange(len(changed) + 1)
        width = chance.choice([0, 1, 2, 8, 100])
        match chance.randrange(5):
            case 0 if changed:
                changed[at % len(changed)] ^= 1 << chance.randrange(8)
            case 1:
                del changed[at : at + width]
            case 2:
                changed[at:at] = chance.randbytes(width)
            case 3:
                changed[at:at] = changed[at : at + width] * chance.choice([1, 3, 500])
            case _:
                del changed[at:]
        return bytes(changed)

    def _spliced(self, value: bytes) -> bytes:
        """The beginning of one and the end of another."""
        other = self._chance.choice([*self._values, *self._avro])
        return (
            value[: self._chance.randrange(len(value) + 1)]
            + other[self._chance.randrange(len(other)) :]
        )

    # -- headers -----------------------------------------------------------------------------------

    def _headers(self) -> Headers:
        chance = self._chance
        return tuple(
            (
                chance.choice(_HEADER_NAMES),
                chance.choice([None, *_HEADER_VALUES, chance.randbytes(5)]),
            )
            for _ in range(chance.choice([1, 2, 5]))
        )

    # -- files -------------------------------------------------------------------------------------

    def ndjson(self) -> bytes:
        """A file of lines, changed."""
        lines = [self._chance.choice(self._values) for _ in range(self._chance.randint(0, 6))]
        text = self._chance.choice([b"\n", b"\r\n", b"\n\n", b"\r"]).join(lines)
        return self._changed(text)

    def csv(self) -> bytes:
        """A table, changed."""
        chance = self._chance
        names = chance.sample(sorted(self._type.raw_schemas[-1].fields()), 4)
        cells = [b"", b"1.00", b'"a,b"', b'"a""b"', b'"a\nb"', b"\xff", b'"', b"x" * 50, b" "]
        ends = chance.choice([b"\n", b"\r\n", b"\r"])
        rows = [",".join(names).encode()] + [
            b",".join(chance.choice(cells) for _ in range(chance.choice([4, 4, 4, 3, 5])))
            for _ in range(chance.randint(0, 6))
        ]
        return self._changed(ends.join(rows))

    def _changed(self, content: bytes) -> bytes:
        for _ in range(self._chance.choice([0, 1, 3])):
            content = self._bytes(content)[:SIZE_MAX]
        return self._chance.choice([b"", b"", b"\xef\xbb\xbf"]) + content

    # -- schemas -----------------------------------------------------------------------------------

    def schema_text(self) -> str:
        """The text of a schema, changed."""
        schema: Any = self._chance.choice([*WRITERS.values(), self._type.raw_schemas[-1].parsed])
        value = json.dumps(schema, default=str).encode()
        for _ in range(self._chance.choice([1, 2, 4])):
            value = self._chance.choice([self._token, self._bytes, self._kind])(value)[:SIZE_MAX]
        return value.decode("utf-8", self._chance.choice(["replace", "replace", "surrogateescape"]))

    def _kind(self, value: bytes) -> bytes:
        """Another type's name where one stands."""
        names = [b'"null"', b'"int"', b'"string"', b'"bytes"', b'"record"', b'"array"', b'"R"']
        found = self._chance.choice(names)
        return value.replace(found, self._chance.choice([*names, b'["null"]', b"{}", b"3"]), 1)


def _in_avro(record_type: RecordType, example: Example) -> list[bytes]:
    schema = record_type.raw_schemas[-1]
    if example.members is None or example.reason is not None:
        return []
    members = {n: str(v) if isinstance(v, float) else v for n, v in example.members.items()}
    return [schema.single_object(avro_datum(schema, members))]


# --- Keeping what failed --------------------------------------------------------------------------


def as_text(record: Record) -> str:
    """A record as a file of `corpus/`."""
    value = None if record.value is None else base64.b64encode(record.value).decode()
    headers = [
        [name, None if one is None else base64.b64encode(one).decode()]
        for name, one in record.headers
    ]
    fields = {"value": value, "timestamp": record.timestamp, "headers": headers}
    return json.dumps(fields, indent=1)


def from_text(text: str) -> Record:
    """What `as_text` was given."""
    fields = json.loads(text)
    value = None if fields["value"] is None else base64.b64decode(fields["value"])
    headers = tuple(
        (name, None if one is None else base64.b64decode(one)) for name, one in fields["headers"]
    )
    return Record(0, value, fields["timestamp"], b"k", headers)
