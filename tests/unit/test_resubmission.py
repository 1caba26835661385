"""Sending rejects again: headers, when it is allowed, where it goes, what Kafka remembers of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.errors import ConfigurationError
from connectors.kafka.publication import partition_of
from connectors.postgres.rejects import Listed, Which, portions
from schemas import envelope
from schemas.envelope import Headers, Position
from schemas.reasons import Reason
from schemas.resubmission import (
    MARK_DIGEST_BYTES,
    SETTLES_ANEW,
    Reject,
    SentMark,
    claimed_origin,
    obstacle,
    resubmission_headers,
)
from schemas.verdict import Accepted, Duplicate, Refused, Violation
from streams.corrections import check_corrections, corrections, member_texts
from streams.resubmit import target_partition

AT = Position("payroll.raw", 1, 2, 33)
GATE_HEADERS = [*envelope.OURS, envelope.CHUNK, envelope.CHUNK_DECLARE, envelope.CLOSE]


def reject(reason: Reason, attempt: int = 1) -> Reject:
    """A reject whose bytes do not matter."""
    return Reject(AT, "payroll", reason, "[]", bytes(32), attempt, False, "c", -1, b"k", b"{}", ())


def refused(reason: Reason) -> Refused:
    """What it would be now."""
    return Refused(0, -1, bytes(32), reason, (Violation("a.b", "a rule"),), "c")


ACCEPTED = Accepted(0, -1, bytes(32), bytes(32), bytes(32), (), (), b"", b"", "c")
DUPLICATE = Duplicate(ACCEPTED, AT)


# --- Headers --------------------------------------------------------------------------------------


def test_what_belongs_to_the_gate_or_a_chunk_is_left_behind() -> None:
    """Of the original headers those stay that say something of the record, in their order."""
    kept: Headers = (("a", b"1"), ("wb-observed-at", b"t"), ("a", None), ("wb-source-error", b"e"))
    given_headers = (*((name, b"x") for name in GATE_HEADERS), *kept, ("correlation-id", b"old"))
    found = resubmission_headers(given_headers, AT, 2, "new", corrected=False)
    ours = (
        ("correlation-id", b"new"),
        ("wb-resubmission-of", b"payroll.raw/1/2/33"),
        ("wb-attempt", b"2"),
    )
    assert found == (*kept, *ours)
    corrected = resubmission_headers(given_headers, AT, 2, "new", corrected=True)
    assert corrected == (*kept[:3], *ours)


@given(st.lists(st.tuples(st.text(max_size=8), st.none() | st.binary(max_size=8))))
def test_sending_again_and_again_does_not_grow_the_headers(
    headers: list[tuple[str, bytes]],
) -> None:
    """Attempt and origin are replaced, never appended to."""
    once = resubmission_headers(tuple(headers), AT, 2, "c", corrected=False)
    twice = resubmission_headers(once, Position("t", 1, 0, 9), 3, "c", corrected=False)
    assert len(twice) == len(once)
    assert claimed_origin(twice, "t") == Position("t", 1, 0, 9)
    assert claimed_origin(twice, "another") is None


@pytest.mark.parametrize("value", [None, b"", b"\xff", b"a/b/c", b"payroll.raw/1/2/x"])
def test_an_origin_that_cannot_be_read_is_none(value: bytes | None) -> None:
    """A forged header costs nothing."""
    assert claimed_origin((("wb-resubmission-of", value),), "payroll.raw") is None


# --- When -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("reason", list(Reason))
def test_unchanged_bytes_go_only_where_they_end_otherwise(reason: Reason) -> None:
    """The same verdict again is not sought, but for faults of ours that cannot be foretold; what
    surrounds a collision or a chunk is not lifted by looking at the record alone."""
    again = obstacle(reject(reason), refused(reason), corrected=False, attempts_max=5)
    assert (again is None) is (reason in SETTLES_ANEW)
    never = {Reason.IDEMPOTENCY_COLLISION, Reason.CONTROL_TOTAL_MISMATCH}
    for now in (ACCEPTED, DUPLICATE):
        found = obstacle(reject(reason), now, corrected=False, attempts_max=5)
        assert (found is not None) is (reason in never)
    other = Reason.SCHEMA_VIOLATION if reason is not Reason.SCHEMA_VIOLATION else Reason.UNCERTIFIED
    if reason not in never | SETTLES_ANEW:
        said = obstacle(reject(reason), refused(other), corrected=False, attempts_max=5)
        assert said is not None
        assert str(other) in said
        assert "a.b: a rule" in said


@pytest.mark.parametrize("reason", list(Reason))
def test_corrected_bytes_go_unless_they_are_turned_away(reason: Reason) -> None:
    """Whatever was wrong before."""
    assert obstacle(reject(reason), ACCEPTED, corrected=True, attempts_max=5) is None
    assert obstacle(reject(reason), refused(reason), corrected=True, attempts_max=5) is not None


def test_attempts_are_bounded() -> None:
    """Beyond the limit only for whoever raises it, and never beyond what is counted."""
    for attempt, attempts_max, allowed in ((4, 5, True), (5, 5, False), (5, 6, True)):
        one = reject(Reason.SCHEMA_VIOLATION, attempt)
        found = obstacle(one, ACCEPTED, corrected=True, attempts_max=attempts_max)
        assert (found is None) is allowed
        assert allowed or f"--attempts-max {attempt + 1}" in str(found)
    most = reject(Reason.SCHEMA_VIOLATION, 999_999)
    assert obstacle(most, ACCEPTED, corrected=True, attempts_max=10_000_000) is not None


# --- Where ----------------------------------------------------------------------------------------


@given(st.none() | st.binary(max_size=20), st.integers(0, 99), st.integers(1, 100))
def test_a_record_goes_where_its_key_goes(key: bytes | None, before: int, partitions: int) -> None:
    """Beside the others of its key; without a key where it was, if there is such a partition."""
    found = target_partition(key, before, partitions)
    assert 0 <= found < partitions
    if key is not None:
        assert found == partition_of(key, partitions)
    elif before < partitions:
        assert found == before


places = st.dictionaries(st.integers(0, 999), st.integers(0, 2**62), min_size=1, max_size=100)


@given(
    st.integers(1, 2**62),
    st.integers(0, 1_000),
    st.binary(min_size=MARK_DIGEST_BYTES, max_size=MARK_DIGEST_BYTES),
    places,
)
def test_what_kafka_remembers_is_read_back(
    first: int, more: int, digest: bytes, bases: dict[int, int]
) -> None:
    """Every mark fits beside an offset and is read back as it was."""
    mark = SentMark(first, first + more, digest, tuple(bases.items()))
    assert len(mark.text()) < 4_096
    assert SentMark.parse(mark.text()) == mark


@given(st.text(max_size=60))
def test_a_foreign_text_beside_the_offset_is_no_mark(text: str) -> None:
    """Only what we wrote is believed."""
    assert SentMark.parse(text) is None


# --- Portions -------------------------------------------------------------------------------------


@given(st.lists(st.integers(0, 20_000_000), max_size=30))
def test_portions_are_bounded_and_lose_nothing(sizes: list[int]) -> None:
    """All rejects in order; more than one in a portion only within the bound."""
    listed = [
        Listed(AT, "payroll", Reason.ENCODING, "[]", b"", 1, False, None, size, False, False)  # type: ignore[arg-type]
        for size in sizes
    ]
    parts = [list(part) for part in portions(listed)]
    assert [one for part in parts for one in part] == listed
    for part in parts:
        assert part
        assert len(part) == 1 or sum(one.value_bytes for one in part) <= 8 * 1024 * 1024


def test_a_field_is_sought_where_the_detail_names_it() -> None:
    """A path, or one below it, and never a rule's text that looks alike."""
    needles = Which(field='a"b').values()[4]
    detail = json.dumps([{"path": 'a"b[1].c', "rule": '"path":"x"'}], separators=(",", ":"))
    assert any(needle in detail for needle in needles)  # type: ignore[union-attr]
    assert not any(needle in detail for needle in Which(field="x").values()[4])  # type: ignore[union-attr]
    assert not any(needle in detail for needle in Which(field="a").values()[4])  # type: ignore[union-attr]


# --- Corrections ----------------------------------------------------------------------------------

scalars = st.none() | st.booleans() | st.integers() | st.text(max_size=8)
objects = st.dictionaries(
    st.text(max_size=6), scalars | st.lists(scalars, max_size=3), min_size=1, max_size=5
)


@given(objects, st.sampled_from([None, 2]), st.booleans())
def test_members_keep_their_own_text(members: dict[str, object], indent: int, ascii_: bool) -> None:  # noqa: FBT001
    """Each member's text is that of the file, however it is written."""
    text = json.dumps(members, indent=indent, ensure_ascii=ascii_)
    found = member_texts(text)
    assert {name: json.loads(one) for name, one in found.items()} == members
    assert all(one in text for one in found.values())


def test_an_amount_is_not_read_and_written_again(tmp_path: Path) -> None:
    """The corrected bytes are those of the line."""
    record = '{ "gross_pay" : 2307.690000000000000001, "n":"\\u00e9" }'
    path = tmp_path / "c.ndjson"
    path.write_text(f' {{"record":{record} , "quarantine_id": "{AT}" }} \n\n', encoding="utf-8")
    assert check_corrections(path) == 1
    assert list(corrections(path)) == [[(AT, record.encode())]]


@pytest.mark.parametrize(
    "line",
    [
        "",
        "[]",
        "{}",
        '{"quarantine_id": "a/1/0/1"}',
        '{"quarantine_id": "a/1/0/1", "record": []}',
        '{"quarantine_id": "a/1/0", "record": {}}',
        '{"quarantine_id": 7, "record": {}}',
        '{"quarantine_id": "a/1/0/1", "record": {}, "record": {}}',
        '{"quarantine_id": "a/1/0/1", "record": {}} x',
        '{"quarantine_id": "a/1/0/1", "record": {"secret": }}',
        '{"quarantine_id": "a/1/0/1", "record": {}, "more": 1}',
        '{"quarantine_id" "a/1/0/1", "record": {}}',
        "\ufeff{}",
    ],
)
def test_a_line_that_is_no_correction_refuses_the_file(tmp_path: Path, line: str) -> None:
    """The whole file, before anything is done; by number and rule, without what stands there."""
    path = tmp_path / "c.ndjson"
    good = f'{{"quarantine_id": "{AT}", "record": {{}}}}\n'
    path.write_text(f"{good}{line}\n", encoding="utf-8")
    if not line:
        assert check_corrections(path) == 1
        return
    with pytest.raises(ConfigurationError, match="line 2") as caught:
        check_corrections(path)
    assert "secret" not in str(caught.value)


def test_one_reject_has_one_correction(tmp_path: Path) -> None:
    """Two lines for one reject are a mistake, not a choice."""
    path = tmp_path / "c.ndjson"
    path.write_text(f'{{"quarantine_id": "{AT}", "record": {{}}}}\n' * 2, encoding="utf-8")
    with pytest.raises(ConfigurationError, match="line 2: this reject is corrected"):
        check_corrections(path)
