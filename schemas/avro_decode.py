"""Avro's binary decoding, compiled once per schema, refusing what a lenient decoder lets pass.

Common decoders take a negative union branch for an index from the end, any byte for true, a length
longer than the message until memory runs out, items that take no bytes by the million, and the
scale of whoever wrote a decimal. Here bytes that are not this schema's are `malformed_avro`, and
text that is none is `encoding`; legal bytes whose value no contract can take become `Unfit`, for
the contract to refuse (Avro 1.12 specification, "Binary Encoding"). Every item of an array or map
takes a byte at least, and a schema of many values that take none reads no record (`idle_values`),
so work and memory are bounded by the length of the value. Pure.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime, timedelta
from decimal import Context, Decimal
from typing import Any

from schemas.exact import EPOCH, Unfit
from schemas.reasons import Reason

Decode = Callable[[bytes, int], tuple[Any, int]]
"""From a value and where to begin in it, to what stands there and where it ends."""

_VARINT_BYTES_MAX = 10
IDLE_VALUES_MAX = 32
"""Values in one record that may take no byte: nulls that can be nothing else say nothing."""
_DECIMAL_DIGITS_MAX = 1_000
"""A schema may not declare a longer decimal: its bound alone would take time and memory."""
_EXACT = Context(prec=_DECIMAL_DIGITS_MAX)
"""Python's default context would round a decimal of more than 28 digits."""


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


# --- Primitive types ------------------------------------------------------------------------------


def _long(data: bytes, at: int) -> tuple[int, int]:
    """A zig-zag number, in no more bytes than it needs."""
    shift = number = 0
    for place in range(at, min(at + _VARINT_BYTES_MAX, len(data))):
        byte = data[place]
        number |= (byte & 0x7F) << shift
        if byte < 0x80:  # noqa: PLR2004 - the highest bit says whether more bytes follow
            if number >> 64 or (byte == 0 and shift):
                break
            return (number >> 1) ^ -(number & 1), place + 1
        shift += 7
    raise _malformed("a number of at most 64 bits, in no more bytes than it needs")


def _int(data: bytes, at: int) -> tuple[int, int]:
    number, end = _long(data, at)
    if not -(2**31) <= number < 2**31:
        raise _malformed("a number of at most 32 bits")
    return number, end


def _bytes(data: bytes, at: int) -> tuple[bytes, int]:
    length, begin = _long(data, at)
    end = begin + length
    if length < 0 or end > len(data):
        raise _malformed("a length within the value")
    return data[begin:end], end


def _string(data: bytes, at: int) -> tuple[str, int]:
    found, end = _bytes(data, at)
    try:
        text = found.decode("utf-8")
    except UnicodeDecodeError:
        raise AvroFault(Reason.ENCODING, "text is UTF-8") from None
    if "\x00" in text:
        raise AvroFault(Reason.ENCODING, "no U+0000 in text")
    return text, end


def _boolean(data: bytes, at: int) -> tuple[bool, int]:
    if at >= len(data) or data[at] > 1:
        raise _malformed("a boolean of 0 or 1")
    return data[at] == 1, at + 1


def _null(_: bytes, at: int) -> tuple[None, int]:
    return None, at


def _packed(form: str, size: int) -> Decode:
    unpack = struct.Struct(form).unpack_from

    def decode(data: bytes, at: int) -> tuple[Any, int]:
        if at + size > len(data):
            raise _malformed("a floating-point number within the value")
        return unpack(data, at)[0], at + size

    return decode


_PRIMITIVES: dict[str, Decode] = {
    "null": _null,
    "boolean": _boolean,
    "int": _int,
    "long": _long,
    "float": _packed("<f", 4),
    "double": _packed("<d", 8),
    "bytes": _bytes,
    "string": _string,
}

# --- Complex types --------------------------------------------------------------------------------


def compile_decoder(  # noqa: PLR0911 - one return per kind of type
    schema: Any,  # noqa: ANN401 - decoded JSON
    named: dict[str, Decode],
) -> Decode:
    """A decoder for a schema that fastavro has parsed; `named` holds the named types met so far.

    Raises `ValueError`, `TypeError` or `KeyError` for a schema that cannot be one.
    """
    if isinstance(schema, str):
        return _PRIMITIVES.get(schema) or _by_name(schema, named)
    if isinstance(schema, list):
        return _union([compile_decoder(branch, named) for branch in schema])
    kind = schema["type"]
    if isinstance(kind, (dict, list)):
        return compile_decoder(kind, named)
    if kind in {"record", "error"}:
        return _record(schema, named)
    if kind == "array":
        return _array(compile_decoder(schema["items"], named))
    if kind == "map":
        return _map(compile_decoder(schema["values"], named))
    if kind == "enum":
        return _remember(schema, named, _enum(schema["symbols"]))
    if kind == "fixed":
        return _remember(schema, named, _logical(schema, _fixed(schema["size"])))
    return _logical(schema, compile_decoder(kind, named))


def _by_name(name: str, named: dict[str, Decode]) -> Decode:
    """A reference to a named type, which may be the one being compiled."""
    if name not in named:
        message = "a type that the schema does not define"
        raise ValueError(message)
    return lambda data, at: named[name](data, at)  # noqa: PLW0108 - it may be compiled later


def _remember(schema: Mapping[str, Any], named: dict[str, Decode], decode: Decode) -> Decode:
    named[schema["name"]] = decode
    return decode


def _union(branches: Sequence[Decode]) -> Decode:
    def decode(data: bytes, at: int) -> tuple[Any, int]:
        index, at = _long(data, at)
        if not 0 <= index < len(branches):
            raise _malformed("a branch that the union has")
        return branches[index](data, at)

    return decode


def _record(schema: Mapping[str, Any], named: dict[str, Decode]) -> Decode:
    fields: list[tuple[Any, Decode]] = []

    def decode(data: bytes, at: int) -> tuple[dict[str, Any], int]:
        found: dict[str, Any] = {}
        for name, read in fields:
            try:
                found[name], at = read(data, at)
            except AvroFault as fault:
                raise fault.under(name) from None
        return found, at

    _remember(schema, named, decode)
    fields += [(field["name"], compile_decoder(field["type"], named)) for field in schema["fields"]]
    names = {name for name, _ in fields if isinstance(name, str) and name}
    if len(names) != len(fields):
        message = "a record has a field twice, or one without a name"
        raise ValueError(message)
    return decode


def _block(data: bytes, at: int) -> tuple[int, int, int | None]:
    """The next block: how many items, where they begin and, if it says so, where they end."""
    count, at = _long(data, at)
    end = None
    if count < 0:
        count = -count
        size, at = _long(data, at)
        end = at + size
        if size < 0 or end > len(data):
            raise _malformed("a block within the value")
    if count > len(data) - at:
        raise _malformed("no more items than the value can hold")
    return count, at, end


def _array(item: Decode) -> Decode:
    def decode(data: bytes, at: int) -> tuple[list[Any], int]:
        found: list[Any] = []
        while True:
            count, at, end = _block(data, at)
            if count == 0:
                return found, at
            for _ in range(count):
                begin = at
                try:
                    one, at = item(data, begin)
                except AvroFault as fault:
                    raise fault.under(f"[{len(found)}]") from None
                if at == begin:
                    raise _malformed("items that take a byte at least")
                found.append(one)
            _ends(at, end)

    return decode


def _map(value: Decode) -> Decode:
    def decode(data: bytes, at: int) -> tuple[dict[str, Any], int]:
        found: dict[str, Any] = {}
        while True:
            count, at, end = _block(data, at)
            if count == 0:
                return found, at
            for _ in range(count):
                key, at = _string(data, at)
                if key in found:
                    raise _malformed("every key of a map once")
                found[key], at = value(data, at)
            _ends(at, end)

    return decode


def _ends(at: int, end: int | None) -> None:
    if end is not None and at != end:
        raise _malformed("a block of the size it says")


def _enum(symbols: Sequence[str]) -> Decode:
    def decode(data: bytes, at: int) -> tuple[str, int]:
        index, at = _long(data, at)
        if not 0 <= index < len(symbols):
            raise _malformed("a symbol that the enum has")
        return symbols[index], at

    return decode


def _fixed(size: object) -> Decode:
    if type(size) is not int or size < 0:
        message = "a fixed type has a size"
        raise ValueError(message)

    def decode(data: bytes, at: int) -> tuple[bytes, int]:
        if at + size > len(data):
            raise _malformed("a fixed value within the value")
        return data[at : at + size], at + size

    return decode


def idle_values(schema: Any) -> int:  # noqa: ANN401 - decoded JSON
    """The most values that any record of a parsed schema holds, with those of records inside it,
    that take no byte. Records of records of nulls would fill memory from a value of five bytes."""
    known: dict[str, tuple[int, bool]] = {}

    def of(kind: Any) -> tuple[int, bool]:  # noqa: ANN401 - decoded JSON
        """How many there are in a value of this type, and whether the value takes any byte."""
        if isinstance(kind, str):
            return known.get(kind, (1, False) if kind == "null" else (0, True))
        if isinstance(kind, list):
            return apart(kind)
        inner = kind["type"]
        if inner in {"record", "error"}:
            known[kind["name"]] = (0, True)  # for a record inside itself, which can have no end
            found = [of(field["type"]) for field in kind["fields"]]
            takes = any(taking for _, taking in found)
            known[kind["name"]] = (sum(idle for idle, _ in found) or int(not takes), takes)
            return known[kind["name"]]
        if inner in {"array", "map"}:
            return apart([kind.get("items", kind.get("values"))])
        if inner == "fixed":
            known[kind["name"]] = (0, True) if kind["size"] else (1, False)
            return known[kind["name"]]
        return (0, True) if inner == "enum" else of(inner)

    def apart(kinds: Sequence[Any]) -> tuple[int, bool]:
        """Types behind a branch, an item or a key, which takes a byte: they count by themselves."""
        for kind in kinds:
            of(kind)
        return 0, True

    return max(idle for idle, _ in [of(schema), *known.values()])


# --- Logical types --------------------------------------------------------------------------------


def _logical(schema: Mapping[str, Any], base: Decode) -> Decode:
    """The value of a logical type; unknown ones stay what they are written as, as Avro demands."""
    convert = _conversion(schema)
    if convert is None:
        return base

    def decode(data: bytes, at: int) -> tuple[Any, int]:
        found, at = base(data, at)
        return convert(found), at

    return decode


def _conversion(schema: Mapping[str, Any]) -> Callable[[Any], Any] | None:
    """How to read a logical type; None where it does not stand on the type it belongs to."""
    kind, base = schema.get("logicalType"), schema["type"]
    if kind == "decimal" and base in {"bytes", "fixed"}:
        return _decimal(schema.get("precision", 0), schema.get("scale", 0))
    if kind == "date" and base == "int":
        return _date
    if kind in _TICKS and base == "long":
        tick = _TICKS[kind]
        return lambda number: _instant(number, tick)
    return None


_TICKS = {
    "timestamp-millis": timedelta(milliseconds=1),
    "timestamp-micros": timedelta(microseconds=1),
}


def _decimal(precision: Any, scale: Any) -> Callable[[bytes], Decimal | Unfit]:  # noqa: ANN401 - decoded JSON
    whole = type(precision) is type(scale) is int
    if not whole or not 0 <= scale <= precision <= _DECIMAL_DIGITS_MAX:
        message = f"a decimal has at most {_DECIMAL_DIGITS_MAX} digits"
        raise ValueError(message)
    bound = 10**precision

    unfit = Unfit(f"at most {precision} digits")

    def convert(written: bytes) -> Decimal | Unfit:
        number = int.from_bytes(written, "big", signed=True)
        if not -bound < number < bound:
            return unfit
        return Decimal(number).scaleb(-scale, _EXACT)

    return convert


def _date(number: int) -> date | Unfit:
    try:
        return date(1970, 1, 1) + timedelta(days=number)
    except OverflowError:
        return Unfit("a date of the years 1 to 9999")


def _instant(number: int, tick: timedelta) -> datetime | Unfit:
    try:
        return EPOCH + number * tick
    except OverflowError:
        return Unfit("an instant in the UTC years 1970 to 2199")
