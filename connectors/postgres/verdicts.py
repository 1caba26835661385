"""Stored verdicts, read from verdict pages."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from connectors.errors import InvariantViolation
from connectors.postgres.pool import Pool
from connectors.postgres.queries import query
from schemas.envelope import Source
from schemas.verdict_page import Entry, unpack

PAGES_AT_ONCE = 8
"""Each page holds a batch, so this bounds memory."""


async def stored_verdicts(
    pool: Pool, source: Source, group: str, first: int, end: int
) -> AsyncIterator[Sequence[Entry]]:
    """The entries of [first, end) in order, some pages at a time, each read in a transaction of its
    own. Offsets without an entry are left out. Raises `DatabaseUnavailable`."""
    place = (source.topic, source.partition, group, source.incarnation)
    async with pool.transaction() as session:
        row = await session.fetchrow(query("page_at"), *place, first)
    number = 0 if row is None else int(row["batch_number"])
    while True:
        async with pool.transaction() as session:
            pages = await session.fetch(query("pages_from"), *place, number, PAGES_AT_ONCE)
        for page in pages:
            if page["begin_offset"] >= end:
                return
            yield [entry for entry in entries_of(page["page"]) if first <= entry.offset < end]
            number = int(page["batch_number"]) + 1
        if len(pages) < PAGES_AT_ONCE:
            return


def entries_of(page: bytes) -> list[Entry]:
    """The entries of a stored page. Pages are append-only, so one that cannot be read is no fault
    that heals: raises `InvariantViolation`."""
    try:
        return list(unpack(page))
    except ValueError as error:
        message = f"a verdict page in the database cannot be read: {error}"
        raise InvariantViolation(message) from None
