"""All records of a demo, in the order they are published, from one seed.

The same seed, counts and `as_of` give the same bytes. Memory does not grow with the counts, apart
from a plan of one reference per record. Pure but for the files the encoders read.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Iterator
from datetime import datetime

from streams.demo.dvirs import DvirMaker
from streams.demo.encoding import Encoder
from streams.demo.made import Made
from streams.demo.payroll import PayrollMaker

SEED = 20_260_511
STATEMENTS = 20_000
DVIRS = 5_000


def generate(
    as_of: datetime,
    *,
    seed: int = SEED,
    statements: int = STATEMENTS,
    dvirs: int = DVIRS,
) -> Iterator[Made]:
    """Statements and DVIRs of the weeks before `as_of`, merged by their timestamps.

    `as_of` must be aware. It is a parameter because records older than the topics' retention would
    vanish, and records of the future are refused by the broker.
    """
    payroll = PayrollMaker(_chance(seed, "payroll"), Encoder("payroll"), as_of, statements)
    inspections = DvirMaker(_chance(seed, "dvir"), Encoder("dvir"), as_of, dvirs)
    return heapq.merge(payroll, inspections, key=lambda made: made.timestamp)


def _chance(seed: int, name: str) -> random.Random:
    """A source of its own per type: more of one type changes nothing of the other."""
    return random.Random(f"{seed}/{name}")
