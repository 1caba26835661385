"""Chunks to Kafka: each in one transaction, each once, at a bounded rate.

1. Start: InitProducerId fences any other publisher of this publication and ends its transaction.
2. Read the publication's offset: so many chunks are in.
3. Per chunk: records, with a run's last chunk its manifest, and the offset, in one transaction.
4. Trouble: drop the producer and begin at 1; the offset says whether the chunk at work is in.

| it ends | afterwards |
| --- | --- |
| before 3 | nothing of the chunk is on the topic |
| in 3 | readers see none of it until the commit; 1 aborts what was left open |
| after the commit, its answer lost | 2 says that it is in |
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
import uuid
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass

import structlog

from connectors.errors import BrokerUnavailable, Fenced, Stop, invariant
from connectors.kafka.admin import KafkaAdmin
from connectors.kafka.publication import KafkaPublication, partition_of
from connectors.kafka.settings import KafkaSettings
from connectors.kafka.transaction import Delivery
from schemas.chunk import Member
from schemas.envelope import CHUNK, CHUNK_DECLARE, Headers
from streams.backoff import Backoff
from streams.publishing.chunks import Chunk, Plan
from streams.publishing.run_manifest import RunManifests
from streams.publishing.state import State

log = structlog.get_logger("weighbridge.publish")

STALLED_S = 60.0
"""Without any chunk going in for this long a publication gives up; the same command goes on."""
FENCED_MAX = 3
"""So often in a row another producer may take over before we leave the publication to it."""
KEYLESS_ROWS = 500
"""Rows without a key go to one partition this many lines at a time: full batches, all of them."""
RETRY_FIRST_S, RETRY_MAX_S = 0.5, 5.0


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A record as it is sent."""

    key: bytes | None
    value: bytes
    headers: Headers


def attempt_of(publication: uuid.UUID, chunk: Chunk) -> str:
    """The attempt of a chunk: the same whenever this publication sends it again."""
    return str(uuid.uuid5(publication, f"{chunk.run}/{chunk.number}"))


def partition_of_chunk(run: str, number: int, partitions: int) -> int:
    """A chunk's one partition: a run's chunks take turns over all of them."""
    return (partition_of(run.encode(), partitions) + number) % partitions


def deliveries(topic: str, partitions: int, chunk: Chunk, of: int, attempt: str) -> list[Delivery]:
    """A chunk's records: of a run, in order to one partition, with chunk headers; without a run,
    spread by their keys."""
    if chunk.run is None:
        return _spread(topic, partitions, chunk)
    messages = [
        Outgoing(row.key, row.value, (*row.headers, (CHUNK, Member(attempt, seq).header())))
        for seq, row in enumerate(chunk.rows, 1)
    ]
    first = messages[0]
    declared = (*first.headers, (CHUNK_DECLARE, chunk.declaration(of).header()))
    messages[0] = Outgoing(first.key, first.value, declared)
    return [Delivery(topic, partition_of_chunk(chunk.run, chunk.number, partitions), messages)]


def _spread(topic: str, partitions: int, chunk: Chunk) -> list[Delivery]:
    by_partition: dict[int, list[Outgoing]] = {}
    for row in chunk.rows:
        partition = (
            row.line // KEYLESS_ROWS % partitions
            if row.key is None
            else partition_of(row.key, partitions)
        )
        by_partition.setdefault(partition, []).append(Outgoing(row.key, row.value, row.headers))
    return [Delivery(topic, partition, rows) for partition, rows in sorted(by_partition.items())]


class Pacer:
    """Holds chunks back so that over any time no more records go than the rate allows, plus one
    chunk."""

    def __init__(self, records_per_s: int | None) -> None:
        self._rate = records_per_s
        self._free_at_s = 0.0

    def wait_s(self, records: int, now_s: float) -> float:
        """Seconds until so many records may go; they are taken as gone then."""
        if self._rate is None:
            return 0.0
        begin_s = max(self._free_at_s, now_s)
        self._free_at_s = begin_s + records / self._rate
        return begin_s - now_s


class Sender:
    """Sends the chunks of one publication."""

    def __init__(
        self,
        settings: KafkaSettings,
        admin: KafkaAdmin,
        state: State,
        plan: Plan,
        manifests: RunManifests,
        *,
        pacer: Pacer,
        stop: asyncio.Event,
        on_in: Callable[[int, Chunk, bool], None],
    ) -> None:
        """`on_in` is told of every chunk that is in: its number in the file, from 1, the chunk, and
        whether this call has sent it."""
        self._settings, self._admin = settings, admin
        self._state, self._plan, self._manifests = state, plan, manifests
        self._pacer, self._stop, self._on_in = pacer, stop, on_in
        self._publication: KafkaPublication | None = None
        self._done = state.chunks_done
        """Chunks that are in, as far as we know."""
        self.forgotten = False
        """Whether Kafka no longer knew the publication, so that the state's own count was used."""

    async def run(self, chunks: Iterator[Chunk]) -> bool:
        """Send what is not in; True when all is, False when told to stop between two chunks.

        Raises `BrokerUnavailable` past
        `STALLED_S`, `Stop`, `Fenced`, `ConfigurationError`, `MalformedFile`.
        """
        upcoming = asyncio.create_task(asyncio.to_thread(next, chunks, None))
        try:
            await self._until_done(self._settle)
            number = 0
            while (chunk := await upcoming) is not None:
                number += 1
                upcoming = asyncio.create_task(asyncio.to_thread(next, chunks, None))
                if not await self._chunk(chunk, number):
                    return False
            invariant(number == self._plan.chunks, "all planned chunks are met")
            return True
        finally:
            await asyncio.gather(upcoming, return_exceptions=True)  # it reads the file until then
            await self._drop()

    async def _chunk(self, chunk: Chunk, number: int) -> bool:
        """Send it unless it is in; False when told to stop before."""
        topic, partitions = self._state.target.topic, self._state.partitions
        attempt, of, manifest = attempt_of(self._state.publication, chunk), 0, None
        if chunk.run is not None:
            of = self._plan.runs[chunk.run].chunks
            partition = partition_of_chunk(chunk.run, chunk.number, partitions)
            manifest = self._manifests.add(chunk, attempt, partition)
        if number <= self._done:
            self._on_in(number, chunk, False)
            return True
        await self._pause(self._pacer.wait_s(len(chunk.rows), time.monotonic()))
        if self._stop.is_set():
            return False
        out = deliveries(topic, partitions, chunk, of, attempt)
        out += [] if manifest is None else [manifest]
        await self._until_done(lambda: self._send(out, number))
        self._on_in(number, chunk, True)
        return True

    async def _pause(self, seconds: float) -> None:
        """Wait, or until told to stop."""
        if seconds > 0:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._stop.wait()

    # -- 1 to 4 ------------------------------------------------------------------------------------

    async def _until_done(self, step: Callable[[], Awaitable[object]]) -> None:
        """4: try a step again, with a new producer, until it is done or nothing helps."""
        backoff = Backoff(RETRY_FIRST_S, RETRY_MAX_S, random.Random())  # noqa: S311 - jitter
        began_s, fenced = time.monotonic(), 0
        while True:
            try:
                await step()
            except (BrokerUnavailable, Fenced) as error:
                await self._drop()
                fenced += isinstance(error, Fenced)
                stalled = time.monotonic() - began_s > STALLED_S
                if stalled or fenced > FENCED_MAX or self._stop.is_set():
                    raise
                log.warning("publishing_again", why=str(error), chunks_done=self._done)
                await self._pause(backoff.next_s())
            else:
                return

    async def _send(self, out: list[Delivery], number: int) -> None:
        """3, after 1 and 2 where the producer is new."""
        publication = await self._settle()
        if self._done < number:
            await publication.send(out, number)
            self._done = number

    async def _settle(self) -> KafkaPublication:
        """1 and 2."""
        if self._publication is not None:
            return self._publication
        target = self._state.target
        self._publication = publication = KafkaPublication(
            self._settings,
            self._admin,
            str(self._state.publication),
            target.topic,
            *self._manifests.topics,
        )
        found = await publication.start()
        if found is None:
            self.forgotten |= self._done > 0
            return publication
        # The chunk at work may be in although its answer was lost; no other can be.
        if not self._done <= found <= self._plan.chunks:
            message = (
                f"publication {self._state.publication}: Kafka has {found} of its chunks, its "
                f"state says {self._done} of {self._plan.chunks}: the state is old, or the "
                "group's offset was moved. Publish the file anew with --again"
            )
            raise Stop(message)
        self._done = found
        return publication

    async def _drop(self) -> None:
        publication, self._publication = self._publication, None
        if publication is not None:
            await publication.close()
