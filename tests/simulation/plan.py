"""What a seed decides: the world's size, its records, and what may go wrong how often."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Mapping
from dataclasses import dataclass

KINDS = ("crash", "pause", "fail", "slow", "lost_reply", "outage")
"""What can happen to a worker at a numbered point of the protocol."""
EVENTS = ("rebalance", "stop", "kill", "activate", "redeliver", "stale_read", "outage")
"""What can happen at any time."""
POINTS = {
    "database": (
        "deployment",
        "take",
        "terminate",
        "begin",
        "batch_end",
        "page_at",
        "owed_batch",
        "active_decision_set",
        "decision_set",
        "transaction",
        "claim",
        "probe",
        "bodies",
        "write_ledger",
        "write_quarantine",
        "finish",
        "commit",
    ),
    "kafka": (
        "init_producer_id",
        "read_emitted",
        "cluster_id",
        "log_range",
        "read_record",
        "fetch",
        "produce",
        "offsets",
        "commit_transaction",
    ),
    "schemas": ("find_schema",),
}
"""Every request of the protocol, by service, in about the order of its steps."""
FOCUSED = 3
FOCUS = 10
"""In each run some requests meet faults so many times as often: most are made at assignment, and
most faults would strike there."""
FAULT_PHASE_S = (4.0, 25.0)
CALM_DEADLINE_S = 90.0
"""Once faults have stopped, this much (simulated) time may not pass without something decided or
emitted, until everything is. A slow plan of one record a batch takes minutes and is still well."""


@dataclass(frozen=True)
class Strike:
    """One fault at one place instead of faults by chance."""

    kind: str
    place: str
    """`before` or `after`, and a point."""
    nth: int = 1
    """At which pass."""


@dataclass(frozen=True)
class Plan:
    """The choices made before a run begins."""

    seed: int
    partitions: int
    workers: int
    concurrency: int
    records: int
    batch_records: int
    type_names: tuple[str, ...]
    fault_phase_s: float
    latency_s: float
    """Mean time of one answer from outside."""
    rates: Mapping[str, float]
    """Of each kind, its chance at every point where it can happen."""
    every_s: Mapping[str, float]
    """Of each event, the mean time between two; absent when it does not happen."""
    focus: frozenset[str]
    strike: Strike | None = None

    @classmethod
    def of(cls, seed: int) -> Plan:
        """Each kind is on in about half of all runs: some faults hide behind others."""
        chance = random.Random(f"plan {seed}")
        rates = {
            kind: chance.choice([0.001, 0.005, 0.02]) if chance.random() < 0.6 else 0.0
            for kind in KINDS
        }
        every_s = {
            event: chance.choice([1.0, 3.0, 8.0]) for event in EVENTS if chance.random() < 0.5
        }
        return cls(
            seed=seed,
            partitions=chance.choice([1, 1, 2, 3]),
            workers=chance.choice([1, 2, 2, 3]),
            concurrency=chance.choice([1, 2, 4]),
            records=chance.choice([10, 30, 30, 80]),
            batch_records=chance.choice([1, 3, 8, 30]),
            type_names=chance.choice([("payroll",), ("payroll",), ("dvir",), ("payroll", "dvir")]),
            fault_phase_s=chance.uniform(*FAULT_PHASE_S),
            latency_s=chance.choice([0.0, 0.005, 0.02]),
            rates=rates,
            every_s=every_s,
            focus=frozenset(chance.sample([p for of in POINTS.values() for p in of], FOCUSED)),
        )

    def struck(self, strike: Strike) -> Plan:
        """The same world with this fault alone; where only another fault leads to its place, with
        workers that fall asleep inside transactions."""
        if strike.place.endswith("terminate"):
            sleepy = frozenset({"probe", "finish"})
            return dataclasses.replace(self, rates={"pause": 0.02}, focus=sleepy, strike=strike)
        return dataclasses.replace(self, rates={}, strike=strike)
