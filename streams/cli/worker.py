"""`weighbridge worker`."""

from __future__ import annotations

import os
import sys
from typing import NoReturn

import click
import uvloop

from streams.cli.exits import exit_code
from streams.cli.options import with_settings
from streams.runner import run_worker
from streams.settings import Settings


@click.command()
@click.option("--http-host", help="Where /live, /ready and /metrics listen.")
@click.option("--http-port", type=int, help="Their port; 0 takes a free one.")
@click.option("--batch-records", type=int, help="Most records in a batch.")
@click.option("--concurrency", type=int, help="Batches of different partitions at work at once.")
@click.option("--pool-size", type=int, help="Database connections.")
@click.option("--schema-store", type=click.Path(), help="Folder of writer schemas, <id>.avsc.")
@with_settings(
    "http_host", "http_port", "batch_records", "concurrency", "pool_size", "schema_store"
)
def worker(settings: Settings) -> None:
    """Decide, settle, persist and emit records until told to stop.

    Stops gracefully on SIGTERM or Ctrl-C. Exit code 3 when an operator must act, 4 when Kafka or
    PostgreSQL cannot be reached at the start; later the worker waits for them and heals by itself.
    """
    uvloop.run(run_worker(settings, _leave))


def _leave(error: BaseException | None) -> NoReturn:
    """End the process now, threads and all; everything durable has been settled by then."""
    if error is not None:
        click.echo(f"weighbridge: {error}", err=True)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0 if error is None else exit_code(error))
