"""Every fault that is injected again and again, in the order of the table."""

from __future__ import annotations

from tests.faults.arena import Fault
from tests.faults.network_faults import NETWORK_FAULTS
from tests.faults.process_faults import PROCESS_FAULTS

FAULTS: tuple[Fault, ...] = (*PROCESS_FAULTS, *NETWORK_FAULTS)
