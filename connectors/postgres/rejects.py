"""Rejects as people look at them: found, counted, grouped, read whole, with what became of them.

Each call is a short transaction of its own that takes no lock. Lists come without the records'
bytes; those are read in portions of a bounded size.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Literal

from connectors.errors import InvariantViolation
from connectors.postgres.pool import Pool, Row
from connectors.postgres.queries import query
from schemas.envelope import Position, unpack_headers
from schemas.quarantine import QUARANTINE_COLUMNS
from schemas.reasons import Reason
from schemas.resubmission import Reject
from schemas.verdict_page import Entry, unpack

State = Literal["open", "resubmitted", "dismissed", "all"]
"""`open` is neither resubmitted nor dismissed."""

PORTION_BYTES_MAX = 8 * 1024 * 1024
"""Values held in memory at once, but for a single larger one."""
PORTION_RECORDS_MAX = 1_000
ACTS_LISTED_MAX = 100
"""Acts and resubmissions of one reject that are listed."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Which:
    """Which rejects are meant. Whatever is None or empty does not matter."""

    state: State = "open"
    record_type: str | None = None
    reasons: tuple[Reason, ...] = ()
    since: datetime | None = None
    """Turned away at this time or later; aware."""
    until: datetime | None = None
    """Turned away before this time; aware."""
    field: str | None = None
    """A path that the detail names, or one above it: `earnings` is for `earnings[2].amount`."""
    raw_digest: bytes | None = None
    positions: tuple[Position, ...] | None = None
    holds: bytes | None = None
    """Text that the value could hold: a first choice, for whoever reads the value afterwards."""

    def values(self) -> tuple[object, ...]:
        """The parameters of `rejects_matching`, in its order."""
        places = (None,) * 4 if self.positions is None else columns_of(self.positions)
        return (
            self.record_type,
            [str(reason) for reason in self.reasons] or None,
            self.since,
            self.until,
            _needles(self.field),
            self.state,
            self.raw_digest,
            *places,
            self.holds,
        )


def columns_of(positions: Sequence[Position]) -> tuple[list[object], ...]:
    """Positions as four lists, the way a query takes them."""
    return (
        [p.topic for p in positions],
        [p.incarnation for p in positions],
        [p.partition for p in positions],
        [p.offset for p in positions],
    )


def _needles(field: str | None) -> list[str] | None:
    """How a path begins in the stored detail, which is JSON written by us: quotes inside a path or
    rule are escaped there, so this is found nowhere else."""
    if field is None:
        return None
    begin = f'"path":{json.dumps(field)[:-1]}'
    return [f'{begin}"', f"{begin}.", f"{begin}["]


@dataclass(frozen=True, slots=True)
class Listed:
    """A reject without its bytes."""

    position: Position
    record_type: str
    reason: Reason
    detail: str
    """JSON list of {path, rule}; empty from `in_order`."""
    raw_digest: bytes
    attempt: int
    safety_critical: bool
    quarantined_at: datetime
    value_bytes: int
    resubmitted: bool
    dismissed: bool


@dataclass(frozen=True, slots=True)
class Group:
    """Rejects of one type, reason and content."""

    record_type: str
    reason: Reason
    records: int
    first_seen: datetime
    last_seen: datetime
    attempt: int
    """The highest among them."""
    safety_critical: bool
    newest: Position
    """The newest of them stands for all."""


@dataclass(frozen=True, slots=True)
class Groups:
    """Some groups, and how many there are."""

    groups: list[Group]
    groups_in_all: int
    records_in_all: int


# --- Finding --------------------------------------------------------------------------------------


async def grouped(pool: Pool, which: Which, limit: int, skip: int) -> Groups:
    """Rejects by content, those that matter for safety first, then the newest.

    Reads all that match: four seconds for a million. Raises `DatabaseUnavailable`.
    """
    async with pool.transaction() as session:
        rows = await session.fetch(query("rejects_grouped"), *which.values(), limit, skip)
    if not rows:  # None at all, or all of them skipped.
        return Groups([], 0, 0)
    return Groups(
        [_group(row) for row in rows], rows[0]["groups_in_all"], rows[0]["records_in_all"]
    )


def _group(row: Row) -> Group:
    moment, incarnation, partition, offset = row["newest"]
    return Group(
        row["record_type"],
        Reason(row["reason"]),
        row["records"],
        row["first_seen"],
        _EPOCH + timedelta(microseconds=moment),
        row["attempt"],
        row["safety_critical"],
        Position(row["topic"], incarnation, partition, offset),
    )


async def listed(pool: Pool, which: Which, limit: int, skip: int) -> tuple[list[Listed], int]:
    """Rejects one by one in the order of `grouped`, and how many there are in all."""
    async with pool.transaction() as session:
        rows = await session.fetch(query("rejects_listed"), *which.values(), limit, skip)
        found = await session.one("a count", query("rejects_counted"), *which.values())
    return [_listed(row) for row in rows], int(found["records"])


async def counted(pool: Pool, which: Which) -> int:
    """How many match."""
    async with pool.transaction() as session:
        found = await session.one("a count", query("rejects_counted"), *which.values())
    return int(found["records"])


async def in_order(pool: Pool, which: Which, limit: int) -> list[Listed]:
    """Rejects in the order in which they were turned away, at most `limit`."""
    async with pool.transaction() as session:
        rows = await session.fetch(query("rejects_in_order"), *which.values(), limit)
    return [_listed(row) for row in rows]


def _listed(row: Row) -> Listed:
    return Listed(
        position_of(row),
        row["record_type"],
        Reason(row["reason"]),
        row["detail"],
        row["raw_digest"],
        row["attempt"],
        row["safety_critical"],
        row["quarantined_at"],
        row["value_bytes"],
        row["resubmitted"],
        row["dismissed"],
    )


def position_of(row: Row) -> Position:
    """The position that a row's columns of these names hold."""
    return Position(row["topic"], row["incarnation"], row["partition"], row["record_offset"])


# --- Reading whole --------------------------------------------------------------------------------


def portions(rejects: Sequence[Listed]) -> Iterator[Sequence[Listed]]:
    """Cut a list so that the values of each part may be held in memory. Pure."""
    begin = taken = 0
    for at, one in enumerate(rejects):
        full = at - begin >= PORTION_RECORDS_MAX or taken + one.value_bytes > PORTION_BYTES_MAX
        if at > begin and full:
            yield rejects[begin:at]
            begin, taken = at, 0
        taken += one.value_bytes
    if begin < len(rejects):
        yield rejects[begin:]


async def whole(pool: Pool, positions: Sequence[Position]) -> list[Reject]:
    """Rejects with their bytes, in the order asked for; those that are not there are left out."""
    statement = query("rejects_whole", columns=QUARANTINE_COLUMNS)
    async with pool.transaction() as session:
        rows = await session.fetch(statement, *columns_of(positions))
    return [_whole(row) for row in rows]


def _whole(row: Row) -> Reject:
    return Reject(
        position=position_of(row),
        record_type=row["record_type"],
        reason=Reason(row["reason"]),
        detail=row["detail"],
        raw_digest=row["raw_digest"],
        attempt=row["attempt"],
        safety_critical=row["safety_critical"],
        correlation_id=row["correlation_id"],
        kafka_timestamp=row["kafka_timestamp"],
        key=row["record_key"],
        value=row["record_value"],
        headers=unpack_headers(row["record_headers"]),
    )


# --- What became of them --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ActOn:
    """What somebody has done about a reject."""

    number: int
    act: str
    who: str
    why: str | None
    database_role: str
    acted_at: datetime


@dataclass(frozen=True, slots=True)
class Sent:
    """A resubmission of a reject, and where its record stands."""

    number: int
    attempt: int
    corrected: bool
    who: str
    acted_at: datetime
    position: Position | None
    """None while it is not known to be sent."""


@dataclass(frozen=True, slots=True)
class History:
    """All that is on record about a reject."""

    acts: list[ActOn]
    sent: list[Sent]
    sent_for: Position | None
    """The reject that this very record was sent for, by us."""


async def history(pool: Pool, position: Position) -> History:
    """Acts on a reject, oldest first, and its resubmissions."""
    place = position.topic, position.incarnation, position.partition, position.offset
    async with pool.transaction() as session:
        acts = await session.fetch(query("acts_on"), str(position), ACTS_LISTED_MAX)
        sent = await session.fetch(query("resubmissions_of"), *place, ACTS_LISTED_MAX)
        origin = await session.fetchrow(query("resubmission_at"), *place)
    return History(
        [ActOn(*row.values()) for row in acts],
        [_sent(position.topic, row) for row in sent],
        None if origin is None else position_of(origin),
    )


def _sent(topic: str, row: Row) -> Sent:
    at = None
    if row["record_offset"] is not None:
        at = Position(topic, row["incarnation"], row["partition"], row["record_offset"])
    return Sent(row["number"], row["attempt"], row["corrected"], row["who"], row["acted_at"], at)


async def verdict_at(pool: Pool, group: str, position: Position) -> Entry | None:
    """The stored verdict on a position; None while it has none in this consumer group."""
    place = position.topic, position.partition, group, position.incarnation
    async with pool.transaction() as session:
        at = await session.fetchrow(query("page_at"), *place, position.offset)
        if at is None:
            return None
        page = await session.one("a verdict page", query("page"), *place, at["batch_number"])
    try:
        return next((e for e in unpack(page["page"]) if e.offset == position.offset), None)
    except ValueError as error:
        message = f"the verdict page of {position} cannot be read: {error}"
        raise InvariantViolation(message) from None
