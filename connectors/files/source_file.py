"""A file of records, read twice: to see that it can be cut into rows, and to publish them."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Self

from connectors.errors import ConfigurationError
from connectors.files.csv_rows import CsvFields, csv_rows
from connectors.files.ndjson import ndjson_rows
from connectors.files.rows import (
    CHUNK_BYTES,
    FileRow,
    MalformedFile,
    Remark,
    SourceReader,
    no_remark,
)

NDJSON_SUFFIXES = (".ndjson", ".jsonl", ".json")
CSV_SUFFIXES = (".csv",)
SUFFIXES = NDJSON_SUFFIXES + CSV_SUFFIXES
STATE_SUFFIX = ".weighbridge-publish.json"
"""Ends the name of the file that says how far a publication has come."""
MANIFEST_SUFFIX = ".manifest.json"
_NO_RECORDS = (STATE_SUFFIX, MANIFEST_SUFFIX)
"""What lies beside files of records and ends like one."""
REMARKS_MAX = 20
"""How many remarks of a file are kept."""


def find_files(paths: Sequence[Path]) -> list[Path]:
    """The files named, and those in the folders named, each once, folders in order of names.

    A folder's subfolders are not entered; states and manifests of publications are no records.
    Raises `ConfigurationError` for a path that is not there, a file of another kind, or a folder
    without any file of these kinds.
    """
    found: dict[Path, None] = {}
    for path in paths:
        if path.is_dir():
            inside = sorted(p for p in path.iterdir() if p.is_file() and _known(p))
            if not inside:
                message = f"{path} holds no {', '.join(SUFFIXES)} file"
                raise ConfigurationError(message)
            found.update(dict.fromkeys(p.resolve() for p in inside))
        elif not path.is_file():
            message = f"{path} is neither a file nor a folder"
            raise ConfigurationError(message)
        elif not _known(path):
            message = (
                f"{path} is of no known kind: its name must end in {', '.join(SUFFIXES)}, and not "
                f"in {' or '.join(_NO_RECORDS)}"
            )
            raise ConfigurationError(message)
        else:
            found[path.resolve()] = None
    return list(found)


def _known(path: Path) -> bool:
    name = path.name.lower()
    return name.endswith(SUFFIXES) and not name.endswith(_NO_RECORDS)


def read_records(
    path: Path,
    fields: CsvFields | None = None,
    profile: SourceReader | None = None,
    remark: Remark = no_remark,
) -> Iterator[FileRow]:
    """The records of a file, by its profile, else by the ending of its name.

    Raises `MalformedFile` where it shows.
    """
    with path.open("rb") as file:
        yield from _rows(file, path, fields, profile, remark)


def _rows(
    file: BinaryIO,
    path: Path,
    fields: CsvFields | None,
    profile: SourceReader | None,
    remark: Remark = no_remark,
) -> Iterator[FileRow]:
    if profile is not None:
        return profile.rows(file, path, remark)
    if path.suffix.lower() in CSV_SUFFIXES:
        return csv_rows(file, path, fields)
    return ndjson_rows(file, path)


@dataclass(frozen=True, slots=True)
class Identity:
    """What a file is recognised by."""

    size_bytes: int
    sha256: str
    """Of its content, in hex."""
    mtime_ns: int
    """When it was last changed, nanoseconds since the epoch."""


@dataclass(frozen=True, slots=True)
class Checked:
    """What the first reading found."""

    size_bytes: int
    rows: int
    malformed: int
    remarks: tuple[str, ...] = ()
    """What its profile left out or could not compare, by line; the first of them."""


def _pass(_: FileRow) -> None:
    """Nobody wants the rows."""


class SourceFile:
    """One file, held open between its two readings so that another put in its place is not read."""

    def __init__(
        self, path: Path, fields: CsvFields | None = None, profile: SourceReader | None = None
    ) -> None:
        self.path = path
        self._fields = fields
        self._profile = profile
        self._read_before = False
        try:
            self._file = path.open("rb")
        except OSError as error:
            raise MalformedFile(path, None, _cannot_be_read(error)) from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def identity(self) -> Identity:
        """Read it all for its digest. Raises `MalformedFile` when it changes meanwhile."""
        try:
            if self._read_before:
                self._file.seek(0)
            self._read_before = True
            digest = hashlib.file_digest(self._file, "sha256").hexdigest()
            size_bytes = self._file.tell()
            now = os.fstat(self._file.fileno())
        except OSError as error:
            raise MalformedFile(self.path, None, _cannot_be_read(error)) from None
        if now.st_size != size_bytes:
            raise MalformedFile(self.path, None, "was changed while it was read")
        return Identity(size_bytes, digest, now.st_mtime_ns)

    def sha256(self, begin: int, end: int) -> str:
        """SHA-256 of its bytes from `begin` up to `end`, in hex; leaves reading where it is."""
        digest = hashlib.sha256()
        while begin < end:
            part = os.pread(self._file.fileno(), min(CHUNK_BYTES, end - begin), begin)
            if not part:
                break
            digest.update(part)
            begin += len(part)
        return digest.hexdigest()

    def after_lines(self, count: int) -> int:
        """Where the line after so many lines begins; for headers, which are short."""
        head, at = os.pread(self._file.fileno(), CHUNK_BYTES, 0), 0
        for _ in range(count):
            at = head.find(b"\n", at) + 1
            if at == 0:
                return len(head)
        return at

    def check(self, each: Callable[[FileRow], None] = _pass) -> Checked:
        """Read it all, handing each row on. Raises `MalformedFile` if it cannot be cut into rows to
        its end."""
        rows = malformed = end = 0
        remarks: list[str] = []

        def remark(line: int, what: str) -> None:
            if len(remarks) < REMARKS_MAX:
                remarks.append(f"line {line}: {what}")

        for row in self._read(remark):
            each(row)
            rows += 1
            malformed += row.error is not None
            end = row.end_offset
        return Checked(end, rows, malformed, tuple(remarks))

    def rows(self, checked: Checked) -> Iterator[FileRow]:
        """The rows that were checked; what was added to the file since is left.

        Raises `MalformedFile` when the file has changed under our hands.
        """
        count = 0
        for row in self._read():
            if row.end_offset > checked.size_bytes:
                break
            count += 1
            yield row
        if count != checked.rows:
            raise MalformedFile(self.path, None, "was changed while it was read")

    def _read(self, remark: Remark = no_remark) -> Iterator[FileRow]:
        try:
            if self._read_before:
                self._file.seek(0)
            self._read_before = True
            yield from _rows(self._file, self.path, self._fields, self._profile, remark)
        except OSError as error:
            raise MalformedFile(self.path, None, _cannot_be_read(error)) from None


def _cannot_be_read(error: OSError) -> str:
    return f"cannot be read ({type(error).__name__})"
