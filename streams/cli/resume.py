"""`weighbridge resume`: let a partition go on that was paused for its rejects."""

from __future__ import annotations

import asyncio
import json

import click

from streams import interventions
from streams.cli.options import with_settings
from streams.settings import Settings


@click.command()
@click.argument("partition", metavar="TOPIC/PARTITION")
@click.option("--why", required=True, help="Why it may go on; kept on record.")
@click.option("--operator-dsn", "postgres_operator_dsn", help="PostgreSQL as the operator's role.")
@click.option("--operator", help="Who acts. Default: the system's user name.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
@with_settings("postgres_operator_dsn", "operator")
def resume(settings: Settings, partition: str, why: str, as_json: bool) -> None:  # noqa: FBT001 - a flag of the command line
    """Let a paused partition go on.

    A partition pauses when the share of its records that are turned away jumps (settings
    `breaker_...`). Whoever owns it goes on within `stopped_retry_s`, and its breaker begins to
    count anew. The act is recorded with who, why and what it ended. Exit code 2 when the partition
    is not paused, 4 when PostgreSQL cannot be reached.
    """
    act = asyncio.run(interventions.resume(settings, partition, why))
    if as_json:
        click.echo(json.dumps({"resumed": partition, "act": act}))
    else:
        click.echo(
            f"resumed {partition} (act {act}); its worker goes on within "
            f"{settings.stopped_retry_s:g} s"
        )
