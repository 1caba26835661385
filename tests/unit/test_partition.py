"""A partition whose assignment fails in a way nobody has thought of."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from connectors.errors import ConfigurationError, InvariantViolation
from schemas.record_types import RECORD_TYPES
from streams import partition as under_test
from streams.assignment import Ports
from streams.metrics import Metrics
from streams.observer import Observer
from streams.partition import Partition, PartitionSettings


@pytest.mark.parametrize(
    "error", [RuntimeError("unforeseen"), InvariantViolation("broken"), ConfigurationError("wrong")]
)
async def test_a_failed_assignment_ends_the_worker(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What can neither be waited for nor stopped at ends the worker; no partition is left behind
    that nobody works at."""

    async def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(under_test, "assign", fail)
    fatal: list[BaseException] = []
    nothing: Any = None
    ports = Ports(
        record_type=RECORD_TYPES["payroll"],
        ledger=nothing,
        log=nothing,
        make_emitter=nothing,
        group="g",
        observer=Observer(Metrics(), fatal.append),
    )
    partition = Partition(
        "payroll.raw",
        0,
        ports=ports,
        schema_store=nothing,
        settings=PartitionSettings(),
        random_source=random.Random(1),
    )
    partition.start()
    async with asyncio.timeout(5):
        while not fatal:  # noqa: ASYNC110 - a list has no event
            await asyncio.sleep(0.01)
    assert fatal == [error]
    await partition.revoke()
