"""Whether a writer's schema may be read as ours: checked once per schema, refusing all its records.

A decoder that takes the scale of whoever wrote a decimal turns 1,234.56 into 123,456; one that
takes a double for money loses cents. So wherever our schema has a decimal, the writer's must have a
decimal of the same scale, or text, which is then read by the amount grammar. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

from schemas.avro_strict import AvroFault, AvroSchema
from schemas.reasons import Reason

_FLOATS = frozenset({"float", "double"})
_DECIMAL_BASES = frozenset({"bytes", "fixed"})
_NAMED = frozenset({"record", "error", "enum", "fixed"})


@lru_cache(maxsize=1024)
def _faults(writer: AvroSchema, reader: AvroSchema) -> tuple[tuple[Reason, str, str], ...]:
    ours = {
        path: kind.get("scale", 0)
        for path, kind in _leaves(reader.parsed, "", _named(reader.parsed), None)
        if isinstance(kind, dict) and kind.get("logicalType") == "decimal"
    }
    found = [
        (reason, path, rule)
        for path, kind in _leaves(writer.parsed, "", _named(writer.parsed), frozenset(ours))
        if path in ours and (fault := _against(kind, ours[path])) is not None
        for reason, rule in (fault,)
    ]
    return tuple(sorted(found, key=lambda fault: fault[0] is not Reason.FLOAT_MONEY))


def writer_faults(writer: AvroSchema, reader: AvroSchema) -> Iterator[AvroFault]:
    """What is wrong with every record of this writer, the first reason first."""
    for reason, path, rule in _faults(writer, reader):
        fault = AvroFault(reason, rule)
        fault.path = path
        yield fault


def _against(kind: Any, scale: int) -> tuple[Reason, str] | None:  # noqa: ANN401 - decoded JSON
    """The fault of one branch of a writer's type where our decimal has this scale."""
    if isinstance(kind, dict):
        decimal = kind.get("logicalType") == "decimal" and kind.get("type") in _DECIMAL_BASES
        if decimal and kind.get("scale", 0) == scale:
            return None
        kind = kind.get("type")  # Avro ignores a logical type that does not belong to its base
        if decimal:
            return _foreign(scale)
    if kind in _FLOATS:
        return Reason.FLOAT_MONEY, "a decimal or text; the writer's schema says binary float"
    return None if kind in {"null", "string"} else _foreign(scale)


def _foreign(scale: int) -> tuple[Reason, str]:
    return Reason.SCHEMA_VIOLATION, f"a decimal of scale {scale} or text in the writer's schema"


def _named(schema: Any) -> dict[str, Any]:  # noqa: ANN401 - decoded JSON
    """The named types that a schema defines, wherever it does."""
    found: dict[str, Any] = {}
    waiting = [schema]
    while waiting:
        one = waiting.pop()
        if isinstance(one, dict):
            kind, name = one.get("type"), one.get("name")
            if isinstance(kind, str) and kind in _NAMED and isinstance(name, str):
                found[name] = one
            waiting += one.values()
        elif isinstance(one, list):
            waiting += one
    return found


def _leaves(
    schema: Any,  # noqa: ANN401 - decoded JSON
    path: str,
    named: Mapping[str, Any],
    sought: frozenset[str] | None,
) -> Iterator[tuple[str, Any]]:
    """Every field path with each branch of its type; list items have `[]` in their path.

    Only ways that lead to a path that is sought are gone (None: all), so a schema that refers to
    its own types over and over costs no more than ours.
    """
    if sought is not None and not any(one.startswith(path) for one in sought):
        return
    if isinstance(schema, str):
        schema = named.get(schema, schema)
    if isinstance(schema, str):
        yield path, schema
    elif isinstance(schema, list):
        for branch in schema:
            yield from _leaves(branch, path, named, sought)
    elif schema.get("type") in {"record", "error"}:
        for field in schema["fields"]:
            below = f"{path}.{field['name']}" if path else field["name"]
            yield from _leaves(field["type"], below, named, sought)
    elif schema.get("type") == "array":
        yield from _leaves(schema["items"], f"{path}[]", named, sought)
    elif isinstance(schema.get("type"), (dict, list)) or schema.get("type") in named:
        yield from _leaves(schema["type"], path, named, sought)
    else:
        yield path, schema if "logicalType" in schema else schema.get("type", schema)
