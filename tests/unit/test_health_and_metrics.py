"""Readiness, and the catalogue of metrics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, get_args

import pytest

from connectors.ports import Counts
from schemas.envelope import Source
from streams.health import ASSIGN_S, causes
from streams.metrics import CATALOGUE, Metrics, Name, resident_memory_bytes
from streams.observer import STATES, Observer
from streams.partition import LEGAL_MOVES, State


@dataclass
class Standing:
    """What readiness looks at in a partition."""

    state: State
    progressed_at_s: float = 0.0
    moved_at_s: float = 0.0
    why: str = "because"
    source: Source = field(default_factory=lambda: Source("payroll.raw", 2))


STALL = {("payroll.raw", 2): "payroll.raw/2 stalled"}


def _causes(
    state: State, quiet_s: float, stalled: Mapping[tuple[str, int], str] = MappingProxyType({})
) -> list[str]:
    partitions: list[Any] = [Standing(state)]
    return causes(partitions, stalled, quiet_s)


@pytest.mark.parametrize("state", [State.WAITING, State.STOPPED])
def test_waiting_and_stopped_are_red_at_once(state: State) -> None:
    """The cause names the partition and why."""
    assert _causes(state, 0.0) == [f"payroll.raw/2 {state.value}: because"]


def test_assigning_is_red_when_it_takes_long() -> None:
    """A rebalance is no alarm; an assignment that does not end is."""
    assert _causes(State.ASSIGNING, ASSIGN_S) == []
    (cause,) = _causes(State.ASSIGNING, ASSIGN_S + 1)
    assert "payroll.raw/2 assigning for 31 s" in cause


@pytest.mark.parametrize("state", [State.RUNNING, State.WAITING, State.ASSIGNING])
def test_what_the_watchdog_says_of_a_partition_is_its_cause(state: State) -> None:
    """A partition that runs is red only when it stalls, and stays so while it is assigned again."""
    assert _causes(State.RUNNING, 1e6) == []
    assert _causes(state, 0.0, STALL) == ["payroll.raw/2 stalled"]
    assert _causes(State.STOPPED, 0.0, STALL) == ["payroll.raw/2 stopped: because"]


def test_revoked_is_nobodys_concern() -> None:
    """What the group took away is another worker's."""
    assert _causes(State.REVOKED, 1e6) == []
    assert causes([], STALL, 0.0) == []


def test_what_is_away_comes_first() -> None:
    """What does not answer outside is a cause of its own, even without partitions."""
    assert causes([], {}, 0.0, ["Kafka does not answer"]) == ["Kafka does not answer"]


def test_each_partition_has_a_cause_of_its_own() -> None:
    """Two troubles are two causes."""
    partitions: list[Any] = [
        Standing(State.WAITING),
        Standing(State.STOPPED, source=Source("dvir.raw", 0)),
    ]
    assert len(causes(partitions, {}, 0.0)) == 2


def test_every_state_has_a_row_of_moves_and_a_metric() -> None:
    """States, moves and the observer's list agree; nothing leads out of REVOKED."""
    assert set(LEGAL_MOVES) == set(State)
    assert {state.value for state in State} == set(STATES)
    assert LEGAL_MOVES[State.REVOKED] == frozenset()


def test_catalogue_is_complete() -> None:
    """Every name has a definition with a meaning, in Prometheus' manner, and the other way."""
    assert set(CATALOGUE) == set(get_args(Name))
    for name, definition in CATALOGUE.items():
        assert definition.meaning.endswith(".")
        assert name.endswith("_total") == (definition.kind == "counter")
        assert len(set(definition.labels)) == len(definition.labels)


def test_exposition_holds_every_metric() -> None:
    """A metric is there before anything was counted, so that an alert on it can be written."""
    text = Metrics().exposition().decode()
    for name in CATALOGUE:
        assert f"# HELP {name} " in text


def test_metrics_refuse_the_wrong_kind() -> None:
    """A gauge cannot be added to, a counter not be set, nothing but a histogram observed."""
    metrics = Metrics()
    with pytest.raises(TypeError):
        metrics.add("weighbridge_lag_records", 1, "t", "0")
    with pytest.raises(TypeError):
        metrics.set("weighbridge_records_total", 1, "t", "0", "in")
    with pytest.raises(TypeError):
        metrics.observe("weighbridge_lag_records", 1, "t", "0")


def test_watched_gauges_are_read_at_each_exposition() -> None:
    """A gauge that follows something shows its value of that moment; memory is some megabytes."""
    metrics = Metrics()
    values = iter((1.0, 2.0))
    metrics.watch("weighbridge_database_connections_peak", lambda: next(values))
    assert b"weighbridge_database_connections_peak 1.0" in metrics.exposition()
    assert b"weighbridge_database_connections_peak 2.0" in metrics.exposition()
    with pytest.raises(TypeError):
        metrics.watch("weighbridge_batches_total", lambda: 0.0)
    assert 10_000_000 < resident_memory_bytes() < 10_000_000_000


@dataclass
class Persisted:
    """What the observer reads of a persisted batch."""

    counts: Counts
    reasons: dict[str, int]
    safety_critical: int = 0


def test_balance_of_the_observer_adds_up() -> None:
    """The G1 balance is counted over all batches, and a broken one shows."""
    metrics = Metrics()
    observer = Observer(metrics, lambda _: None)
    source = Source("payroll.raw", 1)
    batch: Any = Persisted(Counts(10, 6, 2, 2), {"encoding": 2})
    observer.persisted(source, batch, 0.1)
    observer.persisted(source, batch, 0.1)
    balance = 'weighbridge_balance_records{partition="1",topic="payroll.raw"}'
    text = metrics.exposition().decode()
    assert f"{balance} 0.0" in text
    assert 'weighbridge_quarantined_total{reason="encoding",topic="payroll.raw"} 4.0' in text
    lost: Any = Persisted(Counts(3, 1, 1, 0), {})
    observer.persisted(source, lost, 0.1)
    assert f"{balance} 1.0" in metrics.exposition().decode()
