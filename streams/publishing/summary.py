"""What became of the files of a publication, and how far it has come meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NoReturn

from connectors.errors import WeighbridgeError
from streams.publishing.chunks import Plan, RunPlan

Outcome = Literal[
    "published",  # all of it is on the topic
    "already",  # it was before this call
    "checked",  # a dry run: nothing was sent
    "refused",  # something is wrong with the file, or with what its manifest says of it
    "stopped",  # its state, or another publisher, stands against it: somebody must decide
    "interrupted",  # by Ctrl-C: the same command goes on
    "failed",  # by trouble with Kafka: the same command goes on
]
Phase = Literal["checking", "publishing"]
REPORT_EVERY_S = 0.1
RUNS_SHOWN_MAX = 100
"""Most runs that a summary lists."""


@dataclass(slots=True)
class FileSummary:
    """What became of one file."""

    path: Path
    outcome: Outcome = "failed"
    publication: str | None = None
    """Its UUID."""
    rows: int = 0
    """Rows of the file, those left out included."""
    records: int = 0
    """Records to publish."""
    sent: int = 0
    """Records that this call has put on the topic, for certain."""
    sent_before: int = 0
    """Records that were on it already when this call went on with the publication."""
    chunks: int = 0
    chunks_done: int = 0
    """How many of these are on the topic, for certain."""
    malformed: int = 0
    """How many of the records are rows that could not be mapped."""
    too_large: int = 0
    """Rows larger than the topic takes; they are not published."""
    too_large_lines: list[int] = field(default_factory=list)
    """The first lines of those, some of them."""
    differences: list[str] = field(default_factory=list)
    """What differs from the source's manifest."""
    runs: dict[str, RunPlan] = field(default_factory=dict)
    state: Path | None = None
    """The file that says how far it has come."""
    note: str | None = None
    """What else is worth knowing."""
    why: str | None = None
    """Why it was refused, stopped or failed."""

    def planned(self, plan: Plan, rows: int) -> None:
        """Take over what the first reading found."""
        self.rows, self.records, self.chunks = rows, plan.records, plan.chunks
        self.malformed, self.too_large = plan.malformed, plan.too_large
        self.too_large_lines, self.runs = plan.too_large_lines, plan.runs

    def chunk_in(self, number: int, records: int, *, sent: bool) -> None:
        """A chunk is on the topic, by this call or before it."""
        self.chunks_done = number
        if sent:
            self.sent += records
        else:
            self.sent_before += records

    def already(self, completed_at: str, publication: str, too_large: int) -> None:
        """All of it was published before this call."""
        self.outcome, self.publication, self.too_large = "already", publication, too_large
        self.note = (
            f"already published completely at {completed_at}; --again publishes it once more"
        )

    @property
    def complete(self) -> bool:
        """Whether every row is where it should be."""
        return self.outcome in {"published", "already", "checked"} and self.too_large == 0

    def as_dict(self) -> dict[str, object]:
        """For `publish --json`."""
        return {
            "path": str(self.path),
            "outcome": self.outcome,
            "publication": self.publication,
            "rows": self.rows,
            "records": self.sent,
            "records_before": self.sent_before,
            "records_planned": self.records,
            "chunks": self.chunks,
            "chunks_done": self.chunks_done,
            "malformed": self.malformed,
            "too_large": self.too_large,
            "too_large_lines": self.too_large_lines,
            "runs": [
                {
                    "run": name,
                    "chunks": run.chunks,
                    "records": run.records,
                    "totals": {currency: str(sum_) for currency, sum_ in run.totals.items()},
                    "unreadable_amounts": run.unreadable,
                    "unmappable_rows": run.malformed,
                }
                for name, run in list(self.runs.items())[:RUNS_SHOWN_MAX]
            ],
            "runs_in_all": len(self.runs),
            "differences": self.differences,
            "state": None if self.state is None else str(self.state),
            "note": self.note,
            "why": self.why,
        }


@dataclass(slots=True)
class PublishSummary:
    """What became of a publication."""

    topic: str
    files_named: int
    """How many files there are; those that were not reached are not in `files`."""
    files: list[FileSummary] = field(default_factory=list)
    seconds: float = 0.0
    failure: WeighbridgeError | None = None
    """What ended it before its end, other than Ctrl-C."""

    @property
    def complete(self) -> bool:
        """Whether every row of every file is acknowledged."""
        reached = len(self.files) == self.files_named
        return reached and self.failure is None and all(one.complete for one in self.files)

    def total(self, count: Literal["rows", "records", "sent", "malformed", "too_large"]) -> int:
        """One of the counts over all files."""
        return sum(getattr(one, count) for one in self.files)

    def as_dict(self) -> dict[str, object]:
        """For `publish --json`."""
        return {
            "topic": self.topic,
            "records": self.total("sent"),
            "malformed": self.total("malformed"),
            "too_large": self.total("too_large"),
            "seconds": round(self.seconds, 3),
            "complete": self.complete,
            "failure": None if self.failure is None else str(self.failure),
            "files": [one.as_dict() for one in self.files],
        }


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a publication has come."""

    path: Path
    """The file at work."""
    phase: Phase
    """The first reading of a file, or the second."""
    bytes_read: int
    """In this phase, of all files; 0 to `bytes_total`, never less than before."""
    bytes_total: int
    """Of all files."""
    records: int
    """Records read, or acknowledged, by now."""


class Reporter:
    """Tells how far the files have come: a few times a second, and whenever a chunk is in.

    Readings, which run in threads, only note where they are; everything is told on the event loop.
    """

    def __init__(
        self,
        on_progress: Callable[[Progress], None],
        summary: PublishSummary,
        files: Sequence[Path],
        *,
        dry_run: bool,
    ) -> None:
        self.bytes_read = 0
        """Of the file at work, in the phase at work."""
        self.rows_read = 0
        self._phases: tuple[Phase, ...] = ("checking",) if dry_run else ("checking", "publishing")
        self._phase: Phase = "checking"
        self._path = files[0]
        self._on_progress, self._summary = on_progress, summary
        self._sizes = {path: path.stat().st_size for path in files}
        self._bytes_before = 0

    async def run(self) -> NoReturn:
        """Tell it until cancelled."""
        while True:
            await asyncio.sleep(REPORT_EVERY_S)
            self.report()

    def begin(self, path: Path, phase: Phase) -> None:
        """A reading of a file begins."""
        self._path, self._phase = path, phase
        self.bytes_read = self.rows_read = 0
        self.report()

    def end_of_file(self) -> None:
        """The file is done, one way or another."""
        self._bytes_before += self._sizes[self._path]
        self.bytes_read = self.rows_read = 0
        for phase in self._phases:
            self._phase = phase
            self.report()

    def report(self) -> None:
        """Tell it now."""
        read, total = self._bytes_before + self.bytes_read, sum(self._sizes.values())
        if self._phase == "checking":
            records = self._summary.total("records") + self.rows_read
        else:
            records = self._summary.total("sent")
        self._on_progress(Progress(self._path, self._phase, read, total, records))
