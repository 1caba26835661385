"""What topics and tables hold, read from outside: by plain clients, not by the gate's own code.

Kafka is read with `read_committed` up to the last stable offset, so neither aborted records nor an
open transaction count, and markers, which take offsets, are not waited for as if they were records.
PostgreSQL is asked in one snapshot. Events are decoded by fastavro with the published schema files.
"""

from __future__ import annotations

import asyncio
import hashlib
import io
import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from importlib.resources import files
from typing import Any

import asyncpg
import fastavro
from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition
from fastavro.schema import fingerprint, parse_schema, to_parsing_canonical_form

from connectors.errors import BrokerUnavailable
from schemas.envelope import EVENT_ID, REASON, TRUNCATED, last_header
from streams.demo.made import NEGATIVE_TYPES

READ_DEADLINE_S = 120.0
POLL_MS = 200
HEAD_BYTES = 10
"""Mark and fingerprint before the body of Avro's single-object encoding."""

Place = tuple[int, int]
"""Partition and offset in a raw topic."""


@dataclass(frozen=True, slots=True)
class Booked:
    """A committed record, as a ledger row or as an event says it."""

    place: Place
    identity: str
    run: str = ""
    amount: Decimal = Decimal("0.00")
    """Signed gross pay; 0.00 for a DVIR."""


@dataclass(frozen=True, slots=True)
class Reject:
    """A quarantined record, as a row or as an event says it."""

    place: Place
    reason: str
    digest: bytes | None
    """SHA-256 of the kept value's bytes; None where the event says it was too large to repeat."""


@dataclass(frozen=True, slots=True)
class Tally:
    """The counts of one partition's cursor row."""

    partition: int
    records_in: int
    committed: int
    duplicate: int
    quarantined: int
    held: int


@dataclass(slots=True)
class Seen:
    """Everything found of one record type."""

    raw: dict[Place, bytes] = field(default_factory=dict)
    """SHA-256 of every raw record's value."""
    events: list[Booked] = field(default_factory=list)
    reject_events: list[Reject] = field(default_factory=list)
    ledger: list[Booked] = field(default_factory=list)
    ledger_total: Decimal = Decimal("0.00")
    """As the database itself adds it up."""
    quarantine: list[Reject] = field(default_factory=list)
    receipts: int = 0
    tallies: list[Tally] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Outside:
    """Where to look."""

    kafka_bootstrap: str
    dsn: str
    """A role that may read the tables."""
    group: str
    topic_prefix: str = ""


async def look(outside: Outside, type_name: str) -> Seen:
    """Read a record type's three topics and its tables."""
    seen = Seen()
    prefix = f"{outside.topic_prefix}{type_name}"
    decode = CommittedDecoder(type_name)
    async for record in read_topic(outside.kafka_bootstrap, f"{prefix}.raw"):
        place = record.partition, record.offset
        seen.raw[place] = digest_of(record.value)
    async for record in read_topic(outside.kafka_bootstrap, f"{prefix}.committed"):
        seen.events.append(decode(record))
    async for record in read_topic(outside.kafka_bootstrap, f"{prefix}.quarantine"):
        seen.reject_events.append(_reject(record))
    await _read_tables(outside, type_name, seen)
    return seen


# Kafka --------------------------------------------------------------------------------------------


async def read_topic(bootstrap: str, topic: str) -> AsyncIterator[ConsumerRecord]:
    """Every committed record the topic holds now. Raises `BrokerUnavailable` past a deadline."""
    consumer = AIOKafkaConsumer(
        topic,  # without a group: all its partitions
        bootstrap_servers=bootstrap,
        isolation_level="read_committed",
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        max_partition_fetch_bytes=4 * 1024 * 1024,
    )
    try:
        await consumer.start()
        partitions = sorted(consumer.assignment())
        await consumer.seek_to_beginning(*partitions)
        # With this isolation level the broker answers with the last stable offset.
        ends: Mapping[TopicPartition, int] = await consumer.end_offsets(partitions)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + READ_DEADLINE_S
        while not await _at_end(consumer, ends):
            if loop.time() > deadline:
                message = f"{topic}: not read to its end within {READ_DEADLINE_S:.0f} s"
                raise BrokerUnavailable(message)
            fetched = await consumer.getmany(timeout_ms=POLL_MS)
            for place, records in fetched.items():
                for record in records:
                    if record.offset < ends[place]:
                        yield record
    finally:
        await consumer.stop()


async def _at_end(consumer: AIOKafkaConsumer, ends: Mapping[TopicPartition, int]) -> bool:
    """Whether the position, which moves over markers too, has reached every end."""
    for place, end in ends.items():
        if await consumer.position(place) < end:
            return False
    return True


class CommittedDecoder:
    """Reads committed events with the schema files as published."""

    def __init__(self, type_name: str) -> None:
        self._payroll = type_name == "payroll"
        self._schemas: dict[bytes, Any] = {}
        folder = files("schemas").joinpath(type_name)
        for path in folder.iterdir():
            if path.name.startswith("committed.v") and path.name.endswith(".avsc"):
                schema = json.loads(path.read_text(encoding="utf-8"))
                mark = fingerprint(to_parsing_canonical_form(schema), "CRC-64-AVRO")
                self._schemas[bytes.fromhex(mark)] = parse_schema(schema)

    def __call__(self, record: ConsumerRecord) -> Booked:
        """Raises `KeyError` for a schema that is not published, `ValueError` for a wrong id."""
        schema = self._schemas[record.value[2:HEAD_BYTES]]
        body = io.BytesIO(record.value[HEAD_BYTES:])
        members: Any = fastavro.schemaless_reader(body, schema, None)
        place = place_of(last_header(record.headers, EVENT_ID))
        if not self._payroll:
            return Booked(place, members["idempotency_key"])
        gross: Decimal = members["gross_pay"]
        amount = -gross if str(members["statement_type"]) in NEGATIVE_TYPES else gross
        return Booked(place, members["idempotency_key"], members["source_run_id"], amount)


def place_of(event_id: bytes | None) -> Place:
    """Partition and offset in `TOPIC/INCARNATION/PARTITION/OFFSET`."""
    _, _, partition, offset = (event_id or b"").decode().rsplit("/", 3)
    return int(partition), int(offset)


def digest_of(value: bytes | None) -> bytes:
    """SHA-256 of a value; of no bytes for a tombstone."""
    return hashlib.sha256(value or b"").digest()


def _reject(record: ConsumerRecord) -> Reject:
    """A quarantine event; its key and its header must name the same reason."""
    reason = record.key.decode()
    if last_header(record.headers, REASON) != record.key:
        reason = f"{reason} (the header says another)"
    truncated = last_header(record.headers, TRUNCATED) is not None
    digest = None if truncated else digest_of(record.value)
    return Reject(place_of(last_header(record.headers, EVENT_ID)), reason, digest)


# PostgreSQL ---------------------------------------------------------------------------------------

_PAYROLL_LEDGER = """
SELECT partition, record_offset, encode(key, 'hex') AS identity, source_run_id AS run,
    CASE WHEN statement_type IN ('reversal', 'void') THEN -gross_pay ELSE gross_pay END AS amount
FROM payroll_ledger
"""
_PAYROLL_TOTAL = """
SELECT coalesce(
    sum(CASE WHEN statement_type IN ('reversal', 'void') THEN -gross_pay ELSE gross_pay END), 0.00
) FROM payroll_ledger
"""
_DVIR_LEDGER = """
SELECT partition, record_offset, idempotency_key AS identity, '' AS run, 0.00 AS amount
FROM dvir_ledger
"""
_DVIR_RECEIPTS = """
SELECT count(*) FROM dvir_signature JOIN dvir_ledger USING (key)
"""
_QUARANTINE = """
SELECT partition, record_offset, reason, record_value
FROM quarantine WHERE topic = $1 AND record_type = $2
"""
_CURSORS = """
SELECT partition, records_in, committed, duplicate, quarantined, held
FROM partition_cursor WHERE topic = $1 AND consumer_group = $2 ORDER BY partition
"""


async def _read_tables(outside: Outside, type_name: str, seen: Seen) -> None:
    topic = f"{outside.topic_prefix}{type_name}.raw"
    connection = await asyncpg.connect(outside.dsn)
    try:
        async with connection.transaction(isolation="repeatable_read", readonly=True):
            payroll = type_name == "payroll"
            for row in await connection.fetch(_PAYROLL_LEDGER if payroll else _DVIR_LEDGER):
                place = row["partition"], row["record_offset"]
                seen.ledger.append(Booked(place, row["identity"], row["run"], row["amount"]))
            if payroll:
                seen.ledger_total = await connection.fetchval(_PAYROLL_TOTAL)
            else:
                seen.receipts = await connection.fetchval(_DVIR_RECEIPTS)
            for row in await connection.fetch(_QUARANTINE, topic, type_name):
                place = row["partition"], row["record_offset"]
                digest = digest_of(row["record_value"])
                seen.quarantine.append(Reject(place, row["reason"], digest))
            for row in await connection.fetch(_CURSORS, topic, outside.group):
                seen.tallies.append(Tally(*row))
    finally:
        await connection.close()
