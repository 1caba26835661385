"""A gate for the cases that go through the real stream."""

from tests.faults.conftest import gate

__all__ = ["gate"]
