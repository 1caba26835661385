"""`weighbridge status`: where every partition stands, and whether the books balance."""

from __future__ import annotations

import asyncio
import json

import click

from streams.cli.options import with_settings
from streams.cli.output import console, table
from streams.settings import Settings
from streams.status import Status, read_status


@click.command()
@click.option("--json", "as_json", is_flag=True, help="One JSON object per partition.")
@with_settings()
def status(settings: Settings, as_json: bool) -> int:  # noqa: FBT001 - a flag of the command line
    """Per partition: decided, emitted, end, lag, verdict counts and the G1 balance.

    Exit code 1 when a balance does not hold, 3 when the deployment carries a stop mark or a
    partition is paused (`weighbridge resume`).
    """
    found = asyncio.run(read_status(settings))
    if as_json:
        for partition in found.partitions:
            click.echo(json.dumps(partition.as_dict()))
    else:
        _show(found)
    if found.stop_mark is not None or any(p.paused for p in found.partitions):
        return 3
    return 0 if all(p.cursor.counts.balanced for p in found.partitions) else 1


def _show(found: Status) -> None:
    out = console()
    if found.stop_mark is not None:
        out.print(f"STOPPED: {found.stop_mark}", style="bold")
    partitions = table(
        "partition",
        "decided",
        "emitted",
        "end",
        "lag",
        "in",
        "committed",
        "duplicate",
        "quarantined",
        "held",
        "balance",
    )
    for partition in found.partitions:
        counts = partition.cursor.counts
        partitions.add_row(
            str(partition.cursor.source),
            str(partition.cursor.next_offset),
            _shown(partition.emitted_offset),
            _shown(partition.end_offset),
            _shown(partition.lag_records),
            str(counts.records_in),
            str(counts.committed),
            str(counts.duplicate),
            str(counts.quarantined),
            str(counts.held),
            "exact" if counts.balanced else "BROKEN",
        )
    out.print(partitions)
    for partition in found.partitions:
        if partition.paused is not None:
            out.print(f"PAUSED {partition.cursor.source}: {partition.paused}", style="bold")
    for topic, reasons in found.reasons.items():
        out.print(f"{topic}: " + ", ".join(f"{n} {reason}" for reason, n in reasons.items()))


def _shown(number: int | None) -> str:
    return "?" if number is None else str(number)
