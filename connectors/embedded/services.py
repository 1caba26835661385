"""Both servers as one thing to start and stop, and how another process finds them running."""

from __future__ import annotations

import fcntl
import os
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Self
from urllib.parse import quote

from connectors.embedded.kafka import EmbeddedKafka
from connectors.embedded.postgres import SUPERUSER, EmbeddedPostgres
from connectors.embedded.processes import Progress, end_leftovers, read_state, running_process
from connectors.errors import ConfigurationError

KAFKA_FOLDER = "kafka"
POSTGRES_FOLDER = "postgres"
LOCK_FILE = "services.lock"


@dataclass(frozen=True, slots=True)
class RunningServices:
    """Where embedded services that another process started can be reached."""

    bootstrap: str
    postgres_port: int

    def dsn(self, database: str = "postgres", user: str = SUPERUSER) -> str:
        """Address of a database, as `EmbeddedPostgres.dsn` gives it."""
        return f"postgresql://{quote(user)}@127.0.0.1:{self.postgres_port}/{quote(database)}"


def find_running(data_dir: Path) -> RunningServices | None:
    """The services that run on this folder; None unless both do."""
    ports = []
    for name in (KAFKA_FOLDER, POSTGRES_FOLDER):
        state = read_state(Path(data_dir).expanduser().resolve() / name)
        if state is None or running_process(state) is None:
            return None
        ports.append(state.port)
    return RunningServices(f"127.0.0.1:{ports[0]}", ports[1])


class EmbeddedServices:
    """Kafka and PostgreSQL with their data under `data_dir`.

    Guarantees: one parent at a time holds a folder, for as long as it lives; what an earlier parent
    left running is ended at the next start; data are kept. A parent that ends without `stop` leaves
    both servers up, where `find_running` finds them.
    """

    def __init__(self, data_dir: Path, *, fsync: bool = True) -> None:
        self.data_dir = Path(data_dir).expanduser().resolve()
        self.kafka = EmbeddedKafka(self.data_dir / KAFKA_FOLDER)
        self.postgres = EmbeddedPostgres(self.data_dir / POSTGRES_FOLDER, fsync=fsync)
        self._lock: int | None = None

    @property
    def bootstrap(self) -> str:
        """What Kafka clients connect to."""
        return self.kafka.bootstrap

    def start(self, progress: Progress | None = None) -> None:
        """Start both at the same time and return when both serve.

        Blocks: three to five seconds, longer while Kafka is downloaded for the first time. Raises
        `ConfigurationError`, `ServerFailed`; then, and when interrupted, neither is left running.
        """
        self._take_lock()
        threads = ThreadPoolExecutor(2)
        starting = [
            threads.submit(self.kafka.start, progress),
            threads.submit(self.postgres.start),
        ]
        try:
            wait(starting, return_when=FIRST_EXCEPTION)
            for future in starting:
                future.result()
        except BaseException:
            # Ctrl-C, for one. What a thread has launched is known only when the thread is done.
            self.kafka.abandon()
            self.postgres.abandon()
            wait(starting)
            self.stop()
            raise
        finally:
            threads.shutdown(wait=False)

    def stop(self) -> None:
        """Stop both in order and let go of the folder. Idempotent."""
        try:
            with ThreadPoolExecutor(2) as threads:
                stopping = (threads.submit(self.kafka.stop), threads.submit(self.postgres.stop))
            for future in stopping:
                future.result()
        finally:
            self._release_lock()

    def end_leftovers(self) -> int:
        """End what an earlier parent left running here, without starting anew; how many."""
        self._take_lock()
        try:
            return sum(
                end_leftovers(server.data_dir, server.marker, server.stop_signal)
                for server in (self.kafka, self.postgres)
            )
        finally:
            self._release_lock()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _take_lock(self) -> None:
        """A lock of the kernel's: it ends with this process, however that ends."""
        try:
            self.data_dir.mkdir(parents=True, exist_ok=True)
            lock = os.open(self.data_dir / LOCK_FILE, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            message = f"{self.data_dir} cannot hold the services' data: {error.strerror}"
            raise ConfigurationError(message) from None
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(lock)
            message = (
                f"another process runs the embedded services of {self.data_dir}; stop it, or"
                " choose another folder with the setting data_dir"
            )
            raise ConfigurationError(message) from None
        self._lock = lock

    def _release_lock(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None
