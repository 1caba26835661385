"""The error tree: what can go wrong outside a record, and what to do about it.

    WeighbridgeError
    ├── InfrastructureError      retryable: pause, back off, try again (G5)
    │   ├── DatabaseUnavailable
    │   │   └── DatabaseTimeout
    │   ├── BrokerUnavailable
    │   └── SchemaStoreUnavailable
    ├── OwnershipLost            the partition is no longer ours: drop its work, assign again
    │   ├── Fenced               another producer took the transactional id
    │   └── ClaimRefused         the cursor row holds another token or another offset
    ├── Stop                     an operator must act: the partition stops and says why
    │   ├── PartitionStop        the same, said by the consumer of one of its partitions
    │   └── StopAll              every partition of the deployment stops
    ├── ConfigurationError       the service cannot start like this; says what to change
    └── InvariantViolation       our own reasoning is broken: the process stops

A record's faults are values (`schemas.verdict.Refused`), never exceptions. Messages name topics,
partitions, offsets, SQLSTATEs, constraints and columns, never a record's values and never a
driver's own text, which may quote them.
"""

from __future__ import annotations

from typing import ClassVar


class WeighbridgeError(Exception):
    """Base of all errors of this project."""

    retryable: ClassVar[bool] = False


class InfrastructureError(WeighbridgeError):
    """Something outside is down or slow; the same call may succeed later."""

    retryable = True


class DatabaseUnavailable(InfrastructureError):
    """PostgreSQL did not answer, refused the session, or ended the transaction."""


class DatabaseTimeout(DatabaseUnavailable):
    """PostgreSQL did not finish within the deadline; a smaller batch may."""


class BrokerUnavailable(InfrastructureError):
    """Kafka did not answer in time or answered with a retriable error."""


class SchemaStoreUnavailable(InfrastructureError):
    """The schema store could not be asked; this says nothing about the schema id."""


class OwnershipLost(WeighbridgeError):
    """This worker's claim on a partition is gone."""


class Fenced(OwnershipLost):
    """Another producer started with this partition's transactional id."""


class ClaimRefused(OwnershipLost):
    """The cursor row holds another token, or does not stand where the batch begins."""


class Stop(WeighbridgeError):
    """The partition must not go on until an operator has acted."""


class PartitionStop(Stop):
    """The log of one partition cannot be read on."""

    def __init__(self, place: tuple[str, int], why: str) -> None:
        super().__init__(f"{place[0]}/{place[1]}: {why}")
        self.place = place
        """Topic and partition."""


class StopAll(Stop):
    """No partition of this deployment may go on until an operator has acted."""


class ConfigurationError(WeighbridgeError):
    """Settings, topics or database are not as they must be; the message says what to change."""


class InvariantViolation(WeighbridgeError):
    """A condition that cannot be false is false. The process must stop."""


def invariant(condition: object, message: str) -> None:
    """Raise `InvariantViolation` unless `condition` holds; unlike `assert`, never compiled out."""
    if not condition:
        raise InvariantViolation(message)
