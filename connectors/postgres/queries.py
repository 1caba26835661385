"""Loads `queries.sql`: every statement of this connector, named and described, in one file.

Statements of a record type hold `{ledger}`-like placeholders for its table and column names; only
checked identifiers are ever put there, values always travel as parameters.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from connectors.errors import ConfigurationError

_FILE = Path(__file__).with_name("queries.sql")
_NAME = re.compile(r"^-- name: ([a-z_]+)$", re.MULTILINE)
_IDENTIFIER = re.compile(r"[a-z_][a-z0-9_]{0,62}", re.ASCII)
_PLACEHOLDER = re.compile(r"\{([a-z_]+)\}")


@cache
def _queries() -> dict[str, str]:
    parts = _NAME.split(_FILE.read_text(encoding="utf-8"))
    return {
        name: "\n".join(line for line in text.strip().splitlines() if not line.startswith("--"))
        for name, text in zip(parts[1::2], parts[2::2], strict=True)
    }


def query(name: str, **names: str | Iterable[str]) -> str:
    """The statement called `name`, its placeholders filled with identifiers (or lists of them).

    A placeholder that is given nothing stands for the text of the statement of that name. Raises
    `KeyError` for a statement or placeholder that does not exist, `ConfigurationError` for a name
    that is no plain SQL identifier.
    """
    filled = {placeholder: _identifiers(value) for placeholder, value in names.items()}
    texts = _queries() | filled
    return _PLACEHOLDER.sub(lambda match: texts[match.group(1)], texts[name])


def _identifiers(value: str | Iterable[str]) -> str:
    return ", ".join(identifier(name) for name in ([value] if isinstance(value, str) else value))


def identifier(name: str) -> str:
    """`name` itself when it is a plain lower-case SQL identifier, else `ConfigurationError`."""
    if not _IDENTIFIER.fullmatch(name):
        message = f"not a plain SQL identifier: {name!r}"
        raise ConfigurationError(message)
    return name
