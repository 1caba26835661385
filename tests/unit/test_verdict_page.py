"""The verdict page: what is packed reads back, what is damaged is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.envelope import Position
from schemas.reasons import Reason
from schemas.verdict import Accepted, Duplicate, Refused, Settled, Verdict, Violation
from schemas.verdict_page import Entry, pack, unpack

_digests = st.binary(min_size=32, max_size=32)
_keys = _digests.filter(any)
_offsets = st.integers(0, 2**63 - 1)
_timestamps = st.integers(-1, 2**63 - 1)
_accepted = st.builds(
    lambda offset, timestamp, raw, key: Accepted(
        offset, timestamp, raw, key, bytes(32), (), (), b"", b"", "c"
    ),
    _offsets,
    _timestamps,
    _digests,
    _keys,
)
_holders = st.builds(
    Position, st.just("t"), st.integers(1, 2**31 - 1), st.integers(0, 2**31 - 1), _offsets
)
_duplicates = st.builds(Duplicate, _accepted, _holders)
_refused = st.builds(
    lambda offset, timestamp, raw, reason, key: Refused(
        offset, timestamp, raw, reason, (Violation("", "a rule"),), "c", key
    ),
    _offsets,
    _timestamps,
    _digests,
    st.sampled_from(Reason),
    st.none() | _keys,
)
_settled = st.lists(st.one_of(_accepted, _duplicates, _refused), max_size=12)


def _expected(outcome: Settled) -> Entry:
    if isinstance(outcome, Accepted):
        return Entry(
            outcome.offset,
            outcome.timestamp,
            Verdict.COMMITTED,
            None,
            outcome.key,
            outcome.raw_digest,
        )
    if isinstance(outcome, Duplicate):
        one, holder = outcome.accepted, outcome.holder
        place = holder.incarnation, holder.partition, holder.offset
        return Entry(
            one.offset, one.timestamp, Verdict.DUPLICATE, None, one.key, one.raw_digest, place
        )
    return Entry(
        outcome.offset,
        outcome.timestamp,
        Verdict.QUARANTINED,
        outcome.reason,
        outcome.key,
        outcome.raw_digest,
    )


@given(_settled)
def test_reads_back_what_was_packed(settled: list[Settled]) -> None:
    """Every verdict, reason, key, digest and holder survives, in order."""
    assert list(unpack(pack(settled))) == [_expected(outcome) for outcome in settled]


@given(_settled.filter(bool), st.data())
def test_a_cut_page_is_refused(settled: list[Settled], data: st.DataObject) -> None:
    """A page that ends early is a `ValueError` wherever it ends, never a shorter list."""
    page = pack(settled)
    cut = data.draw(st.integers(0, len(page) - 1))
    with pytest.raises(ValueError, match="verdict page"):
        list(unpack(page[:cut]))


@given(_settled, st.binary(min_size=1, max_size=9))
def test_a_longer_page_is_refused(settled: list[Settled], more: bytes) -> None:
    """Bytes beyond the last entry are no part of any page."""
    with pytest.raises(ValueError, match="too many"):
        list(unpack(pack(settled) + more))


def test_unknown_version_verdict_and_reason_are_refused() -> None:
    """What this code cannot read it refuses, naming the version."""
    page = bytearray(pack([Refused(1, 2, bytes(32), Reason.ENCODING, (), "c")]))
    for at, number, why in ((0, 2, "version 2"), (21, 9, "Verdict"), (22, 200, "damaged")):
        broken = page[:]
        broken[at] = number
        with pytest.raises(ValueError, match=why):
            list(unpack(bytes(broken)))
