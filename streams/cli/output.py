"""Tables that people read and scripts may cut up: nothing in them is ever left out."""

from __future__ import annotations

import sys

from rich.console import Console
from rich.table import Column, Table

WIDTH_OFF_TERMINAL = 160
"""Columns of a line when standard output is a file or a pipe."""


def console() -> Console:
    """Standard output."""
    # File names and rules may hold brackets: no text is read as markup.
    width = None if sys.stdout.isatty() else WIDTH_OFF_TERMINAL
    return Console(width=width, highlight=False, emoji=False, markup=False)


def table(*names: str) -> Table:
    """A table whose cells go on in the next line when they are too long."""
    return Table(*(Column(name, overflow="fold") for name in names), box=None)
