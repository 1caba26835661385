"""`weighbridge heal`: what a database that was set back has lost, back from the output topics."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import click
from rich.console import Console

from connectors.postgres.pool import Pool, PoolSettings
from streams.cli.options import with_settings
from streams.cli.output import console, table
from streams.heal import APPLICATION_NAME, STATEMENT_DEADLINE_S, Healed, HealOrder, HealParts
from streams.heal import heal as heal_group
from streams.healing.sets import read_decision_set
from streams.progress import record_progress
from streams.settings import Settings
from streams.wiring import kafka_settings, operator_name, owner_dsn, schema_store

EXIT_BEHIND = 1


@click.command()
@click.option("--dry-run", is_flag=True, help="Do all of it, show it, and take it back.")
@click.option("--why", help="Why, for the record of operations.")
@click.option(
    "--decision-set",
    "files",
    multiple=True,
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="A decision set that the database has lost, as JSON; may be given several times.",
)
@click.option("--owner", "postgres_owner_dsn", help="PostgreSQL DSN of the schema's owner.")
@click.option("--operator", help="Who does it, for the record of operations.")
@click.option("--schema-store", type=click.Path(), help="Folder of writer schemas, <id>.avsc.")
@click.option("--json", "as_json", is_flag=True, help="End with one JSON object.")
@with_settings("postgres_owner_dsn", "operator", "schema_store")
def heal(
    settings: Settings,
    dry_run: bool,  # noqa: FBT001 - a flag of the command line
    why: str | None,
    files: tuple[Path, ...],
    as_json: bool,  # noqa: FBT001 - a flag of the command line
) -> int:
    """Give a database that was set back the verdicts that its events still tell.

    For a database that was restored from a copy, or that failed over with loss, while events are
    out that it does not know: workers stop then and say so. Stop all workers first. Verdicts are
    read from the output and raw topics and written back as they were, in one transaction: nothing
    is changed unless all of it fits. What people did since the copy (acts, activations of decision
    sets) is in no topic and does not come back.

    Exit code 0 when healed or when there was nothing to heal, 1 when a dry run found something to
    heal, 3 when something does not fit: the message names the position; nothing was changed.
    """
    supplied = [read_decision_set(path) for path in files]
    order = HealOrder(operator_name(settings), why, dry_run, supplied)
    healed = asyncio.run(_heal(settings, order))
    if as_json:
        click.echo(json.dumps(healed.as_dict()))
    else:
        _show(healed)
    return EXIT_BEHIND if dry_run and healed.partitions else 0


async def _heal(settings: Settings, order: HealOrder) -> Healed:
    pool_settings = PoolSettings(
        dsn=owner_dsn(settings),
        pool_size=1,
        batch_deadline_s=STATEMENT_DEADLINE_S,
        application_name=APPLICATION_NAME,
        statement_cache_size=settings.statement_cache_size,
    )
    kafka, store = kafka_settings(settings), schema_store(settings.schema_store)
    async with Pool(pool_settings) as pool:
        with record_progress(Console(stderr=True), "offsets read back", None) as bar:
            return await heal_group(HealParts(kafka, pool, store), order, bar)


def _show(healed: Healed) -> None:
    out = console()
    if not healed.partitions:
        out.print("nothing to heal")
    else:
        found = table(
            "partition",
            "decided",
            "emitted",
            "committed",
            "quarantined",
            "decided again",
            "batches",
        )
        for one in healed.partitions:
            behind, tally = one.behind, one.tally
            found.add_row(
                str(behind.source),
                str(behind.decided_offset),
                str(behind.emitted_offset),
                str(tally.committed),
                str(tally.quarantined),
                f"{tally.duplicate} (duplicate)",
                f"{tally.first_number}-{behind.batch_number}",
            )
        out.print(found)
    for line in _notes(healed):
        out.print(line)


def _notes(healed: Healed) -> list[str]:
    """What else there is to know, one sentence a line."""
    notes = []
    if healed.stop_marks_cleared:
        notes.append(f"{healed.stop_marks_cleared} stop mark(s) cleared")
    if not healed.partitions:
        return notes
    alone = sum(one.tally.from_events_alone for one in healed.partitions)
    if alone:
        notes.append(
            f"{alone} verdicts come from their events alone, their raw records have aged out: "
            "rejects among them may lack a header that no event repeats"
        )
    notes += [f"decision set {digest} was stored again" for digest in healed.decision_sets]
    notes += [
        f"decided last under decision set {digest}, which is not in force: activate it again if it "
        "is to be"
        for digest in healed.other_sets_last
    ]
    notes.append(
        "not back, for no topic tells: acts after "
        f"{healed.newest_act or 'the beginning (none is left)'}, activations after "
        f"{healed.newest_activation}, rows that retention had moved"
    )
    if healed.dry_run:
        notes.append("a dry run: nothing was changed")
    else:
        notes.append(
            f"healed; acts {', '.join(map(str, healed.acts))} on record. Start the workers"
        )
    return notes
