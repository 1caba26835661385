"""What watches the stream: one structured log line per batch and state change, and the metrics.

Ids, positions, counts and times only, never a record's values. The protocol's modules tell the
observer what happened and never touch logs of batches or metrics themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import structlog

from connectors.ports import Counts
from schemas.envelope import Source
from streams.batch import PersistedBatch
from streams.metrics import Metrics

log = structlog.get_logger("weighbridge")

STATES = ("assigning", "running", "waiting", "stopped", "revoked")


class Observer:
    """Turns what happens into metrics and log lines, and keeps the error that ends the worker."""

    def __init__(self, metrics: Metrics, on_fatal: Callable[[BaseException], None]) -> None:
        self.metrics = metrics
        self._on_fatal = on_fatal
        self._counts: dict[Source, Counts] = {}

    def fatal(self, error: BaseException) -> None:
        """The worker must stop: a broken invariant, a stop mark, or a partition it cannot keep."""
        log.error("fatal", error=type(error).__name__, message=str(error))
        self._on_fatal(error)

    def partition_state(self, source: Source, state: str) -> None:
        """A partition changed state."""
        for name in STATES:
            self.metrics.set(
                "weighbridge_partition_state",
                1 if name == state else 0,
                source.topic,
                str(source.partition),
                name,
            )

    def paused(self, source: Source, *, paused: bool) -> None:
        """A partition is paused until an operator resumes it, or is not."""
        place = source.topic, str(source.partition)
        self.metrics.set("weighbridge_partition_paused", int(paused), *place)

    def tripped(self, source: Source, why: str) -> None:
        """The breaker of a partition has tripped."""
        log.warning("breaker_tripped", partition=str(source), why=why)
        self.metrics.add("weighbridge_breaker_trips_total", 1, source.topic)

    def stalled(self, source: Source, why: str, dump: Mapping[str, object]) -> None:
        """A partition makes no progress although there is work, and is assigned again."""
        log.error("partition_stalled", partition=str(source), why=why, **dump)
        self.metrics.add("weighbridge_stalls_total", 1, source.topic)

    def open_transaction(self, source: Source, held_up: int, why: str | None = None) -> None:
        """A foreign transaction keeps this many offsets from being read; 0 when none does."""
        place = source.topic, str(source.partition)
        self.metrics.set("weighbridge_open_transaction_offsets", held_up, *place)
        if why is not None:
            log.warning("open_transaction", partition=str(source), why=why)

    def waiting(self, source: Source, why: str, delay_s: float) -> None:
        """A partition backs off because something outside is away or slow."""
        log.warning("waiting", partition=str(source), why=why, delay_s=round(delay_s, 2))
        self.metrics.add("weighbridge_waits_total", 1, source.topic, why.split(":", 1)[0])

    def decided(self, source: Source, records: int, spent_s: float) -> None:
        """Step 2 of a batch is done."""
        self.metrics.observe("weighbridge_step_seconds", spent_s, source.topic, "decide")
        self.metrics.observe("weighbridge_batch_records", records, source.topic)

    def persisted(self, source: Source, batch: PersistedBatch, spent_s: float) -> None:
        """Step 3 of a batch is done."""
        topic, partition = source.topic, str(source.partition)
        counts = batch.counts
        self.metrics.observe("weighbridge_step_seconds", spent_s, topic, "persist")
        self.metrics.add("weighbridge_batches_total", 1, topic, "persisted")
        for verdict, number in _by_verdict(counts).items():
            self.metrics.add("weighbridge_records_total", number, topic, partition, verdict)
        for reason, number in batch.reasons.items():
            self.metrics.add("weighbridge_quarantined_total", number, topic, reason)
        if batch.safety_critical:
            self.metrics.add("weighbridge_safety_critical_total", batch.safety_critical, topic)
        total = self._counts[source] = self._counts.get(source, Counts()) + counts
        found = total.committed + total.duplicate + total.quarantined + total.held
        self.metrics.set("weighbridge_balance_records", total.records_in - found, topic, partition)

    def emitted(
        self, source: Source, batch: PersistedBatch, *, from_database: bool, spent_s: float = 0.0
    ) -> None:
        """Step 4 of a batch is done, or its owed emission was made good (step d)."""
        self.metrics.add("weighbridge_batches_total", 1, source.topic, "emitted")
        if from_database:
            self.metrics.add("weighbridge_owed_batches_total", 1, source.topic)
        else:
            self.metrics.observe("weighbridge_step_seconds", spent_s, source.topic, "emit")
        log.info(
            "batch",
            partition=str(source),
            batch=batch.batch_number,
            next_offset=batch.next_offset,
            committed=len(batch.committed),
            duplicate=batch.counts.duplicate,
            quarantined=len(batch.quarantined),
            reasons=dict(batch.reasons) or None,
            from_database=from_database or None,
            correlation_id=batch.correlation_id,
        )

    def lag(self, source: Source, lag_records: int, *, scalable: bool) -> None:
        """How far a partition is behind what `read_committed` may reach, and whether more workers
        would help."""
        place = source.topic, str(source.partition)
        self.metrics.set("weighbridge_lag_records", lag_records, *place)
        scalable_records = lag_records if scalable else 0
        self.metrics.set("weighbridge_scalable_lag_records", scalable_records, *place)


def _by_verdict(counts: Counts) -> Mapping[str, int]:
    return {
        "in": counts.records_in,
        "committed": counts.committed,
        "duplicate": counts.duplicate,
        "quarantined": counts.quarantined,
        "held": counts.held,
    }
