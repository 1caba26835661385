"""Acts of operators on partitions and positions, from settings to the record of operations.

What an act needs to be right is checked here, before anything is on record: that there is something
to resume, to set aside, to adopt. Each says in its result what was done.
"""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from connectors.errors import ConfigurationError
from connectors.kafka.emitter import EmitterFactory
from connectors.kafka.log import KafkaLog
from connectors.kafka.source import KafkaSource
from connectors.ports import Cursor
from connectors.postgres import interventions as tables
from connectors.postgres.ledger import PostgresLedger
from connectors.postgres.migrate import check_migrated
from connectors.postgres.operations import Act, record_acts
from connectors.postgres.pool import Pool, PoolSettings
from schemas.envelope import Position
from streams.adopt import Adopted, Replaced, adopt_partition, find_replaced
from streams.assignment import Ports
from streams.gaps import AcceptedGap, accept_gap
from streams.metrics import Metrics
from streams.observer import Observer
from streams.places import Place, cursor_of, cursors_of, parse_place, record_type_of
from streams.settings import Settings
from streams.wiring import kafka_settings, operator_name, operator_pool, worker_dsn

HELD_AT_ONCE_MAX = 1_000
"""Most positions that one act sets aside."""
HELD_MAX = 10_000
"""Most positions of a partition that may wait for their turn: every claim reads them."""


# --- resume ---------------------------------------------------------------------------------------


async def resume(settings: Settings, place_text: str, why: str) -> int:
    """End the pause of a partition; the act's number. Raises `ConfigurationError` for one that is
    not paused."""
    place = parse_place(place_text)
    async with operator_pool(settings) as pool:
        in_force = await tables.pauses_in_force(pool, settings.group)
        pauses = [p for p in in_force if (p.topic, p.partition) == place]
        if not pauses:
            paused = ", ".join(sorted({f"{p.topic}/{p.partition}" for p in in_force})) or "none is"
            message = f"{place_text} of group {settings.group} is not paused; paused: {paused}"
            raise ConfigurationError(message)
        detail = {
            "group": settings.group,
            "pauses": [p.number for p in pauses],
            "paused_because": [p.why for p in pauses],
        }
        act = Act("resume", operator_name(settings), place_text, why, detail=detail)
        return await tables.resume(pool, pauses, settings.group, act)


# --- quarantine add -------------------------------------------------------------------------------


async def set_aside(settings: Settings, first: Position, last_offset: int, why: str) -> int:
    """Set positions aside before their turn comes; the act's number.

    Raises `ConfigurationError` for positions that cannot be meant: another incarnation, decided
    already, not in the log, too many.
    """
    kafka = kafka_settings(settings)
    record_type_of(kafka, first.topic)
    if not first.offset <= last_offset < first.offset + HELD_AT_ONCE_MAX:
        message = (
            f"--through must be from {first.offset} to {first.offset + HELD_AT_ONCE_MAX - 1}, not "
            f"{last_offset}"
        )
        raise ConfigurationError(message)
    async with operator_pool(settings) as pool, KafkaLog(kafka) as log:
        cursor = await cursor_of(pool, settings.group, (first.topic, first.partition))
        log_range = await log.log_range(first.topic, first.partition)
        _check_holdable(cursor, first, last_offset, log_range.end_offset)
        if await tables.pending_holds(pool, cursor) + last_offset - first.offset >= HELD_MAX:
            message = f"{cursor.source}: {HELD_MAX} positions are set aside already"
            raise ConfigurationError(message)
        detail = {"group": settings.group, "through": last_offset}
        act = Act("hold-position", operator_name(settings), str(first), why, detail=detail)
        return await tables.hold(pool, first, last_offset, act)


def _check_holdable(cursor: Cursor, first: Position, last_offset: int, end_offset: int) -> None:
    source = cursor.source
    if first.incarnation != source.incarnation:
        message = f"{source} is in incarnation {source.incarnation}, not {first.incarnation}"
    elif first.offset < cursor.next_offset:
        message = (
            f"{first} has its verdict already: {source} is decided up to {cursor.next_offset}. A "
            "verdict never changes"
        )
    elif last_offset >= end_offset:
        message = f"{source} ends at offset {end_offset}: there is no record at {last_offset} yet"
    else:
        return
    raise ConfigurationError(message)


# --- worker --accept-gap --------------------------------------------------------------------------


async def accept_gaps(
    settings: Settings, places: Sequence[str]
) -> list[tuple[Place, AcceptedGap | None]]:
    """Go on after the gap of exactly these partitions, if there is one: None where there is none.

    Raises `ConfigurationError` for a partition that is no raw one or has no cursor, `LogReplaced`.
    """
    wanted = [parse_place(text) for text in places]
    found: list[tuple[Place, AcceptedGap | None]] = []
    async with operator_pool(settings) as operators:
        for place in wanted:
            async with _owner(settings, place[0]) as owner:
                cursor = await cursor_of(operators, settings.group, place)
                gap = await accept_gap(
                    owner.ledger,
                    owner.reader,
                    operators,
                    settings.group,
                    operator_name(settings),
                    cursor,
                )
            found.append((place, gap))
    return found


# --- topics adopt ---------------------------------------------------------------------------------


async def adopt(
    settings: Settings, topic: str, why: str | None, on_progress: Callable[[Adopted], None]
) -> list[Adopted]:
    """Begin a topic's next incarnation wherever its log was replaced. See `streams.adopt`."""
    async with operator_pool(settings) as operators, _owner(settings, topic) as owner:
        cursors = await cursors_of(operators, settings.group, topic)
        replaced = await find_replaced(owner.reader, cursors)
        await record_acts(operators, [_adoption(settings, topic, why, replaced)])
        adopted = []
        for one in replaced:
            adopted.append(await adopt_partition(owner.ports, owner.ledger, owner.reader, one))
            on_progress(adopted[-1])
    return adopted


def _adoption(settings: Settings, topic: str, why: str | None, replaced: Sequence[Replaced]) -> Act:
    """What is adopted, with the counts of the life that ends."""
    partitions = []
    for one in replaced:
        source, counts = one.cursor.source, one.cursor.counts
        partitions.append(
            {
                "partition": source.partition,
                "incarnation_before": source.incarnation,
                "cluster_before": one.cursor.cluster_id,
                "decided_before": one.cursor.next_offset,
                "counts_before": dataclasses.asdict(counts),
                "first_offset": one.first_offset,
                "because": one.why,
            }
        )
    detail = {"group": settings.group, "partitions": partitions}
    return Act("adopt", operator_name(settings), topic, why, detail=detail)


# --- acting as a partition's owner ----------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Owner:
    """What it takes to act as the owner of a topic's partitions, as a worker does."""

    ledger: PostgresLedger
    reader: KafkaSource
    """Not in the group: it only looks into logs."""
    ports: Ports


@asynccontextmanager
async def _owner(settings: Settings, topic: str) -> AsyncIterator[_Owner]:
    kafka = kafka_settings(settings)
    record_type = record_type_of(kafka, topic)
    reader = KafkaSource(kafka)
    pool_settings = PoolSettings(
        dsn=worker_dsn(settings),
        pool_size=2,
        batch_deadline_s=settings.batch_deadline_s,
        statement_cache_size=settings.statement_cache_size,
    )
    try:
        async with Pool(pool_settings) as pool, EmitterFactory(kafka) as emitters:
            await check_migrated(pool)
            ledger = PostgresLedger(pool, record_type)
            yield _Owner(
                ledger,
                reader,
                Ports(
                    record_type=record_type,
                    ledger=ledger,
                    log=reader,
                    make_emitter=lambda source: emitters.emitter(record_type, source),
                    group=settings.group,
                    observer=Observer(Metrics(), lambda _: None),
                ),
            )
    finally:
        await reader.stop()
