"""Step 1 of sending rejects again: what may be sent, and what would become of it. Reads only."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from connectors.errors import InvariantViolation
from connectors.ports import SchemaStore
from connectors.postgres import rejects, resubmissions
from connectors.postgres.pool import Pool
from connectors.postgres.rejects import Which
from connectors.postgres.resubmissions import Earlier
from schemas.envelope import Position
from schemas.resubmission import named, obstacle
from schemas.verdict import Settled
from streams.foresight import Candidate, Foresight

ITEMS_MAX = 50
"""Records that a summary names one by one."""
WHYS_MAX = 50
"""Different answers that a summary counts one by one."""

Wanted = tuple[Position, bytes | None]
"""A reject, and what to send in its place; None for its own bytes."""


@dataclass(frozen=True, slots=True)
class Item:
    """One record of a summary."""

    position: Position
    outcome: str
    """`resubmit`, `already` or `refused`."""
    verdict: str | None
    """What it would become now; None when that was not asked."""
    why: str | None


@dataclass(slots=True)
class Summary:
    """What became of a run, or would."""

    acted: bool
    resubmitted: int = 0
    """Records that were sent, or would be."""
    already: int = 0
    """Records whose bytes were sent again before."""
    refused: int = 0
    owed: int = 0
    """Acts of earlier runs that were sent now, or are waiting to be."""
    verdicts: Counter[str] = field(default_factory=Counter)
    """Of those that are sent: what they would become."""
    whys: Counter[str] = field(default_factory=Counter)
    """Of those that are refused: why."""
    items: list[Item] = field(default_factory=list)
    """The first of them; those that are refused before the others."""

    def add(self, item: Item) -> None:
        """Count one record."""
        if item.outcome == "resubmit":
            self.resubmitted += 1
            self.verdicts[item.verdict or "?"] += 1
        elif item.outcome == "already":
            self.already += 1
        else:
            self.refused += 1
            why = item.why or "?"
            known = why in self.whys or len(self.whys) < WHYS_MAX
            self.whys[why if known else "other"] += 1
        if len(self.items) < ITEMS_MAX:
            self.items.append(item)

    def as_dict(self) -> dict[str, object]:
        """For `--json`."""
        return {
            "acted": self.acted,
            "resubmitted": self.resubmitted,
            "already": self.already,
            "refused": self.refused,
            "owed": self.owed,
            "verdicts": dict(sorted(self.verdicts.items())),
            "whys": dict(sorted(self.whys.items())),
            "items": [
                {
                    "quarantine_id": str(one.position),
                    "outcome": one.outcome,
                    "verdict": one.verdict,
                    "why": one.why,
                }
                for one in self.items
            ],
        }


Planned = tuple[Item, Candidate | None]
"""What would become of a reject; no candidate when there is none of this id."""


class Planner:
    """Step 1: tells what may be sent. Reads only."""

    def __init__(
        self, pool: Pool, store: SchemaStore, *, attempts_max: int, even_dismissed: bool
    ) -> None:
        self._pool = pool
        self._foresight = Foresight(pool, store, int(time.time() * 1000))
        self._attempts_max = attempts_max
        self._even_dismissed = even_dismissed

    async def plan(self, wanted: Sequence[Wanted]) -> list[Planned]:
        """What would become of each; with a candidate where there is a reject of this id."""
        positions = [position for position, _ in wanted]
        found = {one.position: one for one in await rejects.whole(self._pool, positions)}
        dismissed = await self._dismissed(positions)
        candidates = [Candidate(found[p], value) for p, value in wanted if p in found]
        before = await resubmissions.earlier(
            self._pool, [(one.reject.position, one.digest) for one in candidates]
        )
        verdicts = await self._foresight.verdicts(
            [one for one in candidates if (one.reject.position, one.digest) not in before]
        )
        left = iter(verdicts)
        by_position = {one.reject.position: one for one in candidates}
        planned: list[Planned] = []
        for position in positions:
            candidate = by_position.get(position)
            if candidate is None:
                why = "there is no such reject"
                planned.append((Item(position, "refused", None, why), None))
                continue
            earlier = before.get((position, candidate.digest))
            now = None if earlier else next(left)
            shut = position in dismissed and not self._even_dismissed
            planned.append((self._item(candidate, now, earlier, shut=shut), candidate))
        return planned

    async def _dismissed(self, positions: Sequence[Position]) -> set[Position]:
        which = Which(state="dismissed", positions=tuple(positions))
        return {one.position for one in await rejects.in_order(self._pool, which, len(positions))}

    def _item(
        self, candidate: Candidate, now: Settled | None, earlier: Earlier | None, *, shut: bool
    ) -> Item:
        position = candidate.reject.position
        if earlier is not None:
            why = f"already resubmitted by {earlier.who} at {earlier.acted_at:%Y-%m-%d %H:%M:%SZ}"
            return Item(position, "already", None, why)
        if now is None:
            message = f"{position}: what was not sent again before has a verdict"
            raise InvariantViolation(message)
        if shut:
            return Item(position, "refused", named(now), "it was dismissed; say --even-dismissed")
        why_not = obstacle(
            candidate.reject, now, corrected=candidate.changed, attempts_max=self._attempts_max
        )
        outcome = "resubmit" if why_not is None else "refused"
        return Item(position, outcome, named(now), why_not)


async def preview(
    planner: Planner,
    pool: Pool,
    portions: Iterable[Sequence[Wanted]],
    on_progress: Callable[[int], None],
) -> Summary:
    """What a run would do. Writes nothing and does not need Kafka."""
    summary = Summary(acted=False, owed=sum((await resubmissions.unsent(pool)).values()))
    done = 0
    for portion in portions:
        for item, _ in await planner.plan(portion):
            summary.add(item)
        done += len(portion)
        on_progress(done)
    return summary
