"""The decision set: everything besides the record that a verdict may depend on, under one digest.

Guarantee G4: deciding is a function of the record, the decision set and the schema its id names.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from dataclasses import dataclass, field
from functools import cached_property

CONTRACT_VERSION = 1
"""Version of the deciding code; raised whenever the same record could get another verdict."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds that decide. Units are last in the names."""

    value_bytes_max: int = 1_000_000
    """Largest raw value; checked before anything is parsed."""
    event_bytes_max: int = 1_000_000
    """Largest committed event, key and headers included; checked against the topic's limit too."""
    json_depth_max: int = 64
    clock_ahead_flag_s: int = 15 * 60
    clock_ahead_max_s: int = 24 * 3600
    clock_behind_max_s: int = 400 * 24 * 3600
    allow_nine_digit_ids: bool = False
    """Nine-digit employee ids look like US social security numbers and are refused by default."""
    allow_federal_alone: bool = False
    """Whether `US` by itself may be a tax jurisdiction."""
    require_manifest: bool = False
    chunk_span_records: int = 100_000


@dataclass(frozen=True)
class DecisionSet:
    """Rules, limits, schema versions and contract version. Equal digests decide equally."""

    limits: Limits = field(default_factory=Limits)
    rules_version: str = "builtin-authorities-1"
    schema_versions: tuple[tuple[str, int], ...] = (("dvir", 1), ("payroll", 1))
    contract_version: int = CONTRACT_VERSION

    def as_json(self) -> str:
        """The set as JSON with sorted members: what is stored and what the digest covers."""
        return json.dumps(
            {
                "contract_version": self.contract_version,
                "limits": dataclasses.asdict(self.limits),
                "rules_version": self.rules_version,
                "schema_versions": dict(self.schema_versions),
            },
            sort_keys=True,
            separators=(",", ":"),
        )

    @classmethod
    def from_json(cls, text: str) -> DecisionSet:
        """Read `as_json` back. Raises `ValueError` for members this code does not know."""
        members = json.loads(text)
        known = {f.name for f in dataclasses.fields(Limits)}
        unknown = set(members["limits"]) - known
        if unknown:
            message = f"decision set has limits this version does not know: {sorted(unknown)}"
            raise ValueError(message)
        return cls(
            limits=Limits(**members["limits"]),
            rules_version=members["rules_version"],
            schema_versions=tuple(sorted(members["schema_versions"].items())),
            contract_version=members["contract_version"],
        )

    @cached_property
    def digest(self) -> bytes:
        """SHA-256 over `as_json`, 32 bytes."""
        return hashlib.sha256(b"wb/decision-set/1\n" + self.as_json().encode()).digest()
