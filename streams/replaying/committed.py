"""Records of a committed topic as rows: the contract's own fields, and where the event stands."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from connectors.errors import PartitionStop
from connectors.export import Row
from schemas import envelope
from schemas.avro_strict import SINGLE_OBJECT_HEAD_BYTES
from schemas.columns import (
    Column,
    Kind,
    ReadRow,
    Scalar,
    columns_of,
    mask,
    masked_paths,
    row_reader,
)
from schemas.envelope import NO_TIMESTAMP, RawRecord, last_header
from schemas.record_type import RecordType
from streams.replaying.asked import Filters
from streams.replaying.tally import Tally

EVENT_COLUMNS = (
    Column("event_id", Scalar(Kind.TEXT)),
    Column("event_topic", Scalar(Kind.TEXT)),
    Column("event_partition", Scalar(Kind.INT)),
    Column("event_offset", Scalar(Kind.LONG)),
    Column("event_timestamp", Scalar(Kind.INSTANT)),
)
"""Where the event itself stands; `topic` to `offset` of the contract are the raw record's."""
LAST_TIMESTAMP_MS = 253_402_300_799_999
"""The last millisecond of the year 9999: text of four-digit years says no later one."""


def instant_us(timestamp_ms: int) -> int | None:
    """A Kafka timestamp as an instant; None when there is none, or it says no year we can write."""
    return timestamp_ms * 1000 if NO_TIMESTAMP < timestamp_ms <= LAST_TIMESTAMP_MS else None


class CommittedRows:
    """Decodes events we wrote ourselves; anything else in their topic stops the replay."""

    def __init__(
        self, record_type: RecordType, topic: str, filters: Filters, *, reveal: bool
    ) -> None:
        newest = record_type.committed_schemas[-1]
        fields = columns_of(newest)
        shown = fields if reveal else mask(fields, record_type.shown)
        self.columns: tuple[Column, ...] = (*EVENT_COLUMNS, *shown)
        self.masked_columns = list(masked_paths(self.columns))
        self._topic = topic
        self._filters = filters
        self._run_field = record_type.run_field
        self._readers: dict[bytes, ReadRow] = {
            schema.head: row_reader(schema, newest) for schema in record_type.committed_schemas
        }
        self._wanted = self._filter()

    async def take(
        self, partition: int, records: Sequence[RawRecord], tally: Tally
    ) -> list[tuple[Row, int]]:
        """The rows of those that are wanted, with about their bytes. Raises `PartitionStop`."""
        found = tally.of(partition)
        rows: list[tuple[Row, int]] = []
        found.read += len(records)
        in_time, wanted, sums = self._filters.in_time, self._wanted, tally.sums
        for record in records:
            if not in_time(record):
                continue
            row = self._row(partition, record)
            if wanted is not None and not wanted(record, row):
                continue
            found.passed(record.offset)
            tally.digested(row["canonical_digest"])
            if sums is not None:
                sums.add(row)
            rows.append((row, len(record.value or b"")))
        return rows

    def _row(self, partition: int, record: RawRecord) -> dict[str, Any]:
        value = record.value or b""
        read = self._readers.get(value[:SINGLE_OBJECT_HEAD_BYTES])
        if read is None:
            self._stop(partition, record, "it names no committed schema of this version")
        try:
            row = read(value)
        except Exception as error:  # noqa: BLE001 - foreign bytes make the decoder raise anything
            self._stop(partition, record, f"it does not decode ({type(error).__name__})")
        event_id = (last_header(record.headers, envelope.EVENT_ID) or b"").decode(
            "utf-8", "replace"
        )
        place = f"/{row['incarnation']}/{row['partition']}/{row['offset']}"
        if not event_id.endswith(place):
            self._stop(partition, record, f"its {envelope.EVENT_ID} is not the position it holds")
        row["event_id"] = event_id
        row["event_topic"] = self._topic
        row["event_partition"] = partition
        row["event_offset"] = record.offset
        row["event_timestamp"] = instant_us(record.timestamp)
        return row

    def _stop(self, partition: int, record: RawRecord, why: str) -> NoReturn:
        what = f"the event at offset {record.offset} is none that this gate wrote: {why}"
        raise PartitionStop((self._topic, partition), what) from None

    def _filter(self) -> Callable[[RawRecord, Row], bool] | None:
        """Run and key; None when neither was asked for."""
        run, key, run_field = self._filters.run, self._filters.key, self._run_field
        if run is None and key is None:
            return None
        message_key = None if key is None else key.encode()

        def wanted(record: RawRecord, row: Row) -> bool:
            of_run = run is None or (run_field is not None and row[run_field] == run)
            of_key = key is None or record.key == message_key or row["idempotency_key"] == key
            return of_run and of_key

        return wanted
