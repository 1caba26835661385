"""What is added up over records of a type, exactly: whole numbers of the smallest unit. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal

from schemas.exact import decimal_of


@dataclass(frozen=True, slots=True)
class Total:
    """One amount that is added up."""

    field: str
    precision: int
    """Digits of one amount, `scale` of them after the point."""
    scale: int
    per_currency: bool = False
    required: bool = False
    """Whether a record without it leaves the sum in doubt."""


@dataclass(frozen=True, slots=True)
class Totals:
    """What a record type adds up, and how its records count."""

    of: tuple[Total, ...]
    kind_field: str
    """The field that says whether a record counts positive or negative."""
    kind_default: str
    signs: Mapping[str, int]
    """Kind to 1 or -1; amounts are stated as magnitudes."""
    currency_field: str
    currency_default: str
    currencies: frozenset[str]
    """Others are not readable: whatever a publisher wrote there must not become a sum's name."""


Reader = Callable[[Total, object], int]
"""An amount in the smallest unit. Raises `ValueError` or `TypeError` for what is no amount."""


def unscaled_amount(_: Total, value: object) -> int:
    """An amount as Avro writes it: the bytes of a whole number."""
    if not isinstance(value, bytes):
        message = "an amount as bytes"
        raise TypeError(message)
    return int.from_bytes(value, "big", signed=True)


def stated_amount(total: Total, value: object) -> int:
    """An amount as a publisher states it, by the grammar of contracts."""
    exact = decimal_of(value, total.precision, total.scale)
    if exact < 0:
        message = "a magnitude"
        raise ValueError(message)
    return int(exact.scaleb(total.scale))


class Sums:
    """Sums over records. One that cannot be read in full is counted, and adds nothing."""

    def __init__(self, totals: Totals, reader: Reader) -> None:
        self._totals = totals
        self._reader = reader
        self._sums: Counter[tuple[str, str]] = Counter()
        self.unreadable = 0
        """Records with an amount, kind or currency that could not be read."""

    def add(self, members: Mapping[str, object] | None) -> None:
        """Add one record's amounts; None for a record that does not decode."""
        try:
            found = None if members is None else self._read(members)
        except (ValueError, TypeError):  # a binary float is a TypeError
            found = None
        if found is None:
            self.unreadable += 1
        else:
            for name, amount in found:
                self._sums[name] += amount

    def _read(self, members: Mapping[str, object]) -> list[tuple[tuple[str, str], int]] | None:
        totals = self._totals
        kind = members.get(totals.kind_field) or totals.kind_default
        currency = members.get(totals.currency_field) or totals.currency_default
        sign = totals.signs.get(kind) if isinstance(kind, str) else None
        if sign is None or not isinstance(currency, str) or currency not in totals.currencies:
            return None
        found = []
        for total in totals.of:
            value = members.get(total.field)
            if value is None and total.required:
                return None
            if value is not None:
                name = total.field, currency if total.per_currency else ""
                found.append((name, sign * self._reader(total, value)))
        return found

    def as_dict(self) -> dict[str, object]:
        """Field to its sum as text in full scale, or to such sums by currency."""
        shown: dict[str, object] = {}
        for total in self._totals.of:
            by_currency = {
                currency: str(Decimal(number).scaleb(-total.scale))
                for (field, currency), number in sorted(self._sums.items())
                if field == total.field
            }
            zero = str(Decimal(0).scaleb(-total.scale))
            shown[total.field] = by_currency if total.per_currency else by_currency.get("", zero)
        return shown
