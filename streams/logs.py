"""structlog set-up: key=value lines, or JSON by option, on standard error."""

from __future__ import annotations

import logging
import sys
from typing import Literal, TextIO, cast

import structlog

CHATTY = ("aiokafka", "faust", "mode")
"""Libraries that log every retry of every connection as an error while a broker is away. What it
means for a partition is in our own lines; theirs are shown at level debug."""


class _StandardError:
    """Whatever standard error is at the time: loggers are cached, and outlive a redirection."""

    def write(self, text: str) -> int:
        """Write text."""
        return sys.stderr.write(text)

    def flush(self) -> None:
        """Flush."""
        sys.stderr.flush()


def configure(log_format: Literal["console", "json"], level: str) -> None:
    """Send our log lines, and the libraries' warnings, to standard error."""
    number = logging.getLevelNamesMapping()[level.upper()]
    renderer = (
        structlog.processors.JSONRenderer()
        if log_format == "json"
        else structlog.processors.LogfmtRenderer(bool_as_flag=False)
    )
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            _drop_none,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.PrintLoggerFactory(file=cast("TextIO", _StandardError())),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("level=%(levelname)s logger=%(name)s event=%(message)r"))
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    for name in CHATTY:
        quiet = number > logging.DEBUG
        logging.getLogger(name).setLevel(logging.CRITICAL if quiet else logging.WARNING)


def _drop_none(
    _logger: object, _method: str, event: structlog.typing.EventDict
) -> structlog.typing.EventDict:
    """A key without a value says nothing."""
    return {key: value for key, value in event.items() if value is not None}
