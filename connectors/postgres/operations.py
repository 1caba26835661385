"""The table `operations`: acts of people, appended and never changed.

Written by commands only, never by workers: role `weighbridge_operator` may add acts and nothing
else.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from connectors.postgres.pool import Pool, Session
from connectors.postgres.queries import query


@dataclass(frozen=True, slots=True)
class Act:
    """One act of a person."""

    act: str
    """What was done, such as `resubmit`, `dismiss` or `reveal`."""
    who: str
    """Who says they did it; the database role is recorded beside it."""
    target: str
    """What it was done to: a position, or a range of a topic."""
    why: str | None = None
    digest_before: bytes | None = None
    """SHA-256 of the record's bytes it was done to, 32 bytes."""
    digest_after: bytes | None = None
    """SHA-256 of the bytes that took their place, 32 bytes."""
    detail: Mapping[str, object] = field(default_factory=dict)
    """What else belongs to it; never a value of a record."""


async def record_acts(pool: Pool, acts: Sequence[Act]) -> list[int]:
    """Append acts in one transaction of their own and return their numbers, in order.

    Once this returns they are durable, so that an act is on record before it takes effect. Raises
    `DatabaseUnavailable` (retryable), `ConfigurationError` for a role that may not.
    """
    async with pool.transaction() as session:
        return [await append_act(session, act) for act in acts]


async def append_act(session: Session, act: Act) -> int:
    """Append an act within a transaction; its number. Raises like `record_acts`."""
    row = await session.one(
        "the number of an act",
        query("append_act"),
        act.act,
        act.who,
        act.why,
        act.target,
        act.digest_before,
        act.digest_after,
        json.dumps(act.detail, sort_keys=True),
    )
    return int(row["number"])
