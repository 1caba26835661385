"""The protocol under faults from a seed: G1 to G5 after each, and rest once faults have stopped.

What a pass does not prove: that real servers behave as the simulated ones do. `tests/connectors`
runs one suite on both, `tests/faults` breaks the real ones.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.simulation.__main__ import told
from tests.simulation.mutations import MUTATIONS, SEEDS, first_to_notice
from tests.simulation.plan import EVENTS, POINTS, Strike
from tests.simulation.regressions import REGRESSIONS, Regression
from tests.simulation.run import Result, simulate

BLOCK = 25
BLOCKS = 12
NIGHTLY_BLOCK = 500
NIGHTLY_BLOCKS = 16
NIGHTLY_FIRST = 10_000
STRIKE_SEEDS = 40
"""Within so many worlds every request of the protocol is made."""


def _holds(seeds: Sequence[int]) -> list[Result]:
    """Run seeds; fails with what each failed one takes to replay it, and the end of its trace."""
    results = [simulate(seed) for seed in seeds]
    failed = [r for r in results if r.failures]
    if failed:
        lines = [told(r) for r in failed]
        pytest.fail("\n".join([*lines, "...", *failed[0].trace[-60:]]), pytrace=False)
    return results


def _blocks(first: int, size: int, count: int) -> list[range]:
    return [range(at, at + size) for at in range(first, first + size * count, size)]


@pytest.mark.parametrize("seeds", _blocks(0, BLOCK, 2), ids=str)
def test_guarantees_hold(seeds: range) -> None:
    """Whatever goes wrong: one verdict per record, the oracle's; one row per key; every event once
    and in order; nothing quarantined because of a fault; rest once faults have stopped."""
    results = _holds(seeds)
    assert sum(r.records for r in results) > 100
    assert any(r.owed for r in results)


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_guarantees_hold_in_more_runs_and_every_kind_of_fault_strikes() -> None:
    """The same over more seeds; among them every kind of fault and of event has struck."""
    covered: Counter[tuple[str, str]] = Counter()
    for result in _holds(range(2 * BLOCK, BLOCKS * BLOCK)):
        covered += result.covered
    kinds = {kind for _, kind in covered}
    assert {"crash", "pause", "fail", "slow", "lost_reply", "outage"} <= kinds
    assert {("event", name) for name in EVENTS} <= covered.keys()


@pytest.mark.nightly
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seeds", _blocks(NIGHTLY_FIRST, NIGHTLY_BLOCK, NIGHTLY_BLOCKS), ids=str)
def test_guarantees_hold_in_thousands_of_runs(seeds: range) -> None:
    """The same, over thousands of seeds."""
    assert len(_holds(seeds)) == NIGHTLY_BLOCK


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind", ["crash", "lost_reply", "fail", pytest.param("pause", marks=pytest.mark.nightly)]
)
def test_every_request_is_struck(kind: str) -> None:
    """A crash, a pause or a lost answer at every single request of the protocol, on its way there
    and on its way back, and nothing else: all guarantees hold."""
    sides = {"crash": ("before", "after"), "pause": ("before", "after")}.get(
        kind, ("after",) if kind == "lost_reply" else ("before",)
    )
    missed = []
    for side in sides:
        for point in (p for of in POINTS.values() for p in of):
            place = f"{side} {point}"
            if not any(_struck(seed, Strike(kind, place)) for seed in range(STRIKE_SEEDS)):
                missed.append(place)
    assert missed == []


def _struck(seed: int, strike: Strike) -> bool:
    """Whether the fault came to strike; fails if it did harm."""
    found = simulate(seed, strike)
    assert not found.failures, f"{strike}\n{told(found)}"
    return bool(found.covered[strike.place, strike.kind])


@pytest.mark.parametrize("regression", REGRESSIONS, ids=lambda r: str(r.seed))
def test_regression(regression: Regression) -> None:
    """A seed that once found something finds it no more."""
    assert _holds([regression.seed]), regression.found


def test_a_seed_is_one_run() -> None:
    """The same seed gives the same trace, and another seed another one."""
    digests = {seed: simulate(seed).digest for seed in range(8)}
    assert {seed: simulate(seed).digest for seed in range(8)} == digests
    assert len(set(digests.values())) == len(digests)


def test_a_seed_is_one_run_in_any_process() -> None:
    """Nothing depends on the process: neither on its hashes nor on what ran in it before."""
    said = {_replayed(seed=3, hash_seed=hash_seed) for hash_seed in ("1", "2")}
    assert said == {told(simulate(3))}


def _replayed(seed: int, hash_seed: str) -> str:
    command = [sys.executable, "-m", "tests.simulation", str(seed)]
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    done = subprocess.run(
        command,
        cwd=Path(__file__).parents[2],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


@pytest.mark.slow
@pytest.mark.parametrize("name", MUTATIONS)
def test_a_broken_protocol_is_noticed(name: str) -> None:
    """The simulation bites: with any one rule of the protocol broken, some seed fails."""
    found = first_to_notice(MUTATIONS[name], range(SEEDS))
    assert found is not None, f"{SEEDS} seeds, and none noticed: {MUTATIONS[name].__doc__}"
