"""A made record and the truth about it, known before any code of the gate has seen it.

The truth is worked out here from the specification alone: keys, signs and sums are computed by code
that shares nothing with the contracts under test. Pure.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal

from schemas.envelope import Headers
from schemas.reasons import Reason
from schemas.verdict import Verdict

NEGATIVE_TYPES = frozenset({"reversal", "void"})
"""Statement types whose gross pay counts negative in totals; the amount itself is a magnitude."""
KEY_MEMBERS = (
    "employee_id",
    "pay_period_start",
    "pay_period_end",
    "source_run_id",
    "statement_id",
)
CENT = Decimal("0.01")


@dataclass(frozen=True, slots=True)
class Truth:
    """What must become of a record, given every record made before it."""

    verdict: Verdict
    reason: Reason | None = None
    identity: str = ""
    """Payroll: the derived key in hex. DVIR: its idempotency key. Empty for what has none."""
    run: str = ""
    """Source run of a payroll statement."""
    cents: int = 0
    """Signed gross pay of a committed payroll statement; 0 for everything else."""
    receipts: int = 0
    """Signatures of a committed DVIR, each one row beside the ledger row."""


@dataclass(frozen=True, slots=True)
class Made:
    """One raw record as a publisher sends it, with the truth about it."""

    type_name: str
    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp: int
    """Kafka timestamp, milliseconds since the epoch."""
    truth: Truth


@dataclass(slots=True)
class Expected:
    """What the truths of one record type add up to."""

    records: int = 0
    committed: int = 0
    duplicate: int = 0
    quarantined: int = 0
    reasons: dict[str, int] = field(default_factory=dict)
    cents: int = 0
    run_cents: dict[str, int] = field(default_factory=dict)
    receipts: int = 0
    identities: set[str] = field(default_factory=set)

    def add(self, truth: Truth) -> None:
        """Count one record. Raises `ValueError` when a key is said to be committed twice."""
        self.records += 1
        if truth.verdict is Verdict.COMMITTED:
            if truth.identity in self.identities:
                message = "the generator committed one key twice"
                raise ValueError(message)
            self.committed += 1
            self.identities.add(truth.identity)
            self.cents += truth.cents
            self.receipts += truth.receipts
            if truth.run:
                self.run_cents[truth.run] = self.run_cents.get(truth.run, 0) + truth.cents
        elif truth.verdict is Verdict.DUPLICATE:
            self.duplicate += 1
        else:
            self.quarantined += 1
            reason = str(truth.reason)
            self.reasons[reason] = self.reasons.get(reason, 0) + 1

    @property
    def money(self) -> Decimal:
        """Signed gross pay of the accepted source rows."""
        return dollars(self.cents)


def dollars(cents: int) -> Decimal:
    """Cents as an exact amount with two digits after the point."""
    return (Decimal(cents) * CENT).quantize(CENT)


def signed_cents(statement_type: str, cents: int) -> int:
    """What a statement adds to a total: reversal and void take away."""
    return -cents if statement_type in NEGATIVE_TYPES else cents


def payroll_key(members: Mapping[str, object]) -> str:
    """The derived idempotency key of a statement: SHA-256 over length-prefixed parts (SPEC 3.1)."""
    digest = hashlib.sha256(b"wb/payroll/1")
    for name in KEY_MEMBERS:
        part = str(members.get(name) or "").encode()
        digest.update(len(part).to_bytes(4, "big") + part)
    return digest.hexdigest()


def render(value: object, *, numbers: bool = False) -> str:
    """Members as JSON text; amounts as strings or, with `numbers`, as plain JSON numbers.

    The standard encoder knows no exact decimal, and a float would not keep the cents.
    """
    if isinstance(value, Decimal):
        return f"{value:f}" if numbers else f'"{value:f}"'
    if isinstance(value, (date, datetime)):
        return f'"{value.isoformat()}"'
    if isinstance(value, Mapping):
        members = (f"{json.dumps(k)}:{render(v, numbers=numbers)}" for k, v in value.items())
        return "{" + ",".join(members) + "}"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return "[" + ",".join(render(v, numbers=numbers) for v in value) + "]"
    return json.dumps(value, ensure_ascii=False)


def as_json(members: Mapping[str, object], *, numbers: bool = False) -> bytes:
    """`render`, encoded."""
    return render(members, numbers=numbers).encode()
