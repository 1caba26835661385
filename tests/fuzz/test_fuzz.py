"""No input breaks the decoders: whatever comes gets a verdict, the same one again, at a bounded
cost; whatever file comes yields rows or is refused.

Inputs come from a seed, which a failure prints with the input; an input that once failed is kept in
`corpus/`. What a pass does not prove: that other inputs do no harm.
"""

from __future__ import annotations

import random
import time
import tracemalloc
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from connectors.files import FileRow, MalformedFile, SourceFile
from schemas.avro_strict import AvroSchema, SchemaRef
from schemas.avro_writers import writer_faults
from schemas.decision_set import DecisionSet
from schemas.envelope import Record, Source
from schemas.examples import load_examples
from schemas.reasons import Reason
from schemas.record_type import RecordType
from schemas.record_types import RECORD_TYPES
from schemas.verdict import Accepted, Decided
from streams.decide import decide_batch
from streams.publish import csv_fields
from tests.fuzz import hostile
from tests.fuzz.laws import TooSlow, cpu_bounded, lawful, size_of
from tests.fuzz.mutate import Mutator, as_text, from_text

CORPUS = Path(__file__).parent / "corpus"
TYPES = [pytest.param(record_type, id=name) for name, record_type in RECORD_TYPES.items()]
SEED = 20_261_130
RECORDS, FILES, SCHEMAS = 6_000, 1_500, 1_500
NIGHTLY = 40
"""How many times as many inputs, each time from another seed."""
BATCH = 20
MEMORY_FACTOR = 80
"""Bytes of Python objects per byte of a value: an object `{}` of two bytes takes 64."""

Schemas = dict[SchemaRef, AvroSchema | None]


@pytest.fixture(scope="module")
def stored() -> Schemas:
    """The schema store's answers."""
    return hostile.stored_schemas()


def _seeds(times: int) -> list[int]:
    return [SEED + number for number in range(times)]


@contextmanager
def _blaming(what: str) -> Iterator[None]:
    """Whatever goes wrong, say which input did it."""
    try:
        yield
    except (Exception, TooSlow) as error:  # noqa: BLE001 - anything that escapes is a finding
        pytest.fail(f"{error!r}\n{what}", pytrace=False)


def _try(record_type: RecordType, records: list[Record], stored: Schemas) -> list[Decided]:
    """Hold records to the laws; a failure names the input, ready for the corpus."""
    for record in records:
        with _blaming(f"keep it in {CORPUS}:\n{as_text(record)}"):
            lawful(record_type, [record], stored)
    with _blaming("all of a batch together"):
        return lawful(record_type, records, stored)


# --- Records --------------------------------------------------------------------------------------


def _fuzz_records(record_type: RecordType, seed: int, stored: Schemas) -> Counter[str]:
    mutator = Mutator(record_type, random.Random(f"{record_type.name} {seed}"))
    seen: Counter[str] = Counter()
    for _ in range(RECORDS // BATCH):
        for found in _try(record_type, [mutator.record() for _ in range(BATCH)], stored):
            seen["committed" if isinstance(found, Accepted) else str(found.reason)] += 1
    return seen


@pytest.mark.parametrize("record_type", TYPES)
def test_mutated_records(record_type: RecordType, stored: Schemas) -> None:
    """Examples in every framing with bits, bytes, values, counts and headers changed: a verdict
    that obeys the laws. Among them are all reasons a record can have by its bytes alone."""
    seen = _fuzz_records(record_type, SEED, stored)
    wanted = {"committed", "encoding", "malformed_json", "malformed_avro", "malformed_row"}
    wanted |= {"unknown_schema", "missing_key", "schema_violation", "tombstone"}
    assert wanted <= seen.keys(), seen


@pytest.mark.nightly
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", _seeds(NIGHTLY)[1:])
@pytest.mark.parametrize("record_type", TYPES)
def test_many_mutated_records(record_type: RecordType, seed: int, stored: Schemas) -> None:
    """The same, from many seeds."""
    assert _fuzz_records(record_type, seed, stored)


@pytest.mark.parametrize("record_type", TYPES)
@pytest.mark.parametrize("path", sorted(CORPUS.glob("*.json")), ids=lambda path: path.stem)
def test_inputs_that_once_failed(record_type: RecordType, path: Path, stored: Schemas) -> None:
    """What once broke a decoder breaks none any more."""
    (found,) = lawful(record_type, [from_text(path.read_text(encoding="utf-8"))], stored)
    assert not isinstance(found, Accepted)


def _hostile(record_type: RecordType) -> Iterator[tuple[str, Record]]:
    yield from ((name, Record(0, value)) for name, value in hostile.json_values(record_type))
    yield from ((name, Record(0, value)) for name, value in hostile.avro_values(record_type))
    for name, headers in hostile.headers():
        for value in (None, b"{", hostile.valid(record_type)):
            yield f"headers: {name}", Record(0, value, headers=headers)


@pytest.mark.slow
@pytest.mark.parametrize("record_type", TYPES)
def test_hostile_records(record_type: RecordType, stored: Schemas) -> None:
    """Values as large as allowed, of one kind of excess each: a verdict within the time allowed."""
    for name, record in _hostile(record_type):
        with _blaming(name):
            lawful(record_type, [record], stored)


@pytest.mark.parametrize("record_type", TYPES)
def test_memory_is_bounded_by_the_value(
    record_type: RecordType, stored: Schemas, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Deciding takes memory in proportion to the value, whatever is in it (G6)."""
    monkeypatch.setattr(hostile, "SIZE", 50_000)  # counting memory takes ten times as long
    source = Source(record_type.raw_topic, 3)
    for name, record in _hostile(record_type):
        tracemalloc.start()
        try:
            decide_batch([record], record_type, source, DecisionSet(), stored)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        bound = 2_000_000 + MEMORY_FACTOR * size_of(record)
        assert peak < bound, f"{name}: {peak} bytes for {size_of(record)}"


def test_examples_of_every_reason_are_lawful(stored: Schemas) -> None:
    """What mutations begin with obeys the laws itself."""
    reasons = set()
    for record_type in RECORD_TYPES.values():
        for example in load_examples(record_type):
            _try(record_type, [example.record], {**stored, **example.schemas})
            reasons.add(example.reason)
    assert Reason.OVERSIZE in reasons


# --- Schemas --------------------------------------------------------------------------------------


def _schema(text: str) -> AvroSchema | None:
    try:
        return AvroSchema.from_text(text)
    except ValueError:
        return None


def _fuzz_schemas(record_type: RecordType, seed: int) -> int:
    mutator = Mutator(record_type, random.Random(f"schemas {record_type.name} {seed}"))
    read = 0
    for _ in range(SCHEMAS):
        text = mutator.schema_text()
        with _blaming(f"seed {seed}:\n{text!r}"), cpu_bounded(len(text)):
            schema = _schema(text)
            if schema is not None:
                list(writer_faults(schema, record_type.raw_schemas[-1]))
        if schema is None:
            continue
        read += 1
        values = [hostile.confluent(1, b"\x02" * 50), hostile.confluent(1, b"")]
        with _blaming(f"seed {seed}:\n{text!r}"):
            ref = SchemaRef("confluent", 1)
            lawful(record_type, [Record(0, value) for value in values], {ref: schema})
    return read


@pytest.mark.parametrize("record_type", TYPES)
def test_mutated_schemas(record_type: RecordType) -> None:
    """A schema store may hold anything: a text is a schema or is not, and reading with what is one
    obeys the laws."""
    assert _fuzz_schemas(record_type, SEED) > 50


@pytest.mark.nightly
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", _seeds(NIGHTLY)[1:])
@pytest.mark.parametrize("record_type", TYPES)
def test_many_mutated_schemas(record_type: RecordType, seed: int) -> None:
    """The same, from many seeds."""
    assert _fuzz_schemas(record_type, seed)


# --- Files ----------------------------------------------------------------------------------------


def _rows(path: Path, record_type: RecordType) -> list[FileRow] | None:
    """All rows by both readings; None for a file that is refused."""
    try:
        with SourceFile(path, csv_fields(record_type)) as file:
            checked = file.check()
            rows = list(file.rows(checked))
    except MalformedFile:
        return None
    assert len(rows) == checked.rows
    return rows


def _fuzz_files(record_type: RecordType, seed: int, folder: Path) -> Counter[str]:
    mutator = Mutator(record_type, random.Random(f"files {record_type.name} {seed}"))
    seen: Counter[str] = Counter()
    for number in range(FILES):
        kind = ("csv", "ndjson")[number % 2]
        content = mutator.csv() if kind == "csv" else mutator.ndjson()
        path = folder / f"input.{kind}"
        path.write_bytes(content)
        with _blaming(f"seed {seed}, {kind}:\n{content!r}"), cpu_bounded(len(content)):
            rows = _rows(path, record_type)
            _hold(rows, content)
        seen[f"{kind} refused" if rows is None else kind] += 1
        for row in rows or ():
            seen[f"{kind} unmapped" if row.error else f"{kind} row"] += 1
    return seen


def _hold(rows: list[FileRow] | None, content: bytes) -> None:
    """Rows come in order and lie within the file; what is refused for itself says why."""
    at = line = 0
    for row in rows or ():
        assert at < row.end_offset <= len(content)
        assert row.line >= line
        at, line = row.end_offset, row.line
        assert row.value
        assert row.error is None or 0 < len(row.error) < 200


@pytest.mark.parametrize("record_type", TYPES)
def test_mutated_files(record_type: RecordType, tmp_path: Path) -> None:
    """CSV and NDJSON files changed at random yield rows in order, or are refused as a whole."""
    seen = _fuzz_files(record_type, SEED, tmp_path)
    assert {"csv refused", "csv row", "csv unmapped", "ndjson row"} <= seen.keys(), seen


@pytest.mark.nightly
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", _seeds(NIGHTLY)[1:])
@pytest.mark.parametrize("record_type", TYPES)
def test_many_mutated_files(record_type: RecordType, seed: int, tmp_path: Path) -> None:
    """The same, from many seeds."""
    assert _fuzz_files(record_type, seed, tmp_path)


def test_the_bound_of_time_is_kept() -> None:
    """An input that takes more processor time than allowed is noticed while it still runs."""
    began_s = time.process_time()

    def work() -> None:
        with cpu_bounded(0):
            while time.process_time() - began_s < 30:
                pass

    with pytest.raises(TooSlow):
        work()
    assert time.process_time() - began_s < 10
