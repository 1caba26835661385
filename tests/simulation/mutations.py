"""The protocol broken on purpose, one rule at a time: the simulation must notice each.

`python -m tests.simulation.mutations [NAME] [--seeds N]` says which seed notices what.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import itertools
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from connectors.errors import DatabaseUnavailable, InfrastructureError
from connectors.ports import Cursor, EmittedCursor, Page
from schemas.avro_strict import AvroSchema, SchemaRef
from schemas.envelope import Source
from schemas.verdict import Event, Holder
from streams import assignment, batch, partition
from tests.simulation.broker import SimulatedBroker, SimulatedEmitter
from tests.simulation.database import Session, SimulatedLedger, SimulatedTransaction
from tests.simulation.loop import PROCESS
from tests.simulation.run import Result, simulate

SEEDS = 600
"""Among so many seeds at least one must notice each mutation."""
Patch = pytest.MonkeyPatch


def no_token_in_claim(patch: Patch) -> None:
    """A claim does not ask whose cursor it is."""
    original = SimulatedLedger.check_claim

    def check(self: SimulatedLedger, source: Source, group: str, _: bytes, begin: int) -> Cursor:
        key = (source.topic, source.partition, group)
        return original(self, source, group, self.tables.tokens.get(key, b""), begin)

    patch.setattr(SimulatedLedger, "check_claim", check)


def no_place_in_claim(patch: Patch) -> None:
    """A claim does not ask whether the batch begins at D; neither does the cursor's update."""

    def check(self: SimulatedLedger, source: Source, group: str, *_: object) -> Cursor:
        return self.tables.cursors[source.topic, source.partition, group]

    async def finish(self: SimulatedTransaction, page: Page) -> None:
        cursor = self.ledger.tables.cursors[self._key]
        self.session.page = page
        self.session.cursor = dataclasses.replace(
            cursor,
            next_offset=page.next_offset,
            batch_number=page.batch_number,
            last=page.last,
            counts=cursor.counts + page.counts,
        )

    patch.setattr(SimulatedLedger, "check_claim", check)
    patch.setattr(SimulatedTransaction, "finish", finish)


def counted_tokens(patch: Patch) -> None:
    """Each process counts its tokens instead of drawing them."""
    counters: dict[str, Any] = {}

    def token_bytes(_: int) -> bytes:
        found = PROCESS.get()
        name = "" if found is None else found.name
        return bytes([next(counters.setdefault(name, itertools.count()))])

    patch.setattr(assignment.secrets, "token_bytes", token_bytes)


def no_fencing_at_commit(patch: Patch) -> None:
    """The coordinator lets a producer of an older epoch go on."""
    patch.setattr(SimulatedBroker, "check_epoch", lambda *_: None)


def emission_without_offsets(patch: Patch) -> None:
    """The group's offset never joins the transaction."""
    patch.setattr(SimulatedEmitter, "send_offsets", lambda *_: None)


def offsets_outside_the_transaction(patch: Patch) -> None:
    """The group's offset is committed by itself, before the events are."""
    original = SimulatedEmitter._transact

    async def transact(
        self: SimulatedEmitter,
        committed: Sequence[Event],
        quarantined: Sequence[Event],
        cursor: EmittedCursor,
    ) -> None:
        place = (self.source.topic, self.source.partition)
        self.broker.offsets[self.group, place] = cursor
        await original(self, committed, quarantined, cursor)

    patch.setattr(SimulatedEmitter, "_transact", transact)


def emitted_cursor_before_init(patch: Patch) -> None:
    """E is read before InitProducerId, while a transaction may still be pending."""
    original = SimulatedEmitter.start
    early: dict[int, EmittedCursor | None] = {}

    async def start(self: SimulatedEmitter) -> None:
        early[id(self)] = self.read_emitted()
        await original(self)

    async def committed(self: SimulatedEmitter) -> EmittedCursor | None:
        await asyncio.sleep(0)
        return early[id(self)]

    patch.setattr(SimulatedEmitter, "start", start)
    patch.setattr(SimulatedEmitter, "committed", committed)


def emitted_cursor_after_the_token(patch: Patch) -> None:
    """E is read after D: a newer owner may move both in between."""

    async def read_late(_: SimulatedEmitter) -> None:
        await asyncio.sleep(0)

    original = assignment.emitted_up_to

    async def owed_from(ports: Any, cursor: Cursor, _: object, *rest: Any) -> int:
        place = (cursor.source.topic, cursor.source.partition)
        emitted = await ports.log.broker.world.at_once(
            "kafka", "read_emitted", lambda: ports.log.broker.offsets.get((ports.group, place))
        )
        return await original(ports, cursor, emitted, *rest)

    patch.setattr(SimulatedEmitter, "committed", read_late)
    patch.setattr(assignment, "emitted_up_to", owed_from)


def unchecked_produce(patch: Patch) -> None:
    """The commit does not look at what became of each produce."""
    patch.setattr(SimulatedEmitter, "check", lambda *_: None)


def owed_not_emitted(patch: Patch) -> None:
    """E < D is passed over."""

    async def nothing(*_: object) -> None:
        await asyncio.sleep(0)

    patch.setattr(assignment, "emit_owed", nothing)


def cursor_outside_the_transaction(patch: Patch) -> None:
    """D is moved by itself before the rows are committed."""
    original = SimulatedTransaction.finish

    async def finish(self: SimulatedTransaction, page: Page) -> None:
        await original(self, page)
        assert self.session.cursor is not None
        self.ledger.tables.cursors[self._key] = self.session.cursor

    patch.setattr(SimulatedTransaction, "finish", finish)


def settling_without_probing(patch: Patch) -> None:
    """Nobody asks the ledger which keys it holds."""

    async def probe(_: SimulatedTransaction, __: Sequence[bytes]) -> Mapping[bytes, Holder]:
        await asyncio.sleep(0)
        return {}

    patch.setattr(SimulatedTransaction, "probe", probe)


def no_unique_key(patch: Patch) -> None:
    """Two batches that want one key are not told that they race."""
    original = SimulatedLedger.lock

    async def lock(self: SimulatedLedger, session: Session, wanted: tuple[object, ...]) -> None:
        if wanted[0] == "key":
            return
        await original(self, session, wanted)

    patch.setattr(SimulatedLedger, "lock", lock)


def decision_set_not_compared(patch: Patch) -> None:
    """A batch is persisted under the set it was decided with, whatever is in force."""
    original = SimulatedTransaction.claim

    async def claim(self: SimulatedTransaction, token: bytes, begin: int) -> Any:
        found = await original(self, token, begin)
        return _Agreeing(found.cursor)

    patch.setattr(SimulatedTransaction, "claim", claim)


class _Agreeing:
    """A claim that agrees with any decision set."""

    def __init__(self, cursor: Cursor) -> None:
        self.cursor = cursor
        self.active_decision_set = _Anything()


class _Anything:
    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return 0


def no_answer_taken_for_no_schema(patch: Patch) -> None:
    """A schema store that is away counts as one that has no such schema."""

    async def resolve(store: Any, records: Sequence[Any]) -> Mapping[SchemaRef, AvroSchema | None]:
        found: dict[SchemaRef, AvroSchema | None] = {}
        for ref in batch.schema_refs(records):
            try:
                found[ref] = await store.find(ref)
            except InfrastructureError:
                found[ref] = None
        return found

    patch.setattr(batch, "resolve_schemas", resolve)


def unanswered_commit_taken_for_done(patch: Patch) -> None:
    """A COMMIT whose answer did not come is assumed to hold."""
    original = SimulatedLedger._commit

    async def commit(self: SimulatedLedger, *arguments: Any) -> None:
        try:
            await original(self, *arguments)
        except DatabaseUnavailable:
            return

    patch.setattr(SimulatedLedger, "_commit", commit)


def unanswered_emission_repeated(patch: Patch) -> None:
    """An emission that failed is tried once more at once, without asking what became of it."""
    original = batch.emit

    async def emit(emitter: Any, *arguments: Any) -> None:
        try:
            await original(emitter, *arguments)
        except InfrastructureError:
            emitter.usable = True
            await original(emitter, *arguments)

    patch.setattr(batch, "emit", emit)


def early_emission(patch: Patch) -> None:
    """Events leave before the transaction that decides them is committed."""

    @asynccontextmanager
    async def transaction(
        ledger: SimulatedLedger, source: Source, group: str
    ) -> AsyncIterator[Any]:
        session = ledger.open_session()
        yield SimulatedTransaction(ledger, session, source, group)
        ledger.world.later(ledger.world.chance.uniform(0.0, 0.5), _finish, ledger, session)

    def _finish(ledger: SimulatedLedger, session: Session) -> None:
        if session.alive and session.page is not None and session.cursor is not None:
            session.committing = True
            done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            ledger._apply(session, session.cursor.source, "gate", done)

    patch.setattr(SimulatedLedger, "transaction", transaction)


def take_without_waiting(patch: Patch) -> None:
    """Step (b) writes its token without waiting for whoever holds the row."""

    async def take(
        self: SimulatedLedger, topic: str, number: int, group: str, token: bytes
    ) -> Cursor | None:
        await asyncio.sleep(0)
        key = (topic, number, group)
        if key in self.tables.cursors:
            self.tables.tokens[key] = token
            self.owners[key] = PROCESS.get()
        return self.tables.cursors.get(key)

    patch.setattr(SimulatedLedger, "take", take)


def unending_wait(patch: Patch) -> None:
    """After a failure the partition never tries again."""

    async def never(*_: object) -> None:
        await asyncio.get_running_loop().create_future()

    patch.setattr(partition.Partition, "_wait", never)


MUTATIONS: dict[str, Callable[[Patch], None]] = {
    mutation.__name__: mutation
    for mutation in (
        no_token_in_claim,
        no_place_in_claim,
        counted_tokens,
        no_fencing_at_commit,
        emission_without_offsets,
        offsets_outside_the_transaction,
        emitted_cursor_before_init,
        emitted_cursor_after_the_token,
        unchecked_produce,
        owed_not_emitted,
        cursor_outside_the_transaction,
        settling_without_probing,
        no_unique_key,
        decision_set_not_compared,
        no_answer_taken_for_no_schema,
        unanswered_commit_taken_for_done,
        unanswered_emission_repeated,
        early_emission,
        take_without_waiting,
        unending_wait,
    )
}


def first_to_notice(mutation: Callable[[Patch], None], seeds: Sequence[int]) -> Result | None:
    """The first of these seeds that fails under the mutation."""
    for seed in seeds:
        with pytest.MonkeyPatch.context() as patch:
            mutation(patch)
            found = simulate(seed)
        if found.failures:
            return found
    return None


def main() -> int:
    """Try the mutations and say which seed notices each."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.mutations")
    parser.add_argument("name", nargs="?", choices=MUTATIONS)
    parser.add_argument("--seeds", type=int, default=SEEDS)
    chosen = parser.parse_args()
    unnoticed = 0
    for name in [chosen.name] if chosen.name else MUTATIONS:
        found = first_to_notice(MUTATIONS[name], range(chosen.seeds))
        unnoticed += found is None
        what = "NOT NOTICED" if found is None else f"seed {found.seed}: {found.failures[0][:90]}"
        print(f"{name:36} {what}", flush=True)  # noqa: T201 - a command talks to its user
    return 1 if unnoticed else 0


if __name__ == "__main__":
    sys.exit(main())
