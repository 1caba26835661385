"""Where every partition stands: the database's cursors beside the log's end and the offset."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from connectors.kafka.admin import KafkaAdmin
from connectors.ports import Cursor
from connectors.postgres import reports
from connectors.postgres.interventions import pauses_in_force
from connectors.postgres.pool import Pool, PoolSettings
from streams.settings import Settings
from streams.wiring import kafka_settings, worker_dsn


@dataclass(frozen=True, slots=True)
class PartitionStatus:
    """One partition: decided, emitted, end."""

    group: str
    cursor: Cursor
    emitted_offset: int | None
    """The group's offset; None before the first batch."""
    end_offset: int | None
    """Last stable offset: what may be read. None when the topic is not there."""
    start_offset: int | None = None
    """Where the log begins."""
    paused: str | None = None
    """Why the partition is paused, if it is."""

    @property
    def lag_records(self) -> int | None:
        """Offsets between decided and the last stable offset; markers count here."""
        return None if self.end_offset is None else self.end_offset - self.cursor.next_offset

    @property
    def scalable_lag_records(self) -> int | None:
        """The lag if more workers would help: 0 where the partition is paused, or the log is not
        where its cursor stands. What only its worker knows (waiting, stalled) is in the metric."""
        if self.lag_records is None or self.start_offset is None:
            return None
        lost = self.lag_records < 0 or self.cursor.next_offset < self.start_offset
        return 0 if lost or self.paused is not None else self.lag_records

    def as_dict(self) -> dict[str, object]:
        """For `status --json`."""
        source, counts = self.cursor.source, self.cursor.counts
        return {
            "topic": source.topic,
            "partition": source.partition,
            "incarnation": source.incarnation,
            "group": self.group,
            "decided": self.cursor.next_offset,
            "emitted": self.emitted_offset,
            "end": self.end_offset,
            "lag": self.lag_records,
            "scalable_lag": self.scalable_lag_records,
            "paused": self.paused,
            "in": counts.records_in,
            "committed": counts.committed,
            "duplicate": counts.duplicate,
            "quarantined": counts.quarantined,
            "held": counts.held,
            "balanced": counts.balanced,
        }


@dataclass(frozen=True, slots=True)
class Status:
    """Everything `status` shows."""

    partitions: list[PartitionStatus]
    reasons: Mapping[str, Mapping[str, int]]
    """Record type to reason to number of rejects."""
    stop_mark: str | None


async def read_status(settings: Settings) -> Status:
    """Read database and broker; takes no lock. Raises `InfrastructureError`."""
    pool_settings = PoolSettings(
        dsn=worker_dsn(settings),
        pool_size=1,
        application_name="weighbridge-status",
        statement_cache_size=settings.statement_cache_size,
    )
    async with Pool(pool_settings) as pool:
        cursors = [r for r in await reports.partitions(pool) if r.group == settings.group]
        by_reason = await reports.quarantine_by_reason(pool)
        marks = await reports.stop_marks(pool)
        pauses = await pauses_in_force(pool, settings.group)
    places = [(r.cursor.source.topic, r.cursor.source.partition) for r in cursors]
    async with KafkaAdmin(kafka_settings(settings)) as admin:
        ranges = await admin.log_ranges(places)
        emitted = await admin.group_offsets(settings.group, places)
    paused = {(pause.topic, pause.partition): pause.why for pause in pauses}
    reasons: dict[str, dict[str, int]] = {}
    for (type_name, reason), number in by_reason.items():
        reasons.setdefault(type_name, {})[reason] = number
    return Status(
        [
            PartitionStatus(
                report.group,
                report.cursor,
                emitted.get(place),
                found.last_stable_offset if (found := ranges.get(place)) else None,
                found.start_offset if found else None,
                paused.get(place),
            )
            for report, place in zip(cursors, places, strict=True)
        ],
        reasons,
        marks[0].why if marks else None,
    )
