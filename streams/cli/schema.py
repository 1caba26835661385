"""`weighbridge schema`: the Avro schemas of raw records and of committed events."""

from __future__ import annotations

import click

from schemas.record_types import RECORD_TYPES


@click.command()
@click.argument("type_name", metavar="TYPE", type=click.Choice(sorted(RECORD_TYPES)))
@click.option(
    "--committed/--raw",
    "committed",
    default=True,
    help="Of committed events (the default), or of raw records in Avro.",
)
@click.option("--version", "number", type=click.IntRange(min=1), help="Default: the newest.")
@click.option(
    "--fingerprint", is_flag=True, help="Print the schema's fingerprint instead, in hexadecimal."
)
def schema(
    type_name: str,
    committed: bool,  # noqa: FBT001 - a flag of the command line
    number: int | None,
    fingerprint: bool,  # noqa: FBT001 - a flag of the command line
) -> None:
    """Print an Avro schema of record type TYPE.

    Values in single-object encoding begin with the bytes c301 and the schema's fingerprint
    (CRC-64-AVRO, little-endian), which --fingerprint prints as those eight bytes stand there.
    """
    record_type = RECORD_TYPES[type_name]
    known = record_type.committed_schemas if committed else record_type.raw_schemas
    if number is not None and number > len(known):
        message = f"there are versions 1 to {len(known)}"
        raise click.BadParameter(message, param_hint="--version")
    chosen = known[(number or len(known)) - 1]
    click.echo(chosen.fingerprint.hex() if fingerprint else chosen.text.rstrip("\n"))
