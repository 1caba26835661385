"""What Faust lacks for readers of committed topics: isolation, honest acks, awaited table writes.

Faust reads with `read_committed` only under its own `exactly_once`, which binds its transactional
ids to output partitions and crashes on rebalances. Here its at-least-once mode is kept, made
strict; an update that may be repeated without harm does the rest.
"""

from __future__ import annotations

import asyncio
from typing import Any

import faust
from faust.transport.drivers import aiokafka as driver


class _CommittedThread(driver.AIOKafkaConsumerThread):
    """The thread that makes and owns the aiokafka consumer."""

    def _create_worker_consumer(self, transport: driver.Transport) -> Any:  # noqa: ANN401 - untyped
        consumer = super()._create_worker_consumer(transport)
        # Faust derives it from `processing_guarantee` alone. The client reads it when it starts.
        consumer._isolation_level = "read_committed"  # noqa: SLF001 - no public way
        return consumer


class _CommittedConsumer(driver.Consumer):
    def _new_consumer_thread(self) -> _CommittedThread:
        return _CommittedThread(self, loop=self.loop, beacon=self.beacon)

    def ack(self, message: Any) -> bool:  # noqa: ANN401 - as in Faust
        """Faust acknowledges messages of a former assignment when it skips them, and then commits
        past messages that nobody has worked on. Those are not acknowledged here: they come again.
        """
        app = self.app
        if message.generation_id != app.consumer_generation_id or not app.flow_control.is_active():
            return False
        return bool(super().ack(message))

    def _to_message(self, tp: Any, record: Any) -> Any:  # noqa: ANN401 - as in Faust
        """Faust takes a read offset of 0 for none, sees no gap after it, and would commit nothing
        more when markers or aborted records follow the first message of a partition."""
        if self._read_offset[tp] == 0 and record.offset > 1:
            self._gap[tp].addi(1, record.offset)
        return super()._to_message(tp, record)


class CommittedTransport(driver.Transport):
    """Faust's Kafka transport, reading with `read_committed`."""

    Consumer = _CommittedConsumer


class CommittedApp(faust.App):
    """A Faust app that consumes through `CommittedTransport`."""

    def _new_transport(self) -> CommittedTransport:
        return CommittedTransport(self.conf.broker_consumer, self)


class AwaitedTable(faust.Table[Any, Any]):
    """A table whose change can be awaited: Faust only tries to flush changes before it commits.

    For a table that one agent of concurrency 1 writes.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401 - as in Faust
        super().__init__(*args, **kwargs)
        self._unwritten: list[asyncio.Future[Any]] = []

    def send_changelog(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - as in Faust
        """Send a change, and remember it until `written`."""
        sent = super().send_changelog(*args, **kwargs)
        self._unwritten.append(sent)
        return sent

    async def written(self) -> None:
        """Wait until the broker has acknowledged all changes. Raises what a produce failed with."""
        unwritten, self._unwritten = self._unwritten, []
        await asyncio.gather(*unwritten)
