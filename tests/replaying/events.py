"""Committed events as the gate would write them, and topics that hold them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from aiokafka import AIOKafkaProducer

from connectors.kafka.settings import KafkaSettings
from schemas import envelope
from schemas.decision_set import DecisionSet
from schemas.envelope import Headers, Record, Source
from schemas.record_type import RecordType
from schemas.record_types import RECORD_TYPES
from schemas.verdict import Accepted
from streams.decide import decide_batch
from tests.connectors.kafka_tools import producer

PAYROLL = RECORD_TYPES["payroll"]
AT_MS = 1_793_500_000_000


@dataclass(frozen=True, slots=True)
class Message:
    """What is sent."""

    value: bytes | None
    key: bytes | None = None
    headers: Headers = ()
    timestamp: int = AT_MS


def statement(employee_id: str, **changes: object) -> dict[str, Any]:
    """A payroll statement that keeps its contract."""
    return {
        "employee_id": employee_id,
        "pay_period_start": "2026-10-19",
        "pay_period_end": "2026-11-01",
        "source_run_id": "acme-hris/001/R2026-22",
        "gross_pay": "2307.69",
        "hours": "80",
        "tax_jurisdiction": "US-OH:columbus",
        **changes,
    }


def event(
    employee_id: str,
    *,
    offset: int = 0,
    partition: int = 0,
    timestamp: int = AT_MS,
    record_type: RecordType = PAYROLL,
    **changes: object,
) -> Message:
    """The committed event of a statement."""
    source = Source(record_type.raw_topic, partition)
    raw = Record(offset, json.dumps(statement(employee_id, **changes)).encode(), timestamp)
    (one,) = decide_batch([raw], record_type, source, DecisionSet(), {})
    assert isinstance(one, Accepted), one
    identity = str(source.position(offset)).encode()
    headers: Headers = ((envelope.EVENT_ID, identity),)
    return Message(one.event_value, one.event_key, headers, timestamp)


async def send(
    client: AIOKafkaProducer, topic: str, partition: int, all_: Sequence[Message]
) -> None:
    """Send in order, each acknowledged."""
    sent = [
        await client.send(
            topic,
            one.value,
            one.key,
            partition,
            timestamp_ms=one.timestamp,
            headers=list(one.headers),
        )
        for one in all_
    ]
    await asyncio.gather(*sent)


async def plain(
    settings: KafkaSettings, topic: str, partition: int, all_: Sequence[Message]
) -> None:
    """Without a transaction."""
    async with producer(settings, linger_ms=5) as client:
        await send(client, topic, partition, all_)


async def transaction(
    settings: KafkaSettings,
    topic: str,
    partition: int,
    all_: Sequence[Message],
    *,
    commit: bool = True,
) -> None:
    """In one transaction, which leaves a marker behind the records."""
    async with producer(
        settings, transactional_id=f"tx/{topic}/{partition}", linger_ms=5
    ) as client:
        await client.begin_transaction()
        await send(client, topic, partition, all_)
        await (client.commit_transaction() if commit else client.abort_transaction())
