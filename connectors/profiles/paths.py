"""Where a value stands in a vendor's report: paths, and conditions over them.

A path is names joined by dots, a name in double quotes where it holds a dot:
`vehicle.ExternalIds."samsara.vin"`. After a name, `[2]` takes an element of a list, `[role=driver]`
the first element whose member has that text, and `[]` every element (only where a list is asked
for). A path begins at the element at work; `^.` goes to the element or report it lies in, `$.` to
the report. `.` alone is the element itself. Null is read as absent. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

Chain = tuple[object, ...]
"""The report, and the elements of lists on the way down to the one at work."""
Step = Callable[[object], object]
Predicate = Callable[[Chain], bool]

_NAME = re.compile(r'(?:"([^"]+)"|([A-Za-z_][A-Za-z0-9_-]*))((?:\[[^\[\]]*\])*)(?:\.|$)')
_BRACKET = re.compile(r"\[([^\[\]]*)\]")
_ROOT: Final = -1


class PathError(ValueError):
    """A path that cannot be read; the message says why."""


@dataclass(frozen=True, slots=True)
class Path:
    """A compiled path."""

    text: str
    up: int
    """Levels above the element at work; `_ROOT` for the report."""
    parts: tuple[tuple[Step, ...], ...]
    """Steps to take, cut where every element is asked for."""

    def get(self, chain: Chain) -> object:
        """The value, or None when it is absent or null."""
        value = chain[0] if self.up == _ROOT else chain[-1 - self.up]
        for step in self.parts[0]:
            value = step(value)
            if value is None:
                return None
        return value

    def each(self, chain: Chain) -> Iterator[Chain]:
        """The chains of all elements; none where something on the way is absent or no list."""
        base = chain[:1] if self.up == _ROOT else chain[: len(chain) - self.up]
        yield from self._each(base, self.parts)

    def _each(self, chain: Chain, parts: tuple[tuple[Step, ...], ...]) -> Iterator[Chain]:
        value = chain[-1]
        for step in parts[0]:
            value = step(value)
        if len(parts) == 1:
            if value is not None:
                yield (*chain[:-1], value) if parts[0] else chain
            return
        if isinstance(value, list):
            for element in value:
                if element is not None:
                    yield from self._each((*chain, element), parts[1:])


def compile_path(text: str, *, depth: int = 0, lists: bool = False) -> Path:
    """Read a path that is taken from an element `depth` levels below the report.

    With `lists` it must ask for every element of a list. Raises `PathError`.
    """
    rest, up = text, 0
    if rest.startswith("$."):
        rest, up = rest[2:], _ROOT
    while rest.startswith("^."):
        rest, up = rest[2:], up + 1
    if up > depth:
        message = f"path {text!r} goes above the report"
        raise PathError(message)
    parts = [()] if rest == "." else _parts(rest, text)
    if lists != (len(parts) > 1):
        message = f"path {text!r} must {'' if lists else 'not '}ask for every element, with []"
        raise PathError(message)
    return Path(text, up, tuple(parts))


def levels(path: Path, depth: int = 0) -> int:
    """How many levels below the report the elements of a list path are."""
    base = 0 if path.up == _ROOT else depth - path.up
    return base + len(path.parts) - 1


def _parts(rest: str, text: str) -> list[tuple[Step, ...]]:
    parts: list[tuple[Step, ...]] = []
    steps: list[Step] = []
    at = 0
    while at < len(rest):
        found = _NAME.match(rest, at)
        if found is None:
            message = f"path {text!r} cannot be read: names joined by dots, such as vehicle.id"
            raise PathError(message)
        steps.append(_member(found[1] or found[2]))
        for inside in _BRACKET.findall(found[3]):
            if inside == "":
                parts.append(tuple(steps))
                steps = []
            else:
                steps.append(_element(inside, text))
        at = found.end()
    if not rest or rest.endswith("."):
        message = f"path {text!r} ends without a name"
        raise PathError(message)
    return [*parts, tuple(steps)]


def _member(name: str) -> Step:
    def step(value: object) -> object:
        return value.get(name) if isinstance(value, Mapping) else None

    return step


def _element(inside: str, text: str) -> Step:
    if inside.isascii() and inside.isdigit():
        return _at(int(inside))
    name, equals, wanted = inside.partition("=")
    if not (name and equals and wanted):
        message = f"path {text!r} has [{inside}]: a number, member=text, or nothing"
        raise PathError(message)

    def step(value: object) -> object:
        if not isinstance(value, list):
            return None
        for element in value:
            if isinstance(element, Mapping) and element.get(name) == wanted:
                return element
        return None

    return step


def _at(index: int) -> Step:
    def step(value: object) -> object:
        return value[index] if isinstance(value, list) and index < len(value) else None

    return step


# --- Conditions -----------------------------------------------------------------------------------

Scalar = bool | int | str
Wanted = Scalar | list[Scalar] | dict[str, Scalar]


def compile_conditions(conditions: Mapping[str, Wanted], depth: int) -> Predicate:
    """A predicate: all conditions hold. Raises `PathError`."""
    tests = [_condition(compile_path(text, depth=depth), w) for text, w in conditions.items()]
    return lambda chain: all(test(chain) for test in tests)


def _condition(path: Path, wanted: Wanted) -> Predicate:
    if isinstance(wanted, dict):
        return _other_condition(path, wanted)
    choices = wanted if isinstance(wanted, list) else [wanted]
    allowed = {(type(one), one) for one in choices}

    def test(chain: Chain) -> bool:
        value = path.get(chain)
        return type(value) in {bool, int, str} and (type(value), value) in allowed

    return test


def _other_condition(path: Path, wanted: Mapping[str, Scalar]) -> Predicate:
    if set(wanted) == {"present"} and isinstance(wanted["present"], bool):
        there = wanted["present"]
        return lambda chain: (path.get(chain) is not None) is there
    if wanted and set(wanted) <= {"min", "max"} and all(type(v) is int for v in wanted.values()):
        least, most = wanted.get("min"), wanted.get("max")

        def test(chain: Chain) -> bool:
            value = path.get(chain)
            return (
                type(value) is int
                and (least is None or value >= int(least))
                and (most is None or value <= int(most))
            )

        return test
    message = (
        f"condition on {path.text!r}: a value, a list of values, present = true, or min and max"
    )
    raise PathError(message)
