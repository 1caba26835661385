"""What can be wrong with any record before its members are even looked at. Pure.

A fault turns good members into the bytes and headers that arrive instead.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence

from schemas.envelope import SOURCE_ERROR, Headers
from schemas.reasons import Reason
from streams.demo.encoding import (
    SINGLE_OBJECT_MARK,
    UNKNOWN_SCHEMA_ID,
    Encoder,
    Form,
    confluent_head,
)
from streams.demo.made import as_json

OVERSIZE_BYTES = 1_000_001
"""One more than the decision set's limits allow a value."""
DEPTH = 80
"""Deeper than the limits allow JSON to be nested."""

Fault = Callable[[random.Random, Encoder, Mapping[str, object]], tuple[bytes | None, Headers]]


def pick(chance: random.Random, variants: Sequence[Fault]) -> Fault:
    """One of the ways in which a reason comes about."""
    return chance.choice(variants)


def _json(change: Callable[[bytes], bytes]) -> Fault:
    """A fault that is made from the good JSON text."""

    def fault(
        chance: random.Random,  # noqa: ARG001 - the shape of a fault
        encoder: Encoder,
        members: Mapping[str, object],
    ) -> tuple[bytes | None, Headers]:
        return change(encoder.encode(members, Form.JSON)), ()

    return fault


def _avro(change: Callable[[bytes], bytes]) -> Fault:
    """A fault that is made from the good Avro bytes."""

    def fault(
        chance: random.Random,  # noqa: ARG001 - the shape of a fault
        encoder: Encoder,
        members: Mapping[str, object],
    ) -> tuple[bytes | None, Headers]:
        return change(encoder.encode(members, Form.AVRO)), ()

    return fault


def _remark(text: bytes) -> Callable[[bytes], bytes]:
    """Adds a member with this text, already escaped, at the end of the object."""
    return lambda value: value[:-1] + b',"remark":"' + text + b'"}'


def _tombstone(
    chance: random.Random,  # noqa: ARG001 - the shape of a fault
    encoder: Encoder,  # noqa: ARG001
    members: Mapping[str, object],  # noqa: ARG001
) -> tuple[bytes | None, Headers]:
    return None, ()


def _pad(value: bytes) -> bytes:
    frame = len(b',"remark":""')
    return _remark(b"x" * (OVERSIZE_BYTES - len(value) - frame))(value)


def _unmapped_row(
    chance: random.Random,
    encoder: Encoder,  # noqa: ARG001 - the shape of a fault
    members: Mapping[str, object],
) -> tuple[bytes | None, Headers]:
    """A CSV row that a publisher could not map, sent as it was."""
    row = ";".join(str(value) for value in members.values() if not isinstance(value, list))
    why = f"row {chance.randrange(2, 900)}: 9 columns expected, 11 found"
    return row.encode(), ((SOURCE_ERROR, why.encode()),)


def _unknown_fingerprint(
    chance: random.Random, encoder: Encoder, members: Mapping[str, object]
) -> tuple[bytes | None, Headers]:
    """Single-object encoding with a schema nobody registered."""
    body = encoder.encode(members, Form.AVRO)[10:]
    return SINGLE_OBJECT_MARK + chance.randbytes(8) + body, ()


def _unknown_id(
    chance: random.Random,  # noqa: ARG001 - the shape of a fault
    encoder: Encoder,
    members: Mapping[str, object],
) -> tuple[bytes | None, Headers]:
    """Confluent's wire format with an id the schema store does not have."""
    return confluent_head(UNKNOWN_SCHEMA_ID) + encoder.encode(members, Form.AVRO)[10:], ()


def _deep(value: bytes) -> bytes:
    return value[:-1] + b',"remark":' + b"[" * DEPTH + b"]" * DEPTH + b"}"


def _twice(value: bytes) -> bytes:
    """The first member again, at the end: which one counts would be anybody's guess."""
    first = value[1:].split(b",", 1)[0]
    return value[:-1] + b"," + first + b"}"


TRANSPORT_FAULTS: dict[Reason, tuple[Fault, ...]] = {
    Reason.TOMBSTONE: (_tombstone,),
    Reason.OVERSIZE: (_json(_pad),),
    Reason.ENCODING: (
        _json(_remark("Zoë".encode("latin-1"))),
        _json(_remark(b"nul \\u0000 inside")),
        _json(_remark(b"half a pair \\ud83d")),
    ),
    Reason.MALFORMED_ROW: (_unmapped_row,),
    Reason.MALFORMED_JSON: (
        _json(lambda value: value[: len(value) // 2]),
        _json(lambda value: value[:-1] + b",}"),
        _json(lambda value: value[:-1] + b',"remark":NaN}'),
        _json(lambda value: b"\xef\xbb\xbf" + value),
        _json(lambda value: value + b"\n" + value),
        _json(lambda _: as_json({"a": 1})[:-1] + b",'b':2}"),
        _json(lambda _: b""),
        _json(_deep),
        _json(_twice),
    ),
    Reason.MALFORMED_AVRO: (
        _avro(lambda value: value[:-3]),
        _avro(lambda value: value + b"\x00\x02"),
    ),
    Reason.UNKNOWN_SCHEMA: (_unknown_fingerprint, _unknown_id),
}
