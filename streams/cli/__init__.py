"""The command `weighbridge`. Nothing imports from here; `main` is the entry point.

Exit codes, the same for every command:
0 done · 1 done, and something was found (rejects in `check`, errors in `topics verify`, a proof
that does not hold) · 2 wrong usage or settings · 3 stopped: an operator must act · 4 something
outside (Kafka, PostgreSQL, the schema store) cannot be reached · 130 interrupted
"""

from __future__ import annotations

import sys

import click

from connectors.errors import WeighbridgeError
from streams.cli import (
    admin,
    adopt,
    check,
    demo,
    heal,
    profiles,
    publish,
    quarantine,
    replay,
    resume,
    schema,
    status,
    worker,
)
from streams.cli.exits import EXIT_INTERRUPTED, EXIT_USAGE, exit_code


@click.group(
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Exit codes: 0 done, 1 something was found, 2 usage or settings, 3 stopped: an operator "
    "must act, 4 unreachable, 130 interrupted. Settings: `weighbridge settings`.",
)
@click.version_option(package_name="weighbridge")
def cli() -> None:
    """Weigh, stamp and pass or turn away payroll and DVIR records, each exactly once."""


for command in (
    demo.demo,
    admin.dev,
    worker.worker,
    publish.publish,
    check.check,
    profiles.profiles,
    schema.schema,
    status.status,
    quarantine.quarantine,
    resume.resume,
    replay.replay,
    heal.heal,
    admin.topics,
    admin.db,
    admin.settings,
):
    cli.add_command(command)
admin.topics.add_command(adopt.adopt)


def main() -> None:
    """Run a command; errors become one line on standard error and an exit code."""
    try:
        code = cli.main(standalone_mode=False)
    except click.exceptions.Exit as leave:
        sys.exit(leave.exit_code)
    except click.ClickException as error:
        error.show()
        sys.exit(EXIT_USAGE)
    except (click.Abort, KeyboardInterrupt):
        click.echo("interrupted", err=True)
        sys.exit(EXIT_INTERRUPTED)
    except WeighbridgeError as error:
        click.echo(f"weighbridge: {error}", err=True)
        sys.exit(exit_code(error))
    sys.exit(code if isinstance(code, int) else 0)
