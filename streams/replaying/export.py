"""The range to the file: read, filter, write; then the manifest, and both take their names.

Records are read and written in pieces bounded in records and bytes, so memory does not grow with
the range. Until the end nothing stands under the final names.
"""

from __future__ import annotations

import gc
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from connectors.errors import Stop
from connectors.export import Format, Row, RowWriter, check_available, row_writer
from connectors.export.new_file import NewFile
from connectors.kafka.range_reader import RangeReader
from connectors.kafka.settings import KafkaSettings
from connectors.ports import SchemaStore
from schemas.columns import Column
from schemas.envelope import RawRecord
from schemas.record_type import RecordType
from schemas.totals import stated_amount, unscaled_amount
from streams.replaying.asked import Wanted, topic_of
from streams.replaying.committed import CommittedRows
from streams.replaying.extent import Extent, fix_extent
from streams.replaying.manifest import manifest, manifest_path, manifest_text
from streams.replaying.raw import RawRows
from streams.replaying.tally import Tally

PIECE_RECORDS_MAX = 2_000
PIECE_BYTES_MAX = 8 * 1024 * 1024
"""How much is held as rows before it is written. Part of the files' form: see `RowWriter`."""
COLLECTED_AFTER = 100_000
"""How many objects more there must be before Python looks for cycles: rows are many objects and
have none, and the search for them takes longer than reading them."""


class Rows(Protocol):
    """Records of one kind of topic as rows."""

    @property
    def columns(self) -> Sequence[Column]:
        """What each row holds."""

    @property
    def masked_columns(self) -> Sequence[str]:
        """Paths of what is masked, none when all is revealed."""

    async def take(
        self, partition: int, records: Sequence[RawRecord], tally: Tally
    ) -> list[tuple[Row, int]]:
        """The rows of the records that are wanted, each with about its bytes; counted."""


@dataclass(frozen=True, slots=True)
class Target:
    """Where the file goes, and how."""

    path: Path
    chosen: Format
    replace: bool
    reveal: bool


@dataclass(frozen=True, slots=True)
class Exported:
    """A file that is there."""

    manifest: dict[str, Any]
    extent: Extent


Recorded = Callable[[Extent], Awaitable[None]]
"""Puts on record that a range is revealed. The file is begun only after it returns."""
Progressed = Callable[[int, int, int], None]
"""Told offsets passed by now, offsets in all, records written by now."""


async def export(
    settings: KafkaSettings,
    record_type: RecordType,
    schema_store: SchemaStore,
    wanted: Wanted,
    target: Target,
    *,
    on_reveal: Recorded,
    on_progress: Progressed,
) -> Exported:
    """Write what is wanted to a file with a manifest beside it.

    Leaves both or, when it raises or is cancelled, none. Raises `ConfigurationError`, `Stop` (the
    range is not there as wanted, or the file cannot be written), `BrokerUnavailable`,
    `SchemaStoreUnavailable`, and whatever `on_reveal` raises.
    """
    file = NewFile(target.path, private=target.reveal, replace=target.replace)
    beside = NewFile(manifest_path(target.path), private=target.reveal, replace=target.replace)
    file.check()
    beside.check()
    check_available(target.chosen)
    topic = settings.topic(topic_of(record_type, wanted.kind))
    async with RangeReader(settings, topic) as reader:
        extent = await fix_extent(reader, wanted)
        rows = _rows(record_type, extent, schema_store, reveal=target.reveal)
        reads = unscaled_amount if wanted.kind == "committed" else stated_amount
        tally = Tally(record_type.totals, reads)
        if target.reveal:
            await on_reveal(extent)
        with file, beside:
            await _write(reader, extent, rows, tally, file, target.chosen, on_progress)
            file.settle()
            masked = None if target.reveal else rows.masked_columns
            found = manifest(record_type, extent, tally, rows.columns, masked, target.chosen, file)
            beside.write(manifest_text(found).encode())
            beside.settle()
            await reader.check_same_topic()
            file.check()
            # Where the file is, its manifest is.
            beside.appear()
            file.appear()
    return Exported(found, extent)


def _rows(
    record_type: RecordType, extent: Extent, schema_store: SchemaStore, *, reveal: bool
) -> Rows:
    if extent.kind == "committed":
        return CommittedRows(record_type, extent.topic, extent.filters, reveal=reveal)
    return RawRows(
        record_type,
        extent.topic,
        extent.filters,
        schema_store,
        reveal=reveal,
        quarantine=extent.kind == "quarantine",
    )


async def _write(
    reader: RangeReader,
    extent: Extent,
    rows: Rows,
    tally: Tally,
    file: NewFile,
    chosen: Format,
    on_progress: Progressed,
) -> None:
    writer = row_writer(chosen, file, rows.columns)
    done = False
    collected = gc.get_threshold()
    gc.set_threshold(COLLECTED_AFTER)
    try:
        async for piece in _pieces(reader, extent, rows, tally, on_progress):
            _write_piece(writer, piece, extent)
        writer.finish()
        done = True
    finally:
        gc.set_threshold(*collected)
        if not done:
            writer.abandon()


def _write_piece(writer: RowWriter, piece: Sequence[Row], extent: Extent) -> None:
    try:
        writer.write(piece)
    except (ValueError, TypeError, OverflowError) as error:
        message = (
            f"topic {extent.topic}: a record holds a value that its column cannot "
            f"({type(error).__name__}): it is none that this gate wrote"
        )
        raise Stop(message) from None


async def _pieces(
    reader: RangeReader, extent: Extent, rows: Rows, tally: Tally, on_progress: Progressed
) -> AsyncIterator[list[Row]]:
    """Rows in pieces whose ends depend on the records alone, not on how they were fetched. The last
    piece may be empty."""
    piece: list[Row] = []
    held_bytes = passed = 0
    for span in extent.spans:
        tally.of(span.partition)
        async for fetched in reader.read(span.partition, span.first, span.end):
            for row, size in await rows.take(span.partition, fetched.records, tally):
                piece.append(row)
                held_bytes += size
                if len(piece) == PIECE_RECORDS_MAX or held_bytes >= PIECE_BYTES_MAX:
                    yield piece
                    piece, held_bytes = [], 0
            passed += fetched.next_offset - fetched.begin
            on_progress(passed, extent.offsets, tally.written)
    yield piece
