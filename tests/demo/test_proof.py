"""The proof notices whatever is missing, surplus, repeated, changed or a cent off."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal

import pytest

from schemas.reasons import Reason
from schemas.verdict import Verdict
from streams.demo.made import Truth, dollars
from streams.demo.proof import prove, summarise, total
from streams.demo.reading import Booked, Place, Reject, Seen, Tally, digest_of

TRUTHS: dict[Place, Truth] = {
    (0, 0): Truth(Verdict.COMMITTED, identity="a", run="r1", cents=100_050, receipts=1),
    (0, 1): Truth(Verdict.DUPLICATE, identity="a"),
    (0, 2): Truth(Verdict.QUARANTINED, Reason.TOMBSTONE),
    (1, 0): Truth(Verdict.COMMITTED, identity="b", run="r2", cents=-2_500, receipts=2),
    (1, 1): Truth(Verdict.QUARANTINED, Reason.MALFORMED_JSON),
    (1, 2): Truth(Verdict.COMMITTED, identity="c", run="r1", cents=1, receipts=1),
}


def as_it_should_be() -> Seen:
    """What is found when everything went as the truths say."""
    raw = {place: digest_of(repr(place).encode()) for place in TRUTHS}
    booked = [
        Booked(place, t.identity, t.run, dollars(t.cents))
        for place, t in TRUTHS.items()
        if t.verdict is Verdict.COMMITTED
    ]
    rejects = [
        Reject(place, str(t.reason), raw[place])
        for place, t in TRUTHS.items()
        if t.verdict is Verdict.QUARANTINED
    ]
    return Seen(
        raw=raw,
        events=list(booked),
        reject_events=list(rejects),
        ledger=list(booked),
        ledger_total=total(booked),
        quarantine=list(rejects),
        receipts=4,
        tallies=[Tally(0, 3, 1, 1, 1, 0), Tally(1, 3, 2, 0, 1, 0)],
    )


def failed(seen: Seen, type_name: str = "payroll") -> set[str]:
    return {c.name.partition(".")[2] for c in prove(type_name, seen, TRUTHS) if not c.ok}


@pytest.mark.parametrize("type_name", ["payroll", "dvir"])
def test_everything_holds_when_nothing_is_wrong(type_name: str) -> None:
    """The proof holds for a ledger and topics that are exactly what was intended."""
    seen = as_it_should_be()
    assert failed(seen, type_name) == set()
    summary = summarise(type_name, seen)
    assert (summary.records_in, summary.committed) == (6, 3)
    assert (summary.duplicate, summary.quarantined) == (1, 2)
    assert summary.balanced
    assert summary.reasons == {"malformed_json": 1, "tombstone": 1}


def a_missing_event(seen: Seen) -> None:
    seen.events.pop()


def a_repeated_event(seen: Seen) -> None:
    seen.events.append(seen.events[0])


def an_event_of_another_record(seen: Seen) -> None:
    seen.events[0] = replace(seen.events[0], identity="z")


def a_missing_row(seen: Seen) -> None:
    seen.ledger.pop()


def a_second_row_of_a_key(seen: Seen) -> None:
    seen.ledger.append(replace(seen.ledger[0], place=(0, 1)))


def a_cent_off_in_the_ledger(seen: Seen) -> None:
    seen.ledger[0] = replace(seen.ledger[0], amount=seen.ledger[0].amount + Decimal("0.01"))
    seen.ledger_total += Decimal("0.01")


def a_cent_off_in_an_event(seen: Seen) -> None:
    seen.events[0] = replace(seen.events[0], amount=seen.events[0].amount - Decimal("0.01"))


def a_cent_moved_between_runs(seen: Seen) -> None:
    for entries in (seen.ledger, seen.events):
        entries[0] = replace(entries[0], amount=entries[0].amount + Decimal("0.01"))
        entries[1] = replace(entries[1], amount=entries[1].amount - Decimal("0.01"))


def a_sum_the_database_gets_wrong(seen: Seen) -> None:
    seen.ledger_total += Decimal("0.01")


def a_missing_quarantine_event(seen: Seen) -> None:
    seen.reject_events.pop()


def a_repeated_quarantine_event(seen: Seen) -> None:
    seen.reject_events.append(seen.reject_events[0])


def a_missing_quarantine_row(seen: Seen) -> None:
    seen.quarantine.pop()


def another_reason(seen: Seen) -> None:
    for rejects in (seen.quarantine, seen.reject_events):
        rejects[0] = replace(rejects[0], reason="encoding")


def changed_bytes_of_a_reject(seen: Seen) -> None:
    seen.quarantine[0] = replace(seen.quarantine[0], digest=digest_of(b"other"))


def a_count_that_does_not_balance(seen: Seen) -> None:
    seen.tallies[0] = replace(seen.tallies[0], duplicate=2)


def a_record_nobody_counted(seen: Seen) -> None:
    seen.tallies[1] = replace(seen.tallies[1], records_in=2)


def counts_that_are_off_in_two_partitions(seen: Seen) -> None:
    seen.tallies = [Tally(0, 3, 2, 0, 1, 0), Tally(1, 3, 1, 1, 1, 0)]


def a_record_missing_from_the_topic(seen: Seen) -> None:
    seen.raw.pop((1, 2))


BOOKS = {"each_record_as_intended", "in_is_committed_duplicate_quarantined"}


@pytest.mark.parametrize(
    ("tamper", "noticed"),
    [
        (a_missing_event, {"ledger_rows_are_keys_are_events", "money_to_the_cent"}),
        (a_repeated_event, {"ledger_rows_are_keys_are_events", "no_event_twice"}),
        (an_event_of_another_record, {"ledger_rows_are_keys_are_events"}),
        (a_missing_row, {"ledger_rows_are_keys_are_events", "keys_are_the_sources", *BOOKS}),
        (a_second_row_of_a_key, {"ledger_rows_are_keys_are_events", *BOOKS}),
        (a_cent_off_in_the_ledger, {"money_to_the_cent", "money_of_each_run"}),
        (a_cent_off_in_an_event, {"money_to_the_cent", "money_of_each_run"}),
        (a_cent_moved_between_runs, {"money_of_each_run"}),
        (a_sum_the_database_gets_wrong, {"money_to_the_cent"}),
        (a_missing_quarantine_event, {"quarantine_rows_are_events"}),
        (a_repeated_quarantine_event, {"quarantine_rows_are_events", "no_event_twice"}),
        (a_missing_quarantine_row, {"quarantine_rows_are_events", "reasons_as_intended", *BOOKS}),
        (another_reason, {"reasons_as_intended", "each_record_as_intended"}),
        (changed_bytes_of_a_reject, {"rejects_kept_untouched"}),
        (a_count_that_does_not_balance, {"in_is_committed_duplicate_quarantined"}),
        (a_record_nobody_counted, {"every_record_went_in"}),
        (counts_that_are_off_in_two_partitions, {"in_is_committed_duplicate_quarantined"}),
        (
            a_record_missing_from_the_topic,
            {"every_record_went_in", "in_is_committed_duplicate_quarantined"},
        ),
    ],
)
def test_the_proof_fails(tamper: Callable[[Seen], None], noticed: set[str]) -> None:
    """One thing wrong anywhere is noticed by the checks that look there."""
    seen = as_it_should_be()
    tamper(seen)
    assert noticed <= failed(seen)


def test_a_missing_receipt_is_noticed() -> None:
    """A signature of a committed DVIR without its row fails the proof."""
    seen = as_it_should_be()
    seen.receipts -= 1
    assert failed(seen, "dvir") == {"signature_receipts"}


def test_an_event_without_its_bytes_is_allowed_but_a_row_is_not() -> None:
    """The event of an oversize reject may carry a digest instead; the row keeps every byte."""
    seen = as_it_should_be()
    seen.reject_events[0] = replace(seen.reject_events[0], digest=None)
    assert failed(seen) == set()
    seen.quarantine[0] = replace(seen.quarantine[0], digest=None)
    assert failed(seen) == {"rejects_kept_untouched"}
