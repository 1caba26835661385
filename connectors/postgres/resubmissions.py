"""What is sent again: recorded before it is sent, found again if it was not, noted once it was.

Acts on rejects are recorded one transaction after the other (an advisory lock), so their numbers
become visible in order: "all acts up to number N of this topic are sent" is then one number, which
travels in the Kafka transaction that sends them (`connectors.kafka.resubmitter`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from connectors.postgres.pool import Pool, Row, Session
from connectors.postgres.queries import query
from connectors.postgres.rejects import (
    PORTION_BYTES_MAX,
    PORTION_RECORDS_MAX,
    columns_of,
    position_of,
)
from schemas.envelope import Position, unpack_headers
from schemas.resubmission import Outgoing, SentMark, resubmission_headers


@dataclass(frozen=True, slots=True)
class Intent:
    """A record to be sent again."""

    of: Position
    digest_before: bytes
    digest: bytes
    """SHA-256 of what is sent."""
    attempt: int
    to_partition: int
    corrected: bool = False
    key: bytes | None = None
    """Message key of corrected bytes; unchanged ones keep theirs."""
    value: bytes | None = None
    """The corrected bytes; None when they are unchanged."""


@dataclass(frozen=True, slots=True)
class Earlier:
    """Who sent the same bytes of a reject again before."""

    who: str
    acted_at: datetime


async def earlier(
    pool: Pool, wanted: Sequence[tuple[Position, bytes]]
) -> Mapping[tuple[Position, bytes], Earlier]:
    """Which of these (reject, digest of what would be sent) were sent again before."""
    positions = [position for position, _ in wanted]
    async with pool.transaction() as session:
        rows = await session.fetch(
            query("already_resubmitted"), *columns_of(positions), [digest for _, digest in wanted]
        )
    return {
        (position_of(row), bytes(row["digest"])): Earlier(row["who"], row["acted_at"])
        for row in rows
    }


async def record(pool: Pool, who: str, why: str, intents: Sequence[Intent]) -> int:
    """Put acts on record, durably, but for bytes that were sent again before; how many.

    Of one reject one intent at a time. Raises `DatabaseUnavailable` (retryable).
    """
    async with pool.transaction() as session:
        await session.execute(query("lock_acts"))
        rows = await session.fetch(
            query("record_resubmissions"),
            who,
            why,
            [str(one.of) for one in intents],
            *columns_of([one.of for one in intents]),
            [one.digest_before for one in intents],
            [one.digest for one in intents],
            [one.attempt for one in intents],
            [one.to_partition for one in intents],
            [one.corrected for one in intents],
            [one.key for one in intents],
            [one.value for one in intents],
            [_detail(one) for one in intents],
        )
    return len(rows)


def _detail(intent: Intent) -> str:
    return json.dumps(
        {
            "attempt": intent.attempt,
            "corrected": intent.corrected,
            "partition": intent.to_partition,
            "topic": intent.of.topic,
        }
    )


async def dismiss(pool: Pool, who: str, why: str, rejects: Sequence[tuple[Position, bytes]]) -> int:
    """Put on record that nothing will be done about these (reject, raw digest); how many are new.

    Raises `DatabaseUnavailable` (retryable).
    """
    async with pool.transaction() as session:
        await session.execute(query("lock_acts"))
        rows = await session.fetch(
            query("record_dismissals"),
            who,
            why,
            [str(position) for position, _ in rejects],
            [digest for _, digest in rejects],
        )
    return len(rows)


# --- Sending --------------------------------------------------------------------------------------


async def owed(pool: Pool, topic: str, after: int) -> list[Outgoing]:
    """The next acts of a topic beyond number `after`, in order, with the records to send: as many
    as may be held in memory."""
    async with pool.transaction() as session:
        rows = await session.fetch(
            query("resubmissions_after"), topic, after, PORTION_RECORDS_MAX, PORTION_BYTES_MAX
        )
    return [_outgoing(row) for row in rows]


async def oldest_owed(pool: Pool, topic: str, after: int) -> datetime | None:
    """When the first act beyond number `after` was recorded; None when there is none."""
    async with pool.transaction() as session:
        row = await session.fetchrow(query("oldest_resubmission_after"), topic, after)
    return None if row is None else row["acted_at"]


def _outgoing(row: Row) -> Outgoing:
    headers = resubmission_headers(
        unpack_headers(row["record_headers"]),
        position_of(row),
        row["attempt"],
        row["correlation_id"],
        corrected=row["corrected"],
    )
    return Outgoing(
        row["number"], row["to_partition"], row["digest"], row["key"], row["value"], headers
    )


async def unsent(pool: Pool) -> Mapping[str, int]:
    """Topic to how many acts have no record that is known to stand in its log."""
    async with pool.transaction() as session:
        rows = await session.fetch(query("unsent"))
    return {row["topic"]: row["records"] for row in rows}


async def last_sent(pool: Pool, topic: str) -> int:
    """The highest act of a topic whose record is noted as sent; 0 for none."""
    async with pool.transaction() as session:
        row = await session.one("a number", query("last_sent"), topic)
    return int(row["number"] or 0)


async def digest_of(pool: Pool, topic: str, number: int) -> bytes | None:
    """What an act sent; None when there is no such act on this topic."""
    async with pool.transaction() as session:
        row = await session.fetchrow(query("resubmission_digest"), topic, number)
    return None if row is None else bytes(row["digest"])


async def note_sent(pool: Pool, topic: str, mark: SentMark) -> None:
    """Note where the records of one Kafka transaction stand. May be repeated."""
    async with pool.transaction() as session:
        incarnation = await _incarnation(session, topic)
        rows = await session.fetch(query("numbers_to_partition"), topic, mark.first, mark.last)
        following = dict(mark.base_offsets)
        places: list[tuple[int, int, int]] = []
        for row in rows:
            partition = row["to_partition"]
            places.append((row["number"], partition, following[partition]))
            following[partition] += 1
        await session.execute(
            query("record_sent"),
            [number for number, _, _ in places],
            [incarnation] * len(places),
            [partition for _, partition, _ in places],
            [offset for _, _, offset in places],
        )


async def _incarnation(session: Session, topic: str) -> int:
    row = await session.one("an incarnation", query("incarnation_of"), topic)
    return int(row["incarnation"])
