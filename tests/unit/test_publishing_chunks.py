"""Cutting rows into chunks: whatever the order of runs, all rows, in order, with exact totals."""

from __future__ import annotations

import json
import uuid
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.errors import ConfigurationError
from connectors.files import FileRow
from connectors.kafka.publication import partition_of
from schemas.chunk import Declaration, Member, chain_of
from schemas.record_types import RECORD_TYPES
from streams.publishing import chunks as chunks_module
from streams.publishing.chunks import Chunk, ChunkLimits, Cutter, Plan
from streams.publishing.rows import Row, RowReader, members_of
from streams.publishing.run_manifest import CHUNKS_LISTED_MAX, Provenance, RunManifests
from streams.publishing.sending import (
    KEYLESS_ROWS,
    Pacer,
    attempt_of,
    deliveries,
    partition_of_chunk,
)

PAYROLL, DVIR = RECORD_TYPES["payroll"], RECORD_TYPES["dvir"]
PUBLICATION = uuid.UUID("9c7a1a54-3e57-4f0e-8a76-0f4a5d1f7a10")


def row(
    number: int,
    run: str | None = "R1",
    cents: int | None = 100,
    currency: str = "USD",
    size: int = 100,
    *,
    too_large: bool = False,
) -> Row:
    amount = None if cents is None else Decimal(cents).scaleb(-2)
    value = b"%d" % number
    return Row(b"k", value, (), number, size, too_large, run=run, amount=amount, currency=currency)


DEFAULT = ChunkLimits()


def cut(
    rows: list[Row], limits: ChunkLimits = DEFAULT, borders: tuple[int, ...] = ()
) -> list[Chunk]:
    cutter = Cutter(limits, borders)
    return [chunk for one in rows for chunk in cutter.add(one)] + list(cutter.flush())


any_rows = st.lists(
    st.builds(
        row,
        st.just(0),
        st.sampled_from([None, "A", "B", "C"]),
        st.none() | st.integers(-(10**13), 10**13),
        st.sampled_from(["USD", "EUR"]),
        st.integers(50, 400),
        too_large=st.booleans(),
    ),
    max_size=60,
).map(lambda rows: [_numbered(one, number) for number, one in enumerate(rows, 1)])


def _numbered(one: Row, number: int) -> Row:
    one.line, one.value = number, b"%d" % number
    return one


limits = st.builds(ChunkLimits, st.integers(1, 9), st.integers(100, 2_000))


@given(any_rows, limits, st.sets(st.integers(1, 60)).map(sorted).map(tuple))
def test_every_row_is_in_one_chunk_in_order(
    rows: list[Row], limits: ChunkLimits, borders: tuple[int, ...]
) -> None:
    """No row is lost or doubled, rows of a run and currency keep their order, chunks keep their
    bounds and do not cross a border, and numbers go from 1 to N in each run."""
    chunks = cut(rows, limits, borders)
    kept = [one.line for one in rows if not one.too_large]
    assert sorted(one.line for chunk in chunks for one in chunk.rows) == kept
    numbers: dict[str | None, list[int]] = {}
    for chunk in chunks:
        lines = [one.line for one in chunk.rows]
        assert lines == sorted(lines)
        assert len(lines) <= limits.records
        assert len(lines) == 1 or sum(one.size_bytes for one in chunk.rows) <= limits.bytes
        assert not any(lines[0] <= border < lines[-1] for border in borders)
        assert {one.run for one in chunk.rows} <= {None, chunk.run}
        numbers.setdefault(chunk.run, []).append(chunk.number)
    for run, found in numbers.items():
        assert run is None or found == list(range(1, len(found) + 1))


@given(any_rows, limits)
def test_totals_and_chains_are_those_of_the_members(rows: list[Row], limits: ChunkLimits) -> None:
    """A total is the exact sum of the amounts that can be read, the chain is over all values."""
    for chunk in cut(rows, limits):
        readable = [one.amount for one in chunk.rows if one.amount is not None]
        assert chunk.total == sum(readable, Decimal(0))
        assert chunk.unreadable == len(chunk.rows) - len(readable)
        assert chunk.chain == chain_of(one.value for one in chunk.rows)
        assert {one.currency for one in chunk.rows if one.run} <= {chunk.currency}


@given(any_rows, limits)
def test_the_second_cutting_meets_the_plan(rows: list[Row], limits: ChunkLimits) -> None:
    """The same rows are cut alike; a value changed anywhere is noticed where it is."""
    plan = Plan()
    for chunk in cut(rows, limits):
        plan.add(chunk)
    again = cut(rows, limits)
    assert len(again) == plan.chunks
    assert all(plan.meets(index, chunk) for index, chunk in enumerate(again))
    assert not plan.meets(len(again), Chunk("A"))
    if again:
        again[-1].rows[-1].value += b"!"
        changed = cut(rows, limits)
        differs = [not plan.meets(index, chunk) for index, chunk in enumerate(changed)]
        assert differs == [False] * (len(again) - 1) + [True]


def test_a_row_without_a_run_goes_with_the_row_before_it() -> None:
    """Unmappable rows are members like others; leading ones join the first row that has a run."""
    rows = [row(1, None), row(2, None), row(3, "A"), row(4, "B"), row(5, None), row(6, "A")]
    found = {chunk.run: [one.line for one in chunk.rows] for chunk in cut(rows)}
    assert found == {"A": [1, 2, 3, 6], "B": [4, 5]}


def test_rows_that_no_run_takes_go_without_one() -> None:
    """A file without any run is cut by size alone, and so are too many leading rows."""
    chunks = cut([row(n, None) for n in range(1, 8)], ChunkLimits(3))
    assert [(chunk.run, len(chunk.rows)) for chunk in chunks] == [(None, 3), (None, 3), (None, 1)]
    mixed = cut([*(row(n, None) for n in range(1, 5)), row(5, "A")], ChunkLimits(3))
    assert [(chunk.run, len(chunk.rows)) for chunk in mixed] == [(None, 3), ("A", 2)]


def test_open_chunks_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Past the bound of bytes or of runs the fullest chunk is closed early (G6)."""
    monkeypatch.setattr(chunks_module, "ROW_OVERHEAD_BYTES", 0)
    monkeypatch.setattr(chunks_module, "OPEN_BYTES_MAX", 1_000)
    rows = [row(n, "A" if n < 6 else f"B{n}") for n in range(1, 14)]
    first = cut(rows)[0]
    assert (first.run, len(first.rows)) == ("A", 5)
    monkeypatch.setattr(chunks_module, "OPEN_CHUNKS_MAX", 3)
    cutter = Cutter(ChunkLimits())
    for one in rows:
        list(cutter.add(one))
        assert len(cutter._open) <= 3


def test_too_many_runs_refuse_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever names each record its own run is told what a run is."""
    monkeypatch.setattr(chunks_module, "RUNS_MAX", 5)
    with pytest.raises(ConfigurationError, match="more than 5 runs"):
        cut([row(n, f"R{n}") for n in range(10)])


# --- rows -----------------------------------------------------------------------------------------


def read(reader: RowReader, value: object, error: str | None = None) -> Row:
    raw = value if isinstance(value, bytes) else json.dumps(value).encode()
    found = FileRow(raw, 7, 100, error)
    return reader.row("f.csv", found, members_of(found))


def test_a_row_is_read_as_the_gate_reads_it() -> None:
    """What does not decode has neither key nor run nor amount, and goes all the same."""
    reader = RowReader(PAYROLL, record_bytes_max=10_000)
    good = read(reader, {"employee_id": "E1", "source_run_id": "R", "gross_pay": "2.50"})
    assert (good.key, good.run, str(good.amount), good.currency) == (b"E1", "R", "2.50", "USD")
    for value in (b"{", b'{"employee_id":"E1","employee_id":"E2"}', b"[]"):
        found = read(reader, value)
        assert (found.key, found.run, found.amount, found.malformed) == (None, None, None, False)
    unmapped = read(reader, {"source_run_id": "R"}, "9 columns")
    assert (unmapped.run, unmapped.malformed) == (None, True)
    assert unmapped.headers == (("wb-source-error", b"9 columns"),)
    assert read(reader, b"x" * 9_999).too_large


@pytest.mark.parametrize(
    ("members", "observed"),
    [
        ({"received_at": "2024-03-01T10:00:00+02:00"}, b"2024-03-01T08:00:00Z"),
        (
            {"received_at": "yesterday", "inspected_at": "2024-03-01T10:00:00Z"},
            b"2024-03-01T10:00:00Z",
        ),
        ({"inspected_at": 5}, None),
        ({}, None),
    ],
)
def test_back_fills_say_when_a_record_was_first_seen(
    members: dict[str, object], observed: bytes | None
) -> None:
    """received_at, else inspected_at, else nothing; and never unless asked."""
    headers = read(RowReader(DVIR, record_bytes_max=10_000, backfill=True), members).headers
    assert headers == (() if observed is None else (("wb-observed-at", observed),))
    assert read(RowReader(DVIR, record_bytes_max=10_000), members).headers == ()


# --- what is sent ---------------------------------------------------------------------------------


def test_a_chunk_goes_to_one_partition_with_its_headers() -> None:
    """Each member says its place, the first also declares the whole; keys are as they were."""
    (chunk,) = cut([row(1), row(2, cents=-250), row(3, None, None)])
    attempt = attempt_of(PUBLICATION, chunk)
    (one,) = deliveries("t", 7, chunk, 4, attempt)
    assert one.partition == partition_of_chunk("R1", 1, 7)
    assert [m.value for m in one.messages] == [b"1", b"2", b"3"]
    members = [Member.parse(dict(m.headers)["wb-chunk"]) for m in one.messages]
    assert members == [Member(attempt, seq) for seq in (1, 2, 3)]
    declared = [dict(m.headers).get("wb-chunk-declare") for m in one.messages]
    assert declared[1:] == [None, None]
    assert Declaration.parse(declared[0]) == Declaration(
        "R1", 1, 4, 3, "USD", Decimal("-1.50"), chain_of([b"1", b"2", b"3"])
    )


def test_an_attempt_is_the_same_whenever_its_publication_sends_it() -> None:
    """Resumed it is the same, in another publication another, and each chunk has its own."""
    first, second = Chunk("R1", number=1), Chunk("R1", number=2)
    attempts = [
        attempt_of(PUBLICATION, first),
        attempt_of(PUBLICATION, second),
        attempt_of(uuid.UUID(int=1), first),
    ]
    assert attempts[0] == attempt_of(PUBLICATION, Chunk("R1", number=1))
    assert len(set(attempts)) == 3


def test_a_runs_chunks_take_turns_over_the_partitions() -> None:
    """Neighbours go to different partitions; a run always begins at the same one."""
    found = [partition_of_chunk("R1", number, 3) for number in range(1, 7)]
    assert sorted(found[:3]) == [0, 1, 2]
    assert found[:3] == found[3:]


def test_rows_without_a_run_are_spread_by_key_and_have_no_headers() -> None:
    """Where a Java client would put a key; without one, partitions take turns."""
    loose = Chunk(None)
    for line in range(KEYLESS_ROWS * 2):
        loose.add(Row(None, b"%d" % line, (), line, 10))
    found = deliveries("t", 3, loose, 0, "")
    assert [(one.partition, len(one.messages)) for one in found] == [(0, 500), (1, 500)]
    keyed = Chunk(None)
    keyed.add(Row(b"21", b"v", (), 1, 10))
    (one,) = deliveries("t", 1_000, keyed, 0, "")
    assert one.partition == partition_of(b"21", 1_000)
    assert all(m.headers == () for one in found for m in one.messages)


def test_a_rate_is_kept_over_any_time() -> None:
    """The first chunk goes at once, each next when the one before is paid for."""
    pacer = Pacer(100)
    waits = [pacer.wait_s(50, 10.0), pacer.wait_s(50, 10.1), pacer.wait_s(10, 20.0)]
    assert waits == [0.0, pytest.approx(0.4), 0.0]
    assert Pacer(None).wait_s(10**9, 0.0) == 0.0


# --- the manifest of a run ------------------------------------------------------------------------


def manifests_of(rows: list[Row], limits: ChunkLimits, bytes_max: int) -> list[dict[str, object]]:
    chunks, plan = cut(rows, limits), Plan()
    for chunk in chunks:
        plan.add(chunk)
    provenance = Provenance(PUBLICATION, "f.csv", "00")
    manifests = RunManifests("m", bytes_max, provenance, plan.runs)
    found = [manifests.add(chunk, "a", 2) for chunk in chunks]
    return [json.loads(one.messages[0].value or b"") for one in found if one is not None]


def test_a_runs_manifest_comes_with_its_last_chunk() -> None:
    """It says what was sent of the run, chunk by chunk, with totals by currency."""
    rows = [row(1, "A"), row(2, "B", 5), row(3, "A", 7, "EUR"), row(4, "A", None), row(5, "A", -1)]
    of_b, of_a = manifests_of(rows, ChunkLimits(2), 10_000)
    assert (of_b["run"], of_b["chunks"], of_b["totals"]) == ("B", 1, {"USD": "0.05"})
    assert {name: one for name, one in of_a.items() if name != "chunk_list"} == {
        "manifest_version": 1,
        "run": "A",
        "publication": str(PUBLICATION),
        "file": "f.csv",
        "file_sha256": "00",
        "chunks": 3,
        "records": 4,
        "totals": {"USD": "0.99", "EUR": "0.07"},
        "unreadable_amounts": 1,
        "unmappable_rows": 0,
    }
    listed = of_a["chunk_list"]
    assert isinstance(listed, list)
    assert [(one["chunk"], one["count"], one["total"]) for one in listed] == [
        (1, 2, "1.00"),
        (2, 1, "0.07"),
        (3, 1, "-0.01"),
    ]
    assert listed[0]["chain"] == chain_of([b"1", b"4"]).hex()


def test_a_manifest_fits_its_message() -> None:
    """What does not fit leaves out the list of chunks, and says so (G6)."""
    rows = [row(n) for n in range(50)]
    (full,) = manifests_of(rows, ChunkLimits(1), 100_000)
    assert full["chunk_list"]
    (bare,) = manifests_of(rows, ChunkLimits(1), 5_000)
    assert (bare["chunk_list"], bare["chunks"]) == (None, 50)
    assert bare["chunk_list_left_out"]
    (long,) = manifests_of([row(n) for n in range(CHUNKS_LISTED_MAX + 1)], ChunkLimits(1), 10**9)
    assert long["chunk_list"] is None
