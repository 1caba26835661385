"""The gate of the fault tests, here without harm to the worker."""

from __future__ import annotations

from tests.faults.conftest import gate

__all__ = ["gate"]
