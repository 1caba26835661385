"""What the page for downstream readers says of decoding, held to what the gate writes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from schemas.committed import read_event
from schemas.record_types import RECORD_TYPES
from tests.inspections import committed, defect, members

PAGE = Path(__file__).parents[2] / "docs" / "scorer.md"
DVIR = RECORD_TYPES["dvir"]


def test_fastavro_alone_reads_committed_events(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The Python of the page gives the same fields as this project's own reader."""
    (block,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    (tmp_path / "dvir.avsc").write_text(DVIR.committed_schemas[0].text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    exec(block, names)  # noqa: S102 - the page's own words
    units = [{"role": "trailer", "unit_number": "T-9", "odometer_m": "12.5"}]
    value = committed(members("R1", defect(), units=units)).event_value
    assert names["read"](value) == read_event(DVIR, value)
    with pytest.raises(ValueError, match="another schema"):
        names["read"](b"\xc3\x01" + bytes(8))


@pytest.mark.parametrize("name", sorted(RECORD_TYPES))
def test_the_page_names_the_newest_fingerprints(name: str) -> None:
    """A new version of a committed schema is a new line of the page."""
    assert RECORD_TYPES[name].committed_schemas[-1].fingerprint.hex() in PAGE.read_text()
