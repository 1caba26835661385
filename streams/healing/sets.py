"""The decision sets that lost verdicts name: stored still, shipped, or supplied by the operator."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from connectors.errors import ConfigurationError, Stop
from connectors.postgres.healing import HealTransaction
from schemas.decision_set import CONTRACT_VERSION, DecisionSet
from schemas.envelope import Position

FILE_BYTES_MAX = 1_000_000


class DecisionSets:
    """Finds sets by their digest and stores again those that the database has lost."""

    def __init__(self, tx: HealTransaction, supplied: Iterable[DecisionSet]) -> None:
        self._tx = tx
        self._supplied = {one.digest: one for one in (DecisionSet(), *supplied)}
        self._known: dict[bytes, DecisionSet] = {}
        self.stored_again: list[str] = []
        """Digests, in hex, of those that were not in the database."""

    @property
    def known(self) -> Mapping[bytes, DecisionSet]:
        """Those found so far."""
        return self._known

    async def offer(self, digest: bytes) -> None:
        """Find a set that a record may have been decided under; none is no fault."""
        try:
            found = await self._tx.decision_set(digest)
        except ConfigurationError:
            return
        if found is not None:
            self._known[digest] = found

    async def require(self, digest: bytes, position: Position) -> None:
        """Find the set that the verdict on `position` names.

        Raises `Stop` when it is nowhere, `ConfigurationError` when this version cannot decide by
        it.
        """
        if digest in self._known:
            return
        found = await self._tx.decision_set(digest)
        if found is None:
            found = self._supplied.get(digest)
            if found is None:
                message = (
                    f"{position}: decided under decision set {digest.hex()}, which this database "
                    "does not hold. Give its content with --decision-set FILE: the JSON that stood "
                    "in column `content` of table `decision_set`"
                )
                raise Stop(message)
            await self._tx.store_decision_set(found)
            self.stored_again.append(digest.hex())
        self._known[digest] = found


def read_decision_set(path: Path) -> DecisionSet:
    """A set from a file. Raises `ConfigurationError` saying what is wrong with it."""
    try:
        with path.open("rb") as file:
            text = file.read(FILE_BYTES_MAX + 1).decode("utf-8")
        found = DecisionSet.from_json(text) if len(text) <= FILE_BYTES_MAX else None
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        found = None
    if found is None:
        message = f"{path} holds no decision set of this version as JSON"
        raise ConfigurationError(message)
    if found.contract_version != CONTRACT_VERSION:
        message = (
            f"{path} is of contract version {found.contract_version}, this version decides by "
            f"{CONTRACT_VERSION}; heal with the version that activated it"
        )
        raise ConfigurationError(message)
    return found
