"""Membership in the consumer group: the consumer's settings, and the listener that hands over.

Dynamic membership: two live processes with one static id take the group from each other without
end. The sticky assignor: aiokafka has no cooperative one, but this one gives partitions back to
whoever had them. No offset commits and no offset resets: positions belong to the protocol.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Collection
from typing import Any, NoReturn

import structlog
from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, TopicPartition
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from aiokafka.errors import KafkaConnectionError

from connectors.kafka.settings import KafkaSettings

log = structlog.get_logger("weighbridge.source")

_GRACE_S = 1.0

Place = tuple[str, int]
"""Topic and partition."""
Handover = Callable[[Collection[Place]], None]

METADATA_AGE_MS_MAX = 30_000
"""How soon new partitions, or a topic that is there again, are noticed."""


def make_consumer(settings: KafkaSettings) -> AIOKafkaConsumer:
    """The group's consumer, not yet started and without topics."""
    # aiokafka keeps the sticky assignor's memory in its class: a class per consumer.
    sticky = type("StickyAssignor", (StickyPartitionAssignor,), {})
    options: dict[str, Any] = settings.client_options()
    # A JoinGroup waits for the whole group, up to the session timeout of its slowest member.
    options["request_timeout_ms"] += settings.session_timeout_ms
    return AIOKafkaConsumer(
        **options,
        group_id=settings.group,
        enable_auto_commit=False,
        auto_offset_reset="none",
        isolation_level="read_committed",
        partition_assignment_strategy=(sticky,),
        session_timeout_ms=settings.session_timeout_ms,
        heartbeat_interval_ms=settings.session_timeout_ms // 3,
        max_poll_interval_ms=settings.poll_interval_ms_max,
        max_partition_fetch_bytes=settings.fetch_partition_bytes_max,
        fetch_max_bytes=settings.fetch_bytes_max,
        fetch_max_wait_ms=settings.fetch_wait_ms_max,
        metadata_max_age_ms=METADATA_AGE_MS_MAX,
    )


async def leave(consumer: AIOKafkaConsumer, deadline_s: float) -> None:
    """Leave the group and close the consumer, within about `deadline_s`. Never raises.

    aiokafka waits for the coordinator's answer as long as for any other; past the deadline its
    connections are closed under it, and the group finds out by the session timeout.
    """
    stopping = asyncio.ensure_future(consumer.stop())
    await asyncio.wait({stopping}, timeout=deadline_s)
    if not stopping.done():
        log.warning("consumer_forced_to_stop")

        async def refuse(*_: Any, **__: Any) -> NoReturn:  # noqa: ANN401 - as aiokafka passes
            raise KafkaConnectionError

        client = consumer._client  # noqa: SLF001 - the only way to its connections
        client.send = refuse
        with contextlib.suppress(Exception):
            async with asyncio.timeout(_GRACE_S):
                await client.close()
        await asyncio.wait({stopping}, timeout=_GRACE_S)
        stopping.cancel()
        await asyncio.wait({stopping}, timeout=_GRACE_S)
    if stopping.done() and not stopping.cancelled() and stopping.exception() is not None:
        log.warning("close_failed", error=type(stopping.exception()).__name__)


class Listener(ConsumerRebalanceListener):  # type: ignore[misc] # untyped
    """Hands changes over and never waits: aiokafka sends no heartbeat in here.

    Our own callbacks see partitions before they are given and after they are taken, so that nothing
    is prefetched of a partition before its assignment has sought.
    """

    def __init__(
        self,
        on_assigned: Handover,
        on_revoked: Handover,
        *,
        before_assigned: Handover,
        before_revoked: Handover,
    ) -> None:
        self.held: set[Place] = set()
        self._on_assigned = on_assigned
        self._on_revoked = on_revoked
        self._before_assigned = before_assigned
        self._before_revoked = before_revoked

    def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
        """The group takes all partitions at the start of every rebalance."""
        taken = {(place.topic, place.partition) for place in revoked} & self.held
        self.held -= taken
        if taken:
            self._before_revoked(taken)
            self._on_revoked(taken)

    def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        """The group gives partitions."""
        self.held = {(place.topic, place.partition) for place in assigned}
        if self.held:
            self._before_assigned(self.held)
            self._on_assigned(frozenset(self.held))

    def revoke_all(self) -> None:
        """Membership ended without the group saying so."""
        self.on_partitions_revoked([TopicPartition(*place) for place in self.held])
