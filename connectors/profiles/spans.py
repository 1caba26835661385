"""Where the parts of a JSON text begin and end, so that each can be taken verbatim.

Holds one element at a time. It finds ends and tells what is no JSON; what else is wrong with an
element (a member twice, NaN) is for its strict parser. Pure.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from json import JSONDecoder
from typing import Any, Final

BLANKS: Final = " \t\n\r"
_decode: Any = JSONDecoder(parse_float=str, parse_int=str, parse_constant=str).raw_decode


class Uncut(Exception):
    """A text that cannot be taken apart; the message says why."""


def element_spans(text: str, names: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Begin and end of each element of the list at a path of members. Raises `Uncut`."""
    try:
        end = yield from _in_object(text, _past_blanks(text, 0), names)
    except (ValueError, IndexError, RecursionError):
        message = "is no JSON document, or is cut short"
        raise Uncut(message) from None
    if text[end:].strip(BLANKS):
        message = "goes on after its JSON document"
        raise Uncut(message)


def member_spans(text: str) -> Iterator[tuple[str, int, int]]:
    """Name, begin and end of each member of a text that has been parsed as an object."""
    at = _past_blanks(text, 1)
    while text[at] != "}":
        name, at = _name(text, at)
        end = _end(text, at)
        yield name, at, end
        at = _next(text, end, "}")


def _in_object(text: str, at: int, names: Sequence[str]) -> Generator[tuple[int, int], None, int]:
    """Yields the spans of the list at `names` in the object at `at`; returns the object's end."""
    where = ".".join(names)
    found = False
    if text[at] != "{":
        message = f"has no object where its list of reports should be, at {where}"
        raise Uncut(message)
    at = _past_blanks(text, at + 1)
    while text[at] != "}":
        name, at = _name(text, at)
        if name != names[0]:
            at = _next(text, _end(text, at), "}")
            continue
        if found:
            message = f"has the member {name} twice"
            raise Uncut(message)
        found = True
        inner = _in_object(text, at, names[1:]) if names[1:] else _in_list(text, at, where)
        end = yield from inner
        at = _next(text, end, "}")
    if not found:
        message = f"holds no list of reports at {where}"
        raise Uncut(message)
    return at + 1


def _in_list(text: str, at: int, where: str) -> Generator[tuple[int, int], None, int]:
    if text[at] != "[":
        message = f"holds no list of reports at {where}"
        raise Uncut(message)
    at = _past_blanks(text, at + 1)
    while text[at] != "]":
        end = _end(text, at)
        yield at, end
        at = _next(text, end, "]")
    return at + 1


def _past_blanks(text: str, at: int) -> int:
    while text[at] in BLANKS:
        at += 1
    return at


def _end(text: str, at: int) -> int:
    end: int = _decode(text, at)[1]
    return end


def _name(text: str, at: int) -> tuple[str, int]:
    """A member's name, and where its value begins."""
    name, at = _decode(text, at)
    at = _past_blanks(text, at)
    if not isinstance(name, str) or text[at] != ":":
        raise ValueError
    return name, _past_blanks(text, at + 1)


def _next(text: str, at: int, close: str) -> int:
    """Where the next member or element begins, or the closing mark is."""
    at = _past_blanks(text, at)
    if text[at] == close:
        return at
    if text[at] != ",":
        raise ValueError
    at = _past_blanks(text, at + 1)
    if text[at] == close:
        raise ValueError
    return at
