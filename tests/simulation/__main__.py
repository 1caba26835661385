"""`python -m tests.simulation SEED [--trace]`: replay one seed. Exit code 1 if a guarantee broke.

`python -m tests.simulation --first N --count M`: run many.
"""

from __future__ import annotations

import argparse
import sys

from tests.simulation.run import Result, simulate


def main() -> int:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("seed", type=int, nargs="?", help="the seed to replay")
    parser.add_argument("--trace", action="store_true", help="print all that happened")
    parser.add_argument("--first", type=int, default=0, help="the first of many seeds")
    parser.add_argument("--count", type=int, default=100, help="how many seeds")
    chosen = parser.parse_args()
    many = range(chosen.first, chosen.first + chosen.count)
    failed = 0
    for seed in many if chosen.seed is None else [chosen.seed]:
        found = simulate(seed)
        failed += bool(found.failures)
        if chosen.trace:
            print(*found.trace, sep="\n")  # noqa: T201 - a command talks to its user
        if found.failures or chosen.seed is not None:
            print(told(found))  # noqa: T201 - as above
    if chosen.seed is None:
        print(f"{len(many)} seeds, {failed} failed")  # noqa: T201 - as above
    return 1 if failed else 0


def told(found: Result) -> str:
    """A result in a few lines."""
    head = (
        f"seed {found.seed}: {found.records} records, {found.simulated_s:.1f} s simulated, "
        f"{found.steps} steps, trace {found.digest[:12]}"
    )
    lines = [head]
    lines += [f"  FAILED {failure}" for failure in found.failures]
    if found.failures:
        lines.append(f"  replay: python -m tests.simulation {found.seed} --trace")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
