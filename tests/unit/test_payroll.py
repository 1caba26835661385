"""The payroll contract: key, digest, rules, and what its model refuses to be built with."""

from __future__ import annotations

import io
import json
from datetime import date
from decimal import Decimal
from typing import Any

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.decision_set import DecisionSet, Limits
from schemas.envelope import Headers, Record, Source
from schemas.payroll import RECORD_TYPE
from schemas.payroll.model import PayrollStatement
from schemas.reasons import Reason
from schemas.verdict import Accepted, Decided, Refused
from streams.decide import decide

SOURCE = Source("payroll.raw", 3)
STATEMENT: dict[str, Any] = {
    "employee_id": "A10042",
    "pay_period_start": "2026-10-19",
    "pay_period_end": "2026-11-01",
    "source_run_id": "acme-hris/001/R2026-22",
    "gross_pay": "2307.69",
    "tax_jurisdiction": "US-PA:510101",
}


def _decide(members: object, headers: Headers = (), limits: Limits | None = None) -> Decided:
    value = members if isinstance(members, bytes) else json.dumps(members).encode()
    decision_set = DecisionSet(limits=limits or Limits())
    return decide(Record(9, value, headers=headers), RECORD_TYPE, SOURCE, decision_set, {})


def _accepted(members: object, **kwargs: Any) -> Accepted:
    found = _decide(members, **kwargs)
    assert isinstance(found, Accepted), found
    return found


def _refused(members: object, **kwargs: Any) -> Refused:
    found = _decide(members, **kwargs)
    assert isinstance(found, Refused), found
    return found


@pytest.mark.parametrize(
    ("changed", "key"),
    [
        ({}, "4845e3e44d39f6ff10212f35027f1fb6450d335a783d9a183f54bd576eb15863"),
        (
            {"statement_id": "2"},
            "c5a590a5002b7d9f40acd1d8688d32d54c1d74bf66b74dd4050f2ebf65a50fa6",
        ),
        (
            {
                "employee_id": "219E05",
                "pay_period_start": "2026-12-21",
                "pay_period_end": "2027-01-03",
                "source_run_id": "R1",
                "statement_id": "",
            },
            "4e231facf636698262fe1b788c22cdf7e0d848e47054018a800b6f6642b19527",
        ),
    ],
)
def test_key_vectors(changed: dict[str, Any], key: str) -> None:
    """The derived key is the specified one."""
    assert _accepted({**STATEMENT, **changed}).key.hex() == key


def test_a_supplied_key_is_kept_and_decides_nothing() -> None:
    """Identity is derived; what the publisher sent is echoed."""
    found = _accepted({**STATEMENT, "idempotency_key": "theirs"})
    assert found.key == _accepted(STATEMENT).key
    assert found.canonical_digest == _accepted(STATEMENT).canonical_digest
    assert found.row[RECORD_TYPE.ledger_columns.index("supplied_key")] == "theirs"


@pytest.mark.parametrize("blank", ["", "   ", "\t"])
def test_a_blank_supplied_key_is_missing(blank: str) -> None:
    """A key that says nothing is a fault of the publisher, before any other."""
    found = _refused({**STATEMENT, "idempotency_key": blank, "gross_pay": "x"})
    assert found.reason is Reason.MISSING_KEY
    assert [v.path for v in found.violations] == ["idempotency_key", "gross_pay"]


@pytest.mark.parametrize(
    "same",
    [
        {"gross_pay": 2307.69},
        {"gross_pay": "2307.690"},
        {"gross_pay": "02307.69"},
        {"currency": "USD", "statement_type": "regular"},
        {"net_pay": None, "earnings": [], "statement_id": "", "note": None},
        {"earnings": None, "currency": None, "statement_type": None, "hours": None},
        {"gross_pay": "2307.69" + "0" * 300},
        {"correlation_id": ""},
        {"correlation_id": "other", "idempotency_key": "other"},
    ],
)
def test_equal_statements_have_one_digest(same: dict[str, Any]) -> None:
    """Notation, defaults, nulls and what is not digested make no other content."""
    assert (
        _accepted({**STATEMENT, **same}).canonical_digest == _accepted(STATEMENT).canonical_digest
    )


@pytest.mark.parametrize(
    "other",
    [
        {"gross_pay": "2307.68"},
        {"currency": "EUR"},
        {"note": ""},
        {"hours": "0"},
        {"earnings": [{"code": "REG", "amount": "1"}]},
        {"residence_jurisdiction": "US-NJ"},
    ],
)
def test_different_statements_have_different_digests(other: dict[str, Any]) -> None:
    """Every contract field and every unknown member counts."""
    found = _accepted({**STATEMENT, **other})
    assert found.key == _accepted(STATEMENT).key
    assert found.canonical_digest != _accepted(STATEMENT).canonical_digest


def test_avro_and_json_are_one_statement() -> None:
    """The same statement in Avro has the same key, digest and body."""
    line = {"code": "401K", "amount": "100.10", "ytd": "2000.00"}
    members = {**STATEMENT, "deductions": [line], "pay_date": "2026-11-06"}
    value = RECORD_TYPE.raw_schemas[-1].single_object(
        {
            **members,
            "pay_period_start": date(2026, 10, 19),
            "pay_period_end": date(2026, 11, 1),
            "pay_date": date(2026, 11, 6),
            "gross_pay": Decimal("2307.69"),
            "deductions": [{"code": "401K", "amount": Decimal("100.1"), "ytd": Decimal(2000)}],
            "statement_type": "regular",
            "currency": "USD",
            "earnings": [],
            "taxes": [],
        }
    )
    from_avro, from_json = _accepted(value), _accepted(members)
    assert from_avro.key == from_json.key
    assert from_avro.canonical_digest == from_json.canonical_digest


def test_building_the_model_with_a_float_raises() -> None:
    """A Python float is no amount, wherever it stands."""
    for changed in (
        {"gross_pay": 1.5},
        {"net_pay": 1.5},
        {"hours": 1.5},
        {"earnings": [{"code": "REG", "amount": 1.5}]},
    ):
        with pytest.raises(TypeError):
            PayrollStatement(**{**STATEMENT, **changed})


@pytest.mark.parametrize(
    ("changed", "path"),
    [
        ({"employee_id": "ABC12"}, "employee_id"),
        ({"employee_id": "ABC123\n"}, "employee_id"),
        ({"employee_id": "abc123"}, "employee_id"),
        ({"employee_id": "А10042"}, "employee_id"),
        ({"employee_id": "１２３４５６"}, "employee_id"),
        ({"employee_id": 42}, "employee_id"),
        ({"employee_id": 9007199254740993}, "employee_id"),
        ({"employee_id": "900121234"}, "employee_id"),
        ({"gross_pay": "-1.00"}, "gross_pay"),
        ({"gross_pay": "NaN"}, "gross_pay"),
        ({"gross_pay": True}, "gross_pay"),
        ({"gross_pay": None}, "gross_pay"),
        ({"pay_period_start": "2026-11-02"}, "pay_period_end"),
        ({"pay_period_start": "2025-10-31"}, "pay_period_end"),
        ({"pay_date": "2026-11-06T00:00:00-05:00"}, "pay_date"),
        ({"currency": "JPY"}, "currency"),
        ({"currency": "usd"}, "currency"),
        ({"statement_type": "bonus"}, "statement_type"),
        ({"statement_type": "void"}, "corrects"),
        ({"statement_type": "correction", "corrects": "short"}, "corrects"),
        ({"source_run_id": " R1"}, "source_run_id"),
        ({"source_run_id": "R" * 129}, "source_run_id"),
        ({"earnings": [{"code": "REG", "amount": "1.001"}]}, "earnings[0].amount"),
        ({"earnings": [{"code": "REG", "amount": "1"}] * 201}, "earnings"),
        ({"earnings": "REG"}, "earnings"),
    ],
)
def test_rules_of_the_contract(changed: dict[str, Any], path: str) -> None:
    """Each broken rule is a schema violation that names its field and no value."""
    found = _refused({**STATEMENT, **changed})
    assert found.reason is Reason.SCHEMA_VIOLATION
    assert found.violations[0].path == path
    for name, value in changed.items():
        told = str(value) in found.violations[0].rule
        assert not told or name == "statement_type" or len(str(value)) < 3


@pytest.mark.parametrize("key", ["US", "US-ZZ", "US-PA:10201", "Phila. PA", "US-PA:510101 "])
def test_jurisdictions_never_fall_back(key: str) -> None:
    """A key that names no authority is refused; neither the state nor the nation stands in."""
    found = _refused({**STATEMENT, "tax_jurisdiction": key})
    assert found.reason is Reason.UNRESOLVED_JURISDICTION


def test_all_that_is_wrong_is_told() -> None:
    """The first reason in order wins, the others are listed behind it; no digest is made of what
    may be a social security number."""
    found = _refused({**STATEMENT, "employee_id": "900121234", "tax_jurisdiction": "US-ZZ"})
    assert (found.reason, found.key) == (Reason.SCHEMA_VIOLATION, None)
    assert [v.path for v in found.violations] == ["employee_id", "tax_jurisdiction"]
    found = _refused({**STATEMENT, "tax_jurisdiction": "US-ZZ"})
    assert found.key == _accepted(STATEMENT).key


@pytest.mark.parametrize(("start", "known"), [("2022-06-30", False), ("2022-07-01", True)])
def test_authorities_have_windows(start: str, known: bool) -> None:  # noqa: FBT001 - a table
    """An authority holds from the first day of its window, by the period's first day."""
    found = _decide({**STATEMENT, "pay_period_start": start, "pay_period_end": "2022-07-14"})
    assert isinstance(found, Accepted) is known


def test_limits_that_allow_more() -> None:
    """The decision set may allow nine-digit ids and `US` alone."""
    limits = Limits(allow_nine_digit_ids=True, allow_federal_alone=True)
    assert _accepted({**STATEMENT, "employee_id": "900121234"}, limits=limits)
    assert _accepted({**STATEMENT, "tax_jurisdiction": "US"}, limits=limits)


def test_a_period_that_crosses_the_year_is_flagged() -> None:
    """A remark, not a refusal."""
    found = _accepted(
        {**STATEMENT, "pay_period_start": "2026-12-21", "pay_period_end": "2027-01-03"}
    )
    assert found.row[RECORD_TYPE.ledger_columns.index("flags")] == ["crosses_year"]


def test_correlation_id_from_header_field_or_position() -> None:
    """In this order."""
    members = {**STATEMENT, "correlation_id": "field"}
    assert _accepted(members, headers=(("correlation-id", b"head"),)).correlation_id == "head"
    assert _accepted(members).correlation_id == "field"
    assert _accepted(STATEMENT).correlation_id == "payroll.raw-3-9"


@pytest.mark.parametrize(
    "number", ["1e1000000000000000000", "-1e-9999999999999999999", "1E+" + "9" * 99]
)
def test_an_unknown_number_beyond_any_number(number: str) -> None:
    """An exponent that no decimal has breaks the contract, it does not break us."""
    found = _refused(json.dumps(STATEMENT)[:-1].encode() + f',"x":[{number}]}}'.encode())
    assert found.reason is Reason.SCHEMA_VIOLATION


def test_a_period_of_exactly_one_year() -> None:
    """To the same day of the next year; a 29 February reaches the end of the next February."""
    for start, end in (("2026-01-01", "2027-01-01"), ("2024-02-29", "2025-02-28")):
        assert _accepted({**STATEMENT, "pay_period_start": start, "pay_period_end": end})
    _refused({**STATEMENT, "pay_period_start": "2024-02-29", "pay_period_end": "2025-03-01"})


def test_unknown_members_of_lines_reach_the_event() -> None:
    """What the contract does not know is in the event in the shape of the record."""
    lines = [{"code": "A", "amount": "1", "x": None}, {"code": "B", "amount": "2", "rate": 1.50}]
    found = _accepted({**STATEMENT, "earnings": lines, "note": "n"})
    stream = io.BytesIO(found.event_value[10:])
    event = fastavro.schemaless_reader(stream, RECORD_TYPE.committed_schemas[-1].parsed, None)
    assert isinstance(event, dict)
    assert event["unknown_members"] == '{"earnings":[{},{"rate":1.5}],"note":"n"}'
    assert RECORD_TYPE.event_of(found.row) == (found.event_key, found.event_value)


@given(
    st.dictionaries(
        st.sampled_from([*PayrollStatement.model_fields, "note", "x"]),
        st.one_of(
            st.none(),
            st.booleans(),
            st.integers(),
            st.text(max_size=12),
            st.sampled_from(["2026-10-19", "A10042", "US-PA", "1.00", "regular"]),
            st.lists(
                st.dictionaries(st.sampled_from(["code", "amount", "z"]), st.text()), max_size=2
            ),
        ),
    )
)
def test_any_members_get_a_verdict(changed: dict[str, Any]) -> None:
    """Whatever the members are, deciding neither raises nor calls it our own error; what it accepts
    is emitted from its ledger row with the same bytes."""
    found = _decide({**STATEMENT, **changed})
    if isinstance(found, Accepted):
        assert len(found.row) == len(RECORD_TYPE.ledger_columns)
        assert RECORD_TYPE.event_of(found.row) == (found.event_key, found.event_value)
    else:
        assert found.reason is not Reason.PROCESSING_ERROR


@pytest.mark.parametrize(
    ("digits", "fits"), [(1_000, True), (1_001, False), (4_301, False), (900_000, False)]
)
def test_unknown_numbers_have_bounds(digits: int, fits: bool) -> None:  # noqa: FBT001 - a table
    """A body must be readable again: a number with more digits than a JSON parser takes back would
    leave an event that cannot be rebuilt after a crash."""
    found = _decide(json.dumps(STATEMENT)[:-1].encode() + b',"m":0.' + b"9" * digits + b"}")
    assert isinstance(found, Accepted) is fits
    if isinstance(found, Accepted):
        assert RECORD_TYPE.event_of(found.row) == (found.event_key, found.event_value)
    else:
        assert found.reason is Reason.SCHEMA_VIOLATION
