"""What the record types' contracts share: field types, violations, and the texts of their models.

Field types wrap `schemas.exact` for pydantic, so a model refuses exactly what the exact readers
refuse. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import date, datetime
from decimal import Decimal
from enum import Enum
from typing import Annotated, TypeVar

from pydantic import BaseModel, ConfigDict, PlainValidator, StringConstraints, ValidationError

from schemas.canonical import canonical_body, unknown
from schemas.envelope import Position
from schemas.exact import (
    FloatMoneyError,
    date_of,
    decimal_of,
    instant_of,
    instant_text,
    integer_of,
    plain,
)
from schemas.reasons import Reason
from schemas.record_type import Facts
from schemas.verdict import VIOLATIONS_MAX, Violation

Model = TypeVar("Model", bound=BaseModel)

CORRELATION_ID_MAX = 200

Money = Annotated[Decimal, PlainValidator(lambda value: decimal_of(value, 14, 2))]
"""decimal(14,2), exact."""
Quantity = Annotated[Decimal, PlainValidator(lambda value: decimal_of(value, 9, 4))]
"""decimal(9,4), exact."""
Day = Annotated[date, PlainValidator(date_of)]
Instant = Annotated[datetime, PlainValidator(instant_of)]
Whole = Annotated[int, PlainValidator(integer_of)]
Text64 = Annotated[str, StringConstraints(strict=True, min_length=1, max_length=64)]
Text200 = Annotated[str, StringConstraints(strict=True, min_length=1, max_length=200)]
Text2000 = Annotated[str, StringConstraints(strict=True, max_length=2000)]
Printable128 = Annotated[
    str, StringConstraints(strict=True, pattern=r"^[!-~]([ -~]{0,126}[!-~])?$")
]
"""1 to 128 printable ASCII characters, no outer blanks."""
Printable200 = Annotated[
    str, StringConstraints(strict=True, pattern=r"^[!-~]([ -~]{0,198}[!-~])?$")
]


class Contract(BaseModel):
    """Base of the models: immutable, and unknown members are none of its business.

    They are kept all the same: see `unknown_members` of each type's checks.
    """

    model_config = ConfigDict(frozen=True, extra="ignore", hide_input_in_errors=True)


def validate(
    model: type[Model], members: Mapping[str, object]
) -> Model | tuple[Reason, list[Violation]]:
    """The model, or why the members do not fit it: `float_money` or `schema_violation`."""
    try:
        return model.model_validate(members)
    except FloatMoneyError as error:
        return Reason.FLOAT_MONEY, [Violation("", str(error))]
    except ValidationError as error:
        return Reason.SCHEMA_VIOLATION, violations_of(error)


def violations_of(error: ValidationError) -> list[Violation]:
    """Paths and rules of a validation error, never values; at most `VIOLATIONS_MAX`."""
    found = error.errors(include_url=False, include_context=False, include_input=False)
    return [
        Violation(_path(one["loc"]), one["msg"].removeprefix("Value error, "))
        for one in found[:VIOLATIONS_MAX]
    ]


def _path(location: tuple[int | str, ...]) -> str:
    path = ""
    for part in location:
        path += f"[{part}]" if isinstance(part, int) else f".{part}" if path else part
    return path


def canonical_of(
    model: BaseModel, written: Mapping[str, object], left_out: frozenset[str] = frozenset()
) -> dict[str, object]:
    """Prepared members of a model for the canonical body: contract fields by value, unknown members
    of `written` kept; absent, null and default-valued ones left out at every depth.

    Raises `ValueError`, see `canonical.unknown`.
    """
    fields = type(model).model_fields
    found: dict[str, object] = {}
    for name, field in fields.items():
        value = getattr(model, name)
        if (
            name in left_out
            or value is None
            or (not field.is_required() and value == field.default)
        ):
            continue
        found[name] = _canonical(value, written.get(name))
    for name in written.keys() - fields.keys():
        if written[name] is not None:
            found[name] = unknown(written[name])
    return found


def _canonical(value: object, written: object) -> object:  # noqa: PLR0911 - one return per type
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Decimal):
        return plain(value)
    if isinstance(value, datetime):
        return instant_text(value)
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, BaseModel):
        return canonical_of(value, written if isinstance(written, Mapping) else {})
    if isinstance(value, tuple):
        raw = written if isinstance(written, list) else [None] * len(value)
        return [_canonical(one, its) for one, its in zip(value, raw, strict=True)]
    return value


def unknown_body(model: type[BaseModel], members: Mapping[str, object]) -> str | None:
    """Members the contract does not know as canonical JSON text, None when there are none."""
    names = members.keys() - model.model_fields.keys()
    kept = {name: unknown(members[name]) for name in names if members[name] is not None}
    return canonical_body(kept) if kept else None


def correlation_id(facts: Facts, from_field: object) -> str:
    """Header, else the record's own field, else the position (SPEC 3)."""
    if facts.header_correlation_id:
        return facts.header_correlation_id
    if isinstance(from_field, str) and from_field.strip():
        return from_field[:CORRELATION_ID_MAX]
    position = Position(facts.topic, facts.incarnation, facts.partition, facts.offset)
    return f"{position.topic}-{position.partition}-{position.offset}"


def blank(value: object) -> bool:
    """Text that says nothing."""
    return isinstance(value, str) and not value.strip()


def length_prefixed(*parts: str) -> bytes:
    """Each part as four bytes of big-endian length, then its UTF-8: no two lists run together."""
    encoded = [part.encode() for part in parts]
    return b"".join(len(one).to_bytes(4, "big") + one for one in encoded)


def matches(pattern: str) -> Callable[[str], bool]:
    """A predicate for whole texts that match, ASCII only."""
    compiled = re.compile(pattern, re.ASCII)
    return lambda text: compiled.fullmatch(text) is not None
