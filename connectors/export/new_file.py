"""A file that appears under its name when it is whole and durable, and not before."""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

from connectors.errors import ConfigurationError, Stop

BUFFER_BYTES = 1024 * 1024


@contextmanager
def _told(path: Path) -> Iterator[None]:
    """A fault of the file system as ours, saying what it left."""
    try:
        yield
    except OSError as error:
        why = error.strerror or type(error).__name__
        message = f"cannot write {path}: {why}; nothing was left under that name"
        raise Stop(message) from None


class NewFile:
    """Written beside its target under another name, and renamed at the end; removed when the block
    it is used in ends before that. Every method raises `Stop` when the file system refuses."""

    def __init__(self, path: Path, *, private: bool, replace: bool) -> None:
        self.path = path
        self.bytes = 0
        self._private = private
        self._replace = replace
        self._hash = hashlib.sha256()
        self._temporary: Path | None = None
        self._file: BinaryIO | None = None

    def check(self) -> None:
        """Raises `ConfigurationError` when there can be no such file."""
        if not self.path.parent.is_dir():
            message = f"there is no folder {self.path.parent}"
        elif self.path.exists() and not self.path.is_file():
            message = f"{self.path} is there and is no file"
        elif self.path.exists() and not self._replace:
            message = f"{self.path} is there already: choose another name, or say --force"
        else:
            return
        raise ConfigurationError(message)

    def __enter__(self) -> Self:
        self.check()
        with _told(self.path):
            number, name = tempfile.mkstemp(".part", f".{self.path.name}.", self.path.parent)
            self._temporary = Path(name)
            if not self._private:
                mask = os.umask(0)  # there is no other way to ask for it
                os.umask(mask)
                self._temporary.chmod(0o666 & ~mask)
            self._file = os.fdopen(number, "wb", buffering=BUFFER_BYTES)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with contextlib.suppress(OSError):
            if self._file is not None:
                self._file.close()
        with contextlib.suppress(OSError):
            if self._temporary is not None:
                self._temporary.unlink()

    def write(self, content: bytes) -> int:
        """Append."""
        with _told(self.path):
            self._opened().write(content)
        self._hash.update(content)
        self.bytes += len(content)
        return len(content)

    @property
    def sha256(self) -> str:
        """SHA-256 of what was written so far, in hexadecimal."""
        return self._hash.hexdigest()

    def _opened(self) -> BinaryIO:
        if self._file is None:
            message = f"{self.path} is not open"
            raise ValueError(message)
        return self._file

    def settle(self) -> None:
        """Make durable what was written. Nothing can be written afterwards."""
        with _told(self.path):
            file = self._opened()
            file.flush()
            os.fsync(file.fileno())
            file.close()

    def appear(self) -> None:
        """Take the final name. Raises `ConfigurationError` when it has been taken meanwhile."""
        self.check()
        with _told(self.path):
            if self._temporary is not None:
                self._temporary.replace(self.path)
            self._temporary = None
            folder = os.open(self.path.parent, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
