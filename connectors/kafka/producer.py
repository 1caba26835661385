"""aiokafka's transactional producer, made to end.

aiokafka 0.14 retries without end while a broker is away, `stop()` included, and tells the cause of
a transaction's death only to whoever asks the right future. Its private parts are touched here and
nowhere else.
"""

from __future__ import annotations

import asyncio
import contextlib
from itertools import chain
from typing import Any, NoReturn

import structlog
from aiokafka import AIOKafkaProducer, IllegalOperation
from aiokafka.errors import ProducerClosed

from connectors.errors import WeighbridgeError
from connectors.kafka.faults import translated

log = structlog.get_logger("weighbridge.producer")

_GRACE_S = 1.0
STATE_ERRORS = (IllegalOperation, AssertionError)
"""What aiokafka raises when used after its transaction has died in the background."""


def death_of(producer: AIOKafkaProducer, what: str, error: Exception) -> WeighbridgeError:
    """Why the producer's transaction died, as one of our errors."""
    waiter = producer._txn_manager._transaction_waiter  # noqa: SLF001 - see the module's text
    if isinstance(error, STATE_ERRORS) and _failed(waiter):
        return translated(what, waiter.exception())
    return translated(what, error)


async def end(producer: AIOKafkaProducer, deadline_s: float) -> None:
    """Stop a producer whatever state it is in, within about `deadline_s`. Never raises.

    An open transaction stays open at the coordinator until it times out or the next owner of the
    transactional id comes; abort before calling this.
    """
    stopping = asyncio.ensure_future(producer.stop())
    await asyncio.wait({stopping}, timeout=deadline_s)
    if not stopping.done():
        log.warning("producer_forced_to_stop")
        await _force(producer, stopping)
    elif stopping.exception() is not None:
        # Stopping ended on the error that had ended its background task; the connections are left.
        await _close_connections(producer)
    _mark_seen(producer)


async def _force(producer: AIOKafkaProducer, stopping: asyncio.Future[None]) -> None:
    """Let every further request fail at once, so that aiokafka's endless retries come to an end."""

    async def refuse(*_: Any, **__: Any) -> NoReturn:  # noqa: ANN401 - whatever aiokafka passes
        raise ProducerClosed

    producer.client.send = refuse
    await asyncio.wait({stopping}, timeout=_GRACE_S)
    sender = producer._sender.sender_task  # noqa: SLF001 - see the module's text
    for task in (sender, stopping):
        if task is not None and not task.done():
            task.cancel()
            await asyncio.wait({task}, timeout=_GRACE_S)
    for task in (sender, stopping):
        if task is not None and task.done() and not task.cancelled():
            task.exception()  # seen, so that the event loop does not report it
    await _close_connections(producer)


async def _close_connections(producer: AIOKafkaProducer) -> None:
    with contextlib.suppress(Exception):
        async with asyncio.timeout(_GRACE_S):
            await producer.client.close()


def _mark_seen(producer: AIOKafkaProducer) -> None:
    """Look at errors nobody awaits any more, or the event loop reports them as lost."""
    _failed(producer._txn_manager._transaction_waiter)  # noqa: SLF001 - see the module's text
    accumulator = producer._message_accumulator  # noqa: SLF001 - see the module's text
    for batch in (*chain(*accumulator._batches.values()), *accumulator._pending_batches):  # noqa: SLF001
        _failed(batch.future)
        _failed(batch._drain_waiter)  # noqa: SLF001 - see the module's text


def look_at(answer: asyncio.Future[Any]) -> None:
    """An answer that nobody awaits after another failed is no news to the event loop."""
    if not answer.cancelled():
        answer.exception()


def _failed(waiter: asyncio.Future[None] | None) -> bool:
    """Whether a future of aiokafka holds an error; looks at it."""
    return (
        waiter is not None
        and waiter.done()
        and not waiter.cancelled()
        and waiter.exception() is not None
    )
