"""What a profile file may say: every key, its type, and what it excludes.

A profile renames members, converts units and maps words; it never infers. An unknown key, or one
that contradicts another, is refused when the file is read. The named forms are in `forms`.
"""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import BaseModel, Field, StrictBool, StrictInt, StrictStr, model_validator

from connectors.profiles.forms import (
    Conditions,
    DateFormat,
    Declared,
    Lookup,
    Mark,
    NumberFormat,
    Scalar,
    Texts,
    TimeFormat,
    WordMap,
    refuse,
)

Encoding = Literal["utf-8", "cp1252", "cp1250", "iso8859-1", "iso8859-15", "cp437", "cp850"]


# --- Where values come from -----------------------------------------------------------------------


class Conversion(Declared):
    """What happens to a value, in the order of these keys."""

    text: StrictBool = False
    """A JSON number becomes its text: ids are texts here."""
    blanks: Literal["trim", "remove"] | None = None
    case: Literal["upper", "lower"] | None = None
    excel_text: StrictBool = False
    """A leading apostrophe, or `="..."` round the text, is a spreadsheet's mark, not text."""
    absent: Texts = ()
    """Texts that stand for no value."""
    pad: Annotated[StrictInt, Field(ge=1, le=64)] | None = None
    """Digits are filled with zeros on the left up to this width."""
    lookup: StrictStr | None = None
    take: StrictStr | None = None
    """Which value of the look-up's row."""
    missing: Literal["refuse", "default", "keep"] = "refuse"
    """What a value becomes that the look-up does not have."""
    map: StrictStr | None = None
    number: StrictStr | None = None
    date: StrictStr | None = None
    time: StrictStr | None = None
    default: Scalar | None = None
    """What an absent value becomes."""

    @model_validator(mode="after")
    def _one_reading(self) -> Self:
        readings = [n for n in ("map", "number", "date", "time") if getattr(self, n) is not None]
        if len(readings) > 1:
            refuse(f"{readings[0]} and {readings[1]} exclude each other")
        if (self.lookup is None) != (self.take is None):
            refuse("lookup and take go together")
        if self.lookup is None and self.missing != "refuse":
            refuse("missing is for a value that is looked up")
        return self


class Column(Conversion):
    """A field of a CSV profile."""

    from_: StrictStr | Texts | None = Field(None, alias="from")
    """The column's name, or names of which one is there."""
    occurrence: Annotated[StrictInt, Field(ge=1)] | None = None
    """Which of several columns of that name, from 1."""
    const: Scalar | None = None
    template: StrictStr | None = None
    """Text with {column}s, each of which must hold text without a slash."""
    optional: StrictBool = False
    """The file may come without this column."""
    extra: StrictBool = False
    """The contract does not know this member; it is kept beside its fields."""

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        _exactly_one(self, ("from", "const", "template"))
        if self.from_ is None and (self.occurrence is not None or self.optional):
            refuse("occurrence and optional are for a field with from")
        return self

    @property
    def names(self) -> tuple[str, ...]:
        """The columns it may come from."""
        return _as_texts(self.from_)


class Case(Declared):
    """One of a field's `cases`."""

    if_: Conditions = Field(alias="if")
    value: Scalar


class Member(Conversion):
    """A field of a JSON profile."""

    from_: StrictStr | Texts | None = Field(None, alias="from")
    """A path, or paths of which the first counts that leads to a text, number or boolean."""
    const: Scalar | None = None
    template: StrictStr | None = None
    """Text with {path}s, each of which must hold text without a slash."""
    cases: tuple[Case, ...] = ()
    """The first whose conditions hold gives the value; `default` if none does."""
    verbatim: StrictBool = False
    """The report's own text."""
    if_: Conditions = Field(default_factory=dict, alias="if")
    """Unless these hold, the field is absent."""
    unit: Literal["m", "km", "mi"] | None = None
    """The value is a distance in this unit; it becomes metres."""
    unit_from: StrictStr | None = None
    """Path of the member that names the unit: m, km or mi."""
    unit_missing: Literal["refuse", "unconverted"] = "refuse"
    """Without a unit: refuse the report, or pass the number on for the gate to flag."""
    zone_from: StrictStr | None = None
    """Path of the member that names the zone of a naive time; else the format's own zone."""
    extra: StrictBool = False

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        _exactly_one(self, ("from", "const", "template", "cases", "verbatim"))
        if self.unit is not None and self.unit_from is not None:
            refuse("unit and unit_from exclude each other")
        if self.unit_from is None and self.unit_missing != "refuse":
            refuse("unit_missing is for a field with unit_from")
        if self.zone_from is not None and self.time is None:
            refuse("zone_from is for a field with time")
        return self

    @property
    def paths(self) -> tuple[str, ...]:
        """The paths it may come from."""
        return _as_texts(self.from_)


def _as_texts(value: str | tuple[str, ...] | None) -> tuple[str, ...]:
    return () if value is None else (value,) if isinstance(value, str) else value


def _exactly_one(declared: BaseModel, names: tuple[str, ...]) -> None:
    given = [
        name
        for name in names
        if getattr(declared, "from_" if name == "from" else name) not in (None, (), False)
    ]
    # A constant may be false.
    if "const" in declared.model_fields_set and "const" not in given:
        given.append("const")
    if len(given) != 1:
        refuse(f"exactly one of {', '.join(names)}; here: {', '.join(given) or 'none'}")


# --- Profiles -------------------------------------------------------------------------------------


class Common(Declared):
    """What both kinds of profile declare."""

    profile_version: Literal[1]
    about: StrictStr
    record_type: StrictStr
    numbers: dict[str, NumberFormat] = Field(default_factory=dict)
    dates: dict[str, DateFormat] = Field(default_factory=dict)
    times: dict[str, TimeFormat] = Field(default_factory=dict)
    maps: dict[str, WordMap] = Field(default_factory=dict)
    lookups: dict[str, Lookup] = Field(default_factory=dict)


class CsvDialect(Declared):
    """`[csv]`: how the file is cut, and what in it is no record."""

    delimiter: Mark = ","
    quote: Literal['"', "'", ""] = '"'
    encoding: Encoding = "utf-8"
    sep_line: StrictBool = False
    """The first line is `sep=` and the delimiter."""
    header_line: Annotated[StrictInt, Field(ge=1, le=1000)] | None = None
    """Line of the header; what stands before it is left out. Default: the first after `sep=`."""
    header_names: Literal["exact", "loose"] = "exact"
    """Loose: outer blanks and case of a column's name do not count, inner blanks count as one."""
    repeated_headers: StrictBool = False
    """Rows equal to the header are left out."""
    final_newline: Literal["any", "require"] = "any"
    other_columns: Literal["keep", "drop", "refuse"] = "refuse"
    """Columns that no field names: kept under their own names, left out, or the file refused."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if not self.delimiter.isascii() or self.delimiter in "\r\n" or self.delimiter.isalnum():
            refuse("delimiter is one ASCII mark")
        if self.delimiter == self.quote:
            refuse("delimiter and quote are the same mark")
        if self.sep_line and self.header_line == 1:
            refuse("header_line 1 is the sep= line")
        return self

    @property
    def header_at(self) -> int:
        """Line of the header."""
        return self.header_line or (2 if self.sep_line else 1)


class Totals(Declared):
    """`[[totals]]`: a row that is no record, and what it sums up."""

    cells: Annotated[dict[str, StrictStr], Field(min_length=1)]
    """Columns and the exact texts by which the row is known; "" is an empty cell."""
    sums: Texts = ()
    """Fields whose sum over the rows before must equal the row's own amount."""


class Trailer(Declared):
    """`[[trailers]]`: a row that is no record, known by the text of its first cell."""

    text: Annotated[StrictStr, Field(min_length=1)]
    last: StrictBool = False
    """It must be there, and be the last row: without it the file is cut short."""


class Reversals(Declared):
    """`[reversals]`: a source that writes reversed amounts negative; the contract wants their
    magnitude."""

    types: Annotated[Texts, Field(min_length=1)]
    """Values of the field `type_field`, after mapping, that reverse."""
    fields: Annotated[Texts, Field(min_length=1)]
    type_field: StrictStr = "statement_type"


class CsvProfile(Common):
    """A profile of CSV files."""

    format: Literal["csv"]
    csv: CsvDialect = CsvDialect()
    fields: Annotated[dict[str, Column], Field(min_length=1)]
    totals: tuple[Totals, ...] = ()
    trailers: tuple[Trailer, ...] = ()
    reversals: Reversals | None = None

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        summed = {name for one in self.totals for name in one.sums}
        reversed_ones = self.reversals.fields if self.reversals else ()
        for name in (*sorted(summed), *reversed_ones):
            column = self.fields.get(name)
            if column is None or column.number is None:
                refuse(f"{name} is summed or reversed: it must be a field with number")
            if column.optional and name in summed:
                refuse(f"{name} is summed: its column cannot be optional")
        if self.reversals and self.reversals.type_field not in self.fields:
            refuse(f"reversals: {self.reversals.type_field} is not a field")
        return self


class Document(Declared):
    """`[document]`: where reports are in a file."""

    records: StrictStr | None = None
    """Path of the list of reports in a page: a `.json` file, or a line that has it."""
    unwrap: StrictStr | None = None
    """The one member that each record of a page holds its report in."""
    require: Conditions = Field(default_factory=dict)
    """What must hold of every report; another one is refused."""


class Identity(Declared):
    """`[identity]`: makes the idempotency key `source/report id/version`."""

    source: Annotated[StrictStr, Field(min_length=1, max_length=60)]
    report_id: StrictStr
    version: StrictStr | None = None
    """Path of the vendor's own version; without it, or where a report has none, the digest of the
    mapped members stands in."""


class Item(Declared):
    """`[object.FIELD]` and `[[list.FIELD]]`: one object, or one for each element of a list."""

    if_: Conditions = Field(default_factory=dict, alias="if")
    each: StrictStr | None = None
    """Path of the elements; the fields' paths then begin at the element."""
    label: StrictStr | None = None
    """A name that other items refer to."""
    refers: dict[str, StrictStr] = Field(default_factory=dict)
    """Fields that hold the index of a labelled item, where it is there."""
    fields: Annotated[dict[str, Member], Field(min_length=1)]

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.each is not None and self.label is not None:
            refuse("label is for an item without each")
        return self


class JsonProfile(Common):
    """A profile of JSON documents, lines and pages."""

    format: Literal["json"]
    document: Document = Document()
    identity: Identity | None = None
    fields: dict[str, Member]
    object: dict[str, Item] = Field(default_factory=dict)
    list: dict[str, tuple[Item, ...]] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.identity is not None:
            made = {"idempotency_key", "source", "report_id", "report_version"} & set(self.fields)
            if made:
                refuse(f"identity makes {', '.join(sorted(made))}: leave it out of fields")
        if self.document.unwrap is not None and self.document.records is None:
            refuse("document.unwrap is for records of a page: declare document.records")
        labels = [i.label for items in self.list.values() for i in items if i.label is not None]
        if len(labels) != len(set(labels)):
            refuse("two items have the same label")
        for items in self.list.values():
            for item in items:
                for label in item.refers.values():
                    if label not in labels:
                        refuse(f"refers to {label!r}, which labels no item")
        return self
