"""What is counted while records pass by: how many, of which kind, their sums, their digest."""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import dataclass, field

from schemas.totals import Reader, Sums, Totals

DIGEST_DOMAIN = b"wb/replay/1\n"
"""Begins the content digest: SHA-256 over this and the 32-byte digests of the records in order.
Of a committed event the canonical digest, of a raw or quarantined value SHA-256 of its bytes."""


@dataclass(slots=True)
class Found:
    """What one partition gave."""

    read: int = 0
    written: int = 0
    first_record: int | None = None
    """Offset of the first record written; None when there was none."""
    last_record: int | None = None

    def passed(self, offset: int) -> None:
        """A record goes into the file."""
        if self.first_record is None:
            self.first_record = offset
        self.last_record = offset
        self.written += 1


@dataclass(slots=True)
class Tally:
    """Over all partitions."""

    totals: Totals | None
    reader: Reader
    partitions: dict[int, Found] = field(default_factory=dict)
    by: Counter[str] = field(default_factory=Counter)
    """Records written, by what they are: reason, or whether they decode."""
    sums: Sums | None = field(init=False)
    _digest: hashlib._Hash = field(default_factory=lambda: hashlib.sha256(DIGEST_DOMAIN))

    def __post_init__(self) -> None:
        self.sums = None if self.totals is None else Sums(self.totals, self.reader)

    def of(self, partition: int) -> Found:
        """The counts of one partition."""
        return self.partitions.setdefault(partition, Found())

    def digested(self, digest: bytes) -> None:
        """One more record's digest."""
        self._digest.update(digest)

    @property
    def content_digest(self) -> str:
        """Over the digests so far, in hexadecimal; the same in every format."""
        return self._digest.hexdigest()

    @property
    def read(self) -> int:
        """Records read."""
        return sum(found.read for found in self.partitions.values())

    @property
    def written(self) -> int:
        """Records written."""
        return sum(found.written for found in self.partitions.values())
