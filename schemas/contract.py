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
from functools import lru_cache
from typing import Annotated, Any, TypeVar, get_args

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    PlainValidator,
    StringConstraints,
    ValidationError,
)

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
from schemas.json_strict import parse
from schemas.reasons import Reason
from schemas.record_type import Facts
from schemas.verdict import VIOLATIONS_MAX, Violation

Model = TypeVar("Model", bound=BaseModel)

CORRELATION_ID_MAX = 200
KEY_FIELD = "idempotency_key"
BODY_DEPTH_MAX = 1_000


def _magnitude(value: object) -> Decimal:
    found = decimal_of(value, 14, 2)
    if found < 0:
        message = "not negative; a reversal carries a magnitude"
        raise ValueError(message)
    return found


Money = Annotated[Decimal, PlainValidator(lambda value: decimal_of(value, 14, 2))]
"""decimal(14,2), exact."""
Magnitude = Annotated[Decimal, PlainValidator(_magnitude)]
"""decimal(14,2), exact, not negative."""
Quantity = Annotated[Decimal, PlainValidator(lambda value: decimal_of(value, 9, 4))]
"""decimal(9,4), exact."""
Day = Annotated[date, PlainValidator(date_of)]
Instant = Annotated[datetime, PlainValidator(instant_of)]
Whole = Annotated[int, PlainValidator(integer_of)]
Text64 = Annotated[str, StringConstraints(strict=True, min_length=1, max_length=64)]
Text200 = Annotated[str, StringConstraints(strict=True, min_length=1, max_length=200)]
Text2000 = Annotated[str, StringConstraints(strict=True, max_length=2000)]
CorrelationId = Annotated[str, StringConstraints(strict=True, max_length=CORRELATION_ID_MAX)]
"""Empty or blank is none: see `correlation_id`."""
Name64 = Annotated[
    str, StringConstraints(strict=True, min_length=1, max_length=64, pattern=r"[^\s]")
]
"""What names somebody or something: 1 to 64 characters, not all of them blank."""
Name200 = Annotated[
    str, StringConstraints(strict=True, min_length=1, max_length=200, pattern=r"[^\s]")
]
Printable128 = Annotated[
    str, StringConstraints(strict=True, pattern=r"^[!-~]([ -~]{0,126}[!-~])?$")
]
"""1 to 128 printable ASCII characters, no outer blanks."""
Printable200 = Annotated[
    str, StringConstraints(strict=True, pattern=r"^[!-~]([ -~]{0,198}[!-~])?$")
]


def at_most(items_max: int) -> BeforeValidator:
    """A bound of a list that is looked at before its items are: a million wrong ones cost no
    more than one."""

    def check(value: object) -> object:
        if isinstance(value, (list, tuple)) and len(value) > items_max:
            message = f"at most {items_max} items"
            raise ValueError(message)
        return value

    return BeforeValidator(check)


class Contract(BaseModel):
    """Base of the models: immutable, and unknown members are none of its business.

    They are kept all the same: see `unknown_members` of each type's checks.
    """

    model_config = ConfigDict(frozen=True, extra="ignore", hide_input_in_errors=True)


def validate(
    model: type[Model], members: Mapping[str, object]
) -> Model | tuple[Reason, list[Violation]]:
    """The model, or why the members do not fit it: `float_money` or `schema_violation`.

    Null is read as absent: publishers write null for what they do not know, and the digest does not
    tell the two apart. Nulls are taken out only when there is something to gain.
    """
    found = _validate(model, members)
    if isinstance(found, model):
        return found
    return _validate(
        model, {n: _without_nulls(one) for n, one in members.items() if one is not None}
    )


def _validate(
    model: type[Model], members: Mapping[str, object]
) -> Model | tuple[Reason, list[Violation]]:
    try:
        return model.model_validate(members)
    except FloatMoneyError as error:
        return Reason.FLOAT_MONEY, [Violation("", str(error))]
    except ValidationError as error:
        return Reason.SCHEMA_VIOLATION, violations_of(error)


def _without_nulls(value: object) -> object:
    """A member with null members left out, as deep as the contracts go. Elements of lists stay:
    their places are the paths of violations."""
    if isinstance(value, Mapping):
        return {name: one for name, one in value.items() if one is not None}
    if isinstance(value, list):
        return [_without_nulls(one) if isinstance(one, Mapping) else one for one in value]
    return value


def violations_of(error: ValidationError) -> list[Violation]:
    """Paths and rules of a validation error, never values; at most `VIOLATIONS_MAX`."""
    found = error.errors(include_url=False, include_context=False, include_input=False)
    return [
        _violation(_path(one["loc"]), one["msg"].removeprefix("Value error, "))
        for one in found[:VIOLATIONS_MAX]
    ]


def _violation(path: str, rule: str) -> Violation:
    """A model's own rules, which concern several fields, name one of them: `path: rule`."""
    if not path and ": " in rule:
        path, rule = rule.split(": ", 1)
    return Violation(path, rule)


def _path(location: tuple[int | str, ...]) -> str:
    path = ""
    for part in location:
        path += f"[{part}]" if isinstance(part, int) else f".{part}" if path else part
    return path


def canonical_of(
    model: BaseModel, unknown_ones: Mapping[str, object], left_out: frozenset[str] = frozenset()
) -> dict[str, object]:
    """Prepared members of a model for the canonical body: contract fields by value, joined with
    what `unknown_members` found; absent, null and default-valued ones left out at every depth."""
    found: dict[str, object] = {}
    for name, default in _defaults(type(model)):
        value = getattr(model, name)
        if value is None or value == default or name in left_out:
            continue
        kind = type(value)
        if kind is str:
            found[name] = value
        else:
            found[name] = _canonical(value, unknown_ones.get(name))
    return {**unknown_ones, **found} if unknown_ones else found


@lru_cache
def _defaults(model: type[BaseModel]) -> tuple[tuple[str, object], ...]:
    """The names of a model's fields with their defaults; None, which is left out anyway, for those
    that have none."""
    return tuple(
        (name, None if field.is_required() else field.default)
        for name, field in model.model_fields.items()
    )


def _canonical(value: object, unknown_ones: object) -> object:  # noqa: PLR0911 - one return per type
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Decimal):
        return plain(value)
    if isinstance(value, datetime):
        return instant_text(value)
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, BaseModel):
        return canonical_of(value, unknown_ones if isinstance(unknown_ones, Mapping) else {})
    if isinstance(value, tuple):
        below = unknown_ones if isinstance(unknown_ones, list) else [None] * len(value)
        return [_canonical(one, its) for one, its in zip(value, below, strict=True)]
    return value


def unknown_members(model: type[BaseModel], members: Mapping[str, Any]) -> dict[str, object]:
    """What the contract does not know, at every depth, in the shape of the record: known members
    appear only as far as they hold unknown ones, elements of lists keep their place.

    With the contract's fields this is the whole content. Raises `ValueError`, see
    `canonical.unknown`.
    """
    names, inner_models = _shape(model)
    kept: dict[str, object] = {}
    if not members.keys() <= names:  # mostly it is, and asking costs less than building nothing
        kept = {n: unknown(members[n]) for n in members.keys() - names if members[n] is not None}
    for name, inner in inner_models:
        written = members.get(name)
        if isinstance(written, Mapping):
            if below := unknown_members(inner, written):
                kept[name] = below
        elif written:
            items = [unknown_members(inner, one) for one in written]
            if any(items):
                kept[name] = items
    return kept


@lru_cache
def _shape(
    model: type[BaseModel],
) -> tuple[frozenset[str], tuple[tuple[str, type[BaseModel]], ...]]:
    """The names of a model's fields, and those of them that hold a model or a list of one."""
    inner_models = tuple(
        (name, inner)
        for name, field in model.model_fields.items()
        for inner in (field.annotation, *get_args(field.annotation))
        if isinstance(inner, type) and issubclass(inner, BaseModel)
    )
    return frozenset(model.model_fields), inner_models


def unknown_body(unknown_ones: Mapping[str, object]) -> str | None:
    """Unknown members as canonical JSON text, None when there are none."""
    return canonical_body(unknown_ones) if unknown_ones else None


def told_unknown(model: type[BaseModel], text: str | None) -> dict[str, object]:
    """What `unknown_body` was given, read back."""
    return {} if text is None else unknown_members(model, read_body(text))


def read_body(body: object) -> dict[str, Any]:
    """The members of a canonical body, from a ledger row. Its depth was within the limits when it
    was written."""
    return parse(str(body).encode(), BODY_DEPTH_MAX)


def without_key(
    rule: str, found: BaseModel | tuple[Reason, list[Violation]]
) -> tuple[Violation, ...]:
    """The violations of a record whose key is missing: that first, then what else was found."""
    rest = [] if isinstance(found, BaseModel) else found[1]
    others = [violation for violation in rest if violation.path != KEY_FIELD]
    return tuple([Violation(KEY_FIELD, rule), *others][:VIOLATIONS_MAX])


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
