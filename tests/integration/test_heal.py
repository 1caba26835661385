"""A database set back to a copy is healed from the output topics, on real servers.

What a pass does not prove: that a database which went on after it was set back can be healed; that
is refused.
"""

from __future__ import annotations

import json
import random
import signal

import pytest

from tests.faults.gate import Gate
from tests.integration.healing import (
    harmed_heal,
    heal,
    past_of,
    run_worker_until_drained,
    stopped,
)

SEED = 20261201


@pytest.mark.timeout(150)
async def test_a_database_set_back_is_healed(gate: Gate) -> None:
    """Stopped workers, a dry run that changes nothing, a heal after which every row is as it was, a
    second heal that finds nothing, and a stream that goes on with nothing lost or repeated."""
    async with past_of(gate) as past:
        await gate.publish(400)
        await run_worker_until_drained(gate)
        await past.keep()
        await gate.publish(500)
        await run_worker_until_drained(gate)
        await past.set_back()
        await stopped(gate)
        before = await past.everything(past.name)

        tried = await heal(gate, "--dry-run", "--json")
        assert tried.code == 1, tried
        assert await past.everything(past.name) == before

        done = await heal(gate, "--why", "restored from the copy", "--json")
        assert done.code == 0, done
        await past.assert_healed()
        said, foretold = json.loads(done.out), json.loads(tried.out)
        assert said["partitions"] == foretold["partitions"]
        assert {p["topic"] for p in said["partitions"]} == set(gate.topics)
        for kind in ("committed", "quarantined", "decided_again"):
            assert sum(p[kind] for p in said["partitions"]) > 0
        assert said["stop_marks_cleared"] >= 1
        acts = await past.query(past.name, "SELECT * FROM operations ORDER BY number")
        assert [a["number"] for a in acts] == said["acts"]
        assert {(a["act"], a["who"], a["why"]) for a in acts} == {
            ("heal", "an operator", "restored from the copy")
        }

        healed = await past.everything(past.name)
        again = await heal(gate)
        assert (again.code, again.out.split("\n")[0]) == (0, "nothing to heal")
        assert await past.everything(past.name) == healed

        await gate.publish(300)
        await run_worker_until_drained(gate)
        await gate.prove()


@pytest.mark.timeout(150)
async def test_killed_at_any_moment(gate: Gate) -> None:
    """SIGKILL at each step of a heal: nothing has changed before its commit, all of it after; the
    next heal ends what is left to do. Set back to before its first batch, to make most of it."""
    chance = random.Random(SEED)
    async with past_of(gate) as past:
        await past.keep()
        await gate.publish(450)
        await run_worker_until_drained(gate)
        await past.set_back()
        before = await past.everything(past.name)
        for act, nth_max in (
            ("after-rows", 3),
            ("after-page", 4),
            ("after-act", 4),
            ("before-commit", 1),
        ):
            code = await harmed_heal(gate, act, chance.randint(1, nth_max))
            assert code == -signal.SIGKILL, act
            assert await past.everything(past.name) == before, act
        assert await harmed_heal(gate, "after-commit", 1) == -signal.SIGKILL
        await past.assert_healed()
        again = await heal(gate)
        assert (again.code, again.out.split("\n")[0]) == (0, "nothing to heal"), again
        await gate.publish(50)
        await run_worker_until_drained(gate)
        await gate.prove()
