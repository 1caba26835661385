"""`weighbridge quarantine`: list rejects, look at one; what is done about them is beside."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path

import click

from connectors.errors import ConfigurationError
from connectors.postgres import rejects
from schemas.envelope import Position
from streams import quarantine as desk
from streams.cli import quarantine_text as text
from streams.cli.hold_position import hold_position
from streams.cli.quarantine_acts import dismiss, resubmit
from streams.cli.quarantine_options import Filters, Id, narrowed, with_filters, with_operator
from streams.settings import Settings
from streams.wiring import operator_name, operator_pool, reading_pool, schema_store

LISTED_DEFAULT, LISTED_MAX = 50, 10_000


@click.group()
def quarantine() -> None:
    """Rejects: find them, read them, send them again, dismiss them.

    An ID is a position, TOPIC/INCARNATION/PARTITION/OFFSET, as in the header wb-quarantine-id. What
    people do is put on record; who they are comes from --operator, or is the system's user. `ls`
    and `show` work with the DSN of any role, acts need --operator-dsn.
    """


# --- ls -------------------------------------------------------------------------------------------


@quarantine.command("ls")
@with_filters
@click.option("--each", is_flag=True, help="Every reject by itself; default: those alike together.")
@click.option("--ids", is_flag=True, help="Their IDs alone, one in a line.")
@click.option(
    "--limit",
    default=LISTED_DEFAULT,
    show_default=True,
    type=click.IntRange(1, LISTED_MAX),
    help="Most lines; says how many more there are.",
)
@click.option("--skip", default=0, type=click.IntRange(0), help="Leave out so many.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
@with_operator
def ls(
    settings: Settings,
    filters: Filters,
    each: bool,  # noqa: FBT001 - a flag of the command line
    ids: bool,  # noqa: FBT001 - a flag of the command line
    limit: int,
    skip: int,
    as_json: bool,  # noqa: FBT001 - a flag of the command line
) -> int:
    """List rejects: critical inspections first, then the newest.

    Rejects of one type, reason and content are one line, named by the newest of them: `--like` that
    ID means all of them. Never shows what a record holds.
    """
    shown = asyncio.run(_ls(settings, filters, limit, skip, each=each or ids))
    if ids:
        for position in shown.ids:
            click.echo(position)
    else:
        shown.show(as_json=as_json)
    return 0


async def _ls(
    settings: Settings, filters: Filters, limit: int, skip: int, *, each: bool
) -> text.Shown:
    async with reading_pool(settings) as pool:
        which = await narrowed(pool, settings, filters)
        if each:
            found, total = await rejects.listed(pool, which, limit, skip)
            return text.listing(found, total, skip)
        groups = await rejects.grouped(pool, which, limit, skip)
        return text.grouping(groups, skip)


# --- show -----------------------------------------------------------------------------------------


@quarantine.command("show")
@click.argument("position", metavar="ID", type=Id())
@click.option("--reveal", is_flag=True, help="Show values too; goes on record.")
@click.option("--why", help="Why they must be seen.")
@click.option(
    "--bytes",
    "to_file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write the exact bytes to this new file; needs --reveal.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
@with_operator
def show(
    settings: Settings,
    position: Position,
    reveal: bool,  # noqa: FBT001 - a flag of the command line
    why: str | None,
    to_file: Path | None,
    as_json: bool,  # noqa: FBT001 - a flag of the command line
) -> int:
    """Show one reject: what failed, who can fix it, what was done, what it would become now.

    Values that may be personal are masked unless --reveal --why TEXT is given, which is put on
    record before anything is shown. Exit code 2 when there is no such reject.
    """
    if reveal and not (why or "").strip():
        message = "--reveal goes on record and needs --why TEXT"
        raise click.UsageError(message)
    if to_file is not None and not reveal:
        message = "--bytes writes all there is: it needs --reveal --why TEXT"
        raise click.UsageError(message)
    if to_file is not None and to_file.exists():
        message = f"{to_file} is there already; --bytes overwrites nothing"
        raise click.UsageError(message)
    return asyncio.run(_show(settings, position, why if reveal else None, to_file, as_json=as_json))


async def _show(
    settings: Settings, position: Position, why: str | None, to_file: Path | None, *, as_json: bool
) -> int:
    pool = reading_pool(settings) if why is None else operator_pool(settings)
    async with pool:
        reject = await desk.one(pool, position)
        if why is not None:
            who = operator_name(settings)
            await desk.reveal(pool, who, why, reject, to_file=to_file is not None)
        if to_file is not None:
            _write(to_file, reject.value or b"")
        shown = await desk.show(
            pool,
            schema_store(settings.schema_store),
            settings.group,
            reject,
            int(time.time() * 1000),
            revealed=why is not None,
        )
    if as_json:
        click.echo(json.dumps(shown.as_dict()))
    else:
        text.show_one(shown.as_dict())
    return 0


def _write(path: Path, content: bytes) -> None:
    """A new file that only its owner may read."""
    try:
        path.touch(mode=0o600, exist_ok=False)
        path.write_bytes(content)
    except OSError as error:
        message = f"{path} cannot be written ({type(error).__name__})"
        raise ConfigurationError(message) from None


quarantine.add_command(resubmit)
quarantine.add_command(dismiss)
quarantine.add_command(hold_position)
