"""The simulated world: its clock, its processes, and the way of every request to a service.

A request goes there, is done, and is answered; on either way the asking process may be killed or
paused, the request or its answer may be lost or late, the service may be away.
"""

from __future__ import annotations

import asyncio
import hashlib
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from contextvars import Context
from typing import TypeVar

from connectors.errors import (
    BrokerUnavailable,
    DatabaseTimeout,
    DatabaseUnavailable,
    InfrastructureError,
    SchemaStoreUnavailable,
)
from tests.simulation.loop import PROCESS, Process, SeededLoop
from tests.simulation.plan import FOCUS, Plan

T = TypeVar("T")

OUTSIDE = Context()
"""The context of brokers and the database: no process's death ends what runs in it."""
UNAVAILABLE: dict[str, tuple[type[InfrastructureError], ...]] = {
    "database": (DatabaseUnavailable, DatabaseTimeout),
    "kafka": (BrokerUnavailable,),
    "schemas": (SchemaStoreUnavailable,),
}
OUTAGE_S = (0.2, 8.0)
PAUSE_S = (0.1, 12.0)
SLOW_S = (0.2, 8.0)
HANG_MAX_S = 3.0
"""Every real port gives an unanswered request up within a deadline of its own."""
NOTICE_S = 0.5
"""How long the outside may take to notice that a process is gone."""


class World:
    """Time, chance, trace and processes of one run."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.chance = random.Random(f"run {plan.seed}")
        self.loop = SeededLoop(self.chance)
        self.trace: list[str] = []
        self.owed = 0
        """Batches emitted from the database."""
        self._hash = hashlib.sha256()
        self.covered: Counter[tuple[str, str]] = Counter()
        """How often which fault struck at which point."""
        self.failures: list[str] = []
        """What must never happen and did."""
        self.processes: list[Process] = []
        self.calm = False
        """Whether faults have stopped."""
        self.over = False
        self._away_until_s: dict[str, float] = {}
        self._passes = 0

    @property
    def now_s(self) -> float:
        return asyncio.get_running_loop().time()

    def note(self, text: str) -> None:
        """One line of the trace."""
        process = PROCESS.get()
        who = "outside" if process is None else process.name
        line = f"{self.now_s:9.4f} {who:9} {text}"
        self.trace.append(line)
        self._hash.update(line.encode())

    def log(self, text: str) -> None:
        """A line of the gate's own log: to be read, no part of the digest. Whoever ran before in
        this process may have sent logs elsewhere."""
        self.trace.append(f"{' ' * 20}| {text}")

    def fail(self, what: str) -> None:
        """Something happened that must not."""
        self.note(f"FAILURE {what}")
        self.failures.append(what)

    def digest(self) -> str:
        """SHA-256 of what was noted: equal for equal seeds."""
        return self._hash.hexdigest()

    # -- processes ---------------------------------------------------------------------------------

    def process(self) -> Process:
        """A new process."""
        made = Process(f"worker-{len(self.processes)}")
        self.processes.append(made)
        return made

    def kill(self, process: Process) -> None:
        """SIGKILL: nothing of it runs any more; the outside notices after a while."""
        if not process.alive:
            return
        self.note(f"killed: {process.name}")
        process.alive = False
        for noticed in process.on_death:
            self.later(self.chance.uniform(0.0, NOTICE_S), noticed)

    def pause(self, process: Process, seconds: float) -> None:
        """SIGSTOP, and SIGCONT after a while: what it held it goes on to hold."""
        if process.alive and not process.paused:
            self.note(f"paused: {process.name} for {seconds:.2f} s")
            process.paused, process.paused_at_s = True, self.now_s
            self.later(seconds, self._resume, process)

    def _resume(self, process: Process) -> None:
        if process.alive and process.paused:
            self.note(f"resumed: {process.name}")
            self.loop.resume(process)

    def later(self, seconds: float, call: Callable[..., object], *args: object) -> None:
        """Have the outside do something after a while, whoever lives then."""
        asyncio.get_running_loop().call_later(seconds, call, *args, context=OUTSIDE)

    # -- requests ----------------------------------------------------------------------------------

    async def ask(self, service: str, point: str, do: Callable[[], Awaitable[T]]) -> T:
        """A request to a service. Raises what the service raises when it cannot be asked."""
        if self.over:
            return await do()
        await self._way(service, point, "before")
        found = await do()
        await self._way(service, point, "after")
        return found

    async def at_once(self, service: str, point: str, do: Callable[[], T]) -> T:
        """The same, of something that the service does in one go."""

        async def done() -> T:
            return do()

        return await self.ask(service, point, done)

    async def _way(self, service: str, point: str, side: str) -> None:
        await asyncio.sleep(self._latency_s())
        if self.over:
            return
        place = f"{side} {point}"
        for kind in ("crash", "pause", "slow"):
            if self.happens(kind, place):
                await self._befall(kind)
        if side == "after":
            if self.happens("lost_reply", place):
                raise self._unavailable(service, point, "the answer was lost")
            return
        if self.happens("outage", place):
            self.outage(service, self.chance.uniform(*OUTAGE_S))
        if self.happens("fail", place):
            raise self._unavailable(service, point, "failed")
        await self._if_away(service, point)

    def _latency_s(self) -> float:
        mean_s = self.plan.latency_s
        if mean_s == 0.0 or self.chance.random() < 0.3:
            return 0.0
        return self.chance.expovariate(1 / mean_s)

    def happens(self, kind: str, place: str) -> bool:
        """Whether this fault strikes here and now."""
        if self.calm or not (self._strikes(kind, place) or self._by_chance(kind, place)):
            return False
        self.covered[place, kind] += 1
        self.note(f"{kind} {place}")
        return True

    def _strikes(self, kind: str, place: str) -> bool:
        strike = self.plan.strike
        if strike is None or (strike.kind, strike.place) != (kind, place):
            return False
        self._passes += 1
        return self._passes == strike.nth

    def _by_chance(self, kind: str, place: str) -> bool:
        rate = self.plan.rates.get(kind, 0.0)
        if rate and place.rpartition(" ")[2] in self.plan.focus:
            rate *= FOCUS
        return rate > 0.0 and self.chance.random() < rate

    async def _befall(self, kind: str) -> None:
        process = PROCESS.get()
        if kind == "slow":
            await asyncio.sleep(self.chance.uniform(*SLOW_S))
        elif process is not None and kind == "crash":
            self.kill(process)
            await asyncio.sleep(0)  # and never again
        elif process is not None:
            self.pause(process, self.chance.uniform(*PAUSE_S))
            await asyncio.sleep(0)

    def outage(self, service: str, seconds: float) -> None:
        """The service is away for a while."""
        self.note(f"away: {service} for {seconds:.2f} s")
        self._away_until_s[service] = max(
            self._away_until_s.get(service, 0.0), self.now_s + seconds
        )

    async def _if_away(self, service: str, point: str) -> None:
        left_s = self._away_until_s.get(service, 0.0) - self.now_s
        if left_s <= 0:
            return
        if self.chance.random() < 0.5:  # not refused at once, but never answered
            await asyncio.sleep(min(left_s, self.chance.uniform(0.0, HANG_MAX_S)))
        raise self._unavailable(service, point, "is away")

    def _unavailable(self, service: str, point: str, why: str) -> InfrastructureError:
        return self.chance.choice(UNAVAILABLE[service])(f"{service}, {point}: {why}")

    def begin_calm(self) -> None:
        """No fault from here on; what is paused goes on, what is away comes back."""
        self.note("calm")
        self.calm = True
        self._away_until_s = {}
        for process in self.processes:
            self._resume(process)
