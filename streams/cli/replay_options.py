"""The options of `weighbridge replay`, and the range they ask for."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

import click

from connectors.errors import ConfigurationError
from connectors.export import FORMATS
from schemas.record_type import RecordType
from streams.replaying.asked import (
    Filters,
    Kind,
    Wanted,
    instant_us,
    meant_partitions,
    offsets,
)
from streams.replaying.manifest import wanted_again

LISTED_MAX = 20


@dataclass(frozen=True, slots=True)
class Options:
    """The command's own options, as given."""

    kind: Kind | None
    first: tuple[str, ...]
    end: tuple[str, ...]
    since: str | None
    until: str | None
    partitions: tuple[int, ...]
    run: str | None
    key: str | None
    from_manifest: Path | None
    available: bool
    out: Path | None
    chosen: str | None
    force: bool
    reveal: bool
    why: str | None
    dry_run: bool
    limits: Path | None
    decision_set: Path | None
    listed_max: int
    as_json: bool


_FILE = click.Path(path_type=Path, exists=True, dir_okay=False)
_OPTIONS = (
    click.option(
        "--topic",
        "kind",
        type=click.Choice(get_args(Kind)),
        help="Which of the type's topics: committed unless said otherwise; raw with --dry-run.",
    ),
    click.option(
        "--from", "first", multiple=True, metavar="P:OFFSET", help="First offset of a partition."
    ),
    click.option(
        "--to", "end", multiple=True, metavar="P:OFFSET", help="Offset after the last of it."
    ),
    click.option("--since", metavar="TIME", help="Earliest record timestamp, RFC 3339."),
    click.option("--until", metavar="TIME", help="Timestamp that all records are before."),
    click.option("--partition", "partitions", type=int, multiple=True, help="Only this one."),
    click.option("--run", metavar="RUN", help="Only records of this source run (payroll)."),
    click.option("--key", metavar="KEY", help="Only this message key or idempotency key."),
    click.option("--from-manifest", type=_FILE, help="The range of an earlier file, again."),
    click.option(
        "--available", is_flag=True, help="Take what is there when the wanted start is not."
    ),
    click.option("--out", type=click.Path(path_type=Path), metavar="FILE", help="The new file."),
    click.option("--format", "chosen", type=click.Choice(FORMATS), help="Else by FILE's ending."),
    click.option("--force", is_flag=True, help="Replace FILE and its manifest."),
    click.option("--reveal", is_flag=True, help="Mask nothing; the act goes on record."),
    click.option("--why", metavar="TEXT", help="The reason that --reveal goes on record with."),
    click.option("--dry-run", is_flag=True, help="Decide the range again and compare; no file."),
    click.option("--limits", type=_FILE, help="Dry-run under other limits: a JSON object of them."),
    click.option("--decision-set", type=_FILE, help="Dry-run under another decision set (JSON)."),
    click.option(
        "--listed", "listed_max", type=click.IntRange(0, 100_000), default=LISTED_MAX,
        show_default=True, help="Most differences a dry-run lists.",
    ),
    click.option("--json", "as_json", is_flag=True, help="End with one JSON object."),
    click.option("--operator-dsn", "postgres_operator_dsn", help="DSN to record --reveal by."),
    click.option("--operator", help="Who reveals; the system's user unless said."),
    click.option("--schema-store", type=click.Path(), help="Folder of writer schemas, <id>.avsc."),
)  # fmt: skip


def with_options(command: Callable[..., int]) -> Callable[..., int]:
    """Give the command its options."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


# --- What is wanted -------------------------------------------------------------------------------


def wanted_of(options: Options, record_type: RecordType) -> Wanted:
    """The range and filters that are asked for. Raises `ConfigurationError`."""
    _check(options, record_type)
    if options.from_manifest is not None:
        wanted = wanted_again(options.from_manifest, record_type, options.key)
        return dataclasses.replace(wanted, available=options.available)
    first = offsets(options.first, "--from", options.partitions)
    end = offsets(options.end, "--to", options.partitions)
    return Wanted(
        kind=options.kind or ("raw" if options.dry_run else "committed"),
        filters=Filters(
            since_us=None if options.since is None else instant_us(options.since, "--since"),
            until_us=None if options.until is None else instant_us(options.until, "--until"),
            run=options.run,
            key=options.key,
        ),
        partitions=meant_partitions(options.partitions, first, end),
        first=first,
        end=end,
        available=options.available,
    )


def _check(options: Options, record_type: RecordType) -> None:
    """Options that do not go together. Raises `ConfigurationError`."""
    of_range = (options.first, options.end, options.since, options.until, options.partitions)
    other = options.limits is not None or options.decision_set is not None
    wrong = (
        (options.out is None and not options.dry_run, "say where to: --out FILE, or --dry-run"),
        (options.out is not None and options.dry_run, "--dry-run writes no file: leave out --out"),
        (options.reveal and options.dry_run, "--dry-run shows no values: leave out --reveal"),
        (options.reveal and not (options.why or "").strip(), "--reveal needs --why TEXT"),
        (options.why is not None and not options.reveal, "--why belongs to --reveal"),
        (options.dry_run and options.kind not in {None, "raw"}, "--dry-run reads the raw topic"),
        (other and not options.dry_run, "--limits and --decision-set belong to --dry-run"),
        (
            options.limits is not None and options.decision_set is not None,
            "--limits changes the active decision set, --decision-set replaces it: say one",
        ),
        (
            options.run is not None and record_type.run_field is None,
            f"{record_type.name} records belong to no run",
        ),
        (
            options.from_manifest is not None and (any(of_range) or options.run or options.kind),
            "--from-manifest says the range and filters already",
        ),
        (str(options.out) == "-", "a file that ends early must not look whole: no --out -"),
    )
    for condition, message in wrong:
        if condition:
            raise ConfigurationError(message)
