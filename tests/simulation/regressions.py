"""Seeds that found something: each is run for ever, with what it found.

A seed means the same run only as long as the simulation makes the same choices, so each finding
also has a test of its own, named here.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Regression:
    """One finding."""

    seed: int
    found: str


REGRESSIONS = (
    Regression(
        251,
        "A worker slept at assignment between reading D and reading E, while another took the "
        "partition, decided and emitted. It then held the new E against the old D, took the "
        "database for set back and stopped the whole deployment. "
        "`tests/protocol/test_assignment.py` acts it out.",
    ),
)
