"""One admin client, shared by all partitions of a worker: offsets with their text, topics, ids."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from aiokafka import TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import GroupIdNotFound, NoError, TopicAlreadyExistsError, for_code
from aiokafka.structs import OffsetAndMetadata

from connectors.errors import BrokerUnavailable, ConfigurationError, Stop
from connectors.kafka.faults import bounded, translated
from connectors.kafka.lazy_client import LazyClient
from connectors.kafka.log import KafkaLog
from connectors.kafka.membership import Place
from connectors.ports import EmittedCursor, LogRange

_NO_OFFSET = -1


class KafkaAdmin(LazyClient[AIOKafkaAdminClient]):
    """Questions to the cluster outside any consumer or producer.

    Starts on first use and may be used again after a failure. Every call raises `BrokerUnavailable`
    (retryable) or `ConfigurationError` (not allowed), within `call_deadline_s`.
    """

    @asynccontextmanager
    async def _call(self, what: str) -> AsyncIterator[AIOKafkaAdminClient]:
        async with bounded(what, self._settings.call_deadline_s):
            yield await self._connected()

    def _make(self) -> AIOKafkaAdminClient:
        return AIOKafkaAdminClient(**self._settings.client_options())

    async def _connect(self, client: AIOKafkaAdminClient) -> None:
        await client.start()

    # -- group -------------------------------------------------------------------------------------

    async def committed(self, group: str, topic: str, partition: int) -> EmittedCursor | None:
        """The group's committed offset with the text beside it, None when it has none.

        `AIOKafkaConsumer.committed` gives the number alone.
        """
        (found,) = (await self._offsets(group, [(topic, partition)])).values()
        return None if found.offset == _NO_OFFSET else EmittedCursor(found.offset, found.metadata)

    async def group_offsets(self, group: str, places: Sequence[Place]) -> Mapping[Place, int]:
        """The group's committed offsets, for those of these partitions that have one."""
        if not places:
            return {}
        offsets = await self._offsets(group, places)
        return {place: found.offset for place, found in offsets.items() if found.offset >= 0}

    async def emitted(
        self, group: str, places: Sequence[Place]
    ) -> Mapping[Place, EmittedCursor | None]:
        """As `committed`, for several partitions at once."""
        if not places:
            return {}
        offsets = await self._offsets(group, places)
        return {
            place: EmittedCursor(found.offset, found.metadata) if found.offset >= 0 else None
            for place, found in offsets.items()
        }

    async def members(self, group: str) -> int:
        """How many consumers are in the group now; 0 for a group that does not exist."""
        what = f"describing group {group}"
        async with self._call(what) as client:
            (response,) = await client.describe_consumer_groups([group])
        ((error_code, _, _, _, _, members, *_),) = response.groups
        if error_code not in (NoError.errno, GroupIdNotFound.errno):
            raise translated(what, for_code(error_code)())
        return len(members)

    async def _offsets(
        self, group: str, places: Sequence[Place]
    ) -> Mapping[Place, OffsetAndMetadata]:
        """What the group's coordinator answers, for every one of these partitions.

        aiokafka 0.14 overlooks the error of the answer as a whole, as from a coordinator that is
        loading after a restart. Such an answer names no partition, where a group without offsets
        gets one of -1 for each: taking the one for the other would forget what was emitted.
        """
        what = f"committed offsets of group {group}"
        asked = [TopicPartition(*place) for place in places]
        async with self._call(what) as client:
            offsets = await client.list_consumer_group_offsets(group, partitions=asked)
        missing = set(asked) - set(offsets)
        if missing:
            message = f"{what}: the coordinator did not answer for {len(missing)} partition(s)"
            raise BrokerUnavailable(message)
        return {(place.topic, place.partition): found for place, found in offsets.items()}

    async def log_ranges(self, places: Sequence[Place]) -> Mapping[Place, LogRange]:
        """What logs hold now, for those of these partitions that exist."""
        ranges: dict[Place, LogRange] = {}
        async with KafkaLog(self._settings) as log:
            for topic, partition in places:
                with contextlib.suppress(Stop):
                    ranges[topic, partition] = await log.log_range(topic, partition)
        return ranges

    # -- cluster -----------------------------------------------------------------------------------

    async def cluster(self) -> Mapping[str, Any]:
        """Kafka's description of the cluster: `cluster_id`, `brokers`."""
        async with self._call("describing the cluster") as client:
            return dict(await client.describe_cluster())

    async def cluster_id(self) -> str:
        """The cluster's id."""
        return str((await self.cluster())["cluster_id"])

    async def broker_config(self, names: Collection[str]) -> Mapping[str, str]:
        """Values of these broker settings, from whichever broker comes first."""
        brokers = (await self.cluster())["brokers"]
        node = str(brokers[0]["node_id"])
        resource = ConfigResource(ConfigResourceType.BROKER, node, dict.fromkeys(names))
        async with self._call(f"settings of broker {node}") as client:
            responses = await client.describe_configs([resource])
        return next(iter(_configs(responses).values()))

    # -- topics ------------------------------------------------------------------------------------

    async def topics(self, names: Sequence[str]) -> Mapping[str, Mapping[int, int]]:
        """The topics that exist among these: partition number to how many replicas it has."""
        async with self._call(f"describing {', '.join(names)}") as client:
            described = await client.describe_topics(list(names))
        return {
            topic["topic"]: {p["partition"]: len(p["replicas"]) for p in topic["partitions"]}
            for topic in described
            if topic["error_code"] == NoError.errno
        }

    async def topic_configs(self, names: Sequence[str]) -> Mapping[str, Mapping[str, str]]:
        """All settings of these topics, defaults included."""
        resources = [ConfigResource(ConfigResourceType.TOPIC, name) for name in names]
        async with self._call(f"settings of {', '.join(names)}") as client:
            return _configs(await client.describe_configs(resources))

    async def message_bytes_max(self, names: Sequence[str]) -> Mapping[str, int]:
        """The largest record batch that each of these topics takes; empty when we may not ask:
        describing settings needs a right that producing does not."""
        try:
            configs = await self.topic_configs(names)
        except ConfigurationError:
            return {}
        return {name: int(config["max.message.bytes"]) for name, config in configs.items()}

    async def create(self, topics: Sequence[NewTopic]) -> list[str]:
        """Create these topics; returns the names of those that did not exist before."""
        async with self._call("creating topics") as client:
            response = await client.create_topics(list(topics))
        created = []
        for topic, error_code, *_ in response.topic_errors:
            error = for_code(error_code)
            if error is NoError:
                created.append(topic)
            elif error is not TopicAlreadyExistsError:
                what = f"creating topic {topic}"
                if error.retriable:
                    raise translated(what, error())
                message = f"{what}: {error.__name__}"
                raise ConfigurationError(message)
        return created


def _configs(responses: Sequence[Any]) -> dict[str, dict[str, str]]:
    """Resource name to its settings. Raises aiokafka's error for one that cannot be described."""
    found: dict[str, dict[str, str]] = {}
    for response in responses:
        for error_code, _, _, name, entries in response.resources:
            if error_code != NoError.errno:
                what = f"settings of {name}"
                raise translated(what, for_code(error_code)())
            found[name] = {entry[0]: entry[1] for entry in entries}
    return found
