"""From a header to a plan: which cell of a row goes where, through which function.

Made once for each file; then a row costs one look at each of its cells.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

from connectors.errors import ConfigurationError
from connectors.profiles.convert import Convert, Tools, compile_conversion
from connectors.profiles.model import Column, CsvProfile, Reversals
from connectors.profiles.numbers import Unmapped

PLACEHOLDER: Final = re.compile(r"\{([^{}]+)\}")


class Unreadable(Exception):
    """A header that is not as the profile declares it; the message says what is wrong."""


@dataclass(frozen=True, slots=True)
class _Cell:
    """One member made from one cell."""

    name: str
    at: int
    convert: Convert | None
    default: object


@dataclass(frozen=True, slots=True)
class _Template:
    """One member made from several cells."""

    name: str
    form: str
    places: tuple[int, ...]
    rule: str

    def text(self, texts: Sequence[str]) -> str:
        """The text. Raises `Unmapped` where a part is missing or would run into the next one."""
        parts = [texts[at] for at in self.places]
        if not all(map(is_part, parts)):
            raise Unmapped(self.rule)
        return self.form.format(*parts)


@dataclass(frozen=True, slots=True)
class Plan:
    """How rows under one header are mapped."""

    cells: tuple[_Cell, ...]
    templates: tuple[_Template, ...]
    constants: dict[str, object]
    reversals: Reversals | None
    sums: frozenset[str]
    places: dict[str, int]
    """Where columns are that are asked for by name."""

    def members(self, texts: Sequence[str]) -> tuple[dict[str, object], dict[str, str]]:
        """A row's members, and the amounts of the summed fields as the source signs them.

        Raises `Unmapped` with `FIELD: rule`.
        """
        members: dict[str, object] = {}
        name = ""
        try:
            for cell in self.cells:
                name = cell.name
                value: object = texts[cell.at]
                if value and cell.convert is not None:
                    value = cell.convert(value)
                if value is None or value == "":
                    value = cell.default
                if value is not None:
                    members[name] = value
            for template in self.templates:
                name = template.name
                members[name] = template.text(texts)
        except Unmapped as error:
            message = f"{name}: {error}"
            raise Unmapped(message) from None
        members.update(self.constants)
        amounts = {name: str(members[name]) for name in self.sums if name in members}
        if self.reversals is not None:
            _reverse(members, self.reversals)
        return members, amounts

    def at(self, column: str) -> int:
        """Where a column that the profile names in `totals` is."""
        return self.places[column]

    def amount(self, name: str, texts: Sequence[str]) -> Decimal:
        """The amount of a summed field in a row that is no record. Raises `Unmapped`."""
        (cell,) = (one for one in self.cells if one.name == name)
        value = cell.convert(texts[cell.at]) if cell.convert is not None else None
        if not isinstance(value, str):
            message = f"{name}: an amount"
            raise Unmapped(message)
        return Decimal(value)


def _reverse(members: dict[str, object], declared: Reversals) -> None:
    """Negative amounts of a reversing row become magnitudes; positive ones contradict it."""
    if members.get(declared.type_field) not in declared.types:
        return
    for name in declared.fields:
        amount = members.get(name)
        if isinstance(amount, str):
            if amount.startswith("-"):
                members[name] = amount[1:]
            elif amount.strip("0."):
                message = f"{name}: negative in a row that reverses, as the profile declares"
                raise Unmapped(message)


def check_columns(declared: CsvProfile, tools: Tools, known: frozenset[str]) -> None:
    """Compile all that does not depend on a header. Raises `ConfigurationError`."""
    for name, column in declared.fields.items():
        _check_name(name, known, extra=column.extra)
        _convert(name, column, tools)
        if column.template is not None:
            template_form(name, column.template)


def plan_columns(
    declared: CsvProfile, tools: Tools, header: Sequence[str], known: frozenset[str]
) -> Plan:
    """The plan for a header. Raises `Unreadable`, `ConfigurationError`."""
    columns = _Header(header, loose=declared.csv.header_names == "loose")
    cells: list[_Cell] = []
    templates: list[_Template] = []
    constants: dict[str, object] = {}
    for name, column in declared.fields.items():
        if column.template is not None:
            templates.append(_template(name, column.template, columns))
        elif column.names:
            at = columns.find(column)
            if at is not None:
                cells.append(_Cell(name, at, _convert(name, column, tools), column.default))
            elif column.default is not None:
                constants[name] = column.default
        elif column.const is not None:
            constants[name] = column.const
    places = {c: columns.one(c) for one in declared.totals for c in one.cells}
    cells += _others(declared, columns, known)
    sums = frozenset(name for one in declared.totals for name in one.sums)
    return Plan(tuple(cells), tuple(templates), constants, declared.reversals, sums, places)


def _check_name(name: str, known: frozenset[str], *, extra: bool) -> None:
    if extra and name in known:
        message = f"fields.{name}: extra is for members that the contract does not know"
        raise ConfigurationError(message)
    if not extra and name not in known:
        message = (
            f"fields.{name} is no field of the contract that a cell can hold; extra = true keeps "
            "it all the same"
        )
        raise ConfigurationError(message)


def _convert(name: str, column: Column, tools: Tools) -> Convert | None:
    try:
        found = compile_conversion(column, tools)
        if column.time is None:
            return found
        return _then_time(found, tools, column.time)
    except ConfigurationError as error:
        message = f"fields.{name}: {error}"
        raise ConfigurationError(message) from None


def _then_time(before: Convert | None, tools: Tools, name: str) -> Convert:
    read, zone = tools.time(name), tools.zone(name)

    def convert(value: object) -> object:
        value = value if before is None else before(value)
        return None if value is None else read(value, zone)

    return convert


def _template(name: str, text: str, columns: _Header) -> _Template:
    form, names = template_form(name, text)
    places = tuple(columns.one(column) for column in names)
    return _Template(name, form, places, template_rule(text))


def template_form(name: str, text: str) -> tuple[str, list[str]]:
    """A template as `str.format` takes it, and what its placeholders name.

    Raises `ConfigurationError`.
    """
    names = PLACEHOLDER.findall(text)
    rest = PLACEHOLDER.sub("", text)
    if not names or "{" in rest or "}" in rest:
        message = f"fields.{name}: a template has {{names}} of what it is made of"
        raise ConfigurationError(message)
    return PLACEHOLDER.sub("{}", text), names


def template_rule(text: str) -> str:
    """The rule of a template."""
    return f"made as {text}, each part present, without outer blanks or a slash"


def is_part(text: str) -> bool:
    """Whether a template takes this text: what is left of a blank, or of a slash, would be a
    guess."""
    return text != "" and text == text.strip() and "/" not in text


def _others(declared: CsvProfile, columns: _Header, known: frozenset[str]) -> Iterable[_Cell]:
    policy = declared.csv.other_columns
    others = columns.unused()
    if policy == "drop" or not others:
        return []
    if policy == "refuse":
        names = ", ".join(repr(columns.names[at]) for at in others[:5])
        message = (
            f'columns that the profile does not name: {names}; other_columns = "keep" or '
            '"drop" says what becomes of them'
        )
        raise Unreadable(message)
    cells = []
    for at in others:
        name = columns.names[at]
        if not name.strip():
            message = f"column {at + 1} has no name, and other_columns keeps columns by name"
            raise Unreadable(message)
        if name in declared.fields or columns.names.count(name) > 1:
            message = f"column {name!r} cannot be kept under its name: another one has it"
            raise Unreadable(message)
        if name in known:
            message = f"column {name!r} is a field of the contract, and the profile does not map it"
            raise Unreadable(message)
        cells.append(_Cell(name, at, None, None))
    return cells


class _Header:
    """The columns of a file, by name."""

    def __init__(self, names: Sequence[str], *, loose: bool) -> None:
        self.names = list(names)
        self._same: Callable[[str], str] = _loose if loose else str
        self._sought = [self._same(name) for name in names]
        self._used: set[int] = set()

    def find(self, column: Column) -> int | None:
        """Where a field's column is. Raises `Unreadable` if that cannot be told."""
        found = {name: self._places(name) for name in column.names}
        there = [name for name, places in found.items() if places]
        if not there:
            if column.optional:
                return None
            names = " or ".join(map(repr, column.names))
            message = f"no column {names} in the header, which the profile says is this line"
            raise Unreadable(message)
        if len(there) > 1:
            message = f"columns {there[0]!r} and {there[1]!r} mean the same field"
            raise Unreadable(message)
        return self._pick(there[0], found[there[0]], column.occurrence)

    def one(self, name: str) -> int:
        """Where the one column of this name is. Raises `Unreadable`."""
        places = self._places(name)
        if not places:
            message = f"no column {name!r}"
            raise Unreadable(message)
        return self._pick(name, places, None)

    def unused(self) -> list[int]:
        """Places of the columns that nothing asked for."""
        return [at for at in range(len(self.names)) if at not in self._used]

    def _places(self, name: str) -> list[int]:
        sought = self._same(name)
        return [at for at, one in enumerate(self._sought) if one == sought]

    def _pick(self, name: str, places: list[int], occurrence: int | None) -> int:
        if occurrence is None and len(places) > 1:
            message = f"{len(places)} columns are called {name!r}: occurrence says which one counts"
            raise Unreadable(message)
        if occurrence is not None and occurrence > len(places):
            message = (
                f"{name!r} is there {len(places)} times, the profile wants number {occurrence}"
            )
            raise Unreadable(message)
        at = places[(occurrence or 1) - 1]
        self._used.add(at)
        return at


def _loose(name: str) -> str:
    return " ".join(name.split()).casefold()
