"""`weighbridge publish`: files and folders to a raw topic."""

from __future__ import annotations

import asyncio
import json
import signal
from pathlib import Path

import click
from rich.console import Console

from schemas.chunk import CHUNK_RECORDS_DEFAULT, CHUNK_RECORDS_MAX
from schemas.record_types import RECORD_TYPES
from streams.cli.exits import EXIT_INTERRUPTED, EXIT_STOPPED, exit_code
from streams.cli.options import with_settings
from streams.cli.output import console, table
from streams.cli.profiles import open_profile, with_profile
from streams.progress import byte_progress
from streams.publish import PublishOptions
from streams.publish import publish as publish_files
from streams.publishing.chunks import CHUNK_BYTES_DEFAULT, OPEN_BYTES_MAX, ChunkLimits
from streams.publishing.summary import RUNS_SHOWN_MAX, FileSummary, Progress, PublishSummary
from streams.settings import Settings
from streams.wiring import kafka_settings

EXIT_INCOMPLETE = 1
_FILE = click.Path(path_type=Path, dir_okay=False)


@click.command()
@click.argument("type_name", metavar="TYPE", type=click.Choice(sorted(RECORD_TYPES)))
@click.argument("paths", nargs=-1, required=True, type=click.Path(path_type=Path, exists=True))
@click.option("--dry-run", is_flag=True, help="Read, check and plan; send nothing, keep no state.")
@click.option(
    "--manifest",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    help="The source's control figures (JSON): a file that differs is refused.",
)
@click.option(
    "--backfill",
    is_flag=True,
    help="Send old records with their own time as `wb-observed-at`, so that their age is no fault "
    "(dvir: received_at, else inspected_at).",
)
@click.option("--rate", type=click.IntRange(min=1), help="Most records a second.")
@click.option("--correlation", is_flag=True, help="Give each record `FILE:LINE` as correlation id.")
@click.option(
    "--chunk-records",
    type=click.IntRange(1, CHUNK_RECORDS_MAX),
    default=CHUNK_RECORDS_DEFAULT,
    show_default=True,
    help="Most records of a chunk, which goes in one transaction.",
)
@click.option(
    "--chunk-bytes",
    type=click.IntRange(1_000, OPEN_BYTES_MAX),
    default=CHUNK_BYTES_DEFAULT,
    show_default=True,
    help="Most bytes of a chunk.",
)
@click.option("--state", type=_FILE, help="The file's state file; default: beside the file.")
@click.option(
    "--state-dir",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder for state files, when the files' own cannot be written.",
)
@click.option("--again", is_flag=True, help="Publish anew what was published, or begun, before.")
@click.option("--json", "as_json", is_flag=True, help="End with one JSON object.")
@with_profile
@with_settings()
def publish(
    settings: Settings,
    type_name: str,
    paths: tuple[Path, ...],
    dry_run: bool,  # noqa: FBT001 - a flag of the command line
    manifest: Path | None,
    backfill: bool,  # noqa: FBT001 - a flag of the command line
    rate: int | None,
    correlation: bool,  # noqa: FBT001 - a flag of the command line
    chunk_records: int,
    chunk_bytes: int,
    state: Path | None,
    state_dir: Path | None,
    again: bool,  # noqa: FBT001 - a flag of the command line
    as_json: bool,  # noqa: FBT001 - a flag of the command line
    profile: str | None,
    lookups: tuple[str, ...],
) -> int:
    """Publish NDJSON and CSV files, or folders of them, to a record type's raw topic.

    TYPE is the record type. Each file is read to its end first: one that cannot be cut into rows,
    or is not what its --manifest says, is refused and nothing of it is sent. Then it goes in
    chunks, each in one Kafka transaction: readers see all of a chunk or nothing. Rows that cannot
    be mapped are published as they are, so that the gate gives them their verdict
    (`malformed_row`).

    Every record goes once: the state file, FILE.weighbridge-publish.json beside the file, says how
    far it has come, and after Ctrl-C, a crash or an outage the same command goes on there. A file
    that is published completely is not published again without --again.

    Exit codes: 0 all is published; 1 a file or a row was refused; 2 usage or settings; 3 a file or
    topic is not what its unfinished publication began with, or another publisher is at work; 4
    Kafka went away; 130 after Ctrl-C. Test payloads with `weighbridge check` first.
    """
    options = PublishOptions(
        chunks=ChunkLimits(chunk_records, chunk_bytes),
        manifest=manifest,
        correlation=correlation,
        backfill=backfill,
        rate=rate,
        state=state,
        state_dir=state_dir,
        again=again,
        dry_run=dry_run,
        profile=open_profile(profile, lookups, type_name),
    )
    summary, interrupted = asyncio.run(_publish(settings, type_name, paths, options))
    if as_json:
        click.echo(json.dumps(summary.as_dict()))
    else:
        _show(summary, dry_run=dry_run)
    if interrupted:
        return EXIT_INTERRUPTED
    if summary.failure is not None:
        return exit_code(summary.failure)
    if any(one.outcome == "stopped" for one in summary.files):
        return EXIT_STOPPED
    return 0 if summary.complete else EXIT_INCOMPLETE


async def _publish(
    settings: Settings, type_name: str, paths: tuple[Path, ...], options: PublishOptions
) -> tuple[PublishSummary, bool]:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    with byte_progress(Console(stderr=True)) as report:

        def on_progress(progress: Progress) -> None:
            read, total = progress.bytes_read, progress.bytes_total
            report(progress.phase, read, total, progress.records)

        summary = await publish_files(
            kafka_settings(settings),
            RECORD_TYPES[type_name],
            paths,
            options,
            on_progress=on_progress,
            stop=stop,
        )
    return summary, stop.is_set()


def _show(summary: PublishSummary, *, dry_run: bool) -> None:
    out = console()
    files = table("file", "outcome", "rows", "chunks", "sent now", "sent before", "unmappable")
    for one in summary.files:
        cells = (one.rows, f"{one.chunks_done}/{one.chunks}", one.sent, one.sent_before)
        files.add_row(str(one.path), one.outcome, *map(str, cells), str(one.malformed))
    out.print(files)
    for one in summary.files:
        if one.runs:
            _show_runs(one)
        for line in _remarks(one):
            out.print(f"{one.path.name}: {line}")
    done = "would go" if dry_run else "acknowledged"
    count = summary.total("records" if dry_run else "sent")
    rate = count / summary.seconds if summary.seconds else 0.0
    out.print(
        f"{count} records {done} to {summary.topic} in {summary.seconds:.1f} s ({rate:.0f}/s), "
        f"{summary.total('malformed')} of them rows that could not be mapped"
    )
    if summary.failure is not None:
        out.print(f"ended early: {summary.failure}")
    if any(one.outcome in {"interrupted", "failed"} and one.state for one in summary.files):
        out.print("the same command goes on where this one ended")


def _show_runs(one: FileSummary) -> None:
    out, found = console(), table("run", "chunks", "records", "total", "unreadable", "unmappable")
    for name, run in list(one.runs.items())[:RUNS_SHOWN_MAX]:
        total = ", ".join(f"{sum_:f} {currency}" for currency, sum_ in sorted(run.totals.items()))
        cells = (run.chunks, run.records, total, run.unreadable, run.malformed)
        found.add_row(name, *map(str, cells))
    out.print(found)
    if len(one.runs) > RUNS_SHOWN_MAX:
        out.print(f"and {len(one.runs) - RUNS_SHOWN_MAX} runs more")


def _remarks(one: FileSummary) -> list[str]:
    """What else there is to say of a file."""
    said = [text for text in (one.why, one.note) if text]
    said += [f"  {difference}" for difference in one.differences]
    if one.too_large:
        named = ", ".join(map(str, one.too_large_lines))
        said.append(f"{one.too_large} rows too large for the topic, lines {named}")
    if one.outcome == "interrupted":
        said.append(f"{one.chunks_done} of {one.chunks} chunks are in, for certain")
    return said
