"""Which partitions of a topic are adopted, told from cursors and logs alone."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from connectors.errors import ConfigurationError
from connectors.memory import MemoryBroker
from connectors.ports import Cursor, LastRecord
from schemas.envelope import RawRecord, Record, Source, raw_digest
from streams.adopt import find_replaced
from streams.assignment import Gap

TOPIC = "payroll.raw"


class Logs(MemoryBroker):
    """A broker's logs, and how many partitions its topic has."""

    def __init__(self, partitions: int) -> None:
        super().__init__()
        self.partitions = partitions

    async def partitions_of(self, _: str) -> Sequence[int]:
        return range(self.partitions)

    async def last_committed(self, _: str, __: int) -> RawRecord | None:
        return None


def _logs(*lengths: int) -> Logs:
    logs = Logs(len(lengths))
    for partition, length in enumerate(lengths):
        for number in range(length):
            logs.append(TOPIC, partition, Record(0, b"%d" % number, timestamp=number))
    return logs


def _cursor(partition: int, decided: int, *, value: bytes | None = None, life: int = 1) -> Cursor:
    """Decided up to an offset, by a last record of this value; none with 0 decided."""
    last = decided - 1
    recognised = b"%d" % last if value is None else value
    return Cursor(
        Source(TOPIC, partition, life),
        "memory",
        0,
        decided,
        decided,
        LastRecord(last, raw_digest(recognised), last) if decided else None,
        None,
    )


async def test_those_replaced_and_those_nobody_can_tell() -> None:
    """A shorter log and one with another record there were replaced; one of which nothing was
    decided goes with them; one that is known by its last record stays."""
    cursors = [_cursor(0, 9), _cursor(1, 2, value=b"other"), _cursor(2, 0), _cursor(3, 2)]
    found = await find_replaced(_logs(3, 3, 3, 3), cursors)
    assert [one.cursor.source.partition for one in found] == [0, 1, 2]
    assert [one.first_offset for one in found] == [0, 0, 0]
    assert "recreated or truncated" in found[0].why


async def test_what_a_command_that_was_cut_off_has_begun_is_not_begun_twice() -> None:
    """The partition is ahead of those that still stand in the life before."""
    cursors = [_cursor(0, 0, life=2), _cursor(1, 9), _cursor(2, 0)]
    found = await find_replaced(_logs(3, 3, 3), cursors)
    assert [one.cursor.source.partition for one in found] == [1, 2]


async def test_nothing_wrong_is_refused() -> None:
    """Adopting a log that is the same would count its records twice."""
    with pytest.raises(ConfigurationError, match="nothing is wrong"):
        await find_replaced(_logs(3, 3), [_cursor(0, 3), _cursor(1, 0)])


async def test_another_cluster_replaces_every_log() -> None:
    """However much the logs look alike."""
    logs = _logs(3, 3)
    logs.cluster = "another"
    found = await find_replaced(logs, [_cursor(0, 3), _cursor(1, 0)])
    assert len(found) == 2


async def test_a_gap_is_no_reason_to_adopt() -> None:
    """Records that aged out are accepted by another act, which the message names."""
    logs = _logs(3)
    logs.starts[TOPIC, 0] = 2
    with pytest.raises(Gap, match="--accept-gap"):
        await find_replaced(logs, [_cursor(0, 1)])


async def test_a_topic_with_fewer_partitions_is_refused() -> None:
    """What was decided in a partition that is gone could not even be emitted."""
    with pytest.raises(ConfigurationError, match="partitions 1 were decided"):
        await find_replaced(_logs(3), [_cursor(0, 9), _cursor(1, 9)])
