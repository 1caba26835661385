"""Paths into reports, conditions over them, and the texts of a page's parts."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.profiles.paths import PathError, compile_conditions, compile_path, levels
from connectors.profiles.spans import Uncut, element_spans, member_spans

REPORT: dict[str, Any] = {
    "id": "r1",
    "vehicle": {"name": "T", "ext": {"samsara.vin": "V"}},
    "signatures": [{"role": "mechanic", "by": "m"}, {"role": "driver", "by": "d"}],
    "lists": [{"name": "a", "parts": [{"n": 1}, {"n": 2}]}, {"name": "b", "parts": [{"n": 3}]}],
    "model_year": 1979,
    "ok": True,
    "none": None,
}


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("id", "r1"),
        ("vehicle.name", "T"),
        ('vehicle.ext."samsara.vin"', "V"),
        ("signatures[1].by", "d"),
        ("signatures[role=driver].by", "d"),
        ("signatures[role=agent].by", None),
        ("signatures[9].by", None),
        ("$.id", "r1"),
        ("none", None),
        ("none.below", None),
        ("id.below", None),
        ("vehicle[0]", None),
    ],
)
def test_a_path_leads_to_a_value_or_to_none(path: str, value: object) -> None:
    """Absent, null and of another kind are alike."""
    assert compile_path(path).get((REPORT,)) == value


def test_each_element_knows_what_it_lies_in() -> None:
    """`^.` is the element above, `$.` the report, `.` the element."""
    each = compile_path("lists[].parts[]", lists=True)
    assert levels(each) == 2
    number, name = compile_path("n", depth=2), compile_path("^.name", depth=2)
    root, itself = compile_path("$.id", depth=2), compile_path(".", depth=2)
    chains = list(each.each((REPORT,)))
    assert [(number.get(c), name.get(c), root.get(c)) for c in chains] == [
        (1, "a", "r1"),
        (2, "a", "r1"),
        (3, "b", "r1"),
    ]
    assert [itself.get(c) for c in chains] == [{"n": 1}, {"n": 2}, {"n": 3}]
    assert list(compile_path("vehicle[]", lists=True).each((REPORT,))) == []


@pytest.mark.parametrize(
    "path", ["", "a.", ".a", "a..b", "a[", "a[x]", "a[=b]", "^.a", "a b", "a[]", "$.", "a.[0]"]
)
def test_what_is_no_path_is_refused(path: str) -> None:
    """When the profile is read."""
    with pytest.raises(PathError):
        compile_path(path)


def test_a_list_path_asks_for_elements() -> None:
    """And a value path does not."""
    with pytest.raises(PathError, match=r"must ask for every element"):
        compile_path("lists", lists=True)


@pytest.mark.parametrize(
    ("conditions", "holds"),
    [
        ({"id": "r1"}, True),
        ({"id": ["r0", "r1"]}, True),
        ({"id": "r2"}, False),
        ({"ok": True}, True),
        ({"ok": 1}, False),
        ({"id": "r1", "ok": False}, False),
        ({"vehicle": {"present": True}}, True),
        ({"none": {"present": False}}, True),
        ({"model_year": {"max": 1980}}, True),
        ({"model_year": {"min": 1980}}, False),
        ({"id": {"max": 1980}}, False),
        ({"vehicle": "T"}, False),
    ],
)
def test_conditions(
    conditions: dict[str, Any],
    holds: bool,  # noqa: FBT001 - an example
) -> None:
    """All of them must hold; true is not 1."""
    assert compile_conditions(conditions, 0)((REPORT,)) is holds


@pytest.mark.parametrize("wanted", [{}, {"present": 1}, {"about": 3}, {"max": "x"}])
def test_other_conditions_are_refused(wanted: dict[str, Any]) -> None:
    """When the profile is read."""
    with pytest.raises(PathError):
        compile_conditions({"id": wanted}, 0)


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=8,
)


@given(
    st.lists(values, max_size=5),
    st.dictionaries(st.text(max_size=3).filter(lambda n: n not in {"a", "b"}), values, max_size=3),
    st.sampled_from([None, 1, 3]),
)
def test_spans_are_the_elements_texts(
    elements: list[Any], others: dict[str, Any], indent: int | None
) -> None:
    """For any document, however laid out: one span an element, each parses to it."""
    document = {**others, "a": {**others, "b": elements}}
    text = f" {json.dumps(document, indent=indent)}\n"
    spans = list(element_spans(text, ["a", "b"]))
    assert [json.loads(text[begin:end]) for begin, end in spans] == elements
    assert all(text[begin:end].strip() == text[begin:end] for begin, end in spans)


@given(st.dictionaries(st.text(max_size=3), values, max_size=4))
def test_member_spans_are_the_members_texts(members: dict[str, Any]) -> None:
    """Name by name."""
    text = json.dumps(members, indent=2)
    assert {n: json.loads(text[begin:end]) for n, begin, end in member_spans(text)} == members


@given(st.lists(values, max_size=3), st.integers(0, 60))
def test_a_document_cut_short_is_never_whole(elements: list[Any], cut: int) -> None:
    """Wherever it ends early, it is said."""
    text = json.dumps({"data": elements})
    if cut >= len(text):
        return
    with pytest.raises(Uncut):
        list(element_spans(text[:cut], ["data"]))
