"""Whether a writer's schema may be read as ours: checked once per schema, refusing all its records.

A decoder that takes the scale of whoever wrote a decimal turns 1,234.56 into 123,456; one that
takes a double for money loses cents. So wherever our schema has a decimal, the writer's must have a
decimal of the same scale, or text, which is then read by the amount grammar. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from schemas.avro_strict import AvroFault, AvroSchema
from schemas.reasons import Reason

_FLOATS = frozenset({"float", "double"})


@lru_cache(maxsize=1024)
def _faults(writer: AvroSchema, reader: AvroSchema) -> tuple[tuple[Reason, str, str], ...]:
    ours = dict(_decimals(reader.parsed, "", {}))
    found = [
        (reason, path, rule)
        for path, kind in _leaves(writer.parsed, "", {}, frozenset())
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
        if kind.get("logicalType") == "decimal" and kind.get("scale", 0) == scale:
            return None
    elif kind in _FLOATS:
        return Reason.FLOAT_MONEY, "a decimal or text; the writer's schema says binary float"
    elif kind in {"null", "string"}:
        return None
    return Reason.SCHEMA_VIOLATION, f"a decimal of scale {scale} or text in the writer's schema"


def _decimals(schema: Any, path: str, named: dict[str, Any]) -> Iterator[tuple[str, int]]:  # noqa: ANN401
    for place, kind in _leaves(schema, path, named, frozenset()):
        if isinstance(kind, dict) and kind.get("logicalType") == "decimal":
            yield place, kind.get("scale", 0)


def _leaves(
    schema: Any,  # noqa: ANN401 - decoded JSON
    path: str,
    named: dict[str, Any],
    inside: frozenset[str],
) -> Iterator[tuple[str, Any]]:
    """Every field path with each branch of its type; list items have `[]` in their path."""
    if isinstance(schema, list):
        for branch in schema:
            yield from _leaves(branch, path, named, inside)
    elif isinstance(schema, str):
        if schema in named and schema not in inside:
            yield from _leaves(named[schema], path, named, inside | {schema})
        else:
            yield path, schema
    elif schema.get("type") in {"record", "error"}:
        named[schema["name"]] = schema
        for field in schema["fields"]:
            below = f"{path}.{field['name']}" if path else field["name"]
            yield from _leaves(field["type"], below, named, inside | {schema["name"]})
    elif schema.get("type") == "array":
        yield from _leaves(schema["items"], f"{path}[]", named, inside)
    elif isinstance(schema.get("type"), (dict, list)):
        yield from _leaves(schema["type"], path, named, inside)
    else:
        yield path, schema if "logicalType" in schema else schema.get("type", schema)
