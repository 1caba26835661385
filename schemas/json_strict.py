"""Strict, lossless JSON (RFC 8259): numbers keep their own text, nothing is guessed or repaired.

Duplicate members, NaN and Infinity, a byte order mark, empty values, nesting beyond a limit and
whatever does not begin as JSON does are `malformed_json`; text that is not UTF-8, or holds U+0000
or a lone surrogate, is `encoding`. Pure.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, NoReturn

import jiter

from schemas.reasons import Reason

DEPTH_MAX = 128
"""Deepest nesting that any limit can allow: jiter reads 200 levels, and what takes values apart
takes a few frames of Python's stack for each."""

_SURROGATE = re.compile("[\ud800-\udfff]")
_BLANKS = b" \t\n\r"
_BEGINNINGS = b'{["-0123456789tfn'
"""Bytes that a JSON value begins with."""
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class JsonFault(Exception):
    """Why a value's text was refused."""

    def __init__(self, reason: Reason, rule: str) -> None:
        super().__init__(rule)
        self.reason = reason
        self.rule = rule


def parse(value: bytes, depth_max: int) -> dict[str, Any]:
    """A JSON object. Whole numbers are `int`, other numbers `jiter.LosslessFloat` with their text.

    Raises `JsonFault`.
    """
    try:
        found: Any = jiter.from_json(
            value,
            allow_inf_nan=False,
            catch_duplicate_keys=True,
            float_mode="lossless-float",
            cache_mode="keys",
        )
    except ValueError:
        raise _diagnose(value) from None
    if b"\\u0000" in value and not all(map(storable_text, texts(found))):
        raise JsonFault(Reason.ENCODING, "no U+0000 in text")
    if value.count(b"[") + value.count(b"{") > depth_max and depth_of(found) > depth_max:
        raise JsonFault(Reason.MALFORMED_JSON, f"nested at most {depth_max} deep")
    if type(found) is not dict:
        raise JsonFault(Reason.SCHEMA_VIOLATION, "a JSON object")
    return found


def texts(value: object) -> Iterator[str]:
    """Every text in a decoded value, member names included. Not recursive: depth is not trusted."""
    waiting = [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, str):
            yield one
        elif isinstance(one, Mapping):
            yield from one.keys()
            waiting += one.values()
        elif isinstance(one, list):
            waiting += one


def storable_text(text: str) -> bool:
    """Whether text is free of U+0000 and lone surrogates, which no database column takes."""
    return "\x00" not in text and (text.isascii() or _SURROGATE.search(text) is None)


def depth_of(value: object) -> int:
    """How deep objects and lists are nested in each other; 0 for a scalar."""
    depth, level = 0, [value]
    while level := [one for one in level if isinstance(one, (dict, list))]:
        depth += 1
        level = [
            inner for one in level for inner in (one.values() if isinstance(one, dict) else one)
        ]
    return depth


def _diagnose(value: bytes) -> JsonFault:
    """Why jiter refused it. Bytes that are no JSON at all are that, whatever their encoding; in
    JSON the encoding comes before the syntax, as in the order of reasons."""
    if not value:
        return JsonFault(Reason.MALFORMED_JSON, "not empty")
    if value.startswith(_BYTE_ORDER_MARK):
        return JsonFault(Reason.MALFORMED_JSON, "no byte order mark")
    if value.lstrip(_BLANKS)[:1] not in _FIRST:
        return JsonFault(
            Reason.MALFORMED_JSON, f"JSON or framed Avro; it begins with 0x{value[0]:02x}"
        )
    try:
        text = value.decode("utf-8")
    except UnicodeDecodeError:
        return JsonFault(Reason.ENCODING, "text is UTF-8")
    if "\x00" in text:
        return JsonFault(Reason.ENCODING, "no U+0000 in text")
    return _diagnose_text(text)


_FIRST = frozenset(_BEGINNINGS[at : at + 1] for at in range(len(_BEGINNINGS)))


def _diagnose_text(text: str) -> JsonFault:
    pairs: list[bool] = []
    try:
        found = json.loads(
            text,
            parse_constant=_no_constant,
            parse_float=str,
            parse_int=str,
            object_pairs_hook=lambda members: _members(members, pairs),
        )
    except (ValueError, RecursionError):
        return JsonFault(Reason.MALFORMED_JSON, "JSON as in RFC 8259")
    if not all(map(storable_text, texts(found))):
        return JsonFault(Reason.ENCODING, "no lone surrogate and no U+0000 in text")
    if pairs:
        return JsonFault(Reason.MALFORMED_JSON, "every member once")
    return JsonFault(Reason.MALFORMED_JSON, "JSON as in RFC 8259")


def _members(members: list[tuple[str, object]], duplicates: list[bool]) -> object:
    """A decoded object, to look for texts in; where a name repeats, everything in it, once: with
    anything twice, the work would double with every level of nesting."""
    found = dict(members)
    if len(found) == len(members):
        return found
    duplicates.append(True)
    return [*found, *(value for _, value in members)]


def _no_constant(_: str) -> NoReturn:
    message = "not JSON"
    raise ValueError(message)
