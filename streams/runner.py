"""Running a worker in this process: start, serve health, wait for a signal or an error, stop."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Callable
from typing import NoReturn

import structlog

from streams.app import Worker
from streams.health import HealthServer, causes, now_s
from streams.metrics import Metrics, resident_memory_bytes
from streams.observer import Observer
from streams.settings import Settings
from streams.wiring import worker_parts

log = structlog.get_logger("weighbridge.worker")


async def run_worker(settings: Settings, leave: Callable[[BaseException | None], NoReturn]) -> None:
    """Run until SIGTERM or SIGINT (returns), or until the worker cannot go on (raises why).

    Raises `ConfigurationError`, `InfrastructureError` at the start; `Stop`, `OwnershipLost` or
    `InvariantViolation` later. Outside systems being away later is waited for, not raised.
    `leave` ends the process at once, for when a library's thread would hold it up after the stop.
    """
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[None] = loop.create_future()

    def fatal(error: BaseException) -> None:
        if not ended.done():
            ended.set_exception(error)

    def told_to_stop() -> None:
        if not ended.done():
            ended.set_result(None)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, told_to_stop)
    metrics = Metrics()
    metrics.watch("weighbridge_resident_memory_bytes", resident_memory_bytes)
    async with worker_parts(settings, Observer(metrics, fatal)) as parts:
        worker = Worker(parts)
        health = HealthServer(
            settings.http_host,
            settings.http_port,
            metrics,
            lambda: causes(
                worker.pump.partitions.values(),
                worker.pump.watchdog.stalled,
                now_s(),
                worker.pump.away.values(),
            ),
            lambda: list(worker.pump.watchdog.notes.values()),
        )
        port = await health.start()
        log.info("worker_started", group=settings.group, http=f"{settings.http_host}:{port}")
        try:
            await worker.start()
            await ended
        finally:
            in_order = await worker.stop()
            await health.stop()
            log.info("worker_stopped", in_order=in_order)
            if not in_order:
                leave(sys.exception())
