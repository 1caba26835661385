"""Sending a reject again: the record that goes out, and when that is allowed. Pure.

A resubmission is a new raw record with a position and a verdict of its own; it names the reject it
follows and counts its attempts. Nothing about the reject changes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from schemas import envelope
from schemas.envelope import Headers, Position
from schemas.reasons import Reason
from schemas.verdict import Duplicate, Refused, Settled

ATTEMPTS_MAX = 5
"""A record that was turned away so often needs another look, not another attempt."""
ATTEMPTS_COUNTED_MAX = 999_999
"""The largest attempt number that the gate counts."""

NEVER_UNCHANGED: dict[Reason, str] = {
    Reason.IDEMPOTENCY_COLLISION: (
        "its key is taken by another content; a later statement of type correction is the way"
    ),
    Reason.CONTROL_TOTAL_MISMATCH: (
        "it belongs to a chunk whose totals differ; its publisher sends the whole chunk again"
    ),
}
"""Reasons that no look at the record alone can lift: its bytes are fine, what surrounds it is not.
"""
SETTLES_ANEW = frozenset({Reason.PERSIST_FAILED, Reason.PROCESSING_ERROR})
"""Reasons that lie in our code or database: what the worker would say cannot be foretold here."""

_DROPPED = envelope.OURS | {
    envelope.RESUBMISSION_OF,
    envelope.CORRELATION_ID,
    envelope.CHUNK,
    envelope.CHUNK_DECLARE,
    envelope.CLOSE,
}


@dataclass(frozen=True, slots=True)
class Reject:
    """A quarantined record with its bytes, as far as sending it again is concerned."""

    position: Position
    """Its quarantine id."""
    record_type: str
    reason: Reason
    detail: str
    """JSON list of {path, rule}."""
    raw_digest: bytes
    attempt: int
    safety_critical: bool
    correlation_id: str
    kafka_timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers


def resubmission_headers(
    headers: Headers, of: Position, attempt: int, correlation_id: str, *, corrected: bool
) -> Headers:
    """The headers of a resubmission.

    The original ones, without what the gate sets, without the chunk it was part of and, for
    corrected bytes, without the publisher's error about the old ones; the correlation id that the
    reject was known by is kept.
    """
    dropped = _DROPPED | {envelope.SOURCE_ERROR} if corrected else _DROPPED
    kept = [(name, value) for name, value in headers if name not in dropped]
    return (
        *kept,
        (envelope.CORRELATION_ID, correlation_id.encode()),
        (envelope.RESUBMISSION_OF, str(of).encode()),
        (envelope.ATTEMPT, str(attempt).encode()),
    )


def obstacle(reject: Reject, now: Settled, *, corrected: bool, attempts_max: int) -> str | None:
    """Why this is not sent again; None when it may be. `now` is the verdict it would get now.

    Unchanged bytes go only where they would end otherwise, corrected ones only where they would
    not be turned away.
    """
    attempt = reject.attempt + 1
    if attempt > attempts_max:
        return (
            f"it would be attempt {attempt}, of at most {attempts_max}; if it must be, say "
            f"--attempts-max {attempt}"
        )
    if attempt > ATTEMPTS_COUNTED_MAX:
        return f"attempts are counted up to {ATTEMPTS_COUNTED_MAX}"
    if not corrected and reject.reason in NEVER_UNCHANGED:
        return NEVER_UNCHANGED[reject.reason]
    if not isinstance(now, Refused) or (not corrected and reject.reason in SETTLES_ANEW):
        return None
    first = now.violations[0]
    where = f" ({first.path}: {first.rule})" if first.path else f" ({first.rule})"
    return f"it would be turned away again: {now.reason}{where}"


def named(now: Settled) -> str:
    """A verdict in one word or two: `committed`, `duplicate`, `quarantined REASON`."""
    if isinstance(now, Refused):
        return f"quarantined {now.reason}"
    return "duplicate" if isinstance(now, Duplicate) else "committed"


def claimed_origin(headers: Headers, topic: str) -> Position | None:
    """The reject of this topic that a record says it follows; None when it names none, for then
    the header holds whatever its publisher chose."""
    given = envelope.last_header(headers, envelope.RESUBMISSION_OF)
    if given is None:
        return None
    try:
        position = Position.parse(given.decode("ascii"))
    except ValueError:
        return None
    return position if position.topic == topic else None


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A recorded resubmission as it is to be sent."""

    number: int
    """Of the act: what is sent is sent in the order of acts."""
    partition: int
    digest: bytes
    """SHA-256 of the value."""
    key: bytes | None
    value: bytes | None
    headers: Headers


@dataclass(frozen=True, slots=True)
class SentMark:
    """What the last Kafka transaction of a topic sent: acts `first` to `last`, in order."""

    first: int
    last: int
    digest: bytes
    """The first bytes of the last act's digest, by which the act is known again."""
    base_offsets: tuple[tuple[int, int], ...]
    """Partition to the offset of its first record; the others follow it without a gap."""

    def text(self) -> str:
        """As it stands beside the committed offset."""
        bases = " ".join(f"{partition}:{offset}" for partition, offset in self.base_offsets)
        return f"wb1-resubmit {self.first} {self.last} {self.digest.hex()} {bases}"

    @classmethod
    def parse(cls, text: str) -> SentMark | None:
        """Read `text` back; None when it is not ours."""
        match = _MARK.fullmatch(text)
        if match is None:
            return None
        first, last, digest, bases = match.groups()
        pairs = (pair.split(":") for pair in bases.split(" "))
        places = tuple((int(partition), int(offset)) for partition, offset in pairs)
        return cls(int(first), int(last), bytes.fromhex(digest), places)


MARK_DIGEST_BYTES = 8
_MARK = re.compile(r"wb1-resubmit (\d+) (\d+) ([0-9a-f]{16}) (\d+:\d+(?: \d+:\d+)*)", re.ASCII)
