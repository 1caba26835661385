"""The proof: what was found outside against what was known before, value by value. Pure.

Every check states what it expects and what it found, so that a failing one explains itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal

from schemas.verdict import Verdict
from streams.demo.made import Expected, Truth, dollars
from streams.demo.reading import Booked, Place, Seen

Truths = Mapping[Place, Truth]
"""What must become of the record at each place of one raw topic."""


@dataclass(frozen=True, slots=True)
class Check:
    """One equality that must hold."""

    name: str
    what: str
    """The same for people."""
    expected: str
    found: str
    ok: bool


@dataclass(frozen=True, slots=True)
class Summary:
    """What became of one record type's records, counted from topics and tables alone."""

    type_name: str
    records_in: int
    committed: int
    duplicate: int
    quarantined: int
    reasons: Mapping[str, int]
    balanced: bool


def prove(type_name: str, seen: Seen, truths: Truths) -> list[Check]:
    """All checks of one record type."""
    expected = Expected()
    for truth in truths.values():
        expected.add(truth)
    checks = [
        _records_in(seen, expected),
        _balance(seen, expected),
        _each_record(seen, truths),
        _ledger_is_events(seen),
        _keys(seen, expected),
        _no_repeats(seen),
        _quarantine_is_events(seen),
        _reasons(seen, expected),
        _bytes_untouched(seen),
    ]
    if type_name == "payroll":
        checks += [_money(seen, expected), _money_per_run(seen, expected)]
    else:
        checks.append(_receipts(seen, expected))
    return [replace(check, name=f"{type_name}.{check.name}") for check in checks]


def summarise(type_name: str, seen: Seen) -> Summary:
    """Counts of one record type, and whether they balance in every partition."""
    records_in, committed, quarantined = len(seen.raw), len(seen.ledger), len(seen.quarantine)
    return Summary(
        type_name,
        records_in,
        committed,
        sum(tally.duplicate for tally in seen.tallies),
        quarantined,
        dict(sorted(Counter(reject.reason for reject in seen.quarantine).items())),
        _balance(seen, None).ok,
    )


def _records_in(seen: Seen, expected: Expected) -> Check:
    """What was published is in the raw topic, and the gate counted all of it."""
    counted = sum(tally.records_in for tally in seen.tallies)
    return Check(
        "every_record_went_in",
        "every record went in",
        f"{expected.records} published",
        f"{len(seen.raw)} in the topic, {counted} counted by the gate",
        expected.records == len(seen.raw) == counted,
    )


def _balance(seen: Seen, expected: Expected | None) -> Check:
    """G1, per partition, with every number taken from another place than its neighbour."""
    raw = Counter(partition for partition, _ in seen.raw)
    ledger = Counter(booked.place[0] for booked in seen.ledger)
    quarantine = Counter(reject.place[0] for reject in seen.quarantine)
    ok = {tally.partition for tally in seen.tallies} >= raw.keys()
    for tally in seen.tallies:
        place = tally.partition
        ok &= tally.held == 0 and tally.records_in == raw[place]
        ok &= (tally.committed, tally.quarantined) == (ledger[place], quarantine[place])
        ok &= raw[place] == ledger[place] + tally.duplicate + quarantine[place]
    duplicate = sum(tally.duplicate for tally in seen.tallies)
    found = f"{len(seen.raw)} = {len(seen.ledger)} + {duplicate} + {len(seen.quarantine)}"
    wanted = found
    if expected is not None:
        wanted = (
            f"{expected.records} = {expected.committed} + {expected.duplicate}"
            f" + {expected.quarantined}"
        )
    return Check(
        "in_is_committed_duplicate_quarantined",
        "in = committed + duplicate + quarantined",
        wanted,
        found,
        ok and wanted == found,
    )


def _each_record(seen: Seen, truths: Truths) -> Check:
    """Every single record got the verdict it was made for."""
    became: dict[Place, str] = dict.fromkeys(seen.raw, str(Verdict.DUPLICATE.name))
    became |= {booked.place: Verdict.COMMITTED.name for booked in seen.ledger}
    became |= {reject.place: reject.reason for reject in seen.quarantine}
    wanted = {
        place: str(truth.reason) if truth.reason is not None else truth.verdict.name
        for place, truth in truths.items()
    }
    wrong = sorted(p for p in wanted.keys() | became.keys() if wanted.get(p) != became.get(p))
    examples = ", ".join(
        f"{partition}/{offset}: {became.get((partition, offset))}"
        f" instead of {wanted.get((partition, offset))}"
        for partition, offset in wrong[:3]
    )
    found = f"{len(wrong)} otherwise" + (f" ({examples})" if wrong else "")
    return Check(
        "each_record_as_intended",
        "each record got the verdict it was made for",
        "0 otherwise",
        found,
        not wrong,
    )


def _ledger_is_events(seen: Seen) -> Check:
    """Ledger rows = distinct keys = committed events: the same ones, not only as many."""
    keys = {booked.identity for booked in seen.ledger}
    same = Counter(seen.ledger) == Counter(seen.events)
    counts = len(seen.ledger), len(keys), len(seen.events)
    found = f"{counts[0]} rows, {counts[1]} keys, {counts[2]} events"
    if len(set(counts)) == 1 and not same:
        found += ", but not the same ones"
    ok = same and len(set(counts)) == 1
    return Check(
        "ledger_rows_are_keys_are_events",
        "ledger rows = distinct keys = committed events",
        "equal, one to one",
        found,
        ok,
    )


def _keys(seen: Seen, expected: Expected) -> Check:
    """The keys in the ledger are those the source's rows have."""
    keys = {booked.identity for booked in seen.ledger}
    missing, surplus = len(expected.identities - keys), len(keys - expected.identities)
    return Check(
        "keys_are_the_sources",
        "keys in the ledger = keys of the source rows",
        f"{len(expected.identities)} keys",
        f"{len(keys)} keys, {missing} missing, {surplus} unknown",
        not missing and not surplus,
    )


def _no_repeats(seen: Seen) -> Check:
    """No event twice, and no record both committed and quarantined (G3)."""
    places = [booked.place for booked in seen.events]
    places += [reject.place for reject in seen.reject_events]
    repeats = len(places) - len(set(places))
    return Check(
        "no_event_twice", "no event twice", "0 repeats", f"{repeats} repeats", repeats == 0
    )


def _quarantine_is_events(seen: Seen) -> Check:
    """Quarantine rows = quarantine events, place by place with the same reason."""
    rows = Counter((reject.place, reject.reason) for reject in seen.quarantine)
    events = Counter((reject.place, reject.reason) for reject in seen.reject_events)
    found = f"{len(seen.quarantine)} rows, {len(seen.reject_events)} events"
    return Check(
        "quarantine_rows_are_events",
        "quarantine rows = quarantine events",
        "equal, one to one",
        found,
        rows == events,
    )


def _reasons(seen: Seen, expected: Expected) -> Check:
    """As many rejects per reason as there were faults of that kind."""
    found = Counter(reject.reason for reject in seen.quarantine)
    wanted = Counter(expected.reasons)
    apart = {r for r in found.keys() | wanted.keys() if found[r] != wanted[r]}
    return Check(
        "reasons_as_intended",
        "rejects per reason = faults put in",
        _listed(wanted, apart) if apart else f"{len(wanted)} reasons, {wanted.total()} rejects",
        _listed(found, apart) if apart else f"{len(found)} reasons, {found.total()} rejects",
        not apart,
    )


def _listed(counts: Counter[str], names: Iterable[str]) -> str:
    return ", ".join(f"{name} {counts[name]}" for name in sorted(names))


def _bytes_untouched(seen: Seen) -> Check:
    """A reject is kept byte for byte, in its row always and in its event unless it is too large."""
    rejects = [*seen.quarantine, *seen.reject_events]
    changed = sum(r.digest is not None and r.digest != seen.raw.get(r.place) for r in rejects)
    changed += sum(r.digest is None for r in seen.quarantine)
    return Check(
        "rejects_kept_untouched",
        "rejects kept byte for byte",
        "0 changed",
        f"{changed} changed",
        changed == 0,
    )


def _money(seen: Seen, expected: Expected) -> Check:
    """Money in the ledger = money of the accepted source rows = money in the events, exactly."""
    wanted, events = expected.money, total(seen.events)
    return Check(
        "money_to_the_cent",
        "money in the ledger = money of the source rows",
        f"{wanted:,}",
        f"{seen.ledger_total:,} in the ledger, {events:,} in the events",
        wanted == seen.ledger_total == events == total(seen.ledger),
    )


def _money_per_run(seen: Seen, expected: Expected) -> Check:
    """The same, run by run: errors that cancel each other out show here."""
    wanted = {run: dollars(cents) for run, cents in expected.run_cents.items()}
    ledger, events = per_run(seen.ledger), per_run(seen.events)
    apart = [
        run
        for run in wanted.keys() | ledger.keys() | events.keys()
        if not wanted.get(run) == ledger.get(run) == events.get(run)
    ]
    found = f"{len(ledger)} runs" + (f", {len(apart)} off" if apart else "")
    return Check(
        "money_of_each_run", "the same, run by run", f"{len(wanted)} runs", found, not apart
    )


def _receipts(seen: Seen, expected: Expected) -> Check:
    """Each signature of a committed DVIR has its row."""
    return Check(
        "signature_receipts",
        "a row for every signature",
        f"{expected.receipts} rows",
        f"{seen.receipts} rows",
        seen.receipts == expected.receipts,
    )


def total(booked: Iterable[Booked]) -> Decimal:
    """Signed sum."""
    return sum((entry.amount for entry in booked), Decimal("0.00"))


def per_run(booked: Iterable[Booked]) -> dict[str, Decimal]:
    """Signed sum per source run."""
    sums: dict[str, Decimal] = {}
    for entry in booked:
        sums[entry.run] = sums.get(entry.run, Decimal("0.00")) + entry.amount
    return sums
