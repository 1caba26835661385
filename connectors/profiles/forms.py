"""Named forms of values in a profile file: numbers, dates, times, words and look-ups.

Every key is declared here; an unknown key, or one that contradicts another, is refused when the
file is read.
"""

from __future__ import annotations

from typing import Annotated, Literal, NoReturn, Self

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictInt, StrictStr, model_validator

Scalar = StrictBool | StrictInt | StrictStr
Conditions = dict[str, Scalar | list[Scalar] | dict[str, Scalar]]
Texts = tuple[StrictStr, ...]
Mark = Annotated[StrictStr, Field(min_length=1, max_length=1)]


class Declared(BaseModel):
    """Base: nothing that is not declared here."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)


def refuse(message: str) -> NoReturn:
    """Refuse a declaration."""
    raise ValueError(message)


class NumberFormat(Declared):
    """`[numbers.NAME]`: how a source writes amounts."""

    decimal: Mark = "."
    group: tuple[Mark, ...] = ()
    """Thousands marks; one amount uses one of them throughout, or none."""
    currency: Texts = ()
    """Marks that may stand before or after an amount."""
    negative: tuple[Literal["leading", "trailing", "brackets", "unicode_minus"], ...] = ("leading",)
    implied_decimals: Annotated[StrictInt, Field(ge=1, le=6)] | None = None
    """How many of the last digits are decimals, where none is marked."""
    zero: Texts = ()
    """Texts that stand for zero, such as a dash."""
    leading_zeros: StrictBool = False

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.decimal in self.group:
            refuse("decimal and group are the same mark")
        if self.implied_decimals is not None and (self.group or "decimal" in self.model_fields_set):
            refuse("implied_decimals excludes decimal and group: such amounts are digits only")
        for mark in (self.decimal, *self.group):
            if mark.isalnum() or mark in "-()\u2212":
                refuse(f"{mark!r} cannot be a decimal or thousands mark")
        for text in (*self.currency, *self.zero):
            if not text or any(character.isdigit() for character in text):
                refuse("a currency or zero text is empty or holds a digit")
        return self


class DateFormat(Declared):
    """`[dates.NAME]`: how a source writes dates."""

    forms: Annotated[Texts, Field(min_length=1)]
    """YYYY or YY, MM or M, DD or D with marks between, or excel-1900, excel-1904."""
    pivot: Annotated[StrictInt, Field(ge=0, le=99)] | None = None
    """Two-digit years below it are of the 2000s, the others of the 1900s."""


class TimeFormat(Declared):
    """`[times.NAME]`: how a source writes instants."""

    forms: Annotated[tuple[Literal["rfc3339", "epoch_ms", "naive"], ...], Field(min_length=1)]
    zone: StrictStr | None = None
    """Time zone of naive times, by its name in the tz database."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.zone is not None and "naive" not in self.forms:
            refuse("zone is for naive times, which forms does not list")
        return self


class WordMap(Declared):
    """`[maps.NAME]`: a vendor's words and ours. JSON true and false are `true` and `false`."""

    words: Annotated[dict[str, Scalar], Field(min_length=1)]
    otherwise: Scalar | None = None
    """What any other word becomes. Without it such a word is refused by name."""
    keep_others: StrictBool = False
    """Other words pass as they are, for the gate to judge."""
    ignore_case: StrictBool = False

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.keep_others and self.otherwise is not None:
            refuse("otherwise and keep_others exclude each other")
        if self.ignore_case and len({word.casefold() for word in self.words}) != len(self.words):
            refuse("two words differ in case only, and ignore_case is set")
        return self


class Constant(Declared):
    """`{ const = VALUE }`."""

    const: Scalar


class LookupRows(Declared):
    """`[[lookups.NAME.rows]]`: which elements of a JSON look-up file are its rows."""

    each: StrictStr
    key: StrictStr
    values: dict[str, StrictStr | Constant]


class Lookup(Declared):
    """`[lookups.NAME]`: a file given on the command line, `--with NAME=FILE`."""

    format: Literal["csv", "json"]
    key: StrictStr | None = None
    """CSV: the column that is sought; the others are its values."""
    rows: tuple[LookupRows, ...] = ()
    """JSON: where the rows are."""
    optional: StrictBool = False
    """Without the file, what is looked up counts as not found."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.format == "csv" and (self.key is None or self.rows):
            refuse("a CSV look-up declares key, and no rows")
        if self.format == "json" and (self.key is not None or not self.rows):
            refuse("a JSON look-up declares rows, and no key of its own")
        return self
