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
    TaskID,
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
def byte_progress(console: Console) -> Iterator[Callable[[str, int, int, int], None]]:
    """Bars for files, one for each thing that is done to them: call it with (what, bytes read,
    bytes in all, records done by now); a bar is shown on first use."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TextColumn("{task.fields[records]} records"),
        TextColumn("{task.fields[per_s]}/s"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console) as bars:
        tasks: dict[str, TaskID] = {}

        def report(what: str, read_bytes: int, total_bytes: int, records: int) -> None:
            if what not in tasks:
                tasks[what] = bars.add_task(what, total=total_bytes, records=0, per_s=0)
            elapsed_s = bars.tasks[tasks[what]].elapsed or 0
            bars.update(
                tasks[what],
                completed=read_bytes,
                total=total_bytes,
                records=records,
                per_s=round(records / max(elapsed_s, 1)),
            )

        yield report


@contextmanager
def offset_progress(console: Console, what: str) -> Iterator[Callable[[int, int, int], None]]:
    """A bar for ranges: call it with (offsets passed, offsets in all, records written by now)."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("offsets, {task.fields[records]} records, {task.fields[rate]}/s"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console) as bars:
        task = bars.add_task(what, total=None, records=0, rate=0)

        def report(passed: int, total: int, records: int) -> None:
            rate = int(passed / max(bars.tasks[0].elapsed or 0, 1))
            bars.update(task, completed=passed, total=total, records=records, rate=rate)

        yield report
