"""A file held against its source's manifest: every figure that differs is named, no value is."""

from __future__ import annotations

import asyncio
import copy
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from connectors.errors import ConfigurationError
from connectors.files import SourceFile
from schemas.record_types import RECORD_TYPES
from streams.publish import csv_fields
from streams.publishing.chunks import ChunkLimits
from streams.publishing.reading import FileReading, ManifestMismatch, Planned
from streams.publishing.rows import RowReader
from streams.publishing.source_manifest import SourceManifest, read_manifest

PAYROLL = RECORD_TYPES["payroll"]
SAMPLES = Path(__file__).parents[1] / "samples"
CLEAN = SAMPLES / "payroll_clean.csv"
GOOD: dict[str, Any] = json.loads((SAMPLES / "payroll_clean.manifest.json").read_text())


def reading_of(source: SourceFile, manifest: dict[str, Any]) -> FileReading:
    reader = RowReader(PAYROLL, record_bytes_max=10_000)
    model = SourceManifest.model_validate(manifest)
    return FileReading(
        source, reader, ChunkLimits(), model, SimpleNamespace(bytes_read=0, rows_read=0)
    )


def plan(path: Path, manifest: dict[str, Any]) -> Planned:
    with SourceFile(path, csv_fields(PAYROLL)) as source:
        reading = reading_of(source, manifest)
        return asyncio.run(reading.plan(source.identity(), asyncio.Event()))


def differences(path: Path, manifest: dict[str, Any]) -> list[str]:
    with pytest.raises(ManifestMismatch) as caught:
        plan(path, manifest)
    return caught.value.differences


def test_a_file_that_is_what_its_manifest_says_is_planned() -> None:
    """Counts, sums, hash totals and digests agree, negative amounts included; and no chunk of ours
    crosses a border of the source's."""
    found = plan(CLEAN, GOOD).plan
    assert {run: (p.chunks, p.records) for run, p in found.runs.items()} == {
        "R2026-22": (3, 8),
        "R2026-22B": (1, 1),
        "R2026-22C": (1, 1),
    }


@pytest.mark.parametrize(
    ("where", "figure", "value", "said"),
    [
        (None, "file_bytes", 1200, "file_bytes: manifest 1200, file 1199"),
        (None, "file_sha256", "0" * 64, "file_sha256: manifest 0000"),
        (None, "file", "other.csv", "file: manifest other.csv, file payroll_clean.csv"),
        (None, "currency", "EUR", "currency: manifest EUR, file also USD"),
        (0, "row_count", 5, "chunk 0: row_count: manifest 5, file 4"),
        (1, "gross_pay_sum", "4197.88", "chunk 1: gross_pay_sum: manifest 4197.88, file 4197.87"),
        (1, "hours_sum", "137.5001", "chunk 1: hours_sum: manifest 137.5001, file 137.5"),
        (2, "employee_hash_total", 1, "chunk 2: employee_hash_total: manifest 1, file 1475374695"),
        (2, "sha256", "f" * 64, "chunk 2: sha256: manifest ffff"),
        ("total", "row_count", 11, "total: row_count: manifest 11, file 10"),
        ("total", "gross_pay_sum", 19261, "total: gross_pay_sum: manifest 19261, file 19261.06"),
        ("total", "employee_hash_total", 0, "total: employee_hash_total: manifest 0"),
        ("total", "sha256", "f" * 64, "total: sha256: manifest ffff"),
        ("total", "net_pay_sum", "1.00", "total: net_pay_sum: manifest 1, file 0"),
    ],
)
def test_each_figure_that_differs_is_named(
    where: int | str | None, figure: str, value: object, said: str
) -> None:
    """One wrong figure is one difference: which chunk, which figure, both sides."""
    manifest = copy.deepcopy(GOOD)
    part = manifest if where is None else manifest["total"]
    if isinstance(where, int):
        part = manifest["chunks"][where]
    part[figure] = value
    (found,) = differences(CLEAN, manifest)
    assert found.startswith(said)


@pytest.mark.parametrize(
    ("old", "new", "figures"),
    [
        (b"A10077", b"A10078", {"employee_hash_total", "sha256"}),
        (b"1980.00", b"1980.01", {"gross_pay_sum", "sha256"}),
        (b"2307.69", b"2,07.69", {"gross_pay_sum", "hours_sum", "employee_hash_total", "sha256"}),
    ],
)
def test_what_has_changed_in_a_file_shows_in_its_chunk(
    tmp_path: Path, old: bytes, new: bytes, figures: set[str]
) -> None:
    """A swapped id, a changed amount, a row that cannot be mapped: found where it is and in the
    total, without any record's value."""
    path = tmp_path / CLEAN.name
    path.write_bytes(CLEAN.read_bytes().replace(old, new, 1))
    found = differences(path, GOOD)
    of_chunks = [one for one in found if one.startswith(("chunk", "total"))]
    assert {one.split(": ")[0] for one in of_chunks} == {"chunk 0", "total"}
    assert {one.split(": ")[1] for one in of_chunks} == figures
    assert new.decode() not in "".join(found)


@pytest.mark.parametrize("keep", [12, 8, 6])
def test_a_file_of_other_length_is_refused(tmp_path: Path, keep: int) -> None:
    """Rows missing or added are counted: in the chunk they belong to, and where chunks end."""
    lines = [*CLEAN.read_bytes().splitlines(keepends=True), *CLEAN.read_bytes().splitlines()[1:2]]
    path = tmp_path / CLEAN.name
    path.write_bytes(b"".join(lines[:keep]))
    found = differences(path, GOOD)
    assert f"chunks: they end at row 10, the file at row {keep - 1}" in found
    assert any(one.startswith("total: row_count") for one in found)
    cut_short = [one for one in found if ": row_count: " in one and one.startswith("chunk")]
    assert bool(cut_short) == (keep in {8, 6})


def test_a_file_without_manifest_chunks_is_held_against_the_rest(tmp_path: Path) -> None:
    """A manifest may say little: what it says is checked. NDJSON is read alike."""
    path = tmp_path / "a.ndjson"
    path.write_text('{"gross_pay":"1.10"}\n{"gross_pay":2.20}\n{"gross_pay":"x"}\n')
    bare: dict[str, Any] = {"manifest_version": 1}
    assert plan(path, bare).plan.records == 3
    total = {**bare, "total": {"row_count": 3, "gross_pay_sum": "3.31"}}
    assert differences(path, total) == [
        "total: gross_pay_sum: manifest 3.31, file 3.3 (1 rows could not be read in full)"
    ]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"{", "JSON"),
        (b"[]", "a JSON object"),
        (b"{}", "manifest_version"),
        (b'{"manifest_version":2}', "manifest_version"),
        (b'{"manifest_version":1,"file_bytes":-1}', "file_bytes"),
        (b'{"manifest_version":1,"chunks":[{"row_count":1}]}', r"chunks\.0\.first_row"),
        (
            b'{"manifest_version":1,"chunks":[{"row_count":1,"first_row":2,"last_row":2}]}',
            "chunk 0: does not begin",
        ),
        (b'{"manifest_version":1,"total":{"row_count":1,"pay_sum":"1e3"}}', "pay_sum: plain"),
    ],
)
def test_a_manifest_that_is_none_is_named(tmp_path: Path, content: bytes, said: str) -> None:
    """The message says which member is wrong and why, before any file is read."""
    path = tmp_path / "m.json"
    path.write_bytes(content)
    with pytest.raises(ConfigurationError, match=said):
        read_manifest(path)
