"""Dismissing rejects: somebody puts on record that nothing will be done about them.

A dismissal changes nothing about a reject; it is no longer listed as open, that is all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from connectors.postgres import resubmissions
from connectors.postgres.pool import Pool
from connectors.postgres.rejects import Listed, portions


@dataclass(slots=True)
class DismissSummary:
    """What became of a run, or would."""

    acted: bool
    dismissed: int = 0
    already: int = 0
    """Rejects that were dismissed before."""
    resubmitted: int = 0
    """Rejects that were sent again: their resubmission has the last word."""
    safety_critical: int = 0
    """Left alone: inspections with an open major or out-of-service defect are dismissed by their
    id alone, one by one."""
    unknown: int = 0
    """Ids of no reject."""

    @property
    def complete(self) -> bool:
        """Whether everything that was meant is dismissed, or would be."""
        return not (self.resubmitted or self.safety_critical or self.unknown)

    def as_dict(self) -> dict[str, object]:
        """For `--json`."""
        return {
            "acted": self.acted,
            "dismissed": self.dismissed,
            "already": self.already,
            "resubmitted": self.resubmitted,
            "safety_critical": self.safety_critical,
            "unknown": self.unknown,
        }


def sift(meant: Sequence[Listed], *, by_id: bool) -> tuple[list[Listed], DismissSummary]:
    """Those to dismiss, and a summary of the others. Pure. `by_id` says that a person has spelled
    out every one of them."""
    summary = DismissSummary(acted=False)
    chosen: list[Listed] = []
    for one in meant:
        if one.dismissed:
            summary.already += 1
        elif one.resubmitted:
            summary.resubmitted += 1
        elif one.safety_critical and not by_id:
            summary.safety_critical += 1
        else:
            chosen.append(one)
    summary.dismissed = len(chosen)
    return chosen, summary


async def dismiss(
    pool: Pool, who: str, why: str, chosen: Sequence[Listed], on_progress: Callable[[int], None]
) -> int:
    """Put it on record; how many were not dismissed before. May be repeated.

    Raises `DatabaseUnavailable` (retryable), `ConfigurationError` for a role that may not.
    """
    new = done = 0
    for part in portions(chosen):
        targets = [(one.position, one.raw_digest) for one in part]
        new += await resubmissions.dismiss(pool, who, why, targets)
        done += len(part)
        on_progress(done)
    return new
