"""Topic ids: the only way to see that a topic was deleted and created again under a live consumer.

A recreated topic has the same name and may hold any offset, so a consumer reads on in it as if
nothing had happened. Kafka gives each creation a UUID (KIP-516) that Metadata returns from version
10 on; aiokafka 0.14 speaks version 5, so version 12 is spelled out here.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping
from io import BytesIO
from typing import Any

from aiokafka.client import AIOKafkaClient
from aiokafka.errors import KafkaError, NoError, UnknownTopicOrPartitionError, for_code
from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.types import (
    AbstractType,
    Boolean,
    CompactArray,
    CompactString,
    Int16,
    Int32,
    Schema,
    TaggedFields,
)

from connectors.kafka.faults import translated

_UUID_BYTES = 16
_NO_ID = uuid.UUID(int=0)


class _Uuid(AbstractType[bytes]):  # type: ignore[misc] # aiokafka is untyped
    """Kafka's UUID: sixteen bytes, no length."""

    @classmethod
    def encode(cls, value: bytes) -> bytes:
        return value

    @classmethod
    def decode(cls, data: BytesIO) -> bytes:
        return data.read(_UUID_BYTES)


class _MetadataResponse_v12(Response):  # type: ignore[misc] # noqa: N801 - aiokafka's own way of naming versions
    API_KEY = 3
    API_VERSION = 12
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        (
            "brokers",
            CompactArray(
                ("node_id", Int32),
                ("host", CompactString("utf-8")),
                ("port", Int32),
                ("rack", CompactString("utf-8")),
                ("tags", TaggedFields),
            ),
        ),
        ("cluster_id", CompactString("utf-8")),
        ("controller_id", Int32),
        (
            "topics",
            CompactArray(
                ("error_code", Int16),
                ("topic", CompactString("utf-8")),
                ("topic_id", _Uuid),
                ("is_internal", Boolean),
                (
                    "partitions",
                    CompactArray(
                        ("error_code", Int16),
                        ("partition", Int32),
                        ("leader", Int32),
                        ("leader_epoch", Int32),
                        ("replicas", CompactArray(Int32)),
                        ("isr", CompactArray(Int32)),
                        ("offline_replicas", CompactArray(Int32)),
                        ("tags", TaggedFields),
                    ),
                ),
                ("authorized_operations", Int32),
                ("tags", TaggedFields),
            ),
        ),
        ("tags", TaggedFields),
    )


class _MetadataRequest_v12(RequestStruct):  # type: ignore[misc] # noqa: N801 - aiokafka's own way of naming versions
    FLEXIBLE_VERSION = True
    API_KEY = 3
    API_VERSION = 12
    RESPONSE_TYPE = _MetadataResponse_v12
    SCHEMA = Schema(
        (
            "topics",
            CompactArray(
                ("topic_id", _Uuid), ("name", CompactString("utf-8")), ("tags", TaggedFields)
            ),
        ),
        ("allow_auto_topic_creation", Boolean),
        ("include_topic_authorized_operations", Boolean),
        ("tags", TaggedFields),
    )


class _TopicIdRequest(Request[_MetadataRequest_v12]):  # type: ignore[misc] # as above
    API_KEY = 3

    def __init__(self, topics: Collection[str]) -> None:
        self._topics = topics

    def build(self, request_struct_class: type[_MetadataRequest_v12]) -> _MetadataRequest_v12:
        named: list[Any] = [(_NO_ID.bytes, topic, {}) for topic in self._topics]
        return request_struct_class(named, False, False, {})


async def topic_ids(
    client: AIOKafkaClient, topics: Collection[str]
) -> Mapping[str, uuid.UUID | None]:
    """The present id of each topic, None for one that does not exist now.

    Raises `BrokerUnavailable` (retryable), `ConfigurationError` when asking is not allowed.
    """
    try:
        response = await client.send(client.get_random_node(), _TopicIdRequest(topics))
    except KafkaError as error:
        what = "topic ids"
        raise translated(what, error) from None
    found: dict[str, uuid.UUID | None] = dict.fromkeys(topics)
    for error_code, topic, topic_id, *_ in response.topics:
        if error_code == NoError.errno:
            found[topic] = uuid.UUID(bytes=topic_id)
        elif error_code != UnknownTopicOrPartitionError.errno:
            what = f"topic id of {topic}"
            raise translated(what, for_code(error_code)())
    return found
