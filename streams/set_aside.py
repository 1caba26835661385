"""Positions that an operator set aside: their records are not looked into. Pure.

The way past a record that alone exceeds every deadline, makes deciding hang, or cannot be read:
`weighbridge quarantine add --position` puts it on record, and its verdict is `held_by_operator`
when its turn comes. Held at assignment, a record is not even decided; held since, its verdict is
replaced when the batch claims the cursor.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Sequence

from connectors.ports import Unread
from schemas.envelope import RawRecord, Source
from schemas.reasons import Reason
from schemas.verdict import Decided, Refused, Violation
from streams.decide import refused

_RULE = "an operator set this position aside"


def held(record: RawRecord, source: Source) -> Refused:
    """The verdict on a record that an operator set aside."""
    violations = [Violation("", _RULE)]
    if isinstance(record, Unread):
        kept = "no bytes" if record.value is None else "its bytes, unchecked"
        violations.append(Violation("", f"cannot be read ({record.why}); kept: {kept}"))
    return refused(record, source, Reason.HELD_BY_OPERATOR, tuple(violations))


def free(records: Sequence[RawRecord], holds: Collection[int]) -> Sequence[RawRecord]:
    """The records that are not held."""
    return [r for r in records if r.offset not in holds] if holds else records


def with_held(
    records: Sequence[RawRecord],
    decided: Sequence[Decided],
    source: Source,
    holds: Collection[int],
) -> Sequence[Decided]:
    """Verdicts on all records, in order: those decided, and the held ones' in their place."""
    if not holds:
        return decided
    known = {one.offset: one for one in decided}
    return [
        held(record, source) if record.offset in holds else known[record.offset]
        for record in records
    ]


def last_read(records: Sequence[RawRecord]) -> int | None:
    """Index of the last record by which the log can be recognised again."""
    for index in range(len(records) - 1, -1, -1):
        if not isinstance(records[index], Unread):
            return index
    return None


ALONE_TOO_SLOW = "alone exceeded the deadline of its batch"
"""How a stop for a slow record can be told from others."""


def too_slow(source: Source, offset: int, tries: int) -> str:
    """What is said of a record that alone exceeds every deadline."""
    position = source.position(offset)
    return (
        f"{source}: the record at offset {offset} {ALONE_TOO_SLOW} {tries} "
        f"times (batch_deadline_s). If the database is well, `weighbridge quarantine add "
        f"--position {position} --why TEXT` sets it aside; nothing is skipped without it"
    )


@dataclasses.dataclass(slots=True)
class Alone:
    """Counts how often in a row one record alone ran out of time."""

    offset: int = -1
    times: int = 0

    def again(self, offset: int) -> int:
        """It happened once more: how often in a row by now."""
        self.times = self.times + 1 if offset == self.offset else 1
        self.offset = offset
        return self.times
