"""What stands where a log cannot be read, told from the bytes of a fetch."""

from __future__ import annotations

from collections.abc import Sequence

from aiokafka.record.default_records import DefaultRecordBatchBuilder

from connectors.kafka.blocked import Blocked, blocked_at
from connectors.ports import Unread


def _batch(base_offset: int, values: Sequence[bytes], attributes: int = 0) -> bytearray:
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=0,
        is_transactional=0,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=99_999,
    )
    for offset, value in enumerate(values):
        builder.append(offset, timestamp=5, key=b"k", value=value, headers=[("h", b"x")])
    built = bytearray(builder.build())
    built[0:8] = base_offset.to_bytes(8, "big")
    built[22] |= attributes
    return built


CONTROL = 0x20


def test_the_first_batch_that_holds_the_offset_or_follows_it() -> None:
    """Batches before it and markers are stepped over; a batch cut short is none."""
    fetched = _batch(0, [b"a", b"b"]) + _batch(2, [b"marker"], CONTROL) + _batch(5, [b"c", b"d"])
    assert (blocked_at(bytes(fetched), 1).first, blocked_at(bytes(fetched), 1).last) == (1, 1)
    found = blocked_at(bytes(fetched), 2)
    assert (found.first, found.last, sorted(found.records)) == (5, 6, [5, 6])
    assert blocked_at(bytes(fetched[:-3]), 2) == Blocked(2, 2)
    assert blocked_at(b"", 7) == Blocked(7, 7)


def test_bytes_are_had_although_the_checksum_is_broken() -> None:
    """They are evidence: kept as they are, and marked as unread."""
    damaged = _batch(10, [b"one", b"two", b"three"])
    damaged[damaged.index(b"two")] ^= 0xFF
    unread, position = blocked_at(bytes(damaged), 10).passed({10, 11}, "why")
    assert position == 12
    assert [(r.offset, r.value) for r in unread] == [(10, b"one"), (11, bytes([0x8B]) + b"wo")]
    assert all(isinstance(r, Unread) and r.why == "why" for r in unread)
    assert unread[0].headers == (("h", b"x"),)


def test_without_a_length_that_can_be_read_no_bytes_are_had() -> None:
    """Every offset that was set aside is one record without bytes, up to the first that was not."""
    broken = _batch(10, [b"one", b"two", b"three"])
    broken[61] = 0xFF  # the length of the first record
    found = blocked_at(bytes(broken), 11)
    assert found == Blocked(11, 12, {})
    unread, position = found.passed({11, 12, 13}, "why")
    assert ([(r.offset, r.value) for r in unread], position) == ([(11, None), (12, None)], 13)
    assert found.passed({12}, "why") == ([], 11)
