"""`weighbridge quarantine add`: set a position aside before its turn comes."""

from __future__ import annotations

import asyncio
import json

import click

from connectors.errors import ConfigurationError
from schemas.envelope import Position
from streams import interventions
from streams.cli.options import with_settings
from streams.settings import Settings


@click.command("add")
@click.option(
    "--position",
    required=True,
    metavar="TOPIC/INCARNATION/PARTITION/OFFSET",
    help="The record, as the worker's message names it.",
)
@click.option("--through", type=int, help="The last offset, where several are set aside at once.")
@click.option("--why", required=True, help="Why it is set aside; kept on record.")
@click.option("--operator-dsn", "postgres_operator_dsn", help="PostgreSQL as the operator's role.")
@click.option("--operator", help="Who acts. Default: the system's user name.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
@with_settings("postgres_operator_dsn", "operator")
def hold_position(
    settings: Settings,
    position: str,
    through: int | None,
    why: str,
    as_json: bool,  # noqa: FBT001 - a flag of the command line
) -> None:
    """Set a record aside that keeps its partition from going on.

    For a record that alone exceeds every deadline, makes the worker hang, or cannot be read. When
    its turn comes it is quarantined as `held_by_operator` with its bytes, as far as they can be
    had, without being looked into. A record that is decided before the worker hears of this keeps
    the verdict it got. Exit code 2 when the position cannot be meant: decided already, of another
    incarnation, not in the log; 4 when Kafka or PostgreSQL cannot be reached.
    """
    try:
        first = Position.parse(position)
    except ValueError as error:
        message = f"--position: {error}"
        raise ConfigurationError(message) from None
    last = first.offset if through is None else through
    act = asyncio.run(interventions.set_aside(settings, first, last, why))
    if as_json:
        click.echo(json.dumps({"held": str(first), "through": last, "act": act}))
    else:
        more = "" if last == first.offset else f" to {last}"
        click.echo(f"set aside {first}{more} (act {act}); quarantined when its turn comes")
