"""`weighbridge dev`: embedded services in the foreground, migrated and with topics."""

from __future__ import annotations

import asyncio
import signal
import threading

import click
from rich.console import Console

from connectors.embedded.services import EmbeddedServices
from connectors.kafka.topics import create_topics
from connectors.postgres.migrate import migrate
from schemas.record_types import RECORD_TYPES
from streams.progress import download_progress
from streams.settings import Settings
from streams.wiring import kafka_settings


def run(settings: Settings) -> None:
    """Start, prepare, wait for Ctrl-C or SIGTERM, stop. Raises `ConfigurationError`."""
    console = Console(stderr=True)
    stopped = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopped.set())
    services = EmbeddedServices(settings.data_dir)
    with download_progress(console) as progress:
        services.start(progress)
    try:
        applied = asyncio.run(migrate(services.postgres.dsn()))
        created = asyncio.run(
            create_topics(
                kafka_settings(settings),
                list(RECORD_TYPES.values()),
                partitions=settings.partitions,
                replication=settings.replication,
            )
        )
        console.print(f"{len(applied)} migrations applied, {len(created)} topics created")
        click.echo(f"kafka     {services.bootstrap}")
        click.echo(f"postgres  {services.postgres.dsn(user='weighbridge_worker')}")
        click.echo(f"operator  {services.postgres.dsn(user='weighbridge_operator')}")
        click.echo(f"owner     {services.postgres.dsn()}")
        click.echo(f"data      {services.data_dir}")
        console.print("running; Ctrl-C stops")
        while not stopped.wait(1.0):
            pass
    finally:
        console.print("stopping")
        services.stop()
