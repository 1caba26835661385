"""An event loop that owns time and chooses, from a seed, which of the ready callbacks runs next.

Every callback belongs to the simulated process in whose context it was scheduled. A process that is
killed has none of its callbacks run again, not even `finally`; those of a paused one wait.
"""

from __future__ import annotations

import asyncio
import heapq
import random
from asyncio import events
from collections.abc import Callable, Coroutine, Generator, Sequence
from contextvars import Context, ContextVar, copy_context
from dataclasses import dataclass, field
from typing import Any

STEPS_MAX = 3_000_000
"""Callbacks of one run; more is a loop that makes no progress."""


class NothingLeft(Exception):
    """No callback is ready and no timer set: what is waited for can never happen."""


class TooManySteps(Exception):
    """The run does not end."""


@dataclass(eq=False)
class Process:
    """A process of the simulated world."""

    name: str
    alive: bool = True
    paused: bool = False
    held: list[_Handle] = field(default_factory=list)
    """Callbacks that became ready while it was paused, or after its death."""
    on_death: list[Callable[[], None]] = field(default_factory=list)
    """What the outside does once it notices."""
    paused_at_s: float = 0.0

    def silent_s(self, now_s: float) -> float:
        """For how long it has been paused."""
        return now_s - self.paused_at_s if self.paused else 0.0


PROCESS: ContextVar[Process | None] = ContextVar("process", default=None)
"""Whose callback is running; None is the outside: brokers, database, the test."""


class _Handle(asyncio.TimerHandle):
    """A callback that knows its process."""

    __slots__ = ("number", "process")

    def __init__(
        self,
        when: float,
        number: int,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        loop: SeededLoop,
        context: Context | None,
    ) -> None:
        context = copy_context() if context is None else context
        super().__init__(when, callback, args, loop, context)
        self.number = number
        self.process = context.get(PROCESS)


class SeededLoop(asyncio.AbstractEventLoop):
    """Runs coroutines as any event loop does, in an order and at times that `chance` decides."""

    def __init__(self, chance: random.Random) -> None:
        self.steps = 0
        self.complaints: list[str] = []
        """What nobody handled."""
        self._chance = chance
        self._in_order = chance.choice([0.0, 0.5, 0.9])
        """How often the callback that was ready first is taken."""
        self._now_s = 0.0
        self._numbers = 0
        self._ready: list[_Handle] = []
        self._timers: list[tuple[float, int, _Handle]] = []
        self._tasks: list[asyncio.Task[Any]] = []
        self._running = False

    # -- what asyncio asks of a loop ---------------------------------------------------------------

    def time(self) -> float:
        return self._now_s

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return self._running

    def is_closed(self) -> bool:
        return False

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(  # type: ignore[override]
        self, coro: Coroutine[Any, Any, Any] | Generator[Any, None, Any], **options: Any
    ) -> asyncio.Task[Any]:
        task: asyncio.Task[Any] = asyncio.Task(coro, loop=self, **options)
        self._tasks.append(task)
        return task

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        return self._schedule(self._ready.append, self._now_s, callback, args, context)

    call_soon_threadsafe = call_soon  # type: ignore[assignment]

    def call_later(  # type: ignore[override]
        self,
        delay: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        return self.call_at(self._now_s + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        def add(handle: _Handle) -> None:
            heapq.heappush(self._timers, (when, handle.number, handle))

        return self._schedule(add, when, callback, args, context)

    def _schedule(
        self,
        add: Callable[[_Handle], None],
        when: float,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        context: Context | None,
    ) -> _Handle:
        self._numbers += 1
        handle = _Handle(when, self._numbers, callback, args, self, context)
        add(handle)
        return handle

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """It is skipped when its time comes."""

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        self.complaints.append(f"{context.get('message')}: {context.get('exception')!r}")

    # -- running -----------------------------------------------------------------------------------

    def run_until_complete(self, future: Any) -> Any:
        """Run until the future is done. Raises what it raises, `NothingLeft`, `TooManySteps`."""
        main = asyncio.ensure_future(future, loop=self)
        self._running = True
        events._set_running_loop(self)
        try:
            while not main.done():
                self._step()
        finally:
            events._set_running_loop(None)
            self._running = False
        return main.result()

    def _step(self) -> None:
        self.steps += 1
        if self.steps > STEPS_MAX:
            raise TooManySteps
        if not self._ready and not self._wind():
            raise NothingLeft
        handle = self._choose()
        if handle.cancelled():
            return
        process = handle.process
        if process is None or (process.alive and not process.paused):
            handle._run()  # type: ignore[attr-defined]
        else:
            process.held.append(handle)

    def _wind(self) -> bool:
        """Turn the clock to the next timer, and all that are due then with it."""
        while self._timers and self._timers[0][2].cancelled():
            heapq.heappop(self._timers)
        if not self._timers:
            return False
        self._now_s = max(self._now_s, self._timers[0][0])
        while self._timers and self._timers[0][0] <= self._now_s:
            self._ready.append(heapq.heappop(self._timers)[2])
        return True

    def _choose(self) -> _Handle:
        ready = self._ready
        if len(ready) == 1:
            return ready.pop()
        if self._chance.random() < self._in_order:
            return ready.pop(0)
        return ready.pop(self._chance.randrange(len(ready)))

    def resume(self, process: Process) -> None:
        """SIGCONT."""
        process.paused = False
        self._ready += process.held
        process.held = []

    def bury(self, processes: Sequence[Process]) -> None:
        """End what was left behind when the truth has been read, so that nothing complains."""
        for process in processes:
            process.alive = True
            self.resume(process)
        self.steps = 0
        for _ in range(20):
            left = [task for task in self._tasks if not task.done()]
            if not left:
                break
            for task in left:
                task.cancel()
            try:
                self.run_until_complete(asyncio.wait(left, timeout=10.0))
            except (NothingLeft, TooManySteps):
                break
        self._tasks = []
        self._ready = []
        self._timers = []
