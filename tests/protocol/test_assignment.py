"""Assignment while others move the cursors too."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import pytest

from connectors.errors import OwnershipLost
from connectors.memory import MemoryBroker, MemoryEmitter, MemoryLedger
from schemas.envelope import Record
from schemas.record_types import RECORD_TYPES
from streams import batch as steps
from streams.assignment import assign
from tests.protocol.worlds import GROUP, MemoryWorld

PAYROLL = RECORD_TYPES["payroll"]
REQUESTS = (
    (MemoryEmitter, "start"),
    (MemoryEmitter, "committed"),
    (MemoryLedger, "deployment"),
    (MemoryLedger, "take"),
    (MemoryBroker, "cluster_id"),
    (MemoryBroker, "log_range"),
    (MemoryLedger, "active_decision_set"),
)
"""What every assignment asks, in its order."""


async def _one_batch(world: MemoryWorld) -> None:
    """An owner takes the partition, decides what there is and emits it."""
    ports = world.ports
    owner = await assign(ports, world.topic, 0)
    fetched = world.broker.read(world.topic, 0, owner.next_offset, 10)
    assert fetched is not None
    decided = steps.decide(fetched, PAYROLL, owner.source, owner.decision_set, {})
    persisted = await steps.persist(
        ports.ledger, PAYROLL, owner.source, GROUP, owner.token, decided
    )
    await steps.emit(owner.emitter, owner.deployment, owner.source, persisted)


class Sleep:
    """Makes the first to ask something fall asleep, before the question or after the answer."""

    def __init__(self, kind: type, name: str, *, after: bool) -> None:
        self.asleep, self.wake = asyncio.Event(), asyncio.Event()
        self._original: Any = getattr(kind, name)
        self._after = after

    async def __call__(self, *arguments: object) -> object:
        if self.asleep.is_set():
            return await self._original(*arguments)
        if not self._after:
            await self._sleep()
            return await self._original(*arguments)
        answer = await self._original(*arguments)
        await self._sleep()
        return answer

    async def _sleep(self) -> None:
        self.asleep.set()
        await self.wake.wait()


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize(("kind", "name"), REQUESTS, ids=lambda one: getattr(one, "__name__", one))
@pytest.mark.parametrize("fresh", [True, False], ids=["fresh", "known"])
async def test_asleep_while_another_owner_moves_both_cursors(
    monkeypatch: pytest.MonkeyPatch, kind: type, name: str, *, after: bool, fresh: bool
) -> None:
    """An owner that sleeps anywhere inside assignment, while another takes the partition, decides
    and emits, does not take what it wakes up to for a database set back: nothing stops, at most it
    is no owner any more, and who assigns next goes on at the end."""
    world = MemoryWorld(PAYROLL)
    await world.publish([Record(0, b"{")])
    if not fresh:
        await _one_batch(world)
    sleep = Sleep(kind, name, after=after)

    async def asked(*arguments: object) -> object:
        return await sleep(*arguments)

    monkeypatch.setattr(kind, name, asked)
    sleeper = asyncio.create_task(assign(world.ports, world.topic, 0))
    await sleep.asleep.wait()
    await world.publish([Record(0, b"[")])
    await _one_batch(world)
    sleep.wake.set()
    with suppress(OwnershipLost):
        await sleeper
    assert world.ledger.stop_mark is None
    assert (await assign(world.ports, world.topic, 0)).next_offset == 2
