"""The state of a publication: whose it is, what it allows, and that only one publisher has it."""

from __future__ import annotations

import json
import uuid
from pathlib import Path

import pytest

from connectors.errors import ConfigurationError, Stop
from connectors.files import Identity, StateFile
from streams.publishing.state import (
    Cut,
    State,
    StateKeeper,
    Target,
    read_state,
    resumed,
    state_path,
)

TARGET = Target(record_type="payroll", topic="payroll.raw", topic_id=uuid.UUID(int=7))
CUT = Cut(
    chunk_records=1000,
    chunk_bytes=10**6,
    correlation=False,
    backfill=False,
    manifest_sha256=None,
    profile_sha256=None,
)
IDENTITY = Identity(10, "aa", 5)
PATH = Path("f.csv.weighbridge-publish.json")


def state(**changes: object) -> State:
    members: dict[str, object] = {
        "publication": uuid.UUID(int=1),
        "target": TARGET,
        "partitions": 3,
        "record_bytes_max": 1_000_000,
        "file_name": "f.csv",
        "file_bytes": 10,
        "file_sha256": "aa",
        "file_mtime_ns": 5,
        "cut": CUT,
        "records": 20,
        "chunks": 4,
        "chunks_done": 2,
        "started_at": "2026-12-01T08:00:00Z",
    }
    return State.model_validate({**members, **changes})


def test_an_unfinished_publication_goes_on() -> None:
    """Same file, topic and cut; a new date alone is no change."""
    assert resumed(PATH, state(), Identity(10, "aa", 99), TARGET, CUT) == state()
    assert resumed(PATH, None, IDENTITY, TARGET, CUT) is None


@pytest.mark.parametrize(
    ("identity", "target", "cut", "said"),
    [
        (Identity(11, "bb", 5), {}, {}, "the file has changed"),
        (IDENTITY, {"topic": "p.payroll.raw"}, {}, "the topic is p.payroll.raw"),
        (IDENTITY, {"topic_id": uuid.UUID(int=8)}, {}, "another one of the same name"),
        (IDENTITY, {}, {"chunk_records": 5}, "--chunk-records is not 1000"),
        (IDENTITY, {}, {"chunk_bytes": 5_000}, "--chunk-bytes is not 1000000"),
        (IDENTITY, {}, {"correlation": True}, "--correlation is not as it was"),
        (IDENTITY, {}, {"backfill": True}, "--backfill is not as it was"),
        (IDENTITY, {}, {"manifest_sha256": "m"}, "the manifest is not as it was"),
        (IDENTITY, {}, {"profile_sha256": "p"}, "the profile, or a look-up of it, is not as it"),
    ],
)
def test_one_that_another_would_not_finish_stands_against_it(
    identity: Identity, target: dict[str, object], cut: dict[str, object], said: str
) -> None:
    """What differs is named, and so are the two ways out."""
    with pytest.raises(Stop, match=said) as caught:
        resumed(
            PATH,
            state(),
            identity,
            TARGET.model_copy(update=target),
            CUT.model_copy(update=cut),
        )
    assert "2 of 4 chunks" in str(caught.value)
    assert "--again" in str(caught.value)
    assert "repeat the command" in str(caught.value)


def test_a_complete_one_is_left_at_it_or_none_of_ours() -> None:
    """Same file and topic: done, however it was cut; anything else begins anew."""
    done = state(completed_at="2026-12-01T09:00:00Z")
    other_cut = CUT.model_copy(update={"chunk_records": 5})
    assert resumed(PATH, done, IDENTITY, TARGET, other_cut) == done
    assert resumed(PATH, done, Identity(11, "bb", 5), TARGET, CUT) is None
    elsewhere = TARGET.model_copy(update={"topic_id": uuid.UUID(int=8)})
    assert resumed(PATH, done, IDENTITY, elsewhere, CUT) is None


@pytest.mark.parametrize("content", [b"{", b"[]", b'{"version":1}', b'{"employee_id":"E1"}'])
def test_what_is_no_state_is_never_overwritten(content: bytes) -> None:
    """A file of another kind under that name stops, and is told by its name."""
    with pytest.raises(Stop, match=r"f\.csv\..*is not the state"):
        read_state(PATH, content)


def test_where_the_state_is(tmp_path: Path) -> None:
    """Beside the file, where it is said, or in a folder where equal names do not meet."""
    one, two = tmp_path / "a" / "f.csv", tmp_path / "b" / "f.csv"
    assert state_path(one, None, None) == tmp_path / "a" / "f.csv.weighbridge-publish.json"
    assert state_path(one, Path("s"), tmp_path) == Path("s")
    found = {state_path(path, None, tmp_path) for path in (one, two)}
    assert len(found) == 2
    assert {path.parent for path in found} == {tmp_path}


# --- the file -------------------------------------------------------------------------------------


def test_a_state_is_kept_and_read_back(tmp_path: Path) -> None:
    """Written whole, with the last word about completion."""
    path = tmp_path / "s.json"
    with StateFile(path) as file:
        keeper = StateKeeper(file, state(chunks_done=0))
        keeper.begin()
        for number in (1, 3, 2):  # going on begins at 1 again
            keeper.chunk_done(number)
        keeper.end(complete=False)
        assert read_state(path, file.read()) == state(chunks_done=3)
        keeper.end(complete=True)
    found = read_state(path, path.read_bytes())
    assert found is not None
    assert found.completed_at is not None
    assert json.loads(path.read_text())["chunks_done"] == 3
    assert list(tmp_path.iterdir()) == [path]


def test_one_publisher_has_a_state(tmp_path: Path) -> None:
    """The lock holds from opening on, and over every new version of the file."""
    path = tmp_path / "s.json"
    with StateFile(path) as file:
        for content in (b"", b"1", b"2"):
            if content:
                file.write(content)
            with pytest.raises(Stop, match="another publisher is at work"), StateFile(path):
                pass
        assert path.read_bytes() == b"2"
    with StateFile(path) as file:
        assert file.read() == b"2"


def test_a_state_never_written_leaves_no_file(tmp_path: Path) -> None:
    """Opening it is no trace."""
    with StateFile(tmp_path / "s.json") as file:
        assert file.read() == b""
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_names_the_way_out(tmp_path: Path) -> None:
    """Read-only input is common: the state may live elsewhere."""
    (tmp_path / "file").touch()
    with (
        pytest.raises(ConfigurationError, match="--state-dir"),
        StateFile(tmp_path / "file" / "s.json"),
    ):
        pass
    with StateFile(tmp_path / "s.json") as file:
        (tmp_path / "s.json.new").mkdir()
        with pytest.raises(ConfigurationError, match="--state-dir"):
            file.write(b"1")
