"""The protocol's main law on real Kafka and PostgreSQL, over a handful of seeded examples.

A pass says that the real ports keep what the memory ports keep; the breadth is in
`test_any_cut.py`.
"""

from __future__ import annotations

import dataclasses
import random

import pytest

from schemas.envelope import Record
from schemas.record_types import RECORD_TYPES
from tests.protocol.oracle import one_at_a_time
from tests.protocol.real_world import real_world
from tests.protocol.records import some_records
from tests.protocol.worlds import Mishap, drive, source_of
from tests.servers import Database, Services

PAYROLL = RECORD_TYPES["payroll"]


@pytest.mark.timeout(180)
@pytest.mark.parametrize("seed", range(5))
async def test_same_as_one_record_at_a_time(
    services: Services, database: Database, topic_prefix: str, seed: int
) -> None:
    """Random records, cuts and mishaps from a seed yield what one record at a time yields."""
    chance = random.Random(seed)
    records = some_records(chance, 60)
    cuts = [chance.randint(1, 12) for _ in range(8)]
    mishaps = [chance.choice(list(Mishap)) for _ in range(8)]
    async with real_world(PAYROLL, services, database, topic_prefix) as world:
        raw = await world.publish(records)
        await drive(world, raw, cuts, mishaps)
        found = await world.outside()
    wanted = one_at_a_time(PAYROLL, source_of(world), raw)
    assert found == wanted, f"seed {seed}"
    assert not world.fatal


def test_the_examples_hold_everything() -> None:
    """The seeded records hold duplicates, collisions and rejects: the law means something."""
    raw = [
        dataclasses.replace(record, offset=offset)
        for offset, record in enumerate(some_records(random.Random(0), 60))
    ]
    from schemas.envelope import Source

    counts = one_at_a_time(PAYROLL, Source("payroll.raw", 0), raw)
    assert counts.counts.duplicate
    reasons = {event.key for event in counts.quarantine_events}
    assert {b"idempotency_collision", b"tombstone", b"malformed_json"} <= reasons
    assert isinstance(raw[0], Record)
