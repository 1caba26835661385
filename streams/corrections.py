"""Corrected records from a file of lines `{"quarantine_id": "...", "record": {...}}`.

The record's own text goes out as it stands in the line, byte for byte: an amount is never read and
written again. Errors name the line and the rule, never what stands there.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from json.decoder import WHITESPACE, scanstring  # type: ignore[attr-defined] # plain Python's own
from pathlib import Path

from connectors.errors import ConfigurationError
from connectors.postgres.rejects import PORTION_BYTES_MAX, PORTION_RECORDS_MAX
from schemas.envelope import Position

LINE_BYTES_MAX = 4 * 1024 * 1024
"""Longest line: a record of the largest size, with every character escaped, and some more."""
CORRECTIONS_MAX = 100_000
"""Lines of one file; cut a longer one."""

Correction = tuple[Position, bytes]

_DECODER = json.JSONDecoder()


def check_corrections(path: Path) -> int:
    """Read the whole file before anything is done; how many lines it has.

    Raises `ConfigurationError` for a file that cannot be read, a line that is no correction, and a
    reject that is corrected twice.
    """
    seen: set[Position] = set()
    for number, (position, _) in _numbered(path):
        if position in seen:
            message = f"{path}: line {number}: this reject is corrected by an earlier line too"
            raise ConfigurationError(message)
        seen.add(position)
        if len(seen) > CORRECTIONS_MAX:
            message = f"{path} has more than {CORRECTIONS_MAX} lines: cut it into several files"
            raise ConfigurationError(message)
    return len(seen)


def corrections(path: Path) -> Iterator[Sequence[Correction]]:
    """The corrections in portions that may be held in memory. Raises like `check_corrections`."""
    portion: list[Correction] = []
    taken = 0
    for _, correction in _numbered(path):
        if portion and (
            len(portion) >= PORTION_RECORDS_MAX or taken + len(correction[1]) > PORTION_BYTES_MAX
        ):
            yield portion
            portion, taken = [], 0
        portion.append(correction)
        taken += len(correction[1])
    if portion:
        yield portion


def _numbered(path: Path) -> Iterator[tuple[int, Correction]]:
    try:
        with path.open("rb") as file:
            number = 0
            while line := file.readline(LINE_BYTES_MAX + 1):
                number += 1
                if len(line) > LINE_BYTES_MAX:
                    message = f"{path}: line {number} is longer than {LINE_BYTES_MAX} bytes"
                    raise ConfigurationError(message)
                if line.strip():
                    yield number, _correction(path, number, line)
    except OSError as error:
        message = f"{path} cannot be read ({type(error).__name__})"
        raise ConfigurationError(message) from None


def _correction(path: Path, number: int, line: bytes) -> Correction:
    try:
        texts = member_texts(line.decode("utf-8"))
        if texts.keys() != {"quarantine_id", "record"} or texts["record"][:1] != "{":
            raise ValueError  # noqa: TRY301 - one answer to all that is no correction
        position = Position.parse(json.loads(texts["quarantine_id"]))
    except (ValueError, AttributeError, RecursionError):
        message = (
            f'{path}: line {number} is not {{"quarantine_id": "TOPIC/INCARNATION/PARTITION/OFFSET",'
            ' "record": {...}}, with these two members, once'
        )
        raise ConfigurationError(message) from None
    return position, texts["record"].encode()


def member_texts(text: str) -> dict[str, str]:
    """The members of a JSON object, each as its own text. Pure. Raises `ValueError` for what is no
    JSON object with members, or names one twice."""
    found: dict[str, str] = {}
    at = _expect(text, _blank(text, 0), "{")
    while True:
        name, at = scanstring(text, _expect(text, at, '"'))
        begin = _blank(text, _expect(text, _blank(text, at), ":"))
        _, end = _DECODER.raw_decode(text, begin)
        if name in found:
            message = "a member twice"
            raise ValueError(message)
        found[name] = text[begin:end]
        at = _blank(text, end)
        if text[at : at + 1] != ",":
            break
        at = _blank(text, at + 1)
    if text[_expect(text, at, "}") :].strip():
        message = "text after the object"
        raise ValueError(message)
    return found


def _blank(text: str, at: int) -> int:
    return int(WHITESPACE.match(text, at).end())


def _expect(text: str, at: int, character: str) -> int:
    """The place behind a character that must stand here."""
    if text[at : at + 1] != character:
        message = "not JSON"
        raise ValueError(message)
    return _blank(text, at + 1) if character == "{" else at + 1
