"""Ranges on a real broker: they end, they name what is missing, and nobody notices them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pytest
from aiokafka import TopicPartition
from aiokafka.admin import RecordsToDelete

from connectors.errors import ConfigurationError, PartitionStop, Stop
from connectors.export import FORMATS, format_of
from connectors.kafka.settings import KafkaSettings
from connectors.schema_store import NoSchemaStore
from schemas.record_types import RECORD_TYPES
from streams.replaying.asked import Filters, Wanted
from streams.replaying.export import Exported, Target, export
from streams.replaying.extent import Extent
from streams.replaying.manifest import manifest_path, wanted_again
from tests.connectors.kafka_tools import (
    admin,
    delete_topic,
    kafka_settings,
    make_topic,
    producer,
    send_broken_header,
)
from tests.replaying.events import AT_MS, PAYROLL, Message, event, plain, statement, transaction
from tests.servers import Services

SECOND_MS = 1_000


class Topic:
    """A topic of payroll's of the test's own, and replays of it."""

    def __init__(self, services: Services, prefix: str, folder: Path) -> None:
        self.settings = kafka_settings(services.bootstrap, prefix)
        self.folder = folder
        self.revealed: list[Extent] = []
        self.progress: list[tuple[int, int, int]] = []

    @property
    def name(self) -> str:
        return self.settings.topic("payroll.committed")

    async def make(self, partitions: int = 2, kind: str = "committed") -> None:
        await make_topic(self.settings, self.settings.topic(f"payroll.{kind}"), partitions)

    async def put(self, partition: int, *messages: Message, commit: bool = True) -> None:
        await transaction(self.settings, self.name, partition, messages, commit=commit)

    async def replay(
        self, name: str = "out.jsonl", wanted: Wanted | None = None, **target: bool
    ) -> Exported:
        path = self.folder / name

        async def on_reveal(extent: Extent) -> None:
            assert not path.exists()
            self.revealed.append(extent)

        return await export(
            self.settings,
            RECORD_TYPES["payroll"],
            NoSchemaStore(),
            wanted or Wanted("committed"),
            Target(
                path,
                format_of(path, None),
                replace=target.get("replace", False),
                reveal=target.get("reveal", False),
            ),
            on_reveal=on_reveal,
            on_progress=lambda *now: self.progress.append(now),
        )

    def rows(self, name: str = "out.jsonl") -> list[dict[str, Any]]:
        lines = (self.folder / name).read_text(encoding="utf-8").splitlines()
        return [json.loads(line) for line in lines]

    def places(self, name: str = "out.jsonl") -> list[tuple[int, int]]:
        return [(row["event_partition"], row["event_offset"]) for row in self.rows(name)]


@pytest.fixture
def topic(services: Services, topic_prefix: str, tmp_path: Path) -> Topic:
    return Topic(services, topic_prefix, tmp_path)


def some(count: int, partition: int = 0, first: int = 0) -> list[Message]:
    return [event(f"E{first + n:07d}", offset=n, partition=partition) for n in range(count)]


# --- Where it ends --------------------------------------------------------------------------------


async def test_a_range_ends_behind_markers_and_aborted_records(topic: Topic) -> None:
    """The end is the last stable offset, before which no record need stand; aborted records are
    not read; partitions come in order; the whole has the right sums and digest."""
    await topic.make()
    await topic.put(1, *some(3, partition=1))
    await topic.put(0, *some(5))
    await topic.put(0, *some(4, first=50), commit=False)
    done = await topic.replay()
    assert topic.places() == [(0, n) for n in range(5)] + [(1, n) for n in range(3)]
    assert [(s.first, s.end, s.missing, s.remark) for s in done.extent.spans] == [
        (0, 11, None, None),
        (0, 4, None, None),
    ]
    first, second = done.manifest["partitions"]
    assert (first["first_record"], first["last_record"], first["written"]) == (0, 4, 5)
    assert (second["first_record"], second["last_record"], second["written"]) == (0, 2, 3)
    assert done.manifest["sums"] == {"gross_pay": {"USD": "18461.52"}, "hours": "640.0000"}
    assert topic.progress[-1][:2] == (15, 15)


async def test_an_open_transaction_is_named_and_not_waited_for(topic: Topic) -> None:
    """What it holds back is missing where it was asked for, and a remark where it was not."""
    await topic.make(1)
    await topic.put(0, *some(2))
    async with producer(topic.settings, transactional_id=f"{topic.name}/open") as client:
        await client.begin_transaction()
        await (await client.send(topic.name, b"open", b"k", 0))
        asked = Wanted("committed", end={0: 4}, partitions=frozenset({0}))
        (held,) = (await topic.replay("a.jsonl", asked)).extent.spans
        assert held.end == 3
        assert held.missing is not None
        assert "an open transaction holds back offsets from 3 to 4" in held.missing
        (now,) = (await topic.replay("b.jsonl")).extent.spans
        assert now.missing is None
        assert "open transaction" in str(now.remark)
        timed = Wanted("committed", Filters(until_us=AT_MS * 2_000))
        (span,) = (await topic.replay("c.jsonl", timed)).extent.spans
        assert "open transaction" in str(span.missing)
        await client.abort_transaction()
    assert topic.places("a.jsonl") == topic.places("b.jsonl") == [(0, 0), (0, 1)]


async def test_a_wanted_end_beyond_the_log_is_named(topic: Topic) -> None:
    """The file holds what there is."""
    await topic.make(1)
    await topic.put(0, *some(2))
    asked = Wanted("committed", first={0: 1}, end={0: 99}, partitions=frozenset({0}))
    done = await topic.replay(wanted=asked)
    assert topic.places() == [(0, 1)]
    assert "the log ends at 3" in str(done.manifest["partitions"][0]["missing"])
    beyond = Wanted("committed", first={0: 9}, partitions=frozenset({0}))
    (span,) = (await topic.replay("beyond.jsonl", beyond)).extent.spans
    assert "offset 9 is wanted; the log ends at 3" in str(span.missing)
    assert topic.places("beyond.jsonl") == []


async def test_a_start_that_has_aged_out_stops(topic: Topic) -> None:
    """Naming wanted and available offsets, unless what is there will do; gaps are no trouble."""
    await topic.make(1)
    await plain(topic.settings, topic.name, 0, some(6))
    async with admin(topic.settings) as client:
        await client.delete_records({TopicPartition(topic.name, 0): RecordsToDelete(3)})
    asked = Wanted("committed", first={0: 1}, partitions=frozenset({0}))
    with pytest.raises(PartitionStop, match=r"offset 1 is wanted, but the log begins at 3"):
        await topic.replay(wanted=asked)
    aged = Wanted("committed", Filters(since_us=0))
    with pytest.raises(PartitionStop, match="may have aged out"):
        await topic.replay(wanted=aged)
    assert list(topic.folder.iterdir()) == []
    there = Wanted("committed", first={0: 1}, partitions=frozenset({0}), available=True)
    await topic.replay(wanted=there)
    assert topic.places() == [(0, 3), (0, 4), (0, 5)]
    gone = Wanted("committed", first={0: 0}, end={0: 2}, partitions=frozenset({0}), available=True)
    await topic.replay("gone.jsonl", wanted=gone)
    assert topic.places("gone.jsonl") == []


# --- What is wanted -------------------------------------------------------------------------------


async def test_times_need_not_rise_with_offsets(topic: Topic) -> None:
    """Each record's own timestamp decides, in [since, until), whatever stands around it."""
    await topic.make(1)
    stamps = [5, 1, 9, 3, 2, 7, 3]
    messages = [
        event("A10042", offset=n, timestamp=AT_MS + at * SECOND_MS) for n, at in enumerate(stamps)
    ]
    await plain(topic.settings, topic.name, 0, messages)
    filters = Filters(
        since_us=(AT_MS + 3 * SECOND_MS) * 1000, until_us=(AT_MS + 7 * SECOND_MS) * 1000
    )
    await topic.replay(wanted=Wanted("committed", filters))
    assert topic.places() == [(0, 0), (0, 3), (0, 6)]
    at = datetime.fromtimestamp((AT_MS + 5 * SECOND_MS) / 1000, UTC)
    assert topic.rows()[0]["event_timestamp"] == f"{at:%Y-%m-%dT%H:%M:%S}Z"


async def test_run_and_key_select(topic: Topic) -> None:
    """A run by its id, a key as message key or as the derived idempotency key; all combine."""
    await topic.make(1)
    await topic.put(
        0,
        event("A10042", offset=0),
        event("B20042", offset=1),
        event("A10042", offset=2, source_run_id="acme/2"),
    )
    derived = "4845e3e44d39f6ff10212f35027f1fb6450d335a783d9a183f54bd576eb15863"
    for name, filters, expected in (
        ("run", Filters(run="acme/2"), [2]),
        ("key", Filters(key="A10042"), [0, 2]),
        ("both", Filters(run="acme/2", key="B20042"), []),
        ("derived", Filters(key=derived), [0]),
    ):
        done = await topic.replay(f"{name}.jsonl", Wanted("committed", filters))
        assert topic.places(f"{name}.jsonl") == [(0, offset) for offset in expected]
        assert done.manifest["filters"]["key"] in {None, "***"}
        assert (done.manifest["read"], done.manifest["written"]) == (3, len(expected))


async def test_a_reversal_counts_negative(topic: Topic) -> None:
    """Sums are signed, exact, and per currency."""
    await topic.make(1)
    correction = {"corrects": "0" * 64, "statement_id": "2", "hours": None}
    await topic.put(
        0,
        event("A10042", offset=0, gross_pay="0.10"),
        event("A10042", offset=1, gross_pay="1000.00", statement_type="reversal", **correction),
        event("A10042", offset=2, gross_pay="999999999999.99", currency="EUR", statement_id="3"),
    )
    done = await topic.replay("x.parquet")
    assert done.manifest["sums"] == {
        "gross_pay": {"EUR": "999999999999.99", "USD": "-999.90"},
        "hours": "160.0000",
    }
    sql = (
        "SELECT sum(CASE WHEN statement_type IN ('reversal', 'void') THEN -gross_pay "
        "ELSE gross_pay END) FROM read_parquet(?) WHERE currency = 'USD'"
    )
    found = duckdb.execute(sql, [str(topic.folder / "x.parquet")]).fetchone()
    assert found == (Decimal("-999.90"),)


# --- The same again -------------------------------------------------------------------------------


@pytest.mark.parametrize("chosen", FORMATS)
async def test_the_same_range_gives_the_same_bytes(topic: Topic, chosen: str) -> None:
    """File and manifest, though more records came; the content digest is the same in every
    format."""
    await topic.make()
    for partition in (0, 1):
        await topic.put(partition, *some(20, partition=partition))
    first = await topic.replay(f"first.{chosen}")
    await topic.put(0, *some(3, first=70))
    again = wanted_again(manifest_path(topic.folder / f"first.{chosen}"), PAYROLL, None)
    await topic.replay(f"second.{chosen}", again)
    other = await topic.replay("other.csv", again)
    assert other.manifest["content_digest"] == first.manifest["content_digest"]
    for ending in (chosen, f"{chosen}.manifest.json"):
        one, two = (topic.folder / f"{name}.{ending}" for name in ("first", "second"))
        assert one.read_bytes() == two.read_bytes()


async def test_a_recreated_topic_is_refused(topic: Topic) -> None:
    """A range belongs to one life of a topic."""
    await topic.make(1)
    await topic.put(0, *some(2))
    await topic.replay()
    again = wanted_again(manifest_path(topic.folder / "out.jsonl"), PAYROLL, None)
    await delete_topic(topic.settings, topic.name)
    await topic.make(1)
    await topic.put(0, *some(2))
    with pytest.raises(Stop, match="deleted and created again"):
        await topic.replay("again.jsonl", again)
    with pytest.raises(ConfigurationError, match="no partition 7"):
        await topic.replay("again.jsonl", Wanted("committed", partitions=frozenset({7})))
    assert not (topic.folder / "again.jsonl").exists()


async def test_a_topic_recreated_while_it_is_read_is_refused(topic: Topic) -> None:
    """Found out at the end at the latest; nothing is left."""
    await topic.make(1)
    await topic.put(0, *some(2))

    async def recreate(_: Extent) -> None:
        await delete_topic(topic.settings, topic.name)
        await topic.make(1)
        await topic.put(0, *some(2))

    path = topic.folder / "out.jsonl"
    with pytest.raises(Stop, match="created again"):
        await export(
            topic.settings,
            PAYROLL,
            NoSchemaStore(),
            Wanted("committed"),
            Target(path, "jsonl", replace=False, reveal=True),
            on_reveal=recreate,
            on_progress=lambda *_: None,
        )
    assert list(topic.folder.iterdir()) == []


async def test_no_group_and_no_topic_is_made(topic: Topic) -> None:
    """Workers and brokers notice nothing of it; a topic that is not there is a stop."""
    with pytest.raises(Stop, match="does not exist"):
        await topic.replay()
    await topic.make(1)
    await topic.put(0, *some(2))
    before = await _groups_and_topics(topic.settings)
    await topic.replay()
    assert await _groups_and_topics(topic.settings) == before


async def _groups_and_topics(settings: KafkaSettings) -> tuple[set[str], set[str]]:
    async with admin(settings) as client:
        groups = {name for name, *_ in await client.list_consumer_groups()}
        return groups, set(await client.list_topics())


# --- What it shows --------------------------------------------------------------------------------

SECRET = "ZEBRA777"


@pytest.mark.parametrize("chosen", FORMATS)
async def test_no_personal_value_is_in_a_file_unless_revealed(topic: Topic, chosen: str) -> None:
    """Masked by default, in the manifest too; revealing is on record before the file begins."""
    await topic.make(1)
    await topic.put(0, event(SECRET, offset=0, note=f"by {SECRET}"))
    masked = await topic.replay(f"masked.{chosen}", Wanted("committed", Filters(key=SECRET)))
    assert SECRET not in _all_text(topic.folder / f"masked.{chosen}")
    assert SECRET.encode() not in manifest_path(topic.folder / f"masked.{chosen}").read_bytes()
    assert (masked.manifest["masked"], masked.manifest["written"]) == (True, 1)
    assert "employee_id" in masked.manifest["masked_columns"]
    assert topic.revealed == []
    shown = await topic.replay(f"shown.{chosen}", reveal=True)
    assert _all_text(topic.folder / f"shown.{chosen}").count(SECRET) == 2
    assert [str(extent) for extent in topic.revealed] == [f"{topic.name} 0:0-2"]
    assert (shown.manifest["masked"], shown.manifest["masked_columns"]) == (False, [])
    assert shown.manifest["sums"] == masked.manifest["sums"]


def _all_text(path: Path) -> str:
    if path.suffix != ".parquet":
        return path.read_text(encoding="utf-8")
    return str(duckdb.execute("SELECT * FROM read_parquet(?)", [str(path)]).fetchall())


async def test_raw_records_are_shown_as_far_as_they_decode(topic: Topic) -> None:
    """Members by the mask; keys, headers and bytes that do not decode not at all; the rest is
    counted by whether it decodes, and amounts that cannot be read are said to be."""
    await topic.make(1, "raw")
    headers = (
        ("note", SECRET.encode()),
        ("wb-observed-at", b"2026-11-01T00:00:00Z"),
        ("wb-source-error", SECRET.encode()),
        ("correlation-id", SECRET.encode()),
    )
    raw = statement(SECRET, gross_pay=10.5, unknown={SECRET[:5]: [SECRET, 1e400 if False else 7]})
    await plain(
        topic.settings,
        topic.settings.topic("payroll.raw"),
        0,
        [
            Message(json.dumps(raw).encode(), SECRET.encode(), headers),
            Message(f"not json {SECRET}".encode(), b"\xff\xfe"),
            Message(None, SECRET.encode()),
        ],
    )
    masked = await topic.replay("masked.jsonl", Wanted("raw"))
    rows = topic.rows("masked.jsonl")
    assert rows[0]["value"]["gross_pay"] == 10.5
    assert rows[0]["value"]["employee_id"] == rows[0]["key"] == "***"
    assert rows[0]["headers"][0] == {"name": "note", "value": "***", "value_base64": None}
    assert rows[0]["headers"][1]["value"] == "2026-11-01T00:00:00Z"
    assert (rows[1]["value"], rows[1]["value_base64"], rows[1]["value_bytes"]) == (None, "***", 17)
    assert (rows[2]["value"], rows[2]["value_base64"], rows[2]["value_bytes"]) == (None,) * 3
    assert SECRET not in (topic.folder / "masked.jsonl").read_text().replace(SECRET[:5] + '"', "")
    assert masked.manifest["by"] == {"decoded": 1, "tombstone": 1, "undecodable": 1}
    assert masked.manifest["sums"]["gross_pay"] == {"USD": "10.50"}
    assert masked.manifest["sums_unreadable"] == 2
    await topic.replay("shown.jsonl", Wanted("raw"), reveal=True)
    shown = topic.rows("shown.jsonl")
    assert shown[0]["value"] == raw
    assert shown[0]["key"] == SECRET
    assert (shown[1]["key"], shown[1]["key_base64"]) == (None, "//4=")
    assert shown[1]["value_base64"] == "bm90IGpzb24gWkVCUkE3Nzc="
    for chosen in ("csv", "parquet"):
        await topic.replay(f"masked.{chosen}", Wanted("raw"))


async def test_a_foreign_event_stops_by_name(topic: Topic) -> None:
    """A committed topic holds events we wrote, and nothing else is taken for one."""
    await topic.make(1)
    good = event("A10042")
    other = event("A10042", offset=5)
    for at, wrong in enumerate(
        (
            Message(b"no event", b"k"),
            Message((good.value or b"")[:-1], b"k", good.headers),
            Message(good.value, b"k", other.headers),
            Message(good.value, b"k"),
        )
    ):
        await plain(topic.settings, topic.name, 0, [wrong])
        asked = Wanted("committed", first={0: at}, partitions=frozenset({0}))
        with pytest.raises(PartitionStop, match=rf"event at offset {at} is none that this gate"):
            await topic.replay(wanted=asked)
    assert list(topic.folder.iterdir()) == []


async def test_a_header_whose_name_is_not_text_is_read_past(topic: Topic) -> None:
    """Some clients send such names; the record is one like any other."""
    await topic.make(1, "raw")
    async with producer(topic.settings) as client:
        await send_broken_header(client, topic.settings.topic("payroll.raw"))
    await topic.replay("raw.jsonl", Wanted("raw"))
    rows = topic.rows("raw.jsonl")
    assert [row["offset"] for row in rows] == [0, 1, 2]
    assert [header["name"] for header in rows[1]["headers"]] == ["\ufffdQQQ", "plain"]


async def test_cancelling_leaves_nothing(topic: Topic) -> None:
    """As Ctrl-C does, in the middle of it."""
    await topic.make(1)
    await topic.put(0, *some(50))
    path = topic.folder / "out.jsonl"
    cancel: list[Callable[[], object]] = []
    task = asyncio.ensure_future(
        export(
            topic.settings,
            PAYROLL,
            NoSchemaStore(),
            Wanted("committed"),
            Target(path, "jsonl", replace=False, reveal=False),
            on_reveal=lambda _: asyncio.sleep(0),
            on_progress=lambda *_: cancel[0](),
        )
    )
    cancel.append(task.cancel)
    with pytest.raises(asyncio.CancelledError):
        await task
    assert list(topic.folder.iterdir()) == []
