"""Strict Avro: schema identity, framing, and a decoder that refuses what a lenient one lets pass.

Common decoders take a negative union branch for an index from the end, any byte for true, a length
longer than the message until memory runs out, and the scale of whoever wrote a decimal. Here each
is refused: `malformed_avro` for bytes that are not this schema's, `schema_violation` for legal
bytes whose value the contract cannot take. Encodings: Confluent wire format (0x00, four bytes
schema id) and Avro single-object encoding (0xC3 0x01, eight bytes CRC-64-AVRO; Avro 1.12
specification). Pure.
"""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from functools import cached_property
from typing import Any, Literal

import fastavro
from fastavro.schema import SchemaParseException, UnknownType, fingerprint, parse_schema

from schemas.exact import EPOCH
from schemas.reasons import Reason

CONFLUENT_MARK = 0x00
SINGLE_OBJECT_MARK = b"\xc3\x01"
CONFLUENT_HEAD_BYTES = 5
SINGLE_OBJECT_HEAD_BYTES = 10


@dataclass(frozen=True, slots=True)
class SchemaRef:
    """The id by which a value names the schema it was written with."""

    kind: Literal["confluent", "single_object"]
    id: int | bytes
    """Confluent: the registry's number. Single object: the eight bytes of the fingerprint."""

    def __str__(self) -> str:
        return f"{self.kind} {self.id.hex() if isinstance(self.id, bytes) else self.id}"


def schema_ref(value: bytes) -> SchemaRef | None:
    """The schema a value names; None when it is not framed Avro, or the frame is cut short."""
    if value[:1] == b"\x00" and len(value) >= CONFLUENT_HEAD_BYTES:
        return SchemaRef("confluent", int.from_bytes(value[1:CONFLUENT_HEAD_BYTES], "big"))
    if value[:2] == SINGLE_OBJECT_MARK and len(value) >= SINGLE_OBJECT_HEAD_BYTES:
        return SchemaRef("single_object", bytes(value[2:SINGLE_OBJECT_HEAD_BYTES]))
    return None


class AvroFault(Exception):
    """Why a value's bytes were refused; carries the reason, the field path and the rule."""

    def __init__(self, reason: Reason, rule: str) -> None:
        super().__init__(rule)
        self.reason = reason
        self.rule = rule
        self.path = ""

    def under(self, name: str) -> AvroFault:
        """The same fault, seen from the record that holds the field."""
        joined = name if not self.path else f"{name}{'' if self.path[0] == '[' else '.'}{self.path}"
        self.path = joined
        return self


def _malformed(rule: str) -> AvroFault:
    return AvroFault(Reason.MALFORMED_AVRO, rule)


def _violation(rule: str) -> AvroFault:
    return AvroFault(Reason.SCHEMA_VIOLATION, rule)


class AvroSchema:
    """A schema, its fingerprint and its compiled strict decoder."""

    __slots__ = ("__dict__", "fingerprint", "parsed", "text")

    def __init__(self, text: str) -> None:
        try:
            plain = json.loads(text)
            self.parsed: Any = parse_schema(plain)
            canonical = fastavro.schema.to_parsing_canonical_form(json.loads(text))
        except (ValueError, KeyError, TypeError, SchemaParseException, UnknownType):
            message = "not an Avro schema"
            raise ValueError(message) from None
        self.text = text
        self.fingerprint = bytes.fromhex(fingerprint(canonical, "CRC-64-AVRO"))
        """CRC-64-AVRO of the Parsing Canonical Form, little-endian, as it stands in values."""

    @classmethod
    def from_text(cls, text: str) -> AvroSchema:
        """Parse a schema. Raises `ValueError` for what is not one."""
        return cls(text)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AvroSchema) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)

    @property
    def head(self) -> bytes:
        """The first ten bytes of single-object encoding."""
        return SINGLE_OBJECT_MARK + self.fingerprint

    @cached_property
    def _decode(self) -> _Decode:
        return _compile(self.parsed, {})

    def decode(self, value: bytes, begin: int) -> object:
        """Decode the body that begins at `begin` and must end with the value.

        Raises `AvroFault`.
        """
        try:
            decoded, end = self._decode(value, begin)
        except RecursionError:
            raise _malformed("nested too deeply") from None
        except UnicodeDecodeError:
            raise AvroFault(Reason.ENCODING, "text is UTF-8") from None
        if end != len(value):
            raise _malformed("bytes are left over after the record")
        return decoded

    def single_object(self, datum: Mapping[str, object]) -> bytes:
        """Encode in single-object encoding."""
        out = io.BytesIO()
        out.write(self.head)
        fastavro.schemaless_writer(out, self.parsed, datum)
        return out.getvalue()

    def confluent(self, schema_id: int, datum: Mapping[str, object]) -> bytes:
        """Encode in Confluent wire format."""
        out = io.BytesIO()
        out.write(bytes([CONFLUENT_MARK]) + schema_id.to_bytes(4, "big"))
        fastavro.schemaless_writer(out, self.parsed, datum)
        return out.getvalue()

    def fields(self) -> Mapping[str, object]:
        """Field name to type of a record schema; empty for any other."""
        if not isinstance(self.parsed, dict) or self.parsed.get("type") != "record":
            return {}
        return {field["name"]: field["type"] for field in self.parsed["fields"]}


# --- Decoding -------------------------------------------------------------------------------------

_Decode = Callable[[bytes, int], tuple[Any, int]]

_VARINT_BYTES_MAX = 10
_ITEMS_MAX = 1_000_000
"""More items than any value's bytes could hold; items of zero bytes would be free otherwise."""


def _long(data: bytes, at: int) -> tuple[int, int]:
    shift = number = 0
    for place in range(at, min(at + _VARINT_BYTES_MAX, len(data))):
        byte = data[place]
        number |= (byte & 0x7F) << shift
        if not byte & 0x80:
            if number >> 64:
                break
            return (number >> 1) ^ -(number & 1), place + 1
        shift += 7
    raise _malformed("a number ends too late")


def _int(data: bytes, at: int) -> tuple[int, int]:
    number, end = _long(data, at)
    if not -(2**31) <= number < 2**31:
        raise _malformed("a 32-bit number is larger")
    return number, end


def _bytes(data: bytes, at: int) -> tuple[bytes, int]:
    length, begin = _long(data, at)
    end = begin + length
    if length < 0 or end > len(data):
        raise _malformed("a length reaches beyond the value")
    return data[begin:end], end


def _string(data: bytes, at: int) -> tuple[str, int]:
    found, end = _bytes(data, at)
    text = found.decode("utf-8")
    if "\x00" in text:
        raise AvroFault(Reason.ENCODING, "no U+0000 in text")
    return text, end


def _boolean(data: bytes, at: int) -> tuple[bool, int]:
    if at >= len(data) or data[at] > 1:
        raise _malformed("a boolean is 0 or 1")
    return data[at] == 1, at + 1


def _null(_: bytes, at: int) -> tuple[None, int]:
    return None, at


def _packed(form: str, size: int) -> _Decode:
    unpack = struct.Struct(form).unpack_from

    def decode(data: bytes, at: int) -> tuple[float, int]:
        if at + size > len(data):
            raise _malformed("a floating-point number is cut short")
        return unpack(data, at)[0], at + size

    return decode


_PRIMITIVES: dict[str, _Decode] = {
    "null": _null,
    "boolean": _boolean,
    "int": _int,
    "long": _long,
    "float": _packed("<f", 4),
    "double": _packed("<d", 8),
    "bytes": _bytes,
    "string": _string,
}


def _compile(  # noqa: PLR0911 - one return per kind of type
    schema: Any,  # noqa: ANN401 - decoded JSON
    named: dict[str, _Decode],
) -> _Decode:
    """A decoder for a schema that fastavro has parsed; `named` holds the named types met so far."""
    if isinstance(schema, str):
        return _PRIMITIVES.get(schema) or _by_name(schema, named)
    if isinstance(schema, list):
        return _union([_compile(branch, named) for branch in schema])
    kind = schema["type"]
    if isinstance(kind, (dict, list)):
        return _compile(kind, named)
    if kind in {"record", "error"}:
        return _record(schema, named)
    if kind == "array":
        return _array(_compile(schema["items"], named))
    if kind == "map":
        return _map(_compile(schema["values"], named))
    if kind == "enum":
        return _remember(schema, named, _enum(schema["symbols"]))
    if kind == "fixed":
        return _remember(schema, named, _logical(schema, _fixed(schema["size"])))
    return _logical(schema, _compile(kind, named))


def _by_name(name: str, named: dict[str, _Decode]) -> _Decode:
    """A reference to a named type, which may be the one being compiled."""
    return lambda data, at: named[name](data, at)  # noqa: PLW0108 - not there yet


def _remember(schema: Mapping[str, Any], named: dict[str, _Decode], decode: _Decode) -> _Decode:
    named[schema["name"]] = decode
    return decode


def _union(branches: Sequence[_Decode]) -> _Decode:
    def decode(data: bytes, at: int) -> tuple[Any, int]:
        index, at = _long(data, at)
        if not 0 <= index < len(branches):
            raise _malformed("a union has no such branch")
        return branches[index](data, at)

    return decode


def _record(schema: Mapping[str, Any], named: dict[str, _Decode]) -> _Decode:
    fields: list[tuple[str, _Decode]] = []

    def decode(data: bytes, at: int) -> tuple[dict[str, Any], int]:
        found: dict[str, Any] = {}
        for name, read in fields:
            try:
                found[name], at = read(data, at)
            except AvroFault as fault:
                raise fault.under(name) from None
        return found, at

    _remember(schema, named, decode)
    fields += [(field["name"], _compile(field["type"], named)) for field in schema["fields"]]
    return decode


def _blocks(data: bytes, at: int) -> tuple[int, int]:
    """The item count of the next block; a negative one is followed by the block's size."""
    count, at = _long(data, at)
    if count < 0:
        count = -count
        size, at = _long(data, at)
        if size < 0 or at + size > len(data):
            raise _malformed("a block reaches beyond the value")
    if count > _ITEMS_MAX:
        raise _malformed("a block has more items than the value can hold")
    return count, at


def _array(item: _Decode) -> _Decode:
    def decode(data: bytes, at: int) -> tuple[list[Any], int]:
        found: list[Any] = []
        while True:
            count, at = _blocks(data, at)
            if count == 0:
                return found, at
            if len(found) + count > _ITEMS_MAX:
                raise _malformed("more items than the value can hold")
            for _ in range(count):
                try:
                    one, at = item(data, at)
                except AvroFault as fault:
                    raise fault.under(f"[{len(found)}]") from None
                found.append(one)

    return decode


def _map(value: _Decode) -> _Decode:
    def decode(data: bytes, at: int) -> tuple[dict[str, Any], int]:
        found: dict[str, Any] = {}
        while True:
            count, at = _blocks(data, at)
            if count == 0:
                return found, at
            for _ in range(count):
                key, at = _string(data, at)
                if key in found:
                    raise _malformed("a map has a key twice")
                found[key], at = value(data, at)

    return decode


def _enum(symbols: Sequence[str]) -> _Decode:
    def decode(data: bytes, at: int) -> tuple[str, int]:
        index, at = _long(data, at)
        if not 0 <= index < len(symbols):
            raise _malformed("an enum has no such symbol")
        return symbols[index], at

    return decode


def _fixed(size: int) -> _Decode:
    def decode(data: bytes, at: int) -> tuple[bytes, int]:
        if at + size > len(data):
            raise _malformed("a fixed value is cut short")
        return data[at : at + size], at + size

    return decode


# --- Logical types --------------------------------------------------------------------------------


def _logical(schema: Mapping[str, Any], base: _Decode) -> _Decode:
    """The value of a logical type; unknown ones stay what they are written as, as Avro demands."""
    convert = _conversion(schema)
    if convert is None:
        return base

    def decode(data: bytes, at: int) -> tuple[Any, int]:
        found, at = base(data, at)
        return convert(found), at

    return decode


def _conversion(schema: Mapping[str, Any]) -> Callable[[Any], Any] | None:
    kind = schema.get("logicalType")
    if kind == "decimal":
        return _decimal(schema.get("precision", 0), schema.get("scale", 0))
    if kind == "date":
        return _date
    if kind in _TICKS:
        tick = _TICKS[kind]
        return lambda number: _instant(number, tick)
    return None


_TICKS = {
    "timestamp-millis": timedelta(milliseconds=1),
    "timestamp-micros": timedelta(microseconds=1),
}


def _decimal(precision: int, scale: int) -> Callable[[bytes], Decimal]:
    bound = 10**precision

    def convert(written: bytes) -> Decimal:
        number = int.from_bytes(written, "big", signed=True)
        if not -bound < number < bound:
            raise _violation(f"at most {precision} digits")
        return Decimal(number).scaleb(-scale)

    return convert


def _date(number: int) -> date:
    try:
        return date(1970, 1, 1) + timedelta(days=number)
    except OverflowError:
        raise _violation("a date of the years 1 to 9999") from None


def _instant(number: int, tick: timedelta) -> datetime:
    try:
        return EPOCH + number * tick
    except OverflowError:
        raise _violation("an instant in the UTC years 1970 to 2199") from None
