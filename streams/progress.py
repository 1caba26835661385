"""Progress bars for what takes long; on standard error, so that output stays clean."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)


@contextmanager
def download_progress(console: Console) -> Iterator[Callable[[str, int, int], None]]:
    """A bar for downloads: call it with (what, done bytes, total bytes); shown on first use."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console) as bars:
        tasks: dict[str, int] = {}

        def report(what: str, done_bytes: int, total_bytes: int) -> None:
            if what not in tasks:
                tasks[what] = bars.add_task(what, total=total_bytes)
            bars.update(tasks[what], completed=done_bytes)  # type: ignore[arg-type]

        yield report


class RecordReport(Protocol):
    """What `record_progress` is told."""

    def __call__(self, done: int, total: int | None = None) -> None:
        """How many are done by now and, once that is known, of how many."""


@contextmanager
def record_progress(console: Console, what: str, total: int | None) -> Iterator[RecordReport]:
    """A bar for records: call it with how many are done by now."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console) as bars:
        task = bars.add_task(what, total=total)

        def report(done: int, total: int | None = None) -> None:
            bars.update(task, completed=done, total=total)

        yield report


@contextmanager
def byte_progress(console: Console, what: str) -> Iterator[Callable[[int, int, int], None]]:
    """A bar for files: call it with (bytes read, bytes in all, records acknowledged by now)."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TextColumn("{task.fields[records]} records"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console) as bars:
        task = bars.add_task(what, total=None, records=0)

        def report(read_bytes: int, total_bytes: int, records: int) -> None:
            bars.update(task, completed=read_bytes, total=total_bytes, records=records)

        yield report
