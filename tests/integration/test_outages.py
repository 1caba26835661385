"""Servers that are away for some seconds under load: nothing is quarantined, everything heals (G5).

A pass does not prove that an outage of any length at any moment is survived; the simulated cuts in
`tests/protocol` look for moments, this for what real servers and clients do.
"""

from __future__ import annotations

import asyncio

import pytest

from tests.faults.gate import Gate
from tests.integration.stream import query, until_ready

AWAY_S = 4.0


@pytest.mark.slow
@pytest.mark.timeout(150)
@pytest.mark.parametrize("name", ["postgres", "kafka"])
async def test_a_server_away_under_load(gate: Gate, name: str) -> None:
    """Readiness turns red with the cause and green again, the worker stays up, each record has its
    one verdict and no record was turned away for what was not its fault."""
    gate.batch_records = 20
    await gate.publish(700)
    worker = await gate.worker()
    await worker.says("event=batch ")
    server = gate.services.postgres if name == "postgres" else gate.services.kafka
    await asyncio.to_thread(server.stop)
    try:
        causes = await until_ready(worker, ready=False)
        await asyncio.sleep(AWAY_S)
    finally:
        await asyncio.to_thread(server.start)
    assert name in " ".join(causes).lower()
    await gate.publish(200)
    await gate.drain()
    await until_ready(worker, ready=True)
    assert worker.running
    reasons = {row["reason"] for row in await query(gate, "SELECT reason FROM quarantine")}
    assert not reasons & {"persist_failed", "processing_error"}
    await gate.prove()
    assert await worker.stop() == 0
