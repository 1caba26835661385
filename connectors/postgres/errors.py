"""What PostgreSQL's errors mean here: the data's fault, or the infrastructure's.

Only SQLSTATEs, names of constraints and columns, and our own phrases leave this module. The
driver's text never does: PostgreSQL quotes values in it (`Failing row contains ...`), and those are
personal data. Raise translated errors `from None`, or a traceback would show that text after all.

SQLSTATEs: PostgreSQL documentation, appendix A.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import asyncpg

from connectors.errors import (
    ConfigurationError,
    DatabaseTimeout,
    DatabaseUnavailable,
    WeighbridgeError,
)

READ_ONLY = "25006"
UNIQUE_VIOLATION = "23505"
UNDEFINED_TABLE = "42P01"
INSUFFICIENT_PRIVILEGE = "42501"
LOCK_NOT_AVAILABLE = "55P03"
UNENCODABLE = "22000"
"""`data_exception`: stands for a value that the client could not even encode for its column."""

DRIVER_ERRORS = (
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    OSError,
)
"""All that asyncpg raises when the server or the way to it fails; a `TimeoutError` is an `OSError`.
"""

_PHRASES = {
    READ_ONLY: "the server is read-only: a standby, or a primary that was demoted",
    "25P03": "the session was idle inside its transaction for too long and was ended",
    "25P04": "the transaction took longer than the batch deadline and was ended",
    "28P01": "the password was refused",
    "3D000": "the database does not exist",
    "40001": "the transaction must be repeated (serialization)",
    "40P01": "the transaction must be repeated (deadlock)",
    INSUFFICIENT_PRIVILEGE: "the role lacks a privilege; `weighbridge db migrate` grants them",
    UNDEFINED_TABLE: "a table is missing; run `weighbridge db migrate`",
    "42703": "a column is missing; run `weighbridge db migrate`",
    "53100": "the server's disk is full",
    "53300": "the server takes no more connections",
    LOCK_NOT_AVAILABLE: "a lock was not free within the lock timeout",
    "57014": "the statement took longer than the statement timeout",
    "57P01": "the session was ended by an administrator or a shutdown",
    "57P02": "the server crashed and is recovering",
    "57P03": "the server is starting up or shutting down",
    "58030": "the server met an I/O error",
}
_CLASS_PHRASES = {
    "08": "the connection was lost",
    "0A": "the server does not support what was asked",
    "22": "the server refused a value",
    "23": "the server refused a row",
    "25": "the transaction is in the wrong state",
    "28": "the server refused the login",
    "40": "the transaction must be repeated",
    "42": "the database is not as this version needs it; run `weighbridge db migrate`",
    "53": "the server is out of resources",
    "57": "the server was interrupted",
    "58": "the server's system failed",
    "XX": "the server met an internal error",
}
_STARTUP_FAULTS = ("28", "3D", "42")
"""Classes that cannot heal while a service starts; once it runs, they are waited for (G5)."""

_IDENTIFIER = re.compile(r"[a-z_][a-z0-9_]{0,62}", re.ASCII)
_COPY_COLUMN = re.compile(
    r"\ACOPY [a-z0-9_]+, line \d+, column ([a-z_][a-z0-9_]{0,62})\Z", re.ASCII
)


@dataclass(frozen=True, slots=True)
class Fault:
    """What may be told of a server error: codes and names, no text and no values."""

    sqlstate: str
    constraint: str | None = None
    column: str | None = None

    def is_data(self, record_type: str) -> bool:
        """Whether the record's own data was refused: class 22, or one of the type's constraints.

        Everything else, such as a constraint of another table, is infrastructure (SPEC 7).
        """
        if self.sqlstate.startswith("22"):
            return True
        return (
            self.sqlstate.startswith("23")
            and self.constraint is not None
            and self.constraint.startswith(f"{record_type}_")
        )

    def __str__(self) -> str:
        constraint = f" constraint {self.constraint}" if self.constraint else ""
        column = f" column {self.column}" if self.column else ""
        return f"SQLSTATE {self.sqlstate}{constraint}{column}"


class PostgresUnavailable(DatabaseUnavailable):
    """The server refused or ended what was asked, for a reason that is not the data's."""

    def __init__(self, message: str, sqlstate: str) -> None:
        super().__init__(message)
        self.sqlstate = sqlstate


class PostgresTimeout(PostgresUnavailable, DatabaseTimeout):
    """The server ended a statement or transaction that took too long; a smaller batch may not."""


TOO_SLOW = frozenset({"57014", "25P04"})
"""Statement and transaction timeouts. A lock that was not free says nothing about the batch."""


def fault_of(error: asyncpg.PostgresError) -> Fault:
    """Codes and names of a server error. In a binary COPY the column is named in its context."""
    sqlstate = error.sqlstate if isinstance(error.sqlstate, str) else "XX000"
    column = _identifier(error.column_name)
    if column is None and isinstance(error.context, str):
        match = _COPY_COLUMN.match(error.context)
        column = match.group(1) if match else None
    return Fault(sqlstate, _identifier(error.constraint_name), column)


def _identifier(name: object) -> str | None:
    return name if isinstance(name, str) and _IDENTIFIER.fullmatch(name) else None


def translate(error: BaseException, *, starting: bool = False) -> WeighbridgeError:
    """What an asyncpg or system error means to the stream.

    `DatabaseUnavailable` (retryable) for everything that may heal; `ConfigurationError` for a
    login, database or schema that is wrong while a service starts (`starting`), and for a DSN that
    cannot be read at any time.
    """
    if isinstance(error, asyncpg.ClientConfigurationError):
        return ConfigurationError("the PostgreSQL address (DSN) cannot be read")
    if isinstance(error, asyncpg.PostgresError):
        fault = fault_of(error)
        message = f"{_phrase(fault.sqlstate)} ({fault})"
        if starting and fault.sqlstate[:2] in _STARTUP_FAULTS:
            return ConfigurationError(f"PostgreSQL: {message}")
        kind = PostgresTimeout if fault.sqlstate in TOO_SLOW else PostgresUnavailable
        return kind(f"PostgreSQL: {message}", fault.sqlstate)
    if isinstance(error, TimeoutError):
        return DatabaseUnavailable("PostgreSQL did not answer in time")
    if isinstance(error, OSError):
        return DatabaseUnavailable(f"PostgreSQL cannot be reached ({type(error).__name__})")
    return DatabaseUnavailable(f"the PostgreSQL session was lost ({type(error).__name__})")


def _phrase(sqlstate: str) -> str:
    phrase = _PHRASES.get(sqlstate) or _CLASS_PHRASES.get(sqlstate[:2])
    return phrase or "the server refused"
