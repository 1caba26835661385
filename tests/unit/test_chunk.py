"""Chunk headers and the chained hash: what publishers write and the gate reads."""

from __future__ import annotations

import json
import uuid
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jiter import LosslessFloat

from schemas.chunk import (
    CHUNK_RECORDS_MAX,
    HEADERS_BYTES_MAX,
    Declaration,
    Member,
    chain_of,
    is_run,
)
from schemas.envelope import CHUNK, CHUNK_DECLARE
from schemas.record_types import RECORD_TYPES

RUNS = RECORD_TYPES["payroll"].runs
ATTEMPT = "0d1c6a58-1f3c-5c7e-9c39-6f8d9c0f2a11"
runs = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=128)
totals = st.integers(-(10**18) + 1, 10**18 - 1).map(lambda cents: Decimal(cents).scaleb(-2))


@pytest.mark.parametrize(
    ("values", "chain"),
    [
        ([], "00" * 32),
        ([b"a"], "8c374a53782642f7514d087d26a3e733f1b806009a03e04a43b288ef2fa9f9c0"),
        ([b"a", b"b"], "153d5381929b50792d3b22ae9596544af3b0e4805be1555a595e6d2a2734933f"),
    ],
)
def test_chain_vectors(values: list[bytes], chain: str) -> None:
    """SHA-256 over the chain so far and the value's own SHA-256, from 32 zero bytes."""
    assert chain_of(values).hex() == chain


def test_a_chain_tells_order_and_borders() -> None:
    """Values swapped, joined, or one of them missing give another chain; null is no bytes."""
    seen = [chain_of(v) for v in ([b"a", b"b"], [b"b", b"a"], [b"ab"], [b"a"], [b"a", b"b", b""])]
    assert len(set(seen)) == len(seen)
    assert chain_of([None]) == chain_of([b""])


@given(st.uuids(), st.integers(1, CHUNK_RECORDS_MAX))
def test_members_are_read_back(attempt: uuid.UUID, seq: int) -> None:
    """`wb-chunk` is ATTEMPT/SEQ."""
    member = Member(str(attempt), seq)
    assert Member.parse(member.header()) == member


@pytest.mark.parametrize(
    "header",
    [
        None,
        b"",
        b"1",
        ATTEMPT.encode(),
        f"{ATTEMPT}/0".encode(),
        f"{ATTEMPT}/01".encode(),
        f"{ATTEMPT}/2001".encode(),
        f"{ATTEMPT}/1\n".encode(),
        f"{ATTEMPT.upper()}/1".encode(),
        f"{ATTEMPT}/\u0661".encode(),
        b"\xff/1",
    ],
)
def test_other_members_are_refused(header: bytes | None) -> None:
    """What is not exactly the grammar is none, and the rule names no value."""
    with pytest.raises(ValueError, match="UUID/SEQ"):
        Member.parse(header)


@given(
    runs, st.integers(1, 10**7), st.integers(1, 2_000), totals, st.binary(min_size=32, max_size=32)
)
def test_declarations_are_read_back(
    run: str, of: int, count: int, total: Decimal, chain: bytes
) -> None:
    """`wb-chunk-declare` says run, chunk, number of chunks, count, currency, total and chain."""
    told = Declaration(run, of, of, count, "USD", total, chain)
    assert Declaration.parse(told.header()) == told
    member = Member(ATTEMPT, 2_000).header()
    size = len(CHUNK) + len(member) + len(CHUNK_DECLARE) + len(told.header())
    assert size <= HEADERS_BYTES_MAX


GOOD = json.loads(Declaration("R1", 1, 2, 3, "USD", Decimal("1.50"), bytes(32)).header())


@pytest.mark.parametrize(
    "change",
    [
        {"run": ""},
        {"run": " R1"},
        {"run": "R\u00e9"},
        {"run": "x" * 129},
        {"chunk": 0},
        {"chunk": 3},
        {"chunk": True},
        {"chunk": "1"},
        {"of": 0},
        {"of": 10**8},
        {"count": 0},
        {"count": 2_001},
        {"currency": "usd"},
        {"total": 1},
        {"total": "1e3"},
        {"total": "1.505"},
        {"total": "+1"},
        {"chain": "00"},
        {"chain": "A" * 64},
        {"chain": None},
    ],
    ids=str,
)
def test_other_declarations_are_refused(change: dict[str, object]) -> None:
    """The rule names the member that breaks it."""
    with pytest.raises(ValueError, match=next(iter(change))):
        Declaration.parse(json.dumps({**GOOD, **change}).encode())


@pytest.mark.parametrize("header", [None, b"", b"[]", b"{", b'{"run":"a","run":"b"}', b" " * 5_000])
def test_declarations_that_are_no_objects_are_refused(header: bytes | None) -> None:
    """Whatever a header holds is a fault of data, never an exception of another kind."""
    with pytest.raises(ValueError, match=r"."):
        Declaration.parse(header)


def test_unknown_members_of_a_declaration_are_left() -> None:
    """Later versions may say more."""
    assert Declaration.parse(json.dumps({**GOOD, "new": [1]}).encode()).run == "R1"


# --- payroll --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "gross_pay", "amount"),
    [
        (None, "10.5", "10.50"),
        ("regular", LosslessFloat(b"10.50"), "10.50"),
        ("regular", 7, "7.00"),
        ("reversal", "180.00", "-180.00"),
        ("void", "180", "-180.00"),
        ("correction", "0.01", "0.01"),
        ("regular", "-180.00", "-180.00"),
        ("nonsense", "1", "1.00"),
        (["reversal"], "1", "1.00"),
        ("regular", "1.005", None),
        ("regular", "1e3", None),
        ("regular", "1,000.00", None),
        ("regular", 1.5, None),
        ("regular", None, None),
        ("regular", ["1"], None),
        ("regular", True, None),
    ],
    ids=str,
)
def test_amounts_count_with_their_sign(kind: object, gross_pay: object, amount: str | None) -> None:
    """Reversal and void take away; what the amount grammar refuses is no amount."""
    assert RUNS is not None
    found = RUNS.amount_of({"statement_type": kind, "gross_pay": gross_pay})
    assert (None if found is None else str(found)) == amount


@pytest.mark.parametrize("run", [None, "", " R", "R ", "x" * 129, "R\n", "Ré", 7, ["R"]])
def test_what_cannot_name_a_run_is_none(run: object) -> None:
    """A run's name goes into a header: printable ASCII, at most 128 characters."""
    assert RUNS is not None
    assert RUNS.run_of({"source_run_id": run}) is None
    assert not is_run(run)


def test_runs_and_currencies_are_read() -> None:
    """The currency defaults as in the contract; one that cannot be read does too."""
    assert RUNS is not None
    assert RUNS.run_of({"source_run_id": "a/001/R 1"}) == "a/001/R 1"
    given = [{}, {"currency": "EUR"}, {"currency": "eur"}, {"currency": 1}]
    assert [RUNS.currency_of(one) for one in given] == ["USD", "EUR", "USD", "USD"]
