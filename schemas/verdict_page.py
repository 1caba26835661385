"""The verdict page: what one batch decided and settled, packed, one entry per record.

It is the only place where a duplicate's verdict is kept, and it tells which rows a batch wrote.
Layout, version 1, big-endian: one byte version, four bytes count; per record offset (8), Kafka
timestamp (8), verdict (1), reason rank + 1 or 0 (1), key or zeros (32), raw digest (32); then per
duplicate, in order, the holder's incarnation (4), partition (4) and offset (8). Pure.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from schemas.reasons import PRECEDENCE, Reason
from schemas.verdict import Accepted, Duplicate, Settled, Verdict

VERSION = 1
_HEAD = struct.Struct(">BI")
_ENTRY = struct.Struct(">qqBB32s32s")
_HOLDER = struct.Struct(">iiq")
_NO_KEY = bytes(32)
_REASONS = tuple(Reason)


@dataclass(frozen=True, slots=True)
class Entry:
    """One record's verdict as stored."""

    offset: int
    timestamp: int
    verdict: Verdict
    reason: Reason | None
    key: bytes | None
    raw_digest: bytes
    holder: tuple[int, int, int] | None = None
    """(incarnation, partition, offset) of the row that holds a duplicate's key."""


def pack(settled: Sequence[Settled]) -> bytes:
    """Pack the settled records of a batch, in offset order."""
    entries: list[bytes] = []
    holders: list[bytes] = []
    for outcome in settled:
        if isinstance(outcome, Accepted):
            entries.append(
                _ENTRY.pack(
                    outcome.offset,
                    outcome.timestamp,
                    Verdict.COMMITTED,
                    0,
                    outcome.key,
                    outcome.raw_digest,
                )
            )
        elif isinstance(outcome, Duplicate):
            twin, holder = outcome.accepted, outcome.holder
            entries.append(
                _ENTRY.pack(
                    twin.offset, twin.timestamp, Verdict.DUPLICATE, 0, twin.key, twin.raw_digest
                )
            )
            holders.append(_HOLDER.pack(holder.incarnation, holder.partition, holder.offset))
        else:
            entries.append(
                _ENTRY.pack(
                    outcome.offset,
                    outcome.timestamp,
                    Verdict.QUARANTINED,
                    PRECEDENCE[outcome.reason] + 1,
                    outcome.key or _NO_KEY,
                    outcome.raw_digest,
                )
            )
    return b"".join([_HEAD.pack(VERSION, len(entries)), *entries, *holders])


def pack_entries(found: Sequence[Entry]) -> bytes:
    """Pack entries, in offset order, as `unpack` yields them; of duplicates the holder is known."""
    entries = [
        _ENTRY.pack(
            one.offset,
            one.timestamp,
            one.verdict,
            0 if one.reason is None else PRECEDENCE[one.reason] + 1,
            one.key or _NO_KEY,
            one.raw_digest,
        )
        for one in found
    ]
    holders = [_HOLDER.pack(*one.holder) for one in found if one.holder is not None]
    return b"".join([_HEAD.pack(VERSION, len(entries)), *entries, *holders])


def unpack(page: bytes) -> Iterator[Entry]:
    """The entries of a page, in offset order. Raises `ValueError` for a page it cannot read."""
    try:
        yield from _entries(page)
    except (struct.error, IndexError):
        message = "verdict page is damaged: it ends early, or holds a reason there is not"
        raise ValueError(message) from None


def _entries(page: bytes) -> Iterator[Entry]:
    version, count = _HEAD.unpack_from(page)
    if version != VERSION:
        message = f"verdict page has version {version}, this code reads {VERSION}"
        raise ValueError(message)
    holder_at = _HEAD.size + count * _ENTRY.size
    for index in range(count):
        offset, timestamp, number, rank, key, raw_digest = _ENTRY.unpack_from(
            page, _HEAD.size + index * _ENTRY.size
        )
        verdict = Verdict(number)
        holder = None
        if verdict is Verdict.DUPLICATE:
            holder = _HOLDER.unpack_from(page, holder_at)
            holder_at += _HOLDER.size
        yield Entry(
            offset,
            timestamp,
            verdict,
            _REASONS[rank - 1] if rank else None,
            None if key == _NO_KEY else key,
            raw_digest,
            holder,
        )
    if holder_at != len(page):
        message = f"verdict page has {len(page) - holder_at} bytes too many"
        raise ValueError(message)
