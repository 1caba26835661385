"""One suite for the port `SchemaStore`, run on memory and on a folder; then the folder's own."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from connectors.errors import SchemaStoreUnavailable
from connectors.memory import MemorySchemaStore
from connectors.ports import SchemaStore
from connectors.schema_store import FileSchemaStore, NoSchemaStore
from connectors.schema_store import folder as folder_module
from schemas.avro_strict import AvroSchema, SchemaRef
from schemas.record_types import RECORD_TYPES


def text_of(name: str) -> str:
    return json.dumps({"type": "record", "name": name, "fields": [{"name": "x", "type": "string"}]})


def confluent(number: int) -> SchemaRef:
    return SchemaRef("confluent", number)


def by_fingerprint(schema: AvroSchema) -> SchemaRef:
    return SchemaRef("single_object", schema.fingerprint)


class Clock:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


Fill = Callable[[dict[int, str]], SchemaStore]


@pytest.fixture(params=["memory", "folder"])
def filled(request: pytest.FixtureRequest, tmp_path: Path) -> Fill:
    """Makes a store that holds these schemas under these ids."""

    def memory(texts: dict[int, str]) -> SchemaStore:
        schemas = {number: AvroSchema.from_text(text) for number, text in texts.items()}
        return MemorySchemaStore(
            {confluent(number): schema for number, schema in schemas.items()}
            | {by_fingerprint(schema): schema for schema in schemas.values()}
        )

    def folder(texts: dict[int, str]) -> SchemaStore:
        for number, text in texts.items():
            (tmp_path / f"{number}.avsc").write_text(text)
        return FileSchemaStore(tmp_path)

    return memory if request.param == "memory" else folder


async def test_a_schema_is_found_by_its_id_and_by_its_fingerprint(filled: Fill) -> None:
    """Both ways in which a value may name its schema lead to the same one."""
    store = filled({7: text_of("Seven"), 8: text_of("Eight")})
    seven = await store.find(confluent(7))
    assert seven is not None
    assert seven.text == text_of("Seven")
    assert await store.find(by_fingerprint(seven)) == seven
    eight = AvroSchema.from_text(text_of("Eight"))
    assert await store.find(by_fingerprint(eight)) == eight


async def test_an_unknown_id_is_a_definite_no(filled: Fill) -> None:
    """A store that can be asked answers None for what it does not hold."""
    store = filled({7: text_of("Seven")})
    assert await store.find(confluent(9)) is None
    assert await store.find(SchemaRef("single_object", b"12345678")) is None


async def test_an_empty_store_knows_nothing(filled: Fill) -> None:
    """Nothing in it is an answer too."""
    assert await filled({}).find(confluent(0)) is None


async def test_a_found_schema_is_kept_when_its_file_goes(tmp_path: Path) -> None:
    """An id's schema never changes, so it is read once."""
    (tmp_path / "7.avsc").write_text(text_of("Seven"))
    store = FileSchemaStore(tmp_path)
    found = await store.find(confluent(7))
    (tmp_path / "7.avsc").write_text(text_of("Other"))
    assert await store.find(confluent(7)) is found
    shutil.rmtree(tmp_path)
    assert await store.find(confluent(7)) is found


@pytest.mark.parametrize("ref", [confluent(7), by_fingerprint(AvroSchema(text_of("Late")))])
async def test_no_such_id_is_remembered_for_a_short_time(tmp_path: Path, ref: SchemaRef) -> None:
    """A schema added after the question is found once the "no" has aged."""
    clock = Clock()
    store = FileSchemaStore(tmp_path, clock_s=clock)
    assert await store.find(ref) is None
    (tmp_path / "7.avsc").write_text(text_of("Late"))
    clock.now_s += folder_module.NO_SUCH_ID_S - 0.1
    assert await store.find(ref) is None
    clock.now_s += 0.2
    assert await store.find(ref) is not None


@pytest.mark.parametrize("ref", [confluent(7), SchemaRef("single_object", b"12345678")])
async def test_a_folder_that_is_not_there_cannot_be_asked(tmp_path: Path, ref: SchemaRef) -> None:
    """A missing folder says nothing about any id; when it comes, so does the answer."""
    store = FileSchemaStore(tmp_path / "away")
    with pytest.raises(SchemaStoreUnavailable, match="away cannot be read"):
        await store.find(ref)
    (tmp_path / "away").mkdir()
    assert await store.find(ref) is None


@pytest.mark.parametrize(
    "content", [b"", b"{", b'{"type":"nonsense"}', b"\xff\xfe", b'"' + b"x" * 2_000_000 + b'"']
)
async def test_a_damaged_file_is_no_answer(tmp_path: Path, content: bytes) -> None:
    """A file cut short, or not a schema, keeps the partition waiting instead of costing records."""
    (tmp_path / "7.avsc").write_bytes(content)
    store = FileSchemaStore(tmp_path)
    for ref in (confluent(7), SchemaRef("single_object", b"12345678")):
        with pytest.raises(SchemaStoreUnavailable, match=r"7\.avsc"):
            await store.find(ref)
    (tmp_path / "7.avsc").write_text(text_of("Mended"))
    assert await store.find(confluent(7)) is not None


async def test_a_damaged_file_does_not_hide_another_id(tmp_path: Path) -> None:
    """An id whose own file is whole is found whatever lies beside it."""
    (tmp_path / "7.avsc").write_text("{")
    (tmp_path / "8.avsc").write_text(text_of("Eight"))
    assert await FileSchemaStore(tmp_path).find(confluent(8)) is not None


async def test_a_folder_in_place_of_a_file_cannot_be_asked(tmp_path: Path) -> None:
    """What is there but cannot be read is not "no such id"."""
    (tmp_path / "7.avsc").mkdir()
    with pytest.raises(SchemaStoreUnavailable, match="IsADirectoryError"):
        await FileSchemaStore(tmp_path).find(confluent(7))


async def test_remembered_noes_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ids come from outside: a flood of them takes bounded memory (G6)."""
    monkeypatch.setattr(folder_module, "NO_SUCH_ID_MAX", 10)
    store = FileSchemaStore(tmp_path)
    for number in range(50):
        assert await store.find(confluent(number)) is None
    assert len(store._no_until_s) == 10


async def test_a_hanging_folder_ends_at_the_deadline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A network folder that does not answer is unavailable, and the event loop goes on."""
    import threading

    hanging = threading.Event()
    monkeypatch.setattr(folder_module, "LOOK_DEADLINE_S", 0.1)
    monkeypatch.setattr(folder_module, "_read", lambda _: hanging.wait(10))
    with pytest.raises(SchemaStoreUnavailable, match="no answer within"):
        await FileSchemaStore(tmp_path).find(confluent(7))
    hanging.set()


@pytest.mark.parametrize("name", sorted(RECORD_TYPES))
async def test_shipped_raw_schemas_need_no_folder(name: str, tmp_path: Path) -> None:
    """A publisher that uses this project's own raw schema needs no registration."""
    (schema, *_) = RECORD_TYPES[name].raw_schemas
    for store in (NoSchemaStore(), FileSchemaStore(tmp_path)):
        assert await store.find(by_fingerprint(schema)) == schema
    assert await NoSchemaStore().find(confluent(1)) is None
