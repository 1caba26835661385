"""The catalogue of metrics: every name, its kind, labels and meaning, in one place.

Names follow Prometheus: base units, last in the name. A metric that is not listed here does not
exist; `Metrics` turns the list into collectors of one registry.
"""

from __future__ import annotations

import resource
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

Name = Literal[
    "weighbridge_records_total",
    "weighbridge_quarantined_total",
    "weighbridge_safety_critical_total",
    "weighbridge_batches_total",
    "weighbridge_owed_batches_total",
    "weighbridge_step_seconds",
    "weighbridge_batch_records",
    "weighbridge_partition_state",
    "weighbridge_waits_total",
    "weighbridge_lag_records",
    "weighbridge_scalable_lag_records",
    "weighbridge_stalls_total",
    "weighbridge_open_transaction_offsets",
    "weighbridge_partition_paused",
    "weighbridge_breaker_trips_total",
    "weighbridge_balance_records",
    "weighbridge_database_connections_peak",
    "weighbridge_resident_memory_bytes",
]


@dataclass(frozen=True, slots=True)
class Definition:
    """One metric of the catalogue."""

    kind: Literal["counter", "gauge", "histogram"]
    labels: tuple[str, ...]
    meaning: str


CATALOGUE: dict[Name, Definition] = {
    "weighbridge_records_total": Definition(
        "counter",
        ("topic", "partition", "verdict"),
        "Records settled by this worker; verdict `in` counts all of them on its own (G1).",
    ),
    "weighbridge_quarantined_total": Definition(
        "counter", ("topic", "reason"), "Records this worker turned away, by reason."
    ),
    "weighbridge_safety_critical_total": Definition(
        "counter",
        ("topic",),
        "Quarantined DVIRs with an open defect that is major or out of service.",
    ),
    "weighbridge_batches_total": Definition(
        "counter", ("topic", "step"), "Batches that passed a step: persisted, emitted."
    ),
    "weighbridge_owed_batches_total": Definition(
        "counter", ("topic",), "Batches emitted from the database at an assignment (step d)."
    ),
    "weighbridge_step_seconds": Definition(
        "histogram", ("topic", "step"), "Time a batch spent in a step: decide, persist, emit."
    ),
    "weighbridge_batch_records": Definition("histogram", ("topic",), "Records in a batch."),
    "weighbridge_partition_state": Definition(
        "gauge",
        ("topic", "partition", "state"),
        "1 for the state a partition is in at this worker, 0 for the others.",
    ),
    "weighbridge_waits_total": Definition(
        "counter",
        ("topic", "error"),
        "Pauses of a partition because something outside was away or slow (G5).",
    ),
    "weighbridge_lag_records": Definition(
        "gauge",
        ("topic", "partition"),
        "Last stable offset minus the position: transaction markers are no lag.",
    ),
    "weighbridge_scalable_lag_records": Definition(
        "gauge",
        ("topic", "partition"),
        "The lag where more workers would help, for an autoscaler to add up: 0 for a partition "
        "that is paused, stopped, waiting for something outside, or stalled.",
    ),
    "weighbridge_stalls_total": Definition(
        "counter",
        ("topic",),
        "Partitions assigned again because they made no progress although there was work.",
    ),
    "weighbridge_open_transaction_offsets": Definition(
        "gauge",
        ("topic", "partition"),
        "Offsets that a publisher's open transaction has kept from being read for longer than "
        "stall_s; they are no lag.",
    ),
    "weighbridge_partition_paused": Definition(
        "gauge",
        ("topic", "partition"),
        "1 while a partition is paused for its rejects, until `weighbridge resume`.",
    ),
    "weighbridge_breaker_trips_total": Definition(
        "counter", ("topic",), "Partitions this worker has paused for their share of rejects."
    ),
    "weighbridge_balance_records": Definition(
        "gauge",
        ("topic", "partition"),
        "in - committed - duplicate - quarantined - held since this worker owns the partition; "
        "anything but 0 is a broken guarantee (G1).",
    ),
    "weighbridge_database_connections_peak": Definition(
        "gauge", (), "Most database connections this worker has used at once."
    ),
    "weighbridge_resident_memory_bytes": Definition("gauge", (), "Resident memory of this worker."),
}

STEP_BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
BATCH_BUCKETS = (0.0, 1.0, 10.0, 100.0, 500.0, 1000.0, 2000.0, 5000.0, 10000.0)


class Metrics:
    """The catalogue as collectors of one registry; one instance per worker."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._collectors: dict[str, Counter | Gauge | Histogram] = {}
        for name, definition in CATALOGUE.items():
            self._collectors[name] = self._collector(name, definition)

    def _collector(self, name: str, definition: Definition) -> Counter | Gauge | Histogram:
        about, labels = definition.meaning, definition.labels
        if definition.kind == "counter":
            return Counter(name, about, labels, registry=self.registry)
        if definition.kind == "gauge":
            return Gauge(name, about, labels, registry=self.registry)
        buckets = BATCH_BUCKETS if name.endswith("_records") else STEP_BUCKETS_S
        return Histogram(name, about, labels, registry=self.registry, buckets=buckets)

    def add(self, name: Name, amount: int, *labels: str) -> None:
        """Add to a counter."""
        collector = self._collectors[name]
        if not isinstance(collector, Counter):
            raise TypeError(name)
        (collector.labels(*labels) if labels else collector).inc(amount)

    def set(self, name: Name, value: float, *labels: str) -> None:
        """Set a gauge."""
        collector = self._collectors[name]
        if not isinstance(collector, Gauge):
            raise TypeError(name)
        (collector.labels(*labels) if labels else collector).set(value)

    def observe(self, name: Name, value: float, *labels: str) -> None:
        """Add an observation to a histogram."""
        collector = self._collectors[name]
        if not isinstance(collector, Histogram):
            raise TypeError(name)
        (collector.labels(*labels) if labels else collector).observe(value)

    def watch(self, name: Name, read: Callable[[], float]) -> None:
        """Let a gauge without labels be read anew at each exposition."""
        collector = self._collectors[name]
        if not isinstance(collector, Gauge):
            raise TypeError(name)
        collector.set_function(read)

    def exposition(self) -> bytes:
        """All metrics in Prometheus text format."""
        return generate_latest(self.registry)


def resident_memory_bytes() -> int:
    """Memory this process holds now; where the system does not tell, the most it ever held."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    except (OSError, ValueError, IndexError):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return pages * resource.getpagesize()
