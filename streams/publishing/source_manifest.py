"""A file held against the manifest of its source, before anything of it is sent.

The manifest is JSON of the form that docs/publisher.md shows. Every figure in it is checked, and
every one that differs is named; sums are shown, a single record's value never is.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from connectors.errors import ConfigurationError
from connectors.files import FileRow, Identity
from schemas.exact import decimal_of, plain
from schemas.json_strict import DEPTH_MAX, JsonFault, parse

MANIFEST_BYTES_MAX = 16 * 1024 * 1024
SUM_SUFFIX = "_sum"
"""`gross_pay_sum` is the sum of column `gross_pay`."""
DIFFERENCES_NAMED_MAX = 100
_PRECISION, _SCALE = 28, 9
_DIGITS = re.compile(r"[0-9A-Za-z]{1,64}")
HASH_MODULUS = 10**10

Sha256 = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
Count = Annotated[int, Field(ge=0, strict=True)]


class Figures(BaseModel):
    """Control figures of some rows. Members that end in `_sum` are sums of columns."""

    model_config = ConfigDict(extra="allow", frozen=True, hide_input_in_errors=True)

    row_count: Count
    employee_hash_total: Count | None = None
    """Sum of the employee ids read in base 36, modulo 10**10: it finds a swapped id."""
    sha256: Sha256 | None = None
    """Of the rows' lines as they stand in the file."""

    @property
    def sums(self) -> dict[str, Decimal]:
        """Column to its sum, as in the source text: negative amounts count negative."""
        found = {}
        for name, value in (self.__pydantic_extra__ or {}).items():
            if name.endswith(SUM_SUFFIX):
                try:
                    found[name.removesuffix(SUM_SUFFIX)] = decimal_of(value, _PRECISION, _SCALE)
                except (ValueError, TypeError) as error:
                    message = f"{name}: {error}"
                    raise ValueError(message) from None
        return found

    @model_validator(mode="after")
    def _sums_are_exact(self) -> Self:
        _ = self.sums
        return self


class ManifestChunk(Figures):
    """Rows from `first_row` to `last_row`; the first row after the header is 1."""

    first_row: Annotated[int, Field(ge=1, strict=True)]
    last_row: Annotated[int, Field(ge=1, strict=True)]


class SourceManifest(BaseModel):
    """What a source says of a file that it made."""

    model_config = ConfigDict(extra="allow", frozen=True, hide_input_in_errors=True)

    manifest_version: Literal[1]
    file: str | None = None
    file_sha256: Sha256 | None = None
    file_bytes: Count | None = None
    currency: str | None = None
    header_rows: Annotated[int, Field(ge=0, le=100, strict=True)] = 0
    """Lines before the first row."""
    chunks: tuple[ManifestChunk, ...] = ()
    total: Figures | None = None

    @model_validator(mode="after")
    def _chunks_follow_each_other(self) -> Self:
        before = 0
        for number, chunk in enumerate(self.chunks):
            if chunk.first_row != before + 1 or chunk.last_row < chunk.first_row:
                message = f"chunk {number}: does not begin where the one before it ends"
                raise ValueError(message)
            before = chunk.last_row
        return self

    @property
    def borders(self) -> tuple[int, ...]:
        """Numbers of the rows that end a chunk."""
        return tuple(chunk.last_row for chunk in self.chunks)


def read_manifest(path: Path) -> SourceManifest:
    """Raises `ConfigurationError` that names what is wrong with the manifest itself."""
    try:
        with path.open("rb") as file:
            content = file.read(MANIFEST_BYTES_MAX + 1)
        if len(content) > MANIFEST_BYTES_MAX:
            message = f"{path}: a manifest of more than {MANIFEST_BYTES_MAX} bytes"
            raise ConfigurationError(message)
        return SourceManifest.model_validate(parse(content, DEPTH_MAX))
    except OSError as error:
        message = f"{path}: the manifest cannot be read ({type(error).__name__})"
    except JsonFault as fault:
        message = f"{path}: not a manifest: {fault.rule}"
    except ValidationError as error:
        wrong = "; ".join(_explained(one["loc"], one["msg"]) for one in error.errors()[:8])
        message = f"{path}: not a manifest of the form in docs/publisher.md: {wrong}"
    raise ConfigurationError(message)


def _explained(loc: tuple[int | str, ...], rule: str) -> str:
    return f"{'.'.join(map(str, loc))}: {rule}" if loc else rule


class _Found:
    """The figures of rows, as they are read."""

    def __init__(self, expected: Figures, begin_offset: int) -> None:
        self.expected = expected
        self.begin_offset = self.end_offset = begin_offset
        self.rows = 0
        self.sums = dict.fromkeys(expected.sums, Decimal(0))
        self.hash_total = 0
        self.unreadable = 0

    def add(self, row: FileRow, members: Mapping[str, object]) -> None:
        self.rows += 1
        self.end_offset = row.end_offset
        unread = False
        for name in self.sums:
            amount = _amount(members.get(name))
            unread |= amount is None
            self.sums[name] += amount or 0
        if self.expected.employee_hash_total is not None:
            found = members.get("employee_id")
            if isinstance(found, str) and _DIGITS.fullmatch(found):
                self.hash_total = (self.hash_total + int(found, 36)) % HASH_MODULUS
            else:
                unread = True
        self.unreadable += unread

    def differences(self, where: str, sha256: Callable[[int, int], str]) -> Iterator[str]:
        expected = self.expected
        note = f" ({self.unreadable} rows could not be read in full)" if self.unreadable else ""
        if self.rows != expected.row_count:
            yield f"{where}: row_count: manifest {expected.row_count}, file {self.rows}"
        for name, wanted in expected.sums.items():
            if self.sums[name] != wanted:
                told = f"manifest {plain(wanted)}, file {plain(self.sums[name])}"
                yield f"{where}: {name}{SUM_SUFFIX}: {told}{note}"
        wanted_hash = expected.employee_hash_total
        if wanted_hash is not None and wanted_hash != self.hash_total:
            told = f"manifest {wanted_hash}, file {self.hash_total}"
            yield f"{where}: employee_hash_total: {told}{note}"
        if expected.sha256 is not None:
            found = sha256(self.begin_offset, self.end_offset)
            if found != expected.sha256:
                yield f"{where}: sha256: manifest {expected.sha256}, file {found}"


def _amount(value: object) -> Decimal | None:
    """An absent amount is none to add; None for one that cannot be read."""
    if value is None:
        return Decimal(0)
    try:
        return decimal_of(value, _PRECISION, _SCALE)
    except (ValueError, TypeError):
        return None


class ManifestCheck:
    """Holds a file's rows, in order, against a manifest."""

    def __init__(
        self, manifest: SourceManifest, begin_offset: int, sha256: Callable[[int, int], str]
    ) -> None:
        """`begin_offset` is where the first row begins; `sha256` digests a part of the file."""
        self.differences: list[str] = []
        """What differs, the first of it; empty while all is as it should be."""
        self._manifest = manifest
        self._sha256 = sha256
        self._waiting = iter(enumerate(manifest.chunks))
        total = manifest.total
        self._total = None if total is None else _Found(total, begin_offset)
        self._rows = 0
        self._next_chunk(begin_offset)

    def _next_chunk(self, begin_offset: int) -> None:
        number, chunk = next(self._waiting, (0, None))
        self._number = number
        self._chunk = None if chunk is None else _Found(chunk, begin_offset)
        self._last_row = 0 if chunk is None else chunk.last_row

    def add(self, row: FileRow, members: Mapping[str, object] | None) -> None:
        """Take the next row; `members` is what could be read of it."""
        known = members or {}
        self._rows += 1
        if self._total is not None:
            self._total.add(row, known)
        if self._chunk is not None:
            self._chunk.add(row, known)
            if self._rows == self._last_row:
                self._differ(self._chunk.differences(f"chunk {self._number}", self._sha256))
                self._next_chunk(row.end_offset)

    def finish(self, path: Path, identity: Identity, currencies: set[str]) -> list[str]:
        """The end of the file is reached: everything that differs."""
        manifest = self._manifest
        self._differ(_file_differences(manifest, path, identity, currencies))
        if self._chunk is not None:
            self._differ(self._chunk.differences(f"chunk {self._number}", self._sha256))
        last_row = manifest.chunks[-1].last_row if manifest.chunks else self._rows
        if last_row != self._rows:
            self._differ([f"chunks: they end at row {last_row}, the file at row {self._rows}"])
        if self._total is not None:
            self._differ(self._total.differences("total", self._sha256))
        return self.differences

    def _differ(self, found: Iterable[str]) -> None:
        room = DIFFERENCES_NAMED_MAX - len(self.differences)
        self.differences += itertools.islice(found, room)


def _file_differences(
    manifest: SourceManifest, path: Path, identity: Identity, currencies: set[str]
) -> Iterator[str]:
    told = (
        ("file", manifest.file, path.name),
        ("file_bytes", manifest.file_bytes, identity.size_bytes),
        ("file_sha256", manifest.file_sha256, identity.sha256),
    )
    for name, wanted, found in told:
        if wanted is not None and wanted != found:
            yield f"{name}: manifest {wanted}, file {found}"
    others = sorted(currencies - {manifest.currency})
    if manifest.currency is not None and others:
        yield f"currency: manifest {manifest.currency}, file also {', '.join(others)}"
