"""Finding, reading and compiling profiles: shipped ones by name, a user's own by path."""

from __future__ import annotations

import hashlib
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import BinaryIO, Final

from pydantic import TypeAdapter, ValidationError

from connectors.errors import ConfigurationError
from connectors.files.rows import FileRow, MalformedFile, Remark, no_remark
from connectors.profiles.convert import Tools
from connectors.profiles.csv_profile import CsvReader
from connectors.profiles.json_profile import JsonReader
from connectors.profiles.lookups import Table, read_lookup
from connectors.profiles.model import CsvProfile, JsonProfile
from connectors.profiles.report import Known
from schemas.record_type import RecordType
from schemas.record_types import RECORD_TYPES

SUFFIX: Final = ".toml"
BYTES_MAX: Final = 1024 * 1024
_SHIPPED: Final = files("connectors.profiles").joinpath("shipped")
_ADAPTERS: Final[Mapping[str, TypeAdapter[CsvProfile] | TypeAdapter[JsonProfile]]] = {
    "csv": TypeAdapter(CsvProfile),
    "json": TypeAdapter(JsonProfile),
}
_ENDINGS: Final = {"csv": (".csv",), "json": (".json", ".jsonl", ".ndjson")}
FAULTS_NAMED_MAX: Final = 5


@dataclass(frozen=True, slots=True)
class Profile:
    """A profile, ready to read files."""

    name: str
    about: str
    record_type: RecordType
    format: str
    """`csv` or `json`."""
    sha256: str
    """Of its text and its look-ups' content: what decides which records a file becomes."""
    _reader: CsvReader | JsonReader

    def rows(self, file: BinaryIO, path: Path, remark: Remark = no_remark) -> Iterator[FileRow]:
        """The records of a file, from where it stands. Raises `MalformedFile`."""
        suffix = path.suffix.lower()
        if suffix not in _ENDINGS[self.format]:
            why = f"profile {self.name} reads files that end in {', '.join(_ENDINGS[self.format])}"
            raise MalformedFile(path, None, why)
        if isinstance(self._reader, CsvReader):
            return self._reader.rows(file, path, remark)
        if suffix == ".json":
            return self._reader.document(file, path)
        return self._reader.lines(file, path)


def shipped_profiles() -> list[str]:
    """Names of the profiles that come with weighbridge."""
    return sorted(
        one.name.removesuffix(SUFFIX) for one in _SHIPPED.iterdir() if one.name.endswith(SUFFIX)
    )


def profile_text(name_or_path: str) -> str:
    """The TOML of a shipped profile, or of a file. Raises `ConfigurationError`."""
    if name_or_path in shipped_profiles():
        return _SHIPPED.joinpath(name_or_path + SUFFIX).read_text(encoding="utf-8")
    path = Path(name_or_path)
    if not path.is_file():
        message = (
            f"no profile {name_or_path!r}: neither a file nor one of "
            f"{', '.join(shipped_profiles())}"
        )
        raise ConfigurationError(message)
    try:
        if path.stat().st_size > BYTES_MAX:
            message = f"profile {name_or_path}: more than {BYTES_MAX} bytes"
            raise ConfigurationError(message)
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        message = f"profile {name_or_path}: cannot be read ({type(error).__name__})"
        raise ConfigurationError(message) from None


def load_profile(name_or_path: str, lookups: Mapping[str, Path] | None = None) -> Profile:
    """A profile, with the look-up files it is given by name.

    Raises `ConfigurationError` for whatever is wrong with it, naming the key.
    """
    declared = read_profile(name_or_path)
    given = dict(lookups or {})
    for name in given:
        if name not in declared.lookups:
            names = ", ".join(sorted(declared.lookups)) or "none"
            message = f"profile {name_or_path}: no look-up {name}; it declares {names}"
            raise ConfigurationError(message)
    for name, lookup in declared.lookups.items():
        if name not in given and not lookup.optional:
            message = f"profile {name_or_path} needs its look-up file: --with {name}=FILE"
            raise ConfigurationError(message)
    tables = {name: read_lookup(name, declared.lookups[name], p) for name, p in given.items()}
    digest = hashlib.sha256(profile_text(name_or_path).encode())
    for name in sorted(given):
        digest.update(f"\n{name}\n".encode() + hashlib.sha256(given[name].read_bytes()).digest())
    return compile_profile(name_or_path, declared, tables, digest.hexdigest())


def check_profile(name_or_path: str) -> Profile:
    """A profile as it would be read, its look-ups empty. Raises `ConfigurationError`."""
    declared = read_profile(name_or_path)
    digest = hashlib.sha256(profile_text(name_or_path).encode()).hexdigest()
    return compile_profile(name_or_path, declared, {name: {} for name in declared.lookups}, digest)


def read_profile(name_or_path: str) -> CsvProfile | JsonProfile:
    """What a profile declares. Raises `ConfigurationError`."""
    text = profile_text(name_or_path)
    try:
        found = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        message = f"profile {name_or_path}: {error}"
        raise ConfigurationError(message) from None
    adapter = _ADAPTERS.get(str(found.get("format")))
    if adapter is None:
        message = f'profile {name_or_path}: format is "csv" or "json"'
        raise ConfigurationError(message)
    try:
        return adapter.validate_python(found)
    except ValidationError as error:
        message = f"profile {name_or_path}: {_faults(error)}"
        raise ConfigurationError(message) from None


def _faults(error: ValidationError) -> str:
    """Keys and rules, the first of them."""
    found = error.errors(include_url=False, include_context=False, include_input=False)
    told = [
        f"{'.'.join(map(str, one['loc'])) or 'the profile'}: "
        + one["msg"]
        .removeprefix("Value error, ")
        .replace("Extra inputs are not permitted", "no such key")
        for one in found[:FAULTS_NAMED_MAX]
    ]
    return "; ".join(told)


def compile_profile(
    name: str, declared: CsvProfile | JsonProfile, tables: Mapping[str, Table], sha256: str
) -> Profile:
    """Compile what a profile declares. Raises `ConfigurationError`."""
    record_type = RECORD_TYPES.get(declared.record_type)
    if record_type is None:
        message = f"profile {name}: record_type is one of {', '.join(sorted(RECORD_TYPES))}"
        raise ConfigurationError(message)
    tools = Tools(declared, tables)
    known = contract_fields(record_type)
    reader: CsvReader | JsonReader
    try:
        tools.compile_all()
        if isinstance(declared, CsvProfile):
            cells = frozenset(field for field, inner in known.items() if inner is None)
            reader = CsvReader(declared, tools, cells)
        else:
            reader = JsonReader(declared, tools, known)
    except ConfigurationError as error:
        message = f"profile {name}: {error}"
        raise ConfigurationError(message) from None
    return Profile(name, declared.about, record_type, declared.format, sha256, reader)


def contract_fields(record_type: RecordType) -> Known:
    """The contract's fields; of those that hold objects or lists of them, the fields of these."""
    fields = record_type.raw_schemas[-1].fields()
    return {name: inner_fields(avro_type) for name, avro_type in fields.items()}


def inner_fields(avro_type: object) -> frozenset[str] | None:
    """The fields of the record that an Avro type holds; None where it holds none."""
    if isinstance(avro_type, list):
        return next((found for one in avro_type if (found := inner_fields(one)) is not None), None)
    if not isinstance(avro_type, Mapping):
        return None
    if avro_type.get("type") == "record":
        return frozenset(field["name"] for field in avro_type["fields"])
    if avro_type.get("type") == "array":
        return inner_fields(avro_type["items"]) or frozenset()
    return inner_fields(avro_type.get("type"))
