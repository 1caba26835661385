"""A worker dies or sleeps at an exact point of the protocol; afterwards nothing is lost or doubled.

What a pass does not prove: that these are all the points, or that two faults at once do no harm.
"""

from __future__ import annotations

import asyncio
import signal

import pytest

from tests.faults.gate import Gate

KILLS = [
    "kill-before-persist",
    "kill-inside-persist",
    "kill-after-persist",
    "kill-inside-emit",
    "kill-before-commit",
    "kill-after-commit",
]


@pytest.mark.timeout(180)
@pytest.mark.parametrize("act", KILLS)
async def test_killed_at_a_point(gate: Gate, act: str) -> None:
    """SIGKILL at a numbered step: the next worker goes on, and G1 to G3 hold."""
    await gate.publish()
    victim = await gate.worker(act, nth=4)
    await victim.acted()
    assert await victim.ended() == -signal.SIGKILL
    successor = await gate.worker()
    await gate.drain()
    assert await successor.stop() == 0
    await gate.prove()


@pytest.mark.timeout(180)
async def test_owed_events_come_from_the_database(gate: Gate) -> None:
    """Killed between persist and emit: what is owed is emitted from the database, and said."""
    await gate.publish()
    victim = await gate.worker("kill-after-persist", nth=3)
    await victim.acted()
    await victim.ended()
    successor = await gate.worker()
    await gate.drain()
    assert "emitting_owed" in successor.text()
    await gate.prove()


@pytest.mark.timeout(180)
async def test_stopped_inside_the_database_transaction(gate: Gate) -> None:
    """A worker stopped for good inside its transaction, with locks held and never resumed: another
    takes its partitions, and the rest, over."""
    await gate.publish()
    sleeper = await gate.worker("stop-inside-persist", nth=3)
    await sleeper.acted()
    successor = await gate.worker()
    await gate.drain()
    assert sleeper.running
    assert await successor.stop() == 0
    await gate.prove()


@pytest.mark.timeout(180)
@pytest.mark.parametrize("act", ["stop-after-persist", "stop-inside-emit", "stop-inside-persist"])
async def test_paused_past_the_session_timeout_and_resumed(gate: Gate, act: str) -> None:
    """A zombie that wakes up after another owner has finished its work can neither write nor emit,
    and takes part again as a good member."""
    await gate.publish()
    zombie = await gate.worker(act, nth=3)
    await zombie.acted()
    successor = await gate.worker()
    await gate.drain()
    zombie.send(signal.SIGCONT)
    await asyncio.sleep(3)
    await gate.publish()
    await gate.drain()
    assert await successor.stop() == 0
    await gate.publish()
    await gate.drain()
    assert zombie.running
    await gate.prove()


@pytest.mark.timeout(240)
async def test_two_workers_killed_and_paused_at_random(gate: Gate) -> None:
    """Two workers under load, one of them killed or paused again and again at moments from a fixed
    seed: nothing is lost or doubled."""
    import random

    chance = random.Random(20261130)
    await gate.publish(2_000)
    steady = await gate.worker()
    for _ in range(5):
        other = await gate.worker()
        await asyncio.sleep(chance.uniform(1.0, 4.0))
        if chance.random() < 0.5:
            other.send(signal.SIGKILL)
            await other.ended()
        else:
            other.send(signal.SIGSTOP)
    await gate.drain()
    assert steady.running
    await gate.prove()
