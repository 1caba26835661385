"""Server processes that leave no orphans.

A server runs in a session of its own, so that Ctrl-C in a terminal reaches only its parent, which
then stops it in order. Beside its data lies a state file with the process id, the time the process
started and a marker that stands on its command line. When a parent dies without stopping its
server, the next start in the same folder finds the orphan and ends it. The kernel's parent-death
signal is not used: it is bound to the thread that started the child, and threads end early.

Blocks: every function here may block; asyncio code calls them in a thread.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import random
import signal
import socket
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Self

import psutil

from connectors.errors import ConfigurationError, InfrastructureError, invariant

Progress = Callable[[str, int, int], None]
"""Called as `progress(what, done_bytes, total_bytes)` while something is downloaded."""

STATE_FILE = "server.json"
START_TIME_TOLERANCE_S = 5.0
"""The clock may have been set between two readings of one process's start time. The marker on the
command line is the stronger half of the check."""
POLL_INTERVAL_S = 0.05
STOP_DEADLINE_S = 30.0
PAUSE_DEADLINE_S = 5.0
LOG_TAIL_LINES = 25
_PORTS = range(15_000, 32_000)
"""Below the range from which Linux takes the ports of outgoing connections: while a server is
down, no client can be given its port by chance."""


class ServerFailed(InfrastructureError):
    """An embedded server did not start, or ended by itself; the message shows its log's end."""


@dataclass(frozen=True, slots=True)
class ServerState:
    """What the state file says."""

    pid: int
    started: float
    """Seconds since the epoch, as the operating system tells for this process."""
    marker: str
    """A text that stands on the process's command line and on no other's."""
    port: int


def free_port() -> int:
    """A TCP port on 127.0.0.1 that nobody listens on now. Raises `ConfigurationError`."""
    candidates = list(_PORTS)
    random.shuffle(candidates)
    for port in candidates[:200]:
        if port_is_free(port):
            return port
    message = f"no free TCP port found on 127.0.0.1 between {_PORTS.start} and {_PORTS.stop}"
    raise ConfigurationError(message)


def port_is_free(port: int) -> bool:
    """Whether a server could listen on this port of 127.0.0.1."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def read_state(folder: Path) -> ServerState | None:
    """The state file of this folder; None when there is none that can be read."""
    try:
        members = json.loads((folder / STATE_FILE).read_text(encoding="utf-8"))
        return ServerState(**members)
    except (OSError, ValueError, TypeError):
        return None


def write_state(folder: Path, state: ServerState) -> None:
    """Write the state file; a reader sees the old one or the new one, never a half."""
    draft = folder / (STATE_FILE + ".new")
    draft.write_text(json.dumps(dataclasses.asdict(state)), encoding="utf-8")
    draft.replace(folder / STATE_FILE)


def running_process(state: ServerState) -> psutil.Process | None:
    """The live process that `state` describes; None when it has ended or its id was reused."""
    try:
        process = psutil.Process(state.pid)
        same = abs(process.create_time() - state.started) <= START_TIME_TOLERANCE_S
        alive = process.status() != psutil.STATUS_ZOMBIE
        return process if same and alive and _carries(process, state.marker) else None
    except psutil.Error:
        return None


def end_leftovers(folder: Path, marker: str, stop_signal: signal.Signals) -> int:
    """End servers that an earlier parent left running on this folder; how many there were.

    Looks at the state file, and at all command lines for the marker: a parent may have died between
    starting a server and writing the file.
    """
    found = {process.pid: process for process in _marked(marker)}
    state = read_state(folder)
    if state is not None and (process := running_process(state)) is not None:
        found[process.pid] = process
    for process in found.values():
        end(process, stop_signal)
    (folder / STATE_FILE).unlink(missing_ok=True)
    return len(found)


def end(process: psutil.Process, stop_signal: signal.Signals) -> None:
    """End a process in order, and with all its descendants by force if it does not heed."""
    family = _family(process)
    with contextlib.suppress(psutil.NoSuchProcess, psutil.TimeoutExpired):
        process.send_signal(stop_signal)
        send_all(family, signal.SIGCONT)
        process.wait(STOP_DEADLINE_S)
    kill_all(family)


def kill_all(family: Sequence[psutil.Process]) -> None:
    """SIGKILL these processes and wait until all are gone."""
    send_all(family, signal.SIGKILL)
    psutil.wait_procs(family, timeout=STOP_DEADLINE_S)


def send_all(family: Sequence[psutil.Process], what: signal.Signals) -> None:
    """Send a signal to each of these processes that still lives."""
    for process in family:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.send_signal(what)


def tail(log: Path) -> str:
    """The last lines of a log file, or what stands for them."""
    try:
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return f"({log} cannot be read)"
    return "\n".join(lines[-LOG_TAIL_LINES:]) or f"({log} is empty)"


def _await_stopped(family: Sequence[psutil.Process]) -> None:
    """A signal is delivered when its process next runs, not when it is sent."""
    deadline = time.monotonic() + PAUSE_DEADLINE_S
    while time.monotonic() < deadline:
        if all(_stands_still(process) for process in family):
            return
        time.sleep(POLL_INTERVAL_S)
    message = f"a process did not stop within {PAUSE_DEADLINE_S:.0f} s of SIGSTOP"
    raise ServerFailed(message)


def _stands_still(process: psutil.Process) -> bool:
    still = {psutil.STATUS_STOPPED, psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD}
    with contextlib.suppress(psutil.NoSuchProcess):
        return process.status() in still
    return True


def _family(process: psutil.Process) -> list[psutil.Process]:
    with contextlib.suppress(psutil.NoSuchProcess):
        return [process, *process.children(recursive=True)]
    return [process]


def _carries(process: psutil.Process, marker: str) -> bool:
    return any(marker == argument for argument in process.cmdline())


def _marked(marker: str) -> Iterator[psutil.Process]:
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if _carries(process, marker):
                yield process


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
        self._process = self._launch()
        started = psutil.Process(self._process.pid).create_time()
        write_state(self.data_dir, ServerState(self._process.pid, started, self.marker, self._port))
        self._await_ready(self._process)

    def stop(self) -> None:
        """Stop in order; by force when that takes longer than `STOP_DEADLINE_S`. Idempotent."""
        if self._process is not None and self._process.poll() is None:
            end_child(self._process, self.stop_signal)
        self._forget()

    def kill(self) -> None:
        """SIGKILL, as a crash would: nothing is flushed, nothing is said goodbye to."""
        family = _family(psutil.Process(self.pid))
        kill_all(family)
        self._forget()

    def pause(self) -> None:
        """SIGSTOP the server and its children: it keeps its connections and answers nothing.

        The parent first, so that no child is born unseen. Returns when all of them stand still.
        """
        parent = psutil.Process(self.pid)
        parent.send_signal(signal.SIGSTOP)
        _await_stopped([parent])
        family = _family(parent)
        send_all(family, signal.SIGSTOP)
        _await_stopped(family)

    def resume(self) -> None:
        """SIGCONT after `pause`."""
        send_all(_family(psutil.Process(self.pid)), signal.SIGCONT)

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
            if not port_is_free(fixed):
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
            time.sleep(POLL_INTERVAL_S)
        code = process.poll()
        self.stop()
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


def end_child(process: subprocess.Popen[bytes], stop_signal: signal.Signals) -> None:
    """Stop a child of ours in order and reap it; by force past `STOP_DEADLINE_S`."""
    family = _family(psutil.Process(process.pid))
    process.send_signal(stop_signal)
    send_all(family, signal.SIGCONT)
    try:
        process.wait(STOP_DEADLINE_S)
    except subprocess.TimeoutExpired:
        kill_all(family)
        process.wait()


def spawn(
    argv: Sequence[str],
    log: Path,
    *,
    env: dict[str, str] | None = None,
    account: tuple[int, int] | None = None,
) -> subprocess.Popen[bytes]:
    """Start a server in a session of its own, its output appended to `log`.

    `account` (uid, gid) is who it runs as; only root can ask for another than itself.
    """
    identity: dict[str, object] = {}
    if account is not None:
        identity = {"user": account[0], "group": account[1], "extra_groups": []}
    with log.open("ab") as output:
        return subprocess.Popen(  # type: ignore[call-overload, no-any-return]
            list(argv),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=log.parent,
            env=env,
            start_new_session=True,
            **identity,
        )
