"""aiokafka's errors in terms of `connectors.errors`.

Messages carry the name of the driver's error and nothing of its text, which may quote a record.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiokafka import errors as kafka

from connectors.errors import BrokerUnavailable, ConfigurationError, Fenced, WeighbridgeError

FENCED = (
    kafka.ProducerFenced,
    kafka.InvalidProducerEpoch,
    kafka.InvalidProducerIdMapping,  # the transactional id has expired
    kafka.InvalidTxnState,  # the coordinator ended our transaction, for instance on its timeout
)
NOT_ALLOWED = (
    kafka.TopicAuthorizationFailedError,
    kafka.GroupAuthorizationFailedError,
    kafka.TransactionalIdAuthorizationFailed,
    kafka.ClusterAuthorizationFailedError,
    kafka.AuthenticationFailedError,
    kafka.AuthenticationMethodNotSupported,
    kafka.SaslAuthenticationFailed,
    kafka.UnsupportedSaslMechanismError,
)
NOT_POSSIBLE = (
    kafka.InvalidTransactionTimeout,
    kafka.InvalidSessionTimeoutError,
    kafka.InvalidGroupIdError,
    kafka.IncompatibleBrokerVersion,
    kafka.UnsupportedVersionError,
)
_ADVICE = {
    kafka.InvalidTransactionTimeout: "transaction_timeout_ms is above the brokers' "
    "transaction.max.timeout.ms",
    kafka.InvalidSessionTimeoutError: "session_timeout_ms is outside the brokers' "
    "group.min.session.timeout.ms and group.max.session.timeout.ms",
    kafka.IncompatibleBrokerVersion: "Apache Kafka 4.0 or newer is needed",
    kafka.UnsupportedVersionError: "Apache Kafka 4.0 or newer is needed",
}


def translated(what: str, error: BaseException) -> WeighbridgeError:
    """An error of aiokafka as one of ours. `what` says what was being done, and to what."""
    cause = _deepest(error)
    name = type(cause).__name__
    if isinstance(cause, FENCED):
        return Fenced(f"{what}: {name}, another producer has taken over or the transaction expired")
    if isinstance(cause, NOT_ALLOWED):
        return ConfigurationError(f"{what}: {name}. Check credentials and ACLs of this principal")
    if isinstance(cause, NOT_POSSIBLE):
        advice = _ADVICE.get(type(cause), "check the settings")
        return ConfigurationError(f"{what}: {name}; {advice}")
    return BrokerUnavailable(f"Kafka: {what}: {name}")


def _deepest(error: BaseException) -> BaseException:
    """What aiokafka wraps in a bare KafkaError when it ends a background task of its own."""
    while type(error) is kafka.KafkaError and error.__cause__ is not None:
        error = error.__cause__
    return error


@asynccontextmanager
async def bounded(
    what: str, deadline_s: float, passing: tuple[type[Exception], ...] = ()
) -> AsyncIterator[None]:
    """Run calls to the broker within a deadline, their errors as ours; those in `passing` pass.

    Raises `BrokerUnavailable`, `Fenced`, `ConfigurationError`. aiokafka itself retries without end
    while a broker is away.
    """
    try:
        async with asyncio.timeout(deadline_s):
            yield
    except TimeoutError:
        message = f"Kafka: {what}: not done within {deadline_s:g} s"
        raise BrokerUnavailable(message) from None
    except passing:
        raise
    except (kafka.KafkaError, OSError) as error:
        raise translated(what, error) from None
