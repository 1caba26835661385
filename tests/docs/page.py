"""Reading a page of docs/ as its reader does: files to write, commands to type, what they print.

* A block marked `json`, `csv`, `toml` or the like, right after a line `<!-- file: NAME -->`, is a
  file of that name.
* In a block marked `console`, a line that begins with `$ ` is a command; a line that ends in a
  backslash goes on in the next one. The lines up to the next command are what it prints on standard
  output, compared with doctest's ELLIPSIS and NORMALIZE_WHITESPACE; none are not compared.
* `# exits with N` at the end of a command is its exit code; without it, 0.
* A command that ends in `&` keeps running until the page's end.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_FILE = re.compile(r"<!-- file: (\S+) -->")
_CODE = re.compile(r"\s+# exits with (\d+)$")


@dataclass(frozen=True, slots=True)
class FileToWrite:
    """A file that the page shows."""

    name: str
    text: str


@dataclass(frozen=True, slots=True)
class Command:
    """A command of the page."""

    line: int
    """Where it stands, from 1."""
    text: str
    code: int
    output: str | None
    """What it prints; None when the page does not say."""
    background: bool


Step = FileToWrite | Command


def steps(page: Path) -> list[Step]:
    """The page's steps in order. Raises `ValueError` for a block that is never closed."""
    found: list[Step] = []
    name: str | None = None
    lines = page.read_text(encoding="utf-8").splitlines()
    number = 0
    while number < len(lines):
        line = lines[number]
        number += 1
        if match := _FILE.fullmatch(line.strip()):
            name = match.group(1)
            continue
        if line.startswith("```") and line != "```":
            begin = number
            end = _end(lines, begin, page)
            if name is not None:
                found.append(FileToWrite(name, "\n".join(lines[begin:end]) + "\n"))
            elif line == "```console":
                found += _commands(lines[begin:end], begin + 1)
            number = end + 1
        if line.strip():
            name = None
    return found


def _end(lines: list[str], begin: int, page: Path) -> int:
    try:
        return lines.index("```", begin)
    except ValueError:
        message = f"{page}, line {begin}: the block is not closed"
        raise ValueError(message) from None


def _commands(block: list[str], first_line: int) -> Iterator[Command]:
    at = 0
    while at < len(block):
        begin = at
        if not block[at].startswith("$ "):
            message = f"line {first_line + at}: a block of commands begins with `$ `"
            raise ValueError(message)
        text = block[at][2:]
        while text.endswith("\\"):
            at += 1
            text = text[:-1] + block[at].strip()
        at += 1
        output: list[str] = []
        while at < len(block) and not block[at].startswith("$ "):
            output.append(block[at])
            at += 1
        code = 0
        if match := _CODE.search(text):
            code, text = int(match.group(1)), text[: match.start()]
        background = text.endswith("&")
        told = "\n".join(output) + "\n" if any(map(str.strip, output)) else None
        yield Command(first_line + begin, text.removesuffix("&").strip(), code, told, background)
