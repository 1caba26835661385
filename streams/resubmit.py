"""Sending rejects again.

A resubmission is done in this order, so that a crash between any two steps loses and doubles
nothing:

1. foresee  what would become of it now; what makes no sense is not sent (`resubmit_plan`)
2. record   the act, and corrected bytes, in one database transaction: from here on it is owed
3. send     the record and "sent up to this act" in one Kafka transaction
4. note     where the record stands

The next run begins by fencing this one and asking Kafka what step 3 got done: what was recorded
and not sent is sent first, what was sent and not noted is noted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Self

from connectors.errors import ConfigurationError, Fenced, Stop
from connectors.kafka.admin import KafkaAdmin
from connectors.kafka.publication import partition_of
from connectors.kafka.resubmitter import KafkaResubmitter
from connectors.kafka.settings import KafkaSettings
from connectors.ports import SchemaStore
from connectors.postgres import resubmissions
from connectors.postgres.ledger import PostgresLedger
from connectors.postgres.pool import Pool
from connectors.postgres.resubmissions import Intent
from schemas.avro_strict import AvroFault
from schemas.envelope import Record
from schemas.json_strict import DEPTH_MAX, JsonFault
from schemas.record_types import RECORD_TYPES
from schemas.resubmission import MARK_DIGEST_BYTES, Reject
from streams import batch as steps
from streams.decide import members_of
from streams.foresight import Candidate
from streams.publish import MESSAGE_BYTES_DEFAULT
from streams.publishing.rows import FRAMING_BYTES_MAX, KEY_BYTES_MAX
from streams.resubmit_plan import Item, Planned, Planner, Summary, Wanted

HEADERS_ROOM_BYTES = 1_024
"""What the headers of a resubmission may add to the record's size."""
OWED_AGE_MAX = timedelta(days=6)
"""Kafka forgets the offsets of an idle group after seven days (offsets.retention.minutes)."""


@dataclass(frozen=True, slots=True)
class Topic:
    """The raw topic that rejects go back to."""

    name: str
    partitions: int
    record_bytes_max: int


class Resubmission:
    """A run that acts, as a context manager: entering it fences any other run and sends what is
    owed. Raises `Stop` when it is fenced itself, or when Kafka and database disagree."""

    def __init__(
        self,
        pool: Pool,
        store: SchemaStore,
        kafka: KafkaSettings,
        *,
        who: str,
        why: str,
        even_if_sent: bool = False,
    ) -> None:
        self._pool = pool
        self._store = store
        self._kafka = kafka
        self._who = who
        self._why = why
        self._even_if_sent = even_if_sent
        self._stack = AsyncExitStack()
        self._topics: dict[str, Topic] = {}
        self._sent_up_to: dict[str, int] = {}
        self._admin = KafkaAdmin(kafka)
        self.owed = 0
        """Acts of earlier runs that this one has sent."""

    async def __aenter__(self) -> Self:
        deployment = await PostgresLedger(
            self._pool, next(iter(RECORD_TYPES.values()))
        ).deployment()
        try:
            await self._stack.enter_async_context(self._admin)
            resubmitter = KafkaResubmitter(self._kafka, self._admin, deployment)
            self._resubmitter = await self._stack.enter_async_context(resubmitter)
            for topic in await resubmissions.unsent(self._pool):
                self.owed += await self._resume(topic)
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def act(self, planned: Sequence[Planned]) -> list[Planned]:
        """Record, send and note what the plan says is to be sent; the plan, corrected where the
        topic would not take a record."""
        fitting = [(await self._fitting(item, one), one) for item, one in planned]
        chosen = [one for item, one in fitting if one is not None and item.outcome == "resubmit"]
        for name in sorted({one.reject.position.topic for one in chosen}):
            if name not in self._sent_up_to:
                await self._resume(name)
            mine = [one for one in chosen if one.reject.position.topic == name]
            intents = await self._intents(await self._topic(name), mine)
            await resubmissions.record(self._pool, self._who, self._why, intents)
            await self._pump(name)
        return fitting

    async def _fitting(self, item: Item, candidate: Candidate | None) -> Item:
        if candidate is None or item.outcome != "resubmit":
            return item
        topic = await self._topic(item.position.topic)
        if not too_large(candidate, topic.record_bytes_max):
            return item
        why = f"the topic takes records of at most {topic.record_bytes_max} bytes"
        return Item(item.position, "refused", item.verdict, why)

    # -- topics ------------------------------------------------------------------------------------

    async def _topic(self, name: str) -> Topic:
        if name not in self._topics:
            self._topics[name] = await self._looked_up(name)
        return self._topics[name]

    async def _looked_up(self, name: str) -> Topic:
        ours = {self._kafka.topic(one.raw_topic) for one in RECORD_TYPES.values()}
        found = (await self._admin.topics([name])).get(name)
        if name not in ours or not found:
            message = (
                f"rejects of topic {name} cannot be sent again: it is not a raw topic of these "
                f"settings (topic_prefix {self._kafka.topic_prefix!r}), or is not at "
                f"{self._kafka.bootstrap}"
            )
            raise ConfigurationError(message)
        try:
            config: Mapping[str, str] = (await self._admin.topic_configs([name]))[name]
        except ConfigurationError:
            config = {}
        limit = int(config.get("max.message.bytes", MESSAGE_BYTES_DEFAULT))
        return Topic(name, len(found), limit)

    # -- 2 -----------------------------------------------------------------------------------------

    async def _intents(self, topic: Topic, candidates: Sequence[Candidate]) -> list[Intent]:
        keys = await self._corrected_keys(candidates)
        return [_intent(topic, one, key) for one, key in zip(candidates, keys, strict=True)]

    async def _corrected_keys(self, candidates: Sequence[Candidate]) -> list[bytes | None]:
        """The message keys that a publisher would give corrected bytes."""
        records = [Record(0, one.corrected) for one in candidates]
        schemas = await steps.resolve_schemas(self._store, records)
        keys: list[bytes | None] = []
        for one in candidates:
            identity = None
            if one.corrected is not None:
                record_type = RECORD_TYPES[one.reject.record_type]
                try:
                    members, _ = members_of(one.corrected, record_type, DEPTH_MAX, schemas)
                    identity = record_type.identify(members)
                except (JsonFault, AvroFault):
                    identity = None
            key = None if identity is None else identity.encode("utf-8", "replace")
            keys.append(key if key is not None and len(key) <= KEY_BYTES_MAX else None)
        return keys

    # -- 3 and 4 -----------------------------------------------------------------------------------

    async def _resume(self, topic: str) -> int:
        """Learn what is sent, note it, and send what is owed; how many records that were."""
        await self._topic(topic)
        noted = await resubmissions.last_sent(self._pool, topic)
        mark = await self._resubmitter.sent(topic)
        if mark is None:
            await self._check_age(topic, noted)
            self._sent_up_to[topic] = noted
        else:
            digest = await resubmissions.digest_of(self._pool, topic, mark.last)
            if digest is None or digest[:MARK_DIGEST_BYTES] != mark.digest:
                message = (
                    f"{topic}: Kafka knows act {mark.last} as sent, and the database does not: it "
                    "was set back, or another one serves this deployment. Nothing was sent; what "
                    "was resubmitted since must be looked up in the topic first"
                )
                raise Stop(message)
            await resubmissions.note_sent(self._pool, topic, mark)
            self._sent_up_to[topic] = max(noted, mark.last)
        return await self._pump(topic)

    async def _check_age(self, topic: str, noted: int) -> None:
        """Without an offset, what is owed was never sent, or was sent so long ago that Kafka has
        forgotten."""
        oldest = await resubmissions.oldest_owed(self._pool, topic, noted)
        if oldest is None or self._even_if_sent or datetime.now(UTC) - oldest < OWED_AGE_MAX:
            return
        message = (
            f"{topic}: acts on record since {oldest:%Y-%m-%d} are not known to be sent, and Kafka "
            "may have forgotten. Sending them could give the topic a second copy, whose verdict "
            "would be duplicate at best: say --even-if-sent to do so"
        )
        raise Stop(message)

    async def _pump(self, topic: str) -> int:
        """Send everything recorded for a topic, in order."""
        sent = 0
        while waiting := await resubmissions.owed(self._pool, topic, self._sent_up_to[topic]):
            try:
                mark = await self._resubmitter.send(topic, waiting)
            except Fenced:
                message = (
                    "another `quarantine resubmit` has begun since and has taken over. What this "
                    "one has put on record is sent by that one or by the next; say the same again "
                    "to see"
                )
                raise Stop(message) from None
            await resubmissions.note_sent(self._pool, topic, mark)
            self._sent_up_to[topic] = mark.last
            sent += sum(1 for one in waiting if one.number <= mark.last)
        return sent


def _intent(topic: Topic, candidate: Candidate, key: bytes | None) -> Intent:
    reject = candidate.reject
    own_key = key if candidate.changed else reject.key
    return Intent(
        of=reject.position,
        digest_before=reject.raw_digest,
        digest=candidate.digest,
        attempt=candidate.attempt,
        to_partition=target_partition(own_key, reject.position.partition, topic.partitions),
        corrected=candidate.changed,
        key=own_key if candidate.changed else None,
        value=candidate.value if candidate.changed else None,
    )


def target_partition(key: bytes | None, before: int, partitions: int) -> int:
    """Where a record goes: by its key as publishers place it, so that it meets its likes; without
    one where it was before, which spreads them as they were. Pure."""
    return before % partitions if key is None else partition_of(key, partitions)


def too_large(candidate: Candidate, record_bytes_max: int) -> bool:
    """Whether a topic would not take this. Pure."""
    reject: Reject = candidate.reject
    size = len(candidate.value or b"") + len(reject.key or b"") + KEY_BYTES_MAX
    size += sum(len(name) + len(value or b"") for name, value in reject.headers)
    return size + HEADERS_ROOM_BYTES + FRAMING_BYTES_MAX > record_bytes_max


async def resubmit(
    planner: Planner,
    run: Resubmission,
    portions: Iterable[Sequence[Wanted]],
    on_progress: Callable[[int], None],
) -> Summary:
    """Send again what makes sense. May be repeated: what was sent is not sent twice.

    Raises `Stop`, `ConfigurationError`, `BrokerUnavailable`, `DatabaseUnavailable`,
    `SchemaStoreUnavailable`; what was done until then holds.
    """
    summary = Summary(acted=True, owed=run.owed)
    done = 0
    for portion in portions:
        planned = await run.act(await planner.plan(portion))
        for item, _ in planned:
            summary.add(item)
        done += len(portion)
        on_progress(done)
    return summary
