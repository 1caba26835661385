"""A gate for each fault test."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.faults.gate import Gate
from tests.servers import Database, Services


@pytest.fixture
async def gate(
    services: Services, database: Database, topic_prefix: str, tmp_path: Path
) -> AsyncIterator[Gate]:
    """Topics and database, ready; workers are ended afterwards."""
    gate = Gate(services, database, topic_prefix, tmp_path)
    await gate.prepare()
    try:
        yield gate
    finally:
        await gate.finish()
