"""The watchdog: a partition that has work and makes no progress is named, dumped, assigned again.

Work is a batch in flight, or lag: the last stable offset minus the position. The consumer's own
idea of the last stable offset is as old as its last fetch, so a quiet partition's log is asked for
its ends. A log that goes on behind its last stable offset is held up by a publisher's open
transaction: that is named, and is no stall of ours.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass

import structlog

from connectors.errors import InfrastructureError, Stop
from connectors.ports import LogRange
from streams.observer import Observer
from streams.partition import Partition, State

log = structlog.get_logger("weighbridge.watchdog")

Place = tuple[str, int]
STALL_S = 60.0
"""Work without progress for so long is a stall, unless the setting `stall_s` says otherwise."""
HEALS_SHIFT_MAX = 3
"""The wait before the next try doubles this often: at most eight times the first."""


class Stalled(InfrastructureError):
    """A partition has work and makes no progress; it is assigned again."""


@dataclass(slots=True)
class Pulse:
    """What the watchdog remembers of one partition."""

    progressed_at_s: float
    asked_at_s: float
    range: LogRange | None = None
    """The ends of its log when they were last asked for; dropped on progress."""
    work_since_s: float | None = None
    """Since when there has been work and no progress."""
    open_since_s: float | None = None
    """Since when an open transaction has stood right before the position."""
    stalled: str | None = None
    """Where it stood when it was found stalled."""
    named: bool = False
    """Whether the open transaction has been logged."""
    heals: int = 0

    def refresh(self, progressed_at_s: float, now_s: float) -> None:
        """Forget everything once there was progress."""
        if progressed_at_s != self.progressed_at_s:
            self.progressed_at_s, self.asked_at_s = progressed_at_s, now_s
            self.range = self.work_since_s = self.open_since_s = None
            self.stalled, self.named, self.heals = None, False, 0


class Watchdog:
    """Looks at the partitions of one worker, now and then."""

    def __init__(
        self,
        stall_s: float,
        ends: Callable[[str, int], Awaitable[LogRange]],
        observer: Observer,
    ) -> None:
        self.stalled: dict[Place, str] = {}
        """Stalled partitions, until they make progress: readiness is red meanwhile."""
        self.notes: dict[Place, str] = {}
        """Partitions held up by somebody else's open transaction."""
        self._stall_s = stall_s
        self._ends = ends
        self._observer = observer
        self._pulses: dict[Place, Pulse] = {}

    async def look(
        self, partitions: Iterable[Partition], lag_of: Callable[[Partition], int], now_s: float
    ) -> None:
        """Look at every partition once. Never raises for what is away outside."""
        present: dict[Place, Partition] = {
            (p.source.topic, p.source.partition): p for p in partitions
        }
        for gone in self._pulses.keys() - present.keys():
            self._forget(gone)
        for place, partition in present.items():
            pulse = self._pulses.setdefault(place, Pulse(partition.progressed_at_s, now_s))
            pulse.refresh(partition.progressed_at_s, now_s)
            try:
                await self._ask(place, partition, pulse, now_s)
            except (InfrastructureError, Stop) as error:
                # Kafka's absence and a topic's are told by others; nothing is known here now.
                log.debug("ends_unknown", partition=str(partition.source), why=str(error))
                break
            self._judge(place, partition, pulse, lag_of(partition), now_s)

    async def _ask(self, place: Place, partition: Partition, pulse: Pulse, now_s: float) -> None:
        """Ask for the ends of a log from which nothing has come for some time."""
        quiet = now_s - max(pulse.asked_at_s, partition.moved_at_s) >= self._stall_s / 2
        if partition.state is State.RUNNING and quiet:
            pulse.asked_at_s = now_s
            pulse.range = await self._ends(*place)

    def lag(self, partition: Partition) -> int:
        """The lag as last asked for; 0 while it was not."""
        pulse = self._pulses.get((partition.source.topic, partition.source.partition))
        if pulse is None or pulse.range is None:
            return 0
        return max(0, pulse.range.last_stable_offset - partition.position)

    def _judge(
        self, place: Place, partition: Partition, pulse: Pulse, lag: int, now_s: float
    ) -> None:
        lag = max(lag, self.lag(partition))
        if partition.state is State.RUNNING:
            if not partition.in_flight and not lag:
                pulse.work_since_s, pulse.stalled, pulse.heals = None, None, 0
            elif pulse.work_since_s is None:
                pulse.work_since_s = now_s
            self._watch_open_transaction(place, partition, pulse, lag, now_s)
            if self._is_due(partition, pulse, now_s):
                self._heal(partition, pulse, lag, now_s)
        if pulse.stalled is not None and pulse.work_since_s is not None:
            self.stalled[place] = _why(partition, pulse, now_s)
        else:
            self.stalled.pop(place, None)

    def _is_due(self, partition: Partition, pulse: Pulse, now_s: float) -> bool:
        """Whether it has run long enough with work and without progress, longer after each try."""
        if pulse.work_since_s is None:
            return False
        patience_s = self._stall_s * (1 << min(pulse.heals, HEALS_SHIFT_MAX))
        return now_s - max(pulse.work_since_s, partition.moved_at_s) > patience_s

    def _heal(self, partition: Partition, pulse: Pulse, lag: int, now_s: float) -> None:
        """Drop what is in flight, new producer, token and seek: the partition is assigned again."""
        pulse.stalled = (
            f"at offset {partition.position}, {partition.state.value}, waits in step "
            f"{partition.step}, lag {lag}"
        )
        why = _why(partition, pulse, now_s)
        self._observer.stalled(partition.source, why, {**partition.dump(), **_ends_of(pulse)})
        pulse.heals += 1
        pulse.asked_at_s = now_s
        partition.interrupt(Stalled(why))

    def _watch_open_transaction(
        self, place: Place, partition: Partition, pulse: Pulse, lag: int, now_s: float
    ) -> None:
        found = pulse.range
        held_up = 0 if found is None else found.end_offset - found.last_stable_offset
        if lag or partition.in_flight or not held_up or found is None:
            pulse.open_since_s, pulse.named = None, False
            if self.notes.pop(place, None) is not None:
                self._observer.open_transaction(partition.source, 0)
            return
        if pulse.open_since_s is None:
            pulse.open_since_s = now_s
        for_s = now_s - pulse.open_since_s
        if for_s >= self._stall_s / 2:
            why = (
                f"{partition.source}: a publisher's transaction, open at offset "
                f"{found.last_stable_offset}, has kept {held_up} offsets from being read for more "
                f"than {for_s:.0f} s; nothing of ours waits"
            )
            self.notes[place] = why
            self._observer.open_transaction(partition.source, held_up, None if pulse.named else why)
            pulse.named = True

    def _forget(self, place: Place) -> None:
        for known in (self._pulses, self.stalled, self.notes):
            known.pop(place, None)


def _why(partition: Partition, pulse: Pulse, now_s: float) -> str:
    for_s = now_s - (now_s if pulse.work_since_s is None else pulse.work_since_s)
    return (
        f"{partition.source} stalled: no progress for {for_s:.0f} s {pulse.stalled}; assigned "
        f"again {pulse.heals} times"
    )


def _ends_of(pulse: Pulse) -> Mapping[str, object]:
    if pulse.range is None:
        return {"last_stable_offset": None, "end_offset": None}
    found = pulse.range
    return {"last_stable_offset": found.last_stable_offset, "end_offset": found.end_offset}
