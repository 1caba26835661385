"""A TCP proxy in front of PostgreSQL that can hold answers back or cut connections."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit, urlunsplit


class Proxy:
    """Forwards both ways; while `answers` is cleared, the server's bytes wait here."""

    def __init__(self, host: str, port: int) -> None:
        self._target = host, port
        self.answers = asyncio.Event()
        self.answers.set()
        self.port = 0
        self._writers: list[asyncio.StreamWriter] = []
        self._tasks: set[asyncio.Task[None]] = set()

    def cut(self) -> None:
        """Reset every connection, as a dying network does."""
        for writer in self._writers:
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server_reader, server_writer = await asyncio.open_connection(*self._target)
        self._writers += [writer, server_writer]
        for coroutine in (
            self._pump(reader, server_writer, held=False),
            self._pump(server_reader, writer, held=True),
        ):
            task = asyncio.create_task(coroutine)
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, held: bool
    ) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                if held:
                    await self.answers.wait()
                writer.write(data)
                await writer.drain()
        writer.close()

    async def stop(self) -> None:
        self.cut()
        self.answers.set()
        await asyncio.gather(*self._tasks, return_exceptions=True)


@asynccontextmanager
async def proxied(dsn: str) -> AsyncIterator[tuple[Proxy, str]]:
    """A proxy in front of `dsn`'s server, and the DSN that goes through it."""
    parts = urlsplit(dsn)
    proxy = Proxy(parts.hostname or "127.0.0.1", parts.port or 5432)
    server = await asyncio.start_server(proxy._serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    login, _, _ = parts.netloc.rpartition("@")
    netloc = f"{login}@127.0.0.1:{port}" if login else f"127.0.0.1:{port}"
    try:
        # Without TLS there is one stream of bytes to hold back, and nothing to negotiate.
        query = "&".join(filter(None, [parts.query, "sslmode=disable"]))
        yield proxy, urlunsplit(parts._replace(netloc=netloc, query=query))
    finally:
        server.close()
        await proxy.stop()
        await server.wait_closed()
