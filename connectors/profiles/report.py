"""A vendor's report mapped to the contract: renamed, converted, and its key made.

The outcome is a `FileRow`: JSON of the contract in canonical form, so that the same report gives
the same bytes; or the report's own bytes with the field and rule that stood in the way. Bytes that
are no JSON object at all pass as they are, for the gate to judge.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from connectors.errors import ConfigurationError
from connectors.profiles.convert import Tools
from connectors.profiles.members import VERBATIM, Field, compile_member
from connectors.profiles.model import Identity, Item, JsonProfile, Member
from connectors.profiles.numbers import Unmapped, number_text
from connectors.profiles.paths import (
    Chain,
    Path,
    PathError,
    Predicate,
    compile_conditions,
    compile_path,
    levels,
)
from schemas.canonical import canonical_body, unknown

TRANSPORT = frozenset({"idempotency_key", "correlation_id", "received_at", "payload"})
"""Members that carry no meaning of the report: a version's digest leaves them out, as the digest of
the contract does. Equal keys then mean equal content."""

Known = Mapping[str, "frozenset[str] | None"]
"""The contract's fields, and for those that hold objects or lists of them the fields of these."""


@dataclass(frozen=True, slots=True)
class _Item:
    """A compiled object, or kind of element of a list."""

    holds: Predicate | None
    each: Path | None
    label: str | None
    refers: tuple[tuple[str, str], ...]
    fields: tuple[Field, ...]


class Mapper:
    """Maps reports by one profile."""

    def __init__(self, declared: JsonProfile, tools: Tools, known: Known) -> None:
        self._identity = declared.identity
        self._require = _conditions(declared.document.require, 0, "document.require")
        for kind in (declared.fields, declared.object, declared.list):
            _check_names(kind, known, declared.fields)
        self._fields = _fields(declared.fields, tools, 0, "fields")
        self._objects = {
            name: _item(item, tools, f"object.{name}", known.get(name))
            for name, item in declared.object.items()
        }
        lists = {
            name: [_item(item, tools, f"list.{name}", known.get(name)) for item in items]
            for name, items in declared.list.items()
        }
        # Labels come before what refers to them, in whichever order they are declared.
        self._lists = sorted(lists.items(), key=lambda one: not any(i.label for i in one[1]))
        if declared.identity is not None and "report_id" not in known:
            message = "identity is for records that have a report_id"
            raise ConfigurationError(message)
        self._id, self._version = _identity_paths(declared.identity)

    def members(self, report: Mapping[str, object], text: str) -> dict[str, object]:
        """The contract's members of a report. Raises `Unmapped` with `FIELD: rule`."""
        chain: Chain = (report,)
        if self._require is not None and not self._require(chain):
            message = "a report as document.require of the profile says"
            raise Unmapped(message)
        found = _values(self._fields, chain, "")
        for name, item in self._objects.items():
            if item.holds is None or item.holds(chain):
                inner = _values(item.fields, chain, f"{name}.")
                if inner:
                    found[name] = inner
        labels: dict[str, int] = {}
        for name, items in self._lists:
            found[name] = list(_elements(name, items, chain, labels))
        found = {name: text if value is VERBATIM else value for name, value in found.items()}
        if self._identity is not None:
            self._identify(found, chain, self._identity)
        return found

    def _identify(self, found: dict[str, object], chain: Chain, identity: Identity) -> None:
        """Add source, report id, version and idempotency key; a report without id gets no key."""
        found["source"] = identity.source
        report_id = _part("report_id", self._id, chain)
        if report_id is None:
            return
        found["report_id"] = report_id
        version = _part("report_version", self._version, chain)
        if version is not None:
            found["report_version"] = version
        found["idempotency_key"] = f"{identity.source}/{report_id}/{version or _digest(found)}"


def _part(name: str, path: Path | None, chain: Chain) -> str | None:
    value = None if path is None else number_text(path.get(chain))
    if value is None or value == "":
        return None
    if not isinstance(value, str) or "/" in value:
        message = f"{name}: text or a number, without a slash"
        raise Unmapped(message)
    return value


def _digest(members: Mapping[str, object]) -> str:
    """SHA-256 in hex over what the report says, by value. Raises `Unmapped`."""
    said = {name: value for name, value in members.items() if name not in TRANSPORT}
    return hashlib.sha256(encode(said)).hexdigest()


def encode(members: Mapping[str, object]) -> bytes:
    """Members as canonical JSON: the same members always give the same bytes.

    Raises `Unmapped` for a number that has no canonical form.
    """
    try:
        return canonical_body({n: unknown(v) for n, v in members.items() if v is not None}).encode()
    except ValueError as error:
        message = f"numbers that can be written down: {error}"
        raise Unmapped(message) from None


# --- Values ---------------------------------------------------------------------------------------


def _values(fields: Sequence[Field], chain: Chain, before: str) -> dict[str, object]:
    found: dict[str, object] = {}
    for field in fields:
        try:
            value = field.value(chain)
        except Unmapped as error:
            message = f"{before}{field.name}: {error}"
            raise Unmapped(message) from None
        if value is not None:
            found[field.name] = value
    return found


def _elements(
    name: str, items: Sequence[_Item], chain: Chain, labels: dict[str, int]
) -> Iterator[dict[str, object]]:
    at = 0
    for item in items:
        chains = [chain] if item.each is None else item.each.each(chain)
        for one in chains:
            if item.holds is not None and not item.holds(one):
                continue
            found = _values(item.fields, one, f"{name}[{at}].")
            if not found:
                continue
            for field, label in item.refers:
                if label in labels:
                    found[field] = labels[label]
            if item.label is not None:
                labels[item.label] = at
            yield found
            at += 1


# --- Compiling ------------------------------------------------------------------------------------


def _fields(
    declared: Mapping[str, Member], tools: Tools, depth: int, where: str
) -> tuple[Field, ...]:
    return tuple(
        compile_member(name, member, tools, depth, where) for name, member in declared.items()
    )


def _item(declared: Item, tools: Tools, where: str, known: frozenset[str] | None) -> _Item:
    if known is not None:
        wrong = [
            name
            for name in (*declared.fields, *declared.refers)
            if name not in known and not (name in declared.fields and declared.fields[name].extra)
        ]
        if wrong:
            message = (
                f"{where}: {wrong[0]} is no field of the contract there; extra = true keeps it"
            )
            raise ConfigurationError(message)
    if any(member.verbatim for member in declared.fields.values()):
        message = f"{where}: verbatim is for a field of the report itself"
        raise ConfigurationError(message)
    try:
        each = None if declared.each is None else compile_path(declared.each, lists=True)
    except PathError as error:
        message = f"{where}.each: {error}"
        raise ConfigurationError(message) from None
    depth = 0 if each is None else levels(each)
    holds = _conditions(declared.if_, depth, f"{where}.if")
    fields = _fields(declared.fields, tools, depth, f"{where}.fields")
    return _Item(holds, each, declared.label, tuple(declared.refers.items()), fields)


def _conditions(declared: Mapping[str, object], depth: int, where: str) -> Predicate | None:
    try:
        return compile_conditions(declared, depth) if declared else None  # type: ignore[arg-type]
    except PathError as error:
        message = f"{where}: {error}"
        raise ConfigurationError(message) from None


def _check_names(kind: Mapping[str, object], known: Known, fields: Mapping[str, Member]) -> None:
    for name in kind:
        extra = name in fields and fields[name].extra
        if name not in known and not extra:
            message = f"{name} is no field of the contract; extra = true keeps it all the same"
            raise ConfigurationError(message)


def _identity_paths(declared: Identity | None) -> tuple[Path | None, Path | None]:
    if declared is None:
        return None, None
    try:
        version = None if declared.version is None else compile_path(declared.version)
        return compile_path(declared.report_id), version
    except PathError as error:
        message = f"identity: {error}"
        raise ConfigurationError(message) from None
