"""A file's two readings: the first plans its chunks, the second yields them as planned."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from connectors.errors import ConfigurationError
from connectors.files import Checked, FileRow, Identity, MalformedFile, SourceFile
from streams.publishing.chunks import Chunk, ChunkLimits, Cutter, Plan
from streams.publishing.rows import RowReader, members_of
from streams.publishing.source_manifest import ManifestCheck, SourceManifest


class ManifestMismatch(ConfigurationError):
    """A file is not what its source's manifest says: nothing of it is published."""

    def __init__(self, differences: list[str]) -> None:
        super().__init__(f"manifest: {len(differences)} figures differ")
        self.differences = differences


class Interrupted(Exception):
    """Told to stop while a file was read for the first time."""


class HowFar(Protocol):
    """Where a reading notes how far it is."""

    bytes_read: int
    rows_read: int


@dataclass(slots=True)
class Planned:
    """What the first reading yields."""

    plan: Plan
    checked: Checked


class FileReading:
    """One file, cut into chunks."""

    def __init__(
        self,
        source: SourceFile,
        reader: RowReader,
        limits: ChunkLimits,
        manifest: SourceManifest | None,
        progress: HowFar,
    ) -> None:
        """`progress` is kept up to date in either reading."""
        self._source, self._reader, self._limits = source, reader, limits
        self._manifest = manifest
        self._progress = progress

    def _cutter(self) -> Cutter:
        return Cutter(self._limits, () if self._manifest is None else self._manifest.borders)

    # -- the first ---------------------------------------------------------------------------------

    async def plan(self, identity: Identity, stop: asyncio.Event) -> Planned:
        """Read it to its end, in a thread of its own.

        Raises `MalformedFile`, `ManifestMismatch`, `Interrupted` once `stop` is set.
        """
        return await asyncio.to_thread(self._plan, identity, stop)

    def _plan(self, identity: Identity, stop: asyncio.Event) -> Planned:
        source, plan, cutter = self._source, Plan(), self._cutter()
        check = None if self._manifest is None else self._check(self._manifest)

        def each(found: FileRow) -> None:
            if stop.is_set():
                raise Interrupted
            members = members_of(found)
            if check is not None:
                check.add(found, members)
            row = self._reader.row(source.path.name, found, members)
            if row.too_large:
                plan.leave_out(row)
            for chunk in cutter.add(row):
                plan.add(chunk)
            self._progress.bytes_read = found.end_offset
            self._progress.rows_read += 1

        checked = source.check(each)
        if checked.size_bytes > identity.size_bytes:
            raise MalformedFile(source.path, None, "was changed while it was read")
        for chunk in cutter.flush():
            plan.add(chunk)
        if check is not None:
            currencies = {name for run in plan.runs.values() for name in run.totals}
            differences = check.finish(source.path, identity, currencies)
            if differences:
                raise ManifestMismatch(differences)
        return Planned(plan, checked)

    def _check(self, manifest: SourceManifest) -> ManifestCheck:
        begin_offset = self._source.after_lines(manifest.header_rows)
        return ManifestCheck(manifest, begin_offset, self._source.sha256)

    # -- the second --------------------------------------------------------------------------------

    def chunks(self, planned: Planned) -> Iterator[Chunk]:
        """The chunks, in order. Raises `MalformedFile` when they are not those that were planned:
        the file has changed."""
        for index, chunk in enumerate(self._cut(planned.checked)):
            if not planned.plan.meets(index, chunk):
                line = chunk.rows[0].line
                raise MalformedFile(self._source.path, line, "was changed while it was read")
            yield chunk

    def _cut(self, checked: Checked) -> Iterator[Chunk]:
        cutter, name = self._cutter(), self._source.path.name
        for found in self._source.rows(checked):
            yield from cutter.add(self._reader.row(name, found, members_of(found)))
            self._progress.bytes_read = found.end_offset
        yield from cutter.flush()
