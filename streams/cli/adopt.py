"""`weighbridge topics adopt`: go on with a topic that was created again."""

from __future__ import annotations

import asyncio
import json

import click

from streams import interventions
from streams.adopt import Adopted
from streams.cli.options import with_settings
from streams.settings import Settings


@click.command("adopt")
@click.argument("topic")
@click.option("--why", help="Why; kept on record.")
@click.option("--operator-dsn", "postgres_operator_dsn", help="PostgreSQL as the operator's role.")
@click.option("--operator", help="Who acts. Default: the system's user name.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per partition.")
@with_settings("postgres_operator_dsn", "operator")
def adopt(settings: Settings, topic: str, why: str | None, as_json: bool) -> None:  # noqa: FBT001 - a flag of the command line
    """Begin the next incarnation of raw TOPIC, which was deleted and created again, truncated, or
    is another cluster's.

    For every partition whose log is not the one that was decided: events still owed are emitted,
    then reading begins at the new log's start, under positions of the next incarnation. Keys stay
    taken, so a record published again is a duplicate. Workers may run: they are fenced, and go on
    within `stopped_retry_s`. The act is recorded with what ends and why. A command that was cut off
    is run again. Exit code 2 when nothing is wrong with the topic or it lacks a partition, 3 when
    it does not exist, 4 when Kafka or PostgreSQL cannot be reached.
    """

    def tell(one: Adopted) -> None:
        if as_json:
            click.echo(json.dumps(one.as_dict()))
        else:
            source = one.now.source
            owed = f"; events of {one.owed} offsets were owed and are out" if one.owed else ""
            click.echo(
                f"{source} is in incarnation {source.incarnation} and begins at offset "
                f"{one.now.first_offset}; before, it was decided up to {one.was.next_offset}{owed}"
            )

    asyncio.run(interventions.adopt(settings, topic, why, tell))
