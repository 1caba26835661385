"""The order of what is made: how many of each kind, shuffled from the seed. Pure."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import TypeVar

from schemas.reasons import Reason

OptionT = TypeVar("OptionT")

PLAIN = "plain"
DUPLICATE = "duplicate"
CONFLICT = "conflict"
FAULT_SHARE = 0.01
DUPLICATE_SHARE = 0.02
CONFLICT_SHARE = 0.003
HEAD = 40
"""Records at the start that are plain, so that duplicates and later events have a past."""
RECORDS_MIN = 150
"""Fewest records of a type: room for the head, one fault of every reason and one of every kind."""
OVERSIZE_MAX = 3
"""A record of a megabyte shows what it shows after three."""

Kind = str | Reason
"""`plain`, `duplicate`, `conflict`, a kind of the type's own, or the reason a fault aims at."""


def kinds(
    chance: random.Random, count: int, reasons: Sequence[Reason], own: Mapping[str, float]
) -> list[Kind]:
    """What each of `count` records is to be, in order.

    One per cent faults, spread over `reasons` so that each occurs; `own` gives further kinds of the
    type with their shares. Raises `ValueError` below `RECORDS_MIN`, unless `count` is 0.
    """
    if count == 0:
        return []
    if count < RECORDS_MIN:
        message = f"at least {RECORDS_MIN} records are needed to show every reason, or none"
        raise ValueError(message)
    special: list[Kind] = list(faults(max(round(count * FAULT_SHARE), len(reasons)), reasons))
    shares = {DUPLICATE: DUPLICATE_SHARE, CONFLICT: CONFLICT_SHARE, **own}
    for kind, share in shares.items():
        special += [kind] * max(1, round(count * share))
    rest: list[Kind] = special + [PLAIN] * (count - HEAD - len(special))
    chance.shuffle(rest)
    return [PLAIN] * HEAD + rest


def faults(count: int, reasons: Sequence[Reason]) -> list[Reason]:
    """`count` reasons, taken in turn; `oversize` no more than `OVERSIZE_MAX` times."""
    light = [reason for reason in reasons if reason is not Reason.OVERSIZE]
    turn = (list(reasons) * OVERSIZE_MAX)[:count]
    while len(turn) < count:
        turn += light[: count - len(turn)]
    return turn


def shares(total: int, weights: Sequence[int]) -> list[int]:
    """Cut `total` by weights into whole numbers that add up to it (largest remainder)."""
    whole = sum(weights)
    cut = [total * weight // whole for weight in weights]
    by_remainder = sorted(range(len(weights)), key=lambda i: -(total * weights[i] % whole))
    for index in by_remainder[: total - sum(cut)]:
        cut[index] += 1
    return cut


def weighted(chance: random.Random, options: Mapping[OptionT, int]) -> OptionT:
    """One of the options, each as likely as its weight."""
    return chance.choices(list(options), list(options.values()))[0]
