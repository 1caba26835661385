"""The record types' examples: what publishers can copy, and what the contract tests run.

One JSON file each, in `examples/valid/` or in the folder of the reason it is refused for:

    about      one sentence
    members    the record's members, written as JSON  — or —
    text       the value as text                      — or —
    base64     the value's bytes                      — or —
    avro       members, written in single-object encoding with the newest raw schema  — or —
    repeat     {"text": ..., "times": ...}: a value too large to keep in a file
               (none of these: a tombstone)
    headers    optional, name to text
    timestamp  optional, Kafka timestamp in milliseconds since the epoch
    schemas    optional, Confluent schema id to a schema the store has
    flags      optional, the flags a valid example is committed with

No example contains customer data: people, companies and vehicles are invented. Pure but for reading
the files.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

from schemas.avro_strict import AvroSchema, SchemaRef
from schemas.envelope import NO_TIMESTAMP, Record
from schemas.reasons import Reason
from schemas.record_type import RecordType

VALID = "valid"
_LOGICAL: Mapping[str, Callable[[str], object]] = {
    "date": date.fromisoformat,
    "timestamp-micros": datetime.fromisoformat,
    "decimal": Decimal,
}


@dataclass(frozen=True, slots=True)
class Example:
    """A record and what must become of it."""

    name: str
    about: str
    record: Record
    reason: Reason | None
    """None for a valid example."""
    flags: tuple[str, ...]
    schemas: Mapping[SchemaRef, AvroSchema | None]
    members: Mapping[str, Any] | None
    """Its members, where they are written as such."""


def load_examples(record_type: RecordType) -> list[Example]:
    """All examples of a record type, by folder and name. Raises `ValueError` for a folder that is
    neither `valid` nor a reason."""
    found = []
    for path in sorted(record_type.examples.glob("*/*.json")):
        folder = path.parent.name
        reason = None if folder == VALID else Reason(folder)
        found.append(_load(path, record_type, reason))
    return found


def _load(path: Path, record_type: RecordType, reason: Reason | None) -> Example:
    written = json.loads(path.read_text(encoding="utf-8"))
    headers = tuple((name, text.encode()) for name, text in written.get("headers", {}).items())
    schemas: dict[SchemaRef, AvroSchema | None] = {
        SchemaRef("confluent", int(schema_id)): AvroSchema.from_text(json.dumps(schema))
        for schema_id, schema in written.get("schemas", {}).items()
    }
    record = Record(
        0,
        _value(written, record_type),
        written.get("timestamp", NO_TIMESTAMP),
        headers=headers,
    )
    return Example(
        f"{path.parent.name}/{path.stem}",
        written["about"],
        record,
        reason,
        tuple(written.get("flags", ())),
        schemas,
        written.get("members"),
    )


def _value(written: Mapping[str, Any], record_type: RecordType) -> bytes | None:
    if "members" in written:
        return json.dumps(written["members"], ensure_ascii=False).encode()
    if "text" in written:
        return str(written["text"]).encode()
    if "base64" in written:
        return base64.b64decode(written["base64"])
    if "avro" in written:
        schema = record_type.raw_schemas[-1]
        return schema.single_object(avro_datum(schema, written["avro"]))
    if "repeat" in written:
        return str(written["repeat"]["text"]).encode() * int(written["repeat"]["times"])
    return None


def avro_datum(schema: AvroSchema, members: Mapping[str, Any]) -> dict[str, Any]:
    """Members written as JSON, as values of their Avro types; defaults stand for what is absent."""
    named: dict[str, Any] = {}
    _register(schema.parsed, named)
    datum: dict[str, Any] = _typed(schema.parsed, members, named)
    return datum


def _register(kind: Any, named: dict[str, Any]) -> None:  # noqa: ANN401 - decoded JSON
    """Collect the records a schema defines, for where it refers to them by name."""
    if isinstance(kind, list):
        for branch in kind:
            _register(branch, named)
    elif isinstance(kind, dict) and kind["type"] == "array":
        _register(kind["items"], named)
    elif isinstance(kind, dict) and kind["type"] == "record":
        named[kind["name"]] = kind
        for field in kind["fields"]:
            _register(field["type"], named)


def _typed(kind: Any, value: Any, named: dict[str, Any]) -> Any:  # noqa: ANN401 - decoded JSON
    if isinstance(kind, str):
        return _typed(named[kind], value, named) if kind in named else value
    if isinstance(kind, list):
        return None if value is None else _typed(kind[-1], value, named)
    if kind.get("logicalType") in _LOGICAL:
        return _LOGICAL[kind["logicalType"]](value)
    if kind["type"] == "array":
        return [_typed(kind["items"], one, named) for one in value]
    if kind["type"] != "record":
        return value
    return {
        field["name"]: _typed(field["type"], value.get(field["name"], field.get("default")), named)
        for field in kind["fields"]
    }
