"""From a declared conversion to one function from a source's value to ours.

Compiled once for each field; a value that is not in its declared form raises `Unmapped`, whose
message is the rule and never the value.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar, cast
from zoneinfo import ZoneInfo

from connectors.errors import ConfigurationError
from connectors.profiles.dates import FormError, date_reader, time_reader, zone_of
from connectors.profiles.forms import WordMap
from connectors.profiles.lookups import Table
from connectors.profiles.model import Common, Conversion
from connectors.profiles.numbers import Unmapped, number_reader, number_text

Made = TypeVar("Made")
Convert = Callable[[object], object]
"""From a value that is there to ours, or None for no value. Raises `Unmapped`."""

_DIGITS: Final = re.compile("[0-9]+")
_FORMULA: Final = re.compile('="([^"]*)"')


@dataclass(slots=True)
class Tools:
    """What the conversions of one profile share: its named forms, compiled, and its look-ups."""

    profile: Common
    tables: Mapping[str, Table]
    """Look-up files by name; an optional one that was not given is not here."""
    _made: dict[tuple[str, str], object] = field(default_factory=dict)

    def compile_all(self) -> None:
        """Compile every named form, used or not. Raises `ConfigurationError`."""
        for name in self.profile.numbers:
            self.number(name)
        for name in self.profile.dates:
            self.date(name)
        for name in self.profile.times:
            self.time(name)
            self.zone(name)
        for name in self.profile.maps:
            self.words(name)

    def number(self, name: str) -> Callable[[str], str]:
        """The reader of `[numbers.NAME]`."""
        return self._get("numbers", name, number_reader)

    def date(self, name: str) -> Callable[[str], str]:
        """The reader of `[dates.NAME]`."""
        return self._get("dates", name, date_reader)

    def time(self, name: str) -> Callable[[object, ZoneInfo | None], str]:
        """The reader of `[times.NAME]`."""
        return self._get("times", name, time_reader)

    def zone(self, name: str) -> ZoneInfo | None:
        """The declared zone of `[times.NAME]`."""
        declared = self.profile.times[name].zone
        try:
            return None if declared is None else zone_of(declared)
        except Unmapped as error:
            message = f"times.{name}.zone {declared!r} is not {error}"
            raise ConfigurationError(message) from None

    def words(self, name: str) -> Convert:
        """The function of `[maps.NAME]`."""
        return self._get("maps", name, lambda declared: _words(name, declared))

    def lookup(self, name: str) -> Table | None:
        """The table of `[lookups.NAME]`; None for an optional one without its file."""
        if name not in self.profile.lookups:
            message = f"lookups.{name} is not declared"
            raise ConfigurationError(message)
        return self.tables.get(name)

    def _get(self, kind: str, name: str, make: Callable[[Any], Made]) -> Made:
        if (kind, name) not in self._made:
            declared = getattr(self.profile, kind).get(name)
            if declared is None:
                message = f"{kind}.{name} is not declared"
                raise ConfigurationError(message)
            try:
                self._made[kind, name] = make(declared)
            except FormError as error:
                message = f"{kind}.{name}: {error}"
                raise ConfigurationError(message) from None
        return cast("Made", self._made[kind, name])


def compile_conversion(declared: Conversion, tools: Tools) -> Convert | None:
    """One function for all that a field declares; None when it declares nothing.

    Units and times, which in a report may depend on other members, are not among it.
    Raises `ConfigurationError`.
    """
    steps = [*_text_steps(declared), *_reading_steps(declared, tools)]
    if not steps:
        return None
    if len(steps) == 1:
        return steps[0]

    def convert(value: object) -> object:
        for step in steps:
            value = step(value)
            if value is None:
                return None
        return value

    return convert


def _text_steps(declared: Conversion) -> list[Convert]:
    steps: list[Convert] = []
    if declared.text:
        steps.append(_as_text)
    if declared.blanks is not None:
        steps.append(_on_text(str.strip if declared.blanks == "trim" else _without_blanks))
    if declared.case is not None:
        steps.append(_on_text(str.upper if declared.case == "upper" else str.lower))
    if declared.excel_text:
        steps.append(_on_text(_excel_text))
    if declared.absent:
        absent = frozenset(declared.absent)
        steps.append(lambda v: None if isinstance(v, str) and v in absent else v)
    if declared.pad is not None:
        width = declared.pad
        steps.append(_on_text(lambda text: text.zfill(width) if _DIGITS.fullmatch(text) else text))
    return steps


def _reading_steps(declared: Conversion, tools: Tools) -> list[Convert]:
    steps: list[Convert] = []
    if declared.lookup is not None and declared.take is not None:
        steps.append(_looked_up(declared.lookup, declared.take, declared.missing, tools))
    if declared.map is not None:
        steps.append(tools.words(declared.map))
    elif declared.number is not None:
        number = tools.number(declared.number)
        steps.append(lambda v: number(v if type(v) is str else _text(number_text(v))))
    elif declared.date is not None:
        day = tools.date(declared.date)
        steps.append(lambda v: day(_text(v)))
    return steps


def _text(value: object) -> str:
    if type(value) is str:
        return value
    message = "text"
    raise Unmapped(message)


def _on_text(function: Callable[[str], str]) -> Convert:
    """Empty text is no value."""
    return lambda value: function(_text(value)) or None


def _as_text(value: object) -> object:
    found = number_text(value)
    if isinstance(found, str):
        return found
    message = "a text or a number"
    raise Unmapped(message)


def _without_blanks(text: str) -> str:
    return "".join(text.split())


def _excel_text(text: str) -> str:
    found = _FORMULA.fullmatch(text)
    if found is not None:
        return found[1]
    return text.removeprefix("'")


def _words(name: str, declared: WordMap) -> Convert:
    fold = declared.ignore_case
    words = {(word.casefold() if fold else word): ours for word, ours in declared.words.items()}
    otherwise, keep = declared.otherwise, declared.keep_others
    rule = f"a word of the map {name}"

    def convert(value: object) -> object:
        word = ("true" if value else "false") if isinstance(value, bool) else number_text(value)
        if isinstance(word, str):
            found = words.get(word.casefold() if fold else word)
            if found is not None:
                return found
        if keep:
            return value
        if otherwise is None:
            raise Unmapped(rule)
        return otherwise

    return convert


def _looked_up(name: str, take: str, missing: str, tools: Tools) -> Convert:
    table = tools.lookup(name)
    rule = f"in the look-up {name}"

    def convert(value: object) -> object:
        key = number_text(value)
        row = table.get(key) if table is not None and isinstance(key, str) else None
        if row is not None:
            return row.get(take)
        if missing == "keep":
            return key
        if missing == "default" or table is None:
            return None
        raise Unmapped(rule)

    return convert
