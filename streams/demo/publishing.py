"""Publishing what was made, remembering where each record went."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from aiokafka import AIOKafkaProducer
from aiokafka.structs import RecordMetadata

from streams.demo.made import Made, Truth
from streams.demo.reading import Place

IN_FLIGHT_MAX = 2_000
"""Records sent and not yet acknowledged; bounds memory, and one megabyte records are few."""
REQUEST_BYTES_MAX = 2 * 1024 * 1024
"""Room for the oversize records, which the gate and not the broker is to refuse."""

Placed = dict[str, dict[Place, Truth]]
"""Per record type: the truth about the record at each place of its raw topic."""


async def publish(
    bootstrap: str,
    topic_prefix: str,
    records: Iterable[Made],
    report: Callable[[int], None],
) -> Placed:
    """Send all records, each acknowledged by the broker; order within a key is kept.

    `report` is told how many are acknowledged by now. Raises `KafkaConnectionError`, with nothing
    sent, when no broker answers; aiokafka's error for a record that the broker refuses.
    """
    placed: Placed = {}
    window: list[tuple[Made, asyncio.Future[RecordMetadata]]] = []
    producer = AIOKafkaProducer(
        bootstrap_servers=bootstrap,
        enable_idempotence=True,
        acks="all",
        linger_ms=5,
        max_batch_size=256 * 1024,
        max_request_size=REQUEST_BYTES_MAX,
    )
    try:
        await producer.start()
        for made in records:
            future = await producer.send(
                f"{topic_prefix}{made.type_name}.raw",
                made.value,
                key=made.key,
                timestamp_ms=made.timestamp,
                headers=list(made.headers),
            )
            window.append((made, future))
            if len(window) >= IN_FLIGHT_MAX:
                await _settle(window, placed, report)
        await _settle(window, placed, report)
    finally:
        await producer.stop()
    return placed


async def _settle(
    window: list[tuple[Made, asyncio.Future[RecordMetadata]]],
    placed: Placed,
    report: Callable[[int], None],
) -> None:
    """Wait for every record of the window to be acknowledged, and note its place."""
    for made, future in window:
        where = await future
        place = where.partition, where.offset
        placed.setdefault(made.type_name, {})[place] = made.truth
    window.clear()
    report(sum(len(places) for places in placed.values()))
