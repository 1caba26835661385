"""What the Kafka connector needs to know. Units last in the names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

Compression = Literal["gzip", "snappy", "lz4", "zstd"]

CONTROL_TOPIC = "weighbridge.control"
"""Wakes workers when a decision set is activated; the topic prefix goes before it."""


@dataclass(frozen=True, slots=True)
class KafkaSettings:
    """Brokers, group, names and bounds."""

    bootstrap: str
    """`host:port[,host:port]`."""
    group: str = "weighbridge"
    topic_prefix: str = ""
    client_id: str = "weighbridge"

    session_timeout_ms: int = 10_000
    """How long a silent worker keeps its partitions; heartbeats go out three times as often."""
    poll_interval_ms_max: int = 300_000
    """How long the group waits for a worker that no longer polls."""

    batch_records_max: int = 2_000
    batch_bytes_max: int = 8 * 1024 * 1024
    """Keys, values and headers; a batch exceeds it only by being a single record."""
    batch_linger_ms: int = 50
    """How long a batch waits to fill when traffic is thin."""
    fetch_partition_bytes_max: int = 2 * 1024 * 1024
    """What one fetch returns of one partition, and so what is prefetched of it at most: memory is
    this times the partitions held, plus one decompressed producer batch each."""
    fetch_bytes_max: int = 16 * 1024 * 1024
    fetch_wait_ms_max: int = 50
    """How long the broker holds a fetch that has nothing to return. aiokafka has one fetch in
    flight per broker: a partition that becomes empty meanwhile waits this long for its next."""

    transaction_timeout_ms: int = 15_000
    """How long a dead worker's open transaction holds up readers of the output topics."""
    compression: Compression | None = "snappy"
    """Costs next to nothing; lz4, which aiokafka runs at level 9, costs 5 µs for each event."""
    produce_batch_bytes_max: int = 1_000_000
    """Largest record batch sent, before compression; lower when an output topic takes less."""
    emit_retry_backoff_ms: int = 10
    """The pause before a step of a transaction is tried again, as after every commit whose markers
    are still being written; aiokafka's default of 100 halves the rate."""

    request_timeout_ms: int = 10_000
    call_deadline_s: float = 15.0
    """Budget of any one call to the broker as the stream sees it, retries included."""
    close_deadline_s: float = 3.0

    def topic(self, name: str) -> str:
        """A topic's name on this cluster."""
        return self.topic_prefix + name

    @property
    def control_topic(self) -> str:
        """The control topic's name on this cluster."""
        return self.topic(CONTROL_TOPIC)

    def client_options(self) -> dict[str, Any]:
        """What every aiokafka client is made with; TLS and SASL belong here."""
        return {
            "bootstrap_servers": self.bootstrap,
            "client_id": self.client_id,
            "request_timeout_ms": self.request_timeout_ms,
        }
