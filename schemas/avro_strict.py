"""Strict Avro: the schema a value names, and schemas with their decoder and encoder.

Encodings: Confluent wire format (0x00, four bytes schema id) and Avro single-object encoding
(0xC3 0x01, eight bytes CRC-64-AVRO of the schema's Parsing Canonical Form; Avro 1.12
specification). What decoding refuses, and with which reason, is told in `avro_decode`. Pure.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import fastavro
from fastavro.schema import (
    SchemaParseException,
    UnknownType,
    fingerprint,
    parse_schema,
    to_parsing_canonical_form,
)

from schemas.avro_decode import IDLE_VALUES_MAX, AvroFault, compile_decoder, idle_values
from schemas.json_strict import DEPTH_MAX, depth_of, storable_text, texts
from schemas.reasons import Reason

__all__ = ["AvroFault", "AvroSchema", "SchemaRef", "schema_ref"]

CONFLUENT_MARK = 0x00
SINGLE_OBJECT_MARK = b"\xc3\x01"
CONFLUENT_HEAD_BYTES = 5
SINGLE_OBJECT_HEAD_BYTES = 10


@dataclass(frozen=True, slots=True)
class SchemaRef:
    """The id by which a value names the schema it was written with."""

    kind: Literal["confluent", "single_object"]
    id: int | bytes
    """Confluent: the registry's number. Single object: the eight bytes of the fingerprint."""

    def __str__(self) -> str:
        return f"{self.kind} {self.id.hex() if isinstance(self.id, bytes) else self.id}"


def schema_ref(value: bytes) -> SchemaRef | None:
    """The schema a value names; None when it is not framed Avro, or the frame is cut short."""
    if value[:1] == b"\x00" and len(value) >= CONFLUENT_HEAD_BYTES:
        return SchemaRef("confluent", int.from_bytes(value[1:CONFLUENT_HEAD_BYTES], "big"))
    if value[:2] == SINGLE_OBJECT_MARK and len(value) >= SINGLE_OBJECT_HEAD_BYTES:
        return SchemaRef("single_object", bytes(value[2:SINGLE_OBJECT_HEAD_BYTES]))
    return None


class AvroSchema:
    """A schema, its fingerprint and its compiled strict decoder. Equal texts are equal schemas."""

    __slots__ = ("_decode", "_idle", "fingerprint", "parsed", "text")

    def __init__(self, text: str) -> None:
        message = "not an Avro schema"
        try:
            plain = json.loads(text)
            if not all(map(storable_text, texts(plain))):
                raise ValueError(message)
            canonical = to_parsing_canonical_form(plain)
            self.parsed: Any = parse_schema(plain)
            self._decode = compile_decoder(self.parsed, {})
            self._idle = idle_values(self.parsed)
        except (*_NO_SCHEMA, RecursionError):
            raise ValueError(message) from None
        self.text = text
        self.fingerprint = bytes.fromhex(fingerprint(canonical, "CRC-64-AVRO"))
        """CRC-64-AVRO of the Parsing Canonical Form, little-endian, as it stands in values."""

    @classmethod
    def from_text(cls, text: str) -> AvroSchema:
        """Parse a schema. Raises `ValueError` for what is not one."""
        return cls(text)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AvroSchema) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)

    @property
    def head(self) -> bytes:
        """The first ten bytes of single-object encoding."""
        return SINGLE_OBJECT_MARK + self.fingerprint

    def decode(self, value: bytes, begin: int, depth_max: int = DEPTH_MAX) -> object:
        """Decode the body that begins at `begin` and must end with the value.

        Raises `AvroFault`.
        """
        if self._idle > IDLE_VALUES_MAX:
            rule = f"a schema with at most {IDLE_VALUES_MAX} values in a record that take no byte"
            raise AvroFault(Reason.MALFORMED_AVRO, rule)
        try:
            decoded, end = self._decode(value, begin)
        except RecursionError:
            # Far deeper than any `depth_max`, so the verdict does not depend on the stack's size.
            raise AvroFault(Reason.MALFORMED_AVRO, f"nested at most {depth_max} deep") from None
        if end != len(value):
            raise AvroFault(Reason.MALFORMED_AVRO, "no bytes after the record")
        if depth_of(decoded) > depth_max:
            raise AvroFault(Reason.MALFORMED_AVRO, f"nested at most {depth_max} deep")
        return decoded

    def single_object(self, datum: Mapping[str, object]) -> bytes:
        """Encode in single-object encoding."""
        out = io.BytesIO()
        out.write(self.head)
        fastavro.schemaless_writer(out, self.parsed, datum)
        return out.getvalue()

    def confluent(self, schema_id: int, datum: Mapping[str, object]) -> bytes:
        """Encode in Confluent wire format."""
        out = io.BytesIO()
        out.write(bytes([CONFLUENT_MARK]) + schema_id.to_bytes(4, "big"))
        fastavro.schemaless_writer(out, self.parsed, datum)
        return out.getvalue()

    def fields(self) -> Mapping[str, object]:
        """Field name to type of a record schema; empty for any other."""
        if not isinstance(self.parsed, dict) or self.parsed.get("type") != "record":
            return {}
        return {field["name"]: field["type"] for field in self.parsed["fields"]}


_NO_SCHEMA = (
    ValueError,
    TypeError,
    LookupError,
    AttributeError,
    ArithmeticError,
    SchemaParseException,
    UnknownType,
)
"""What parsing and compiling raise for texts that are no schema."""
