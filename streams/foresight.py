"""The verdict that a reject, or its corrected bytes, would get if it were sent now.

Deciding is the worker's own step 2 under the decision set in force; settling is a look into the
ledger, which the next record may change. So this is a forecast, not a promise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from connectors.ports import Fetched, SchemaStore
from connectors.postgres.ledger import PostgresLedger
from connectors.postgres.pool import Pool
from schemas import envelope
from schemas.decision_set import DecisionSet
from schemas.envelope import Source, raw_digest
from schemas.record_type import RecordType
from schemas.record_types import RECORD_TYPES
from schemas.resubmission import Reject, resubmission_headers
from schemas.verdict import Accepted, Decided, Holder, Settled
from streams import batch as steps
from streams.settle import colliding_keys, keys_of, settle

FORESEEN = 0
"""Incarnation in positions of records that are not sent yet: real ones begin at 1."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """What could be sent for a reject."""

    reject: Reject
    corrected: bytes | None = None
    """None: the bytes as they are."""

    @property
    def value(self) -> bytes | None:
        """The bytes that would be sent."""
        return self.reject.value if self.corrected is None else self.corrected

    @property
    def digest(self) -> bytes:
        """Their SHA-256."""
        return self.reject.raw_digest if self.corrected is None else raw_digest(self.corrected)

    @property
    def changed(self) -> bool:
        """Whether other bytes would be sent than were turned away."""
        return self.digest != self.reject.raw_digest

    @property
    def attempt(self) -> int:
        """The number this attempt would have."""
        return self.reject.attempt + 1


class Foresight:
    """Verdicts as of one moment; candidates that are asked about one after the other are seen as
    sent one after the other."""

    def __init__(self, pool: Pool, store: SchemaStore, now_ms: int) -> None:
        self._pool = pool
        self._store = store
        self._now_ms = now_ms
        """Kafka timestamp the records would get, milliseconds since the epoch."""
        self._decision_set: DecisionSet | None = None
        self._taken: dict[tuple[str, bytes], Holder] = {}
        """Keys that earlier candidates would take, by record type."""
        self._next_offset = 0

    async def verdicts(self, candidates: Sequence[Candidate]) -> list[Settled]:
        """The verdict on each, in order. Raises `DatabaseUnavailable`, `SchemaStoreUnavailable`,
        `ConfigurationError` when this code cannot decide by the decision set in force."""
        found: dict[int, Settled] = {}
        for name in sorted({one.reject.record_type for one in candidates}):
            mine = [n for n, one in enumerate(candidates) if one.reject.record_type == name]
            settled = await self._of_type(RECORD_TYPES[name], [candidates[n] for n in mine])
            found.update(zip(mine, settled, strict=True))
        return [found[n] for n in range(len(candidates))]

    async def _of_type(
        self, record_type: RecordType, candidates: Sequence[Candidate]
    ) -> list[Settled]:
        source = Source(candidates[0].reject.position.topic, 0, FORESEEN)
        records = [
            self._record(self._next_offset + n, candidate) for n, candidate in enumerate(candidates)
        ]
        begin, self._next_offset = self._next_offset, self._next_offset + len(records)
        schemas = await steps.resolve_schemas(self._store, records)
        fetched = Fetched(begin, self._next_offset, records)
        decision_set = await self._in_force(record_type)
        decided = steps.decide(fetched, record_type, source, decision_set, schemas).decided
        return await self._settled(record_type, source, decided)

    async def _in_force(self, record_type: RecordType) -> DecisionSet:
        if self._decision_set is None:
            ledger = PostgresLedger(self._pool, record_type)
            self._decision_set = await ledger.active_decision_set()
        return self._decision_set

    def _record(self, offset: int, candidate: Candidate) -> envelope.Record:
        reject = candidate.reject
        headers = resubmission_headers(
            reject.headers,
            reject.position,
            candidate.attempt,
            reject.correlation_id,
            corrected=candidate.changed,
        )
        return envelope.Record(offset, candidate.value, self._now_ms, reject.key, headers)

    async def _settled(
        self, record_type: RecordType, source: Source, decided: Sequence[Decided]
    ) -> list[Settled]:
        """Settle against the ledger as it is; nothing is written."""
        keys = keys_of(decided)
        ledger = PostgresLedger(self._pool, record_type)
        async with ledger.transaction(source, group="") as tx:
            held = dict(await tx.probe(keys)) if keys else {}
            colliding = colliding_keys(decided, held)
            bodies = await tx.bodies(colliding) if colliding else {}
        taken = {
            key: self._taken[record_type.name, key]
            for key in keys
            if (record_type.name, key) in self._taken
        }
        settled = settle(decided, source, taken | held, bodies, {})
        for one in settled:
            if isinstance(one, Accepted):
                holder = Holder(source.position(one.offset), one.canonical_digest)
                self._taken[record_type.name, one.key] = holder
        return settled
