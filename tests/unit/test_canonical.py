"""The canonical form and its digest."""

from __future__ import annotations

import json
from decimal import Decimal

import jiter
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.canonical import canonical_body, digest_of, unknown


def _unknown(text: str) -> object:
    return unknown(jiter.from_json(text.encode(), float_mode="lossless-float"))


def test_members_are_sorted_by_utf16_code_units() -> None:
    """RFC 8785, section 3.2.3: the order of its own example."""
    names = ["€", "\r", "\ufb33", "1", "\x80", "ö", "\U0001f600"]
    body = canonical_body(dict.fromkeys(names, 0))
    assert list(json.loads(body)) == [*("\r", "1", "\x80", "ö", "€", "\U0001f600", "\ufb33")]


def test_strings_are_escaped_as_little_as_allowed() -> None:
    """RFC 8785, section 3.2.2.2."""
    assert canonical_body({"a": '€$\x0f\nA\'B"\\\\"/\x7f'}) == (
        '{"a":"€$\\u000f\\nA\'B\\"\\\\\\\\\\"/\x7f"}'
    )


@pytest.mark.parametrize(
    ("written", "body"),
    [
        ("1", "1"),
        ("1.0", "1"),
        ("1e2", "100"),
        ("100", "100"),
        ("-0.0", "0"),
        ("1.50", "1.5"),
        ("1e-3", "0.001"),
        ("0.001", "0.001"),
        ("1e999999999", "1E999999999"),
        ("10e999999998", "1E999999999"),
        ("123456789012345678901234567890", "123456789012345678901234567890"),
        ("123456789012345678901234567890.0", "123456789012345678901234567890"),
        ("-1.230e-400", "-123E-402"),
    ],
)
def test_unknown_numbers_are_by_value(written: str, body: str) -> None:
    """Equal values of unknown numbers have one form, exact and short, whatever their notation."""
    found = canonical_body({"n": _unknown(written)})
    assert found == f'{{"n":{body}}}'
    assert canonical_body({"n": _unknown(body)}) == found


@given(st.integers(-(10**30), 10**30), st.integers(-45, 45), st.integers(0, 30))
def test_one_form_per_number(digits: int, exponent: int, zeros: int) -> None:
    """Every way to write a number ends in one text, which reads back as the number."""
    padded = digits * 10**zeros
    forms = {
        f"{digits}e{exponent}",
        f"{padded}e{exponent - zeros}",
        f"{padded}.0E{exponent - zeros}",
    }
    (body,) = {canonical_body({"n": _unknown(form)}) for form in forms}
    read = jiter.from_json(body.encode(), float_mode="lossless-float")["n"]
    text = bytes(read).decode() if isinstance(read, jiter.LosslessFloat) else str(read)
    assert Decimal(text) == Decimal(f"{digits}e{exponent}")
    assert len(text) <= max(42, len(str(digits)) + 4)


def test_nulls_are_left_out_of_objects_and_kept_in_lists() -> None:
    """An absent member and a null one are the same; a place in a list is not nothing."""
    assert canonical_body({"a": _unknown('{"x":null,"y":[null,{"z":null}]}')}) == (
        '{"a":{"y":[null,{}]}}'
    )


def test_numbers_are_not_strings() -> None:
    """An unknown 1 and an unknown "1" are different contents."""
    assert canonical_body({"a": _unknown("1")}) != canonical_body({"a": _unknown('"1"')})


def test_what_has_no_json_form() -> None:
    """NaN from an unknown Avro double is refused."""
    with pytest.raises(ValueError, match="finite"):
        unknown(Decimal("NaN"))


def test_digest_vector() -> None:
    """The digest is SHA-256 of the body's UTF-8: a fixed vector, so that it never changes."""
    body = canonical_body({"b": "ü", "a": ["1", {"c": "2"}]})
    assert body == '{"a":["1",{"c":"2"}],"b":"ü"}'
    assert digest_of(body).hex() == (
        "45794c70aed5e79c0722e5bc250d6a1d3362c701caf4115fb018b00c8e9aa5b6"
    )


_names = st.text(st.characters(codec="utf-8"), max_size=4)
_values = st.recursive(
    st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.text(st.characters(codec="utf-8"), max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_names, inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(_names, _values, max_size=5), st.randoms(use_true_random=False))
def test_order_of_members_says_nothing(members: dict[str, object], chance: object) -> None:
    """Any order of members has one body, and the body reads back equal."""
    shuffled = list(members.items())
    chance.shuffle(shuffled)  # type: ignore[attr-defined]
    body = canonical_body({k: unknown(v) for k, v in members.items()})
    assert canonical_body({k: unknown(v) for k, v in shuffled}) == body
    assert json.loads(body) == members
