"""The laws of settling."""

from __future__ import annotations

import json
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.envelope import Source
from schemas.reasons import Reason
from schemas.record_type import COMMON_LEDGER_COLUMNS
from schemas.verdict import (
    VIOLATIONS_MAX,
    Accepted,
    Decided,
    Duplicate,
    Holder,
    Refused,
    Settled,
    Violation,
)
from streams.settle import colliding_keys, count, differing_fields, keys_of, settle

SOURCE = Source("payroll.raw", 1)
ELSEWHERE = Source("payroll.raw", 0).position(5)


def _body(content: int) -> str:
    return json.dumps({"gross_pay": str(content), "same": "x"}, separators=(",", ":"))


def _accepted(offset: int, key: int, content: int) -> Accepted:
    row = [None] * len(COMMON_LEDGER_COLUMNS)
    row[COMMON_LEDGER_COLUMNS.index("body")] = _body(content)  # type: ignore[call-overload]
    return Accepted(
        offset,
        1_700_000_000_000,
        bytes([offset] * 32),
        bytes([key + 1] * 32),
        bytes([content] * 32),
        tuple(row),
        (),
        b"k",
        b"v",
        f"c{offset}",
        safety_critical=bool(content % 2),
    )


def _refused(offset: int, reason: Reason) -> Refused:
    return Refused(offset, 1, bytes(32), reason, (Violation("", "a rule"),), "c")


@st.composite
def _batches(draw: st.DrawFn) -> list[Decided]:
    kinds = draw(
        st.lists(st.one_of(st.none(), st.tuples(st.integers(0, 3), st.integers(0, 2))), max_size=14)
    )
    return [
        _refused(offset, Reason.ENCODING) if kind is None else _accepted(offset, *kind)
        for offset, kind in enumerate(kinds)
    ]


_held = st.dictionaries(
    st.integers(0, 3).map(lambda key: bytes([key + 1] * 32)), st.integers(0, 2), max_size=3
)


def _settle(
    batch: list[Decided], held: dict[bytes, int], refused: dict[int, Refused] | None = None
) -> list[Settled]:
    holders = {key: Holder(ELSEWHERE, bytes([content] * 32)) for key, content in held.items()}
    bodies = {key: _body(held[key]) for key in colliding_keys(batch, holders)}
    return settle(batch, SOURCE, holders, bodies, refused or {})


def _offset(outcome: Settled) -> int:
    return outcome.accepted.offset if isinstance(outcome, Duplicate) else outcome.offset


@given(_batches(), _held)
def test_every_record_is_settled_once_in_order(
    batch: list[Decided], held: dict[bytes, int]
) -> None:
    """G1: as many verdicts as records, in offset order; refusals of deciding stay what they are."""
    settled = _settle(batch, held)
    assert [_offset(outcome) for outcome in settled] == [record.offset for record in batch]
    for record, outcome in zip(batch, settled, strict=True):
        if isinstance(record, Refused):
            assert outcome is record


@given(_batches(), _held)
def test_a_key_is_taken_once(batch: list[Decided], held: dict[bytes, int]) -> None:
    """G2: no key is committed twice, and none that the ledger holds already."""
    taken = Counter(o.key for o in _settle(batch, held) if isinstance(o, Accepted))
    assert all(number == 1 for number in taken.values())
    assert not taken.keys() & held.keys()
    wanted = {r.key for r in batch if isinstance(r, Accepted)}
    assert taken.keys() == wanted - held.keys()


@given(_batches(), _held)
def test_the_same_content_is_a_duplicate_and_another_a_collision(
    batch: list[Decided], held: dict[bytes, int]
) -> None:
    """A duplicate names the position of the first record of its key; a collision the fields."""
    first: dict[bytes, tuple[object, bytes]] = {
        key: (ELSEWHERE, bytes([content] * 32)) for key, content in held.items()
    }
    for record, outcome in zip(batch, _settle(batch, held), strict=True):
        if isinstance(record, Refused):
            continue
        if record.key not in first:
            assert outcome is record
            first[record.key] = SOURCE.position(record.offset), record.canonical_digest
            continue
        position, digest = first[record.key]
        if digest == record.canonical_digest:
            assert isinstance(outcome, Duplicate)
            assert outcome.holder == position
        else:
            assert isinstance(outcome, Refused)
            assert outcome.reason is Reason.IDEMPOTENCY_COLLISION
            assert (outcome.key, outcome.safety_critical) == (record.key, record.safety_critical)
            assert str(position) in outcome.violations[0].rule
            assert [v.path for v in outcome.violations[1:]] == ["gross_pay"]


@given(_batches(), _held)
def test_settling_again_yields_no_new_commit(batch: list[Decided], held: dict[bytes, int]) -> None:
    """What committed comes out as duplicate of itself when it is published a second time."""
    settled = _settle(batch, held)
    after = dict(held)
    after |= {o.key: o.canonical_digest[0] for o in settled if isinstance(o, Accepted)}
    again = _settle(batch, after)
    assert not [o for o in again if isinstance(o, Accepted)]
    for before, now in zip(settled, again, strict=True):
        if isinstance(before, (Accepted, Duplicate)):
            assert isinstance(now, Duplicate)
        else:
            assert isinstance(now, Refused)
            assert now.reason is before.reason


@given(_batches(), _held, st.data())
def test_a_refused_record_takes_no_key(
    batch: list[Decided], held: dict[bytes, int], data: st.DataObject
) -> None:
    """What the database refused is persist_failed; a later record of its key may commit; all
    others are settled as if the refused ones had never been in the batch."""
    candidates = [r.offset for r in batch if isinstance(r, Accepted)]
    chosen = data.draw(st.sets(st.sampled_from(candidates)) if candidates else st.just(set()))
    refused = {offset: _refused(offset, Reason.PERSIST_FAILED) for offset in chosen}
    settled = _settle(batch, held, refused)
    others = [o for o in settled if _offset(o) not in chosen]
    assert [o for o in settled if _offset(o) in chosen] == [refused[o] for o in sorted(chosen)]
    assert others == _settle([r for r in batch if r.offset not in chosen], held)


@given(_batches(), _held, st.integers(0, 14))
def test_any_cut_settles_alike(batch: list[Decided], held: dict[bytes, int], cut: int) -> None:
    """Two batches, the second settled on the first's ledger, end as one batch does."""
    head, tail = batch[:cut], batch[cut:]
    first = _settle(head, held)
    holders = {key: Holder(ELSEWHERE, bytes([c] * 32)) for key, c in held.items()}
    contents = dict(held)
    for outcome in first:
        if isinstance(outcome, Accepted):
            digest = outcome.canonical_digest
            holders[outcome.key] = Holder(SOURCE.position(outcome.offset), digest)
            contents[outcome.key] = digest[0]
    bodies = {key: _body(contents[key]) for key in colliding_keys(tail, holders)}
    second = settle(tail, SOURCE, holders, bodies, {})
    assert [*first, *second] == _settle(batch, held)


@given(_batches(), _held)
def test_counts_balance(batch: list[Decided], held: dict[bytes, int]) -> None:
    """Counts add up to what came in, and do not when a record was lost on the way."""
    settled = _settle(batch, held)
    assert count(settled, len(batch)).balanced
    assert not count(settled, len(batch) + 1).balanced


@given(_batches())
def test_keys_are_distinct_and_sorted(batch: list[Decided]) -> None:
    """All workers probe and write keys in one order, so they cannot wait for each other."""
    keys = keys_of(batch)
    assert keys == sorted({r.key for r in batch if isinstance(r, Accepted)})


def test_names_of_differing_fields_are_bounded() -> None:
    """Unknown members may have any name, and there may be any number of them."""
    mine = json.dumps({f"{n:03d}" + "x" * 500: n for n in range(100)})
    found = differing_fields(mine, "{}")
    assert len(found) == VIOLATIONS_MAX
    assert all(len(name) <= 64 for name in found)


@pytest.mark.parametrize(
    ("mine", "theirs"),
    [("1", "true"), ("1", '"1"'), ("0.12345678901234567890121", "0.12345678901234567890122")],
)
def test_a_collision_names_what_differs_in_kind_or_last_digit(mine: str, theirs: str) -> None:
    """Bodies are compared by their canonical text, not by what Python takes for equal."""
    assert differing_fields(f'{{"a":{mine},"b":2}}', f'{{"a":{theirs},"b":2}}') == ["a"]
