"""`weighbridge profiles`, and the options by which other commands take a profile."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from connectors.errors import ConfigurationError
from connectors.profiles import (
    Profile,
    check_profile,
    load_profile,
    profile_text,
    shipped_profiles,
)
from streams.cli.output import console, table


def with_profile(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command `--profile` and `--with`, as `profile` and `lookups`."""
    for option in (
        click.option(
            "--with",
            "lookups",
            metavar="NAME=FILE",
            multiple=True,
            help="A look-up file that the profile names, such as defects=list.json; may repeat.",
        ),
        click.option(
            "--profile",
            metavar="NAME|PATH",
            help="Read files by this source profile: `weighbridge profiles ls`, or a TOML file.",
        ),
    ):
        function = option(function)
    return function


def open_profile(
    name_or_path: str | None, lookups: tuple[str, ...], type_name: str | None
) -> Profile | None:
    """The profile of a command line, if it names one. Raises `ConfigurationError`."""
    if name_or_path is None:
        if lookups:
            message = "--with names a look-up of a profile: say --profile too"
            raise ConfigurationError(message)
        return None
    profile = load_profile(name_or_path, dict(map(_lookup, lookups)))
    if type_name is not None and type_name != profile.record_type.name:
        message = f"profile {name_or_path} makes {profile.record_type.name}, not {type_name}"
        raise ConfigurationError(message)
    return profile


def _lookup(text: str) -> tuple[str, Path]:
    name, equals, path = text.partition("=")
    if not (name and equals and path):
        message = f"--with takes NAME=FILE, not {text!r}"
        raise click.BadParameter(message)
    return name, Path(path)


@click.group()
def profiles() -> None:
    """List, show and check source profiles: how a source's files become records.

    A profile is a small TOML file. Start from a shipped one:
    `weighbridge profiles show payroll-csv > mine.toml`.
    """


@profiles.command()
@click.option("--json", "as_json", is_flag=True, help="One JSON list.")
def ls(as_json: bool) -> int:  # noqa: FBT001 - a flag of the command line
    """List the shipped profiles."""
    found = [check_profile(name) for name in shipped_profiles()]
    if as_json:
        click.echo(
            json.dumps(
                [
                    {
                        "name": one.name,
                        "record_type": one.record_type.name,
                        "format": one.format,
                        "about": one.about,
                    }
                    for one in found
                ]
            )
        )
        return 0
    listed = table("profile", "records", "format", "about")
    for one in found:
        listed.add_row(one.name, one.record_type.name, one.format, one.about)
    console().print(listed)
    return 0


@profiles.command()
@click.argument("name", metavar="NAME")
def show(name: str) -> int:
    """Print a profile's TOML, to copy as a start of your own."""
    click.echo(profile_text(name), nl=False)
    return 0


@profiles.command()
@click.argument("path", metavar="PATH")
def check(path: str) -> int:
    """Check a profile file: exit code 2 and the key that is wrong, or 0.

    What only a file's header can tell (whether a column is there) is told by
    `weighbridge check FILE --profile PATH`.
    """
    found = check_profile(path)
    click.echo(f"{path}: reads {found.format} into {found.record_type.name} records")
    return 0
