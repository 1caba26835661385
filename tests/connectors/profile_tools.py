"""Reading files by profiles in tests: from a sample to verdicts, with reasons and flags."""

from __future__ import annotations

import asyncio
import io
from dataclasses import dataclass
from pathlib import Path

from connectors.files import FileRow, read_records
from connectors.profiles import Profile, load_profile
from schemas.decision_set import DecisionSet
from schemas.envelope import NO_TIMESTAMP, SOURCE_ERROR, Record, Source
from schemas.record_type import RecordType
from schemas.verdict import Accepted
from streams.check import check_records
from streams.decide import decide_batch
from streams.wiring import schema_store

SAMPLES = Path(__file__).parents[1] / "samples"


@dataclass(frozen=True, slots=True)
class Judged:
    """What the gate says of one record of a file."""

    line: int
    verdict: str
    """The verdict, of a quarantined record the reason."""
    path: str
    """Field that the first violation names."""
    flags: tuple[str, ...]
    row: FileRow


def sample(name: str, profile: str, **lookups: Path) -> list[FileRow]:
    """The rows of a sample."""
    return list(read_records(SAMPLES / name, profile=load_profile(profile, lookups)))


def rows_of(profile: Profile, content: bytes, name: str = "x.csv") -> list[FileRow]:
    """The rows of a file with this content."""
    return list(profile.rows(io.BytesIO(content), Path(name)))


def judge(
    rows: list[FileRow], record_type: RecordType, timestamp: int = NO_TIMESTAMP
) -> list[Judged]:
    """Decide the rows and settle them against each other."""
    records = [
        Record(
            index,
            row.value,
            timestamp,
            headers=() if row.error is None else ((SOURCE_ERROR, row.error.encode()),),
        )
        for index, row in enumerate(rows)
    ]
    limits = DecisionSet()
    checked = asyncio.run(check_records(records, record_type, schema_store(None), limits))
    decided = decide_batch(records, record_type, Source(record_type.raw_topic, 0), limits, {})
    at = record_type.ledger_columns.index("flags")
    return [
        Judged(
            row.line,
            one.reason or one.verdict,
            one.detail[0].path if one.detail else "",
            tuple(found.row[at]) if isinstance(found, Accepted) else (),  # type: ignore[arg-type]
            row,
        )
        for row, one, found in zip(rows, checked, decided, strict=True)
    ]
