"""Writer schemas from a folder of files, and from what this installation ships.

A file `<id>.avsc` answers for that Confluent schema id; any `.avsc` file, and the raw schemas of
the record types, also answer for their fingerprint (CRC-64-AVRO, Avro 1.12 specification), as
single-object encoding names them. An id's schema never changes: a file edited under a known id is
not read again.

"No such id" is a verdict on the record, so it is said only of a folder that could be read in full.
Anything else, a damaged file among it, is `SchemaStoreUnavailable`: the partition waits.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from connectors.errors import SchemaStoreUnavailable
from schemas.avro_strict import AvroSchema, SchemaRef
from schemas.record_types import RECORD_TYPES

NO_SUCH_ID_S = 10.0
"""How long a definite "no" is remembered: a flood of unknown ids costs one look each, and a schema
added late is found soon."""
NO_SUCH_ID_MAX = 10_000
"""How many are remembered; ids come from outside."""
LOOK_DEADLINE_S = 5.0
SCHEMA_BYTES_MAX = 1_000_000


def _shipped() -> list[AvroSchema]:
    return [schema for of_type in RECORD_TYPES.values() for schema in of_type.raw_schemas]


class NoSchemaStore:
    """Knows the schemas this installation ships, by fingerprint, and definitely no other."""

    def __init__(self, shipped: Iterable[AvroSchema] | None = None) -> None:
        known = _shipped() if shipped is None else shipped
        self._found = {SchemaRef("single_object", schema.fingerprint): schema for schema in known}

    async def find(self, ref: SchemaRef) -> AvroSchema | None:
        """The schema, or a definite no. Never raises."""
        return self._found.get(ref)


class FileSchemaStore:
    """`SchemaStore` on a folder."""

    def __init__(
        self,
        folder: Path,
        shipped: Iterable[AvroSchema] | None = None,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._folder = folder
        self._clock_s = clock_s
        known = _shipped() if shipped is None else shipped
        self._found = {SchemaRef("single_object", schema.fingerprint): schema for schema in known}
        self._no_until_s: dict[SchemaRef, float] = {}
        self._listed_until_s = -math.inf
        self._lock = asyncio.Lock()

    async def find(self, ref: SchemaRef) -> AvroSchema | None:
        """The schema, or None for a definite "no such id".

        Found schemas are cached for ever, a "no" for `NO_SUCH_ID_S`. Raises
        `SchemaStoreUnavailable` (retryable) when the folder or a file that matters cannot be read.
        """
        found = self._found.get(ref)
        if found is not None or self._no_until_s.get(ref, 0.0) > self._clock_s():
            return found
        async with self._lock:
            if ref not in self._found:
                await self._look(ref)
        found = self._found.get(ref)
        if found is None:
            self._remember_no(ref)
        return found

    async def _look(self, ref: SchemaRef) -> None:
        """Read files off the event loop: a network folder may hang."""
        reading = self._read_listed if ref.kind == "single_object" else self._read_id
        try:
            async with asyncio.timeout(LOOK_DEADLINE_S):
                await asyncio.to_thread(reading, ref)
        except TimeoutError:
            message = f"schema folder {self._folder}: no answer within {LOOK_DEADLINE_S:g} s"
            raise SchemaStoreUnavailable(message) from None

    def _remember_no(self, ref: SchemaRef) -> None:
        self._no_until_s.pop(ref, None)
        if len(self._no_until_s) >= NO_SUCH_ID_MAX:
            del self._no_until_s[next(iter(self._no_until_s))]
        self._no_until_s[ref] = self._clock_s() + NO_SUCH_ID_S

    # -- in a thread -------------------------------------------------------------------------------

    def _read_id(self, ref: SchemaRef) -> None:
        """The file of one Confluent id."""
        path = self._folder / f"{ref.id!s}.avsc"
        try:
            self._take(ref, _read(path))
        except FileNotFoundError:
            # The file's absence means something only in a folder that is there.
            self._list()

    def _read_listed(self, _: SchemaRef) -> None:
        """All files, for any of them may have the fingerprint; once in `NO_SUCH_ID_S`."""
        if self._listed_until_s > self._clock_s():
            return
        for path in self._list():
            schema = _read(path)
            self._found.setdefault(SchemaRef("single_object", schema.fingerprint), schema)
        self._listed_until_s = self._clock_s() + NO_SUCH_ID_S

    def _take(self, ref: SchemaRef, schema: AvroSchema) -> None:
        self._found[ref] = schema
        self._found.setdefault(SchemaRef("single_object", schema.fingerprint), schema)

    def _list(self) -> list[Path]:
        try:
            return sorted(path for path in self._folder.iterdir() if path.suffix == ".avsc")
        except OSError as error:
            message = f"schema folder {self._folder} cannot be read ({type(error).__name__})"
            raise SchemaStoreUnavailable(message) from None


def _read(path: Path) -> AvroSchema:
    """Raises `FileNotFoundError`, or `SchemaStoreUnavailable` for a file that is no schema."""
    try:
        with path.open("rb") as file:
            text = file.read(SCHEMA_BYTES_MAX + 1)
        if len(text) > SCHEMA_BYTES_MAX:
            message = f"schema file {path} is larger than {SCHEMA_BYTES_MAX} bytes"
            raise SchemaStoreUnavailable(message)
        return AvroSchema.from_text(text.decode("utf-8"))
    except FileNotFoundError:
        raise
    except (OSError, ValueError) as error:
        message = f"schema file {path} cannot be read as an Avro schema ({type(error).__name__})"
        raise SchemaStoreUnavailable(message) from None
