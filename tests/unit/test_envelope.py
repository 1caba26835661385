"""Positions and headers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.envelope import Position, last_header, pack_headers, unpack_headers

# Kafka header names are UTF-8; aiokafka hands them over as text.
_headers = st.lists(
    st.tuples(st.text(st.characters(codec="utf-8"), max_size=20), st.none() | st.binary()),
    max_size=6,
).map(tuple)
_topics = st.text(st.sampled_from("abcXYZ019._-/"), min_size=1, max_size=20)


@given(_headers)
def test_headers_read_back_exactly(headers: tuple[tuple[str, bytes | None], ...]) -> None:
    """Order, repetition, empty and null values all survive."""
    assert unpack_headers(pack_headers(headers)) == headers


@given(_headers, st.sampled_from(["a", "wb-key", ""]))
def test_the_last_header_of_a_name_wins(
    headers: tuple[tuple[str, bytes | None], ...], name: str
) -> None:
    """Whatever comes before it, and None when there is none."""
    assert last_header((*headers, (name, b"mine")), name) == b"mine"
    others = tuple(header for header in headers if header[0] != name)
    assert last_header(others, name) is None


@given(_topics, st.integers(1, 99), st.integers(0, 999), st.integers(0, 2**63 - 1))
def test_positions_read_back(topic: str, incarnation: int, partition: int, offset: int) -> None:
    """The text of a position names that position only."""
    position = Position(topic, incarnation, partition, offset)
    assert Position.parse(str(position)) == position


@pytest.mark.parametrize(
    "text",
    ["", "payroll.raw", "payroll.raw/1/2", "/1/2/3", "t/1/2/-3", "t/1/2/٣", "t/1/ 2/3", "t/1/2/3/"],
)
def test_what_is_no_position_is_refused(text: str) -> None:
    """No guess is made at half a position."""
    with pytest.raises(ValueError, match="not a position"):
        Position.parse(text)
