"""Verdicts offline: decide records and settle them against each other, with no service running."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from connectors.ports import Fetched, SchemaStore
from schemas.decision_set import DecisionSet
from schemas.envelope import Record, Source
from schemas.record_type import RecordType
from schemas.record_types import RECORD_TYPES
from schemas.verdict import Accepted, Duplicate, Holder, Settled, Violation
from streams import batch as steps
from streams.settle import BODY, settle

BATCH_RECORDS = 500


@dataclass(frozen=True, slots=True)
class Checked:
    """What the gate would say of one record."""

    index: int
    verdict: str
    """`committed`, `duplicate` or `quarantined`."""
    reason: str | None
    detail: tuple[Violation, ...]

    def as_json(self) -> str:
        """One line of `check --json`."""
        return json.dumps(
            {
                "index": self.index,
                "verdict": self.verdict,
                "reason": self.reason,
                "detail": [{"path": v.path, "rule": v.rule} for v in self.detail],
            }
        )


async def check_records(
    records: Iterable[Record],
    record_type: RecordType,
    schema_store: SchemaStore,
    decision_set: DecisionSet,
) -> list[Checked]:
    """Verdicts of all records, as if the topic held these and nothing else.

    Keeps one digest and body per key, so memory grows with the number of distinct keys.
    Raises `SchemaStoreUnavailable`.
    """
    source = Source(record_type.raw_topic, 0)
    held: dict[bytes, Holder] = {}
    bodies: dict[bytes, str] = {}
    checked: list[Checked] = []
    for part in _parts(records):
        schemas = await steps.resolve_schemas(schema_store, part)
        fetched = Fetched(part[0].offset, part[-1].offset + 1, part)
        decided = steps.decide(fetched, record_type, source, decision_set, schemas).decided
        for outcome in settle(decided, source, held, bodies, {}):
            checked.append(_checked(outcome))
            if isinstance(outcome, Accepted):
                position = source.position(outcome.offset)
                held[outcome.key] = Holder(position, outcome.canonical_digest)
                bodies[outcome.key] = str(outcome.row[BODY])
    return checked


def _parts(records: Iterable[Record]) -> Iterator[list[Record]]:
    part: list[Record] = []
    for record in records:
        part.append(record)
        if len(part) == BATCH_RECORDS:
            yield part
            part = []
    if part:
        yield part


def _checked(outcome: Settled) -> Checked:
    if isinstance(outcome, Accepted):
        return Checked(outcome.offset, "committed", None, ())
    if isinstance(outcome, Duplicate):
        same = Violation("", f"same key and content as record {outcome.holder.offset}")
        return Checked(outcome.accepted.offset, "duplicate", None, (same,))
    return Checked(outcome.offset, "quarantined", str(outcome.reason), outcome.violations)


def guess_record_type(values: Iterable[bytes]) -> RecordType | None:
    """The record type whose required members the first readable JSON object has, if one only."""
    for value in values:
        try:
            members = json.loads(value)
        except (ValueError, RecursionError):
            continue
        if not isinstance(members, dict):
            continue
        if {"employee_id", "gross_pay", "pay_period_start"} & members.keys():
            return RECORD_TYPES["payroll"]
        if {"inspected_at", "units", "inspection_type"} & members.keys():
            return RECORD_TYPES["dvir"]
    return None
