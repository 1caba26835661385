"""Files of records for analysts: JSONL, CSV and Parquet, whole or not there.

    new_file.py      a file that appears under its name when it is whole
    text_files.py    JSONL and CSV
    parquet_file.py  Parquet (needs pyarrow)
    arrow_types.py   columns in terms of Arrow

Each writer is a function of columns and rows alone: the same ones give the same bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol, get_args

from connectors.errors import ConfigurationError
from schemas.columns import Column

Format = Literal["jsonl", "csv", "parquet"]
FORMATS: tuple[Format, ...] = get_args(Format)
_ENDINGS: dict[str, Format] = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".csv": "csv",
    ".parquet": "parquet",
}

Row = Mapping[str, Any]
"""Column name to value, as `schemas.columns` describes values; every column is there."""


class Sink(Protocol):
    """Where a writer's bytes go."""

    def write(self, content: bytes, /) -> object:
        """Take all of it, or raise."""


class RowWriter(Protocol):
    """Writes rows in the order they come. Raises `ValueError` or `OverflowError` for a value that
    is not of its column, and what the sink raises."""

    def write(self, rows: Sequence[Row]) -> None:
        """Take a piece of the rows. Where pieces begin and end is part of what is written: the same
        rows in other pieces may give other bytes of the same content."""

    def finish(self) -> None:
        """Write what is left; afterwards the file is whole."""

    def abandon(self) -> None:
        """Let go of the sink without finishing. Never raises."""


def format_of(path: Path, named: str | None) -> Format:
    """The format as named, else by the file's ending. Raises `ConfigurationError`."""
    chosen = _ENDINGS.get(path.suffix.lower()) if named is None else named
    for one in FORMATS:
        if one == chosen:
            return one
    message = f"{path.name}: no format goes by this ending; say --format {'|'.join(FORMATS)}"
    raise ConfigurationError(message)


def check_available(chosen: Format) -> None:
    """Raises `ConfigurationError` for Parquet where pyarrow is not there."""
    if chosen == "parquet":
        from connectors.export import parquet_file  # noqa: F401, PLC0415 - to see that it can be


def row_writer(chosen: Format, sink: Sink, columns: Sequence[Column]) -> RowWriter:
    """A writer of a format. Raises like `check_available`."""
    # Only those who ask for Parquet need its library.
    if chosen == "parquet":
        from connectors.export.parquet_file import ParquetFile  # noqa: PLC0415

        return ParquetFile(sink, columns)
    from connectors.export.text_files import CsvFile, JsonlFile  # noqa: PLC0415

    return CsvFile(sink, columns) if chosen == "csv" else JsonlFile(sink, columns)
