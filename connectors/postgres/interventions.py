"""What people do about partitions and positions: resume a pause, set positions aside.

Each is an act in `operations` and its effect in one transaction of role `weighbridge_operator`;
workers read the effect at assignment and at every claim.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from connectors.ports import Cursor
from connectors.postgres.operations import Act, append_act
from connectors.postgres.pool import Pool
from connectors.postgres.queries import query
from schemas.envelope import Position


@dataclass(frozen=True, slots=True)
class Pause:
    """A pause in force."""

    number: int
    topic: str
    partition: int
    why: str
    paused_at: datetime


async def pauses_in_force(pool: Pool, group: str) -> list[Pause]:
    """Every pause in force of a consumer group. Raises `DatabaseUnavailable`."""
    async with pool.transaction() as session:
        rows = await session.fetch(query("pauses_in_force"), group)
    return [Pause(*row) for row in rows]


async def resume(pool: Pool, pauses: Sequence[Pause], group: str, act: Act) -> int:
    """End these pauses by an act; its number. Atomic. Raises `DatabaseUnavailable`."""
    async with pool.transaction() as session:
        number = await append_act(session, act)
        for pause in pauses:
            await session.execute(
                query("resume"),
                pause.topic,
                pause.partition,
                group,
                act.why,
                pause.number,
                number,
            )
    return number


async def pending_holds(pool: Pool, cursor: Cursor) -> int:
    """How many positions from D on are set aside already. Raises `DatabaseUnavailable`."""
    source = cursor.source
    async with pool.transaction() as session:
        row = await session.one(
            "a count",
            query("pending_holds"),
            source.topic,
            source.incarnation,
            source.partition,
            cursor.next_offset,
        )
    return int(row["pending"])


async def hold(pool: Pool, first: Position, last_offset: int, act: Act) -> int:
    """Set the positions from `first` to `last_offset` aside by an act; its number. Atomic.

    A position that is set aside already stays so under its first act. Raises `DatabaseUnavailable`.
    """
    async with pool.transaction() as session:
        number = await append_act(session, act)
        await session.execute(
            query("hold"),
            first.topic,
            first.incarnation,
            first.partition,
            first.offset,
            last_offset,
            number,
        )
    return number
