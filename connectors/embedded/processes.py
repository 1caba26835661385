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
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from connectors.errors import ConfigurationError, InfrastructureError

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
    members = family(process)
    with contextlib.suppress(psutil.NoSuchProcess, psutil.TimeoutExpired):
        process.send_signal(stop_signal)
        send_all(members, signal.SIGCONT)
        process.wait(STOP_DEADLINE_S)
    kill_all(members)


def kill_all(members: Sequence[psutil.Process]) -> None:
    """SIGKILL these processes and wait until all are gone."""
    send_all(members, signal.SIGKILL)
    psutil.wait_procs(members, timeout=STOP_DEADLINE_S)


def send_all(members: Sequence[psutil.Process], what: signal.Signals) -> None:
    """Send a signal to each of these processes that still lives."""
    for process in members:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.send_signal(what)


def tail(log: Path) -> str:
    """The last lines of a log file, or what stands for them."""
    try:
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return f"({log} cannot be read)"
    return "\n".join(lines[-LOG_TAIL_LINES:]) or f"({log} is empty)"


def await_stopped(members: Sequence[psutil.Process]) -> None:
    """Wait until all of these stand still after SIGSTOP.

    A signal is delivered when its process next runs, not when it is sent. Raises `ServerFailed`.
    """
    deadline = time.monotonic() + PAUSE_DEADLINE_S
    while time.monotonic() < deadline:
        if all(_stands_still(process) for process in members):
            return
        time.sleep(POLL_INTERVAL_S)
    message = f"a process did not stop within {PAUSE_DEADLINE_S:.0f} s of SIGSTOP"
    raise ServerFailed(message)


def _stands_still(process: psutil.Process) -> bool:
    still = {psutil.STATUS_STOPPED, psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD}
    with contextlib.suppress(psutil.NoSuchProcess):
        return process.status() in still
    return True


def family(process: psutil.Process) -> list[psutil.Process]:
    """This process and all its descendants, as they are now."""
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


def end_child(process: subprocess.Popen[bytes], stop_signal: signal.Signals) -> None:
    """Stop a child of ours in order and reap it; by force past `STOP_DEADLINE_S`."""
    members = family(psutil.Process(process.pid))
    process.send_signal(stop_signal)
    send_all(members, signal.SIGCONT)
    try:
        process.wait(STOP_DEADLINE_S)
    except subprocess.TimeoutExpired:
        kill_all(members)
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
