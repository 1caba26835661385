"""Strict JSON: one reason for each way of not being the JSON that the contracts take."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.json_strict import JsonFault, parse
from schemas.reasons import Reason

DEPTH = 64


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"", Reason.MALFORMED_JSON),
        (b"\xef\xbb\xbf{}", Reason.MALFORMED_JSON),
        (b"{", Reason.MALFORMED_JSON),
        (b'{"a":1,}', Reason.MALFORMED_JSON),
        (b'{"a":NaN}', Reason.MALFORMED_JSON),
        (b'{"a":-Infinity}', Reason.MALFORMED_JSON),
        (b'{"a":01}', Reason.MALFORMED_JSON),
        (b'{"a":1}{"a":1}', Reason.MALFORMED_JSON),
        (b'{"a":1,"a":1}', Reason.MALFORMED_JSON),
        (b'{"a":1,"\\u0061":2}', Reason.MALFORMED_JSON),
        (b'{"a":{"b":1,"b":2}}', Reason.MALFORMED_JSON),
        (b'{"a":' + b"[" * 64 + b"]" * 64 + b"}", Reason.MALFORMED_JSON),
        (b"[" * 100_000, Reason.MALFORMED_JSON),
        (b'{"a":' * 5_000 + b"1" + b"}" * 5_000, Reason.MALFORMED_JSON),
        (b'{"a":' + b"1" * 5_000 + b"}", Reason.MALFORMED_JSON),
        (b'{"a":"\xff"}', Reason.ENCODING),
        (b'{"a":"\xed\xa0\x80"}', Reason.ENCODING),
        (b'{"a":"\\u0000"}', Reason.ENCODING),
        (b'{"a\\u0000":1}', Reason.ENCODING),
        (b'{"a":"\\ud800"}', Reason.ENCODING),
        (b'{"a":"\\udc00\\ud800"}', Reason.ENCODING),
        (b'{"a":[{"b":"\\ud83d"}]}', Reason.ENCODING),
        (b'{"a":1,"a":"\\ud800"}', Reason.ENCODING),
        (b'{"a":"\\ud800","a":1}', Reason.ENCODING),
        (b'{"":"\\ud800","a":1,"a":2}', Reason.ENCODING),
        (b'{"a":0,"a":' * 150 + b"1" + b"}" * 150, Reason.MALFORMED_JSON),
        (b"[]", Reason.SCHEMA_VIOLATION),
        (b"null", Reason.SCHEMA_VIOLATION),
    ],
    ids=lambda one: repr(one)[:40],
)
def test_what_is_refused(value: bytes, reason: Reason) -> None:
    """Each fault has its reason, encoding before syntax, and no input breaks the parser."""
    with pytest.raises(JsonFault) as caught:
        parse(value, DEPTH)
    assert caught.value.reason is reason


def test_text_that_spells_an_escape_is_text() -> None:
    """A backslash before the escape makes it the six characters it is."""
    assert parse(b'{"a":"\\\\u0000 \\\\ud800"}', DEPTH) == {"a": "\\u0000 \\ud800"}


def test_depth_is_exact() -> None:
    """Nesting up to the limit passes, one more does not."""
    deepest = b'{"a":' + b"[" * (DEPTH - 1) + b"]" * (DEPTH - 1) + b"}"
    assert parse(deepest, DEPTH)
    with pytest.raises(JsonFault):
        parse(deepest, DEPTH - 1)


def test_many_brackets_in_text_are_no_depth() -> None:
    """Brackets inside text do not count."""
    assert parse(b'{"a":"' + b"[" * 500 + b'"}', DEPTH)


def test_whole_numbers_are_exact() -> None:
    """Integers beyond 64 bits keep every digit."""
    assert parse(b'{"a":123456789012345678901234567890}', DEPTH) == {
        "a": 123456789012345678901234567890
    }


_json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.text(st.characters(exclude_characters="\x00", codec="utf-8")),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=10,
)


@given(
    st.dictionaries(st.text(st.characters(exclude_characters="\x00", codec="utf-8")), _json_values)
)
def test_agrees_with_the_standard_library(members: dict[str, object]) -> None:
    """What the standard library writes is read back equal, or refused as `encoding`."""
    text = json.dumps(members)
    try:
        assert parse(text.encode(), DEPTH) == members
    except JsonFault as fault:
        assert fault.reason is Reason.ENCODING


@given(st.binary(max_size=60))
def test_any_bytes_get_a_reason(value: bytes) -> None:
    """No bytes make the parser raise anything but a fault."""
    try:
        assert isinstance(parse(value, DEPTH), dict)
    except JsonFault as fault:
        assert fault.reason in {Reason.ENCODING, Reason.MALFORMED_JSON, Reason.SCHEMA_VIOLATION}
