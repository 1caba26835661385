"""`weighbridge replay`: a bounded range of a topic to a file, or decided again."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import signal
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

import click
import uvloop
from rich.console import Console

from connectors.errors import ConfigurationError
from connectors.export import format_of
from connectors.postgres.ledger import PostgresLedger
from connectors.postgres.operations import Act, record_acts
from connectors.postgres.pool import Pool, PoolSettings
from schemas.decision_set import CONTRACT_VERSION, DecisionSet, Limits
from schemas.record_type import RecordType
from schemas.record_types import RECORD_TYPES
from streams.cli.exits import EXIT_INTERRUPTED
from streams.cli.options import with_settings
from streams.cli.output import console, table
from streams.cli.replay_options import Options, wanted_of, with_options
from streams.progress import offset_progress
from streams.replaying.asked import (
    Wanted,
)
from streams.replaying.dry_run import Compared, compare
from streams.replaying.export import Exported, Target, export
from streams.replaying.extent import Extent
from streams.replaying.manifest import manifest_path
from streams.settings import Settings
from streams.wiring import (
    kafka_settings,
    operator_name,
    operator_pool,
    schema_store,
    worker_dsn,
)

EXIT_FOUND = 1

T = TypeVar("T")


@click.command()
@click.argument("type_name", metavar="TYPE", type=click.Choice(sorted(RECORD_TYPES)))
@with_options
@with_settings("postgres_operator_dsn", "operator", "schema_store")
def replay(settings: Settings, type_name: str, **given: Any) -> int:  # noqa: ANN401 - click's
    """Write a bounded range of a topic to a file, with a manifest beside it.

    TYPE is the record type. The end is fixed at the start: the last stable offset of each
    partition, or less as asked. Ranges and filters combine: offsets (--from and --to, [first, end)
    per partition, which restrict to those partitions), record timestamps (--since and --until,
    half-open), --run, --key. No group is joined and nothing is committed, so workers are not
    disturbed. Records come in the order of partition and offset; the same range gives the same
    bytes.

    Personal values are masked (`***` in CSV and JSONL, null in Parquet) unless --reveal --why says
    otherwise, which is put on record first. FILE.manifest.json holds range, filters, counts, exact
    sums, and the file's SHA-256; --from-manifest repeats it.

    With --dry-run the raw range is decided again, by the active decision set or another, and
    verdicts that would differ from the stored ones are listed.

    Exit codes: 0 done; 1 the file lacks records that were asked for (not stable or not there yet),
    or verdicts would differ; 2 usage; 3 the start has aged out, the topic is another one, an event
    cannot be read or the file not written; 4 unreachable; 130 interrupted. No file is left but by 0
    and 1.
    """
    options, record_type = Options(**given), RECORD_TYPES[type_name]
    wanted = wanted_of(options, record_type)
    if options.dry_run:
        return _dry_run(settings, record_type, options, wanted)
    return _export(settings, record_type, options, wanted)


# --- To a file ------------------------------------------------------------------------------------


def _export(settings: Settings, record_type: RecordType, options: Options, wanted: Wanted) -> int:
    path = options.out or Path()
    chosen = format_of(path, options.chosen)
    target = Target(path, chosen, replace=options.force, reveal=options.reveal)

    async def on_reveal(extent: Extent) -> None:
        await _on_record(settings, options, wanted, extent)

    async def write() -> Exported:
        with offset_progress(Console(stderr=True), "replaying") as on_progress:
            return await export(
                kafka_settings(settings),
                record_type,
                schema_store(settings.schema_store),
                wanted,
                target,
                on_reveal=on_reveal,
                on_progress=on_progress,
            )

    done = _until_told(write())
    if done is None:
        click.echo(f"interrupted: nothing was left at {path}", err=True)
        return EXIT_INTERRUPTED
    if options.as_json:
        click.echo(json.dumps({"file": str(path), **done.manifest}))
    else:
        _show_export(path, done)
    return _incomplete(done.extent)


async def _on_record(settings: Settings, options: Options, wanted: Wanted, extent: Extent) -> None:
    """Put a revelation on record, before the first byte of it is written."""
    act = Act(
        act="reveal",
        who=operator_name(settings),
        target=str(extent),
        why=options.why,
        detail={
            "filtered_by_key": wanted.filters.key is not None,
            "run": wanted.filters.run,
            "since": options.since,
            "until": options.until,
        },
    )
    async with operator_pool(settings) as pool:
        await record_acts(pool, [act])


def _show_export(path: Path, done: Exported) -> None:
    out, found = console(), done.manifest
    parts = table("partition", "first", "end", "read", "written")
    for one in found["partitions"]:
        parts.add_row(
            *(str(one[name]) for name in ("partition", "first", "end", "read", "written"))
        )
    out.print(parts)
    for name, sums in found.get("sums", {}).items():
        by_currency = sums if isinstance(sums, dict) else {"": sums}
        out.print(f"{name}: " + ", ".join(f"{v} {c}".strip() for c, v in by_currency.items()))
    masked = "masked" if found["masked"] else "revealed"
    out.print(f"{found['written']} records of {found['topic']}, {masked}, to {path}")
    out.print(f"manifest: {manifest_path(path)}")


def _incomplete(extent: Extent) -> int:
    """Say what is missing; the exit code."""
    for span in extent.spans:
        if span.missing is not None:
            click.echo(f"incomplete: partition {span.partition}: {span.missing}", err=True)
        if span.remark is not None:
            click.echo(f"partition {span.partition}: {span.remark}", err=True)
    return EXIT_FOUND if any(span.missing is not None for span in extent.spans) else 0


# --- Dry-run --------------------------------------------------------------------------------------


def _dry_run(settings: Settings, record_type: RecordType, options: Options, wanted: Wanted) -> int:
    if wanted.kind != "raw":
        message = "--dry-run reads the raw topic; the manifest is of another"
        raise ConfigurationError(message)

    async def decide_again() -> Compared:
        pool_settings = PoolSettings(
            dsn=worker_dsn(settings),
            pool_size=1,
            application_name="weighbridge-replay",
            statement_cache_size=settings.statement_cache_size,
        )
        async with Pool(pool_settings) as pool:
            active = await PostgresLedger(pool, record_type).active_decision_set()
            with offset_progress(Console(stderr=True), "deciding") as on_progress:
                return await compare(
                    kafka_settings(settings),
                    pool,
                    record_type,
                    schema_store(settings.schema_store),
                    wanted,
                    _decision_set(options, active),
                    listed_max=options.listed_max,
                    on_progress=on_progress,
                )

    found = _until_told(decide_again())
    if found is None:
        click.echo("interrupted", err=True)
        return EXIT_INTERRUPTED
    if options.as_json:
        click.echo(json.dumps(found.as_dict()))
    else:
        _show_compared(found)
    return max(_incomplete(found.extent), EXIT_FOUND if found.differ else 0)


def _decision_set(options: Options, active: DecisionSet) -> DecisionSet:
    """The set to decide by. Raises `ConfigurationError` for a file that holds none."""
    path = options.limits or options.decision_set
    if path is None:
        return active
    try:
        text = path.read_text(encoding="utf-8")
        if options.limits is None:
            chosen = DecisionSet.from_json(text)
        else:
            chosen = dataclasses.replace(active, limits=_limits(json.loads(text), active.limits))
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        why = str(error) if isinstance(error, ValueError) else type(error).__name__
        message = f"{path}: no {'limits' if options.limits else 'decision set'}: {why}"
        raise ConfigurationError(message) from None
    if chosen.contract_version != CONTRACT_VERSION:
        message = (
            f"{path}: contract version {chosen.contract_version}; this program decides by "
            f"{CONTRACT_VERSION}"
        )
        raise ConfigurationError(message)
    return chosen


def _limits(given: dict[str, object], active: Limits) -> Limits:
    """The active limits, changed. Raises `ValueError` for one there is not, or of another type."""
    for name, value in given.items():
        now = getattr(active, name, None)
        if now is None or type(now) is not type(value):
            there = ", ".join(field.name for field in dataclasses.fields(Limits))
            message = f"{name} is no limit, or not of its type; there are {there}"
            raise ValueError(message)
    return dataclasses.replace(active, **given)  # type: ignore[arg-type] # checked above


def _show_compared(found: Compared) -> None:
    out = console()
    if found.differ:
        groups = table("was", "would be", "records")
        for (was, would_be), number in found.groups.most_common():
            groups.add_row(was, would_be, str(number))
        out.print(groups)
        listed = table("position", "was", "would be")
        for one in found.listed:
            listed.add_row(one.position, one.was, one.would_be)
        out.print(listed)
        if found.differ > len(found.listed):
            out.print(f"... and {found.differ - len(found.listed)} more (--listed N lists more)")
    out.print(
        f"{found.read} records decided again under decision set "
        f"{found.decision_set.digest.hex()[:12]}: {found.same} the same, {found.differ} would "
        f"differ, {found.set_aside} set aside, {found.not_yet_decided} not decided yet, "
        f"{found.no_longer_stored} without a stored verdict"
    )


def _until_told(work: Coroutine[Any, Any, T]) -> T | None:
    """Run to the end; None when told to stop by Ctrl-C or SIGTERM, after cleaning up."""

    async def run() -> T:
        task = asyncio.ensure_future(work)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, task.cancel)
        return await task

    try:
        return uvloop.run(run())
    except asyncio.CancelledError:
        return None
