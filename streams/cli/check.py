"""`weighbridge check`: verdicts offline, for teams upstream who want to test their payloads."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import click

from connectors.errors import ConfigurationError
from connectors.files import read_records
from connectors.files.csv_rows import CsvFields
from connectors.profiles import Profile
from schemas import envelope
from schemas.decision_set import DecisionSet
from schemas.envelope import NO_TIMESTAMP, Record
from schemas.record_type import RecordType
from schemas.record_types import RECORD_TYPES
from streams.check import Checked, check_records, guess_record_type
from streams.cli.output import console, table
from streams.cli.profiles import open_profile, with_profile
from streams.publish import csv_fields
from streams.wiring import schema_store as open_schema_store

GUESS_FROM = 20
"""How many records are looked at to guess the record type."""


@click.command()
@click.argument("file", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option(
    "--type",
    "type_name",
    type=click.Choice(sorted(RECORD_TYPES)),
    help="Record type; guessed from the first records when left out.",
)
@click.option("--raw", is_flag=True, help="Take the whole file as one message.")
@click.option(
    "--timestamp",
    default="none",
    show_default=True,
    help="Kafka timestamp to assume: ms since 1970, `now`, or `none` (no clock check).",
)
@click.option(
    "--schema-store", type=click.Path(path_type=Path), help="Folder of writer schemas, <id>.avsc."
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object per record.")
@with_profile
def check(
    file: Path,
    type_name: str | None,
    raw: bool,  # noqa: FBT001 - a flag of the command line
    timestamp: str,
    schema_store: Path | None,
    as_json: bool,  # noqa: FBT001 - a flag of the command line
    profile: str | None,
    lookups: tuple[str, ...],
) -> int:
    """Say what the gate would say of each record in FILE, with no service running.

    FILE is NDJSON or CSV (by its ending), or what --profile says, or with --raw one message. Its
    records are settled against each other, so duplicates and collisions inside it show. Exit code 1
    when a record would be turned away, 2 when the file as a whole would be.
    """
    source = open_profile(profile, lookups, type_name)
    if source is not None:
        if raw:
            message = "--raw takes the file as one message, --profile as records: one of them"
            raise click.UsageError(message)
        type_name = source.record_type.name
    fields = None if type_name is None else csv_fields(RECORD_TYPES[type_name])
    records = _records(file, fields, source, raw=raw, timestamp=_timestamp(timestamp))
    head = list(itertools.islice(records, GUESS_FROM))
    record_type = _record_type(type_name, head)
    checked = asyncio.run(
        check_records(
            itertools.chain(head, records),
            record_type,
            open_schema_store(schema_store),
            DecisionSet(),
        )
    )
    if as_json:
        for one in checked:
            click.echo(one.as_json())
    else:
        _show(checked, record_type)
    return 1 if any(one.verdict == "quarantined" for one in checked) else 0


def _records(
    file: Path, fields: CsvFields | None, profile: Profile | None, *, raw: bool, timestamp: int
) -> Iterator[Record]:
    if raw:
        yield Record(0, file.read_bytes(), timestamp)
        return
    for index, row in enumerate(read_records(file, fields, profile, _remark)):
        headers: envelope.Headers = ()
        if row.error is not None:
            headers = ((envelope.SOURCE_ERROR, row.error.encode()),)
        yield Record(index, row.value, timestamp, headers=headers)


def _remark(line: int, what: str) -> None:
    click.echo(f"line {line}: {what}", err=True)


def _timestamp(text: str) -> int:
    if text == "none":
        return NO_TIMESTAMP
    if text == "now":
        return int(time.time() * 1000)
    if text.isascii() and text.isdigit():
        return int(text)
    message = f"--timestamp takes milliseconds since 1970, `now` or `none`, not {text!r}"
    raise click.BadParameter(message)


def _record_type(name: str | None, head: list[Record]) -> RecordType:
    if name is not None:
        return RECORD_TYPES[name]
    guessed = guess_record_type(record.value for record in head if record.value is not None)
    if guessed is None:
        message = (
            "the file holds no record to tell its type from; say --type payroll or --type dvir"
            if not head
            else "cannot tell the record type from the file: say --type payroll or --type dvir, "
            "and --raw if the whole file is one message"
        )
        raise ConfigurationError(message)
    return guessed


def _show(checked: list[Checked], record_type: RecordType) -> None:
    out, found = console(), table("record", "verdict", "reason", "detail")
    for one in checked:
        detail = "; ".join(f"{v.path}: {v.rule}" if v.path else v.rule for v in one.detail)
        found.add_row(str(one.index), one.verdict, one.reason or "", detail)
    out.print(found)
    tally = Counter(one.verdict for one in checked)
    summary = ", ".join(f"{number} {verdict}" for verdict, number in sorted(tally.items()))
    out.print(f"{record_type.name}: {len(checked)} records: {summary or 'none'}")
