"""`python -m tests.faults [NAME ...] [--write]`: the table of faults, made on real servers.

First every fault of the catalogue, injected `rounds` by `times` into workers under load; then the
scripted faults, each a test that acts out one story. `--write` keeps the table in README.md here.
Exit code 1 when a record was lost, doubled or misjudged, when a gate did not heal, or when a script
failed.
"""

from __future__ import annotations

import argparse
import asyncio
import secrets
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree as ET

from tests.faults.arena import Fault, Outcome, act_out, arena_at
from tests.faults.catalogue import FAULTS, SCRIPTS
from tests.faults.gate import DVIRS, STATEMENTS, Gate, make_stock
from tests.faults.table import Row, Script, written
from tests.servers import TEMPLATE, Database, Services, cloned, dropped, make_template, run_apart

SEED = 20_261_205
ROOT = Path(__file__).parents[2]
README = Path(__file__).with_name("README.md")


def main() -> int:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("name", nargs="*", help="only these faults; none: all, and the scripts")
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--rounds", type=int, help="of each fault, instead of its own")
    parser.add_argument("--write", action="store_true", help="keep the table in README.md")
    chosen = parser.parse_args()
    known = {fault.name: fault for fault in FAULTS}
    if unknown := set(chosen.name) - known.keys():
        parser.error(f"no such fault: {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    say(f"seed {chosen.seed}")
    faults = [known[name] for name in chosen.name] or list(FAULTS)
    rows = _campaign(faults, chosen.seed, chosen.rounds)
    scripts = [] if chosen.name else _scripts()
    text = written(rows, scripts)
    say(text)
    if chosen.write:
        README.write_text(text, encoding="utf-8")
    return 0 if all(row.well for row in rows) and all(script.passed for script in scripts) else 1


def say(line: str) -> None:
    """A command talks to its user."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def _campaign(faults: Sequence[Fault], seed: int, rounds: int | None) -> list[Row]:
    services = Services()
    rows = []
    try:
        services.start()
        run_apart(make_template(services))
        for fault in faults:
            started = time.monotonic()
            row = _one(services, fault, seed, rounds or fault.rounds)
            rows.append(row)
            took_s = time.monotonic() - started
            say(f"{row.line}  [{sum(r.outcome.injections for r in rows)} in all; {took_s:.0f} s]")
            services.mend()
    finally:
        services.stop()
    return rows


def _one(services: Services, fault: Fault, seed: int, rounds: int) -> Row:
    name = f"t{secrets.token_hex(4)}"
    database = cloned(services, name, TEMPLATE)
    outcome = Outcome()
    error = ""
    try:
        with tempfile.TemporaryDirectory() as folder:
            asyncio.run(_act_out(services, database, Path(folder), fault, seed, rounds, outcome))
    except Exception as found:  # noqa: BLE001 - one fault that is not survived is a row
        traceback.print_exc()
        error = f"{type(found).__name__}: {found}"[:300]
    services.mend()
    dropped(services, name)
    return Row(fault, outcome, error)


async def _act_out(
    services: Services,
    database: Database,
    folder: Path,
    fault: Fault,
    seed: int,
    rounds: int,
    outcome: Outcome,
) -> None:
    stock = make_stock(seed, STATEMENTS * (rounds + 1) // 3, DVIRS * (rounds + 1) // 3)
    prefix = f"t{secrets.token_hex(3)}."
    gate = Gate(services, database, prefix, folder, stock=stock)
    await gate.prepare()
    try:
        async with arena_at(gate) as arena:
            await act_out(arena, fault, seed, rounds, fault.times, outcome)
    finally:
        await gate.finish()


def _scripts() -> list[Script]:
    """Run the tests that act out one story each."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:randomly", *SCRIPTS]
        subprocess.run([*command, f"--junitxml={report}"], cwd=ROOT, check=False)
        cases = ET.parse(report).iter("testcase")  # noqa: S314 - written by the line above
        return [Script.of(case) for case in cases]


if __name__ == "__main__":
    sys.exit(main())
