"""A TCP proxy in front of PostgreSQL or Kafka that delays, cuts, and loses requests or answers.

It reads enough of both protocols to know where a message ends and what a request asks for (Kafka:
size, api key, correlation id; PostgreSQL: type, length), so that just the answer to a COMMIT or to
an EndTxn can be lost. Kafka names its own address in its answers: the proxy puts its own there.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from enum import IntEnum
from urllib.parse import urlsplit, urlunsplit

HOST = "127.0.0.1"
Matches = Callable[[bytes], bool]
"""Whether a request, without its length, is the one meant."""


class Api(IntEnum):
    """Kafka's api keys of the requests that matter here (Kafka protocol guide)."""

    PRODUCE = 0
    FETCH = 1
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    INIT_PRODUCER_ID = 22
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    TXN_OFFSET_COMMIT = 28


def asks(api: Api) -> Matches:
    """Kafka requests of this kind."""
    return lambda request: struct.unpack(">h", request[:2])[0] == api


def says(statement: bytes) -> Matches:
    """PostgreSQL's simple queries with this text."""
    return lambda request: request[:1] == b"Q" and request[1:].rstrip(b"\0") == statement


COMMIT = says(b"COMMIT")


class Proxy:
    """Forwards both ways; while `answers` is cleared, the server's bytes wait here."""

    def __init__(self, target: tuple[str, int]) -> None:
        self._target = target
        self.answers = asyncio.Event()
        self.answers.set()
        self.delay_s = 0.0
        """Most time that each message of the server waits, drawn anew for each."""
        self.chance = random.Random(0)
        self.port = 0
        self.lost = 0
        """Requests and answers lost by now."""
        self.refusing = False
        """Whether new connections are cut at once."""
        self._losing: tuple[Matches, bool] | None = None
        self._links: set[_Link] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    def cut(self) -> None:
        """Reset every connection, as a dying network does."""
        for link in self._links:
            link.cut()

    def lose_answer(self, matches: Matches) -> None:
        """Once: let the next such request through, then cut its connection before the answer."""
        self._losing = matches, True

    def lose_request(self, matches: Matches) -> None:
        """Once: cut the connection at the next such request instead of forwarding it."""
        self._losing = matches, False

    @property
    def losing(self) -> bool:
        """Whether what is to be lost has not come by yet."""
        return self._losing is not None

    def lose_nothing(self) -> None:
        """Take back what was to be lost."""
        self._losing = None

    def claim(self, request: bytes) -> bool | None:
        """Whether to lose this request's answer (true), the request (false), or neither (none)."""
        if self._losing is None or not self._losing[0](request):
            return None
        _, answer = self._losing
        self._losing = None
        self.lost += 1
        return answer

    def link(self, client: asyncio.StreamWriter, server: asyncio.StreamWriter) -> _Link:
        """What knows the protocol of one connection."""
        return _PostgresLink(self, client, server)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection."""
        if self.refusing:
            writer.transport.abort()
            return
        try:
            server_reader, server_writer = await asyncio.open_connection(*self._target)
        except OSError:
            writer.transport.abort()
            return
        link = self.link(writer, server_writer)
        self._links.add(link)
        for coroutine in (link.pump_requests(reader), link.pump_answers(server_reader)):
            task = asyncio.create_task(coroutine)
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            task.add_done_callback(lambda _: self._links.discard(link))

    async def stop(self) -> None:
        """Cut what is left."""
        self.cut()
        self.answers.set()
        await asyncio.gather(*self._tasks, return_exceptions=True)


class _Link:
    """One connection through the proxy."""

    def __init__(
        self, proxy: Proxy, client: asyncio.StreamWriter, server: asyncio.StreamWriter
    ) -> None:
        self.proxy = proxy
        self._client = client
        self._server = server
        self._doomed = False
        """Whether the next answer is one to lose."""

    def cut(self) -> None:
        """Reset both sides."""
        self._client.transport.abort()
        self._server.transport.abort()

    def close(self) -> None:
        """End both sides, after what is under way to them."""
        self._client.close()
        self._server.close()

    async def read_request(self, reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
        """A whole message of the client, and what it asks for."""
        raise NotImplementedError

    async def read_answer(self, reader: asyncio.StreamReader) -> tuple[bytes, bool]:
        """Bytes of the server, and whether they answer what is to be lost."""
        raise NotImplementedError

    def doom(self, request: bytes) -> None:  # noqa: ARG002 - one at a time; Kafka's have ids
        """Lose the answer to this request."""
        self._doomed = True

    async def pump_requests(self, reader: asyncio.StreamReader) -> None:
        with contextlib.suppress(OSError, EOFError):
            while True:
                message, request = await self.read_request(reader)
                what = self.proxy.claim(request)
                if what is False:
                    self.cut()
                    return
                if what:
                    self.doom(request)
                self._server.write(message)
                await self._server.drain()
        self.close()

    async def pump_answers(self, reader: asyncio.StreamReader) -> None:
        with contextlib.suppress(OSError, EOFError):
            while True:
                message, doomed = await self.read_answer(reader)
                if doomed:
                    self.cut()
                    return
                if self.proxy.delay_s:
                    await asyncio.sleep(self.proxy.chance.uniform(0.0, self.proxy.delay_s))
                await self.proxy.answers.wait()
                self._client.write(message)
                await self._client.drain()
        self.close()


class _PostgresLink(_Link):
    _started = False

    async def read_request(self, reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
        kind = b""
        if self._started:
            kind = await reader.readexactly(1)
        size = await reader.readexactly(4)
        body = await reader.readexactly(struct.unpack(">i", size)[0] - 4)
        self._started = True
        return kind + size + body, kind + body

    async def read_answer(self, reader: asyncio.StreamReader) -> tuple[bytes, bool]:
        data = await reader.read(65536)
        if not data:
            raise EOFError
        return data, self._doomed


class _KafkaLink(_Link):
    _doomed_id: bytes | None = None

    async def read_request(self, reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
        size = await reader.readexactly(4)
        body = await reader.readexactly(struct.unpack(">i", size)[0])
        return size + body, body

    def doom(self, request: bytes) -> None:
        self._doomed_id = request[4:8]

    async def read_answer(self, reader: asyncio.StreamReader) -> tuple[bytes, bool]:
        size = await reader.readexactly(4)
        body = await reader.readexactly(struct.unpack(">i", size)[0])
        assert isinstance(self.proxy, KafkaProxy)
        return size + self.proxy.renamed(body), body[:4] == self._doomed_id


class KafkaProxy(Proxy):
    """In front of a one-node Kafka."""

    def link(self, client: asyncio.StreamWriter, server: asyncio.StreamWriter) -> _Link:
        return _KafkaLink(self, client, server)

    def renamed(self, answer: bytes) -> bytes:
        """An answer in which the broker's address is the proxy's."""
        host = HOST.encode()
        here = host + struct.pack(">i", self.port)
        return answer.replace(host + struct.pack(">i", self._target[1]), here)


@asynccontextmanager
async def _serving(proxy: Proxy) -> AsyncIterator[None]:
    server = await asyncio.start_server(proxy.serve, HOST, 0)
    proxy.port = server.sockets[0].getsockname()[1]
    try:
        yield
    finally:
        server.close()
        await proxy.stop()
        await server.wait_closed()


@asynccontextmanager
async def proxied(dsn: str) -> AsyncIterator[tuple[Proxy, str]]:
    """A proxy in front of `dsn`'s server, and the DSN that goes through it."""
    parts = urlsplit(dsn)
    proxy = Proxy((parts.hostname or HOST, parts.port or 5432))
    async with _serving(proxy):
        login, _, _ = parts.netloc.rpartition("@")
        address = f"{HOST}:{proxy.port}"
        netloc = f"{login}@{address}" if login else address
        # Without TLS there is one stream of bytes to hold back, and nothing to negotiate.
        query = "&".join(filter(None, [parts.query, "sslmode=disable"]))
        yield proxy, urlunsplit(parts._replace(netloc=netloc, query=query))


@asynccontextmanager
async def proxied_kafka(bootstrap: str) -> AsyncIterator[tuple[KafkaProxy, str]]:
    """A proxy in front of a one-node Kafka, and the bootstrap address that goes through it."""
    host, _, port = bootstrap.rpartition(":")
    proxy = KafkaProxy((host, int(port)))
    async with _serving(proxy):
        yield proxy, f"{HOST}:{proxy.port}"
