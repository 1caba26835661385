"""Faults of the network between workers and servers: cut, slow, requests and answers lost."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable

from tests.connectors.proxy import COMMIT, Api, Matches, Proxy, asks
from tests.faults.arena import HEAL_DEADLINE_S, Arena, Fault

SLOW_S = 0.05, 0.4
AWAY_S = 0.5, 4.0
NEXT_S = 2.0
"""How long to wait for the request that is to be lost before more is published."""

Server = Callable[[Arena], Proxy]
Inject = Callable[[Arena, random.Random], Awaitable[None]]


def postgres(arena: Arena) -> Proxy:
    """The way to PostgreSQL."""
    return arena.postgres


def kafka(arena: Arena) -> Proxy:
    """The way to Kafka."""
    return arena.kafka


def cut(server: Server) -> Inject:
    """Reset all connections."""

    async def inject(arena: Arena, _: random.Random) -> None:
        server(arena).cut()

    return inject


def slow(server: Server) -> Inject:
    """Let every answer wait for a while."""

    async def inject(arena: Arena, chance: random.Random) -> None:
        proxy = server(arena)
        proxy.delay_s = chance.uniform(*SLOW_S)
        await asyncio.sleep(chance.uniform(*AWAY_S))
        proxy.delay_s = 0.0

    return inject


def silent(server: Server) -> Inject:
    """Hold all answers back, with connections open."""

    async def inject(arena: Arena, chance: random.Random) -> None:
        proxy = server(arena)
        proxy.answers.clear()
        await asyncio.sleep(chance.uniform(*AWAY_S))
        proxy.answers.set()

    return inject


def away(server: Server) -> Inject:
    """Reset all connections and refuse new ones for a while."""

    async def inject(arena: Arena, chance: random.Random) -> None:
        proxy = server(arena)
        proxy.refusing = True
        proxy.cut()
        await asyncio.sleep(chance.uniform(*AWAY_S))
        proxy.refusing = False

    return inject


def lose(server: Server, matches: Matches, *, answer: bool) -> Inject:
    """Lose the next such request, or the answer to it, and with it the connection."""

    async def inject(arena: Arena, _: random.Random) -> None:
        proxy = server(arena)
        (proxy.lose_answer if answer else proxy.lose_request)(matches)
        ends_s = time.monotonic() + HEAL_DEADLINE_S
        published_s = time.monotonic()
        while proxy.losing:
            assert time.monotonic() < ends_s, "no such request came by"
            await asyncio.sleep(0.02)
            if time.monotonic() > published_s + NEXT_S:
                await arena.gate.publish(4)
                published_s = time.monotonic()

    return inject


NETWORK_FAULTS = (
    Fault("postgres-cut", "all connections to PostgreSQL reset", cut(postgres), 10, 12),
    Fault("kafka-cut", "all connections to Kafka reset", cut(kafka), 10, 8),
    Fault("postgres-slow", "each answer delayed, for seconds", slow(postgres), 4, 3),
    Fault("kafka-slow", "each answer delayed, for seconds", slow(kafka), 4, 3),
    Fault("postgres-silent", "answers held back 0.5 to 4 s", silent(postgres), 4, 3),
    Fault("kafka-silent", "answers held back 0.5 to 4 s", silent(kafka), 4, 3),
    Fault("postgres-away", "connections refused 0.5 to 4 s", away(postgres), 5, 3),
    Fault("kafka-away", "connections refused 0.5 to 4 s", away(kafka), 5, 3),
    Fault(
        "commit-answer-lost",
        "PostgreSQL's COMMIT done, its answer lost",
        lose(postgres, COMMIT, answer=True),
        10,
        12,
    ),
    Fault(
        "commit-lost",
        "the COMMIT lost on its way to PostgreSQL",
        lose(postgres, COMMIT, answer=False),
        10,
        10,
    ),
    Fault(
        "end-txn-answer-lost",
        "Kafka's EndTxn done, its answer lost",
        lose(kafka, asks(Api.END_TXN), answer=True),
        10,
        10,
    ),
    Fault(
        "end-txn-lost",
        "EndTxn lost on its way to Kafka",
        lose(kafka, asks(Api.END_TXN), answer=False),
        8,
        8,
    ),
    Fault(
        "produce-answer-lost",
        "Produce done, its answer lost",
        lose(kafka, asks(Api.PRODUCE), answer=True),
        8,
        10,
    ),
    Fault(
        "offset-commit-answer-lost",
        "TxnOffsetCommit done, its answer lost",
        lose(kafka, asks(Api.TXN_OFFSET_COMMIT), answer=True),
        8,
        8,
    ),
    Fault(
        "heartbeat-lost",
        "a Heartbeat of the group lost",
        lose(kafka, asks(Api.HEARTBEAT), answer=False),
        4,
        6,
    ),
)
