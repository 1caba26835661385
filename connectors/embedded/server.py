"""One server process on one data folder: what Kafka and PostgreSQL have in common.

Blocks: every method here may block; asyncio code calls them in a thread.
"""

from __future__ import annotations

import dataclasses
import signal
import subprocess
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, Self

import psutil

from connectors.embedded.processes import (
    POLL_INTERVAL_S,
    Progress,
    ServerFailed,
    ServerState,
    await_stopped,
    end_child,
    end_leftovers,
    family,
    free_port,
    kill_all,
    port_is_free,
    read_state,
    send_all,
    tail,
    write_state,
)
from connectors.errors import ConfigurationError, invariant

PORT_DEADLINE_S = 5.0


class Server(ABC):
    """One server process on one data folder: start, stop, and the faults that tests need."""

    name: ClassVar[str]
    stop_signal: ClassVar[signal.Signals]
    start_deadline_s: ClassVar[float]

    def __init__(self, data_dir: Path, port: int | None = None) -> None:
        self.data_dir = Path(data_dir).expanduser().resolve()
        self._wanted_port = port
        self._port: int | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._abandoned = threading.Event()

    # --- what a server has to say ---

    @property
    @abstractmethod
    def marker(self) -> str:
        """A command-line argument that no other process carries: it names the data folder."""

    @abstractmethod
    def _prepare(self, progress: Progress | None) -> None:
        """Everything before the server process: downloads, formatting, configuration files."""

    @abstractmethod
    def _launch(self) -> subprocess.Popen[bytes]:
        """Start the process, its output going to `logs`."""

    @abstractmethod
    def _ready(self, pid: int) -> bool:
        """Whether the process serves clients now."""

    @property
    @abstractmethod
    def logs(self) -> Sequence[Path]:
        """Log files, the most telling last."""

    # --- what all servers do ---

    @property
    def port(self) -> int:
        """The TCP port on 127.0.0.1; known from the first start on and kept from then."""
        invariant(self._port is not None, f"{self.name} has not been started")
        return self._port or 0

    @property
    def pid(self) -> int:
        """The process id of the running server."""
        invariant(self._process is not None, f"{self.name} is not running")
        return self._process.pid if self._process else 0

    @property
    def is_running(self) -> bool:
        """Whether the process that this object started still lives."""
        return self._process is not None and self._process.poll() is None

    def start(self, progress: Progress | None = None) -> None:
        """Start the server and return when it serves clients. Data of an earlier run are kept.

        Ends a server that an earlier parent left running on this folder. Raises
        `ConfigurationError` when it cannot start like this, `ServerFailed` when it did not come up.
        """
        invariant(not self.is_running, f"{self.name} is running already")
        self.data_dir.mkdir(parents=True, exist_ok=True)
        before = read_state(self.data_dir)
        end_leftovers(self.data_dir, self.marker, self.stop_signal)
        self._port = self._choose_port(before)
        self._prepare(progress)
        self._check_wanted()
        self._process = self._launch()
        try:
            started = psutil.Process(self._process.pid).create_time()
            state = ServerState(self._process.pid, started, self.marker, self._port)
            write_state(self.data_dir, state)
            self._await_ready(self._process)
        except BaseException:  # Ctrl-C, for one.
            self._end()
            raise

    def abandon(self) -> None:
        """Make a `start` that runs in another thread give up soon; then `stop`."""
        self._abandoned.set()

    def _check_wanted(self) -> None:
        if self._abandoned.is_set():
            message = f"{self.name}: the start was given up"
            raise ServerFailed(message)

    def stop(self) -> None:
        """Stop in order; by force when that takes longer than `STOP_DEADLINE_S`. Idempotent."""
        self._end()
        self._abandoned.clear()

    def _end(self) -> None:
        if self._process is not None and self._process.poll() is None:
            end_child(self._process, self.stop_signal)
        self._forget()

    def kill(self) -> None:
        """SIGKILL, as a crash would: nothing is flushed, nothing is said goodbye to."""
        kill_all(family(psutil.Process(self.pid)))
        self._forget()

    def pause(self) -> None:
        """SIGSTOP the server and its children: it keeps its connections and answers nothing.

        The parent first, so that no child is born unseen. Returns when all of them stand still.
        """
        parent = psutil.Process(self.pid)
        parent.send_signal(signal.SIGSTOP)
        await_stopped([parent])
        members = family(parent)
        send_all(members, signal.SIGSTOP)
        await_stopped(members)

    def resume(self) -> None:
        """SIGCONT after `pause`."""
        send_all(family(psutil.Process(self.pid)), signal.SIGCONT)

    def restart(self) -> None:
        """Stop in order if it runs, and start again on the same port and data."""
        self.stop()
        self.start()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _choose_port(self, before: ServerState | None) -> int:
        """The port asked for; else the one of the run before if it is free; else a free one."""
        fixed = self._wanted_port if self._port is None else self._port
        if fixed is not None:
            # Of a server that has just ended, the kernel may not have closed every socket yet.
            deadline = time.monotonic() + PORT_DEADLINE_S
            while not (free := port_is_free(fixed)) and time.monotonic() < deadline:
                time.sleep(POLL_INTERVAL_S)
            if not free:
                message = f"port {fixed} on 127.0.0.1, wanted for {self.name}, is in use"
                raise ConfigurationError(message)
            return fixed
        if before is not None and port_is_free(before.port):
            return before.port
        return free_port()

    def _await_ready(self, process: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + self.start_deadline_s
        while process.poll() is None and time.monotonic() < deadline:
            if self._ready(process.pid):
                return
            self._abandoned.wait(POLL_INTERVAL_S)
            self._check_wanted()
        code = process.poll()
        what = "is not ready in time" if code is None else f"ended with exit code {code}"
        shown = "\n".join(f"--- {log}\n{tail(log)}" for log in self.logs)
        message = f"{self.name} {what} (deadline {self.start_deadline_s:.0f} s)\n{shown}"
        raise ServerFailed(message)

    def _forget(self) -> None:
        if self._process is not None:
            self._process.wait()
            self._process = None
            self._keep_port_only()

    def _keep_port_only(self) -> None:
        """A stopped server's state file keeps the port, so that the next start takes it again."""
        state = read_state(self.data_dir)
        if state is not None:
            write_state(self.data_dir, dataclasses.replace(state, pid=0))
