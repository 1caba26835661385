"""What keeps a partition's log from being read on, and whose fault aiokafka's errors are."""

from __future__ import annotations

from aiokafka import TopicPartition
from aiokafka import errors as kafka

from connectors.errors import ConfigurationError
from connectors.kafka.blocked import Blocked
from connectors.kafka.membership import Place

OF_SOME_PARTITION = (kafka.CorruptRecordException, kafka.UnsupportedCodecError, ValueError)
"""Raised while decoding, without saying of which partition."""


def place_of(error: Exception) -> Place | None:
    """The partition that an error of aiokafka is about, if it says so."""
    for argument in error.args:
        for place in argument if isinstance(argument, dict) else (argument,):
            if isinstance(place, TopicPartition):
                return place.topic, place.partition
    return None


def too_large(offset: int) -> str:
    """A record that no fetch holds."""
    return f"the record at offset {offset} is larger than a fetch"


def undecodable(offset: int, error: Exception) -> str:
    """A record that aiokafka cannot decode."""
    return (
        f"the record at or after offset {offset} cannot be decoded ({type(error).__name__}): its "
        "checksum, its framing or a header's name is broken"
    )


def in_the_way(place: Place, blocked: Blocked, error: Exception) -> str:
    """What cannot be read, and the way past it."""
    topic, partition = place
    too_big = isinstance(error, kafka.RecordTooLargeError)
    what = too_large(blocked.first) if too_big else undecodable(blocked.first, error)
    through = f" --through {blocked.last}" if blocked.last > blocked.first else ""
    return (
        f"{what}. `weighbridge quarantine add --position {topic}/N/{partition}/{blocked.first}"
        f"{through} --why TEXT` sets it aside (N is the incarnation, 1 unless the topic was "
        "adopted: see `weighbridge status --json`)"
    )


def out_of_range(offset: int, start_offset: int, end_offset: int) -> str:
    """A position outside the log."""
    return (
        f"offset {offset} is wanted, but the log holds {start_offset} to {end_offset}: records "
        "aged out before they were decided, or the topic was recreated or truncated"
    )


def recreated(topic: str, was: object, now: object) -> str:
    """Another topic under the same name."""
    return (
        f"topic {topic} was deleted and created again while it was read (its id was {was} and is "
        f"{now})"
    )


def no_codec(topic: str, error: Exception) -> ConfigurationError:
    """Records compressed in a way for which a library is missing here."""
    text = str(error).lower()
    codec = next((c for c in ("gzip", "snappy", "lz4", "zstd") if c in text), "an unknown codec")
    message = (
        f"topic {topic} holds records compressed with {codec}, which this installation cannot "
        "read: install the package `cramjam`"
    )
    return ConfigurationError(message)
