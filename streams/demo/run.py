"""The demo from start to end: publish, weigh, crash, weigh on, prove.

start services ▸ migrate, topics ▸ publish ▸ worker ▸ SIGKILL half-way ▸ worker again ▸ drain
▸ SIGTERM ▸ read topics and tables from outside ▸ compare with what was known before
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import asyncpg
from aiokafka.errors import KafkaError
from rich.console import Console

from connectors.errors import Stop, WeighbridgeError
from schemas.record_types import RECORD_TYPES
from streams.demo import report
from streams.demo.generate import DVIRS, SEED, STATEMENTS, generate
from streams.demo.proof import prove, summarise
from streams.demo.publishing import Placed, publish
from streams.demo.reading import look
from streams.demo.report import Outcome
from streams.demo.site import Site, log_kept, open_site
from streams.demo.worker_process import Standing, Watch, WorkerProcess
from streams.progress import record_progress
from streams.settings import Settings

BATCHES = 50
"""In how many batches the records go through, about; many, so that the kill strikes amid them."""
BATCH_RECORDS = range(20, 500)
"""Smallest and largest batch asked for."""
POLL_S = 0.02
STALL_S = 90.0
"""No progress for so long is a failure: joining the group after a crash takes ten seconds."""


@dataclass(frozen=True, slots=True)
class Options:
    """What the command was asked for."""

    statements: int = STATEMENTS
    dvirs: int = DVIRS
    seed: int = SEED
    keep: bool = False

    @property
    def records(self) -> int:
        """All of them."""
        return self.statements + self.dvirs


def run_demo(settings: Settings, options: Options, console: Console) -> Outcome:
    """Run it all; what cannot hold any more after a failure is a check that does not hold.

    Raises `ConfigurationError` when it cannot begin, `KeyboardInterrupt` when told to stop; either
    way nothing is left running, unless it is to be kept.
    """
    began_s = time.monotonic()
    with _sigterm_as_ctrl_c(), open_site(settings, console, keep=options.keep) as site:
        outcome = Outcome()
        batch_records = min(
            max(options.records // BATCHES, BATCH_RECORDS.start), BATCH_RECORDS.stop
        )
        site.prepare(batch_records)
        try:
            asyncio.run(_demo(site, options, console, outcome))
        except (WeighbridgeError, KafkaError, asyncpg.PostgresError, OSError) as error:
            # A driver's own text may quote values; ours says what to do.
            said = f": {error}" if isinstance(error, WeighbridgeError) else ""
            console.print(f"{type(error).__name__}{said}", style="red", markup=False)
            outcome.add("ran_to_its_end", expected="yes", found=type(error).__name__, ok=False)
        outcome.pace.total_s = time.monotonic() - began_s
        report.show(console, outcome)
        if not outcome.ok and not options.keep:
            console.print(f"the worker's log: {log_kept(site.folder)}")
        if options.keep:
            report.look_around(console, site)
        report.show_verdict(console, outcome)
    return outcome


async def _demo(site: Site, options: Options, console: Console, outcome: Outcome) -> None:
    placed = await _publish(site, options, console, outcome)
    worker = WorkerProcess(site.folder)
    try:
        async with Watch(site.outside, site.topics) as watch:
            await _weigh(worker, watch, options.records, console, outcome)
        code = await worker.stop()
    finally:
        await worker.abandon()
    outcome.add(
        "worker_stops_in_order", expected="exit code 0", found=f"exit code {code}", ok=code == 0
    )
    with console.status("reading topics and tables from outside"):
        for name in RECORD_TYPES:
            seen = await look(site.outside, name)
            outcome.summaries.append(summarise(name, seen))
            outcome.checks += prove(name, seen, placed.get(name, {}))


async def _publish(site: Site, options: Options, console: Console, outcome: Outcome) -> Placed:
    """All records, acknowledged; from the seed and the hour."""
    as_of = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
    console.print(
        f"seed {options.seed}, as of {as_of:%Y-%m-%d %H:%M} UTC: {options.statements:,} statements"
        f" and {options.dvirs:,} DVIRs"
    )
    records = generate(as_of, seed=options.seed, statements=options.statements, dvirs=options.dvirs)
    began_s = time.monotonic()
    with record_progress(console, "publishing", options.records) as progress:
        placed = await publish(site.kafka_bootstrap, site.topic_prefix, records, progress)
    outcome.pace.publish_s = time.monotonic() - began_s
    return placed


async def _weigh(
    worker: WorkerProcess, watch: Watch, records: int, console: Console, outcome: Outcome
) -> None:
    """Run the worker, kill it half-way, run it again until nothing is left."""
    await worker.start()
    gate = _Gate(worker, watch, records, console, outcome)
    await gate.until("weighing", lambda decided: decided >= records // 2)
    pid = await worker.kill()
    standings = await watch.standings()
    _show_kill(console, pid, standings, records)
    await worker.start()
    await gate.until("weighing on", lambda decided: decided >= records)
    await gate.drain()
    console.print(
        f"made good from the database after the crash: {worker.owed_partitions} partitions"
    )
    left = [s for s in await watch.standings() if not watch.drained([s])]
    outcome.add(
        "decided_and_emitted_to_the_end",
        expected="all partitions",
        found=f"{len(left)} left" if left else "all partitions",
        ok=not left,
    )


def _show_kill(console: Console, pid: int, standings: Sequence[Standing], records: int) -> None:
    """Where the crash struck: what was decided, and what of it was not yet emitted."""
    decided = sum(s.records_in for s in standings)
    owed = [s for s in standings if s.emitted < s.decided]
    console.print(
        f"[bold red]SIGKILL[/] to the worker (pid {pid}): {decided:,} of {records:,} decided; "
        + (
            f"in {len(owed)} partitions verdicts are durable whose events are not out yet"
            if owed
            else "every verdict's event is out"
        )
    )


class _Gate:
    """Watches the worker work, and how long it does."""

    def __init__(
        self,
        worker: WorkerProcess,
        watch: Watch,
        records: int,
        console: Console,
        outcome: Outcome,
    ) -> None:
        self._worker, self._watch = worker, watch
        self._records, self._console, self._outcome = records, console, outcome
        self._decided = 0

    async def until(self, what: str, reached: Callable[[int], bool]) -> None:
        """Wait until so many records are decided. Raises `Stop` on a stall, `WorkerEnded`."""
        before = self._decided
        moving_since_s: float | None = None
        moved_s = time.monotonic()
        with record_progress(self._console, what, self._records) as progress:
            while not reached(self._decided):
                self._worker.check()
                await asyncio.sleep(POLL_S)
                decided = await self._watch.records_in()
                if decided > self._decided:
                    self._decided, moved_s = decided, time.monotonic()
                    moving_since_s = moving_since_s or moved_s
                    progress(decided)
                _check_stall(moved_s)
        if moving_since_s is not None and self._decided > before:
            self._outcome.pace.gate_s += max(moved_s - moving_since_s, POLL_S)

    async def drain(self) -> None:
        """Wait until the emitted cursor has followed the decided one everywhere."""
        began_s = time.monotonic()
        while not self._watch.drained(await self._watch.standings()):
            self._worker.check()
            _check_stall(began_s)
            await asyncio.sleep(POLL_S)
        self._outcome.pace.gate_s += time.monotonic() - began_s


def _check_stall(moved_s: float) -> None:
    if time.monotonic() - moved_s > STALL_S:
        message = f"no progress for {STALL_S:.0f} s"
        raise Stop(message)


# Being told to stop -------------------------------------------------------------------------------


@contextlib.contextmanager
def _sigterm_as_ctrl_c() -> Iterator[None]:
    """SIGTERM does what Ctrl-C does: inside the event loop it cancels, outside it interrupts."""
    before = signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
