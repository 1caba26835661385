"""Opening a connection, and what server it may lead to."""

from __future__ import annotations

from typing import Any

import asyncpg

from connectors.errors import ConfigurationError

POSTGRES_MAJOR_MIN = 17
"""`transaction_timeout` exists from PostgreSQL 17 on."""
CONNECT_TIMEOUT_S = 10.0


async def connect(dsn: str, **options: Any) -> asyncpg.Connection:  # noqa: ANN401 - asyncpg's own
    """`asyncpg.connect`, with one error for every DSN that cannot be read: of a port that is no
    number, or too large a one, the driver says so with an error that is not its own."""
    try:
        return await asyncpg.connect(dsn, **options)
    except (ValueError, OverflowError):
        message = "unreadable DSN"
        raise asyncpg.ClientConfigurationError(message) from None


def check_version(connection: asyncpg.Connection) -> None:
    """Raises `ConfigurationError` unless the server is recent enough."""
    version = connection.get_server_version()
    if version.major < POSTGRES_MAJOR_MIN:
        message = (
            f"PostgreSQL {version.major} is too old: weighbridge needs at least "
            f"{POSTGRES_MAJOR_MIN}"
        )
        raise ConfigurationError(message)
