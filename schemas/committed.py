"""Reading committed events: what their readers in Python need. Pure."""

from __future__ import annotations

from typing import Any

from schemas.avro_decode import AvroFault
from schemas.avro_strict import SINGLE_OBJECT_HEAD_BYTES, schema_ref
from schemas.record_type import RecordType


class UnreadableEvent(Exception):
    """A committed event that cannot be decoded; says why, never a value."""


def read_event(record_type: RecordType, value: bytes | None) -> dict[str, Any]:
    """A committed event's fields: text, numbers, `Decimal`, aware datetimes, lists of the same.

    Avro single-object encoding, with whichever of the type's committed schemas the value names.
    Raises `UnreadableEvent`.
    """
    ref = None if value is None else schema_ref(value)
    if value is None or ref is None or ref.kind != "single_object":
        message = "not in Avro single-object encoding"
        raise UnreadableEvent(message)
    for schema in record_type.committed_schemas:
        if schema.fingerprint == ref.id:
            break
    else:
        message = f"no committed schema of {record_type.name} is {ref}; is this reader too old?"
        raise UnreadableEvent(message)
    try:
        found = schema.decode(value, SINGLE_OBJECT_HEAD_BYTES)
    except AvroFault as fault:
        message = f"{fault.path}: {fault.rule}" if fault.path else fault.rule
        raise UnreadableEvent(message) from None
    if not isinstance(found, dict):
        message = "not a record"
        raise UnreadableEvent(message)
    return found
