"""Publishing through crashes, lost answers, second publishers and outages: every row once."""

from __future__ import annotations

import asyncio
import json
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka import errors as kafka_errors

from connectors.errors import BrokerUnavailable
from connectors.kafka.admin import KafkaAdmin
from connectors.kafka.settings import KafkaSettings
from streams.publish import PublishOptions, publish
from streams.publishing import sending
from streams.publishing.chunks import ChunkLimits
from streams.publishing.state import State
from streams.publishing.summary import FileSummary, Progress, PublishSummary
from tests.cli.command import ROOT, environment
from tests.connectors.publishing import (
    PAYROLL,
    check_exactly_once,
    manifests,
    published,
    topics_of,
    write_runs,
)
from tests.servers import Services

KILLS = 4
KILLED_AFTER_S = 0.7, 1.6
RATE = 1_200
"""Records a second, so that not even a fast machine is done before the last kill."""
SMALL = PublishOptions(chunks=ChunkLimits(50))


@pytest.fixture
async def kafka(services: Services, topic_prefix: str) -> KafkaSettings:
    return await topics_of(services, topic_prefix)


def state_of(path: Path) -> State:
    beside = path.with_name(path.name + ".weighbridge-publish.json")
    return State.model_validate_json(beside.read_bytes())


async def publish_until(
    kafka: KafkaSettings, path: Path, records: int, options: PublishOptions = SMALL
) -> PublishSummary:
    """Publish and be interrupted once so many records are in."""
    stop = asyncio.Event()

    def watch(progress: Progress) -> None:
        if sent(progress) >= records:
            stop.set()

    return await publish(kafka, PAYROLL, [path], options, on_progress=watch, stop=stop)


def sent(progress: Progress) -> int:
    """Records that are in by now."""
    return progress.records if progress.phase == "publishing" else 0


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def only(summary: PublishSummary) -> FileSummary:
    (one,) = summary.files
    return one


# --- crashes --------------------------------------------------------------------------------------


class Publisher:
    """The command as a child process, to be killed."""

    def __init__(
        self, kafka: KafkaSettings, path: Path, *act: str, rate: int | None = None
    ) -> None:
        module = ("tests.faults.acting_worker", *act) if act else ("streams.cli",)
        arguments = ["publish", "payroll", str(path), "--chunk-records", "50", "--json"]
        if rate is not None:
            arguments += ["--rate", str(rate)]
        self.process = subprocess.Popen(
            [sys.executable, "-m", *module, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment(kafka_bootstrap=kafka.bootstrap, topic_prefix=kafka.topic_prefix),
            cwd=ROOT,
            text=True,
        )

    def end(self) -> tuple[int, str]:
        out, _ = self.process.communicate(timeout=60)
        return self.process.returncode, out


@pytest.mark.parametrize("seed", [1, 2])
async def test_killed_at_any_moment_every_row_is_there_once(
    kafka: KafkaSettings, tmp_path: Path, seed: int
) -> None:
    """kill -9 some time after the first chunk or before it, again and again; the same command ends
    the work. A pass shows these moments, not all: the exact ones are below."""
    chance = random.Random(seed)
    path = write_runs(tmp_path / "runs.ndjson", 8_000, runs=3)
    for _ in range(KILLS):
        child = Publisher(kafka, path, rate=RATE)
        with pytest.raises(subprocess.TimeoutExpired):
            child.process.communicate(timeout=chance.uniform(*KILLED_AFTER_S))
        child.process.kill()
        child.end()
    code, out = Publisher(kafka, path).end()
    assert code == 0
    assert json.loads(out)["complete"]
    check_exactly_once(await published(kafka), path)
    counted = Counter(key for key, _ in await manifests(kafka))
    assert counted == {b"R0": 1, b"R1": 1, b"R2": 1}


@pytest.mark.parametrize(
    ("act", "in_before"),
    [("kill-inside-emit", 2), ("kill-before-commit", 2), ("kill-after-commit", 3)],
)
async def test_killed_around_the_commit_the_offset_says_what_is_in(
    kafka: KafkaSettings, tmp_path: Path, act: str, in_before: int
) -> None:
    """Killed in the third transaction: before its commit it is not in, after it is, whatever the
    state file says."""
    path = write_runs(tmp_path / "runs.ndjson", 500)
    code, _ = Publisher(kafka, path, act, "3").end()
    assert code == -signal.SIGKILL
    before = state_of(path)
    summary = await publish(kafka, PAYROLL, [path], SMALL)
    assert summary.complete
    assert only(summary).publication == str(before.publication)
    assert only(summary).sent_before == in_before * 50
    assert only(summary).sent == 500 - in_before * 50
    check_exactly_once(await published(kafka), path)


async def test_a_commit_whose_answer_is_lost_is_looked_up(
    kafka: KafkaSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both kinds of trouble are alike to the publisher: the commit came through, or it did not."""
    path = write_runs(tmp_path / "runs.ndjson", 600)
    real, calls = AIOKafkaProducer.commit_transaction, 0

    async def unsure(self: AIOKafkaProducer) -> None:
        nonlocal calls
        calls += 1
        if calls % 3 == 1:
            raise kafka_errors.KafkaConnectionError
        await real(self)
        if calls % 3 == 2:
            raise kafka_errors.RequestTimedOutError

    monkeypatch.setattr(AIOKafkaProducer, "commit_transaction", unsure)
    monkeypatch.setattr(sending, "RETRY_FIRST_S", 0.01)
    summary = await publish(kafka, PAYROLL, [path], SMALL)
    monkeypatch.undo()
    assert (summary.complete, only(summary).sent, only(summary).chunks_done) == (True, 600, 12)
    assert calls > 12
    check_exactly_once(await published(kafka), path)


async def test_a_lost_produce_is_sent_again(
    kafka: KafkaSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A produce that fails keeps its chunk back, which aiokafka's commit alone would not."""
    path = write_runs(tmp_path / "runs.ndjson", 300)
    real, calls = AIOKafkaProducer.send_batch, 0

    async def losing(self: AIOKafkaProducer, *args: object, **kwargs: object) -> object:
        nonlocal calls
        calls += 1
        if calls != 3:
            return await real(self, *args, **kwargs)
        answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        answer.set_exception(kafka_errors.KafkaTimeoutError())
        return answer

    monkeypatch.setattr(AIOKafkaProducer, "send_batch", losing)
    assert (await publish(kafka, PAYROLL, [path], SMALL)).complete
    check_exactly_once(await published(kafka), path)


# --- interrupted, and going on --------------------------------------------------------------------


async def test_interrupted_it_goes_on_where_it_was(kafka: KafkaSettings, tmp_path: Path) -> None:
    """The chunk at work is finished, the summary is what is on the topic, and the same call sends
    the rest; done, it sends nothing more until asked to publish again."""
    path = write_runs(tmp_path / "runs.ndjson", 3_000, runs=2)
    first = await publish_until(kafka, path, 500)
    assert only(first).outcome == "interrupted"
    assert 500 <= only(first).sent == only(first).chunks_done * 50 < 3_000
    assert len(await published(kafka)) == only(first).sent
    assert state_of(path).chunks_done == only(first).chunks_done
    second = await publish(kafka, PAYROLL, [path], SMALL)
    assert second.complete
    assert only(second).sent_before == only(first).sent
    assert only(second).sent + only(second).sent_before == 3_000
    check_exactly_once(await published(kafka), path)
    third = await publish(kafka, PAYROLL, [path], SMALL)
    assert (only(third).outcome, only(third).sent, third.complete) == ("already", 0, True)
    assert "already published completely at" in (only(third).note or "")
    fourth = await publish(kafka, PAYROLL, [path], PublishOptions(again=True))
    assert (only(fourth).sent, only(fourth).publication != only(first).publication) == (3_000, True)
    assert len(await published(kafka)) == 6_000


async def test_interrupted_before_anything_is_sent(kafka: KafkaSettings, tmp_path: Path) -> None:
    """While the file is read for the first time nothing has begun: no state is left."""
    path = write_runs(tmp_path / "runs.ndjson", 60_000)
    stop = asyncio.Event()

    one = only(await publish(kafka, PAYROLL, [path], on_progress=lambda _: stop.set(), stop=stop))
    assert (one.outcome, one.sent) == ("interrupted", 0)
    assert names_in(path.parent) == ["runs.ndjson"]


@pytest.mark.parametrize("way", ["content", "cut"])
async def test_another_file_or_cut_does_not_finish_it(
    kafka: KafkaSettings, tmp_path: Path, way: str
) -> None:
    """It is told what differs; made as it was it goes on, and --again begins anew."""
    path = write_runs(tmp_path / "runs.ndjson", 1_000)
    content = path.read_bytes()
    begun = only(await publish_until(kafka, path, 100))
    options = SMALL
    if way == "content":
        path.write_bytes(content.replace(b"EMP0000900", b"EMP1000900"))
    else:
        options = PublishOptions(chunks=ChunkLimits(49))
    refused = await publish(kafka, PAYROLL, [path], options)
    assert (only(refused).outcome, only(refused).sent) == ("stopped", 0)
    said = {"content": "the file has changed", "cut": "--chunk-records is not 50"}[way]
    assert said in (only(refused).why or "")
    path.write_bytes(content)
    if way == "content":
        assert (await publish(kafka, PAYROLL, [path], SMALL)).complete
        check_exactly_once(await published(kafka), path)
    else:
        again = PublishOptions(chunks=ChunkLimits(49), again=True)
        assert only(await publish(kafka, PAYROLL, [path], again)).sent == 1_000
        assert len(await published(kafka)) == 1_000 + begun.sent


async def test_a_file_changed_between_its_readings_ends_it(
    kafka: KafkaSettings, tmp_path: Path
) -> None:
    """What was planned is not what would be sent: it ends, and what is in says so."""
    path = write_runs(tmp_path / "runs.ndjson", 3_000)
    content = path.read_bytes()

    def change(progress: Progress) -> None:
        if sent(progress):
            path.write_bytes(content.replace(b"EMP0002500", b"EMP1002500"))

    one = only(await publish(kafka, PAYROLL, [path], SMALL, on_progress=change))
    assert one.outcome == "refused"
    assert "was changed while it was read" in (one.why or "")
    assert len(await published(kafka)) == one.chunks_done * 50 == one.sent < 3_000


async def test_offsets_that_kafka_forgot_are_said(
    kafka: KafkaSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The state's own count stands in, and the summary says what that may mean."""
    path = write_runs(tmp_path / "runs.ndjson", 1_000)
    await publish_until(kafka, path, 300)

    async def forgotten(*_: object) -> None:
        return None

    monkeypatch.setattr(KafkaAdmin, "committed", forgotten)
    one = only(await publish(kafka, PAYROLL, [path], SMALL))
    assert one.outcome == "published"
    assert "no longer knew" in (one.note or "")
    check_exactly_once(await published(kafka), path)


async def test_offsets_behind_the_state_stop(kafka: KafkaSettings, tmp_path: Path) -> None:
    """A state that knows of more than Kafka holds is of another life of the cluster."""
    path = write_runs(tmp_path / "runs.ndjson", 1_000)
    done = only(await publish_until(kafka, path, 300)).chunks_done
    beside = path.with_name(path.name + ".weighbridge-publish.json")
    told = json.loads(beside.read_text())
    beside.write_text(json.dumps({**told, "chunks_done": done + 1}))
    one = only(await publish(kafka, PAYROLL, [path], SMALL))
    assert (one.outcome, one.sent) == ("stopped", 0)
    assert f"Kafka has {done} of its chunks" in (one.why or "")


# --- two at once ----------------------------------------------------------------------------------


async def test_a_second_publisher_of_a_state_is_refused(
    kafka: KafkaSettings, tmp_path: Path
) -> None:
    """While one is at work the other is told, and harms nothing."""
    path = write_runs(tmp_path / "runs.ndjson", 2_000)
    second: list[asyncio.Task[PublishSummary]] = []

    def start(progress: Progress) -> None:
        if sent(progress) and not second:
            second.append(asyncio.create_task(publish(kafka, PAYROLL, [path], SMALL)))

    first = await publish(
        kafka,
        PAYROLL,
        [path],
        PublishOptions(chunks=ChunkLimits(50), rate=3_000),
        on_progress=start,
    )
    other = only(await second[0])
    assert first.complete
    assert other.outcome == "stopped"
    assert "another publisher is at work" in (other.why or "")
    check_exactly_once(await published(kafka), path)


async def test_two_publishers_with_copies_of_a_state_double_nothing(
    kafka: KafkaSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No lock sees a copy on another machine: fencing does, and each chunk is in once."""
    monkeypatch.setattr(sending, "RETRY_FIRST_S", 0.05)
    path = write_runs(tmp_path / "runs.ndjson", 3_000, runs=2)
    await publish_until(kafka, path, 200)
    beside = path.with_name(path.name + ".weighbridge-publish.json")
    copy = tmp_path / "copy.weighbridge-publish.json"
    copy.write_bytes(beside.read_bytes())
    both = await asyncio.gather(
        publish(kafka, PAYROLL, [path], SMALL),
        publish(kafka, PAYROLL, [path], PublishOptions(chunks=ChunkLimits(50), state=copy)),
    )
    outcomes = [only(one).outcome for one in both]
    assert set(outcomes) <= {"published", "stopped"}
    assert "published" in outcomes
    check_exactly_once(await published(kafka), path)


# --- Kafka goes away ------------------------------------------------------------------------------


async def test_an_outage_ends_it_and_the_same_call_goes_on(
    services: Services,
    topic_prefix: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Past the bound it is a failure that says so; when Kafka is back every row comes in once."""
    kafka = await topics_of(
        services,
        topic_prefix,
        request_timeout_ms=1_000,
        transaction_timeout_ms=2_000,
        call_deadline_s=2.0,
    )
    monkeypatch.setattr(sending, "STALLED_S", 2.0)
    path = write_runs(tmp_path / "runs.ndjson", 3_000)

    def pause(progress: Progress) -> None:
        if sent(progress) > 500 and services.kafka.is_running:
            services.kafka.pause()

    began_s = time.monotonic()
    summary = await publish(kafka, PAYROLL, [path], SMALL, on_progress=pause)
    assert time.monotonic() - began_s < 30
    services.kafka.resume()
    assert isinstance(summary.failure, BrokerUnavailable)
    assert only(summary).outcome == "failed"
    assert only(summary).sent < 3_000
    monkeypatch.undo()
    assert (await publish(kafka, PAYROLL, [path], SMALL)).complete
    check_exactly_once(await published(kafka), path)


async def test_a_restart_of_the_broker_is_waited_for(
    services: Services, kafka: KafkaSettings, tmp_path: Path
) -> None:
    """A short outage shows in nothing but time."""
    path = write_runs(tmp_path / "runs.ndjson", 3_000)
    restarted: list[asyncio.Task[None]] = []

    def restart(progress: Progress) -> None:
        if sent(progress) > 500 and not restarted:
            work = asyncio.to_thread(services.kafka.restart)
            restarted.append(asyncio.ensure_future(work))

    summary = await publish(kafka, PAYROLL, [path], SMALL, on_progress=restart)
    await asyncio.gather(*restarted)
    assert restarted
    assert (summary.complete, summary.failure) == (True, None)
    check_exactly_once(await published(kafka), path)
