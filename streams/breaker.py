"""The circuit breaker: pauses a partition whose share of turned-away records jumps. Pure.

A flood of rejects nearly always means that a publisher, or a rule of ours, has changed; going on
would fill quarantine with records that are all mended in one place. The breaker weighs a batch as
it was settled and never changes it: the pause is written in the batch's own transaction and holds
from the next claim on, so what was decided stays decided and comes out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from connectors.errors import Stop
from schemas.envelope import CHUNK, RawRecord, last_header
from schemas.reasons import Reason
from schemas.verdict import Refused, Settled

UNCOUNTED = frozenset({Reason.CONTROL_TOTAL_MISMATCH, Reason.HELD_BY_OPERATOR})
"""A chunk's totals are told by `reconcile`, and what an operator set aside was meant to be."""

CHUNK_BYTES_MAX = 64
"""How much of a chunk header's attempt is remembered: it may be anything."""


class Paused(Stop):
    """The partition is paused until `weighbridge resume`."""


@dataclass(frozen=True, slots=True)
class BreakerPolicy:
    """When a partition is paused."""

    window: int = 1_000
    """How many of the newest records are looked at; a chunk counts as one."""
    percent: int = 50
    """Share of them, in whole percent, that may not be turned away."""
    counted_min: int = 1_000
    """With fewer in the window nothing is said of a share."""

    def __post_init__(self) -> None:
        if not (1 <= self.counted_min <= self.window and 1 <= self.percent <= 100):  # noqa: PLR2004 - percent
            message = (
                "a breaker needs 1 <= counted_min <= window and 1 <= percent <= 100, not "
                f"{self.counted_min}, {self.window}, {self.percent}"
            )
            raise ValueError(message)


@dataclass(frozen=True, slots=True)
class Weight:
    """One record without a chunk, or what has been seen of one chunk."""

    chunk: bytes | None
    members: int
    turned_away: int

    def heavy(self, percent: int) -> bool:
        """Whether it counts as turned away: a chunk does when that share of its members is."""
        return self.turned_away * 100 >= percent * self.members


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the breaker sees of a settled record."""

    turned_away: bool
    chunk: bytes | None = None
    """The attempt that its chunk header names."""


_PASSED, _TURNED_AWAY = Outcome(turned_away=False), Outcome(turned_away=True)
_LIGHT, _HEAVY = Weight(None, 1, 0), Weight(None, 1, 1)
"""Shared by all records without a chunk: to make one for each would cost microseconds."""


@dataclass(frozen=True, slots=True)
class Breaker:
    """What has been seen of a partition since its assignment. A batch makes a new one."""

    policy: BreakerPolicy
    seen: tuple[Weight, ...] = ()
    why: str | None = None
    """Why the partition must pause, once it must."""

    def after(self, outcomes: Iterable[Outcome]) -> Breaker:
        """The breaker once these have been settled too."""
        seen = list(self.seen)
        place = {w.chunk: index for index, w in enumerate(seen) if w.chunk is not None}
        for outcome in outcomes:
            chunk, away = outcome.chunk, outcome.turned_away
            if chunk is None:
                seen.append(_HEAVY if away else _LIGHT)
            elif chunk in place:
                was = seen[place[chunk]]
                seen[place[chunk]] = Weight(chunk, was.members + 1, was.turned_away + away)
            else:
                place[chunk] = len(seen)
                seen.append(Weight(chunk, 1, int(away)))
        kept = tuple(seen[-self.policy.window :])
        return Breaker(self.policy, kept, self.why or _too_many(self.policy, kept))


def _too_many(policy: BreakerPolicy, seen: Sequence[Weight]) -> str | None:
    heavy = sum(weight.heavy(policy.percent) for weight in seen)
    if len(seen) < policy.counted_min or heavy * 100 < policy.percent * len(seen):
        return None
    return (
        f"{heavy} of the last {len(seen)} records or chunks were turned away, {policy.percent} % "
        "or more"
    )


def outcomes(settled: Sequence[Settled], records: Sequence[RawRecord]) -> list[Outcome]:
    """What the breaker sees of a batch."""
    found = []
    for one, record in zip(settled, records, strict=True):
        turned_away = isinstance(one, Refused)
        if isinstance(one, Refused) and one.reason in UNCOUNTED:
            continue
        header = last_header(record.headers, CHUNK) if record.headers else None
        if header is None:
            found.append(_TURNED_AWAY if turned_away else _PASSED)
        else:
            found.append(Outcome(turned_away, header.partition(b"/")[0][:CHUNK_BYTES_MAX]))
    return found
