"""A partition whose assignment fails in a way nobody has thought of."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from connectors.errors import ConfigurationError, InvariantViolation
from connectors.ports import Fetched
from schemas.envelope import Source
from schemas.record_types import RECORD_TYPES
from streams import partition as under_test
from streams.assignment import Ownership, Ports
from streams.metrics import Metrics
from streams.observer import Observer
from streams.partition import Partition, PartitionSettings, State
from streams.watchdog import Stalled


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


class NoEmitter:
    """An emitter that has nothing to release."""

    async def close(self) -> None:
        """Released."""


async def test_a_batch_that_hangs_is_dropped_when_its_partition_is_assigned_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What waits for something that never comes gives its place free; the agent lives on."""
    nothing: Any = None
    emitter: Any = NoEmitter()

    async def assigned(*_: object) -> Ownership:
        source = Source("payroll.raw", 0)
        return Ownership(source, b"t", "d", emitter, nothing, 7)

    async def hang(*_: object) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(under_test, "assign", assigned)
    monkeypatch.setattr(under_test.steps, "resolve_schemas", hang)
    fatal: list[BaseException] = []
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
        settings=PartitionSettings(backoff_first_s=0.01),
        random_source=random.Random(1),
    )
    async with asyncio.timeout(5):
        partition.start()
        while partition.state is not State.RUNNING:  # noqa: ASYNC110 - as above
            await asyncio.sleep(0.01)
        batches = [partition.new_batch(Fetched(7, 9, [])), partition.new_batch(Fetched(9, 11, []))]
        agents = [asyncio.create_task(partition.process(batch)) for batch in batches]
        await asyncio.sleep(0.01)
        assert (partition.dump()["in_flight"], partition.step) == (2, "schemas")
        partition.interrupt(Stalled("no progress"))
        await asyncio.gather(*agents)
        assert partition.idle
        while partition.state is not State.RUNNING:  # noqa: ASYNC110 - as above
            await asyncio.sleep(0.01)
    assert (partition.position, partition.step) == (7, "fetch")
    agent = asyncio.create_task(partition.process(partition.new_batch(Fetched(7, 9, []))))
    await asyncio.sleep(0.01)
    agent.cancel()
    with pytest.raises(asyncio.CancelledError):
        await agent
    await partition.revoke()
    assert not fatal
