"""A worker that harms itself: `python -m tests.faults.acting_worker ACT NTH [COMMAND ...]`.

It is the real `weighbridge worker`, or another command, with one function wrapped, so that the
process is killed or stopped at an exact point of the protocol, the NTH time it passes there. The
rest of its settings come from the environment, as for the real command. Prints `acting` to standard
output first.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.consumer.fetcher import PartitionRecords
from aiokafka.errors import CorruptRecordException

from connectors.kafka import blocked
from connectors.postgres.transaction import PostgresTransaction
from connectors.schema_store import FileSchemaStore
from streams import batch
from streams.cli import main

KILL, PAUSE = signal.SIGKILL, signal.SIGSTOP


class Act:
    """Counts passes and does the deed at the NTH."""

    def __init__(self, number: signal.Signals, nth: int) -> None:
        self._number = number
        self._nth = nth

    def __call__(self) -> None:
        self._nth -= 1
        if self._nth == 0:
            sys.stdout.write("acting\n")
            sys.stdout.flush()
            os.kill(os.getpid(), self._number)


def before(target: object, name: str, act: Act) -> None:
    """Do the deed just before `target.name` runs."""
    original: Callable[..., Awaitable[Any]] = getattr(target, name)

    async def acting(*args: object, **kwargs: object) -> object:
        act()
        return await original(*args, **kwargs)

    setattr(target, name, acting)


def after(target: object, name: str, act: Act) -> None:
    """Do the deed just after `target.name` has run."""
    original: Callable[..., Awaitable[Any]] = getattr(target, name)

    async def acting(*args: object, **kwargs: object) -> object:
        result = await original(*args, **kwargs)
        act()
        return result

    setattr(target, name, acting)


def say_acting() -> None:
    """Tell the test that it has happened."""
    sys.stdout.write("acting\n")
    sys.stdout.flush()


def hang(target: object, name: str, nth: int) -> None:
    """Let the NTH call of `target.name` wait for ever; the others run."""
    original: Callable[..., Awaitable[Any]] = getattr(target, name)
    passes = itertools.count(1)

    async def hanging(*args: object, **kwargs: object) -> object:
        if next(passes) == nth:
            say_acting()
            await asyncio.Event().wait()
        return await original(*args, **kwargs)

    setattr(target, name, hanging)


def pause_consumer(nth: int) -> None:
    """After the NTH fetch that brought records, pause all partitions behind the protocol's back."""
    original = AIOKafkaConsumer.getmany
    passes = itertools.count(1)

    async def pausing(self: AIOKafkaConsumer, *args: object, **kwargs: object) -> object:
        found = await original(self, *args, **kwargs)
        if found and next(passes) == nth:
            self.pause(*self.assignment())
            say_acting()
        return found

    AIOKafkaConsumer.getmany = pausing


def damage(offset: int, *, lost: bool) -> None:
    """Make the record at this offset of payroll partition 0 one that cannot be read; `lost`: not
    even unchecked."""
    original = PartitionRecords.__next__

    def damaged(self: PartitionRecords) -> Any:
        record = original(self)
        if record.topic.endswith("payroll.raw") and (record.partition, record.offset) == (
            0,
            offset,
        ):
            raise CorruptRecordException
        return record

    class Lost(blocked.LenientBatch):
        def __iter__(self) -> blocked.LenientBatch:
            raise ValueError

    PartitionRecords.__next__ = damaged
    if lost:
        blocked.LenientBatch = Lost


POINTS: dict[str, Callable[[int], None]] = {
    "kill-before-persist": lambda n: before(batch, "persist", Act(KILL, n)),
    "kill-inside-persist": lambda n: after(PostgresTransaction, "finish", Act(KILL, n)),
    "kill-after-persist": lambda n: after(batch, "persist", Act(KILL, n)),
    "kill-inside-emit": lambda n: before(
        AIOKafkaProducer, "send_offsets_to_transaction", Act(KILL, n)
    ),
    "kill-before-commit": lambda n: before(AIOKafkaProducer, "commit_transaction", Act(KILL, n)),
    "kill-after-commit": lambda n: after(AIOKafkaProducer, "commit_transaction", Act(KILL, n)),
    "stop-inside-persist": lambda n: after(PostgresTransaction, "finish", Act(PAUSE, n)),
    "stop-after-persist": lambda n: after(batch, "persist", Act(PAUSE, n)),
    "stop-inside-emit": lambda n: before(
        AIOKafkaProducer, "send_offsets_to_transaction", Act(PAUSE, n)
    ),
    "hang-fetch": lambda n: hang(AIOKafkaConsumer, "getmany", n),
    "hang-schemas": lambda n: hang(FileSchemaStore, "find", n),
    "pause-consumer": pause_consumer,
    "damage": lambda n: damage(n, lost=False),
    "lose": lambda n: damage(n, lost=True),
}
"""What to do where: the names of the protocol's points."""

if __name__ == "__main__":
    act_name, nth = sys.argv[1], int(sys.argv[2])
    POINTS[act_name](nth)
    sys.argv = ["weighbridge", *(sys.argv[3:] or ["worker"])]
    main()
