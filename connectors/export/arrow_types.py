"""Columns in terms of Arrow: types, and arrays of values as `schemas.columns` describes them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, chain
from typing import Any

import pyarrow as pa

from schemas.columns import Column, Kind, ListOf, MapOf, Scalar, Struct, Type, unscaled_within
from schemas.value_text import json_text

DECIMAL_128_DIGITS_MAX = 38
_BYTES_OF_128, _BYTES_OF_256 = 16, 32
_PLAIN: dict[Kind, Any] = {
    Kind.TEXT: pa.string(),
    Kind.BYTES: pa.binary(),
    Kind.INT: pa.int32(),
    Kind.LONG: pa.int64(),
    Kind.BOOLEAN: pa.bool_(),
    Kind.DOUBLE: pa.float64(),
    Kind.DATE: pa.date32(),
    Kind.INSTANT: pa.timestamp("us", tz="UTC"),
    Kind.JSON: pa.string(),
}
_WRITTEN_AS = {Kind.DATE: pa.int32(), Kind.INSTANT: pa.int64()}
"""Kinds whose values are whole numbers, counted from 1970."""


def arrow_type(kind: Type) -> Any:  # noqa: ANN401 - pyarrow is untyped
    """The Arrow type of a column's type. Raises `ValueError` for a decimal of over 76 digits."""
    match kind:
        case Scalar(Kind.DECIMAL, precision, scale):
            if precision <= DECIMAL_128_DIGITS_MAX:
                return pa.decimal128(precision, scale)
            return pa.decimal256(precision, scale)
        case Scalar():
            return _PLAIN[kind.kind]
        case ListOf(item):
            return pa.list_(arrow_type(item))
        case MapOf(value):
            return pa.map_(pa.string(), arrow_type(value))
        case Struct(members):
            return pa.struct(arrow_fields(members))


def arrow_fields(columns: Sequence[Column]) -> list[Any]:
    """Columns as Arrow fields, every one nullable."""
    return [pa.field(one.name, arrow_type(one.type)) for one in columns]


def arrow_array(kind: Type, values: Sequence[Any]) -> Any:  # noqa: ANN401 - pyarrow is untyped
    """Values of one column as an array; masked ones are null.

    Raises `ValueError`, `OverflowError` or `TypeError` for a value that is not of the type.
    """
    match kind:
        case Scalar():
            if kind.masked or values.count(None) == len(values):
                return pa.nulls(len(values), arrow_type(kind))
            return _scalars(kind, values)
        case ListOf(item):
            items = list(chain.from_iterable(value for value in values if value is not None))
            return pa.ListArray.from_arrays(_offsets(values), arrow_array(item, items))
        case MapOf(inner):
            names = [name for value in values if value is not None for name in value]
            items = [one for value in values if value is not None for one in value.values()]
            keys = pa.array(names, pa.string())
            return pa.MapArray.from_arrays(_offsets(values), keys, arrow_array(inner, items))
        case Struct(members):
            held = [{} if value is None else value for value in values]
            arrays = [arrow_array(m.type, [one.get(m.name) for one in held]) for m in members]
            absent = pa.array([value is None for value in values], pa.bool_())
            return pa.StructArray.from_arrays(arrays, fields=arrow_fields(members), mask=absent)


def _scalars(kind: Scalar, values: Sequence[Any]) -> Any:  # noqa: ANN401 - pyarrow is untyped
    if kind.kind is Kind.DECIMAL:
        return _decimals(kind, values)
    if kind.kind is Kind.JSON:
        values = [None if value is None else json_text(value) for value in values]
    found = pa.array(values, _WRITTEN_AS.get(kind.kind, _PLAIN[kind.kind]))
    return found.view(_PLAIN[kind.kind]) if kind.kind in _WRITTEN_AS else found


def _decimals(kind: Scalar, values: Sequence[bytes | None]) -> Any:  # noqa: ANN401 - pyarrow is untyped
    """From whole numbers to whole numbers: Arrow's decimals are little-endian ones."""
    wide = kind.precision > DECIMAL_128_DIGITS_MAX
    size, zero = (_BYTES_OF_256 if wide else _BYTES_OF_128), b""
    numbers = b"".join(
        [
            unscaled_within(zero if value is None else value, kind.precision).to_bytes(
                size, "little", signed=True
            )
            for value in values
        ]
    )
    there = pa.array([value is not None for value in values], pa.bool_()).buffers()[1]
    buffers = [there, pa.py_buffer(numbers)]
    return pa.Array.from_buffers(arrow_type(kind), len(values), buffers)


def _offsets(values: Sequence[Any]) -> Any:  # noqa: ANN401 - pyarrow is untyped
    """Where each list begins; null for a list that is null."""
    ends = list(accumulate((0 if value is None else len(value) for value in values), initial=0))
    begins = [None if value is None else at for value, at in zip(values, ends, strict=False)]
    return pa.array([*begins, ends[-1]], pa.int32())
