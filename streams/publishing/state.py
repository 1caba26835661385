"""How far a publication has come: what its state file holds, and what follows from that.

Where Kafka still knows the publication's own offset, that says how many chunks are in; the state
says which publication it is, of which file, to which topic, cut how.
"""

from __future__ import annotations

import hashlib
import time
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from connectors.errors import Stop
from connectors.files import STATE_SUFFIX, Identity, StateFile

SAVE_EVERY_S = 1.0
_STRICT = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


class Cut(BaseModel):
    """All that decides which chunks a file is cut into, and what they hold."""

    model_config = _STRICT

    chunk_records: int
    chunk_bytes: int
    correlation: bool
    backfill: bool
    manifest_sha256: str | None
    """Of the source's manifest that the file was held against."""
    profile_sha256: str | None
    """Of the profile that reads the file, and of its look-ups."""


class Target(BaseModel):
    """Where it goes."""

    model_config = _STRICT

    record_type: str
    topic: str
    topic_id: uuid.UUID
    """The id Kafka gave the topic when it was created."""


class State(BaseModel):
    """The content of a state file."""

    model_config = _STRICT

    version: Literal[1] = 1
    publication: uuid.UUID
    target: Target
    partitions: int
    """Partitions of the topic when it began; chunks are spread over these to the end."""
    record_bytes_max: int
    """What the topic took when it began: larger rows are left out to the end."""
    file_name: str
    file_bytes: int
    file_sha256: str
    file_mtime_ns: int
    cut: Cut
    records: int
    chunks: int
    chunks_done: int = 0
    """At least so many are in; Kafka's own count may be ahead by what a second sends."""
    too_large: int = 0
    started_at: str
    completed_at: str | None = None

    def is_of(self, identity: Identity) -> bool:
        """Whether the file is still what it was; a new date alone is no change."""
        return (self.file_bytes, self.file_sha256) == (identity.size_bytes, identity.sha256)


def state_path(path: Path, state: Path | None, state_dir: Path | None) -> Path:
    """Where the state of a file's publication is: named, in a folder, or beside the file.

    In a folder of its own the name tells apart files of equal names.
    """
    if state is not None:
        return state
    if state_dir is not None:
        place = hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:8]
        return state_dir / f"{path.name}.{place}{STATE_SUFFIX}"
    return path.with_name(path.name + STATE_SUFFIX)


def read_state(path: Path, content: bytes) -> State | None:
    """The state that a file holds, None for an empty one. Raises `Stop` for what is no state."""
    if not content:
        return None
    try:
        return State.model_validate_json(content)
    except ValidationError:
        message = (
            f"{path}: is not the state of a publication. Name another file with --state, or move "
            "this one away"
        )
        raise Stop(message) from None


def resumed(
    path: Path, state: State | None, identity: Identity, target: Target, cut: Cut
) -> State | None:
    """The state to go on from or, if that is complete, to leave it at; None to begin anew.

    A complete publication of another file, or to another topic, is none of this one. Raises `Stop`
    when a publication has begun that this would not finish.
    """
    if state is None:
        return None
    if state.completed_at is not None:
        same = state.is_of(identity) and state.target == target
        return state if same else None
    differences = list(_differences(state, identity, target, cut))
    if differences:
        message = (
            f"{path}: a publication that began {state.started_at} has put {state.chunks_done} of "
            f"{state.chunks} chunks on {state.target.topic} and is not finished, and now "
            f"{'; '.join(differences)}. Either make that as it was and repeat the command, which "
            "goes on; or add --again, which publishes all of the file anew: records that are in "
            "already then come out as duplicates"
        )
        raise Stop(message)
    return state


def _differences(state: State, identity: Identity, target: Target, cut: Cut) -> Iterator[str]:
    """What is not as it was when the publication began."""
    if not state.is_of(identity):
        yield "the file has changed"
    if (state.target.record_type, state.target.topic) != (target.record_type, target.topic):
        yield f"the topic is {target.topic}"
    elif state.target.topic_id != target.topic_id:
        yield "the topic is another one of the same name"
    for name, before in state.cut:
        if getattr(cut, name) != before:
            yield f"{_OPTION_OF[name]} is not {_shown(before)}"


def _shown(value: object) -> str:
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else "as it was"


_OPTION_OF = {
    "chunk_records": "--chunk-records",
    "chunk_bytes": "--chunk-bytes",
    "correlation": "--correlation",
    "backfill": "--backfill",
    "manifest_sha256": "the manifest",
    "profile_sha256": "the profile, or a look-up of it,",
}


class StateKeeper:
    """Writes the state while a publication goes on, about once a second."""

    def __init__(self, file: StateFile, state: State) -> None:
        self.state = state
        self._file = file
        self._saved_at_s = time.monotonic()

    def begin(self) -> None:
        """Write it before anything is sent."""
        self._write(self.state)

    def chunk_done(self, number: int) -> None:
        """Note that at least so many chunks are in."""
        done = max(number, self.state.chunks_done)
        self.state = self.state.model_copy(update={"chunks_done": done})
        if time.monotonic() - self._saved_at_s > SAVE_EVERY_S:
            self._write(self.state)

    def end(self, *, complete: bool) -> None:
        """Write the last word of this call."""
        at = now_text() if complete else None
        self._write(self.state.model_copy(update={"completed_at": at}))

    def _write(self, state: State) -> None:
        self.state, self._saved_at_s = state, time.monotonic()
        self._file.write(state.model_dump_json(indent=1).encode() + b"\n")


def now_text() -> str:
    """The time now, UTC, to the second."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
