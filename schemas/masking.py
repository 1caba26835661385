"""Masking: what of a record is shown to whoever has not asked, on record, to see all of it.

A record type lists what is shown; everything else is masked, so a field that is added later, an
unknown member and free text are masked until somebody decides otherwise. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

MASK = "***"
"""Stands for a value that is there and not shown. Absent and null stay absent and null."""


@dataclass(frozen=True, slots=True)
class Shown:
    """What of a record type is no personal data."""

    fields: frozenset[str]
    """Paths of values, of raw and committed records alike: `pay_date`, `units[].vin`."""
    message_key: bool
    """Whether the Kafka message key may be shown; false where it names a person."""

    def masked(self, members: Mapping[str, object]) -> dict[str, object]:
        """The members of a decoded record with every value that is not listed masked."""
        return {name: self._masked(value, name) for name, value in members.items()}

    def _masked(self, value: object, path: str) -> object:
        if value is None:
            return None
        if isinstance(value, Mapping):
            return {name: self._masked(inner, f"{path}.{name}") for name, inner in value.items()}
        if isinstance(value, (list, tuple)):
            return [self._masked(inner, f"{path}[]") for inner in value]
        return value if self.shows(path) else MASK

    def shows(self, path: str) -> bool:
        """Whether values at a path are shown. A list of plain values is listed by its own name:
        `flags` shows `flags[]`."""
        return path in self.fields or path.removesuffix("[]") in self.fields


STAMPS_SHOWN = frozenset(
    {
        "topic",
        "incarnation",
        "partition",
        "offset",
        "kafka_timestamp",
        "canonical_version",
        "decision_set",
        "contract_version",
        "writer_schema",
        "flags",
        "run",
        "chunk",
        "audit_index",
    }
)
"""Fields that every committed event has and that name nobody. The correlation id is whatever its
publisher chose. Digests over few unknown characters can be guessed, so they are not listed here."""
