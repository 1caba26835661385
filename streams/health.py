"""/live, /ready and /metrics: whether the process runs, whether it makes progress, and the figures.

Ready is red, with the cause, when a partition is not running or makes no progress while it has lag.
Notes say what holds a partition up and is not ours to heal.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping

from aiohttp import web

from streams.metrics import Metrics
from streams.partition import Partition, State

ASSIGN_S = 30.0
"""An assignment may take so long before readiness turns red."""


def causes(
    partitions: Iterable[Partition],
    stalled: Mapping[tuple[str, int], str],
    now_s: float,
    away: Iterable[str] = (),
) -> list[str]:
    """Why this worker is not ready; empty when it is. `stalled` is what the watchdog says of each
    stalled partition, `away` what outside does not answer. Pure."""
    found = list(away)
    for partition in partitions:
        quiet_s = now_s - max(partition.progressed_at_s, partition.moved_at_s)
        stall = stalled.get((partition.source.topic, partition.source.partition))
        if stall is not None and partition.state is not State.STOPPED:
            found.append(stall)
        elif partition.state in {State.WAITING, State.STOPPED}:
            found.append(f"{partition.source} {partition.state.value}: {partition.why}")
        elif partition.state is State.ASSIGNING and quiet_s > ASSIGN_S:
            found.append(f"{partition.source} assigning for {quiet_s:.0f} s: {partition.why}")
    return found


class HealthServer:
    """A small HTTP server beside the worker."""

    def __init__(
        self,
        host: str,
        port: int,
        metrics: Metrics,
        not_ready: Callable[[], list[str]],
        notes: Callable[[], list[str]] = list,
    ) -> None:
        self._host, self._port = host, port
        self._metrics = metrics
        self._not_ready = not_ready
        self._notes = notes
        self._runner: web.AppRunner | None = None

    async def start(self) -> int:
        """Listen. Returns the port, which is a free one when 0 was asked for. Raises `OSError`."""
        app = web.Application()
        app.add_routes(
            [
                web.get("/live", self._live),
                web.get("/ready", self._ready),
                web.get("/metrics", self._exposition),
            ]
        )
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        site = web.TCPSite(self._runner, self._host, self._port)
        await site.start()
        address: tuple[str, int] = self._runner.addresses[0]
        return address[1]

    async def stop(self) -> None:
        """Stop listening."""
        if self._runner is not None:
            await self._runner.cleanup()

    async def _live(self, _: web.Request) -> web.Response:
        return web.json_response({"live": True})

    async def _ready(self, _: web.Request) -> web.Response:
        found = self._not_ready()
        body = {"ready": not found, "causes": found, "notes": self._notes()}
        return web.json_response(body, status=503 if found else 200)

    async def _exposition(self, _: web.Request) -> web.Response:
        return web.Response(
            body=self._metrics.exposition(),
            headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"},
        )


def now_s() -> float:
    """Seconds on the event loop's clock, which partitions keep their progress by."""
    return asyncio.get_running_loop().time()
