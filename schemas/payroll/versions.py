"""The payroll contract's Avro schemas. Versions are added, never edited."""

from __future__ import annotations

from pathlib import Path

from schemas.avro_encode import encoder_of
from schemas.avro_strict import AvroSchema

FOLDER = Path(__file__).parent


def _read(name: str) -> AvroSchema:
    return AvroSchema.from_text((FOLDER / name).read_text(encoding="utf-8"))


RAW = (_read("raw.v1.avsc"),)
"""Schemas of raw statements, oldest first."""
COMMITTED = _read("committed.v1.avsc")
"""Schema that committed events are written with."""
encode_committed = encoder_of(COMMITTED)
"""A committed event in single-object encoding; takes every field of the schema."""
