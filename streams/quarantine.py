"""Rejects as people look at them: found by what is known of them, and one of them shown whole.

Nothing here shows a value of a record unless it was asked for on record (`reveal`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

from connectors.errors import ConfigurationError
from connectors.ports import SchemaStore
from connectors.postgres import rejects
from connectors.postgres.operations import Act, record_acts
from connectors.postgres.pool import Pool
from connectors.postgres.rejects import History, Listed, Sent, Which
from schemas import envelope
from schemas.avro_strict import SINGLE_OBJECT_MARK, AvroFault, schema_ref
from schemas.envelope import Position
from schemas.json_strict import DEPTH_MAX, JsonFault
from schemas.masking import MASK
from schemas.reasons import REASON_INFO
from schemas.record_types import RECORD_TYPES
from schemas.resubmission import Reject, claimed_origin, named, obstacle
from schemas.verdict import Duplicate, Refused, Settled, Verdict
from streams import batch as steps
from streams.decide import Schemas, members_of
from streams.foresight import Candidate, Foresight

RUN_FIELD = "source_run_id"
RUN_CANDIDATES_MAX = 100_000
"""Rejects that are read to find those of one run."""
HEADERS_SHOWN_MAX = 100
PLAIN_BITS_MAX = 10_000
"""Python writes no longer whole numbers as text without being asked to."""

Members = Mapping[str, Any]


# --- Finding --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Found:
    """Which rejects a run's name has led to."""

    which: Which
    unreadable: int = 0
    """Rejects that hold the run's text and cannot be read, so nobody knows whether it is theirs."""


async def of_run(
    pool: Pool,
    store: SchemaStore,
    which: Which,
    run: str,
    on_progress: Callable[[int, int], None],
) -> Found:
    """Narrow `which` down to the rejects of one source run.

    A reject has no column for what its bytes hold: the database finds the values that contain the
    run's text, and those are read here. `on_progress` is told how many of how many. Raises
    `ConfigurationError` when there are too many to read.
    """
    narrowed = replace(which, holds=run.encode())
    candidates = await rejects.in_order(pool, narrowed, RUN_CANDIDATES_MAX + 1)
    if len(candidates) > RUN_CANDIDATES_MAX:
        message = (
            f"more than {RUN_CANDIDATES_MAX} rejects would have to be read to find those of the "
            "run; narrow them down with --since, --until, --reason or --type"
        )
        raise ConfigurationError(message)
    found: list[Position] = []
    done = unreadable = 0
    for part in rejects.portions(candidates):
        whole = await rejects.whole(pool, [one.position for one in part])
        for reject, members in zip(whole, await read(store, whole), strict=True):
            if members is None:
                unreadable += run.encode() in (reject.value or b"")
            elif members.get(RUN_FIELD) == run:
                found.append(reject.position)
        done += len(part)
        on_progress(done, len(candidates))
    return Found(replace(which, positions=tuple(found)), unreadable)


async def chosen(pool: Pool, which: Which, limit: int) -> tuple[list[Listed], int]:
    """The first rejects that are meant, in the order they came, and how many more there are."""
    found = await rejects.in_order(pool, which, limit + 1)
    if len(found) <= limit:
        return found, 0
    return found[:limit], await rejects.counted(pool, which) - limit


async def read(store: SchemaStore, several: Sequence[Reject]) -> list[Members | None]:
    """The members of rejects, None for one that cannot be decoded.

    Raises `SchemaStoreUnavailable`.
    """
    schemas = await steps.resolve_schemas(store, [as_record(one) for one in several])
    return [_members(one, schemas) for one in several]


def as_record(reject: Reject) -> envelope.Record:
    """A reject as the raw record it came as."""
    offset = reject.position.offset
    return envelope.Record(offset, reject.value, reject.kafka_timestamp, reject.key, reject.headers)


def _members(reject: Reject, schemas: Schemas) -> Members | None:
    if reject.value is None:
        return None
    record_type = RECORD_TYPES[reject.record_type]
    try:
        return members_of(reject.value, record_type, DEPTH_MAX, schemas)[0]
    except (JsonFault, AvroFault):
        return None


async def one(pool: Pool, position: Position) -> Reject:
    """A reject by its id. Raises `ConfigurationError` when there is none."""
    found = await rejects.whole(pool, [position])
    if not found:
        message = (
            f"{position} is not in quarantine; an id is the header wb-quarantine-id of a "
            "quarantine event, and stands in `weighbridge quarantine ls`"
        )
        raise ConfigurationError(message)
    return found[0]


# --- Showing --------------------------------------------------------------------------------------


async def reveal(pool: Pool, who: str, why: str, reject: Reject, *, to_file: bool) -> None:
    """Put on record that somebody is about to see all of a reject. To be called before."""
    act = Act(
        "reveal",
        who,
        str(reject.position),
        why,
        digest_before=reject.raw_digest,
        detail={"bytes_to_file": to_file},
    )
    await record_acts(pool, [act])


@dataclass(frozen=True, slots=True)
class Became:
    """A resubmission and its verdict."""

    sent: Sent
    verdict: str
    """`committed`, `duplicate of POSITION`, `quarantined REASON`, or that there is none yet."""


@dataclass(frozen=True, slots=True)
class Shown:
    """A reject as it is shown: everything that `show` tells, values masked unless revealed."""

    reject: Reject
    encoding: str
    members: Mapping[str, object] | None
    """None when the bytes cannot be decoded."""
    history: History
    became: list[Became]
    now: Settled
    obstacle: str | None
    """Why it could not be sent again unchanged."""
    revealed: bool
    headers: list[tuple[str, str | None]] = field(default_factory=list)

    def as_dict(self) -> dict[str, object]:
        """For `show --json`; also what the table is made from."""
        reject, info = self.reject, REASON_INFO[self.reject.reason]
        open_to_all = self.revealed or self.members is None
        return {
            "quarantine_id": str(reject.position),
            "record_type": reject.record_type,
            "safety": "critical" if reject.safety_critical else None,
            "reason": str(reject.reason),
            "meaning": info.meaning,
            "fixed_by": info.fixed_by,
            "unchanged_can_help": info.unchanged_can_help,
            "detail": json.loads(reject.detail),
            "attempt": reject.attempt,
            "correlation_id": self._correlation_id(),
            "kafka_timestamp": reject.kafka_timestamp,
            "key": self._key(),
            "headers": [{"name": name, "value": value} for name, value in self.headers],
            "bytes": len(reject.value or b""),
            "sha256": reject.raw_digest.hex() if open_to_all else MASK,
            "encoding": self.encoding,
            "record": self.members,
            "follows": self._follows(),
            "resubmissions": [_became(one) for one in self.became],
            "acts": [
                {
                    "number": act.number,
                    "act": act.act,
                    "who": act.who,
                    "database_role": act.database_role,
                    "at": act.acted_at.isoformat(),
                    "why": act.why,
                }
                for act in self.history.acts
            ],
            "now": {
                "verdict": named(self.now),
                "holder": str(self.now.holder) if isinstance(self.now, Duplicate) else None,
                "detail": _violations(self.now),
                "obstacle": self.obstacle,
            },
        }

    def _key(self) -> str | None:
        key = self.reject.key
        if key is None:
            return None
        shown = self.revealed or RECORD_TYPES[self.reject.record_type].shown.message_key
        return key.decode("utf-8", "replace") if shown else MASK

    def _correlation_id(self) -> str:
        """Our own is a place; another one is whatever its publisher chose."""
        at, given = self.reject.position, self.reject.correlation_id
        ours = given == f"{at.topic}-{at.partition}-{at.offset}"
        return given if ours or self.revealed else MASK

    def _follows(self) -> dict[str, object] | None:
        if self.history.sent_for is not None:
            return {"quarantine_id": str(self.history.sent_for), "on_record": True}
        claimed = claimed_origin(self.reject.headers, self.reject.position.topic)
        return None if claimed is None else {"quarantine_id": str(claimed), "on_record": False}


def _became(one: Became) -> dict[str, object]:
    sent = one.sent
    return {
        "number": sent.number,
        "attempt": sent.attempt,
        "corrected": sent.corrected,
        "who": sent.who,
        "at": sent.acted_at.isoformat(),
        "position": None if sent.position is None else str(sent.position),
        "verdict": one.verdict,
    }


def _violations(now: Settled) -> list[dict[str, str]]:
    if not isinstance(now, Refused):
        return []
    return [{"path": v.path, "rule": v.rule} for v in now.violations]


async def show(
    pool: Pool, store: SchemaStore, group: str, reject: Reject, now_ms: int, *, revealed: bool
) -> Shown:
    """Everything about a reject: its bytes decoded, what people did, what it would become now.

    Reads only; whoever passes `revealed` has called `reveal`. Raises `DatabaseUnavailable`,
    `SchemaStoreUnavailable`, `ConfigurationError`.
    """
    history = await rejects.history(pool, reject.position)
    (members,) = await read(store, [reject])
    foresight = Foresight(pool, store, now_ms)
    (now,) = await foresight.verdicts([Candidate(reject)])
    return Shown(
        reject=reject,
        encoding=_encoding(reject.value),
        members=None if members is None else _displayed(reject, members, revealed=revealed),
        history=history,
        became=[await _what_became(pool, group, sent) for sent in history.sent],
        now=now,
        obstacle=obstacle(reject, now, corrected=False, attempts_max=reject.attempt + 1),
        revealed=revealed,
        headers=_headers(reject, revealed=revealed),
    )


async def _what_became(pool: Pool, group: str, sent: Sent) -> Became:
    if sent.position is None:
        return Became(sent, "on record, not known to be sent: the next resubmission sends it")
    entry = await rejects.verdict_at(pool, group, sent.position)
    if entry is None:
        return Became(sent, "no verdict yet")
    if entry.verdict is Verdict.DUPLICATE and entry.holder is not None:
        holder = Position(sent.position.topic, *entry.holder)
        return Became(sent, f"duplicate of {holder}")
    if entry.verdict is Verdict.QUARANTINED:
        return Became(sent, f"quarantined {entry.reason}")
    return Became(sent, entry.verdict.name.lower())


def _encoding(value: bytes | None) -> str:
    """How the bytes present themselves, told from the first of them."""
    if value is None:
        return "none"
    if not value:
        return "empty"
    if value[:1] == b"\x00" or value[:2] == SINGLE_OBJECT_MARK:
        ref = schema_ref(value)
        return "avro, cut short" if ref is None else f"avro, {ref}"
    return "json" if value.lstrip(b" \t\r\n")[:1] == b"{" else "neither JSON object nor Avro"


def _displayed(reject: Reject, members: Members, *, revealed: bool) -> dict[str, object]:
    shown = RECORD_TYPES[reject.record_type].shown
    plain = {name: _plain(value) for name, value in members.items()}
    return plain if revealed else shown.masked(plain)


def _plain(value: object) -> object:
    """A decoded value as JSON can say it; numbers and times by their own text."""
    if isinstance(value, Mapping):
        return {str(name): _plain(inner) for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(inner) for inner in value]
    if isinstance(value, int) and value.bit_length() > PLAIN_BITS_MAX:
        return f"a whole number of {value.bit_length()} bits"
    if value is None or isinstance(value, (bool, int, str)):
        return value
    return _text(value)


def _text(value: object) -> str:
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, (date, datetime)):
        return value.isoformat()
    return format(value, "f") if isinstance(value, Decimal) else str(value)


def _headers(reject: Reject, *, revealed: bool) -> list[tuple[str, str | None]]:
    """Names and values; what is no position of ours is masked."""
    found: list[tuple[str, str | None]] = []
    for name, value in reject.headers[:HEADERS_SHOWN_MAX]:
        if value is None:
            found.append((name, None))
        elif revealed or claimed_origin(((name, value),), reject.position.topic) is not None:
            found.append((name, value.decode("utf-8", "replace")))
        else:
            found.append((name, MASK))
    return found


def instant(text: str, now: datetime) -> datetime:
    """A moment from `2026-12-01`, `2026-12-01T06:30:00Z`, or `90m`, `36h`, `7d` before now. Pure.

    Raises `ValueError` saying what is accepted.
    """
    message = "a date, a time with an offset such as 2026-12-01T06:30:00Z, or 90m, 36h, 7d ago"
    unit = _UNITS.get(text[-1:])
    if unit is not None and text[:-1].isascii() and text[:-1].isdigit() and len(text) <= 6:  # noqa: PLR2004
        return datetime.fromtimestamp(now.timestamp() - int(text[:-1]) * unit, UTC)
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(message) from None
    if found.tzinfo is None:
        if "T" in text or " " in text:
            raise ValueError(message)
        found = found.replace(tzinfo=UTC)
    return found.astimezone(UTC)


_UNITS = {"m": 60, "h": 3600, "d": 86400}
