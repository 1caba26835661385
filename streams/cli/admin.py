"""`weighbridge dev`, `topics`, `db` and `settings`: what surrounds a worker."""

from __future__ import annotations

import asyncio
import json

import click

from connectors.kafka import topics as kafka_topics
from connectors.postgres.migrate import migrate
from schemas.record_types import RECORD_TYPES
from streams import dev as dev_services
from streams.cli.options import with_settings
from streams.cli.output import console, table
from streams.settings import Settings
from streams.wiring import kafka_settings, owner_dsn


@click.command()
@with_settings()
def dev(settings: Settings) -> None:
    """Run Kafka and PostgreSQL here, migrated and with topics, until Ctrl-C.

    Other commands on this machine find them by themselves when nothing else is configured.
    """
    dev_services.run(settings)


@click.group()
def topics() -> None:
    """Create and verify the Kafka topics."""


@topics.command("create")
@click.option("--partitions", type=int, help="Partitions of each record type's topics.")
@click.option("--replication", type=int, help="Replicas of each topic.")
@with_settings("partitions", "replication")
def topics_create(settings: Settings) -> None:
    """Create the topics that are missing; existing ones are left as they are."""
    created = asyncio.run(
        kafka_topics.create_topics(
            kafka_settings(settings),
            list(RECORD_TYPES.values()),
            partitions=settings.partitions,
            replication=settings.replication,
        )
    )
    for name in created:
        click.echo(f"created {name}")
    if not created:
        click.echo("all topics exist")


@topics.command("verify")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per finding.")
@with_settings()
def topics_verify(settings: Settings, as_json: bool) -> int:  # noqa: FBT001 - a flag
    """Say what is wrong with the topics and what to change. Exit code 1 when something is."""
    findings = asyncio.run(
        kafka_topics.verify_topics(kafka_settings(settings), list(RECORD_TYPES.values()))
    )
    for finding in findings:
        if as_json:
            click.echo(
                json.dumps(
                    {"level": finding.level, "topic": finding.topic, "message": finding.message}
                )
            )
        else:
            click.echo(f"{finding.level}: {finding.topic}: {finding.message}")
    if not findings and not as_json:
        click.echo("topics are as they must be")
    return 1 if any(finding.level == "error" for finding in findings) else 0


@click.group()
def db() -> None:
    """Migrate the database."""


@db.command("migrate")
@click.option("--owner", "postgres_owner_dsn", help="PostgreSQL DSN of the schema's owner.")
@with_settings("postgres_owner_dsn")
def db_migrate(settings: Settings) -> None:
    """Apply the migrations that are missing. An edited, already applied one is an error."""
    applied = asyncio.run(migrate(owner_dsn(settings)))
    for name in applied:
        click.echo(f"applied {name}")
    if not applied:
        click.echo("database is up to date")


@click.command()
@with_settings()
def settings(settings: Settings) -> None:
    """Show every setting, its value and its meaning; secrets are masked.

    The environment variable of a setting is WEIGHBRIDGE_ and its name in capitals.
    """
    shown = settings.shown()
    found = table("setting", "value", "meaning")
    for name, field in Settings.model_fields.items():
        found.add_row(name, shown[name], field.description or "")
    console().print(found)
