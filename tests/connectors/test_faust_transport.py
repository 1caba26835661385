"""What Faust's consumer must not do around a rebalance, one move at a time and without Kafka."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from faust.types import TP
from mode import Service

from connectors.kafka.faust_transport import AwaitedTable, CommittedApp, CommittedTransport

STREAM, OTHER = TP("dvir.committed", 0), TP("dvir.committed", 1)
CHANGELOG = TP("scorer-units-changelog", 0)
PLACES = {STREAM, OTHER, CHANGELOG}


def _record(place: TP, offset: int) -> Any:
    return SimpleNamespace(
        topic=place.topic,
        partition=place.partition,
        offset=offset,
        timestamp=None,
        timestamp_type=0,
        headers=(),
        key=b"",
        value=b"",
        checksum=None,
        serialized_key_size=0,
        serialized_value_size=0,
    )


class _Thread(Service):
    """Stands for the thread that owns the aiokafka consumer."""

    def __init__(self) -> None:
        super().__init__()
        self.committed: dict[TP, int | None] = {STREAM: 7, OTHER: None, CHANGELOG: None}
        self.rewound: list[TP] = []
        self.asked: list[set[TP]] = []

    async def seek_to_committed(self) -> Mapping[TP, int | None]:
        return self.committed

    async def seek_to_beginning(self, *places: TP) -> None:
        self.rewound += places

    def assignment(self) -> set[TP]:
        return set(PLACES)

    async def getmany(self, active: set[TP], _: float) -> dict[TP, list[Any]]:
        self.asked.append(active)
        return {place: [_record(place, n) for n in range(3)] for place in active}

    def highwater(self, _: TP) -> int:
        return 9


@pytest.fixture
async def consumer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A consumer that was just assigned a stream's partitions and a changelog's."""
    made = CommittedTransport.Consumer
    monkeypatch.setattr(made, "_new_consumer_thread", lambda _: _Thread())
    app = CommittedApp("scorer", broker="kafka://127.0.0.1:1", store="memory://", datadir=tmp_path)
    table = AwaitedTable(app, name="units", partitions=2, key_type=bytes, value_type=bytes)
    app.tables.add(table)
    app.topics._acking_topics.add(STREAM.topic)
    app.tables._changelogs[CHANGELOG.topic] = table
    found = app.transport.create_consumer(
        callback=lambda _: None,
        on_partitions_revoked=None,
        on_partitions_assigned=None,
    )
    found._set_active_tps(PLACES)
    found.pause_partitions(PLACES)
    return found


async def test_streams_flow_when_they_stand_where_the_group_does(consumer: Any) -> None:
    """Asking, seeking and resuming the flow come in this order; a changelog flows at once."""
    consumer.resume_partitions(PLACES)
    assert consumer._get_active_partitions() == {CHANGELOG}
    consumer.resume_flow()
    assert consumer._get_active_partitions() == {CHANGELOG}
    await consumer.perform_seek()
    assert consumer._get_active_partitions() == {CHANGELOG}
    consumer.resume_flow()
    assert consumer._get_active_partitions() == PLACES


async def test_a_rebalance_in_between_begins_again(consumer: Any) -> None:
    """A stream that was to flow and is paused again waits for a seek of its own."""
    consumer.resume_partitions({STREAM})
    await consumer.perform_seek()
    consumer._buffered_partitions.add(OTHER)
    consumer.pause_partitions(PLACES)
    consumer.resume_flow()
    consumer.on_buffer_drop(OTHER)
    assert consumer._get_active_partitions() == set()


async def test_a_stream_without_committed_offset_begins_again(consumer: Any) -> None:
    """Where the group has committed nothing, nothing may have been done: from the beginning. A
    changelog is read by the recovery, from where that says."""
    await consumer.perform_seek()
    assert consumer._thread.rewound == [OTHER]
    assert consumer._read_offset[STREAM] == 7


async def _fetched(consumer: Any) -> list[TP]:
    return [tp async for tp, _ in consumer.getmany(0.1)]


async def test_nothing_is_fetched_from_a_seek_until_the_flow_resumes(consumer: Any) -> None:
    """What aiokafka gave in between would be dropped, and not come again."""
    consumer.resume_partitions(PLACES)
    consumer.resume_flow()
    assert await _fetched(consumer) == [CHANGELOG] * 3
    await consumer.perform_seek()
    assert await _fetched(consumer) == []
    consumer.resume_flow()
    assert set(await _fetched(consumer)) == PLACES


async def test_a_fetch_asks_for_partitions_by_a_set_of_its_own(consumer: Any) -> None:
    """Faust changes its set while a thread reads it; an empty one means all to aiokafka."""
    consumer.resume_partitions({CHANGELOG})
    await consumer._getmany(consumer._active_partitions, 0.1)
    consumer.pause_partitions({CHANGELOG})
    assert await consumer._getmany(consumer._active_partitions, 0.1) == {}
    assert consumer._thread.asked == [{CHANGELOG}]


async def test_what_was_fetched_before_a_seek_is_dropped(consumer: Any) -> None:
    """It comes again, and must not pass for what follows a gap."""
    consumer.resume_partitions({STREAM})
    await consumer.perform_seek()
    consumer.resume_flow()
    fetched = consumer.getmany(0.1)
    assert (await anext(fetched))[1].offset == 0
    await consumer.perform_seek()
    consumer.resume_flow()
    assert [one async for one in fetched] == []


def _message(offset: int, generation: int = 1) -> Any:
    return SimpleNamespace(
        topic=STREAM.topic, tp=STREAM, offset=offset, generation_id=generation, acked=False
    )


async def test_only_messages_of_this_assignment_are_acknowledged(consumer: Any) -> None:
    """What Faust skips, because flow is suspended or its assignment is over, is not done."""
    consumer.app.consumer_generation_id = 1
    consumer._unacked_messages = set()
    assert not consumer.ack(_message(7))
    consumer.app.flow_control.resume()
    assert not consumer.ack(_message(7, generation=0))
    assert consumer._acked[STREAM] == []


async def test_offsets_go_on_past_markers_after_the_first_message(consumer: Any) -> None:
    """Markers and aborted records right behind offset 0 do not hold the committed offset up."""
    consumer.app.consumer_generation_id = 1
    consumer._read_offset[STREAM] = 0
    consumer._acked[STREAM] = [0]
    assert consumer._new_offset(STREAM) == 1
    consumer._committed_offset[STREAM] = 1
    consumer._to_message(STREAM, _record(STREAM, 6))
    consumer._acked[STREAM] = [6]
    assert consumer._new_offset(STREAM) == 7


async def test_a_change_that_was_not_written_raises(tmp_path: Path) -> None:
    """The failure of a produce reaches whoever awaits the table, once."""
    app = CommittedApp("scorer", broker="kafka://127.0.0.1:1", store="memory://", datadir=tmp_path)
    table = AwaitedTable(app, name="units", partitions=2, key_type=bytes, value_type=bytes)
    failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    failed.set_exception(ConnectionError())
    table._unwritten.append(failed)
    with pytest.raises(ConnectionError):
        await table.written()
    await table.written()


async def test_a_cancelled_wait_leaves_the_change_to_the_next(tmp_path: Path) -> None:
    """A change is awaited until it is acknowledged, whoever is cancelled meanwhile."""
    app = CommittedApp("scorer", broker="kafka://127.0.0.1:1", store="memory://", datadir=tmp_path)
    table = AwaitedTable(app, name="units", partitions=2, key_type=bytes, value_type=bytes)
    sent: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    table._unwritten.append(sent)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(table.written(), 0.01)
    again = asyncio.ensure_future(table.written())
    await asyncio.sleep(0.01)
    assert not again.done()
    sent.set_result(None)
    await again
