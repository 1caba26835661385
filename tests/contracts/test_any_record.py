"""Laws that hold for any record at all: mutated examples, any bytes, any headers."""

from __future__ import annotations

import datetime as dt
import io
import json
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import fastavro
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from schemas.decision_set import DecisionSet
from schemas.envelope import NO_TIMESTAMP, Headers, Record, Source
from schemas.examples import VALID, Example, avro_datum, load_examples
from schemas.json_strict import storable_text
from schemas.reasons import Reason
from schemas.record_type import RecordType
from schemas.record_types import RECORD_TYPES
from schemas.verdict import Accepted, Decided
from streams.decide import decide_batch
from tests.contracts.restoring import restores

TYPES = [pytest.param(record_type, id=name) for name, record_type in RECORD_TYPES.items()]
MUTATIONS = settings(max_examples=300, suppress_health_check=[HealthCheck.too_slow])


def _source(record_type: RecordType) -> Source:
    return Source(record_type.raw_topic, 3)


def _decide(record_type: RecordType, value: bytes | None, headers: Headers = ()) -> Decided:
    record = Record(7, value, NO_TIMESTAMP, None, headers)
    source = _source(record_type)
    (found,) = decide_batch([record], record_type, source, DecisionSet(), {})
    return found


def _lawful(record_type: RecordType, value: bytes | None, headers: Headers = ()) -> Decided:
    """Decide a record and hold the outcome to every law."""
    found = _decide(record_type, value, headers)
    assert found == _decide(record_type, value, headers)
    assert found.correlation_id
    assert storable_text(found.correlation_id)
    if isinstance(found, Accepted):
        _storable(record_type, found)
        assert record_type.event_of(found.row) == (found.event_key, found.event_value)
        _tells_all(record_type, found)
    else:
        assert found.reason is not Reason.PROCESSING_ERROR, found.violations
        assert 0 < len(found.violations) <= 8
        assert all(storable_text(v.path + v.rule) for v in found.violations)
    restores(
        record_type, Record(7, value, NO_TIMESTAMP, None, headers), _source(record_type), found
    )
    return found


def _storable(record_type: RecordType, found: Accepted) -> None:
    """Every value is one that its column takes, so the database never refuses it."""
    row = dict(zip(record_type.ledger_columns, found.row, strict=True))
    for receipt in found.receipts:
        for name, value in zip(record_type.receipt_columns, receipt, strict=True):
            _column_takes(name, value)
    for name, value in row.items():
        _column_takes(name, value)
    assert found.key == row["key"]
    assert len(found.key) == len(found.canonical_digest) == 32


def _column_takes(name: str, value: object) -> None:
    if isinstance(value, str):
        assert storable_text(value), name
    elif isinstance(value, list):
        assert all(isinstance(one, str) and storable_text(one) for one in value), name
    elif isinstance(value, Decimal):
        assert abs(value) < 10**12, name
        assert value.as_tuple().exponent == -2, name
    elif isinstance(value, dt.datetime):
        assert value.utcoffset() == dt.timedelta(0), name
    elif isinstance(value, int):
        assert -(2**63) <= value < 2**63, name
    else:
        assert value is None or isinstance(value, (bytes, dt.date)), name


# --- The event tells all --------------------------------------------------------------------------


def _tells_all(record_type: RecordType, found: Accepted) -> None:
    """The event's fields and its unknown members together are the record's whole content: read as a
    record of its own they have the same key and digest. So has the canonical body."""
    schema = record_type.committed_schemas[-1]
    event: Any = fastavro.schemaless_reader(io.BytesIO(found.event_value[10:]), schema.parsed, None)
    known = {n: event[n] for n in record_type.raw_schemas[-1].fields() if event.get(n) is not None}
    text = json.dumps(_json(known), ensure_ascii=False)
    unknown = event["unknown_members"]
    if unknown is not None:
        text = _merged(text, unknown)
    told = _decide(record_type, text.encode())
    assert isinstance(told, Accepted), told
    assert (told.key, told.canonical_digest) == (found.key, found.canonical_digest)
    body = str(found.row[record_type.ledger_columns.index("body")])
    if "idempotency_key" in known and record_type.name == "dvir":
        body = _merged(body, json.dumps({"idempotency_key": known["idempotency_key"]}))
    again = _decide(record_type, body.encode())
    assert isinstance(again, Accepted), again
    assert (again.key, again.canonical_digest) == (found.key, found.canonical_digest)


def _json(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _json(one) for name, one in value.items() if one is not None}
    if isinstance(value, list):
        return [_json(one) for one in value]
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, (dt.date, dt.datetime)):
        return value.isoformat()
    return value


class _Number(str):
    """The text of a JSON number, kept as it is."""

    __slots__ = ()


def _merged(one: str, other: str) -> str:
    """Two JSON objects laid over each other, numbers with their text."""
    read = [json.loads(text, parse_float=_Number, parse_int=_Number) for text in (one, other)]
    return _text(_overlaid(*read))


def _overlaid(one: Any, other: Any) -> Any:
    if isinstance(one, dict) and isinstance(other, dict):
        return one | {n: _overlaid(one.get(n), value) for n, value in other.items()}
    if isinstance(one, list) and isinstance(other, list):
        return [_overlaid(*pair) for pair in zip(one, other, strict=True)]
    return other


def _text(value: Any) -> str:
    if isinstance(value, _Number):
        return str(value)
    if isinstance(value, dict):
        return "{" + ",".join(f"{json.dumps(n)}:{_text(one)}" for n, one in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_text, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


# --- Mutated examples -----------------------------------------------------------------------------


def _valid(record_type: RecordType) -> list[Example]:
    found = load_examples(record_type)
    return [one for one in found if one.name.startswith(VALID) and one.members is not None]


def _places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Ways to every member and element, and to one more member of every object."""
    if path:
        yield path
    if isinstance(value, dict):
        yield (*path, "unheard_of")
        for name, one in value.items():
            yield from _places(one, (*path, name))
    elif isinstance(value, list):
        for at, one in enumerate(value):
            yield from _places(one, (*path, at))


_numbers = st.sampled_from(
    [
        *("0", "-0", "-0.0", "1", "1.50", "1e3", "10e-1", "1E400", "1e-400", "0.001", "12345.678"),
        *("1e999999999", "1e-999999999", "1e9999999999999999999", "9007199254740993"),
        *("9223372036854775807", "9223372036854775808", "-9223372036854775809", "9" * 100),
        *("1." + "0" * 90, "0." + "1" * 90, "-1", "200000000000000.01"),
    ]
).map(_Number)
_texts = st.text(st.characters(codec="utf-8"), max_size=12) | st.sampled_from(
    [
        *("", " ", "0", "1.00", "-1.00", "1e3", "NaN", "2026-11-01", "2026-13-01", "US-PA", "US"),
        *("2026-11-03T06:42:09Z", "2026-11-03T06:42:09.123456-05:00", "2026-11-03T06:42:09"),
        *(
            "regular",
            "void",
            "report",
            "mechanic",
            "major",
            "a" * 64,
            "𐏿" * 201,
            "\uffff\U00010000",
        ),
        *("1M8GDM9AXKP042788", "A10042", "\\u0000", "\x00", "\x7f\x1f", "x" * 5_000),
    ]
)
_values = st.recursive(
    st.none() | st.booleans() | _numbers | _texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_texts, inner, max_size=3),
    max_leaves=8,
)


@st.composite
def _mutated(draw: st.DrawFn, record_type: RecordType) -> bytes:
    """A valid example with up to three members set to anything or taken away."""
    members: Any = json.loads(json.dumps(draw(st.sampled_from(_valid(record_type))).members))
    for _ in range(draw(st.integers(1, 3))):
        path = draw(st.sampled_from(list(_places(members))))
        holder = members
        for name in path[:-1]:
            holder = holder[name]
        if draw(st.integers(0, 3)) or not isinstance(holder, dict):
            holder[path[-1]] = draw(_values)
        else:
            holder.pop(path[-1], None)
    return _text(members).encode()


@pytest.mark.parametrize("record_type", TYPES)
@MUTATIONS
@given(data=st.data())
def test_mutated_json(record_type: RecordType, data: st.DataObject) -> None:
    """Whatever stands in whichever member, the record gets a verdict that obeys the laws."""
    _lawful(record_type, data.draw(_mutated(record_type)))


def _in_avro(record_type: RecordType) -> list[bytes]:
    schema = record_type.raw_schemas[-1]
    found = []
    for example in _valid(record_type):
        members = {
            name: str(value) if isinstance(value, float) else value
            for name, value in (example.members or {}).items()
        }
        found.append(schema.single_object(avro_datum(schema, members)))
    return found


@pytest.mark.parametrize("record_type", TYPES)
@MUTATIONS
@given(data=st.data())
def test_mutated_avro(record_type: RecordType, data: st.DataObject) -> None:
    """Bytes changed, cut out or put in anywhere behind the frame: a verdict that obeys the laws."""
    value = bytearray(data.draw(st.sampled_from(_in_avro(record_type))))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(10, len(value)))
        width = data.draw(st.integers(0, 3))
        value[at : at + width] = data.draw(st.binary(max_size=4))
    _lawful(record_type, bytes(value))


@pytest.mark.parametrize("record_type", TYPES)
@given(
    value=st.none() | st.binary(max_size=40) | _values.map(_text).map(str.encode),
    head=st.sampled_from(
        [b"", b"\x00", b"\x00\x00\x00\x00\x07", b"\xc3\x01", b"{", b"\xef\xbb\xbf"]
    ),
    headers=st.lists(
        st.tuples(
            st.text(max_size=5)
            | st.sampled_from(
                ["correlation-id", "traceparent", "wb-source-error", "wb-observed-at", "wb-chunk"]
            ),
            st.none() | st.binary(max_size=20) | st.just(b"2026-11-03T06:42:09Z"),
        ),
        max_size=4,
    ).map(tuple),
)
def test_any_bytes_and_headers(
    record_type: RecordType, value: bytes | None, head: bytes, headers: Headers
) -> None:
    """Any value behind any beginning, with any headers, gets a verdict that obeys the laws."""
    _lawful(record_type, value if value is None else head + value, headers)


@pytest.mark.parametrize("record_type", TYPES)
def test_valid_examples_are_lawful(record_type: RecordType) -> None:
    """The laws hold for what mutations begin with."""
    for example in _valid(record_type):
        found = _lawful(record_type, example.record.value, example.record.headers)
        assert isinstance(found, Accepted), found
