"""Publishing files to a raw topic: in chunks, each exactly once, resumable.

Per file: 1. recognise it by its digest; 2. see what its state file says; 3. read it to its end, cut
it into chunks and hold it against its source's manifest; 4. write the state; 5. read it again and
send chunk by chunk. Nothing is sent before 4. A row that cannot be mapped goes too, as its own
bytes with header `wb-source-error`: the gate gives it a verdict, nothing is left behind unseen.
`streams/publishing/` holds the parts.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import structlog

from connectors.errors import (
    BrokerUnavailable,
    ConfigurationError,
    OwnershipLost,
    Stop,
    WeighbridgeError,
)
from connectors.files import Identity, MalformedFile, SourceFile, StateFile, find_files
from connectors.files.csv_rows import CsvFields
from connectors.kafka.admin import KafkaAdmin
from connectors.kafka.log import KafkaLog
from connectors.kafka.settings import KafkaSettings
from connectors.profiles import Profile
from schemas.chunk import CHUNK_RECORDS_MAX
from schemas.record_type import RecordType
from streams.publishing.chunks import Chunk, ChunkLimits, Plan
from streams.publishing.reading import FileReading, Interrupted, ManifestMismatch, Planned
from streams.publishing.rows import RowReader
from streams.publishing.run_manifest import Provenance, RunManifests
from streams.publishing.sending import Pacer, Sender
from streams.publishing.source_manifest import read_manifest
from streams.publishing.state import (
    Cut,
    State,
    StateKeeper,
    Target,
    now_text,
    read_state,
    resumed,
    state_path,
)
from streams.publishing.summary import FileSummary, Progress, PublishSummary, Reporter

log = structlog.get_logger("weighbridge.publish")

MESSAGE_BYTES_DEFAULT = 1_048_588
"""Kafka's default of max.message.bytes, assumed where we may not ask."""
FORGOTTEN = (
    "Kafka no longer knew how much was in (an idle group's offsets are kept a few days): the state "
    "file's own count was used, so one second's records may be in twice, and come out as duplicates"
)


@dataclass(frozen=True, slots=True)
class PublishOptions:
    """What a publication is asked to do."""

    chunks: ChunkLimits = field(default_factory=ChunkLimits)
    manifest: Path | None = None
    """The source's manifest, of one file."""
    profile: Profile | None = None
    """How the source's files become records."""
    correlation: bool = False
    """Each record carries header `correlation-id`, `FILE:LINE`."""
    backfill: bool = False
    """Each record carries header `wb-observed-at`, from its own time."""
    rate: int | None = None
    """Most records a second."""
    state: Path | None = None
    """The state file, of one file."""
    state_dir: Path | None = None
    again: bool = False
    """Begin a new publication, whatever the state says."""
    dry_run: bool = False
    """Read and plan; send nothing, write no state."""


@dataclass(frozen=True, slots=True)
class _Topic:
    """The raw topic, as it is now."""

    target: Target
    partitions: int
    record_bytes_max: int
    manifest_bytes_max: int


def _no_report(_: Progress) -> None:
    """Nobody is watching."""


async def publish(
    settings: KafkaSettings,
    record_type: RecordType,
    paths: Sequence[Path],
    options: PublishOptions | None = None,
    *,
    on_progress: Callable[[Progress], None] = _no_report,
    stop: asyncio.Event | None = None,
) -> PublishSummary:
    """Publish files, and the files of folders, one after the other, to the type's raw topic.

    Setting `stop` ends it after the chunk at work. Trouble with the brokers beyond what is waited
    for ends it too, and is the summary's `failure`; either way the same call goes on where this one
    ended. Raises `ConfigurationError` for options, paths or a topic that are not as they must be,
    `BrokerUnavailable` when Kafka cannot be reached at the start.
    """
    options = options or PublishOptions()
    files = find_files(paths)
    _check_options(record_type, files, options)
    run = _Publication(settings, record_type, files, options, on_progress, stop or asyncio.Event())
    started_s = time.monotonic()
    try:
        await run.all()
    finally:
        run.summary.seconds = time.monotonic() - started_s
    return run.summary


def _check_options(record_type: RecordType, files: Sequence[Path], options: PublishOptions) -> None:
    message = None
    if not 1 <= options.chunks.records <= CHUNK_RECORDS_MAX:
        message = f"--chunk-records takes 1 to {CHUNK_RECORDS_MAX}"
    elif len(files) > 1 and (options.manifest or options.state):
        option = "--manifest" if options.manifest else "--state"
        message = f"{option} is about one file, and these are {len(files)}"
    elif options.backfill and not record_type.observed_fields:
        message = f"--backfill: {record_type.name} records have no clock check that it could serve"
    if message is not None:
        raise ConfigurationError(message)


class _Publication:
    """One call of `publish`."""

    def __init__(
        self,
        settings: KafkaSettings,
        record_type: RecordType,
        files: Sequence[Path],
        options: PublishOptions,
        on_progress: Callable[[Progress], None],
        stop: asyncio.Event,
    ) -> None:
        self.summary = PublishSummary(settings.topic(record_type.raw_topic), len(files))
        self._settings, self._record_type, self._options = settings, record_type, options
        self._files, self._stop = files, stop
        self._manifest = None if options.manifest is None else read_manifest(options.manifest)
        self._pacer = Pacer(options.rate)
        self._progress = Reporter(on_progress, self.summary, files, dry_run=options.dry_run)

    async def all(self) -> None:
        """All files, until one fails or we are told to stop."""
        async with KafkaAdmin(self._settings) as admin:
            topic = await self._topic(admin)
            reporting = asyncio.create_task(self._progress.run())
            try:
                for path in self._files:
                    if self._stop.is_set() or self.summary.failure is not None:
                        return
                    one = FileSummary(path)
                    self.summary.files.append(one)
                    self._progress.begin(path, "checking")
                    await self._told(one, self._file(admin, topic, one))
            finally:
                reporting.cancel()

    async def _told(self, one: FileSummary, work: Awaitable[None]) -> None:
        """Do the work of a file; what ends it goes into its summary."""
        try:
            await work
        except (MalformedFile, ManifestMismatch) as error:
            one.outcome, one.why = "refused", str(error)
            if isinstance(error, ManifestMismatch):
                one.differences = error.differences
            log.warning("file_refused", path=str(one.path))
        except (Stop, OwnershipLost) as error:
            one.outcome, one.why = "stopped", str(error)
        except Interrupted:
            one.outcome = "interrupted"
        except WeighbridgeError as error:
            one.outcome, one.why = "failed", str(error)
            self.summary.failure = error
        finally:
            self._progress.end_of_file()

    # -- the topic ---------------------------------------------------------------------------------

    async def _topic(self, admin: KafkaAdmin) -> _Topic | None:
        """What there is to know of the raw topic; a dry run does without."""
        try:
            return await self._asked(admin)
        except (ConfigurationError, BrokerUnavailable):
            if self._options.dry_run:
                return None
            raise

    async def _asked(self, admin: KafkaAdmin) -> _Topic:
        raw = self.summary.topic
        names = [raw, *self._manifests_topic()]
        found = await admin.topics(names)
        for name in names:
            if not found.get(name):
                message = (
                    f"no topic {name} at {self._settings.bootstrap}: `weighbridge topics create` "
                    "makes it"
                )
                raise ConfigurationError(message)
        limits = await admin.message_bytes_max(names)
        async with KafkaLog(self._settings) as kafka_log:
            topic_id = await kafka_log.topic_id(raw)
        return _Topic(
            Target(record_type=self._record_type.name, topic=raw, topic_id=topic_id),
            len(found[raw]),
            limits.get(raw, MESSAGE_BYTES_DEFAULT),
            limits.get(names[-1], MESSAGE_BYTES_DEFAULT),
        )

    def _manifests_topic(self) -> list[str]:
        of_type = self._record_type
        return [] if of_type.runs is None else [self._settings.topic(of_type.manifests_topic)]

    # -- one file ----------------------------------------------------------------------------------

    async def _file(self, admin: KafkaAdmin, topic: _Topic | None, one: FileSummary) -> None:
        with SourceFile(one.path, csv_fields(self._record_type), self._options.profile) as source:
            identity = await asyncio.to_thread(source.identity)
            if topic is None or self._options.dry_run:
                limit = MESSAGE_BYTES_DEFAULT if topic is None else topic.record_bytes_max
                planned = await self._reading(source, limit).plan(identity, self._stop)
                one.planned(planned.plan, planned.checked.rows)
                one.outcome = "checked"
                return
            one.state = state_path(one.path, self._options.state, self._options.state_dir)
            with StateFile(one.state) as state_file:
                before = self._before(state_file, identity, topic.target)
                if before is not None and before.completed_at is not None:
                    one.already(before.completed_at, str(before.publication), before.too_large)
                    return
                limit = topic.record_bytes_max if before is None else before.record_bytes_max
                reading = self._reading(source, limit)
                planned = await reading.plan(identity, self._stop)
                one.planned(planned.plan, planned.checked.rows)
                state = before or self._new_state(one, identity, topic, planned.plan)
                one.publication = str(state.publication)
                keeper = StateKeeper(state_file, state)
                keeper.begin()
                await self._send(admin, topic, one, planned, reading, keeper)

    def _reading(self, source: SourceFile, record_bytes_max: int) -> FileReading:
        reader = RowReader(
            self._record_type,
            record_bytes_max=record_bytes_max,
            correlation=self._options.correlation,
            backfill=self._options.backfill,
        )
        chunks, manifest, progress = self._options.chunks, self._manifest, self._progress
        return FileReading(source, reader, chunks, manifest, progress)

    def _before(self, state_file: StateFile, identity: Identity, target: Target) -> State | None:
        """The state to go on from, or to leave it at."""
        held = read_state(state_file.path, state_file.read())
        if self._options.again:
            return None
        return resumed(state_file.path, held, identity, target, self._cut())

    def _cut(self) -> Cut:
        chunks, manifest = self._options.chunks, self._options.manifest
        profile = self._options.profile
        digest = None if manifest is None else hashlib.sha256(manifest.read_bytes()).hexdigest()
        return Cut(
            chunk_records=chunks.records,
            chunk_bytes=chunks.bytes,
            correlation=self._options.correlation,
            backfill=self._options.backfill,
            manifest_sha256=digest,
            profile_sha256=None if profile is None else profile.sha256,
        )

    def _new_state(self, one: FileSummary, identity: Identity, topic: _Topic, plan: Plan) -> State:
        return State(
            publication=uuid.uuid4(),
            target=topic.target,
            partitions=topic.partitions,
            record_bytes_max=topic.record_bytes_max,
            file_name=one.path.name,
            file_bytes=identity.size_bytes,
            file_sha256=identity.sha256,
            file_mtime_ns=identity.mtime_ns,
            cut=self._cut(),
            records=plan.records,
            chunks=plan.chunks,
            too_large=plan.too_large,
            started_at=now_text(),
        )

    async def _send(
        self,
        admin: KafkaAdmin,
        topic: _Topic,
        one: FileSummary,
        planned: Planned,
        reading: FileReading,
        keeper: StateKeeper,
    ) -> None:
        """The second reading, chunk by chunk to the topic."""

        def on_in(number: int, chunk: Chunk, sent: bool) -> None:  # noqa: FBT001 - as it is called
            one.chunk_in(number, len(chunk.rows), sent=sent)
            keeper.chunk_done(number)
            self._progress.report()

        state = keeper.state
        manifests = RunManifests(
            next(iter(self._manifests_topic()), None),
            topic.manifest_bytes_max,
            Provenance(state.publication, one.path.name, state.file_sha256),
            planned.plan.runs,
        )
        sender = Sender(
            self._settings,
            admin,
            state,
            planned.plan,
            manifests,
            pacer=self._pacer,
            stop=self._stop,
            on_in=on_in,
        )
        self._progress.begin(one.path, "publishing")
        finished = False
        try:
            finished = await sender.run(reading.chunks(planned))
            one.outcome = "published" if finished else "interrupted"
        finally:
            one.note = FORGOTTEN if sender.forgotten else None
            keeper.end(complete=finished)


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
