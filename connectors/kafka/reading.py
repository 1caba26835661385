"""What has been read of one partition and not yet handed out as a batch. No I/O, no clock.

Records gather here until they make a batch: enough of them, enough bytes, or `linger` has passed.
Several partitions gather at once, so a thin one costs the others no wait.
"""

from __future__ import annotations

import uuid
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from connectors.errors import invariant
from connectors.ports import Fetched
from schemas.envelope import RawRecord

FIRST_GUESS_BYTES = 1_000
"""Size assumed of a record before any was seen."""
PIECE_RECORDS_MAX = 500
BEHIND_FACTOR = 4
"""How many lingers a batch waits for records that are known to be in the log already."""
MARKER_WAIT_S = 1.0
"""How long a cursor stands before markers or aborted records until it is moved past them without
any record: a batch of its own costs a transaction in each store."""


@dataclass(frozen=True, slots=True)
class BatchBounds:
    """When a batch is complete."""

    records_max: int
    bytes_max: int
    linger_s: float


def size_of(record: RawRecord) -> int:
    """Bytes of a record's key, value and headers."""
    size = len(record.key or b"") + len(record.value or b"")
    for name, value in record.headers:
        size += len(name) + len(value or b"")
    return size


@dataclass(slots=True)
class Reading:
    """One partition from the offset assignment sought to, until it is sought again or revoked."""

    topic: str
    partition: int
    begin: int
    """Where the last batch ended: where the next one begins."""
    topic_id: uuid.UUID | None = None
    """The topic's id when assignment looked into its log."""
    reached: int = field(init=False)
    """The consumer's position: what follows the gathered records."""
    aside: frozenset[int] = frozenset()
    """Offsets that an operator set aside: what cannot be read there is passed over."""
    cautious: bool = False
    """Something ahead cannot be read: go on record by record, to hand out all before it."""
    _records: deque[RawRecord] = field(default_factory=deque)
    _bytes: int = 0
    _mean_bytes: float = FIRST_GUESS_BYTES
    _waiting_since_s: float | None = None

    def __post_init__(self) -> None:
        self.reached = self.begin

    @property
    def gathered_bytes(self) -> int:
        """What the gathered records take in memory, about."""
        return self._bytes

    def wanted(self, bounds: BatchBounds) -> int:
        """How many records to read next so that the batch becomes full, but hardly overfull."""
        if self.cautious:
            return 0 if self._records else 1
        records = bounds.records_max - len(self._records)
        by_bytes = int((bounds.bytes_max - self._bytes) / self._mean_bytes)
        if records <= 0 or self._bytes >= bounds.bytes_max:
            return 0
        return max(1, min(records, by_bytes, PIECE_RECORDS_MAX))

    def add(self, records: Sequence[RawRecord], position: int, now_s: float) -> None:
        """Take in what was read, and the consumer's position after it."""
        if records:
            invariant(records[0].offset >= self.reached, "records are read in order, once")
            invariant(records[-1].offset < position, "a position lies beyond what was read")
            size = sum(map(size_of, records))
            self._mean_bytes = max(1.0, 0.5 * self._mean_bytes + 0.5 * size / len(records))
            self._bytes += size
            self._records.extend(records)
        invariant(position >= self.reached, "a position does not go back by itself")
        if self._waiting_since_s is None and (records or position > self.reached):
            self._waiting_since_s = now_s
        self.reached = position

    def due_at_s(self, bounds: BatchBounds, last_stable_offset: int | None) -> float | None:
        """When to hand out a batch: in the past if it is full; None while there is nothing."""
        since = self._waiting_since_s
        if since is None:
            return None
        if not self._records:
            return since + MARKER_WAIT_S
        if self.wanted(bounds) == 0:
            return since
        behind = last_stable_offset is not None and last_stable_offset > self.reached
        return since + bounds.linger_s * (BEHIND_FACTOR if behind else 1)

    def cut(self, bounds: BatchBounds, now_s: float) -> Fetched:
        """Hand out a batch within the bounds; a record larger than all of them goes alone."""
        if len(self._records) <= bounds.records_max and self._bytes <= bounds.bytes_max:
            records, self._records, self._bytes = list(self._records), deque(), 0
        else:
            records = self._cut_off(bounds)
        begin, self.begin = self.begin, self._records[0].offset if self._records else self.reached
        self._waiting_since_s = now_s if self._records else None
        return Fetched(begin, self.begin, records)

    def _cut_off(self, bounds: BatchBounds) -> list[RawRecord]:
        """Take the longest beginning that fits."""
        records: list[RawRecord] = []
        taken = 0
        while self._records and len(records) < bounds.records_max:
            size = size_of(self._records[0])
            if records and taken + size > bounds.bytes_max:
                break
            taken += size
            records.append(self._records.popleft())
        self._bytes -= taken
        return records
