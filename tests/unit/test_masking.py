"""What is shown of a record to whoever has not asked, on record, to see all of it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.masking import MASK, Shown
from schemas.record_types import RECORD_TYPES

# Personal, free text, guessable, or whatever its sender made of it.
MASKED = {
    "payroll": {
        "idempotency_key",
        "supplied_key",
        "employee_id",
        "statement_id",
        "corrects",
        "residence_jurisdiction",
        "residence_authority",
        "unknown_members",
        "raw_digest",
        "canonical_digest",
        "correlation_id",
    },
    "dvir": {
        "driver_id",
        "certification.by",
        "signatures[].signer_id",
        "signatures[].receipt",
        "defects[].note",
        "defects[].repaired_by",
        "attachments[].sha256",
        "attachments[].uri",
        "attachments[].inline",
        "location",
        "payload",
        "unknown_members",
        "correlation_id",
    },
}


def leaves(schema: object, path: str, named: dict[str, object]) -> Iterator[str]:
    """Paths of the values an Avro schema describes, written as a record type lists them."""
    schema = named.get(schema, schema) if isinstance(schema, str) else schema
    if isinstance(schema, list):
        for branch in schema:
            yield from leaves(branch, path, named)
    elif isinstance(schema, Mapping) and schema["type"] == "record":
        named[schema["name"]] = schema
        for field in schema["fields"]:
            name = field["name"]
            yield from leaves(field["type"], f"{path}.{name}" if path else name, named)
    elif isinstance(schema, Mapping) and schema["type"] == "array":
        found = list(leaves(schema["items"], f"{path}[]", named))
        yield from [path] if found == [f"{path}[]"] else found
    elif schema != "null":
        yield path


@pytest.mark.parametrize("name", sorted(RECORD_TYPES))
def test_every_field_is_either_shown_or_masked_on_purpose(name: str) -> None:
    """A field of the committed contract that nobody decided about fails here."""
    record_type = RECORD_TYPES[name]
    schema = json.loads(record_type.committed_schemas[-1].text)
    found = set(leaves(schema, "", {}))
    assert record_type.shown.fields - found == set()
    assert found - record_type.shown.fields == MASKED[name]


def test_values_that_are_not_listed_are_masked_at_every_depth() -> None:
    """Names stay, and what is absent or null; lists keep their length."""
    shown = Shown(frozenset({"a", "list[].kept", "flags"}), message_key=True)
    members = {
        "a": 1,
        "b": "secret",
        "none": None,
        "list": [{"kept": 2, "hidden": 3}, {"unknown": {"deep": True}}],
        "flags": ["x", "y"],
        "texts": ["x"],
    }
    assert shown.masked(members) == {
        "a": 1,
        "b": MASK,
        "none": None,
        "list": [{"kept": 2, "hidden": MASK}, {"unknown": {"deep": MASK}}],
        "flags": ["x", "y"],
        "texts": [MASK],
    }


_json = st.recursive(
    st.none() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=10,
)


@given(st.dictionaries(st.text(max_size=3), _json))
def test_nothing_is_shown_by_default(members: dict[str, object]) -> None:
    """Where nothing is listed, no value gets through, whatever the record holds."""

    def values(value: object) -> Iterator[object]:
        if isinstance(value, Mapping):
            for inner in value.values():
                yield from values(inner)
        elif isinstance(value, list):
            for inner in value:
                yield from values(inner)
        else:
            yield value

    masked = Shown(frozenset(), message_key=False).masked(members)
    assert set(values(masked)) <= {MASK, None}
