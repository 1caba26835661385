"""Records that aged out before they were decided: going on after them, as an act on record.

No verdict is invented for what nobody can read any more: the decided cursor moves over the gap in a
batch without records, so counts stay as they are (G1), pages still join up, and the group's offset
follows in step 4 like any batch's.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass

from connectors.errors import ClaimRefused
from connectors.ports import Counts, Cursor, Ledger, Page
from connectors.postgres.operations import Act, record_acts
from connectors.postgres.pool import Pool
from schemas.verdict_page import pack
from streams.assignment import Gap, LogLooker, check_cluster, recognise

ACT = "accept-gap"


@dataclass(frozen=True, slots=True)
class AcceptedGap:
    """A gap that was accepted."""

    cursor: Cursor
    """As it stood before."""
    to_offset: int
    """Where the log begins, and reading goes on."""

    def __str__(self) -> str:
        begin, end = self.cursor.next_offset, self.to_offset
        return (
            f"{self.cursor.source}: accepted the gap from offset {begin} to {end}: {end - begin} "
            "offsets have no verdict and never will"
        )


async def accept_gap(
    ledger: Ledger, log_reader: LogLooker, operators: Pool, group: str, who: str, cursor: Cursor
) -> AcceptedGap | None:
    """Move D to where the log begins, if it lies before that; None when there is no gap.

    The act is on record before it takes effect. Any owner of the partition is fenced. Raises
    `LogReplaced` when the log is another one, `ClaimRefused` when a worker moved the cursor
    meanwhile, `InfrastructureError` (retryable).
    """
    source = cursor.source
    check_cluster(cursor, await log_reader.cluster_id())
    try:
        await recognise(log_reader, cursor)
    except Gap:
        log_range = await log_reader.log_range(source.topic, source.partition)
    else:
        return None
    begin, end = cursor.next_offset, log_range.start_offset
    detail = {"group": group, "incarnation": source.incarnation, "from": begin, "to": end}
    act = Act(ACT, who, str(source), "the worker was started with --accept-gap", detail=detail)
    await record_acts(operators, [act])
    await _move(ledger, group, cursor, end)
    return AcceptedGap(cursor, end)


async def _move(ledger: Ledger, group: str, cursor: Cursor, end: int) -> None:
    source, token = cursor.source, secrets.token_bytes(16)
    taken = await ledger.take(source.topic, source.partition, group, token)
    if taken is None or taken != cursor:
        message = f"{source}: a worker moved the cursor meanwhile; look again"
        raise ClaimRefused(message)
    async with ledger.transaction(source, group) as tx:
        claim = await tx.claim(token, cursor.next_offset)
        await tx.finish(
            Page(
                begin=cursor.next_offset,
                next_offset=end,
                batch_number=cursor.batch_number + 1,
                decision_set=claim.active_decision_set,
                packed=pack([]),
                counts=Counts(),
                last=cursor.last,
                emitted_offset=None,
            )
        )
