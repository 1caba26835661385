"""Random payroll records with duplicates, collisions and rejects, for the protocol tests."""

from __future__ import annotations

import json
import random

from hypothesis import strategies as st

from schemas.envelope import Record

TIMESTAMP_MS = 1_793_000_000_000
"""A fixed Kafka timestamp in October 2026, so that nothing depends on today."""


def _statement(employee: int, cents: int, note: str | None) -> bytes:
    members = {
        "employee_id": f"EMP{employee:04d}",
        "pay_period_start": "2026-10-19",
        "pay_period_end": "2026-11-01",
        "source_run_id": "test/001/R1",
        "gross_pay": f"{cents // 100}.{cents % 100:02d}",
        "tax_jurisdiction": "US-PA",
    }
    if note is not None:
        members["note"] = note
    return json.dumps(members).encode()


BAD_VALUES = st.sampled_from(
    [
        None,
        b"",
        b"{",
        b"[]",
        b"\xff\xfe",
        b'{"employee_id":"EMP0001"}',
        b"\x00\x00\x00\x00\x09abc",
        b"\xc3\x01",
        _statement(1, 100, "nul \x00"),
    ]
)

statements = st.builds(
    _statement,
    # Few employees, few amounts and few notes: keys repeat, with the same content and with another.
    employee=st.integers(0, 5),
    cents=st.sampled_from([100, 100, 100, 250, 999_999_999_999_99]),
    note=st.sampled_from([None, None, "late"]),
)

payroll_records = st.builds(
    Record,
    offset=st.just(0),
    value=st.one_of(statements, statements, statements, BAD_VALUES),
    timestamp=st.just(TIMESTAMP_MS),
    key=st.one_of(st.none(), st.just(b"k")),
    headers=st.sampled_from([(), (("trace", b"\xc3\x28"), ("flag", None)), (("wb-fake", b"1"),)]),
)


def some_records(chance: random.Random, count: int) -> list[Record]:
    """As `payroll_records`, from a seeded source instead of hypothesis."""
    bad: list[bytes | None] = [None, b"", b"{", b"[]", b"\xff\xfe", b"\x00\x00\x00\x00\x09abc"]
    found = []
    for _ in range(count):
        value: bytes | None = _statement(
            chance.randrange(12),
            chance.choice([100, 100, 250]),
            chance.choice([None, None, "late"]),
        )
        if chance.random() < 0.25:
            value = chance.choice(bad)
        headers = chance.choice(
            [(), (("trace", b"\xc3\x28"), ("flag", None)), (("wb-fake", b"1"),)]
        )
        found.append(Record(0, value, TIMESTAMP_MS, b"k", headers))
    return found
