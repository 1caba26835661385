"""`weighbridge demo`."""

from __future__ import annotations

import click
from rich.console import Console

from connectors.errors import ConfigurationError
from streams.cli.options import with_settings
from streams.demo.generate import DVIRS, SEED, STATEMENTS
from streams.demo.plan import RECORDS_MIN
from streams.demo.run import Options, run_demo
from streams.demo.site import end_left
from streams.settings import Settings


@click.command()
@click.option("--records", default=STATEMENTS, show_default=True, help="Payroll statements.")
@click.option("--dvirs", default=DVIRS, show_default=True, help="Inspection reports.")
@click.option("--seed", default=SEED, show_default=True, help="Same seed, same records.")
@click.option("--keep", is_flag=True, help="Leave the services up and say how to look around.")
@click.option("--stop", is_flag=True, help="Stop and remove what --keep left in --data-dir.")
@click.option(
    "--json", "as_json", is_flag=True, help="End with one JSON object on standard output."
)
@with_settings()
def demo(
    settings: Settings,
    records: int,
    dvirs: int,
    seed: int,
    keep: bool,  # noqa: FBT001 - a flag of the command line
    stop: bool,  # noqa: FBT001 - a flag of the command line
    as_json: bool,  # noqa: FBT001 - a flag of the command line
) -> int:
    """Weigh generated records on real Kafka and PostgreSQL, with a crash half-way, and prove it.

    Runs on services of its own in a temporary folder (or --data-dir), which are gone afterwards; on
    configured ones in topics, group and database of its own. Exit code 0 only when every line of
    the proof holds.
    """
    console = Console(stderr=as_json)
    if stop:
        return _stop(settings, console)
    for name, count in (("--records", records), ("--dvirs", dvirs)):
        if count < RECORDS_MIN:
            message = f"{name} must be at least {RECORDS_MIN}, so that every reason occurs"
            raise click.UsageError(message)
    options = Options(statements=records, dvirs=dvirs, seed=seed, keep=keep)
    outcome = run_demo(settings, options, console)
    if as_json:
        click.echo(outcome.as_json())
    return 0 if outcome.ok else 1


def _stop(settings: Settings, console: Console) -> int:
    if "data_dir" not in settings.model_fields_set:
        message = "--stop needs the --data-dir that `demo --keep` named"
        raise ConfigurationError(message)
    ended = end_left(settings.data_dir)
    console.print(f"{ended} processes ended, {settings.data_dir} removed")
    return 0
