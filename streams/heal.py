"""`weighbridge heal`: give a database that is behind its events back what it has lost.

The database was restored from a copy, or failed over with loss: events are out whose verdicts it
does not know (E > D). What is missing is read back from our own output topics and the raw topics,
and written as it was, in one transaction: killed at any moment, nothing has changed, and a second
heal finds nothing to do. A dry run does all of it and takes it back.

Read on in `streams/healing/`.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from connectors.kafka.admin import KafkaAdmin
from connectors.kafka.log import KafkaLog
from connectors.kafka.membership import Place
from connectors.kafka.settings import KafkaSettings
from connectors.ports import EmittedCursor, SchemaStore
from connectors.postgres.healing import HealTransaction
from connectors.postgres.operations import Act
from connectors.postgres.pool import Pool
from schemas.decision_set import DecisionSet
from schemas.record_type import RecordType
from streams.assignment import REMEDY, check_last_record
from streams.healing.lost import LostRange
from streams.healing.plan import (
    Behind,
    Known,
    behind,
    raw_places,
    refuse_while_workers_run,
    settled_offsets,
)
from streams.healing.sets import DecisionSets
from streams.healing.write import PartitionHealer, Tally

STATEMENT_DEADLINE_S = 600.0
"""Longest that one statement of the healing transaction, and its commit, may take."""
APPLICATION_NAME = "weighbridge-heal"

Report = Callable[[int, int], None]
"""Called with (offsets done, offsets in all)."""


@dataclass(frozen=True, slots=True)
class HealParts:
    """What healing works with."""

    kafka: KafkaSettings
    pool: Pool
    """Sessions of the schema's owner, with a deadline of `STATEMENT_DEADLINE_S`."""
    schema_store: SchemaStore


@dataclass(frozen=True, slots=True)
class HealOrder:
    """What is to be done, by whom and why."""

    who: str
    why: str | None
    dry_run: bool
    decision_sets: Sequence[DecisionSet] = ()
    """Supplied by the operator, for sets that the database has lost."""


@dataclass(frozen=True, slots=True)
class HealedPartition:
    """What was, or would be, written back for a partition."""

    behind: Behind
    tally: Tally

    def as_dict(self) -> dict[str, object]:
        """For `--json` and the record of the act."""
        source, tally = self.behind.source, self.tally
        return {
            "topic": source.topic,
            "incarnation": source.incarnation,
            "partition": source.partition,
            "decided": self.behind.decided_offset,
            "emitted": self.behind.emitted_offset,
            "committed": tally.committed,
            "quarantined": tally.quarantined,
            "decided_again": tally.duplicate,
            "from_events_alone": tally.from_events_alone,
            "batches": [tally.first_number, self.behind.batch_number],
            "batches_gone": tally.first_number - self.behind.cursor.batch_number - 1,
        }


@dataclass(slots=True)
class Healed:
    """What healing found and did."""

    dry_run: bool
    partitions: list[HealedPartition] = field(default_factory=list)
    decision_sets: list[str] = field(default_factory=list)
    """Digests of those that were stored again."""
    stop_marks_cleared: int = 0
    acts: list[int] = field(default_factory=list)
    """Numbers of the acts recorded in `operations`."""
    newest_act: datetime | None = None
    newest_activation: datetime | None = None
    active_decision_set: str = ""
    other_sets_last: list[str] = field(default_factory=list)
    """Decision sets that partitions were decided under last, if not the one now in force."""

    def as_dict(self) -> dict[str, object]:
        """For `--json`."""
        return {
            "dry_run": self.dry_run,
            "partitions": [one.as_dict() for one in self.partitions],
            "decision_sets_stored_again": self.decision_sets,
            "stop_marks_cleared": self.stop_marks_cleared,
            "acts": self.acts,
            "newest_act_kept": _text(self.newest_act),
            "newest_activation_kept": _text(self.newest_activation),
            "active_decision_set": self.active_decision_set,
            "decided_last_under": self.other_sets_last,
        }


class _TakeBack(Exception):
    """Ends the transaction of a dry run; never leaves this module."""


async def heal(parts: HealParts, order: HealOrder, report: Report) -> Healed:
    """Heal every partition of the group, or say what would be done.

    Atomic, and repeatable at any time. Raises `Stop` where an operator must act (workers run, a
    position cannot be explained, another deployment's offsets), `ConfigurationError`,
    `InfrastructureError` (retryable); the database is unchanged then. When the commit's answer is
    lost the outcome is unknown, and healing again tells.
    """
    async with KafkaAdmin(parts.kafka) as admin:
        places = await raw_places(parts.kafka, admin)
        if order.dry_run:
            emitted = await admin.emitted(parts.kafka.group, list(places))
        else:
            await refuse_while_workers_run(parts.kafka, admin)
            emitted = await settled_offsets(parts.kafka, places)
        cluster_id = await admin.cluster_id()
    healed = Healed(order.dry_run)
    try:
        async with parts.pool.transaction() as session:
            tx = HealTransaction(session, parts.kafka.group)
            await _heal(parts, order, tx, places, emitted, cluster_id, healed, report)
            _take_back(order)
    except _TakeBack:
        healed.acts.clear()
    return healed


def _take_back(order: HealOrder) -> None:
    """Let the transaction of a dry run end in a rollback."""
    if order.dry_run:
        raise _TakeBack


async def _heal(
    parts: HealParts,
    order: HealOrder,
    tx: HealTransaction,
    places: Mapping[Place, RecordType],
    emitted: Mapping[Place, EmittedCursor | None],
    cluster_id: str,
    healed: Healed,
    report: Report,
) -> None:
    await tx.begin()
    newest = await tx.newest()
    healed.newest_act, healed.newest_activation = newest.act, newest.activation
    async with KafkaLog(parts.kafka) as log:
        known = await _known(parts, tx, places, emitted, cluster_id, log)
        to_heal = behind(known, places, emitted)
        for one in to_heal:
            await tx.take(one.cursor, secrets.token_bytes(16), is_new=one.is_new)
            held = await log.log_range(one.source.topic, one.source.partition)
            await check_last_record(log, one.cursor, held.start_offset)
    active = await tx.active_decision_set()
    sets = DecisionSets(tx, order.decision_sets)
    healers = await _take_in(parts, tx, to_heal, sets, active, report)
    for one, healer in zip(to_heal, healers, strict=True):
        await healer.finish()
        healed.partitions.append(HealedPartition(one, healer.tally))
    healed.decision_sets = sets.stored_again
    healed.active_decision_set = active.hex()
    last = {healer.tally.last_decision_set for healer in healers} - {None, active}
    healed.other_sets_last = sorted(one.hex() for one in last if one is not None)
    await _end(order, tx, parts.kafka.group, healed)


async def _known(
    parts: HealParts,
    tx: HealTransaction,
    places: Mapping[Place, RecordType],
    emitted: Mapping[Place, EmittedCursor | None],
    cluster_id: str,
    log: KafkaLog,
) -> Known:
    cursors = await tx.cursors()
    starts = {
        place: (await log.log_range(*place)).start_offset
        for place in places
        if place not in cursors and emitted.get(place) is not None
    }
    return Known(await tx.deployment(), cluster_id, parts.kafka.group, cursors, starts)


async def _take_in(
    parts: HealParts,
    tx: HealTransaction,
    to_heal: Sequence[Behind],
    sets: DecisionSets,
    active: bytes,
    report: Report,
) -> list[PartitionHealer]:
    """Write the rows of all partitions back, before any duplicate looks for who holds its key."""
    total = sum(one.emitted_offset - one.decided_offset for one in to_heal)
    done, healers = 0, []
    for place, one in enumerate(to_heal):
        page = await tx.last_page(one.cursor)
        before, since = (None, None) if page is None else page
        healer = PartitionHealer(tx, one, place, sets, parts.schema_store, active, before)
        async with LostRange(parts.kafka, one) as lost:
            healer.raw_start = lost.raw_start
            async for part in lost.parts(since):
                healer.hint = _hint(lost.cut_topics)
                await healer.take_in(part)
                if part.records:
                    report(done + part.records[-1].offset + 1 - one.decided_offset, total)
        healer.check_end()
        done += one.emitted_offset - one.decided_offset
        report(done, total)
        healers.append(healer)
    return healers


def _hint(cut_topics: Sequence[str]) -> str:
    if not cut_topics:
        return ""
    return f" (retention has removed the beginning of {', '.join(cut_topics)})"


async def _end(order: HealOrder, tx: HealTransaction, group: str, healed: Healed) -> None:
    """Clear the stop mark and put the act on record, in the same transaction."""
    why = f"healed by {order.who}" if healed.partitions else f"nothing to heal, said {order.who}"
    healed.stop_marks_cleared = await tx.clear_stop_marks(why, REMEDY)
    for one in healed.partitions:
        start, end = one.behind.decided_offset, one.behind.emitted_offset
        detail = {**one.as_dict(), "group": group, "decision_sets": healed.decision_sets}
        target = f"{one.behind.source.position(start)}..{end}"
        healed.acts.append(
            await tx.record(Act("heal", order.who, target, order.why, detail=detail))
        )
    if not healed.partitions and healed.stop_marks_cleared:
        detail = {"stop_marks_cleared": healed.stop_marks_cleared}
        act = Act("heal", order.who, f"group {group}", order.why, detail=detail)
        healed.acts.append(await tx.record(act))


def _text(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat()
