"""What a fault did to records, counted from what topics and tables hold. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Self

from schemas.verdict import Verdict
from streams.demo.made import Truth
from streams.demo.reading import Place, Seen


@dataclass(slots=True)
class Harm:
    """Records of which something went wrong."""

    lost: int = 0
    """Due a ledger row, a quarantine row or an event, and without it."""
    doubled: int = 0
    """Rows of a key and events of a record beyond the first."""
    misjudged: int = 0
    """Quarantined, though made to be accepted, or for another reason."""
    failed: list[str] = field(default_factory=list)
    """Checks of the proof that failed: expected and found."""

    def __iadd__(self, other: Harm) -> Self:
        self.lost += other.lost
        self.doubled += other.doubled
        self.misjudged += other.misjudged
        self.failed += other.failed
        return self

    @property
    def none(self) -> bool:
        """Whether nothing went wrong."""
        return not (self.lost or self.doubled or self.misjudged or self.failed)


def harm_of(seen: Seen, truths: Mapping[Place, Truth]) -> Harm:
    """Compare what was found of one record type with what its records were made for."""
    due = {p: truth for p, truth in truths.items() if truth.verdict is not Verdict.DUPLICATE}
    rows = {booked.place for booked in seen.ledger} | {r.place for r in seen.quarantine}
    told = Counter(booked.place for booked in seen.events)
    told.update(reject.place for reject in seen.reject_events)
    keys = Counter(booked.identity for booked in seen.ledger)
    misjudged = sum(
        reject.place not in due or reject.reason != str(due[reject.place].reason)
        for reject in seen.quarantine
    )
    return Harm(
        lost=len(due.keys() - rows) + len(due.keys() - told.keys()),
        doubled=sum(count - 1 for count in (*told.values(), *keys.values())),
        misjudged=misjudged,
    )
