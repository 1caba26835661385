"""What stands where a partition's log cannot be read on, and how to pass it once it was set aside.

A producer batch that is damaged cannot be read in part, so an operator may have to set aside all
of its offsets. Their bytes are taken unchecked where they can be had: they are evidence, not data.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from itertools import takewhile

from connectors.kafka.lenient import LenientBatch, whole_batches
from connectors.ports import Unread
from schemas.envelope import RawRecord


@dataclass(frozen=True, slots=True)
class Blocked:
    """The batch that cannot be read, from the first offset that is wanted of it."""

    first: int
    last: int
    records: Mapping[int, RawRecord] = field(default_factory=dict)
    """What could be decoded of it without checking, by offset; empty when nothing could."""

    def passed(self, aside: Collection[int], why: str) -> tuple[list[Unread], int]:
        """What stands for the offsets set aside, from the first on, and the position after them."""
        offsets = list(takewhile(aside.__contains__, range(self.first, self.last + 1)))
        unread = [
            _unread(offset, self.records.get(offset), why)
            for offset in offsets
            if not self.records or offset in self.records
        ]
        return unread, self.first + len(offsets)


def _unread(offset: int, record: RawRecord | None, why: str) -> Unread:
    if record is None:
        return Unread(offset, None, why=why)
    return Unread(offset, record.value, record.timestamp, record.key, tuple(record.headers), why)


def blocked_at(fetched: bytes, offset: int) -> Blocked:
    """The first batch of records in a fetch that holds `offset` or follows it."""
    for content in whole_batches(fetched):
        try:
            batch = LenientBatch(content)
            if batch.next_offset <= offset or batch.is_control_batch:
                continue
            first = max(offset, int(batch.base_offset))
            last = int(batch.next_offset) - 1
        except struct.error:
            break
        try:
            records = {r.offset: r for r in batch if r.offset >= first}
        except Exception:  # noqa: BLE001 - damaged bytes make a decoder raise anything
            records = {}
        return Blocked(min(records, default=first), last, records)
    return Blocked(offset, offset)
