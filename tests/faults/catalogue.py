"""Every fault: those injected again and again, in the order of the table, and the scripted ones."""

from __future__ import annotations

from tests.faults.arena import Fault
from tests.faults.network_faults import NETWORK_FAULTS
from tests.faults.process_faults import PROCESS_FAULTS
from tests.faults.server_faults import SERVER_FAULTS

FAULTS: tuple[Fault, ...] = (*PROCESS_FAULTS, *NETWORK_FAULTS, *SERVER_FAULTS)

SCRIPTS = (
    "tests/faults/test_crashes.py",
    "tests/faults/test_stops.py",
    "tests/faults/test_adoption.py",
    "tests/faults/test_gaps.py",
    "tests/faults/test_held_positions.py",
    "tests/faults/test_stalls.py",
    "tests/faults/test_pauses.py",
    "tests/faults/test_changes.py",
    "tests/integration/test_outages.py",
    "tests/integration/test_heal.py",
    "tests/connectors/test_publish_faults.py",
)
"""Tests that act out one story each."""
