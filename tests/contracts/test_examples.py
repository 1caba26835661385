"""Laws that every example of every record type obeys."""

from __future__ import annotations

import io
import json

import fastavro
import pytest

from schemas.decision_set import DecisionSet
from schemas.envelope import Record, Source
from schemas.examples import Example, avro_datum, load_examples
from schemas.reasons import Reason
from schemas.record_type import RecordType
from schemas.record_types import RECORD_TYPES
from schemas.verdict import VIOLATIONS_MAX, Accepted, Decided, Refused
from streams.decide import decide

CASES = [
    pytest.param(record_type, example, id=f"{record_type.name}/{example.name}")
    for record_type in RECORD_TYPES.values()
    for example in load_examples(record_type)
]
NOT_BY_ONE_RECORD = {
    Reason.STATUTORY_CAP,
    Reason.CONTROL_TOTAL_MISMATCH,
    Reason.IDEMPOTENCY_COLLISION,
    Reason.PROCESSING_ERROR,
    Reason.PERSIST_FAILED,
    Reason.HELD_BY_OPERATOR,
}
"""Reasons that one record alone cannot have at present."""
OF_ONE_TYPE = {
    "payroll": {Reason.UNRESOLVED_JURISDICTION},
    "dvir": {Reason.UNCERTIFIED, Reason.ATTACHMENT_INVALID, Reason.CLOCK_SKEW},
}
NAMES_OF_VALUES = 3
"""Shorter values may stand in a rule by chance."""


def _decide(record_type: RecordType, record: Record, example: Example) -> Decided:
    source = Source(record_type.raw_topic, 1)
    return decide(record, record_type, source, DecisionSet(), example.schemas)


@pytest.mark.parametrize(("record_type", "example"), CASES)
def test_decides_as_its_folder_says(record_type: RecordType, example: Example) -> None:
    """A valid example is accepted with its flags, any other refused for its folder's reason."""
    found = _decide(record_type, example.record, example)
    if example.reason is None:
        assert isinstance(found, Accepted), found
        flags = found.row[record_type.ledger_columns.index("flags")]
        assert flags == list(example.flags)
    else:
        assert isinstance(found, Refused), found
        assert (found.reason, len(found.violations) <= VIOLATIONS_MAX) == (example.reason, True)
        assert found.violations


@pytest.mark.parametrize(("record_type", "example"), CASES)
def test_deciding_twice_is_equal(record_type: RecordType, example: Example) -> None:
    """Deciding is a function (G4)."""
    first = _decide(record_type, example.record, example)
    assert first == _decide(record_type, example.record, example)


@pytest.mark.parametrize(("record_type", "example"), CASES)
def test_the_event_is_a_function_of_the_row(record_type: RecordType, example: Example) -> None:
    """What is emitted from the ledger after a crash is what would have been emitted before it, and
    a plain Avro reader decodes it."""
    found = _decide(record_type, example.record, example)
    if isinstance(found, Refused):
        return
    assert len(found.row) == len(record_type.ledger_columns)
    assert all(len(receipt) == len(record_type.receipt_columns) for receipt in found.receipts)
    assert record_type.event_of(found.row) == (found.event_key, found.event_value)
    schema = record_type.committed_schemas[-1]
    assert found.event_value[:10] == schema.head
    stream = io.BytesIO(found.event_value[10:])
    event = fastavro.schemaless_reader(stream, schema.parsed, None)
    assert stream.read() == b""
    assert isinstance(event, dict)
    assert event["canonical_digest"] == found.canonical_digest
    assert event["offset"] == example.record.offset


@pytest.mark.parametrize(("record_type", "example"), CASES)
def test_avro_and_json_have_one_digest(record_type: RecordType, example: Example) -> None:
    """A valid record written in Avro is the same content, if Avro can hold all of it."""
    if example.reason is not None or example.members is None:
        return
    schema = record_type.raw_schemas[-1]
    known = {k: v for k, v in example.members.items() if k in schema.fields()}
    for name in ("earnings", "units"):
        if name in known:
            known[name] = [
                {k: v for k, v in one.items() if k not in {"rate", "color"}} for one in known[name]
            ]
    as_json = Record(
        0, json.dumps(known).encode(), example.record.timestamp, None, example.record.headers
    )
    datum = avro_datum(
        schema, {k: str(v) if isinstance(v, float | int) else v for k, v in known.items()}
    )
    as_avro = Record(
        0, schema.single_object(datum), example.record.timestamp, None, example.record.headers
    )
    one, other = (_decide(record_type, record, example) for record in (as_json, as_avro))
    assert isinstance(one, Accepted)
    assert isinstance(other, Accepted), other
    assert (one.key, one.canonical_digest) == (other.key, other.canonical_digest)


@pytest.mark.parametrize(("record_type", "example"), CASES)
def test_no_violation_shows_a_value(record_type: RecordType, example: Example) -> None:
    """Details name paths and rules, never what was in a field."""
    found = _decide(record_type, example.record, example)
    if isinstance(found, Accepted) or example.members is None:
        return
    told = " ".join(v.rule for v in found.violations)
    symbols = {"correction", "report"}
    for value in example.members.values():
        text = str(value)
        assert text not in told or len(text) <= NAMES_OF_VALUES or text in symbols


@pytest.mark.parametrize("record_type", RECORD_TYPES.values(), ids=lambda t: t.name)
def test_every_reason_has_an_example(record_type: RecordType) -> None:
    """One example at least for each reason that one record of the type can have."""
    shown = {example.reason for example in load_examples(record_type)}
    others = {r for name, rs in OF_ONE_TYPE.items() if name != record_type.name for r in rs}
    assert shown == {None, *Reason} - NOT_BY_ONE_RECORD - others
