"""`weighbridge quarantine resubmit` and `dismiss`: what people do about rejects."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from connectors.errors import ConfigurationError
from connectors.postgres import rejects
from connectors.postgres.pool import Pool
from connectors.postgres.rejects import Which
from schemas.envelope import Position
from schemas.resubmission import ATTEMPTS_MAX
from streams import quarantine as desk
from streams.cli import quarantine_text as text
from streams.cli.quarantine_options import (
    Filters,
    Id,
    narrowed,
    progress,
    with_filters,
    with_operator,
)
from streams.corrections import check_corrections, corrections
from streams.dismiss import dismiss as record_dismissals
from streams.dismiss import sift
from streams.resubmit import Resubmission
from streams.resubmit import resubmit as send_again
from streams.resubmit_plan import Planner, Summary, Wanted, preview
from streams.settings import Settings
from streams.wiring import (
    kafka_settings,
    operator_name,
    operator_pool,
    reading_pool,
    schema_store,
)

ACTED_MAX = 100_000
"""Rejects that one command acts on; it says how many more there are."""
VALUE_BYTES_MAX = 4 * 1024 * 1024
"""Largest file of a corrected record; the decision set's own limit is far below."""


# --- resubmit -------------------------------------------------------------------------------------


@click.command()
@click.argument("positions", metavar="[ID]...", nargs=-1, type=Id())
@with_filters
@click.option(
    "--with",
    "corrected",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="File with the corrected record, for one ID.",
)
@click.option(
    "--corrections",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help='NDJSON lines {"quarantine_id": ID, "record": {...}}.',
)
@click.option("--owed", is_flag=True, help="Only finish what an interrupted run has left.")
@click.option("--even-if-sent", is_flag=True, help="Send what Kafka may have forgotten.")
@click.option("--even-dismissed", is_flag=True, help="Dismissed ones too.")
@click.option(
    "--attempts-max",
    default=ATTEMPTS_MAX,
    show_default=True,
    type=click.IntRange(2),
    help="Highest attempt number.",
)
@click.option(
    "--limit",
    default=ACTED_MAX,
    show_default=True,
    type=click.IntRange(1, ACTED_MAX),
    help="Most rejects to act on; says how many more there are.",
)
@click.option("--yes", is_flag=True, help="Do it; without, only say what would happen.")
@click.option("--why", help="Why; goes on record. Needed with --yes.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
@with_operator
def resubmit(
    settings: Settings,
    positions: tuple[Position, ...],
    filters: Filters,
    corrected: Path | None,
    corrections: Path | None,
    limit: int,
    why: str | None,
    yes: bool,  # noqa: FBT001 - a flag of the command line
    as_json: bool,  # noqa: FBT001 - a flag of the command line
    **how: bool,
) -> int:
    """Send rejects again: the same bytes, or corrected ones.

    Without --yes nothing is sent: it is shown what would become of each. Rejects that would be
    turned away again are not sent, nor are bytes that were sent again before, so a command may be
    repeated, after a crash too. Exit code 1 when something was, or would be, refused; 3 when
    another run has taken over.
    """
    _check_choice(positions, filters, corrected, corrections, owed=how["owed"])
    _check_why(yes=yes, why=why)
    choice = _Choice(positions, filters, corrected, corrections, limit)
    summary, more = asyncio.run(_resubmit(settings, choice, why if yes else None, how))
    text.show_summary(summary, more, as_json=as_json)
    return 1 if summary.refused else 0


@dataclass(frozen=True, slots=True)
class _Choice:
    """What is to be sent again."""

    positions: tuple[Position, ...]
    filters: Filters
    corrected: Path | None
    corrections: Path | None
    limit: int


def _check_choice(
    positions: Sequence[Position],
    filters: Filters,
    corrected: Path | None,
    corrections: Path | None,
    *,
    owed: bool,
) -> None:
    ways = (bool(positions), filters.given, corrections is not None, owed)
    if sum(ways) != 1:
        command = click.get_current_context().info_name
        more = ", --corrections FILE, or --owed" if command == "resubmit" else ""
        message = f"say which, in one way: IDs, or filters (--open is all that is open){more}"
        raise click.UsageError(message)
    if corrected is not None and len(positions) != 1:
        message = "--with FILE is the corrected record of one ID"
        raise click.UsageError(message)


def _check_why(*, yes: bool, why: str | None) -> None:
    if yes and not (why or "").strip():
        message = "--yes acts, and an act goes on record with --why TEXT"
        raise click.UsageError(message)


async def _resubmit(
    settings: Settings, choice: _Choice, why: str | None, how: dict[str, Any]
) -> tuple[Summary, int]:
    store = schema_store(settings.schema_store)
    async with AsyncExitStack() as stack:
        pool = reading_pool(settings) if why is None else operator_pool(settings)
        await stack.enter_async_context(pool)
        portions, total, more = await _portions(pool, settings, choice)
        planner = Planner(
            pool,
            store,
            attempts_max=how["attempts_max"],
            even_dismissed=how["even_dismissed"],
        )
        if why is None:
            with progress("looking", total) as report:
                return await preview(planner, pool, portions, report), more
        run = Resubmission(
            pool,
            store,
            kafka_settings(settings),
            who=operator_name(settings),
            why=why,
            even_if_sent=how["even_if_sent"],
        )
        await stack.enter_async_context(run)
        with progress("resubmitting", total) as report:
            return await send_again(planner, run, portions, report), more


async def _portions(
    pool: Pool, settings: Settings, choice: _Choice
) -> tuple[Iterator[Sequence[Wanted]], int, int]:
    """What is to be sent in portions that may be held in memory, how many, and how many more."""
    if choice.corrections is not None:
        return corrections(choice.corrections), check_corrections(choice.corrections), 0
    if choice.corrected is not None:
        return iter([[(choice.positions[0], _content(choice.corrected))]]), 1, 0
    if choice.positions:
        positions = tuple(dict.fromkeys(choice.positions))
        which = Which(state="all", positions=positions)
        found, _ = await desk.chosen(pool, which, len(positions))
        known = {one.position for one in found}
        unknown = [(position, None) for position in positions if position not in known]
        parts = [[(one.position, None) for one in part] for part in rejects.portions(found)]
        return iter([*parts, unknown] if unknown else parts), len(positions), 0
    if not choice.filters.given:
        return iter(()), 0, 0
    which = await narrowed(pool, settings, choice.filters)
    found, more = await desk.chosen(pool, which, choice.limit)
    parts_of = rejects.portions(found)
    return ([(one.position, None) for one in part] for part in parts_of), len(found), more


def _content(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            content = file.read(VALUE_BYTES_MAX + 1)
    except OSError as error:
        message = f"{path} cannot be read ({type(error).__name__})"
        raise ConfigurationError(message) from None
    if not content or len(content) > VALUE_BYTES_MAX:
        message = f"{path} must hold one record, of at most {VALUE_BYTES_MAX} bytes"
        raise ConfigurationError(message)
    return content


# --- dismiss --------------------------------------------------------------------------------------


@click.command()
@click.argument("positions", metavar="[ID]...", nargs=-1, type=Id())
@with_filters
@click.option(
    "--limit",
    default=ACTED_MAX,
    show_default=True,
    type=click.IntRange(1, ACTED_MAX),
    help="Most rejects to act on; says how many more there are.",
)
@click.option("--yes", is_flag=True, help="Do it; without, only say what would happen.")
@click.option("--why", help="Why; goes on record. Needed with --yes.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
@with_operator
def dismiss(
    settings: Settings,
    positions: tuple[Position, ...],
    filters: Filters,
    limit: int,
    why: str | None,
    yes: bool,  # noqa: FBT001 - a flag of the command line
    as_json: bool,  # noqa: FBT001 - a flag of the command line
) -> int:
    """Put on record that nothing will be done about rejects; they are listed as open no longer.

    Nothing else changes. A critical inspection is dismissed only when its ID is spelled out. Exit
    code 1 when something that was meant is left alone.
    """
    _check_choice(positions, filters, None, None, owed=False)
    _check_why(yes=yes, why=why)
    choice = _Choice(positions, filters, None, None, limit)
    return asyncio.run(_dismiss(settings, choice, why if yes else None, as_json=as_json))


async def _dismiss(settings: Settings, choice: _Choice, why: str | None, *, as_json: bool) -> int:
    pool = reading_pool(settings) if why is None else operator_pool(settings)
    async with pool:
        if choice.positions:
            wanted = tuple(dict.fromkeys(choice.positions))
            which, limit = Which(state="all", positions=wanted), len(wanted)
        else:
            which, limit = await narrowed(pool, settings, choice.filters), choice.limit
        meant, more = await desk.chosen(pool, which, limit)
        chosen, summary = sift(meant, by_id=bool(choice.positions))
        if choice.positions:
            summary.unknown = limit - len(meant)
        if why is not None:
            summary.acted = True
            with progress("dismissing", len(chosen)) as report:
                who = operator_name(settings)
                summary.dismissed = await record_dismissals(pool, who, why, chosen, report)
    text.show_dismissals(summary, more, as_json=as_json)
    return 0 if summary.complete else 1
