"""Options that the commands of `weighbridge quarantine` share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import wraps
from typing import Any

import click
from rich.console import Console

from connectors.postgres.pool import Pool
from connectors.postgres.rejects import State, Which
from schemas.envelope import Position
from schemas.reasons import Reason
from schemas.record_types import RECORD_TYPES
from streams import quarantine as desk
from streams.cli.options import with_settings
from streams.progress import record_progress
from streams.settings import Settings
from streams.wiring import schema_store


class Moment(click.ParamType):
    """A time, absolute or so long ago."""

    name = "when"

    def convert(self, value: Any, *_: object) -> datetime:  # noqa: ANN401 - click's own signature
        """As `streams.quarantine.instant` reads it."""
        if isinstance(value, datetime):
            return value
        try:
            return desk.instant(str(value), datetime.now(UTC))
        except ValueError as error:
            message = f"expected {error}"
            raise click.BadParameter(message) from None


class Id(click.ParamType):
    """A quarantine id."""

    name = "id"

    def convert(self, value: Any, *_: object) -> Position:  # noqa: ANN401 - click's own signature
        """As `Position.parse` reads it."""
        if isinstance(value, Position):
            return value
        try:
            return Position.parse(str(value))
        except ValueError as error:
            raise click.BadParameter(str(error)) from None


@dataclass(frozen=True, slots=True)
class Filters:
    """What the filter options say."""

    which: Which
    run: str | None
    like: Position | None
    state: State | None
    """None when none of the options was given."""

    @property
    def given(self) -> bool:
        """Whether any of them was."""
        return (
            self.state is not None
            or self.run is not None
            or self.like is not None
            or (self.which != Which())
        )


_FILTERS = (
    click.option("--type", "type_name", type=click.Choice(sorted(RECORD_TYPES)), help="Type."),
    click.option(
        "--reason",
        "reasons",
        multiple=True,
        metavar="REASON",
        type=click.Choice([str(reason) for reason in Reason]),
        help="As `docs/operator.md` lists them; may be repeated.",
    ),
    click.option("--since", type=Moment(), help="Turned away then or later: 2026-12-01, 36h, 7d."),
    click.option("--until", type=Moment(), help="Turned away before."),
    click.option("--run", help="Source run (source_run_id), exactly."),
    click.option("--field", help="Path that failed, or one above it: earnings, units[0].vin."),
    click.option("--like", type=Id(), help="Of the same type, reason and bytes as this reject."),
    click.option("--open", "state", flag_value="open", help="Nothing done about them (default)."),
    click.option("--resubmitted", "state", flag_value="resubmitted", help="Sent again."),
    click.option("--dismissed", "state", flag_value="dismissed", help="Dismissed."),
    click.option("--all", "state", flag_value="all", help="All of them."),
)


def with_filters(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the filter options and call it with `filters`."""

    @wraps(function)
    def call(
        *args: object,
        type_name: str | None,
        reasons: tuple[str, ...],
        since: datetime | None,
        until: datetime | None,
        run: str | None,
        field: str | None,
        like: Position | None,
        state: State | None,
        **kwargs: object,
    ) -> object:
        which = Which(
            record_type=type_name,
            reasons=tuple(map(Reason, reasons)),
            since=since,
            until=until,
            field=field,
        )
        filters = Filters(which, run, like, state)
        return function(*args, filters=filters, **kwargs)

    wrapped: Callable[..., Any] = call
    for option in reversed(_FILTERS):
        wrapped = option(wrapped)
    return wrapped


_ACTING = ("postgres_operator_dsn", "operator", "schema_store")


def with_operator(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the settings of people who act."""
    for option in (
        click.option("--schema-store", type=click.Path(), help="Folder of writer schemas."),
        click.option("--operator", help="Who acts; default: the system's user."),
        click.option("--operator-dsn", "postgres_operator_dsn", help="DSN of the operator's role."),
    ):
        function = option(function)
    return with_settings(*_ACTING)(function)


@contextmanager
def progress(what: str, total: int) -> Iterator[Callable[[int], None]]:
    """A bar on standard error for what takes long."""
    with record_progress(Console(stderr=True), what, total) as report:
        yield report


async def narrowed(pool: Pool, settings: Settings, filters: Filters) -> Which:
    """The rejects that the filters mean; what needs reading is read."""
    which = replace(filters.which, state=filters.state or "open")
    if filters.like is not None:
        like = await desk.one(pool, filters.like)
        which = replace(
            which,
            record_type=like.record_type,
            reasons=(like.reason,),
            raw_digest=like.raw_digest,
        )
    if filters.run is None:
        return which
    store = schema_store(settings.schema_store)
    with record_progress(Console(stderr=True), "reading", None) as report:
        found = await desk.of_run(pool, store, which, filters.run, report)
    if found.unreadable:
        click.echo(
            f"{found.unreadable} more hold the run's text and cannot be read; they are left out",
            err=True,
        )
    return found.which
