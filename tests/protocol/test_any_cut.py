"""The protocol's main law: however a partition is cut, whatever goes wrong, the same comes out."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from schemas.envelope import Record
from schemas.record_types import RECORD_TYPES
from tests.protocol.oracle import one_at_a_time
from tests.protocol.records import payroll_records
from tests.protocol.worlds import MemoryWorld, Mishap, drive, source_of

PAYROLL = RECORD_TYPES["payroll"]


@settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(
    records=st.lists(payroll_records, min_size=1, max_size=25),
    cuts=st.lists(st.integers(1, 8), min_size=1, max_size=10),
    mishaps=st.lists(st.sampled_from(Mishap), max_size=8),
)
async def test_same_as_one_record_at_a_time(
    records: list[Record], cuts: list[int], mishaps: list[Mishap]
) -> None:
    """Any cut into batches, with crashes, redeliveries and zombies, yields the same ledger,
    quarantine, events and counts as one record at a time. In memory; `test_any_cut_real.py` runs
    fewer examples of the same on real servers."""
    world = MemoryWorld(PAYROLL)
    raw = await world.publish(records)
    await drive(world, raw, cuts, mishaps)
    assert await world.outside() == one_at_a_time(PAYROLL, source_of(world), raw)
    assert not world.fatal
