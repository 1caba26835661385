"""Strict, lossless JSON (RFC 8259): numbers keep their own text, nothing is guessed or repaired.

Duplicate members, NaN and Infinity, a byte order mark, empty values and nesting beyond a limit are
`malformed_json`; text that is not UTF-8, or holds U+0000 or a lone surrogate, is `encoding`. Pure.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, NoReturn

import jiter

from schemas.reasons import Reason

_SURROGATE = re.compile("[\ud800-\udfff]")


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
    if b"\\u0000" in value and any("\x00" in text for text in texts(found)):
        raise JsonFault(Reason.ENCODING, "no U+0000 in text")
    if value.count(b"[") + value.count(b"{") > depth_max and _depth(found) > depth_max:
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


def _depth(value: object) -> int:
    depth, level = 0, [value]
    while level := [one for one in level if isinstance(one, (dict, list))]:
        depth += 1
        level = [
            inner for one in level for inner in (one.values() if isinstance(one, dict) else one)
        ]
    return depth


def _diagnose(value: bytes) -> JsonFault:  # noqa: PLR0911 - one return per fault
    """Why jiter refused it: the encoding comes before the syntax in the order of reasons."""
    try:
        text = value.decode("utf-8")
    except UnicodeDecodeError:
        return JsonFault(Reason.ENCODING, "text is UTF-8")
    if not text:
        return JsonFault(Reason.MALFORMED_JSON, "not empty")
    if text.startswith("\ufeff"):
        return JsonFault(Reason.MALFORMED_JSON, "no byte order mark")
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
    if any(_SURROGATE.search(one) or "\x00" in one for one in texts(found)):
        return JsonFault(Reason.ENCODING, "no lone surrogate and no U+0000 in text")
    if pairs:
        return JsonFault(Reason.MALFORMED_JSON, "every member once")
    return JsonFault(Reason.MALFORMED_JSON, "JSON as in RFC 8259")


def _members(members: list[tuple[str, object]], duplicates: list[bool]) -> dict[str, object]:
    found = dict(members)
    if len(found) != len(members):
        duplicates.append(True)
        return {**found, "": [value for _, value in members]}
    return found


def _no_constant(_: str) -> NoReturn:
    message = "not JSON"
    raise ValueError(message)
