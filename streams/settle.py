"""Settling: what becomes of decided records, given what the ledger holds. Pure.

Records are settled in offset order, so of two records with one key in one batch the earlier one
takes it. Settling is recorded, never recomputed (G4).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from connectors.ports import Counts
from schemas.envelope import Position, Source
from schemas.reasons import Reason
from schemas.record_type import COMMON_LEDGER_COLUMNS
from schemas.verdict import (
    VIOLATIONS_MAX,
    Accepted,
    Decided,
    Duplicate,
    Holder,
    Refused,
    Settled,
    Violation,
)

BODY = COMMON_LEDGER_COLUMNS.index("body")
FIELD_NAME_MAX = 64
"""Characters of a member's name in a collision's detail; unknown members may have any name."""


def keys_of(decided: Sequence[Decided]) -> list[bytes]:
    """The distinct keys a batch wants, sorted: the order in which all workers probe and write."""
    return sorted({d.key for d in decided if isinstance(d, Accepted)})


def colliding_keys(decided: Sequence[Decided], held: Mapping[bytes, Holder]) -> list[bytes]:
    """Keys held in the ledger by another content: their bodies are needed to settle."""
    return sorted(
        {
            d.key
            for d in decided
            if isinstance(d, Accepted)
            and d.key in held
            and held[d.key].canonical_digest != d.canonical_digest
        }
    )


def settle(
    decided: Sequence[Decided],
    source: Source,
    held: Mapping[bytes, Holder],
    bodies: Mapping[bytes, str],
    refused: Mapping[int, Refused],
) -> list[Settled]:
    """Settle a batch: the first record of a free key commits, others are duplicates or collisions.

    `held` is what the ledger holds of the batch's keys, `bodies` the canonical bodies behind
    `colliding_keys`, `refused` what the database has refused of this batch so far, by offset: a
    refused record takes no key, so a later one may.
    """
    taken: dict[bytes, Accepted] = {}
    settled: list[Settled] = []
    for outcome in decided:
        if isinstance(outcome, Refused):
            settled.append(outcome)
        elif outcome.offset in refused:
            settled.append(refused[outcome.offset])
        elif (holder := held.get(outcome.key)) is not None:
            body = bodies.get(outcome.key, "{}")
            settled.append(_against(outcome, holder.position, holder.canonical_digest, body))
        elif (first := taken.get(outcome.key)) is not None:
            position = source.position(first.offset)
            body = str(first.row[BODY])
            settled.append(_against(outcome, position, first.canonical_digest, body))
        else:
            taken[outcome.key] = outcome
            settled.append(outcome)
    return settled


def _against(accepted: Accepted, position: Position, digest: bytes, body: str) -> Settled:
    """Duplicate when the holder's content is the same, else a collision."""
    if accepted.canonical_digest == digest:
        return Duplicate(accepted, position)
    names = differing_fields(str(accepted.row[BODY]), body)
    violations = [Violation("", f"key is held by {position} with another content")]
    violations += [Violation(name, "differs from the committed record") for name in names]
    return Refused(
        offset=accepted.offset,
        timestamp=accepted.timestamp,
        raw_digest=accepted.raw_digest,
        reason=Reason.IDEMPOTENCY_COLLISION,
        violations=tuple(violations[:VIOLATIONS_MAX]),
        correlation_id=accepted.correlation_id,
        key=accepted.key,
        safety_critical=accepted.safety_critical,
    )


def differing_fields(body: str, other: str) -> list[str]:
    """Names of the top-level members in which two canonical bodies differ, sorted and bounded."""
    mine, theirs = _members(body), _members(other)
    names = {n for n in mine.keys() | theirs.keys() if mine.get(n) != theirs.get(n)}
    return sorted(name[:FIELD_NAME_MAX] for name in names)[:VIOLATIONS_MAX]


def _members(body: str) -> dict[str, object]:
    """The members of a body; numbers by their text, which is canonical, so that 1 is not true and
    no digit is lost."""
    members: dict[str, object] = json.loads(body, parse_int=_number, parse_float=_number)
    return members


def _number(text: str) -> tuple[str, str]:
    return "number", text


def count(settled: Sequence[Settled], records_in: int) -> Counts:
    """Counts of a batch; `records_in` is counted on its own, so the balance can fail (G1)."""
    committed = sum(1 for s in settled if isinstance(s, Accepted))
    duplicate = sum(1 for s in settled if isinstance(s, Duplicate))
    return Counts(
        records_in=records_in,
        committed=committed,
        duplicate=duplicate,
        quarantined=len(settled) - committed - duplicate,
    )
