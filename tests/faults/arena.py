"""Workers under load behind proxies, and what a fault needs to harm them again and again.

A round: records are being published while a fault is injected some times at moments drawn from the
seed; then the fault is over, dead workers are replaced, and the time is taken until everything that
was published has its verdict and its event.
"""

from __future__ import annotations

import asyncio
import random
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field

from aiokafka.errors import KafkaConnectionError

from schemas.record_types import RECORD_TYPES
from streams.demo.proof import prove
from streams.demo.reading import look
from tests.connectors.proxy import KafkaProxy, Proxy, proxied, proxied_kafka
from tests.faults.gate import Gate, Harmed
from tests.faults.harm import Harm, harm_of

HEAL_DEADLINE_S = 120.0
PAUSE_S = 0.4
"""Most time between two injections of a round."""
LOAD = 120
"""Records published during a round, in parts."""
PARTS = 6


class Arena:
    """What a fault is given."""

    def __init__(
        self, gate: Gate, postgres: Proxy, dsn: str, kafka: KafkaProxy, bootstrap: str
    ) -> None:
        self.gate = gate
        self.postgres = postgres
        """Between the workers and PostgreSQL."""
        self.kafka = kafka
        """Between the workers and Kafka."""
        self._dsn = dsn
        self._bootstrap = bootstrap
        self.wanted = 2
        """Workers to keep."""
        self.settings: dict[str, object] = {}
        """Settings of workers started from now on."""

    @property
    def workers(self) -> list[Harmed]:
        """Those that have not ended."""
        return [worker for worker in self.gate.workers if worker.running]

    async def start_worker(self, act: str | None = None, nth: int = 1) -> Harmed:
        """One more worker, behind the proxies."""
        return await self.gate.worker(
            act, nth, dsn=self._dsn, bootstrap=self._bootstrap, **self.settings
        )

    async def keep_workers(self) -> None:
        """Replace those that have ended."""
        while len(self.workers) < self.wanted:
            await self.start_worker()

    async def busy(self) -> None:
        """Wait until a worker has decided something since now."""
        before = await self.gate.decided()
        ends_s = time.monotonic() + HEAL_DEADLINE_S
        while await self.gate.decided() <= before:
            assert time.monotonic() < ends_s, "no worker decides anything"
            await asyncio.sleep(0.05)

    async def publish(self) -> None:
        """The load of a round; a publisher that finds no broker tries again later."""
        parts = 0
        while parts < PARTS:
            try:
                await self.gate.publish(LOAD // PARTS)
                parts += 1
            except KafkaConnectionError:
                await asyncio.sleep(PAUSE_S)
            await asyncio.sleep(PAUSE_S / 2)


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault that can be injected into workers under load, again and again."""

    name: str
    how: str
    """How it is injected, for the table."""
    inject: Callable[[Arena, random.Random], Awaitable[None]]
    """Injects it once; when it returns, the world is whole again, except for dead workers."""
    rounds: int = 5
    """In a whole campaign."""
    times: int = 5
    """Injections in a round."""


@dataclass(slots=True)
class Outcome:
    """What a fault did."""

    injections: int = 0
    records: int = 0
    heals_s: list[float] = field(default_factory=list)
    harm: Harm = field(default_factory=Harm)


@asynccontextmanager
async def arena_at(gate: Gate) -> AsyncIterator[Arena]:
    """An arena around a prepared gate; its workers are ended before the proxies."""
    async with AsyncExitStack() as stack:
        postgres, dsn = await stack.enter_async_context(proxied(gate.database.worker_dsn))
        kafka, bootstrap = await stack.enter_async_context(proxied_kafka(gate.services.bootstrap))
        stack.push_async_callback(gate.finish)
        yield Arena(gate, postgres, dsn, kafka, bootstrap)


async def act_out(
    arena: Arena,
    fault: Fault,
    seed: int,
    rounds: int,
    times: int,
    outcome: Outcome,
) -> None:
    """Inject a fault `rounds` by `times` times; what came of it, read from topics and tables.

    Raises `AssertionError` when the gate does not heal; `outcome` then tells how far it came.
    """
    chance = random.Random(f"{seed}/{fault.name}")
    await arena.keep_workers()
    await arena.gate.publish(LOAD)
    await arena.gate.drain()
    outcome.records += LOAD
    for _ in range(rounds):
        async with asyncio.TaskGroup() as group:
            group.create_task(arena.publish())
            for _ in range(times):
                await asyncio.sleep(chance.uniform(0.0, PAUSE_S))
                await fault.inject(arena, chance)
                outcome.injections += 1
            over = time.monotonic()
            await arena.keep_workers()
        await arena.gate.drain(HEAL_DEADLINE_S)
        outcome.heals_s.append(time.monotonic() - over)
        outcome.records += LOAD
    for worker in arena.workers:
        worker.send(signal.SIGTERM)
    for name in RECORD_TYPES:
        seen = await look(arena.gate.outside, name)
        truths = arena.gate.placed.get(name, {})
        outcome.harm += harm_of(seen, truths)
        outcome.harm.failed += [
            f"{check.name}: {check.expected} / {check.found}"
            for check in prove(name, seen, truths)
            if not check.ok
        ]
