"""Records to simulate with: few keys, so that they repeat, with the same content and with another;
every framing; some that only one decision set takes; some that the database refuses."""

from __future__ import annotations

import dataclasses
import json
import random
from collections.abc import Mapping
from functools import cache
from typing import Any

from schemas.avro_strict import AvroSchema, SchemaRef
from schemas.decision_set import DecisionSet, Limits
from schemas.envelope import NO_TIMESTAMP, Record
from schemas.examples import avro_datum, load_examples
from schemas.reasons import Reason
from schemas.record_types import RECORD_TYPES
from schemas.verdict import Accepted, Refused
from tests.protocol.records import some_records

KNOWN_ID, UNKNOWN_ID = 7, 9
DECISION_SETS = (
    DecisionSet(),
    DecisionSet(Limits(value_bytes_max=175)),
    DecisionSet(Limits(allow_nine_digit_ids=True)),
)
"""Under each of these some records get another verdict."""
POISON = "EMP0011"
_STATEMENT: Mapping[str, Any] = {
    "employee_id": "EMP0001",
    "pay_period_start": "2026-10-19",
    "pay_period_end": "2026-11-01",
    "source_run_id": "test/001/R1",
    "gross_pay": "1.00",
    "tax_jurisdiction": "US-PA",
}


def schemas_of(name: str) -> dict[SchemaRef, AvroSchema]:
    """What the schema store has."""
    return {SchemaRef("confluent", KNOWN_ID): RECORD_TYPES[name].raw_schemas[-1]}


def refuses(accepted: Accepted) -> Refused | None:
    """A constraint: the database takes no row of one employee."""
    if POISON not in accepted.row:
        return None
    return Refused(
        offset=accepted.offset,
        timestamp=accepted.timestamp,
        raw_digest=accepted.raw_digest,
        reason=Reason.PERSIST_FAILED,
        violations=(),
        correlation_id=accepted.correlation_id,
        key=accepted.key,
    )


def records_of(name: str, chance: random.Random, count: int) -> list[Record]:
    """Records of one type, from a seeded source."""
    plain = _dvirs(chance, count) if name == "dvir" else some_records(chance, count)
    return [_framed(name, chance, record) for record in plain]


def _framed(name: str, chance: random.Random, record: Record) -> Record:
    """Now and then another framing, a key of its own, or an id that only one decision set takes."""
    if chance.random() < 0.5:
        return record
    number = chance.choice([chance.randrange(6), chance.randrange(100, 9_999)])
    members = dict(_STATEMENT, employee_id=f"EMP{number:04d}")
    if name == "dvir":
        members = _report(chance, number)
    elif chance.random() < 0.3:
        return dataclasses.replace(record, value=json.dumps(members).encode())
    elif chance.random() < 0.3:
        members["employee_id"] = "123456789"
        return dataclasses.replace(record, value=json.dumps(members).encode())
    schema = RECORD_TYPES[name].raw_schemas[-1]
    datum = avro_datum(schema, members)
    value = chance.choice(
        [
            schema.single_object(datum),
            schema.confluent(KNOWN_ID, datum),
            schema.confluent(KNOWN_ID, datum),
            schema.confluent(UNKNOWN_ID, datum),
        ]
    )
    return dataclasses.replace(record, value=value)


@cache
def _minimal() -> Mapping[str, Any]:
    found = load_examples(RECORD_TYPES["dvir"])
    return next(e.members for e in found if e.name == "valid/minimal" and e.members is not None)


def _report(chance: random.Random, number: int) -> dict[str, Any]:
    members = dict(_minimal())
    members["idempotency_key"] = f"report-{number}"
    if chance.random() < 0.3:
        members["driver_id"] = "D-2"
    return members


def _dvirs(chance: random.Random, count: int) -> list[Record]:
    bad: list[bytes | None] = [None, b"{", b"\xff", b'{"idempotency_key":"x"}']
    values = [
        chance.choice(bad)
        if chance.random() < 0.25
        else json.dumps(_report(chance, chance.randrange(12))).encode()
        for _ in range(count)
    ]
    return [Record(0, value, NO_TIMESTAMP, b"k") for value in values]
