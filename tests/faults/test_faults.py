"""Each fault of the catalogue a few times, under load: nothing lost, doubled or misjudged.

`python -m tests.faults` injects them hundreds of times. What a pass does not prove: that two
different faults at once do no harm; the simulation looks for that.
"""

from __future__ import annotations

import pytest

from tests.faults.arena import Fault, Outcome, act_out, arena_at
from tests.faults.catalogue import FAULTS
from tests.faults.gate import Gate

SEED = 20_261_205
TIMES = 2


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
async def test_nothing_is_lost_or_doubled(gate: Gate, fault: Fault) -> None:
    """One round of the fault, then everything has its one verdict and its one event."""
    outcome = Outcome()
    async with arena_at(gate) as arena:
        await act_out(arena, fault, SEED, rounds=1, times=TIMES, outcome=outcome)
    assert outcome.harm.none, outcome.harm
    assert outcome.injections == TIMES
