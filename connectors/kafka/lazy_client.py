"""A client of the cluster that connects on first use."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from typing import Generic, Protocol, Self, TypeVar

from connectors.kafka.settings import KafkaSettings


class Closable(Protocol):
    """What every client of aiokafka can do."""

    async def close(self) -> None:
        """Release the connections."""


Client = TypeVar("Client", bound=Closable)


class LazyClient(ABC, Generic[Client]):
    """Connects on first use, once however many ask, and may be used again after a failure."""

    def __init__(self, settings: KafkaSettings) -> None:
        self._settings = settings
        self._client: Client | None = None
        self._starting = asyncio.Lock()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Release the connection; the next call opens another."""
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    async def _connected(self) -> Client:
        async with self._starting:
            if self._client is None:
                client = self._make()
                try:
                    await self._connect(client)
                except BaseException:
                    await client.close()
                    raise
                self._client = client
            return self._client

    @abstractmethod
    def _make(self) -> Client:
        """A client that is not connected yet."""

    @abstractmethod
    async def _connect(self, client: Client) -> None:
        """Connect it, or raise."""
