"""`weighbridge quarantine`: what is done about records that are turned away."""

from __future__ import annotations

import click

from streams.cli.hold_position import hold_position


@click.group()
def quarantine() -> None:
    """Handle records that are turned away."""


quarantine.add_command(hold_position)
