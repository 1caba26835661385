"""Fixtures for all tests: real servers, a database and topics of one's own, clean surroundings."""

from __future__ import annotations

import asyncio
import gc
import os
import secrets
import signal
from collections.abc import Callable, Generator, Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from connectors.embedded.jars import kafka_jars
from connectors.errors import ConfigurationError
from tests.servers import (
    KAFKA_VARIABLE,
    POSTGRES_VARIABLE,
    TEMPLATE,
    Database,
    Services,
    cloned,
    dropped,
    make_template,
    run_apart,
)

KEPT_VARIABLES = {"WEIGHBRIDGE_CACHE", KAFKA_VARIABLE, POSTGRES_VARIABLE}

# The same examples in every run. `--hypothesis-profile=explore` looks for new ones.
_SHARED = {"deadline": None, "print_blob": True}
settings.register_profile("ci", derandomize=True, **_SHARED)
settings.register_profile(
    "explore", max_examples=2_000, suppress_health_check=[HealthCheck.too_slow], **_SHARED
)
settings.load_profile("ci")


# --- The run --------------------------------------------------------------------------------------


def pytest_configure() -> None:
    """Let the tests' processes hear Ctrl-C: a shell starts background jobs deaf to it, and the
    deafness is inherited."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--nightly", action="store_true", help="also run tests that take minutes")


def pytest_report_header() -> list[str]:
    """Say which examples run; pytest-randomly names its own seed."""
    chosen = settings.get_current_profile_name()
    same = "the same examples in every run" if settings().derandomize else "--hypothesis-seed=N"
    return [f"hypothesis profile: {chosen} ({same})"]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark tests that use a server, and leave the nightly ones out unless asked for."""
    for item in items:
        if {"services", "database"} & set(getattr(item, "fixturenames", ())):
            item.add_marker("services")
    if not config.getoption("--nightly"):
        kept = [item for item in items if item.get_closest_marker("nightly") is None]
        config.hook.pytest_deselected(items=[item for item in items if item not in kept])
        items[:] = kept


def pytest_collection_finish(session: pytest.Session) -> None:
    """Download Kafka before the first test, for whose timeout the download is too long."""
    collect_only = session.config.getoption("collectonly")
    needed = any(item.get_closest_marker("services") for item in session.items)
    if needed and not collect_only and not os.environ.get(KAFKA_VARIABLE):
        try:
            kafka_jars()
        except ConfigurationError:
            return  # The first test that needs it fails with the reason.


# --- Clean surroundings ---------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def _no_settings_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    """No setting of the developer's shell reaches a test."""
    for name in list(os.environ):
        if name.startswith("WEIGHBRIDGE_") and name not in KEPT_VARIABLES:
            monkeypatch.delenv(name)


_complaints: list[str] = []
"""What the event loop of the running test would otherwise only have logged."""


def _watched_loop() -> asyncio.AbstractEventLoop:
    def remember(_loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        _complaints.append(f"{context.get('message')}: {context.get('exception')!r}")

    loop = asyncio.new_event_loop()
    loop.set_exception_handler(remember)
    return loop


def pytest_asyncio_loop_factories() -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """The loop of every async test."""
    return {"watched": _watched_loop}


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, None, None]:
    """Fail a test whose event loop met an exception that nobody handled."""
    yield
    if item.get_closest_marker("asyncio") is None:
        return
    gc.collect()  # A task that failed unseen says so only when it is collected.
    complaints = _complaints[:]
    _complaints.clear()
    if complaints:
        pytest.fail("unhandled in the event loop: " + "; ".join(complaints), pytrace=False)


# --- Real servers ---------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def services() -> Iterator[Services]:
    """Kafka and PostgreSQL, started once. That they cannot start is a failure, never a skip."""
    running = Services()
    try:
        running.start()
        yield running
    finally:
        running.stop()


@pytest.fixture(autouse=True)
def _servers_stay_up(request: pytest.FixtureRequest) -> Iterator[None]:
    """After a test that stopped, paused or killed a server, the next one finds it serving."""
    yield
    if "services" in request.fixturenames:
        request.getfixturevalue("services").mend()


@pytest.fixture(scope="session")
def template_database(services: Services) -> str:
    """A migrated database that tests clone."""
    run_apart(make_template(services))
    return TEMPLATE


@pytest.fixture
def database(services: Services, template_database: str) -> Iterator[Database]:
    """A migrated database of the test's own, dropped when the test is done."""
    name = f"t{secrets.token_hex(4)}"
    yield cloned(services, name, template_database)
    services.mend()
    dropped(services, name)


@pytest.fixture
def topic_prefix() -> str:
    """Put before topic names, so that no two tests share a topic."""
    return f"t{secrets.token_hex(3)}."
