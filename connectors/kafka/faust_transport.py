"""What Faust lacks for readers of committed topics: isolation, honest acks, awaited table writes.

Faust reads with `read_committed` only under its own `exactly_once`, which binds its transactional
ids to output partitions and crashes on rebalances. Here its at-least-once mode is kept, made
strict; an update that may be repeated without harm does the rest.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping
from contextlib import aclosing
from typing import Any, cast

import faust
from faust.transport.drivers import aiokafka as driver

PAUSE_S = 0.05
"""Between looks whether fetching may go on."""


class _CommittedThread(driver.AIOKafkaConsumerThread):
    """The thread that makes and owns the aiokafka consumer."""

    def _create_worker_consumer(self, transport: driver.Transport) -> Any:  # noqa: ANN401 - untyped
        consumer = super()._create_worker_consumer(transport)
        # Faust derives it from `processing_guarantee` alone. The client reads it when it starts.
        consumer._isolation_level = "read_committed"  # noqa: SLF001 - no public way
        return consumer


class _CommittedConsumer(driver.Consumer):
    """Faust's consumer without its ways to lose messages of a stream around a rebalance.

    After a rebalance Faust lets streams flow, then seeks them to where the group stands, then
    empties their buffers. What is fetched in between may be emptied away after the seek, or come
    late and be taken for what follows a gap. Here nothing is fetched from before the seek until
    buffers are empty, and what was fetched before is dropped.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401 - as in Faust
        super().__init__(*args, **kwargs)
        self._asked: set[Any] = set()
        """Partitions of streams that Faust wants to flow."""
        self._sought: set[Any] = set()
        """Those of them that stand where the group does."""
        self._seeks = 0
        self._seeking = False
        """From a seek until the flow is resumed."""
        self._fetching = asyncio.Lock()

    def pause_partitions(self, tps: Iterable[Any]) -> None:
        """Stop partitions, also those that wait to flow, or for room in a buffer."""
        paused = set(tps)
        for waiting in (self._asked, self._sought, self._buffered_partitions):
            waiting.difference_update(paused)
        super().pause_partitions(paused)

    def resume_partitions(self, tps: Iterable[Any]) -> None:
        """Let changelogs flow, and remember streams."""
        asked = set(tps)
        changelogs = {tp for tp in asked if self._is_changelog_tp(tp)}
        self._asked |= asked - changelogs
        super().resume_partitions(changelogs)

    async def perform_seek(self) -> None:
        """Seek all streams to where the group stands, when a fetch that is under way has ended."""
        self._seeking = True
        self._seeks += 1
        asked = set(self._asked)
        async with self._fetching:
            await super().perform_seek()
        self._sought |= asked & self._asked

    def resume_flow(self) -> None:
        """Let the streams flow that stand where the group does: Faust has just emptied buffers."""
        super().resume_flow()
        super().resume_partitions(self._sought)
        self._asked -= self._sought
        self._sought.clear()
        self._seeking = False

    async def getmany(self, timeout: float) -> AsyncIterator[Any]:  # noqa: ASYNC109 - as in Faust
        """What was fetched, as long as it is not from before a seek."""
        seeks = self._seeks
        fetched = cast("AsyncGenerator[Any, None]", super().getmany(timeout))
        async with aclosing(fetched):
            async for one in fetched:
                if seeks != self._seeks:
                    return
                yield one

    async def _getmany(self, active_partitions: Any, timeout: float) -> Any:  # noqa: ANN401, ASYNC109 - as in Faust
        """Fetch from the partitions that are active now. Faust hands its own set to a thread and
        empties it meanwhile, and of an empty set aiokafka takes the records of all partitions."""
        async with self._fetching:
            active = set(active_partitions)
            if self._seeking or not active:
                await asyncio.sleep(PAUSE_S)
                return {}
            return await super()._getmany(active, timeout)

    async def seek_to_committed(self) -> Mapping[Any, int]:
        """Faust leaves a partition where it is when the group has committed nothing of it; it must
        begin again as well."""
        found: Mapping[Any, int] = await super().seek_to_committed()
        never = [tp for tp, offset in found.items() if not offset and not self._is_changelog_tp(tp)]
        if never:
            await self._thread.seek_to_beginning(*never)
        return found

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
        """Wait until the broker has acknowledged all changes, those of a cancelled wait included.

        Raises what a produce failed with.
        """
        if not self._unwritten:
            return
        await asyncio.wait(self._unwritten)  # cancelled, it leaves the changes as they are
        done, self._unwritten = self._unwritten, []
        for one in done:
            one.result()
