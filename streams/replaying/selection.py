"""Which records of a raw or quarantine topic are wanted, by run and key."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from schemas import envelope
from schemas.avro_strict import AvroFault
from schemas.decision_set import DecisionSet
from schemas.envelope import RawRecord, Record, Source, last_header
from schemas.json_strict import DEPTH_MAX, JsonFault
from schemas.record_type import RecordType
from streams.decide import Schemas, decide_batch, members_of
from streams.replaying.asked import Filters

_HEX_KEY_LENGTH = 64


class Selection:
    """Looks into records as far as it must. Pure."""

    def __init__(
        self, record_type: RecordType, topic: str, filters: Filters, *, quarantine: bool
    ) -> None:
        self._record_type = record_type
        self._topic = topic
        self._filters = filters
        self._quarantine = quarantine

    @property
    def filtered(self) -> bool:
        """Whether anything but the range was asked for."""
        filters = self._filters
        return filters.timed or filters.run is not None or filters.key is not None

    def in_time(self, record: RawRecord) -> bool:
        """Whether a record's timestamp is one asked for."""
        return self._filters.in_time(record)

    def members(self, record: RawRecord, schemas: Schemas) -> Mapping[str, Any] | None:
        """A record's members; None for what does not decode, and for the digest that stands for a
        value too long to repeat."""
        value = record.value
        if value is None or self.truncated(record):
            return None
        try:
            return members_of(value, self._record_type, DEPTH_MAX, schemas)[0]
        except (JsonFault, AvroFault):
            return None

    def truncated(self, record: RawRecord) -> bool:
        """Whether a quarantine event holds a digest in place of the value."""
        return self._quarantine and last_header(record.headers, envelope.TRUNCATED) is not None

    def message_key(self, record: RawRecord) -> bytes | None:
        """The original one; a quarantine event's own is its reason."""
        return last_header(record.headers, envelope.KEY) if self._quarantine else record.key

    def wanted(
        self,
        partition: int,
        record: RawRecord,
        members: Mapping[str, Any] | None,
        schemas: Schemas,
    ) -> bool:
        """Whether run and key are those asked for, if any were."""
        run, key, run_field = self._filters.run, self._filters.key, self._record_type.run_field
        if run is not None and (
            members is None or run_field is None or members.get(run_field) != run
        ):
            return False
        if key is None or self.message_key(record) == key.encode():
            return True
        if members is None:
            return False
        supplied = members.get("idempotency_key") == key
        return supplied or self._derived_key(partition, record, key, schemas) == key

    def _derived_key(
        self, partition: int, record: RawRecord, key: str, schemas: Schemas
    ) -> str | None:
        """The ledger key in hexadecimal, for types whose key is derived."""
        if len(key) != _HEX_KEY_LENGTH:
            return None
        plain = Record(record.offset, record.value, record.timestamp)
        source = Source(self._topic, partition)
        (decided,) = decide_batch([plain], self._record_type, source, DecisionSet(), schemas)
        return None if decided.key is None else decided.key.hex()
