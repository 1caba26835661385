"""Avro's binary encoding of our own events, compiled once per schema.

Half the cost of a general encoder, which asks of each value what it is: here the values come from a
model that has read them already, so each field's type is known and its value fits. Bytes are those
of any other encoder (a test compares them with fastavro's). Only what committed schemas use: of
unions, null and one other type. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import date, datetime
from decimal import Decimal
from typing import Any

from schemas.avro_strict import AvroSchema
from schemas.exact import days, micros, unscaled

Encode = Callable[[bytearray, Any], None]
"""Appends a value to what has been written."""


def encoder_of(schema: AvroSchema) -> Callable[[Mapping[str, object]], bytes]:
    """An encoder to single-object encoding. It takes a datum with every field of the schema.

    Raises `ValueError` for a schema it cannot encode. What it returns raises an error of Python's
    own for a datum that is not of the schema: that is our mistake, not the record's.
    """
    head, write = schema.head, _compile(schema.parsed, {})

    def encode(datum: Mapping[str, object]) -> bytes:
        out = bytearray(head)
        write(out, datum)
        return bytes(out)

    return encode


def _long(out: bytearray, value: int) -> None:
    if not -(2**63) <= value < 2**63:
        message = "a number of more than 64 bits"
        raise OverflowError(message)
    number = (value << 1) ^ (value >> 63)
    while number > 0x7F:  # noqa: PLR2004 - seven bits a byte, the highest says that more follow
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)


def _bytes(out: bytearray, value: bytes) -> None:
    length = len(value)
    if length < 64:  # noqa: PLR2004 - a length of one byte, as most are
        out.append(length << 1)
    else:
        _long(out, length)
    out += value


def _string(out: bytearray, value: str) -> None:
    _bytes(out, value.encode())


def _boolean(out: bytearray, value: object) -> None:
    out.append(1 if value else 0)


def _date(out: bytearray, value: date) -> None:
    _long(out, days(value))


def _instant(out: bytearray, value: datetime) -> None:
    _long(out, micros(value))


_PRIMITIVES: dict[str, Encode] = {
    "boolean": _boolean,
    "int": _long,
    "long": _long,
    "bytes": _bytes,
    "string": _string,
}
_LOGICAL: dict[str, Encode] = {"date": _date, "timestamp-micros": _instant}


def _compile(schema: Any, named: dict[str, Encode]) -> Encode:  # noqa: ANN401 - decoded JSON
    if isinstance(schema, str):
        found = _PRIMITIVES.get(schema) or named.get(schema)
        if found is None:
            message = f"events have no {schema}"
            raise ValueError(message)
        return found
    if isinstance(schema, list):
        return _optional(schema, named)
    kind = schema["type"]
    if kind == "record":
        named[schema["name"]] = write = _record(schema, named)
    elif kind == "array":
        write = _array(_compile(schema["items"], named))
    elif kind == "enum":
        named[schema["name"]] = write = _enum(schema["symbols"])
    elif schema.get("logicalType") == "decimal" and kind == "bytes":
        write = _decimal(schema.get("scale", 0))
    else:
        write = _LOGICAL.get(schema.get("logicalType", "")) or _compile(kind, named)
    return write


def _optional(branches: list[Any], named: dict[str, Encode]) -> Encode:
    if len(branches) != 2 or branches[0] != "null":  # noqa: PLR2004 - null and another
        message = "of unions, events have only null and one other type"
        raise ValueError(message)
    write = _compile(branches[1], named)

    def encode(out: bytearray, value: object) -> None:
        if value is None:
            out.append(0)
        else:
            out.append(2)
            write(out, value)

    return encode


def _record(schema: Mapping[str, Any], named: dict[str, Encode]) -> Encode:
    fields = [(field["name"], _compile(field["type"], named)) for field in schema["fields"]]

    def encode(out: bytearray, value: Mapping[str, object]) -> None:
        for name, write in fields:
            write(out, value[name])

    return encode


def _array(item: Encode) -> Encode:
    def encode(out: bytearray, value: list[object] | tuple[object, ...]) -> None:
        if value:
            _long(out, len(value))
            for one in value:
                item(out, one)
        out.append(0)

    return encode


def _enum(symbols: list[str]) -> Encode:
    places = {symbol: index for index, symbol in enumerate(symbols)}

    def encode(out: bytearray, value: str) -> None:
        _long(out, places[value])

    return encode


def _decimal(scale: int) -> Encode:
    def encode(out: bytearray, value: Decimal) -> None:
        _bytes(out, unscaled(value, scale))

    return encode
