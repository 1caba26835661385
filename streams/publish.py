"""Publishing files to a raw topic: every record acknowledged, the summary says what is certain.

A row that cannot be mapped goes too, as its own bytes with header `wb-source-error`: the gate gives
it a verdict, nothing is left behind unseen. A file that cannot be cut into rows is refused before
any of it is sent. A retry inside one publication is not a second record; publishing a file again
sends it again, and the gate finds the duplicates.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import jiter
import structlog

from connectors.errors import ConfigurationError, WeighbridgeError
from connectors.files import (
    Checked,
    FileRow,
    MalformedFile,
    RowReader,
    SourceFile,
    find_files,
)
from connectors.files.csv_rows import CsvFields
from connectors.kafka.admin import KafkaAdmin
from connectors.kafka.outbox import Load, Outbox
from connectors.kafka.settings import KafkaSettings
from schemas.envelope import CORRELATION_ID, SOURCE_ERROR, Headers
from schemas.record_type import RecordType

log = structlog.get_logger("weighbridge.publish")

MESSAGE_BYTES_DEFAULT = 1_048_588
"""Kafka's default of max.message.bytes, assumed where we may not ask."""
KEY_BYTES_MAX = 256
"""A longer key is no identity; such a record goes without one."""
REPORT_EVERY_S = 0.1
LAST_ANSWERS_S = 5.0
"""How long acknowledgements under way are waited for after Ctrl-C."""
LINES_NAMED_MAX = 20


@dataclass(slots=True)
class FileSummary:
    """What became of one file."""

    path: Path
    outcome: Literal["published", "refused", "interrupted", "failed"] = "failed"
    rows: int = 0
    """Rows read from it."""
    acknowledged: int = 0
    """Records that the brokers hold, for certain."""
    malformed: int = 0
    """How many of the acknowledged were rows that could not be mapped."""
    bytes_acknowledged: int = 0
    too_large: int = 0
    """Rows larger than the topic takes; they were not published."""
    too_large_lines: list[int] = field(default_factory=list)
    """The first lines of those, some of them."""
    certain_line: int = 0
    """Everything up to this line is acknowledged (or too large); later rows may be as well."""
    why: str | None = None
    """Why it was refused or failed."""


@dataclass(slots=True)
class PublishSummary:
    """What became of a publication."""

    topic: str
    files: list[FileSummary] = field(default_factory=list)
    seconds: float = 0.0
    failure: WeighbridgeError | None = None
    """What ended it before its end, other than Ctrl-C."""

    @property
    def complete(self) -> bool:
        """Whether every row of every file is acknowledged."""
        return self.failure is None and all(
            one.outcome == "published" and one.too_large == 0 for one in self.files
        )

    def total(self, count: Literal["rows", "acknowledged", "malformed", "too_large"]) -> int:
        """One of the counts over all files."""
        return sum(getattr(one, count) for one in self.files)

    def as_dict(self) -> dict[str, object]:
        """For `publish --json`."""
        return {
            "topic": self.topic,
            "records": self.total("acknowledged"),
            "malformed": self.total("malformed"),
            "too_large": self.total("too_large"),
            "bytes": sum(one.bytes_acknowledged for one in self.files),
            "seconds": round(self.seconds, 3),
            "complete": self.complete,
            "failure": None if self.failure is None else str(self.failure),
            "files": [
                {
                    "path": str(one.path),
                    "outcome": one.outcome,
                    "rows": one.rows,
                    "records": one.acknowledged,
                    "malformed": one.malformed,
                    "too_large": one.too_large,
                    "certain_line": one.certain_line,
                    "why": one.why,
                }
                for one in self.files
            ],
        }


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a publication has come."""

    path: Path
    """The file at work."""
    bytes_read: int
    bytes_total: int
    """Of all files."""
    rows: int
    acknowledged: int


def _no_report(_: Progress) -> None:
    """Nobody is watching."""


async def publish(
    settings: KafkaSettings,
    record_type: RecordType,
    paths: Sequence[Path],
    *,
    on_progress: Callable[[Progress], None] = _no_report,
    dry_run: bool = False,
    correlation: bool = False,
    stop: asyncio.Event | None = None,
    profile: RowReader | None = None,
) -> PublishSummary:
    """Publish files, and the files of folders, to the record type's raw topic.

    One file after the other, each in order per key. With `dry_run` files are read and checked, and
    nothing is sent. With `correlation` each record carries header `correlation-id`, `FILE:LINE`.
    Setting `stop` ends it after the row at work; what is under way is waited for. Trouble with the
    brokers ends it, and is the summary's `failure`: the same files may be published again. Raises
    `ConfigurationError` for paths or a topic that are not there, `BrokerUnavailable` when Kafka
    cannot be reached at the start.
    """
    publication = _Publication(settings, record_type, on_progress, correlation, stop, profile)
    files = find_files(paths)
    started_s = time.monotonic()
    if dry_run:
        publication.read_only(files)
    else:
        await publication.run(files)
    publication.summary.seconds = time.monotonic() - started_s
    return publication.summary


class _Publication:
    """One call of `publish`."""

    def __init__(
        self,
        settings: KafkaSettings,
        record_type: RecordType,
        on_progress: Callable[[Progress], None],
        correlation: bool,  # noqa: FBT001 - private, passed on by name above
        stop: asyncio.Event | None,
        profile: RowReader | None,
    ) -> None:
        self._profile = profile
        self.summary = PublishSummary(settings.topic(record_type.raw_topic))
        self._settings = settings
        self._record_type = record_type
        self._on_progress = on_progress
        self._correlation = correlation
        self._stop = stop or asyncio.Event()
        self._fields = csv_fields(record_type)
        self._sizes: dict[Path, int] = {}
        self._bytes_before = 0
        self._report_at_s = 0.0

    # -- the files ---------------------------------------------------------------------------------

    def read_only(self, files: Sequence[Path]) -> None:
        """Check the files without sending anything."""
        for path in files:
            one = self._begin(path)
            try:
                checked = self._checked(path)
            except MalformedFile as error:
                one.outcome, one.why = "refused", str(error)
                continue
            one.outcome, one.rows, one.malformed = "published", checked.rows, checked.malformed

    def _checked(self, path: Path) -> Checked:
        with SourceFile(path, self._fields, self._profile) as source:
            return source.check()

    def _begin(self, path: Path) -> FileSummary:
        one = FileSummary(path)
        self.summary.files.append(one)
        return one

    async def run(self, files: Sequence[Path]) -> None:
        """Publish the files one after the other, until one fails or we are told to stop."""
        partitions, record_bytes_max = await self._topic()
        self._sizes = {path: path.stat().st_size for path in files}
        try:
            async with Outbox(
                self._settings,
                self.summary.topic,
                partitions=partitions,
                record_bytes_max=record_bytes_max,
                on_acknowledged=self._acknowledged,
            ) as outbox:
                for path in files:
                    if not self._stop.is_set():
                        await self._file(outbox, path)
        except WeighbridgeError as error:
            self.summary.failure = error

    async def _topic(self) -> tuple[int, int]:
        """How many partitions the topic has, and the largest record it takes."""
        topic = self.summary.topic
        async with KafkaAdmin(self._settings) as admin:
            found = (await admin.topics([topic])).get(topic)
            if not found:
                message = (
                    f"no topic {topic} at {self._settings.bootstrap}: `weighbridge topics create` "
                    "makes it"
                )
                raise ConfigurationError(message)
            try:
                config: Mapping[str, str] = (await admin.topic_configs([topic]))[topic]
            except ConfigurationError:
                config = {}
        return len(found), int(config.get("max.message.bytes", MESSAGE_BYTES_DEFAULT))

    # -- one file ----------------------------------------------------------------------------------

    async def _file(self, outbox: Outbox, path: Path) -> None:
        one = self._begin(path)
        try:
            with SourceFile(path, self._fields, self._profile) as source:
                checked = await asyncio.to_thread(source.check)
                await self._rows(outbox, one, source, checked)
        except MalformedFile as error:
            one.outcome, one.why = ("failed" if one.rows else "refused"), str(error)
            log.warning("file_refused", path=str(path), line=error.line)
        except WeighbridgeError as error:
            one.why = str(error)
            raise
        finally:
            one.certain_line = _certain(outbox, one.certain_line)
            self._bytes_before += self._sizes[path]
            self._report(one, 0, now=True)

    async def _rows(
        self, outbox: Outbox, one: FileSummary, source: SourceFile, checked: Checked
    ) -> None:
        """Put every row; then wait until all are acknowledged."""
        for row in source.rows(checked):
            if self._stop.is_set():
                await self._last_answers(outbox, one)
                return
            one.rows += 1
            one.certain_line = row.line
            taken = await outbox.put(
                self._key(row),
                row.value,
                self._headers(one.path, row),
                mark=row.line,
                flagged=row.error is not None,
            )
            if not taken:
                one.too_large += 1
                if len(one.too_large_lines) < LINES_NAMED_MAX:
                    one.too_large_lines.append(row.line)
            self._report(one, row.end_offset)
        await outbox.settle()
        one.outcome = "published"

    async def _last_answers(self, outbox: Outbox, one: FileSummary) -> None:
        one.outcome = "interrupted"
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LAST_ANSWERS_S):
                await outbox.settle()

    def _key(self, row: FileRow) -> bytes | None:
        """The record's message key, as far as it can be read; what it holds is for the gate."""
        members = row.members if row.error is None else None
        if members is None and row.error is None:
            with contextlib.suppress(ValueError):
                members = jiter.from_json(row.value)
        if not isinstance(members, Mapping):
            return None
        identity = self._record_type.identify(members)
        key = None if identity is None else identity.encode("utf-8", "replace")
        return key if key is not None and len(key) <= KEY_BYTES_MAX else None

    def _headers(self, path: Path, row: FileRow) -> Headers:
        headers: list[tuple[str, bytes | None]] = []
        if row.error is not None:
            headers.append((SOURCE_ERROR, row.error.encode()))
        if self._correlation:
            headers.append((CORRELATION_ID, f"{path.name}:{row.line}".encode("utf-8", "replace")))
        return tuple(headers)

    # -- what is known -----------------------------------------------------------------------------

    def _acknowledged(self, load: Load) -> None:
        """Files are settled one by one, so an answer is about the file at work."""
        one = self.summary.files[-1]
        one.acknowledged += load.records
        one.malformed += load.flagged
        one.bytes_acknowledged += load.size_bytes

    def _report(self, one: FileSummary, bytes_read: int, *, now: bool = False) -> None:
        if now or time.monotonic() >= self._report_at_s:
            self._report_at_s = time.monotonic() + REPORT_EVERY_S
            self._on_progress(
                Progress(
                    one.path,
                    self._bytes_before + bytes_read,
                    sum(self._sizes.values()),
                    self.summary.total("rows"),
                    self.summary.total("acknowledged"),
                )
            )


def _certain(outbox: Outbox, last_line: int) -> int:
    unsure = outbox.unsure_from()
    return last_line if unsure is None else min(last_line, unsure - 1)


def csv_fields(record_type: RecordType) -> CsvFields:
    """What may stand in a CSV header of this record type, from its newest raw schema."""
    fields = record_type.raw_schemas[-1].fields() if record_type.raw_schemas else {}
    return CsvFields(tuple(fields), tuple(n for n, t in fields.items() if not _is_cell(t)))


def _is_cell(avro_type: object) -> bool:
    """Whether a cell can hold a value of this type: everything but lists and objects."""
    if isinstance(avro_type, list):
        return all(_is_cell(branch) for branch in avro_type)
    if isinstance(avro_type, Mapping):
        return _is_cell(avro_type.get("type"))
    return avro_type not in {"array", "map", "record"}
