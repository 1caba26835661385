"""Options that several commands share: each overrides one setting."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import click

from streams import logs
from streams.settings import Settings

_OPTIONS = (
    click.option("--config", type=click.Path(path_type=Path, dir_okay=False), help="TOML file."),
    click.option("--kafka", "kafka_bootstrap", help="Kafka brokers, host:port[,host:port]."),
    click.option("--postgres", "postgres_dsn", help="PostgreSQL DSN of the worker's role."),
    click.option("--group", help="Consumer group of the workers."),
    click.option("--topic-prefix", help="Put before every topic's name."),
    click.option(
        "--data-dir", type=click.Path(path_type=Path), help="Folder of embedded services."
    ),
    click.option("--log-format", type=click.Choice(["console", "json"]), help="Form of log lines."),
    click.option(
        "--log-level",
        type=click.Choice(["debug", "info", "warning", "error"]),
        help="Least level logged.",
    ),
)
_NAMES = (
    "kafka_bootstrap",
    "postgres_dsn",
    "group",
    "topic_prefix",
    "data_dir",
    "log_format",
    "log_level",
)


def with_settings(*own: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Give a command the shared options and call it with `settings` made from all sources.

    `own` names further options of the command that are settings as well.
    """

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def call(*args: object, config: Path | None, **kwargs: object) -> object:
            if config is not None:
                os.environ["WEIGHBRIDGE_CONFIG"] = str(config)
            flags = {name: kwargs.pop(name) for name in (*_NAMES, *own)}
            settings = Settings.load(**flags)
            logs.configure(settings.log_format, settings.log_level)
            return function(*args, settings=settings, **kwargs)

        wrapped: Callable[..., Any] = call
        for option in reversed(_OPTIONS):
            wrapped = option(wrapped)
        return wrapped

    return decorate
