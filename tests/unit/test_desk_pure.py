"""What is shown of a reject, and times as people write them."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.postgres.rejects import Listed
from schemas.envelope import Position
from schemas.reasons import Reason
from streams import quarantine as desk
from streams.cli.quarantine_text import printable
from streams.dismiss import sift

NOW = datetime(2026, 12, 1, 12, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-11-30", datetime(2026, 11, 30, tzinfo=UTC)),
        ("2026-11-30T06:30:00Z", datetime(2026, 11, 30, 6, 30, tzinfo=UTC)),
        ("2026-11-30T06:30:00+02:00", datetime(2026, 11, 30, 4, 30, tzinfo=UTC)),
        ("90m", datetime(2026, 12, 1, 10, 30, tzinfo=UTC)),
        ("36h", datetime(2026, 11, 30, 0, 0, tzinfo=UTC)),
        ("7d", datetime(2026, 11, 24, 12, 0, tzinfo=UTC)),
    ],
)
def test_a_moment_is_absolute_or_so_long_ago(text: str, expected: datetime) -> None:
    """A date is its first moment in UTC."""
    assert desk.instant(text, NOW) == expected


@pytest.mark.parametrize("text", ["", "yesterday", "2026-11-30T06:30:00", "h", "-1h", "999999999h"])
def test_another_moment_is_refused(text: str) -> None:
    """A time without an offset means several moments."""
    with pytest.raises(ValueError, match="an offset"):
        desk.instant(text, NOW)


def test_decoded_values_are_shown_by_their_own_text() -> None:
    """Nothing is rounded, and nothing keeps JSON from being written."""
    found = desk._plain(
        {
            "a": Decimal("10.10"),
            "b": date(2026, 12, 1),
            "c": b"\x00\xff",
            "d": [None, True, 7, "x"],
            "e": 10**5000,
        }
    )
    assert found == {
        "a": "10.10",
        "b": "2026-12-01",
        "c": "00ff",
        "d": [None, True, 7, "x"],
        "e": f"a whole number of {(10**5000).bit_length()} bits",
    }


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, "none"),
        (b"", "empty"),
        (b' {"a": 1}', "json"),
        (b"[1]", "neither JSON object nor Avro"),
        (b"\x00\x00\x00\x00\x07x", "avro, confluent 7"),
        (b"\x00\x00", "avro, cut short"),
        (b"\xc3\x01" + bytes(8), "avro, single_object 0000000000000000"),
    ],
)
def test_an_encoding_is_told_from_the_first_bytes(value: bytes | None, expected: str) -> None:
    """Of bytes that cannot be decoded no more is said."""
    assert desk._encoding(value) == expected


@given(st.text())
def test_names_do_nothing_to_a_terminal(text: str) -> None:
    """Control characters of a record never reach it."""
    assert printable(text).isprintable()


def test_a_critical_inspection_is_dismissed_by_its_id_alone() -> None:
    """In bulk it is left alone and counted; what is settled already is no news."""

    def one(**changes: bool) -> Listed:
        values = {"safety_critical": False, "resubmitted": False, "dismissed": False, **changes}
        critical, again, gone = values.values()
        at = Position("dvir.raw", 1, 0, 1)
        return Listed(at, "dvir", Reason.UNCERTIFIED, "[]", b"", 1, critical, NOW, 0, again, gone)

    meant = [one(), one(safety_critical=True), one(resubmitted=True), one(dismissed=True)]
    chosen, summary = sift(meant, by_id=False)
    assert chosen == meant[:1]
    counts = (summary.dismissed, summary.already, summary.resubmitted, summary.safety_critical)
    assert counts == (1, 1, 1, 1)
    assert not summary.complete
    chosen, summary = sift(meant[:2], by_id=True)
    assert (chosen, summary.complete) == (meant[:2], True)
