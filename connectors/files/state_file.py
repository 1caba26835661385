"""A small file that says how far something has come: one owner at a time, never half written."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import Self

from connectors.errors import ConfigurationError, Stop

STATE_BYTES_MAX = 1024 * 1024
"""A larger file is none of ours."""
_TRIES = 100


class StateFile:
    """Held open and locked from beginning to end, as a context manager.

    The lock belongs to the file, and moves to each new version before that takes the name. A file
    that was opened and never written is removed again.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = -1

    def __enter__(self) -> Self:
        """Raises `Stop` when another process holds it, `ConfigurationError` when the folder does
        not let it be written."""
        try:
            self._open()
        except BlockingIOError:
            self._close()
            message = f"{self.path}: another publisher is at work with this state; wait for its end"
            raise Stop(message) from None
        except OSError as error:
            self._close()
            raise _unwritable(self.path, error) from None
        return self

    def _open(self) -> None:
        """Open and lock what has the name now, which may change between the two."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        for _ in range(_TRIES):
            self._file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if self._is_current():
                return
            self._close()
        raise BlockingIOError

    def _is_current(self) -> bool:
        try:
            return os.path.samestat(os.fstat(self._file), self.path.stat())
        except FileNotFoundError:
            return False

    def __exit__(self, *_: object) -> None:
        if os.fstat(self._file).st_size == 0:
            self.path.unlink(missing_ok=True)
        self._close()

    def _close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
        self._file = -1

    def read(self) -> bytes:
        """What it holds; nothing when it is new."""
        return os.pread(self._file, STATE_BYTES_MAX, 0)

    def write(self, content: bytes) -> None:
        """Replace what it holds, on disk before this returns. Raises `ConfigurationError`."""
        beside = self.path.with_name(self.path.name + ".new")
        try:
            file = os.open(beside, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(file, fcntl.LOCK_EX)
                os.write(file, content)
                os.fsync(file)
                beside.replace(self.path)
                _sync_folder(self.path.parent)
            except OSError:
                os.close(file)
                raise
        except OSError as error:
            raise _unwritable(self.path, error) from None
        self._close()
        self._file = file


def _sync_folder(folder: Path) -> None:
    """Put the name on disk as well."""
    opened = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def _unwritable(path: Path, error: OSError) -> ConfigurationError:
    return ConfigurationError(
        f"{path}: the state of the publication cannot be written ({type(error).__name__}): name a "
        "folder for it with --state-dir"
    )
