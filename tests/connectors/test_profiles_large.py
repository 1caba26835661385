"""A file larger than memory, read by its profile from a pipe: nothing of it stays."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

SIZE_BYTES = 5 * 1024**3
NOTE_BYTES = 1_000_000
GROWTH_BYTES_MAX = 96 * 1024**2
"""A chunk, a row, and the row's cells and JSON: each about a megabyte, some of them twice."""

CHILD = """
import json, resource, sys
from pathlib import Path
from connectors.files import SourceFile
from connectors.profiles import load_profile

profile = load_profile(sys.argv[2])
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
with SourceFile(Path(sys.argv[1]), profile=profile) as source:
    checked = source.check()
after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(json.dumps([checked.rows, checked.malformed, checked.size_bytes, (after - before) * 1024]))
"""
PROFILE = """
profile_version = 1
about = "A payroll export with long notes and a total."
format = "csv"
record_type = "payroll"
[fields]
employee_id = { from = "id", case = "upper" }
source_run_id = { template = "acme/1/{run}" }
pay_period_start = { from = "start" }
pay_period_end = { from = "end" }
tax_jurisdiction = { const = "US-OH" }
gross_pay = { from = "gross", number = "us" }
note = { from = "note", extra = true }
[numbers.us]
group = [","]
[[totals]]
cells = { id = "Total" }
sums = ["gross_pay"]
"""


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_file_of_five_gigabytes_is_checked_in_bounded_memory(tmp_path: Path) -> None:
    """Every row is mapped and the totals row compared; memory stays that of one row (G6)."""
    (tmp_path / "p.toml").write_text(PROFILE, encoding="utf-8")
    pipe = tmp_path / "run.csv"
    os.mkfifo(pipe)
    arguments = [sys.executable, "-c", CHILD, str(pipe), str(tmp_path / "p.toml")]
    with subprocess.Popen(
        arguments, stdout=subprocess.PIPE, cwd=Path(__file__).parents[2]
    ) as child:
        started_s = time.monotonic()
        rows, size = _write(pipe)
        out, _ = child.communicate(timeout=200)
    seconds = time.monotonic() - started_s
    found_rows, malformed, found_size, growth = json.loads(out)
    assert size >= SIZE_BYTES
    # The totals row, which ends the file, is none of the records.
    assert (found_rows, malformed) == (rows, 0)
    assert size - 200 < found_size <= size
    assert growth < GROWTH_BYTES_MAX
    assert seconds < 120


def _write(pipe: Path) -> tuple[int, int]:
    """Rows written, and bytes in all."""
    row = b'a10042,R1,2026-10-19,2026-11-01,"1,000.50","' + b"long, long note " * (NOTE_BYTES // 16)
    row += b'"\n'
    rows = SIZE_BYTES // len(row) + 1
    header = b"id,run,start,end,gross,note\n"
    last = f"Total,,,,{_cents(rows * 100050)},\n".encode()
    with pipe.open("wb", buffering=0) as out:
        out.write(header)
        for _ in range(rows):
            left = memoryview(row)
            while left:
                left = left[out.write(left) :]
        out.write(last)
    return rows, len(header) + rows * len(row) + len(last)


def _cents(amount: int) -> str:
    return f'"{amount // 100:,}.{amount % 100:02d}"'
