"""KafkaSource: the one consumer of a worker, handing out whole batches of one partition (step 1).

It owns group membership and reading; where to read from, and what was done with it, belong to the
protocol. What aiokafka 0.14 does, and what follows from it here:

- `getmany` over several partitions loses what it has drained of one when another raises: partitions
  are drained one at a time, and waiting takes at most one record.
- It drops what was prefetched of a paused partition: partitions that take no batch are not asked,
  rather than paused. It prefetches one fetch of each and no more.
- Markers and aborted records move the position without any record.
- A record too large for a fetch moves the position by one: that is a stop here, never a skip.
- A recreated topic is read on as if nothing had happened: batches leave only under the topic id
  that assignment looked into.
"""

from __future__ import annotations

import asyncio
import math
import time
from bisect import bisect_right
from collections.abc import Awaitable, Collection, Sequence
from typing import NoReturn

import structlog
from aiokafka import AIOKafkaConsumer, ConsumerStoppedError, TopicPartition
from aiokafka import errors as kafka

from connectors.errors import (
    BrokerUnavailable,
    ConfigurationError,
    OwnershipLost,
    PartitionStop,
    invariant,
)
from connectors.kafka import unreadable
from connectors.kafka.faults import bounded, translated
from connectors.kafka.log_access import LogAccess
from connectors.kafka.membership import Handover, Listener, Place, leave, make_consumer
from connectors.kafka.reading import BatchBounds, Reading
from connectors.kafka.settings import KafkaSettings
from connectors.kafka.unreadable import OF_SOME_PARTITION
from connectors.ports import Fetched

log = structlog.get_logger("weighbridge.source")

GATHERED_BATCHES_MAX = 2
"""How many batches' worth of bytes may gather over all partitions before one leaves early."""
TOPIC_CHECK_S = 5.0
"""How often it is asked whether the topics are still there, when no batch asks."""
FETCH_AGAIN_MS = 200
_NOTHING = TopicPartition("", -1)
"""Asking aiokafka for this counts as polling, waits as told, and takes no partition's records."""


class KafkaSource(LogAccess):
    """Reads raw topics as a member of the group. One task at a time may call `next_batch`."""

    def __init__(self, settings: KafkaSettings) -> None:
        super().__init__(settings)
        self._settings = settings
        self._bounds = BatchBounds(
            settings.batch_records_max, settings.batch_bytes_max, settings.batch_linger_ms / 1000
        )
        self._consumer: AIOKafkaConsumer | None = None
        self._topics: Sequence[str] = ()
        self._listener: Listener | None = None
        self._readings: dict[Place, Reading] = {}
        self._last_served: Place = ("", -1)
        self._check_topics_at_s = 0.0

    # -- life --------------------------------------------------------------------------------------

    async def start(
        self, topics: Collection[str], on_assigned: Handover, on_revoked: Handover
    ) -> None:
        """Join the group. Returns before partitions are assigned.

        The callbacks are called from inside the rebalance, where no heartbeat is sent: they must
        only record the change. Raises `ConfigurationError` when a topic does not exist, and
        `BrokerUnavailable` (retryable); nothing is left open then.
        """
        invariant(self._consumer is None, "a source is started once")
        self._topics = sorted(topics)
        self._listener = Listener(
            on_assigned, on_revoked, before_assigned=self._pause, before_revoked=self._forget
        )
        try:
            await self._check_topics_exist()
            await self._join()
        except BaseException:
            await self.stop()
            raise

    async def _check_topics_exist(self) -> None:
        missing = set(self._topics) - set(await self._admin.topics(self._topics))
        if missing:
            message = (
                f"no topic {', '.join(sorted(missing))} at {self._settings.bootstrap}: "
                "`weighbridge topics create` makes it"
            )
            raise ConfigurationError(message)

    async def _join(self) -> None:
        consumer = make_consumer(self._settings)
        try:
            async with bounded("joining the group", self._settings.call_deadline_s):
                await consumer.start()
        except BaseException:
            await leave(consumer, self._settings.close_deadline_s)
            raise
        self._consumer = consumer
        consumer.subscribe(self._topics, listener=self._listener)

    async def stop(self) -> None:
        """Leave the group and close all connections, within a few seconds. Never raises."""
        consumer, self._consumer = self._consumer, None
        self._forget(list(self._readings))
        if consumer is not None:
            await leave(consumer, self._settings.close_deadline_s)
        await self._quietly(self._log.close())
        await self._quietly(self._admin.close())

    async def _quietly(self, closing: Awaitable[None]) -> None:
        try:
            async with asyncio.timeout(self._settings.close_deadline_s):
                await closing
        except Exception as error:  # noqa: BLE001 - it is being closed; nothing is left to be done
            log.warning("close_failed", error=type(error).__name__)

    async def _join_again(self) -> None:
        """The consumer's coordination has ended on an error and does not come back by itself."""
        log.warning("joining_again", group=self._settings.group)
        if self._listener is not None:
            self._listener.revoke_all()
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            await leave(consumer, self._settings.close_deadline_s)
        await self._join()

    def _member(self) -> AIOKafkaConsumer:
        if self._consumer is None:
            message = f"this worker is not in group {self._settings.group}"
            raise BrokerUnavailable(message)
        return self._consumer

    # -- assignment --------------------------------------------------------------------------------

    def _pause(self, places: Collection[Place]) -> None:
        self._member().pause(*(TopicPartition(*place) for place in places))

    def _forget(self, places: Collection[Place]) -> None:
        for place in places:
            self._readings.pop(place, None)
        self._forget_topics(places)

    def seek(
        self, topic: str, partition: int, offset: int, aside: frozenset[int] = frozenset()
    ) -> None:
        """Read on from here; whatever was read of this partition before is dropped.

        What cannot be read at an offset in `aside` is handed out as `Unread` instead of a stop.
        Raises `OwnershipLost` when the group has taken the partition away meanwhile.
        """
        place, consumer = TopicPartition(topic, partition), self._member()
        try:
            consumer.seek(place, offset)
            consumer.resume(place)
        except kafka.IllegalStateError:
            message = f"{topic}/{partition}: the group has taken it away"
            raise OwnershipLost(message) from None
        looked_into = self._topic_ids.get((topic, partition))
        self._readings[topic, partition] = Reading(topic, partition, offset, looked_into, aside)

    # -- reading -----------------------------------------------------------------------------------

    async def next_batch(
        self, ready: Collection[Place], *, timeout_s: float
    ) -> tuple[str, int, Fetched] | None:
        """A batch of one of these partitions, in turn; None when none became due in time.

        Bounded in records and bytes. Polls the group alive whatever `ready` holds, so it must be
        called again and again. Safe to cancel: no record is lost. During a rebalance it may wait
        longer than asked. Raises `BrokerUnavailable` (retryable), `PartitionStop`,
        `ConfigurationError`.
        """
        consumer, deadline_s = self._member(), time.monotonic() + timeout_s
        await self._check_topics()
        while True:
            places = self._in_turn(ready)
            wait_until_s = deadline_s
            for place in places:
                due_at_s = await self._gather(consumer, place)
                if due_at_s is None:
                    continue
                if due_at_s <= time.monotonic():
                    return await self._hand_out(place)
                wait_until_s = min(wait_until_s, due_at_s)
            if time.monotonic() >= deadline_s:
                return None
            await self._wait(consumer, places, wait_until_s)

    def _in_turn(self, ready: Collection[Place]) -> list[Place]:
        """Those being read, beginning after the one served last."""
        places = sorted(place for place in ready if place in self._readings)
        first = bisect_right(places, self._last_served)
        return places[first:] + places[:first]

    async def _gather(self, consumer: AIOKafkaConsumer, place: Place) -> float | None:
        """Take what is prefetched of one partition; says when its batch is due, if there is any."""
        reading = self._readings.get(place)
        while reading is not None and (wanted := reading.wanted(self._bounds)):
            before = reading.reached
            try:
                await self._take(consumer, reading, wanted)
            except Exception as error:  # noqa: BLE001 - foreign bytes make aiokafka raise anything
                await self._cannot_read(reading, error)
            if self._readings.get(place) is not reading:
                return None  # sought again or taken away meanwhile
            if reading.reached == before:
                break
        if reading is None:
            return None
        due_at_s = reading.due_at_s(self._bounds, self._last_stable_offset(place))
        gathered = sum(r.gathered_bytes for r in self._readings.values())
        if due_at_s is not None and gathered > GATHERED_BATCHES_MAX * self._bounds.bytes_max:
            return 0.0
        return due_at_s

    async def _take(
        self, consumer: AIOKafkaConsumer, reading: Reading, wanted: int, wait_ms: int = 0
    ) -> None:
        place = TopicPartition(reading.topic, reading.partition)
        found = await consumer.getmany(place, timeout_ms=wait_ms, max_records=wanted)
        # If it was sought meanwhile, what was taken belongs to the reading that began then. Since
        # then it has a position: asking for it does not wait.
        current = self._readings.get((reading.topic, reading.partition))
        if current is not None:
            position = await consumer.position(place)
            current.add(found.get(place, ()), position, time.monotonic())

    async def _wait(
        self, consumer: AIOKafkaConsumer, places: Sequence[Place], until_s: float
    ) -> None:
        """Wait until something is there for one of these partitions, or time is up.

        Takes at most one record, so that an error of one partition costs no other's records.
        """
        asked = [TopicPartition(*place) for place in places] or [_NOTHING]
        wait_ms = max(1, math.ceil((until_s - time.monotonic()) * 1000))
        try:
            found = await consumer.getmany(*asked, timeout_ms=wait_ms, max_records=1)
        except OF_SOME_PARTITION:
            await self._find_unreadable(consumer, places)
            return
        except (kafka.KafkaError, ConsumerStoppedError) as error:
            place = unreadable.place_of(error)
            if place is None:
                await self._group_failed(error)
            elif place in self._readings:
                await self._cannot_read(self._readings[place], error)
            return
        for source, records in found.items():
            current = self._readings.get((source.topic, source.partition))
            if current is not None:
                current.add(records, records[-1].offset + 1, time.monotonic())

    async def _hand_out(self, place: Place) -> tuple[str, int, Fetched] | None:
        """Cut the batch, once its topic is known to be the one that assignment looked into."""
        reading = self._readings[place]
        why = await self._why_not_same(reading.topic, reading.topic_id)
        if self._readings.get(place) is not reading:
            return None
        if why is not None:
            self._stop(place, why)
        self._last_served = place
        return reading.topic, reading.partition, reading.cut(self._bounds, time.monotonic())

    async def _check_topics(self) -> None:
        """Notice topics that went away or were replaced though nothing comes from them."""
        if time.monotonic() < self._check_topics_at_s:
            return
        self._check_topics_at_s = time.monotonic() + TOPIC_CHECK_S
        for topic in self._topics:
            readings = [r for r in self._readings.values() if r.topic == topic]
            if readings:
                why = await self._why_not_same(topic, readings[0].topic_id)
                if why is not None:
                    self._stop((topic, readings[0].partition), why)
            elif topic not in await self._admin.topics([topic]):  # given up without a word
                log.error("topic_missing", topic=topic, group=self._settings.group)

    # -- what cannot be read -----------------------------------------------------------------------

    async def _cannot_read(self, reading: Reading, error: Exception) -> None:
        """Say what stands in the way of one partition, or set about reading up to it."""
        place = (reading.topic, reading.partition)
        match error:
            case kafka.NoOffsetForPartitionError():
                return  # from before it was sought
            case kafka.IllegalStateError():
                self._forget([place])  # taken away; the listener is about to be told
            case kafka.OffsetOutOfRangeError():
                await self._out_of_range(place, reading.reached)
            case kafka.RecordTooLargeError():
                await self._pass_or_stop(reading, error)
            case kafka.UnsupportedCodecError():
                raise unreadable.no_codec(reading.topic, error) from None
            case UnicodeDecodeError():
                try:
                    await self._read_leniently(reading)
                except (kafka.CorruptRecordException, kafka.OffsetOutOfRangeError) as found:
                    await self._cannot_read(reading, found)
            case _ if isinstance(error, OF_SOME_PARTITION):
                await self._undecodable(reading, error)
            case _:
                await self._group_failed(error)

    def _stop(self, place: Place, why: str) -> NoReturn:
        self._forget([place])
        raise PartitionStop(place, why) from None

    async def _find_unreadable(self, consumer: AIOKafkaConsumer, places: Sequence[Place]) -> None:
        """Ask partitions one by one for the record that could not be decoded.

        The fetch it came in has been dropped, so each is given the time to fetch again.
        """
        for place in places:
            reading = self._readings.get(place)
            if reading is not None and reading.wanted(self._bounds):
                try:
                    await self._take(consumer, reading, 1, wait_ms=FETCH_AGAIN_MS)
                except Exception as error:  # noqa: BLE001 - as in `_gather`
                    await self._cannot_read(reading, error)

    async def _out_of_range(self, place: Place, wanted: int) -> None:
        held = await self._log.log_range(*place)
        self._stop(place, unreadable.out_of_range(wanted, held.start_offset, held.end_offset))

    async def _read_leniently(self, reading: Reading) -> None:
        """Read past a header's name that is not UTF-8: the record is one like any other."""
        place, wanted = (reading.topic, reading.partition), reading.wanted(self._bounds)
        records, position = await self._log.read_leniently(*place, reading.reached, wanted)
        if self._readings.get(place) is reading:
            self._member().seek(TopicPartition(*place), position)
            reading.add(records, position, time.monotonic())

    async def _undecodable(self, reading: Reading, error: Exception) -> None:
        """A producer batch holds something that aiokafka cannot decode, perhaps after good records.

        Good records before it are read one by one; then it is named, and stops the partition.
        """
        if not reading.cautious:
            reading.cautious = True
        else:
            await self._pass_or_stop(reading, error)

    async def _pass_or_stop(self, reading: Reading, error: Exception) -> None:
        """What cannot be read stops the partition, unless an operator set it aside."""
        place = (reading.topic, reading.partition)
        blocked = await self._log.blocked_at(*place, reading.reached)
        if self._readings.get(place) is not reading:
            return
        records, position = blocked.passed(reading.aside, type(error).__name__)
        if position == blocked.first:
            self._stop(place, unreadable.in_the_way(place, blocked, error))
        self._member().seek(TopicPartition(*place), position)
        reading.cautious = False
        reading.add(records, position, time.monotonic())

    async def _group_failed(self, error: Exception) -> NoReturn:
        """Something other than one partition's data failed."""
        if type(error) is kafka.KafkaError:
            await self._join_again()
        if isinstance(error, kafka.KafkaError | ConsumerStoppedError):
            what = f"group {self._settings.group}"
            raise translated(what, error) from None
        raise error

    # -- what is known -----------------------------------------------------------------------------

    def _last_stable_offset(self, place: Place) -> int | None:
        consumer, partition = self._member(), TopicPartition(*place)
        if partition not in consumer.assignment():
            return None
        found: int | None = consumer.last_stable_offset(partition)
        return found

    async def lag(self, topic: str, partition: int) -> int | None:
        """Last stable offset, as of the last fetch, minus where the last batch ended.

        Does not ask the broker. None before the first fetch and when not assigned.
        """
        reading = self._readings.get((topic, partition))
        if reading is None or self._consumer is None:
            return None
        stable = self._last_stable_offset((topic, partition))
        return None if stable is None else max(0, stable - reading.begin)
