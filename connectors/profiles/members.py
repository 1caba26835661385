"""From a declared field of a JSON profile to a function from a report to its value."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from jiter import LosslessFloat

from connectors.errors import ConfigurationError
from connectors.profiles.columns import is_part, template_form, template_rule
from connectors.profiles.convert import Convert, Tools, compile_conversion
from connectors.profiles.dates import zone_of
from connectors.profiles.model import Member
from connectors.profiles.numbers import METRES, Unmapped, metres, number_text
from connectors.profiles.paths import (
    Chain,
    Path,
    PathError,
    Predicate,
    compile_conditions,
    compile_path,
)

Get = Callable[[Chain], object]
"""From the place at work to a value, or None. Raises `Unmapped`."""

VERBATIM: Final = object()
"""Stands for the report's own text, which the mapping of its members does not see."""


@dataclass(frozen=True, slots=True)
class Field:
    """A compiled field."""

    name: str
    holds: Predicate | None
    source: Get
    convert: Convert | None
    finish: Callable[[object, Chain], object] | None
    """What depends on other members: units and zones."""
    default: object

    def value(self, chain: Chain) -> object:
        """The value, or None for none. Raises `Unmapped`."""
        if self.holds is not None and not self.holds(chain):
            return None
        value = self.source(chain)
        if value is not None and value is not VERBATIM:
            if self.convert is not None:
                value = self.convert(value)
            if value is not None and self.finish is not None:
                value = self.finish(value, chain)
        return self.default if value is None else value


def compile_member(name: str, declared: Member, tools: Tools, depth: int, where: str) -> Field:
    """Compile a field whose paths begin `depth` levels below the report.

    Raises `ConfigurationError`.
    """
    try:
        holds = compile_conditions(declared.if_, depth) if declared.if_ else None
        source = _source(name, declared, depth)
        convert = compile_conversion(declared, tools)
        return Field(
            name, holds, source, convert, _finish(declared, tools, depth), declared.default
        )
    except (PathError, ConfigurationError) as error:
        message = f"{where}.{name}: {error}"
        raise ConfigurationError(message) from None


def _source(name: str, declared: Member, depth: int) -> Get:
    if declared.verbatim:
        return lambda _chain: VERBATIM
    if declared.template is not None:
        return _template(name, declared.template, depth)
    if declared.cases:
        cases = [(compile_conditions(one.if_, depth), one.value) for one in declared.cases]
        return lambda chain: next((value for holds, value in cases if holds(chain)), None)
    if declared.paths:
        return _first([compile_path(path, depth=depth) for path in declared.paths])
    return lambda _chain: declared.const


def _first(paths: list[Path]) -> Get:
    """Of one path whatever it leads to, for the gate to judge; of several the first scalar."""
    if len(paths) == 1:
        return paths[0].get

    def get(chain: Chain) -> object:
        for path in paths:
            value = path.get(chain)
            if isinstance(value, str | int | LosslessFloat) and value != "":
                return value
        return None

    return get


def _template(name: str, text: str, depth: int) -> Get:
    form, names = template_form(name, text)
    paths = [compile_path(path, depth=depth) for path in names]
    rule = template_rule(text)

    def get(chain: Chain) -> object:
        parts = [number_text(path.get(chain)) for path in paths]
        if not all(isinstance(part, str) and is_part(part) for part in parts):
            raise Unmapped(rule)
        return form.format(*parts)

    return get


def _finish(declared: Member, tools: Tools, depth: int) -> Callable[[object, Chain], object] | None:
    if declared.time is not None:
        return _time(declared, declared.time, tools, depth)
    if declared.unit is not None:
        unit = declared.unit
        return lambda value, _chain: metres(value, unit)
    if declared.unit_from is not None:
        return _unit(compile_path(declared.unit_from, depth=depth), declared.unit_missing)
    return None


def _time(
    declared: Member, name: str, tools: Tools, depth: int
) -> Callable[[object, Chain], object]:
    read, zone = tools.time(name), tools.zone(name)
    if declared.zone_from is None:
        return lambda value, _chain: read(value, zone)
    path = compile_path(declared.zone_from, depth=depth)

    def finish(value: object, chain: Chain) -> object:
        given = path.get(chain)
        return read(value, zone if given is None else zone_of(given))

    return finish


def _unit(path: Path, missing: str) -> Callable[[object, Chain], object]:
    def finish(value: object, chain: Chain) -> object:
        unit = path.get(chain)
        if unit is None and missing == "unconverted":
            return value
        if not isinstance(unit, str) or unit not in METRES:
            message = f"a distance whose unit {path.text} is one of {', '.join(METRES)}"
            raise Unmapped(message)
        return metres(value, unit)

    return finish
