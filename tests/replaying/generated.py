"""Any datum of a committed schema, and reading values back from text."""

from __future__ import annotations

import io
import json
import string
from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import fastavro
from hypothesis import strategies as st

from schemas.avro_strict import AvroSchema
from schemas.columns import Kind, ListOf, Scalar, Struct, Type, columns_of
from schemas.exact import instant_of

TEXTS = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=12
) | st.sampled_from(["", "'", "=1+1", "-1", "+1", "@x", "\tx", "'=1", "''-", "a,b", 'a"b', "a\nb"])
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
SECONDS_TO_2200 = 7_258_118_400


def scalars(  # noqa: PLR0911 - one return per kind
    kind: Scalar,
) -> st.SearchStrategy[Any]:
    """Values as the strict decoder yields them."""
    match kind.kind:
        case Kind.TEXT:
            return TEXTS
        case Kind.BYTES:
            return st.binary(max_size=40)
        case Kind.INT:
            return st.integers(-(2**31), 2**31 - 1)
        case Kind.LONG:
            return st.integers(-(2**63), 2**63 - 1)
        case Kind.BOOLEAN:
            return st.booleans()
        case Kind.DATE:
            return st.dates()
        case Kind.INSTANT:
            return st.integers(0, SECONDS_TO_2200 * 1_000_000 - 1).map(
                lambda us: EPOCH + timedelta(microseconds=us)
            )
        case Kind.DECIMAL:
            bound = 10**kind.precision - 1
            return st.integers(-bound, bound).map(lambda n: Decimal(n).scaleb(-kind.scale))
    raise AssertionError(kind)


def _enums(schema: Any, found: dict[str, list[str]]) -> None:
    if isinstance(schema, dict):
        if schema.get("type") == "enum":
            found[schema["name"]] = schema["symbols"]
        for one in schema.values():
            _enums(one, found)
    elif isinstance(schema, list):
        for one in schema:
            _enums(one, found)


def data(schema: AvroSchema) -> st.SearchStrategy[dict[str, Any]]:
    """Any datum of a record schema."""
    enums: dict[str, list[str]] = {}
    _enums(schema.parsed, enums)
    named: dict[str, Any] = {}

    def of(one: Any) -> st.SearchStrategy[Any]:  # noqa: PLR0911 - one return per kind of type
        if isinstance(one, list):
            return st.one_of(*(of(branch) for branch in one))
        if one == "null":
            return st.none()
        if isinstance(one, str) and one in named:
            one = named[one]
        if isinstance(one, str) and one in enums:
            return st.sampled_from(enums[one])
        if isinstance(one, dict) and one["type"] == "record":
            named[one["name"]] = one
            return st.fixed_dictionaries({f["name"]: of(f["type"]) for f in one["fields"]})
        if isinstance(one, dict) and one["type"] == "array":
            return st.lists(of(one["items"]), max_size=2)
        if isinstance(one, dict) and one["type"] == "enum":
            return st.sampled_from(one["symbols"])
        (column,) = columns_of(AvroSchema.from_text(_record_of(one)))
        assert isinstance(column.type, Scalar)
        return scalars(column.type)

    return of(schema.parsed)


def _record_of(one: Any) -> str:
    """A record schema of one field of this type."""
    fields = [{"name": "f", "type": one}]
    return json.dumps({"type": "record", "name": "R", "fields": fields})


def encoded(schema: AvroSchema, datum: Mapping[str, Any]) -> bytes:
    """Single-object bytes, by another encoder than the gate's."""
    out = io.BytesIO()
    out.write(schema.head)
    fastavro.schemaless_writer(out, schema.parsed, datum)
    return out.getvalue()


def from_json(kind: Type, value: Any) -> Any:
    """A value as the strict decoder yields it, from what stands in JSONL."""
    if value is None:
        return None
    match kind:
        case ListOf(item):
            return [from_json(item, one) for one in value]
        case Struct(members):
            assert list(value) == [m.name for m in members]
            return {m.name: from_json(m.type, value[m.name]) for m in members}
        case Scalar():
            return from_text(kind, value) if isinstance(value, str) else value
    raise AssertionError(kind)


def from_text(kind: Scalar, text: str) -> Any:  # noqa: PLR0911 - one return per kind
    """A single value from its text."""
    match kind.kind:
        case Kind.BYTES:
            assert set(text) <= set(string.hexdigits.lower())
            return bytes.fromhex(text)
        case Kind.INT | Kind.LONG:
            return int(text)
        case Kind.BOOLEAN:
            return {"true": True, "false": False}[text]
        case Kind.DATE:
            return date.fromisoformat(text)
        case Kind.INSTANT:
            return instant_of(text)
        case Kind.DECIMAL:
            found = Decimal(text)
            assert -int(found.as_tuple().exponent) == kind.scale, "the full scale, always"
            return found
    return text
