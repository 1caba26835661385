"""Faults of worker processes: killed, asleep, cut off; at random moments and exact points."""

from __future__ import annotations

import asyncio
import random
import signal

from tests.faults.arena import Arena, Fault
from tests.faults.gate import SESSION_TIMEOUT_MS

NAP_S = 0.2, 2.0


async def kill(arena: Arena, chance: random.Random) -> None:
    """SIGKILL to one of two to four workers, and others in its place."""
    arena.wanted = chance.randint(2, 4)
    victim = chance.choice(arena.workers)
    victim.send(signal.SIGKILL)
    await victim.ended()
    await arena.keep_workers()


async def kill_all(arena: Arena, chance: random.Random) -> None:
    """SIGKILL to two to four workers at once."""
    arena.wanted = chance.randint(2, 4)
    for victim in arena.workers:
        victim.send(signal.SIGKILL)
    for victim in arena.gate.workers:
        await victim.ended()
    await asyncio.sleep(chance.uniform(0.0, 0.5))
    await arena.keep_workers()


async def nap(arena: Arena, chance: random.Random) -> None:
    """SIGSTOP for less than the session timeout."""
    await _sleep(arena, chance, chance.uniform(*NAP_S))


async def oversleep(arena: Arena, chance: random.Random) -> None:
    """SIGSTOP past the session timeout: another owns the partitions when it wakes up."""
    await _sleep(arena, chance, SESSION_TIMEOUT_MS / 1000 + chance.uniform(0.5, 3.0))


async def _sleep(arena: Arena, chance: random.Random, seconds: float) -> None:
    sleeper = chance.choice(arena.workers)
    sleeper.send(signal.SIGSTOP)
    await asyncio.sleep(seconds)
    sleeper.send(signal.SIGCONT)


async def join_and_leave(arena: Arena, chance: random.Random) -> None:
    """One worker more for a moment, then SIGTERM: two rebalances under load."""
    guest = await arena.start_worker()
    await guest.says("worker_started")
    await asyncio.sleep(chance.uniform(0.0, 2.0))
    assert await guest.stop() == 0, guest.text()[-3000:]


PROCESS_FAULTS = (
    Fault("worker-killed", "SIGKILL at a random moment, one of two to four", kill, 10, 4),
    Fault("workers-all-killed", "SIGKILL to all workers at once", kill_all, 5, 3),
    Fault("worker-asleep", "SIGSTOP for 0.2 to 2 s, then SIGCONT", nap, 6, 5),
    Fault("worker-asleep-too-long", "SIGSTOP past the session timeout, SIGCONT", oversleep, 4, 2),
    Fault("rebalance", "a worker joins, and leaves by SIGTERM", join_and_leave, 4, 3),
)
