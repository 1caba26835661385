"""`weighbridge publish`: files and folders to a raw topic."""

from __future__ import annotations

import asyncio
import json
import signal
from pathlib import Path

import click
from rich.console import Console

from connectors.profiles import Profile
from schemas.record_types import RECORD_TYPES
from streams.cli.options import with_settings
from streams.cli.output import console, table
from streams.cli.profiles import open_profile, with_profile
from streams.progress import byte_progress
from streams.publish import Progress, PublishSummary
from streams.publish import publish as publish_files
from streams.settings import Settings
from streams.wiring import kafka_settings

EXIT_INCOMPLETE, EXIT_UNREACHABLE, EXIT_INTERRUPTED = 1, 4, 130


@click.command()
@click.argument("type_name", metavar="TYPE", type=click.Choice(sorted(RECORD_TYPES)))
@click.argument("paths", nargs=-1, required=True, type=click.Path(path_type=Path, exists=True))
@click.option("--dry-run", is_flag=True, help="Read and check the files; send nothing.")
@click.option("--correlation", is_flag=True, help="Give each record `FILE:LINE` as correlation id.")
@click.option("--json", "as_json", is_flag=True, help="End with one JSON object.")
@with_profile
@with_settings()
def publish(
    settings: Settings,
    type_name: str,
    paths: tuple[Path, ...],
    dry_run: bool,  # noqa: FBT001 - a flag of the command line
    correlation: bool,  # noqa: FBT001 - a flag of the command line
    as_json: bool,  # noqa: FBT001 - a flag of the command line
    profile: str | None,
    lookups: tuple[str, ...],
) -> int:
    """Publish NDJSON and CSV files, or folders of them, to a record type's raw topic.

    TYPE is the record type. Rows that cannot be mapped are published as they are, so that the gate
    gives them their verdict (`malformed_row`). Exit code 0 when every row is acknowledged, 1 when a
    file or row was refused, 4 when Kafka went away, 130 after Ctrl-C; the summary says what is
    certain. Publishing a file again is safe: its records come out as duplicates.
    """
    source = open_profile(profile, lookups, type_name)
    summary, interrupted = asyncio.run(
        _publish(settings, type_name, paths, source, dry_run=dry_run, correlation=correlation)
    )
    if as_json:
        click.echo(json.dumps(summary.as_dict()))
    else:
        _show(summary, dry_run=dry_run)
    if interrupted:
        return EXIT_INTERRUPTED
    if summary.failure is not None:
        return EXIT_UNREACHABLE
    return 0 if summary.complete else EXIT_INCOMPLETE


async def _publish(
    settings: Settings,
    type_name: str,
    paths: tuple[Path, ...],
    profile: Profile | None,
    *,
    dry_run: bool,
    correlation: bool,
) -> tuple[PublishSummary, bool]:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    with byte_progress(Console(stderr=True), "publishing") as report:

        def on_progress(progress: Progress) -> None:
            report(progress.bytes_read, progress.bytes_total, progress.acknowledged)

        summary = await publish_files(
            kafka_settings(settings),
            RECORD_TYPES[type_name],
            paths,
            on_progress=on_progress,
            dry_run=dry_run,
            correlation=correlation,
            stop=stop,
            profile=profile,
        )
    return summary, stop.is_set()


def _show(summary: PublishSummary, *, dry_run: bool) -> None:
    out = console()
    files = table("file", "outcome", "rows", "acknowledged", "malformed", "note")
    for one in summary.files:
        note = one.why or ""
        if one.too_large:
            note = f"{one.too_large} rows too large for the topic, lines {one.too_large_lines}"
        elif one.outcome == "interrupted":
            note = f"all up to line {one.certain_line} is certain"
        files.add_row(
            str(one.path),
            one.outcome,
            str(one.rows),
            str(one.acknowledged),
            str(one.malformed),
            note,
        )
    out.print(files)
    done = "would go" if dry_run else "acknowledged"
    count = summary.total("rows" if dry_run else "acknowledged")
    rate = count / summary.seconds if summary.seconds else 0.0
    out.print(
        f"{count} records {done} to {summary.topic} in {summary.seconds:.1f} s ({rate:.0f}/s), "
        f"{summary.total('malformed')} of them rows that could not be mapped"
    )
    if summary.failure is not None:
        out.print(f"ended early: {summary.failure}")
