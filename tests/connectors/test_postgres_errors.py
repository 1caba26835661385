"""What the driver's errors become: the right kind, and never with the driver's text."""

from __future__ import annotations

import asyncpg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.errors import ConfigurationError, DatabaseUnavailable
from connectors.postgres.errors import Fault, PostgresUnavailable, fault_of, translate
from connectors.postgres.queries import identifier, query

SECRET = "Jane Doe earned 1234.56"


def server_error(sqlstate: str, **fields: str) -> asyncpg.PostgresError:
    """An error as the server sends it: `C` is the SQLSTATE, `M` the text."""
    codes = {"constraint_name": "n", "column_name": "c", "context": "W", "detail": "D"}
    message = {"S": "ERROR", "C": sqlstate, "M": SECRET, "D": SECRET}
    message |= {codes[name]: value for name, value in fields.items()}
    return asyncpg.PostgresError.new(message)


RETRYABLE = [
    "08000", "08006", "25006", "25P03", "25P04", "40001", "40P01", "53100", "53200", "53300",
    "55P03", "57014", "57P01", "57P02", "57P03", "58030", "42501", "42P01", "28P01", "XX000",
    "23505",
]  # fmt: skip


@pytest.mark.parametrize("sqlstate", RETRYABLE)
def test_server_errors_at_run_time_are_retryable(sqlstate: str) -> None:
    """Whatever is not the data's fault is waited for (G5), with the SQLSTATE named."""
    error = translate(server_error(sqlstate))
    assert isinstance(error, PostgresUnavailable)
    assert error.retryable
    assert error.sqlstate == sqlstate
    assert sqlstate in str(error)


@pytest.mark.parametrize("sqlstate", ["28P01", "28000", "3D000", "42704", "42501"])
def test_a_wrong_login_database_or_server_fails_the_start(sqlstate: str) -> None:
    """While a service starts, what cannot heal by itself is a configuration error."""
    assert isinstance(translate(server_error(sqlstate), starting=True), ConfigurationError)


@pytest.mark.parametrize("sqlstate", ["57P03", "53300", "08006"])
def test_a_server_that_is_not_ready_does_not_fail_the_start_for_good(sqlstate: str) -> None:
    """A server that starts up or is full is waited for at the start too."""
    assert isinstance(translate(server_error(sqlstate), starting=True), DatabaseUnavailable)


@pytest.mark.parametrize(
    "error",
    [TimeoutError(SECRET), ConnectionResetError(SECRET), OSError(SECRET)],
    ids=lambda e: type(e).__name__,
)
def test_errors_of_the_way_are_retryable(error: OSError) -> None:
    """Timeouts and lost connections are infrastructure."""
    translated = translate(error)
    assert isinstance(translated, DatabaseUnavailable)
    assert SECRET not in str(translated)


@given(
    sqlstate=st.from_regex(r"[0-9A-Z]{5}", fullmatch=True),
    name=st.text(max_size=80),
    starting=st.booleans(),
)
def test_no_text_of_the_server_gets_through(sqlstate: str, name: str, *, starting: bool) -> None:
    """Only codes and plain identifiers pass; whatever else a field holds is dropped."""
    fields = {"constraint_name": name, "column_name": name, "context": name}
    error = server_error(sqlstate, **fields)
    told = f"{translate(error, starting=starting)} {fault_of(error)!r}"
    assert SECRET not in told
    try:
        identifier(name)
    except ConfigurationError:
        assert fault_of(error) == Fault(error.sqlstate)


@pytest.mark.parametrize(
    ("fault", "is_data"),
    [
        (Fault("22003"), True),
        (Fault("22P02"), True),
        (Fault("23514", "payroll_ledger_gross_pay"), True),
        (Fault("23505", "payroll_ledger_pkey"), True),
        (Fault("23514", "dvir_ledger_defects_open"), False),
        (Fault("23514"), False),
        (Fault("23502", None, "gross_pay"), False),
        (Fault("42501", "payroll_ledger_gross_pay"), False),
        (Fault("57014"), False),
    ],
    ids=str,
)
def test_what_counts_as_data(fault: Fault, *, is_data: bool) -> None:
    """Only class 22 and constraints named after the type are the record's fault (SPEC 7)."""
    assert fault.is_data("payroll") is is_data


@pytest.mark.parametrize(
    ("context", "column"),
    [
        ("COPY payroll_ledger, line 3, column gross_pay", "gross_pay"),
        ('COPY payroll_ledger, line 3, column gross_pay: "1234"', None),
        ("COPY payroll_ledger, line 3", None),
        ("something else, column gross_pay", None),
    ],
)
def test_a_copys_column_is_read_from_its_context(context: str, column: str | None) -> None:
    """Binary COPY names the column without a value; a context with anything more is not read."""
    assert fault_of(server_error("22003", context=context)).column == column


@pytest.mark.parametrize("name", ["", "a b", 'a"b', "a;b", "A", "1a", "x" * 64, "ä", "a\n"])
def test_only_plain_identifiers_get_into_sql(name: str) -> None:
    """Table and column names are checked before they become SQL."""
    with pytest.raises(ConfigurationError):
        query("probe", ledger=name)


def test_statements_are_filled_and_free_of_comments() -> None:
    """A statement comes without its description, all placeholders filled."""
    sql = query("ledger_rows", ledger="payroll_ledger", columns=("key", "body"))
    assert sql == "SELECT key, body FROM payroll_ledger WHERE key = ANY ($1::bytea[])"


def test_an_unknown_statement_or_placeholder_is_an_error() -> None:
    """A typing error in a name does not reach the server."""
    with pytest.raises(KeyError):
        query("no_such_statement")
    with pytest.raises(KeyError):
        query("probe")
