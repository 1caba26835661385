"""The embedded servers start, keep their data, leave no orphans and explain what they lack."""

from __future__ import annotations

import contextlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import asyncpg
import psutil
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from connectors.embedded import jars
from connectors.embedded.kafka import EmbeddedKafka
from connectors.embedded.postgres import EmbeddedPostgres
from connectors.embedded.processes import (
    STATE_FILE,
    ServerFailed,
    ServerState,
    end_leftovers,
    read_state,
    running_process,
    write_state,
)
from connectors.embedded.services import EmbeddedServices, find_running
from connectors.errors import ConfigurationError

ROOT = Path(__file__).parents[2]
services_marker = pytest.mark.services


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that the user PostgreSQL runs as can reach, unlike pytest's own."""
    place = Path(tempfile.mkdtemp(prefix="wb-embedded-"))
    yield place
    shutil.rmtree(place, ignore_errors=True)


async def rows(server: EmbeddedPostgres) -> list[int]:
    connection = await asyncpg.connect(server.dsn())
    try:
        return [row[0] for row in await connection.fetch("SELECT id FROM kept ORDER BY id")]
    finally:
        await connection.close()


@services_marker
async def test_postgres_keeps_data_and_port_over_stop_and_kill(folder: Path) -> None:
    """What was committed is there after a restart and after SIGKILL, on the same port."""
    with EmbeddedPostgres(folder) as server:
        dsn = server.dsn()
        connection = await asyncpg.connect(dsn)
        await connection.execute("CREATE TABLE kept (id integer)")
        await connection.execute("INSERT INTO kept VALUES (1)")
        await connection.close()
        server.restart()
        assert await rows(server) == [1]
        server.kill()
        assert not server.is_running
        server.start()
        assert await rows(server) == [1]
        assert server.dsn() == dsn
    with pytest.raises(OSError, match=r"."):
        await asyncpg.connect(dsn, timeout=2)


@services_marker
async def test_postgres_is_set_up_alike_everywhere(folder: Path) -> None:
    """Encoding, order of text, time zone and durability do not depend on the machine."""
    with EmbeddedPostgres(folder) as server:
        connection = await asyncpg.connect(server.dsn())
        names = ("server_encoding", "timezone", "fsync", "synchronous_commit", "max_connections")
        found = {name: await connection.fetchval(f"SHOW {name}") for name in names}
        locale = await connection.fetchval(
            "SELECT datlocale FROM pg_database WHERE datname = current_database()"
        )
        await connection.close()
        by_socket = await asyncpg.connect(
            host=str(server.socket_dir), port=server.port, user="postgres", database="postgres"
        )
        await by_socket.close()
    assert found == {
        "server_encoding": "UTF8",
        "timezone": "UTC",
        "fsync": "on",
        "synchronous_commit": "on",
        "max_connections": "100",
    }
    assert locale == "C.UTF-8"


@services_marker
def test_postgres_that_cannot_start_shows_its_log(folder: Path) -> None:
    """The error of a server that does not come up ends with what the server said."""
    server = EmbeddedPostgres(folder, settings={"shared_buffers": "nonsense"})
    with pytest.raises(ServerFailed, match="invalid value for parameter"):
        server.start()
    assert not server.is_running


@services_marker
async def test_kafka_keeps_records_and_port_over_stop_and_kill(folder: Path) -> None:
    """What was acknowledged is there after a restart and after SIGKILL, on the same port."""
    with EmbeddedKafka(folder) as server:
        bootstrap = server.bootstrap
        await create_topic(bootstrap, "kept")
        await produce(bootstrap, b"one")
        server.restart()
        await produce(bootstrap, b"two")
        server.kill()
        server.start()
        assert server.bootstrap == bootstrap
        assert await consume(bootstrap) == [b"one", b"two"]


async def create_topic(bootstrap: str, name: str) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    await admin.create_topics([NewTopic(name, 1, 1)])
    await admin.close()


async def produce(bootstrap: str, value: bytes) -> None:
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id="test")
    await producer.start()
    async with producer.transaction():
        await producer.send_and_wait("kept", value)
    await producer.stop()


async def consume(bootstrap: str) -> list[bytes]:
    consumer = AIOKafkaConsumer(
        bootstrap_servers=bootstrap, isolation_level="read_committed", auto_offset_reset="earliest"
    )
    await consumer.start()
    consumer.assign([TopicPartition("kept", 0)])
    values: list[bytes] = []
    with contextlib.suppress(TimeoutError):
        while len(values) < 2:
            values.append((await consumer.getone()).value)
    await consumer.stop()
    return values


@services_marker
async def test_a_paused_server_answers_again_when_resumed(folder: Path) -> None:
    """SIGSTOP and SIGCONT reach the server and its children; a paused one can be stopped."""
    with EmbeddedPostgres(folder, fsync=False) as server:
        process = psutil.Process(server.pid)
        family = [process, *process.children()]
        server.pause()
        assert {member.status() for member in family} == {psutil.STATUS_STOPPED}
        server.resume()
        assert server.is_running
        connection = await asyncpg.connect(server.dsn(), timeout=10)
        await connection.close()
        server.pause()


@services_marker
def test_servers_of_a_killed_parent_are_ended_by_the_next_start(folder: Path) -> None:
    """A parent that dies by SIGKILL leaves servers; the next start ends them, on the same ports."""
    code = (
        "import sys, time, pathlib\n"
        "from connectors.embedded.services import EmbeddedServices\n"
        "EmbeddedServices(pathlib.Path(sys.argv[1]), fsync=False).start()\n"
        "print('up', flush=True)\n"
        "time.sleep(600)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(folder)], stdout=subprocess.PIPE, cwd=ROOT
    ) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == b"up\n"
        with pytest.raises(ConfigurationError, match="another process"):
            EmbeddedServices(folder).start()
        parent.kill()
    orphans = [pid_in(folder / name) for name in ("kafka", "postgres")]
    assert all(psutil.pid_exists(pid) for pid in orphans)
    found = find_running(folder)
    with EmbeddedServices(folder, fsync=False) as services:
        assert not any(psutil.pid_exists(pid) for pid in orphans)
        assert found is not None
        assert found.bootstrap == services.bootstrap
        assert found.dsn() == services.postgres.dsn()
    assert find_running(folder) is None


@services_marker
@pytest.mark.parametrize("after_s", [0.3, 1.2, 2.0])
def test_an_interrupted_start_leaves_nothing_running(folder: Path, after_s: float) -> None:
    """Ctrl-C in the middle of a start ends what was launched until then; the folder is free."""
    code = (
        "import sys, pathlib\n"
        "from connectors.embedded.services import EmbeddedServices\n"
        "services = EmbeddedServices(pathlib.Path(sys.argv[1]), fsync=False)\n"
        "print('starting', flush=True)\n"
        "services.start()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(folder)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=ROOT,
    ) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == b"starting\n"
        time.sleep(after_s)
        parent.send_signal(signal.SIGINT)
        _, said = parent.communicate(timeout=40)
    assert b"KeyboardInterrupt" in said
    assert [process for process in psutil.process_iter() if mentions(process, folder)] == []
    assert EmbeddedServices(folder).end_leftovers() == 0


def mentions(process: psutil.Process, place: Path) -> bool:
    with contextlib.suppress(psutil.Error):
        return any(str(place) in argument for argument in process.cmdline())
    return False


def pid_in(place: Path) -> int:
    state = read_state(place)
    assert state is not None
    return state.pid


def test_a_process_that_took_over_a_pid_is_left_alone(tmp_path: Path) -> None:
    """A state file whose process id belongs to somebody else now ends nobody."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as stranger:
        started = psutil.Process(stranger.pid).create_time()
        state = ServerState(stranger.pid, started, "--weighbridge.data=/elsewhere", 1)
        write_state(tmp_path, state)
        assert running_process(state) is None
        assert end_leftovers(tmp_path, state.marker, signal.SIGTERM) == 0
        assert stranger.poll() is None
        assert not (tmp_path / STATE_FILE).exists()
        stranger.kill()


def test_a_marked_process_without_state_file_is_ended(tmp_path: Path) -> None:
    """A parent may die between starting a server and noting it: the command line tells, too."""
    marker = f"--weighbridge.data={tmp_path}"
    argv = [sys.executable, "-c", "print(flush=True); input()", marker]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as orphan:
        assert orphan.stdout is not None
        orphan.stdout.readline()
        assert end_leftovers(tmp_path, marker, signal.SIGTERM) == 1
        assert not psutil.pid_exists(orphan.pid)


def test_without_network_the_first_start_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An empty cache and no network: a configuration error that names the ways out."""
    monkeypatch.setenv("WEIGHBRIDGE_CACHE", str(tmp_path))
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("NO_PROXY", "")
    with pytest.raises(ConfigurationError) as caught:
        jars.kafka_jars()
    message = str(caught.value)
    assert "network access" in message
    assert "WEIGHBRIDGE_CACHE" in message
    assert "kafka_bootstrap" in message


def test_a_jar_with_another_digest_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was downloaded and is not what the lock pins never enters the cache."""
    monkeypatch.setenv("WEIGHBRIDGE_CACHE", str(tmp_path))

    class Forged:
        cached_path = None

        def resolve(self) -> Path:
            file = tmp_path / "forged.jar"
            file.write_bytes(b"forged")
            return file

    monkeypatch.setattr(jars, "_artifact", lambda *_: Forged())
    with pytest.raises(ConfigurationError, match="pins"):
        jars.kafka_jars()
    assert not list(tmp_path.rglob("*.jar"))


def test_a_full_cache_needs_neither_network_nor_resolver(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once all jars lie in the cache, nothing but their names is looked at."""
    monkeypatch.setenv("WEIGHBRIDGE_CACHE", str(tmp_path))
    place = tmp_path / f"kafka-{jars.KAFKA_VERSION}"
    place.mkdir()
    for jar in jars.locked_jars():
        (place / jar.file_name).touch()

    def refuse(*_: object) -> None:
        pytest.fail("the resolver was asked")

    monkeypatch.setattr(jars, "_maven", refuse)
    assert len(jars.kafka_jars()) == len(jars.locked_jars())


def test_the_lock_pins_kafka_and_every_jar_by_digest() -> None:
    """The lock names this Kafka, one file name per jar, and a SHA-256 each."""
    locked = jars.locked_jars()
    assert jars.KAFKA in {jar.coordinates for jar in locked}
    assert len({jar.file_name for jar in locked}) == len(locked)
    assert all(len(jar.sha256) == 64 and jar.size > 0 for jar in locked)
