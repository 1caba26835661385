"""Chunks: how a publisher declares what belongs together, and how the gate checks it (SPEC 5).

A run is cut into chunks. Each member of a chunk carries the header `wb-chunk`, the first one also
the declaration `wb-chunk-declare`. Headers are not authenticated: they find what was lost or
changed by accident, not by a forger. Pure; publisher and gate share it.

    wb-chunk          ATTEMPT/SEQ: a UUID in lower case, and the member's number from 1
    wb-chunk-declare  JSON: {"run", "chunk": n, "of": N, "count", "currency", "total", "chain"}

`total` is the exact sum of the members' amounts in plain notation, reversals negative. `chain` is
64 hex digits: beginning with 32 zero bytes, each member in order replaces it by
SHA-256(chain + SHA-256(raw value)).
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from schemas.envelope import raw_digest
from schemas.json_strict import JsonFault, parse

CHUNK_RECORDS_MAX = 2_000
"""Most members of one chunk."""
CHUNK_RECORDS_DEFAULT = 1_000
CHUNKS_MAX = 10_000_000
"""Most chunks of one run that a declaration can name."""
HEADERS_BYTES_MAX = 600
"""Upper bound of what both headers add to a record: a run of 128 characters, each escaped."""
CHAIN_START = bytes(32)

_MEMBER = re.compile(
    rb"([0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})/([1-9][0-9]{0,3})"
)
_RUN = re.compile(r"[!-~]([ -~]{0,126}[!-~])?")
_CURRENCY = re.compile(r"[A-Z]{3}")
_TOTAL = re.compile(r"-?[0-9]{1,18}(?:\.[0-9]{1,2})?")
_CHAIN = re.compile(r"[0-9a-f]{64}")
_DECLARATION_BYTES_MAX = 4_096


@dataclass(frozen=True, slots=True)
class Member:
    """A record's place in its chunk: header `wb-chunk`."""

    attempt: str
    """The publication of the chunk: a UUID. Another attempt is another publication of it."""
    seq: int
    """1 for the first member."""

    def header(self) -> bytes:
        """The header's value."""
        return f"{self.attempt}/{self.seq}".encode("ascii")

    @classmethod
    def parse(cls, header: bytes | None) -> Member:
        """Read the header's value. Raises `ValueError` with the rule broken."""
        match = None if header is None else _MEMBER.fullmatch(header)
        if match is None or int(match[2]) > CHUNK_RECORDS_MAX:
            message = f"UUID/SEQ with a seq from 1 to {CHUNK_RECORDS_MAX}"
            raise ValueError(message)
        return cls(match[1].decode("ascii"), int(match[2]))


@dataclass(frozen=True, slots=True)
class Declaration:
    """What a chunk's first member says of the whole: header `wb-chunk-declare`."""

    run: str
    """1 to 128 printable ASCII characters, no outer blanks."""
    chunk: int
    """n: this chunk's number in its run, from 1."""
    of: int
    """N: how many chunks this publication of the run has."""
    count: int
    """Members."""
    currency: str
    total: Decimal
    """Exact sum of the members' amounts that can be read, reversal and void negative."""
    chain: bytes
    """Chained SHA-256 over the raw values in order, 32 bytes."""

    def header(self) -> bytes:
        """The header's value."""
        members = {
            "run": self.run,
            "chunk": self.chunk,
            "of": self.of,
            "count": self.count,
            "currency": self.currency,
            "total": format(self.total, "f"),
            "chain": self.chain.hex(),
        }
        return json.dumps(members, separators=(",", ":")).encode()

    @classmethod
    def parse(cls, header: bytes | None) -> Declaration:
        """Read the header's value; unknown members are left for later versions. Raises `ValueError`
        with the rule broken, which names no value."""
        if header is None or len(header) > _DECLARATION_BYTES_MAX:
            message = f"JSON of at most {_DECLARATION_BYTES_MAX} bytes"
            raise ValueError(message)
        try:
            members = parse(header, depth_max=4)
        except JsonFault as fault:
            raise ValueError(fault.rule) from None
        of = _whole(members, "of", CHUNKS_MAX)
        return cls(
            run=_text(members, "run", _RUN),
            chunk=_whole(members, "chunk", of),
            of=of,
            count=_whole(members, "count", CHUNK_RECORDS_MAX),
            currency=_text(members, "currency", _CURRENCY),
            total=Decimal(_text(members, "total", _TOTAL)),
            chain=bytes.fromhex(_text(members, "chain", _CHAIN)),
        )


def _text(members: dict[str, Any], name: str, pattern: re.Pattern[str]) -> str:
    found = members.get(name)
    if not isinstance(found, str) or pattern.fullmatch(found) is None:
        message = f"{name}: text that matches {pattern.pattern}"
        raise ValueError(message)
    return found


def _whole(members: dict[str, Any], name: str, largest: int) -> int:
    found = members.get(name)
    if type(found) is not int or not 1 <= found <= largest:
        message = f"{name}: a whole number from 1 to {largest}"
        raise ValueError(message)
    return found


def is_run(text: object) -> bool:
    """Whether this can name a run: 1 to 128 printable ASCII characters, no outer blanks."""
    return isinstance(text, str) and _RUN.fullmatch(text) is not None


def link(chain: bytes, digest: bytes) -> bytes:
    """The chain with one more member, of whose raw value `digest` is the SHA-256."""
    return hashlib.sha256(chain + digest).digest()


def chain_of(values: Iterable[bytes | None]) -> bytes:
    """The chain over raw values in order; a null value counts as no bytes."""
    chain = CHAIN_START
    for value in values:
        chain = link(chain, raw_digest(value))
    return chain
