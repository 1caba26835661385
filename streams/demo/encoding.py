"""Members to bytes in every form the gate takes, with fastavro and the contract's own schema file.

Shares no code with the gate's decoders. Pure but for reading the schema file.
"""

from __future__ import annotations

import copy
import io
import json
from collections.abc import Mapping
from enum import StrEnum
from importlib.resources import files
from typing import Any

import fastavro
from fastavro.schema import fingerprint, parse_schema, to_parsing_canonical_form

from streams.demo.made import as_json

CONFLUENT_MARK = b"\x00"
SINGLE_OBJECT_MARK = b"\xc3\x01"
UNKNOWN_SCHEMA_ID = 990_001
"""An id no store of the demo has."""
RAW_IDS = {"payroll": 11, "dvir": 12}
"""Ids under which the demo's schema store keeps each type's raw schema."""
FLOAT_ID = 13
"""Id of a producer's own payroll schema, in which gross pay is a double."""
FLOAT_FIELD = "gross_pay"


class Form(StrEnum):
    """How a value is written."""

    JSON = "json"
    JSON_NUMBERS = "json_numbers"
    """Amounts as plain JSON numbers."""
    AVRO = "avro"
    """Avro single-object encoding."""
    CONFLUENT = "confluent"
    """Avro in Confluent's wire format."""
    FLOAT_SCHEMA = "float_schema"
    """Confluent's wire format with a schema that says double where money is."""


class Encoder:
    """Encodes one record type's members."""

    def __init__(self, type_name: str) -> None:
        path = files("schemas").joinpath(type_name, "raw.v1.avsc")
        self.schema: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        self._parsed = parse_schema(copy.deepcopy(self.schema))
        self._id = RAW_IDS[type_name]
        mark = fingerprint(to_parsing_canonical_form(copy.deepcopy(self.schema)), "CRC-64-AVRO")
        self._single_object_head = SINGLE_OBJECT_MARK + bytes.fromhex(mark)

    def encode(self, members: Mapping[str, object], form: Form) -> bytes:
        """The value's bytes. Avro forms need members in their own types, not broken ones."""
        if form is Form.AVRO:
            return self._single_object_head + self._body(members, self._parsed)
        if form is Form.CONFLUENT:
            return confluent_head(self._id) + self._body(members, self._parsed)
        if form is Form.FLOAT_SCHEMA:
            # The binary float is the point here: it is what the gate must refuse.
            floating = {**members, FLOAT_FIELD: float(str(members[FLOAT_FIELD]))}
            parsed = parse_schema(self.float_schema())
            return confluent_head(FLOAT_ID) + self._body(floating, parsed)
        return as_json(members, numbers=form is Form.JSON_NUMBERS)

    def float_schema(self) -> dict[str, Any]:
        """The raw schema with a double where money is: what a careless producer registers."""
        schema = copy.deepcopy(self.schema)
        for field in schema["fields"]:
            if field["name"] == FLOAT_FIELD:
                field["type"] = "double"
                field.pop("default", None)
        return schema

    @staticmethod
    def _body(members: Mapping[str, object], parsed: Any) -> bytes:  # noqa: ANN401 - fastavro's own
        out = io.BytesIO()
        fastavro.schemaless_writer(out, parsed, dict(members))
        return out.getvalue()


def confluent_head(schema_id: int) -> bytes:
    """The five bytes before the body in Confluent's wire format."""
    return CONFLUENT_MARK + schema_id.to_bytes(4, "big")


def schema_store_files(encoders: Mapping[str, Encoder]) -> dict[str, str]:
    """Files of a schema store that knows what the demo's producers use: name to content."""
    found = {f"{RAW_IDS[name]}.avsc": json.dumps(e.schema) for name, e in encoders.items()}
    found[f"{FLOAT_ID}.avsc"] = json.dumps(encoders["payroll"].float_schema())
    return found
