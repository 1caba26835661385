"""Parquet, with every choice of the writer pinned: the same rows give the same bytes, as long as
pyarrow is the same."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from operator import itemgetter
from typing import Any

from connectors.errors import ConfigurationError
from connectors.export import Row, Sink
from schemas.columns import Column, Kind, Scalar

try:
    import pyarrow as pa
    import pyarrow.parquet as pq

    from connectors.export.arrow_types import arrow_array, arrow_fields
except ImportError:
    _message = "Parquet needs pyarrow: pip install 'weighbridge[parquet]', or take jsonl or csv"
    raise ConfigurationError(_message) from None

GROUP_ROWS_MAX = 20_000
GROUP_BYTES_MAX = 32 * 1024 * 1024
"""A row group is held in memory, as Arrow arrays, until it is written."""


class ParquetFile:
    """Row groups of whole pieces."""

    def __init__(self, sink: Sink, columns: Sequence[Column]) -> None:
        self._columns = columns
        self._schema = pa.schema(arrow_fields(columns))
        self._pieces: list[Any] = []
        self._rows = self._bytes = 0
        self._writer = pq.ParquetWriter(
            pa.PythonFile(_OnlyWrite(sink), mode="w"),
            self._schema,
            version="2.6",
            data_page_version="1.0",
            compression="zstd",
            compression_level=1,
            # Digests repeat nothing: a dictionary of them is work for nothing.
            use_dictionary=[name for c in columns for name in _repeating(c)],
            write_statistics=True,
            store_schema=True,
        )

    def write(self, rows: Sequence[Row]) -> None:
        """Take a piece."""
        names = [one.name for one in self._columns]
        values = _by_column(rows, names)
        arrays = [
            arrow_array(one.type, of_one) for one, of_one in zip(self._columns, values, strict=True)
        ]
        piece = pa.RecordBatch.from_arrays(arrays, schema=self._schema)
        if self._rows + piece.num_rows > GROUP_ROWS_MAX or self._bytes > GROUP_BYTES_MAX:
            self._write_group()
        self._pieces.append(piece)
        self._rows += piece.num_rows
        self._bytes += piece.nbytes

    def _write_group(self) -> None:
        if self._pieces:
            # One chunk: the boundaries of several would show in the pages.
            group = pa.Table.from_batches(self._pieces).combine_chunks()
            self._writer.write_table(group, row_group_size=max(1, self._rows))
        self._pieces, self._rows, self._bytes = [], 0, 0

    def finish(self) -> None:
        """Write the last row group and the file's foot."""
        self._write_group()
        self._writer.close()

    def abandon(self) -> None:
        """Make the library let go of the file: otherwise it writes a foot when it is collected."""
        with contextlib.suppress(Exception):
            self._writer.close()


def _by_column(rows: Sequence[Row], names: Sequence[str]) -> Iterable[tuple[Any, ...]]:
    """Rows turned by a quarter, without a step of Python's for each value."""
    if not rows:
        return [()] * len(names)
    if len(names) == 1:
        return [tuple(row[names[0]] for row in rows)]
    return zip(*map(itemgetter(*names), rows), strict=True)


def _repeating(column: Column) -> list[str]:
    kind = column.type
    return [column.name] if isinstance(kind, Scalar) and kind.kind is not Kind.BYTES else []


class _OnlyWrite:
    """A sink as pyarrow wants files: it closes what it is given, and the sink is not its own."""

    closed = False

    def __init__(self, sink: Sink) -> None:
        self._sink = sink

    def write(self, content: bytes) -> int:
        self._sink.write(bytes(content))
        return len(content)

    def flush(self) -> None:
        """The sink's owner does."""

    def close(self) -> None:
        """The sink's owner does."""
