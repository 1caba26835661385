"""Exponential back-off with jitter: policy as data, randomness handed in."""

from __future__ import annotations

import random
from dataclasses import dataclass


@dataclass(slots=True)
class Backoff:
    """Delays that double from `first_s` up to `max_s`, each cut by up to half at random.

    Jitter keeps partitions and workers that failed together from returning together.
    """

    first_s: float
    max_s: float
    random_source: random.Random
    failures: int = 0

    def next_s(self) -> float:
        """Seconds to wait after one more failure in a row."""
        ceiling_s = min(self.max_s, self.first_s * float(1 << min(self.failures, 30)))
        self.failures += 1
        return ceiling_s * (0.5 + 0.5 * self.random_source.random())

    def reset(self) -> None:
        """Something succeeded: begin at `first_s` next time."""
        self.failures = 0
