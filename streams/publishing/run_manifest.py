"""The manifest of a published run: what was sent of it, so that it can be reconciled."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass

from connectors.kafka.transaction import Delivery
from schemas.envelope import Headers
from streams.publishing.chunks import Chunk, RunPlan

CHUNKS_LISTED_MAX = 2_000
"""A manifest of more chunks leaves out what it says of each."""
_FRAMING_BYTES_MAX = 1_024


@dataclass(frozen=True, slots=True)
class _Message:
    key: bytes
    value: bytes
    headers: Headers = ()


@dataclass(frozen=True, slots=True)
class Provenance:
    """What all manifests of a publication say alike."""

    publication: uuid.UUID
    file: str
    file_sha256: str


class RunManifests:
    """Collects what is said of each chunk, and yields a run's manifest with its last one."""

    def __init__(
        self,
        topic: str | None,
        message_bytes_max: int,
        provenance: Provenance,
        runs: Mapping[str, RunPlan],
    ) -> None:
        """`topic` is None for a type without runs; `runs` as planned."""
        self._topic = topic
        self._bytes_max = message_bytes_max - _FRAMING_BYTES_MAX
        self._provenance = provenance
        self._runs = runs
        self._listed: dict[str, list[dict[str, object]]] = {}

    @property
    def topics(self) -> tuple[str, ...]:
        """The topic that manifests go to, if any do."""
        return () if self._topic is None else (self._topic,)

    def add(self, chunk: Chunk, attempt: str, partition: int) -> Delivery | None:
        """Note a chunk of a run; the run's manifest if it is the last."""
        run, planned = chunk.run or "", self._runs[chunk.run or ""]
        if planned.chunks <= CHUNKS_LISTED_MAX:
            told = {
                "chunk": chunk.number,
                "attempt": attempt,
                "count": len(chunk.rows),
                "currency": chunk.currency,
                "total": format(chunk.total, "f"),
                "chain": chunk.chain.hex(),
                "partition": partition,
            }
            self._listed.setdefault(run, []).append(told)
        if self._topic is None or chunk.number < planned.chunks:
            return None
        value = self._value(run, planned, self._listed.pop(run, None))
        return Delivery(self._topic, 0, [_Message(run.encode(), value)])

    def _value(self, run: str, planned: RunPlan, listed: list[dict[str, object]] | None) -> bytes:
        about = self._provenance
        members: dict[str, object] = {
            "manifest_version": 1,
            "run": run,
            "publication": str(about.publication),
            "file": about.file,
            "file_sha256": about.file_sha256,
            "chunks": planned.chunks,
            "records": planned.records,
            "totals": {name: format(total, "f") for name, total in planned.totals.items()},
            "unreadable_amounts": planned.unreadable,
            "unmappable_rows": planned.malformed,
            "chunk_list": listed,
        }
        value = json.dumps(members, separators=(",", ":")).encode()
        if listed is None or len(value) > self._bytes_max:
            members["chunk_list"] = None
            members["chunk_list_left_out"] = "too many chunks for one message"
            value = json.dumps(members, separators=(",", ":")).encode()
        return value
