"""Inspections as the gate commits them: members of a report, decided, as the event's bytes."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping
from typing import Any

from schemas.decision_set import DecisionSet
from schemas.dvir import RECORD_TYPE
from schemas.envelope import Record, Source
from schemas.verdict import Accepted
from streams.decide import decide

TRACTOR = "1M8GDM9AXKP042788"
TRAILER = "1JJV532D8KL123456"
_numbers = itertools.count()


def defect(part: str = "tires", severity: str = "major", **changes: Any) -> dict[str, Any]:
    """A defect, open unless told otherwise."""
    return {"part": part, "severity": severity, **changes}


def members(
    report_id: str | None = "R1", *defects: Mapping[str, Any], **changes: Any
) -> dict[str, Any]:
    """A report's members, of an idempotency key of their own."""
    return {
        "idempotency_key": f"eld/{next(_numbers)}",
        "source": "eld",
        "report_id": report_id,
        "inspected_at": "2026-03-01T10:00:00Z",
        "inspection_type": "post_trip",
        "driver_id": "D-7",
        "units": [{"role": "power_unit", "vin": TRACTOR}],
        "certification": {"by": "D-7", "at": "2026-03-01T10:00:00Z", "method": "drawn"},
        "defects": list(defects),
        **changes,
    }


def certification(
    report_id: str | None = "R1", *defects: Mapping[str, Any], **changes: Any
) -> dict[str, Any]:
    """A certification of repairs of that report, some days later."""
    by = {"by": "M-1", "at": "2026-03-05T08:00:00Z", "method": "account"}
    common = {"event": "repair_certification", "certification": by, "driver_id": None}
    times = {"inspected_at": "2026-03-05T08:00:00Z"}
    return members(report_id, *defects, **{**common, **times, **changes})


def committed(record: Mapping[str, Any], offset: int = 0, partition: int = 0) -> Accepted:
    """The record as accepted by the gate, with its event's key and value."""
    raw = Record(offset, json.dumps(record).encode())
    found = decide(raw, RECORD_TYPE, Source("dvir.raw", partition), DecisionSet(), {})
    assert isinstance(found, Accepted), found
    return found
