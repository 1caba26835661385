"""Publishing files to real topics: what arrives, what is refused, what the summary says."""

from __future__ import annotations

import asyncio
import json
import time
from decimal import Decimal
from pathlib import Path

import pytest

from connectors.errors import ConfigurationError
from connectors.kafka.publication import partition_of
from connectors.kafka.settings import KafkaSettings
from connectors.kafka.topics import create_topics
from connectors.profiles import load_profile
from schemas.chunk import Declaration, Member, chain_of
from schemas.decision_set import DecisionSet
from schemas.envelope import Record, Source
from schemas.record_types import RECORD_TYPES
from schemas.verdict import Accepted
from streams.decide import decide
from streams.publish import PublishOptions, csv_fields, publish
from streams.publishing.chunks import ChunkLimits
from streams.publishing.summary import Progress
from tests.connectors.kafka_tools import kafka_settings, make_topic, read_all
from tests.connectors.publishing import (
    PAYROLL,
    manifests,
    published,
    topics_of,
    write_runs,
)
from tests.servers import Services

DVIR = RECORD_TYPES["dvir"]
HEADER = b"employee_id,source_run_id,pay_period_start,pay_period_end,gross_pay\n"
SAMPLES = Path(__file__).parents[1] / "samples"


@pytest.fixture
async def kafka(services: Services, topic_prefix: str) -> KafkaSettings:
    return await topics_of(services, topic_prefix)


def plain(number: int) -> bytes:
    """A statement without a run."""
    return json.dumps({"employee_id": f"EMP{number:04d}", "gross_pay": "1000.00"}).encode()


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


# --- chunks ---------------------------------------------------------------------------------------


async def test_a_run_arrives_in_declared_chunks(kafka: KafkaSettings, tmp_path: Path) -> None:
    """Each chunk lies in one partition in order, numbered, and declares its count, sum and chain;
    interleaved runs do not mix."""
    path = write_runs(tmp_path / "runs.ndjson", 250, runs=2)
    options = PublishOptions(chunks=ChunkLimits(50))
    summary = await publish(kafka, PAYROLL, [path], options)
    assert summary.complete
    found: dict[str, list[tuple[int, Member, bytes, Declaration | None]]] = {}
    for partition, _, value, headers in await published(kafka):
        told = dict(headers)
        member = Member.parse(told["wb-chunk"])
        declared = told.get("wb-chunk-declare")
        declaration = None if declared is None else Declaration.parse(declared)
        found.setdefault(member.attempt, []).append((partition, member, value, declaration))
    assert sum(map(len, found.values())) == 250
    declarations = []
    for members in found.values():
        assert len({partition for partition, *_ in members}) == 1
        assert [member.seq for _, member, *_ in members] == list(range(1, len(members) + 1))
        assert [one for *_, one in members[1:] if one is not None] == []
        values = [value for _, _, value, _ in members]
        declaration = members[0][3]
        assert declaration is not None
        assert declaration.chain == chain_of(values)
        assert declaration.count == len(values)
        assert declaration.total == sum(Decimal(json.loads(v)["gross_pay"]) for v in values)
        assert {json.loads(v)["source_run_id"] for v in values} == {declaration.run}
        declarations.append((declaration.run, declaration.chunk, declaration.of))
    assert sorted(declarations) == [(f"R{r}", n, 3) for r in range(2) for n in range(1, 4)]


async def test_the_last_chunk_of_a_run_brings_its_manifest(
    kafka: KafkaSettings, tmp_path: Path
) -> None:
    """One message a run and publication, keyed by the run, that agrees with the raw topic."""
    path = write_runs(tmp_path / "runs.ndjson", 25, runs=2)
    path.write_bytes(path.read_bytes() + b"not json\n")
    summary = await publish(kafka, PAYROLL, [path], PublishOptions(chunks=ChunkLimits(5)))
    on_topic = {}
    for partition, _, _, headers in await published(kafka):
        if "wb-chunk-declare" in dict(headers):
            attempt = Member.parse(dict(headers)["wb-chunk"]).attempt
            on_topic[attempt] = (partition, Declaration.parse(dict(headers)["wb-chunk-declare"]))
    found = await manifests(kafka)
    assert sorted(key for key, _ in found) == [b"R0", b"R1"]
    for key, told in found:
        assert told["run"].encode() == key
        assert told["publication"] == summary.files[0].publication
        assert told["file_sha256"]
        assert told["records"] == {b"R0": 14, b"R1": 12}[key]
        assert told["chunks"] == len(told["chunk_list"]) == 3
        assert told["unreadable_amounts"] == (1 if key == b"R0" else 0)
        for one in told["chunk_list"]:
            partition, declared = on_topic[one["attempt"]]
            assert one["partition"] == partition
            assert (one["chunk"], one["count"]) == (declared.chunk, declared.count)
            assert (one["total"], one["chain"]) == (str(declared.total), declared.chain.hex())
        total = sum(Decimal(one["total"]) for one in told["chunk_list"])
        assert told["totals"] == {"USD": str(total)}


async def test_a_chunk_is_seen_whole_or_not_at_all(kafka: KafkaSettings, tmp_path: Path) -> None:
    """A reader of committed data that looks at any time finds whole chunks."""
    path = write_runs(tmp_path / "runs.ndjson", 6_000)
    publishing = asyncio.create_task(
        publish(kafka, PAYROLL, [path], PublishOptions(chunks=ChunkLimits(300)))
    )
    seen = set()
    while not publishing.done():
        counts: dict[str, int] = {}
        for _, _, _, headers in await published(kafka):
            attempt = Member.parse(dict(headers)["wb-chunk"]).attempt
            counts[attempt] = counts.get(attempt, 0) + 1
        seen |= set(counts.values())
    assert seen <= {300}
    assert (await publishing).complete
    assert len(await published(kafka)) == 6_000


# --- rows -----------------------------------------------------------------------------------------


async def test_every_line_of_ndjson_arrives_untouched(kafka: KafkaSettings, tmp_path: Path) -> None:
    """Good or broken, each line is one record; the key is the identity where one can be read."""
    lines = [plain(1), b'{"employee_id": 7}', b"{broken", b"[]", plain(2)]
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
    assert (one.outcome, one.rows, one.sent, one.malformed) == ("published", 5, 5, 0)


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
    by_key = {key: value for _, key, value, _ in await published(kafka) if key is not None}
    assert json.loads(by_key[b"A10042"]) == {
        "employee_id": "A10042",
        "source_run_id": "R1",
        "pay_period_start": "2026-10-19",
        "pay_period_end": "2026-11-01",
        "gross_pay": "1000.00",
    }
    assert "gross_pay" not in json.loads(by_key[b"A10044"])
    assert {
        v: dict(h).get("wb-source-error") for _, k, v, h in await published(kafka) if not k
    } == {
        rows[1]: b"6 columns, the header has 5",
        rows[3]: b"a quote inside a cell that is not quoted",
    }
    assert (summary.total("sent"), summary.total("malformed")) == (4, 2)


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


async def test_equal_keys_without_a_run_keep_their_order_in_one_partition(
    kafka: KafkaSettings, tmp_path: Path
) -> None:
    """Records of one key arrive in the file's order, where a Java client would put them."""
    lines = [
        json.dumps({"employee_id": f"EMP{n % 7:04d}", "n": n, "pad": "x" * 900}).encode()
        for n in range(3_000)
    ]
    (tmp_path / "run.jsonl").write_bytes(b"\n".join(lines))
    summary = await publish(kafka, PAYROLL, [tmp_path])
    assert summary.total("sent") == 3_000
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
    await create_topics(kafka, [PAYROLL], partitions=1, replication=1)
    big = b'{"pad":"' + b"x" * 60_000 + b'"}'
    lines = [plain(1), big, plain(2), b'{"pad":"' + b"x" * 49_000 + b'"}']
    (tmp_path / "run.ndjson").write_bytes(b"\n".join(lines))
    summary = await publish(kafka, PAYROLL, [tmp_path])
    found = await read_all(kafka, kafka.topic("payroll.raw"), 0)
    assert [record.value for record in found] == [lines[0], lines[2], lines[3]]
    (one,) = summary.files
    assert (one.sent, one.too_large, one.too_large_lines) == (3, 1, [2])
    assert not summary.complete
    again = await publish(kafka, PAYROLL, [tmp_path / "run.ndjson"])
    assert (again.files[0].outcome, again.complete) == ("already", False)


async def test_a_missing_topic_or_path_is_said_before_anything_is_sent(
    services: Services, topic_prefix: str, tmp_path: Path
) -> None:
    """The message says what to do."""
    kafka = kafka_settings(services.bootstrap, topic_prefix)
    (tmp_path / "run.ndjson").write_bytes(plain(1))
    with pytest.raises(ConfigurationError, match=r"no topic .*payroll\.raw.* topics create"):
        await publish(kafka, PAYROLL, [tmp_path])
    with pytest.raises(ConfigurationError, match="neither a file nor a folder"):
        await publish(kafka, PAYROLL, [tmp_path / "gone"])


async def test_a_dry_run_sends_nothing_and_needs_no_broker(tmp_path: Path) -> None:
    """Files are read to their end and planned; no state is left."""
    nowhere = KafkaSettings("127.0.0.1:1")
    (tmp_path / "a.csv").write_bytes(HEADER + b"A10042,R1,,,2.50\nA10042,R1\n")
    (tmp_path / "b.csv").write_bytes(HEADER + b'A10042,"')
    summary = await publish(nowhere, PAYROLL, [tmp_path], PublishOptions(dry_run=True))
    assert [(one.outcome, one.rows, one.malformed) for one in summary.files] == [
        ("checked", 2, 1),
        ("refused", 0, 0),
    ]
    run = summary.files[0].runs["R1"]
    assert (run.chunks, run.records, run.totals) == (1, 2, {"USD": Decimal("2.50")})
    assert names_in(tmp_path) == ["a.csv", "b.csv"]


async def test_a_dry_run_knows_what_the_topic_takes(
    services: Services, topic_prefix: str, tmp_path: Path
) -> None:
    """Where the topic can be asked, rows that are too large are counted."""
    kafka = kafka_settings(services.bootstrap, topic_prefix)
    await make_topic(kafka, kafka.topic("payroll.raw"), 1, max_message_bytes="50000")
    await create_topics(kafka, [PAYROLL], partitions=1, replication=1)
    (tmp_path / "a.ndjson").write_bytes(b'{"pad":"' + b"x" * 60_000 + b'"}')
    summary = await publish(kafka, PAYROLL, [tmp_path], PublishOptions(dry_run=True))
    assert (summary.total("too_large"), summary.complete) == (1, False)
    assert await read_all(kafka, kafka.topic("payroll.raw"), 0) == []


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
    summary = await publish(kafka, dvir, [tmp_path / "page.json"], PublishOptions(profile=profile))
    (one,) = summary.files
    assert (one.rows, one.sent, one.malformed) == (2, 2, 1)
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
    summary = await publish(kafka, dvir, [tmp_path], PublishOptions(profile=profile))
    assert [(one.outcome, one.sent) for one in summary.files] == [("refused", 0)]
    assert "malformed_file" in str(summary.files[0].why)
    assert await published(kafka, "dvir.raw") == []


async def test_progress_grows_to_the_end(kafka: KafkaSettings, tmp_path: Path) -> None:
    """Both readings' bars end full, with every record acknowledged."""
    for name in ("a.ndjson", "b.ndjson"):
        (tmp_path / name).write_bytes(b"\n".join(plain(n) for n in range(2_000)))
    steps: list[Progress] = []
    await publish(kafka, PAYROLL, [tmp_path], on_progress=steps.append)
    for phase in ("checking", "publishing"):
        read = [step.bytes_read for step in steps if step.phase == phase]
        assert read == sorted(read)
        assert read[-1] == steps[-1].bytes_total
        assert [step.records for step in steps if step.phase == phase][-1] == 4_000


async def test_correlation_ids_name_file_and_line(kafka: KafkaSettings, tmp_path: Path) -> None:
    """On request every record says where it came from."""
    (tmp_path / "run.ndjson").write_bytes(plain(1) + b"\n\n" + plain(2))
    await publish(kafka, PAYROLL, [tmp_path], PublishOptions(correlation=True))
    headers = {value: headers for _, _, value, headers in await published(kafka)}
    assert headers == {
        plain(1): (("correlation-id", b"run.ndjson:1"),),
        plain(2): (("correlation-id", b"run.ndjson:3"),),
    }


# --- back-fills, rates, manifests -----------------------------------------------------------------


async def test_back_filled_records_are_not_too_old(
    services: Services, topic_prefix: str, tmp_path: Path
) -> None:
    """A report of years ago is `clock_skew` when it is published plainly, and fits as back-fill."""
    kafka = kafka_settings(services.bootstrap, topic_prefix)
    await create_topics(kafka, [DVIR], partitions=1, replication=1)
    example = json.loads((DVIR.examples / "valid" / "minimal.json").read_text())["members"]
    old = {**example, "inspected_at": "2021-03-01T10:00:00Z"}
    (tmp_path / "old.ndjson").write_text(json.dumps(old) + "\n")
    await publish(kafka, DVIR, [tmp_path])
    await publish(kafka, DVIR, [tmp_path], PublishOptions(backfill=True, again=True))
    source, verdicts = Source("dvir.raw", 0), []
    for found in await read_all(kafka, kafka.topic("dvir.raw"), 0):
        raw = Record(found.offset, found.value, found.timestamp, found.key, found.headers)
        verdicts.append(decide(raw, DVIR, source, DecisionSet(), {}))
    first, second = verdicts
    assert str(getattr(first, "reason", None)) == "clock_skew"
    assert isinstance(second, Accepted)


async def test_a_rate_is_kept(kafka: KafkaSettings, tmp_path: Path) -> None:
    """So many records a second and no more, evenly over the chunks."""
    path = write_runs(tmp_path / "a.ndjson", 300)
    options = PublishOptions(chunks=ChunkLimits(50), rate=100)
    began_s = time.monotonic()
    summary = await publish(kafka, PAYROLL, [path], options)
    assert summary.complete
    assert 2.5 <= time.monotonic() - began_s < 6


async def test_a_file_goes_only_as_its_manifest_says(kafka: KafkaSettings, tmp_path: Path) -> None:
    """With a figure that differs nothing is sent and no state is left; as it should be, it goes."""
    path, manifest = tmp_path / "payroll_clean.csv", tmp_path / "m.manifest.json"
    path.write_bytes((SAMPLES / "payroll_clean.csv").read_bytes())
    told = (SAMPLES / "payroll_clean.manifest.json").read_text()
    manifest.write_text(told.replace('"4197.87"', '"4197.88"'))
    refused = await publish(kafka, PAYROLL, [path], PublishOptions(manifest=manifest))
    (one,) = refused.files
    assert (one.outcome, refused.failure) == ("refused", None)
    assert one.differences == ["chunk 1: gross_pay_sum: manifest 4197.88, file 4197.87"]
    assert await published(kafka) == []
    assert names_in(tmp_path) == [manifest.name, path.name]
    manifest.write_text(told)
    summary = await publish(kafka, PAYROLL, [path], PublishOptions(manifest=manifest))
    assert (summary.complete, summary.total("sent")) == (True, 10)


async def test_options_that_cannot_be_are_said_before_anything_is_sent(
    kafka: KafkaSettings, tmp_path: Path
) -> None:
    """The message names the option."""
    for name in ("a.ndjson", "b.ndjson"):
        (tmp_path / name).write_bytes(plain(1))
    for options, said in (
        (PublishOptions(manifest=SAMPLES / "payroll_clean.manifest.json"), "--manifest is about"),
        (PublishOptions(state=tmp_path / "s"), "--state is about one file"),
        (PublishOptions(backfill=True), "--backfill: payroll"),
        (PublishOptions(chunks=ChunkLimits(2_001)), "--chunk-records takes 1 to 2000"),
    ):
        with pytest.raises(ConfigurationError, match=said):
            await publish(kafka, PAYROLL, [tmp_path], options)
    assert await published(kafka) == []


def test_csv_fields_follow_from_the_contract() -> None:
    """Lists are known by the raw schema, so a new record type needs nothing here."""
    payroll = csv_fields(PAYROLL)
    assert {"employee_id", "gross_pay", "statement_type"} <= set(payroll.known)
    assert set(payroll.lists) == {"earnings", "deductions", "taxes"}
