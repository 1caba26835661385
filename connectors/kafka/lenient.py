"""Decoding a fetch leniently: the name of a header need not be UTF-8 on the wire.

Some clients take header names as bytes, and the broker does not look. aiokafka's consumer cannot
get past such a record, which is a record like any other: it gets its verdict. Bytes of a name that
are not UTF-8 become U+FFFD; values are bytes anyway and stay untouched.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

from aiokafka import TopicPartition
from aiokafka.consumer.fetcher import PartitionRecords
from aiokafka.record.default_records import _DefaultRecordBatchPy

from schemas.envelope import RawRecord

_LENGTH_AT, _HEAD = 8, 12
"""Kafka protocol, RecordBatch: base offset (int64), then the length (int32) of all that follows."""


def decode_fetch(
    place: TopicPartition,
    fetched: bytes,
    aborted: Sequence[Any],
    offset: int,
    *,
    isolation: int,
    records_max: int,
) -> tuple[list[RawRecord], int]:
    """The first records of a fetch from `offset` on, and the position after them.

    Markers, and aborted records under `read_committed`, move the position alone. Raises
    `aiokafka.errors.KafkaError` for damaged bytes.
    """
    records = PartitionRecords(
        place, _Batches(fetched), aborted, offset, None, None, True, isolation
    )
    return list(islice(records, records_max)), records.next_fetch_offset


def whole_batches(fetched: bytes) -> Iterator[bytes]:
    """The bytes of each whole record batch of a fetch."""
    batches = _Batches(fetched)
    while batches.has_next():
        yield batches.cut()


class _Batches:
    """The whole record batches of a fetch; a last one may be cut short."""

    def __init__(self, fetched: bytes) -> None:
        self._fetched = fetched
        self._at = 0

    def _end(self) -> int:
        if len(self._fetched) < self._at + _HEAD:
            return len(self._fetched) + 1
        (length,) = struct.unpack_from(">i", self._fetched, self._at + _LENGTH_AT)
        return self._at + _HEAD + int(length)

    def has_next(self) -> bool:
        """Whether another whole batch is there."""
        return self._end() <= len(self._fetched)

    def cut(self) -> bytes:
        """The bytes of the next one."""
        begin, self._at = self._at, self._end()
        return self._fetched[begin : self._at]

    def next_batch(self) -> LenientBatch:
        """The next one."""
        return LenientBatch(self.cut())


class LenientBatch(_DefaultRecordBatchPy):  # type: ignore[misc] # aiokafka is untyped
    """aiokafka's own decoding, over bytes that decode to text whatever they are."""

    def __iter__(self) -> LenientBatch:
        super().__iter__()
        self._buffer: bytes = _LenientBytes(self._buffer)
        return self


class _LenientBytes(bytes):
    """Only names of headers are decoded from it."""

    def __getitem__(self, index: Any) -> Any:  # noqa: ANN401 - int or slice, as of `bytes`
        found = super().__getitem__(index)
        return _LenientBytes(found) if isinstance(found, bytes) else found

    def decode(self, encoding: str = "utf-8", errors: str = "replace") -> str:
        """As text, at any rate."""
        return super().decode(encoding, errors)
