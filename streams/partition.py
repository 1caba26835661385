"""One partition's life in this worker: assignment, then batch after batch.

    ASSIGNING ──▶ RUNNING ──▶ WAITING    something failed: back off, then assign again (G5)
      ▲ ▲  │         │          │
      │ │  └──▶ STOPPED ──┐     │        an operator must act; looked at again now and then
      │ └─────────────────┘     │
      └─────────────────────────┘        REVOKED ends it from any state

Steps 3 and 4 of a partition's batches run strictly in order, while the next batch may already be
fetched and decided. Any failure drops the batches queued behind it.
"""

from __future__ import annotations

import asyncio
import dataclasses
import random
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from enum import Enum

import structlog

from connectors.errors import (
    DatabaseTimeout,
    InfrastructureError,
    OwnershipLost,
    Stop,
    StopAll,
    invariant,
)
from connectors.ports import Fetched, Interventions, SchemaStore
from schemas.envelope import Source
from streams import batch as steps
from streams import set_aside
from streams.assignment import Ownership, Ports, assign
from streams.backoff import Backoff
from streams.batch import DecidedBatch, DecisionSetChanged, PersistedBatch
from streams.breaker import Breaker, Paused
from streams.set_aside import Alone

log = structlog.get_logger("weighbridge.partition")


class State(Enum):
    """Where a partition is in its life."""

    ASSIGNING = "assigning"
    RUNNING = "running"
    WAITING = "waiting"
    STOPPED = "stopped"
    REVOKED = "revoked"


LEGAL_MOVES: dict[State, frozenset[State]] = {
    State.ASSIGNING: frozenset({State.RUNNING, State.WAITING, State.STOPPED, State.REVOKED}),
    State.RUNNING: frozenset({State.WAITING, State.STOPPED, State.REVOKED}),
    State.WAITING: frozenset({State.ASSIGNING, State.REVOKED}),
    State.STOPPED: frozenset({State.ASSIGNING, State.REVOKED}),
    State.REVOKED: frozenset(),
}


@dataclass(frozen=True, slots=True)
class PartitionSettings:
    """Bounds of one partition's work; units last in the names."""

    assign_deadline_s: float = 60.0
    step_deadline_s: float = 45.0
    """Budget of one step 3 or step 4, above the database's own session timeouts."""
    backoff_first_s: float = 0.5
    backoff_max_s: float = 30.0
    stopped_retry_s: float = 30.0
    """How often a stopped partition looks whether the operator has acted."""
    revoke_grace_s: float = 3.0
    """How long a batch in flight may finish after the group took the partition away."""
    alone_max: int = 3
    """How often in a row one record alone may run out of time before the partition stops at it."""
    lost_max: int = 8
    """How often in a row, without one batch done, a partition may be fenced or refused while the
    group assigns it to this worker, before the worker leaves the group."""
    in_flight_batches_max: int = 2


@dataclass(slots=True)
class Batch:
    """What the pump hands to the agent: records of one partition in one of its assignments."""

    partition: Partition
    epoch: int
    """The assignment it was fetched in; a later assignment drops it."""
    turn: int
    """Its place among that assignment's batches, from 0."""
    fetched: Fetched


class Partition:
    """A raw partition that the group has assigned to this worker."""

    def __init__(
        self,
        topic: str,
        number: int,
        *,
        ports: Ports,
        schema_store: SchemaStore,
        settings: PartitionSettings,
        random_source: random.Random,
    ) -> None:
        self.source = Source(topic, number)
        self.state = State.ASSIGNING
        self.why = "assigned by the group"
        self.position = -1
        """Where fetching stands; -1 before the first assignment."""
        self.progressed_at_s = self.moved_at_s = _now_s()
        self._ports = ports
        self._schemas = schema_store
        self._settings = settings
        self._backoff = Backoff(settings.backoff_first_s, settings.backoff_max_s, random_source)
        self._ownership: Ownership | None = None
        self._epoch = 0
        self._turns_given = 0
        self._turns_done = 0
        self.in_flight = 0
        """Batches fetched and not done."""
        self._steps: dict[int, str] = {}
        """The step of each batch in flight, by turn."""
        self._working: set[asyncio.Task[None]] = set()
        self._breaker: Breaker | None = None
        self._alone = Alone()
        self._changed = asyncio.Condition()
        self._lost_in_a_row = 0
        self._task: asyncio.Task[None] | None = None

    # -- state -------------------------------------------------------------------------------------

    @property
    def ready(self) -> bool:
        """Whether the pump may fetch for it: bounded work in flight, nothing away (G5, G6)."""
        return self.state is State.RUNNING and self.in_flight < self._settings.in_flight_batches_max

    @property
    def idle(self) -> bool:
        """Whether nothing of it is in flight."""
        return self.in_flight == 0

    def _move(self, state: State, why: str, error: Exception | None = None) -> None:
        """Change state. Raises `InvariantViolation` for a move that is not in the table."""
        if state is not self.state:
            legal = state in LEGAL_MOVES[self.state]
            invariant(legal, f"{self.source}: {self.state.value} -> {state.value}")
            level = log.warning if error is not None else log.info
            self.moved_at_s = _now_s()
            level("partition_state", partition=str(self.source), state=state.value, why=why)
        self.state, self.why = state, why
        self._ports.observer.partition_state(self.source, state.value)
        self._ports.observer.paused(self.source, paused=isinstance(error, Paused))

    async def _notify(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    @property
    def step(self) -> str:
        """Where the oldest batch in flight is, for which those behind it wait; `fetch` when there
        is none."""
        return self._steps[min(self._steps)] if self._steps else "fetch"

    def dump(self) -> dict[str, object]:
        """Where everything stands, for a log line; no values."""
        return {
            "incarnation": self.source.incarnation,
            "state": self.state.value,
            "step": self.step,
            "position": self.position,
            "in_flight": self.in_flight,
            "epoch": self._epoch,
            "turns_given": self._turns_given,
            "turns_done": self._turns_done,
            "lost_in_a_row": self._lost_in_a_row,
        }

    # -- assignment --------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin assignment, as a task of its own."""
        self._task = asyncio.create_task(self._assign(), name=f"assign {self.source}")

    async def _assign(self) -> None:
        """Assign until RUNNING; back off while something is away, look again when STOPPED."""
        while self.state is not State.REVOKED:
            try:
                async with asyncio.timeout(self._settings.assign_deadline_s):
                    ownership = await assign(self._ports, self.source.topic, self.source.partition)
            except StopAll as stop:
                self._move(State.STOPPED, str(stop), stop)
                self._ports.observer.fatal(stop)
                return
            except Stop as stop:
                self._move(State.STOPPED, str(stop), stop)
                await asyncio.sleep(self._settings.stopped_retry_s)
                self._move(State.ASSIGNING, "looking whether the cause is gone")
            except (InfrastructureError, OwnershipLost, TimeoutError) as error:
                await self._wait(error)
                self._move(State.ASSIGNING, f"assigning again after {type(error).__name__}")
            except Exception as error:  # noqa: BLE001 - or the task would end unseen, for good
                self._ports.observer.fatal(error)
                return
            else:
                self._begin(ownership)
                return

    def _begin(self, ownership: Ownership) -> None:
        self._ownership = ownership
        self.source = ownership.source
        self.position = ownership.next_offset
        self._turns_given = self._turns_done = 0
        self._breaker = None if self._ports.breaker is None else Breaker(self._ports.breaker)
        self._move(State.RUNNING, f"reads on from offset {ownership.next_offset}")

    async def _wait(self, error: Exception) -> None:
        """Back off with jitter; nothing is fetched meanwhile (G5)."""
        delay_s = self._backoff.next_s()
        why = f"{type(error).__name__}: {error}"
        self._move(State.WAITING, why, error)
        self._ports.observer.waiting(self.source, why, delay_s)
        await asyncio.sleep(delay_s)

    async def _assign_again(self, error: Exception) -> None:
        """Drop what is in flight and become the owner anew, after a pause: with jitter, or after a
        `Stop` long enough for an operator to have acted."""
        await self._disown()
        self._lost_in_a_row += isinstance(error, OwnershipLost)
        if self._lost_in_a_row > self._settings.lost_max:
            message = (
                f"{self.source}: lost {self._lost_in_a_row} times in a row ({error}); "
                "leaving the group so that another worker can have it"
            )
            self._ports.observer.fatal(OwnershipLost(message))
            return
        if isinstance(error, Stop):
            await asyncio.sleep(self._settings.stopped_retry_s)
        else:
            await self._wait(error)
        self._move(State.ASSIGNING, f"assigning again after {type(error).__name__}")
        await self._assign()

    async def _disown(self) -> None:
        """End the present epoch: queued batches fall away, the emitter is thrown away."""
        self._epoch += 1
        self._steps.clear()
        ownership, self._ownership = self._ownership, None
        for work in self._working:
            work.cancel()  # what waits for something that does not come would wait for ever
        await self._notify()
        if ownership is not None:
            await ownership.emitter.close()

    async def revoke(self) -> None:
        """The group took the partition away. A batch in flight may finish within the grace; the
        next owner fences it anyway. Never raises."""
        if self.state is State.REVOKED:
            return
        self._move(State.REVOKED, "revoked by the group")
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        try:
            async with asyncio.timeout(self._settings.revoke_grace_s), self._changed:
                await self._changed.wait_for(lambda: self.in_flight == 0)
        except TimeoutError:
            log.warning("revoked_in_flight", partition=str(self.source), batches=self.in_flight)
        await self._disown()

    # -- batches -----------------------------------------------------------------------------------

    def new_batch(self, fetched: Fetched) -> Batch:
        """Register what the pump has fetched (step 1); the pump hands it to the agent."""
        self.in_flight += 1
        self.position = fetched.next_offset
        turn, self._turns_given = self._turns_given, self._turns_given + 1
        return Batch(self, self._epoch, turn, fetched)

    async def process(self, batch: Batch) -> None:
        """Steps 1 (second half) to 4 of a batch.

        Whatever fails, the batch and those behind it are dropped and the partition is assigned
        again, after a pause: nothing waits in here, so one partition's trouble holds no other up.
        Only broken invariants and a decision set this version cannot use escape.
        """
        work = asyncio.create_task(self._process(batch), name=f"batch of {self.source}")
        self._working.add(work)
        try:
            await work
        except asyncio.CancelledError:
            if not work.cancelled() or _is_cancelled():
                raise
            self._fail(batch, OwnershipLost("the batch was dropped"))
        except (Stop, OwnershipLost, InfrastructureError, TimeoutError) as error:
            self._fail(batch, error)
        finally:
            self._working.discard(work)
            if batch.epoch == self._epoch:
                self._steps.pop(batch.turn, None)
            self.in_flight -= 1
            await self._notify()

    def _fail(self, batch: Batch, error: Exception) -> None:
        """Whatever the fault, the cursors tell what happened: assign again, or stop."""
        if batch.epoch == self._epoch and self.state is not State.REVOKED:
            self._restart(error)

    def _restart(self, error: Exception) -> None:
        self._epoch += 1  # from here on nothing queued behind this batch may run
        if isinstance(error, StopAll):
            self._ports.observer.fatal(error)
        self._task = asyncio.create_task(
            self._assign_again(error), name=f"assign again {self.source}"
        )
        if self.state is State.RUNNING:
            state = State.STOPPED if isinstance(error, Stop) else State.WAITING
            self._move(state, f"{type(error).__name__}: {error}", error)

    def interrupt(self, error: Exception) -> None:
        """The pump cannot read this partition on, or it stalls: drop its work, assign it again."""
        if self.state is State.RUNNING:
            self._restart(error)

    async def _process(self, batch: Batch) -> None:
        decided = await self._decide(batch, batch.fetched)
        async with self._in_turn(batch) as current:
            if not current:
                return
            await self._persist_and_emit(batch, decided)

    @asynccontextmanager
    async def _in_turn(self, batch: Batch) -> AsyncIterator[bool]:
        """Wait until the batches before this one are done. Yields False if it is to be dropped."""
        async with self._changed:
            await self._changed.wait_for(
                lambda: batch.epoch != self._epoch or self._turns_done == batch.turn
            )
        yield batch.epoch == self._epoch
        if batch.epoch == self._epoch:
            self._turns_done += 1
            await self._notify()

    async def _decide(self, batch: Batch, fetched: Fetched) -> DecidedBatch:
        """Steps 1 (schemas) and 2, under the decision set we know to be in force."""
        ownership = self._owner(batch)
        self._enter("schemas", batch)
        wanted = set_aside.free(fetched.records, ownership.holds)
        schemas = await steps.resolve_schemas(self._schemas, wanted)
        started_s = time.perf_counter()
        decided = steps.decide(
            fetched,
            self._ports.record_type,
            ownership.source,
            ownership.decision_set,
            schemas,
            ownership.holds,
        )
        spent_s = time.perf_counter() - started_s
        self._ports.observer.decided(self.source, len(decided.decided), spent_s)
        return decided

    async def _persist_and_emit(self, batch: Batch, decided: DecidedBatch) -> None:
        """Steps 3 and 4, in smaller parts after a timeout: each part is a batch of its own."""
        queue: list[DecidedBatch] = [decided]
        while queue:
            part = queue.pop(0)
            try:
                persisted = await self._persist(batch, part)
            except DecisionSetChanged as changed:
                queue.insert(0, await self._decide_again(batch, part, changed.digest))
            except (DatabaseTimeout, TimeoutError):
                # Rolled back, or committed with the answer lost: then the next claim is refused.
                smaller = halves(part)
                if len(smaller) == 1:
                    self._too_slow(part)
                    raise
                queue[:0] = smaller
            else:
                await self._emit(batch, persisted)
                if persisted.breaker is not None and persisted.breaker.why is not None:
                    self._ports.observer.tripped(self.source, persisted.breaker.why)
                    steps.refuse_paused(self.source, Interventions(persisted.breaker.why))

    def _too_slow(self, part: DecidedBatch) -> None:
        """Raises `Stop` when one record alone has run out of time too often: slowness is never a
        reason to turn it away."""
        records = part.fetched.records
        if len(records) != 1:
            return
        offset = records[0].offset
        times = self._alone.again(offset)
        if times >= self._settings.alone_max:
            raise Stop(set_aside.too_slow(self.source, offset, times))

    async def _persist(self, batch: Batch, part: DecidedBatch) -> PersistedBatch:
        ownership = self._owner(batch)
        self._enter("persist", batch)
        ports, started_s = self._ports, time.perf_counter()
        async with asyncio.timeout(self._settings.step_deadline_s):
            persisted = await steps.persist(
                ports.ledger,
                ports.record_type,
                self.source,
                ports.group,
                ownership.token,
                part,
                self._breaker,
            )
        self._breaker = persisted.breaker
        ports.observer.persisted(self.source, persisted, time.perf_counter() - started_s)
        return persisted

    async def _decide_again(self, batch: Batch, part: DecidedBatch, digest: bytes) -> DecidedBatch:
        """Another decision set is in force: the verdicts must be its own."""
        ownership = self._owner(batch)
        decision_set = await self._ports.ledger.decision_set(digest)
        self._ownership = dataclasses.replace(ownership, decision_set=decision_set)
        return await self._decide(batch, part.fetched)

    async def _emit(self, batch: Batch, persisted: PersistedBatch) -> None:
        ownership = self._owner(batch)
        self._enter("emit", batch)
        started_s = time.perf_counter()
        async with asyncio.timeout(self._settings.step_deadline_s):
            await steps.emit(ownership.emitter, ownership.deployment, self.source, persisted)
        spent_s = time.perf_counter() - started_s
        self._ports.observer.emitted(self.source, persisted, from_database=False, spent_s=spent_s)
        self.progressed_at_s = self.moved_at_s = _now_s()
        self._lost_in_a_row = 0
        self._backoff.reset()

    def _enter(self, step: str, batch: Batch) -> None:
        """Note the step of a batch in flight."""
        if batch.epoch == self._epoch:
            self._steps[batch.turn] = step

    def _owner(self, batch: Batch) -> Ownership:
        """Our ownership, if the batch still belongs to it. Raises `OwnershipLost` if not."""
        ownership = self._ownership
        if ownership is None or batch.epoch != self._epoch:
            message = f"{self.source}: the assignment this batch was fetched in is over"
            raise OwnershipLost(message)
        return ownership


def _is_cancelled() -> bool:
    """Whether the running task itself was cancelled, not only what it waits for."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _now_s() -> float:
    """Seconds on the event loop's clock, by which every wait of a partition is measured too."""
    return asyncio.get_running_loop().time()


def halves(part: DecidedBatch) -> list[DecidedBatch]:
    """Cut a batch that ran out of time in two, for a smaller transaction; one record is one."""
    fetched = part.fetched
    middle = len(fetched.records) // 2
    if middle == 0:
        return [part]
    cut = fetched.records[middle].offset
    return [
        DecidedBatch(
            Fetched(fetched.begin, cut, fetched.records[:middle]),
            part.decided[:middle],
            part.decision_set,
        ),
        DecidedBatch(
            Fetched(cut, fetched.next_offset, fetched.records[middle:]),
            part.decided[middle:],
            part.decision_set,
        ),
    ]
