"""The encoder of our own events: byte for byte what any other encoder writes."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.avro_encode import encoder_of
from schemas.avro_strict import AvroSchema
from schemas.record_types import RECORD_TYPES

MONEY = {"type": "bytes", "logicalType": "decimal", "precision": 14, "scale": 2}
LINE = {"type": "record", "name": "Line", "fields": [{"name": "amount", "type": MONEY}]}
FIELDS: dict[str, Any] = {
    "text": "string",
    "maybe": ["null", "string"],
    "raw": "bytes",
    "flag": "boolean",
    "small": "int",
    "large": "long",
    "kind": {"type": "enum", "name": "Kind", "symbols": ["a", "b"]},
    "day": {"type": "int", "logicalType": "date"},
    "at": ["null", {"type": "long", "logicalType": "timestamp-micros"}],
    "lines": {"type": "array", "items": LINE},
    "more": {"type": "array", "items": "Line"},
}


def _schema(fields: dict[str, Any]) -> AvroSchema:
    listed = [{"name": name, "type": kind} for name, kind in fields.items()]
    return AvroSchema.from_text(json.dumps({"type": "record", "name": "R", "fields": listed}))


SCHEMA = _schema(FIELDS)
ENCODE = encoder_of(SCHEMA)
_lines = st.lists(
    st.fixed_dictionaries({"amount": st.decimals(-(10**12) + 1, 10**12 - 1, places=2)}), max_size=3
)


@given(
    st.fixed_dictionaries(
        {
            "text": st.text(st.characters(codec="utf-8"), max_size=200),
            "maybe": st.none() | st.text(st.characters(codec="utf-8"), max_size=5),
            "raw": st.binary(max_size=200),
            "flag": st.booleans(),
            "small": st.integers(-(2**31), 2**31 - 1),
            "large": st.integers(-(2**63), 2**63 - 1),
            "kind": st.sampled_from("ab"),
            "day": st.dates(),
            "at": st.none() | st.datetimes(datetime(1970, 1, 1), timezones=st.just(UTC)),  # noqa: DTZ001 - the zone is put on
            "lines": _lines,
            "more": _lines,
        }
    )
)
def test_bytes_are_those_of_fastavro(datum: dict[str, Any]) -> None:
    """Every value of every type that events have, and our own decoder reads it back."""
    value = ENCODE(datum)
    assert value == SCHEMA.single_object(datum)
    assert SCHEMA.decode(value, 10) == datum


@pytest.mark.parametrize("record_type", RECORD_TYPES.values(), ids=lambda one: one.name)
def test_every_committed_schema_compiles(record_type: Any) -> None:
    """A new version that the encoder cannot write is noticed here, not at the first event."""
    for schema in record_type.committed_schemas:
        assert encoder_of(schema)


@pytest.mark.parametrize(
    "kind",
    ["double", ["string", "null"], ["null", "string", "long"], {"type": "map", "values": "int"}],
)
def test_what_events_do_not_have(kind: object) -> None:
    """The encoder says so when it is compiled."""
    with pytest.raises(ValueError, match="events have"):
        encoder_of(_schema({"f": kind}))


def test_a_datum_that_is_not_of_the_schema() -> None:
    """Nothing is guessed for a field that is absent or does not fit."""
    encode = encoder_of(_schema({"n": "long"}))
    with pytest.raises(KeyError):
        encode({})
    with pytest.raises(OverflowError):
        encode({"n": 2**63})
    with pytest.raises(TypeError):
        encode({"n": Decimal(1)})
