"""The watchdog, with a clock wound by hand."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from connectors.errors import BrokerUnavailable
from connectors.ports import LogRange
from schemas.envelope import Source
from streams.metrics import Metrics
from streams.observer import Observer
from streams.partition import State
from streams.watchdog import Stalled, Watchdog

STALL_S = 60.0
PLACE = ("payroll.raw", 2)


@dataclass
class Standing:
    """What the watchdog sees of a partition, and does to it."""

    state: State = State.RUNNING
    progressed_at_s: float = 0.0
    moved_at_s: float = 0.0
    position: int = 10
    in_flight: int = 0
    step: str = "fetch"
    source: Source = field(default_factory=lambda: Source(*PLACE))
    errors: list[Exception] = field(default_factory=list)
    now_s: float = 0.0

    def dump(self) -> dict[str, object]:
        return {"state": self.state.value}

    def interrupt(self, error: Exception) -> None:
        """It runs again at once, and makes no progress."""
        self.errors.append(error)
        self.moved_at_s = self.now_s


class World:
    def __init__(self) -> None:
        self.partition = Standing()
        self.range: LogRange | Exception = LogRange(0, 10, 10)
        self.asked = 0
        self.lag = 0
        self.metrics = Metrics()
        observer = Observer(self.metrics, lambda _: None)
        self.watchdog = Watchdog(STALL_S, self.ends, observer)

    async def ends(self, *_: object) -> LogRange:
        self.asked += 1
        if isinstance(self.range, Exception):
            raise self.range
        return self.range

    async def pass_time(self, until_s: float, since_s: float = 0.0) -> None:
        partitions: list[Any] = [self.partition]
        now_s = since_s
        while now_s < until_s:
            now_s += 1.0
            self.partition.now_s = now_s
            await self.watchdog.look(partitions, lambda _: self.lag, now_s)


@pytest.fixture
def world() -> World:
    return World()


async def test_an_idle_partition_is_quiet_for_ever(world: World) -> None:
    """Without work there is no stall, and the broker is asked seldom."""
    await world.pass_time(600)
    assert not world.partition.errors
    assert not world.watchdog.stalled
    assert 10 <= world.asked <= 20


async def test_lag_that_arrives_after_a_quiet_hour_is_given_its_time(world: World) -> None:
    """The clock of a stall begins with the work, not with the last progress."""
    await world.pass_time(3_600)
    world.lag = 5
    await world.pass_time(3_600 + STALL_S, 3_600)
    assert not world.partition.errors
    await world.pass_time(3_602 + STALL_S, 3_600 + STALL_S)
    assert len(world.partition.errors) == 1


async def test_lag_is_found_though_the_consumer_knows_nothing(world: World) -> None:
    """A fetch that never returns never tells of new records: the log is asked for its ends."""
    world.range = LogRange(0, 17, 17)
    await world.pass_time(STALL_S / 2 + STALL_S + 2)
    (error,) = world.partition.errors
    assert isinstance(error, Stalled)
    assert str(error) == (
        "payroll.raw/2 stalled: no progress for 61 s at offset 10, running, waits in step fetch, "
        "lag 7; assigned again 0 times"
    )
    assert PLACE in world.watchdog.stalled
    assert world.watchdog.lag(world.partition) == 7  # type: ignore[arg-type]


async def test_a_batch_that_hangs_is_a_stall_without_lag(world: World) -> None:
    """What is in flight is work too, and the step it waits in is named."""
    world.partition.in_flight, world.partition.step = 1, "persist"
    await world.pass_time(STALL_S + 2)
    assert "waits in step persist, lag 0" in str(world.partition.errors[0])


async def test_healing_backs_off_and_red_lasts_until_progress(world: World) -> None:
    """Each try waits longer; readiness does not flap in between; progress ends all of it."""
    world.lag = 3
    await world.pass_time(2_000)
    assert len(world.partition.errors) == 6  # after 1, 2, 4, 8, 8, 8 times 60 s
    assert PLACE in world.watchdog.stalled
    assert b"weighbridge_stalls_total{topic=" in world.metrics.exposition()
    world.partition.progressed_at_s = 2_000
    await world.pass_time(2_001, 2_000)
    assert not world.watchdog.stalled


async def test_what_is_assigned_or_waits_is_not_healed_again(world: World) -> None:
    """Only a partition that runs can stall; others have causes of their own."""
    world.lag, world.partition.state = 3, State.WAITING
    await world.pass_time(1_000)
    assert not world.partition.errors


async def test_a_foreign_open_transaction_is_named_and_no_stall(world: World) -> None:
    """The log goes on behind its last stable offset, where we stand: nothing of ours waits."""
    world.range = LogRange(0, 10, 25)
    await world.pass_time(200)
    assert not world.partition.errors
    assert not world.watchdog.stalled
    note = world.watchdog.notes[PLACE]
    assert "transaction, open at offset 10, has kept 15 offsets" in note
    gauge = 'weighbridge_open_transaction_offsets{partition="2",topic="payroll.raw"}'
    assert f"{gauge} 15.0" in world.metrics.exposition().decode()
    world.range = LogRange(0, 25, 25)
    await world.pass_time(240, 200)
    assert not world.watchdog.notes
    assert f"{gauge} 0.0" in world.metrics.exposition().decode()


async def test_a_partition_that_stands_before_the_transaction_stalls_all_the_same(
    world: World,
) -> None:
    """An open transaction further on is no excuse for records that could be read."""
    world.range = LogRange(0, 12, 25)
    await world.pass_time(200)
    assert world.partition.errors
    assert not world.watchdog.notes


async def test_kafka_away_is_nobodys_stall(world: World) -> None:
    """What cannot be asked says nothing; others tell that Kafka is away."""
    world.range = BrokerUnavailable("away")
    await world.pass_time(300)
    assert not world.partition.errors


async def test_a_revoked_partition_is_forgotten(world: World) -> None:
    """Given again, it begins with a clean record."""
    world.lag = 3
    await world.pass_time(STALL_S + 2)
    await world.watchdog.look([], lambda _: 0, 100.0)
    assert not world.watchdog.stalled
