"""`weighbridge worker`."""

from __future__ import annotations

import asyncio
import os
import sys
from typing import NoReturn

import click
import uvloop

from streams.cli.exits import exit_code
from streams.cli.options import with_settings
from streams.interventions import accept_gaps
from streams.runner import run_worker
from streams.settings import Settings


@click.command()
@click.option("--http-host", help="Where /live, /ready and /metrics listen.")
@click.option("--http-port", type=int, help="Their port; 0 takes a free one.")
@click.option("--batch-records", type=int, help="Most records in a batch.")
@click.option("--concurrency", type=int, help="Batches of different partitions at work at once.")
@click.option("--pool-size", type=int, help="Database connections.")
@click.option("--schema-store", type=click.Path(), help="Folder of writer schemas, <id>.avsc.")
@click.option(
    "--accept-gap",
    "gaps",
    multiple=True,
    metavar="TOPIC/PARTITION",
    help="Go on at the log's start where records aged out undecided; on record. Repeatable.",
)
@click.option("--operator-dsn", "postgres_operator_dsn", help="PostgreSQL as the operator's role.")
@with_settings(
    "http_host",
    "http_port",
    "batch_records",
    "concurrency",
    "pool_size",
    "schema_store",
    "postgres_operator_dsn",
)
def worker(settings: Settings, gaps: tuple[str, ...]) -> None:
    """Decide, settle, persist and emit records until told to stop.

    With --accept-gap the decided cursor of exactly that partition moves over the offsets that
    retention has removed, before the worker starts: they get no verdict. Where there is no gap the
    option does nothing. It needs the operator's role (--operator-dsn).

    Stops gracefully on SIGTERM or Ctrl-C. Exit code 3 when an operator must act, 4 when Kafka or
    PostgreSQL cannot be reached at the start; later the worker waits for them and heals by itself.
    """
    if gaps:
        _accept(settings, gaps)
    uvloop.run(run_worker(settings, _leave))


def _accept(settings: Settings, gaps: tuple[str, ...]) -> None:
    for (topic, partition), gap in asyncio.run(accept_gaps(settings, gaps)):
        said = str(gap) if gap is not None else f"{topic}/{partition}: no gap to accept"
        click.echo(said, err=True)


def _leave(error: BaseException | None) -> NoReturn:
    """End the process now, threads and all; everything durable has been settled by then."""
    if error is not None:
        click.echo(f"weighbridge: {error}", err=True)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0 if error is None else exit_code(error))
