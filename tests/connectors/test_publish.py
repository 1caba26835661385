"""Publishing files to a real topic: what arrives, what is refused, what the summary says."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path

import pytest

from connectors.errors import BrokerUnavailable, ConfigurationError
from connectors.kafka import outbox as outbox_module
from connectors.kafka.outbox import partition_of
from connectors.kafka.settings import KafkaSettings
from connectors.profiles import load_profile
from schemas.record_types import RECORD_TYPES
from streams.publish import Progress, csv_fields, publish
from tests.connectors.kafka_tools import kafka_settings, make_topic, make_topics, read_all
from tests.servers import Services

PAYROLL = RECORD_TYPES["payroll"]
HEADER = b"employee_id,source_run_id,pay_period_start,pay_period_end,gross_pay\n"


@pytest.fixture
async def kafka(services: Services, topic_prefix: str) -> KafkaSettings:
    settings = kafka_settings(services.bootstrap, topic_prefix)
    await make_topics(settings)
    return settings


async def published(
    kafka: KafkaSettings, topic: str = "payroll.raw"
) -> list[tuple[int, bytes | None, bytes, tuple]]:
    """Partition, key, value and headers of all that is in the raw topic, by partition."""
    found = []
    for partition in range(3):
        for record in await read_all(kafka, kafka.topic(topic), partition):
            found.append((partition, record.key, record.value, record.headers))  # noqa: PERF401
    return found


def statement(number: int) -> bytes:
    return json.dumps({"employee_id": f"EMP{number:04d}", "gross_pay": "1000.00"}).encode()


async def test_every_line_of_ndjson_arrives_untouched(kafka: KafkaSettings, tmp_path: Path) -> None:
    """Good or broken, each line is one record; the key is the identity where one can be read."""
    lines = [statement(1), b'{"employee_id": 7}', b"{broken", b"[]", statement(2)]
    (tmp_path / "run.ndjson").write_bytes(b"\n".join(lines))
    summary = await publish(kafka, PAYROLL, [tmp_path / "run.ndjson"])
    found = await published(kafka)
    assert sorted(value for _, _, value, _ in found) == sorted(lines)
    assert {value: key for _, key, value, _ in found} == {
        lines[0]: b"EMP0001",
        lines[1]: None,
        lines[2]: None,
        lines[3]: None,
        lines[4]: b"EMP0002",
    }
    assert summary.complete
    (one,) = summary.files
    assert (one.outcome, one.rows, one.acknowledged, one.malformed) == ("published", 5, 5, 0)
    assert one.certain_line == 5


async def test_csv_rows_arrive_as_json_and_unmappable_ones_as_their_bytes(
    kafka: KafkaSettings, tmp_path: Path
) -> None:
    """A row that cannot be mapped is published with its reason, beside its neighbours."""
    rows = [
        b"A10042,R1,2026-10-19,2026-11-01,1000.00",
        b"A10043,R1,2026-10-19,2026-11-01,1,000.00",
        b"A10044,R1,2026-10-19,2026-11-01,",
        b'A10045,R"1,2026-10-19,2026-11-01,1.00',
    ]
    (tmp_path / "run.csv").write_bytes(b"\xef\xbb\xbf" + HEADER + b"\r\n".join(rows))
    summary = await publish(kafka, PAYROLL, [tmp_path])
    by_key = {key: value for _, key, value, headers in await published(kafka) if not headers}
    assert json.loads(by_key[b"A10042"]) == {
        "employee_id": "A10042",
        "source_run_id": "R1",
        "pay_period_start": "2026-10-19",
        "pay_period_end": "2026-11-01",
        "gross_pay": "1000.00",
    }
    assert "gross_pay" not in json.loads(by_key[b"A10044"])
    errors = [(k, v, h) for _, k, v, h in await published(kafka) if h]
    assert sorted(errors, key=lambda e: e[1]) == [
        (None, rows[1], (("wb-source-error", b"6 columns, the header has 5"),)),
        (None, rows[3], (("wb-source-error", b"a quote inside a cell that is not quoted"),)),
    ]
    assert (summary.total("acknowledged"), summary.total("malformed")) == (4, 2)


async def test_a_refused_file_publishes_nothing_and_the_others_go_on(
    kafka: KafkaSettings, tmp_path: Path
) -> None:
    """A duplicate header, or a quote never closed at the very end, costs its own file only."""
    good = HEADER + b"A10042,R1,2026-10-19,2026-11-01,1000.00\n"
    (tmp_path / "a.csv").write_bytes(b"employee_id,employee_id\nA,B\n")
    (tmp_path / "b.csv").write_bytes(good + b'A10043,"R1,2026-10-19\n')
    (tmp_path / "c.csv").write_bytes(good)
    (tmp_path / "d.csv").write_bytes(b"employee_id,earnings\nA10042,[]\n")
    summary = await publish(kafka, PAYROLL, [tmp_path])
    assert [one.outcome for one in summary.files] == ["refused", "refused", "published", "refused"]
    assert "two columns are called 'employee_id'" in str(summary.files[0].why)
    assert "line 3: a quote is opened here and never closed" in str(summary.files[1].why)
    assert "use NDJSON" in str(summary.files[3].why)
    assert len(await published(kafka)) == 1
    assert not summary.complete


async def test_equal_keys_keep_their_order_in_one_partition(
    kafka: KafkaSettings, tmp_path: Path
) -> None:
    """Statements of one employee arrive in the file's order, where a Java client would put them."""
    lines = [
        json.dumps({"employee_id": f"EMP{n % 7:04d}", "n": n, "pad": "x" * 900}).encode()
        for n in range(3_000)
    ]
    (tmp_path / "run.jsonl").write_bytes(b"\n".join(lines))
    summary = await publish(kafka, PAYROLL, [tmp_path])
    assert summary.total("acknowledged") == 3_000
    seen: dict[bytes, list[int]] = {}
    for partition, key, value, _ in await published(kafka):
        assert key is not None
        assert partition == partition_of(key, 3)
        seen.setdefault(key, []).append(json.loads(value)["n"])
    assert all(numbers == sorted(numbers) for numbers in seen.values())
    assert sum(map(len, seen.values())) == 3_000


@pytest.mark.parametrize(
    ("key", "hashed"),
    [(b"21", -973932308), (b"foobar", -790332482), (b"a-little-bit-long-string", -985981536)],
)
def test_keys_are_placed_like_javas_client_does(key: bytes, hashed: int) -> None:
    """murmur2, from Kafka's own test vectors."""
    assert partition_of(key, 1_000) == (hashed & 0x7FFFFFFF) % 1_000


async def test_a_record_larger_than_the_topic_takes_is_named(
    services: Services, topic_prefix: str, tmp_path: Path
) -> None:
    """It is not published, the summary says where it is, and its neighbours go."""
    kafka = kafka_settings(services.bootstrap, topic_prefix)
    await make_topic(kafka, kafka.topic("payroll.raw"), 1, max_message_bytes="50000")
    big = b'{"pad":"' + b"x" * 60_000 + b'"}'
    lines = [statement(1), big, statement(2), b'{"pad":"' + b"x" * 49_000 + b'"}']
    (tmp_path / "run.ndjson").write_bytes(b"\n".join(lines))
    summary = await publish(kafka, PAYROLL, [tmp_path])
    found = await read_all(kafka, kafka.topic("payroll.raw"), 0)
    assert [record.value for record in found] == [lines[0], lines[2], lines[3]]
    (one,) = summary.files
    assert (one.acknowledged, one.too_large, one.too_large_lines) == (3, 1, [2])
    assert not summary.complete


async def test_a_missing_topic_or_path_is_said_before_anything_is_sent(
    services: Services, topic_prefix: str, tmp_path: Path
) -> None:
    """The message says what to do."""
    kafka = kafka_settings(services.bootstrap, topic_prefix)
    (tmp_path / "run.ndjson").write_bytes(statement(1))
    with pytest.raises(ConfigurationError, match=r"no topic .*payroll\.raw.* topics create"):
        await publish(kafka, PAYROLL, [tmp_path])
    with pytest.raises(ConfigurationError, match="neither a file nor a folder"):
        await publish(kafka, PAYROLL, [tmp_path / "gone"])


async def test_a_dry_run_sends_nothing_and_needs_no_broker(tmp_path: Path) -> None:
    """Files are read and checked to their end."""
    nowhere = KafkaSettings("127.0.0.1:1")
    (tmp_path / "a.csv").write_bytes(HEADER + b"A10042,R1\n")
    (tmp_path / "b.csv").write_bytes(HEADER + b'A10042,"')
    summary = await publish(nowhere, PAYROLL, [tmp_path], dry_run=True)
    assert [(one.outcome, one.rows, one.malformed) for one in summary.files] == [
        ("published", 1, 1),
        ("refused", 0, 0),
    ]


async def test_a_vendors_page_is_published_by_its_profile(
    kafka: KafkaSettings, tmp_path: Path
) -> None:
    """Mapped reports carry their unit as key; one that cannot be mapped goes as its own bytes."""
    report = {"id": "1", "type": "preTrip", "vehicle": {"name": "TR-104"}, "at": 1.50}
    other = {"id": "2", "type": "unheard of"}
    page = json.dumps({"data": [report, other]})
    (tmp_path / "page.json").write_text(page, encoding="utf-8")
    await make_topic(kafka, kafka.topic("dvir.raw"), 3)
    dvir, profile = RECORD_TYPES["dvir"], load_profile("samsara-history")
    summary = await publish(kafka, dvir, [tmp_path / "page.json"], profile=profile)
    (one,) = summary.files
    assert (one.rows, one.acknowledged, one.malformed) == (2, 2, 1)
    found = {key: (value, headers) for _, key, value, headers in await published(kafka, "dvir.raw")}
    mapped, headers = found[b"TR-104"]
    assert (json.loads(mapped)["payload"], headers) == (json.dumps(report), ())
    assert found[None] == (
        json.dumps(other).encode(),
        (("wb-source-error", b"inspection_type: a word of the map inspection_type"),),
    )


async def test_a_page_that_cannot_be_cut_publishes_nothing(
    kafka: KafkaSettings, tmp_path: Path
) -> None:
    """However far it could be read: the first reading finds it."""
    page = b'{"data": [' + b'{"id": "1"},' * 5_000
    (tmp_path / "page.json").write_bytes(page)
    await make_topic(kafka, kafka.topic("dvir.raw"), 3)
    dvir, profile = RECORD_TYPES["dvir"], load_profile("samsara-history")
    summary = await publish(kafka, dvir, [tmp_path], profile=profile)
    assert [(one.outcome, one.acknowledged) for one in summary.files] == [("refused", 0)]
    assert "malformed_file" in str(summary.files[0].why)
    assert await published(kafka, "dvir.raw") == []


async def test_progress_grows_to_the_end(kafka: KafkaSettings, tmp_path: Path) -> None:
    """A bar over bytes ends full, with every record acknowledged."""
    for name in ("a.ndjson", "b.ndjson"):
        (tmp_path / name).write_bytes(b"\n".join(statement(n) for n in range(2_000)))
    steps: list[Progress] = []
    await publish(kafka, PAYROLL, [tmp_path], on_progress=steps.append)
    last = steps[-1]
    assert (last.rows, last.acknowledged) == (4_000, 4_000)
    assert last.bytes_read == last.bytes_total
    assert [step.bytes_read for step in steps] == sorted(step.bytes_read for step in steps)


async def test_correlation_ids_name_file_and_line(kafka: KafkaSettings, tmp_path: Path) -> None:
    """On request every record says where it came from."""
    (tmp_path / "run.ndjson").write_bytes(statement(1) + b"\n\n" + statement(2))
    await publish(kafka, PAYROLL, [tmp_path], correlation=True)
    headers = {value: headers for _, _, value, headers in await published(kafka)}
    assert headers == {
        statement(1): (("correlation-id", b"run.ndjson:1"),),
        statement(2): (("correlation-id", b"run.ndjson:3"),),
    }


async def test_stopping_in_the_middle_says_what_is_certain(
    kafka: KafkaSettings, tmp_path: Path
) -> None:
    """After Ctrl-C what was sent is waited for, and the summary matches the topic."""
    (tmp_path / "a.ndjson").write_bytes(b"\n".join(statement(n) for n in range(50_000)))
    (tmp_path / "b.ndjson").write_bytes(statement(1))
    stop = asyncio.Event()

    def watch(progress: Progress) -> None:
        if progress.acknowledged > 5_000:
            stop.set()

    summary = await publish(kafka, PAYROLL, [tmp_path], on_progress=watch, stop=stop)
    (one,) = summary.files
    assert one.outcome == "interrupted"
    assert 5_000 < one.acknowledged == one.rows < 50_000
    assert one.certain_line == one.rows
    assert len(await published(kafka)) == one.acknowledged
    assert not summary.complete


async def test_a_broker_that_goes_away_ends_it_with_what_is_certain(
    services: Services, topic_prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was acknowledged is certain, the rest is not; the failure says so."""
    kafka = kafka_settings(services.bootstrap, topic_prefix)
    kafka = replace(kafka, request_timeout_ms=1_000)
    await make_topics(kafka)
    monkeypatch.setattr(outbox_module, "STALLED_S", 3.0)
    lines = [b'{"n":%d,"pad":"%s"}' % (n, b"x" * 500) for n in range(60_000)]
    (tmp_path / "a.ndjson").write_bytes(b"\n".join(lines))

    def pause(progress: Progress) -> None:
        if progress.acknowledged > 5_000 and services.kafka.is_running:
            services.kafka.pause()

    summary = await publish(kafka, PAYROLL, [tmp_path], on_progress=pause)
    services.kafka.resume()
    (one,) = summary.files
    assert isinstance(summary.failure, BrokerUnavailable)
    assert one.outcome == "failed"
    assert 5_000 < one.acknowledged < one.rows
    numbers = {json.loads(value)["n"] for _, _, value, _ in await published(kafka)}
    assert set(range(one.certain_line)) <= numbers


def test_csv_fields_follow_from_the_contract() -> None:
    """Lists are known by the raw schema, so a new record type needs nothing here."""
    payroll = csv_fields(PAYROLL)
    assert {"employee_id", "gross_pay", "statement_type"} <= set(payroll.known)
    assert set(payroll.lists) == {"earnings", "deductions", "taxes"}
