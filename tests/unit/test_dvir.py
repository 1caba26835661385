"""The DVIR contract's own rules: clock, VIN, danger, certification, attachments."""

from __future__ import annotations

import base64
import copy
import hashlib
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.decision_set import DecisionSet, Limits
from schemas.dvir import RECORD_TYPE
from schemas.dvir.checks import looks_critical
from schemas.dvir.vin import check_digit, check_digit_fails, is_placeholder
from schemas.envelope import Headers, Record, Source
from schemas.reasons import Flag, Reason
from schemas.verdict import Accepted, Decided, Refused
from streams.decide import decide

SOURCE = Source("dvir.raw", 0)
AT = datetime(2026, 11, 3, 11, 42, 9, tzinfo=UTC)
VIN = "1M8GDM9AXKP042788"
REPORT: dict[str, Any] = {
    "idempotency_key": "eld/acme/R1/1",
    "inspected_at": AT.isoformat(),
    "inspection_type": "post_trip",
    "driver_id": "D-7",
    "units": [{"role": "power_unit", "vin": VIN}],
    "condition": "safe",
    "certification": {"by": "D-7", "at": AT.isoformat(), "method": "drawn"},
}
LIMITS = Limits()


def _ms(moment: datetime) -> int:
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)


def _decide(members: Any, timestamp: int = -1, headers: Headers = ()) -> Decided:
    record = Record(4, json.dumps(members).encode(), timestamp, headers=headers)
    return decide(record, RECORD_TYPE, SOURCE, DecisionSet(), {})


def _report(**changes: Any) -> dict[str, Any]:
    return {**copy.deepcopy(REPORT), **changes}


def _flags(found: Decided) -> list[str]:
    assert isinstance(found, Accepted), found
    flags = found.row[RECORD_TYPE.ledger_columns.index("flags")]
    assert isinstance(flags, list)
    return flags


# --- VIN ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("vin", [VIN, "1" * 17, "5GZCZ43D13S812715", "11111111111111111"])
def test_check_digit_proof_values(vin: str) -> None:
    """Published proof values carry the check digit that 49 CFR 565.15(c) calls for."""
    assert check_digit(vin) == vin[8]
    assert not check_digit_fails(vin)


@given(st.integers(0, 16), st.sampled_from("0123456789ABCDEFGHJKLMNPRSTUVWXYZ"))
def test_one_wrong_character_mostly_shows(place: int, character: str) -> None:
    """A changed character fails exactly when it changes the sum, and never raises."""
    changed = VIN[:place] + character + VIN[place + 1 :]
    assert check_digit_fails(changed) == (
        changed[0] in "12345" and changed[9] not in "UZ0" and check_digit(changed) != changed[8]
    )


def test_check_digit_binds_only_where_it_is_law() -> None:
    """European makers owe no check digit, nor do vehicles without a model-year code."""
    wrong = VIN[:8] + "1" + VIN[9:]
    assert check_digit_fails(wrong)
    assert not check_digit_fails("W" + wrong[1:])
    assert not check_digit_fails(wrong[:9] + "0" + wrong[10:])


@pytest.mark.parametrize(
    ("vin", "placeholder"), [("1" * 17, True), ("12345678901234567", True), (VIN, False)]
)
def test_placeholders(vin: str, *, placeholder: bool) -> None:
    """Known fillers are seen even when their check digit is right."""
    assert is_placeholder(vin) is placeholder


@pytest.mark.parametrize("vin", [VIN.lower(), VIN[:-1], VIN + "0", "1M8GDM9AXKPO42788", f"{VIN}\n"])
def test_vin_form_is_a_rule(vin: str) -> None:
    """Length and alphabet are refused, not repaired: an O is not made a 0."""
    found = _decide(_report(units=[{"role": "power_unit", "vin": vin}]))
    assert isinstance(found, Refused)
    assert found.reason is Reason.SCHEMA_VIOLATION
    assert found.violations[0].path == "units[0].vin"


def test_vin_faults_are_flags() -> None:
    """A wrong check digit commits with a flag."""
    wrong = VIN[:8] + "1" + VIN[9:]
    found = _decide(_report(units=[{"role": "power_unit", "vin": wrong}]))
    assert _flags(found) == [Flag.VIN_CHECK_DIGIT]


# --- Clock ----------------------------------------------------------------------------------------

_MS = timedelta(milliseconds=1)


@pytest.mark.parametrize(
    ("ahead", "verdict"),
    [
        (timedelta(0), "fine"),
        (timedelta(seconds=LIMITS.clock_ahead_flag_s), "fine"),
        (timedelta(seconds=LIMITS.clock_ahead_flag_s) + _MS, "flag"),
        (timedelta(seconds=LIMITS.clock_ahead_max_s), "flag"),
        (timedelta(seconds=LIMITS.clock_ahead_max_s) + _MS, "refused"),
        (-timedelta(seconds=LIMITS.clock_behind_max_s), "fine"),
        (-timedelta(seconds=LIMITS.clock_behind_max_s) - _MS, "refused"),
    ],
)
def test_clock_edges(ahead: timedelta, verdict: str) -> None:
    """Each limit is still allowed exactly at it, and not one millisecond beyond."""
    found = _decide(REPORT, _ms(AT - ahead))
    if verdict == "refused":
        assert isinstance(found, Refused)
        assert (found.reason, found.violations[0].path) == (Reason.CLOCK_SKEW, "inspected_at")
        assert found.key is not None
    else:
        assert _flags(found) == ([Flag.CLOCK_AHEAD] if verdict == "flag" else [])


def test_one_microsecond_beyond_the_limit() -> None:
    """Microseconds are kept, so they count."""
    at = AT + timedelta(microseconds=1)
    limit = _ms(AT - timedelta(seconds=LIMITS.clock_ahead_max_s))
    assert isinstance(_decide(_report(inspected_at=at.isoformat()), limit), Refused)


def test_no_timestamp_switches_the_clock_off() -> None:
    """A record without Kafka timestamp is not measured against one."""
    assert _flags(_decide(_report(inspected_at="1990-01-01T00:00:00Z"))) == []


def test_observed_at_stands_in_for_the_kafka_timestamp() -> None:
    """A back-filled record is measured by when it was first observed, and only there."""
    headers = (("wb-observed-at", AT.isoformat().encode()),)
    late = _ms(AT + timedelta(days=800))
    assert isinstance(_decide(REPORT, late), Refused)
    found = _decide(REPORT, late, headers)
    assert isinstance(found, Accepted)
    assert found.row[RECORD_TYPE.ledger_columns.index("kafka_timestamp")] == late


@pytest.mark.parametrize("timestamp", [253_402_300_800_000, 2**63 - 1])
def test_kafka_timestamps_beyond_any_calendar(timestamp: int) -> None:
    """They are far from any time in a record, which is clock skew and no failure of ours; behind a
    header that stands in for them they are no time of receipt."""
    found = _decide(REPORT, timestamp)
    assert isinstance(found, Refused)
    assert found.reason is Reason.CLOCK_SKEW
    found = _decide(REPORT, timestamp, (("wb-observed-at", AT.isoformat().encode()),))
    assert isinstance(found, Accepted)
    assert found.row[RECORD_TYPE.ledger_columns.index("received_at")] is None


# --- Danger ---------------------------------------------------------------------------------------

_junk = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["severity", "outcome", "defects", "x"]), inner, max_size=3
        )
    ),
    max_leaves=12,
)


@given(_junk)
def test_danger_is_sought_in_any_junk(junk: object) -> None:
    """Whatever stands where defects should be, looking for danger never raises."""
    assert looks_critical({"defects": junk}) in {True, False}
    assert looks_critical({"defects": [junk, {"severity": "major"}]}) is True


@pytest.mark.parametrize(
    ("defect", "critical"),
    [
        ({"severity": "major"}, True),
        ({"severity": "out_of_service", "outcome": "open"}, True),
        ({"severity": "major", "outcome": "waiting for parts"}, True),
        ({"severity": "major", "outcome": None}, True),
        ({"severity": "major", "outcome": 7}, True),
        ({"severity": "major", "outcome": ["repaired"]}, True),
        ({"severity": "MAJOR"}, True),
        ({"severity": "Out of Service", "outcome": "Open"}, True),
        ({"severity": " out-of-service"}, True),
        ({"severity": "major", "outcome": "No repair needed"}, False),
        ({"severity": "major", "outcome": "repaired"}, False),
        ({"severity": "major", "outcome": "no_repair_needed"}, False),
        ({"severity": "minor", "outcome": "open"}, False),
        ({"severity": ["major"]}, False),
        ({}, False),
        ("major", False),
    ],
)
def test_what_looks_critical(defect: object, *, critical: bool) -> None:
    """A grave defect is open unless it says in so many words that it is closed."""
    assert looks_critical({"defects": [defect]}) is critical


def test_a_refused_record_still_tells_of_danger() -> None:
    """A report that breaks its contract elsewhere is marked when it holds an open grave defect."""
    grave = [{"part": "steering", "severity": "out_of_service"}]
    found = _decide(_report(defects=grave, certification=None))
    assert isinstance(found, Refused)
    assert (found.reason, found.safety_critical) == (Reason.UNCERTIFIED, True)
    found = _decide(_report(defects=grave, idempotency_key=" "))
    assert isinstance(found, Refused)
    assert (found.reason, found.safety_critical) == (Reason.MISSING_KEY, True)


# --- Certification and attachments ----------------------------------------------------------------


@pytest.mark.parametrize("event", ["report", "repair_certification", "driver_review"])
def test_each_event_needs_its_certification(event: str) -> None:
    """Report, certification of repairs and review: none is taken unsigned."""
    found = _decide(_report(event=event, certification=None))
    assert isinstance(found, Refused)
    assert found.reason is Reason.UNCERTIFIED


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({}, None),
        ({"bytes": 6}, "as many bytes as said"),
        ({"sha256": "0" * 64}, "the content its sha256 says"),
        ({"inline": "aGVsbG8"}, "base64 (RFC 4648)"),
        ({"inline": "aGVs bG8="}, "base64 (RFC 4648)"),
        ({"inline": "ä"}, "base64 (RFC 4648)"),
    ],
)
def test_inline_attachments(changes: dict[str, object], rule: str | None) -> None:
    """Inline content must be what its digest and length say, in strict base64."""
    attachment = {
        "sha256": hashlib.sha256(b"hello").hexdigest(),
        "media_type": "text/plain",
        "bytes": 5,
        "inline": base64.b64encode(b"hello").decode(),
        **changes,
    }
    found = _decide(_report(attachments=[attachment]))
    if rule is None:
        assert isinstance(found, Accepted)
        return
    assert isinstance(found, Refused)
    assert (found.reason, found.violations[0].rule) == (Reason.ATTACHMENT_INVALID, rule)
    assert found.violations[0].path == "attachments[0].inline"


def test_faults_come_in_order_of_precedence() -> None:
    """Uncertified comes before a wrong attachment, and that before the clock; all are listed."""
    attachment = {
        "sha256": "0" * 64,
        "media_type": "text/plain",
        "bytes": 5,
        "inline": "aGVsbG8=",
    }
    late = _ms(AT + timedelta(days=800))
    found = _decide(_report(attachments=[attachment], certification=None), late)
    assert isinstance(found, Refused)
    assert found.reason is Reason.UNCERTIFIED
    paths = [violation.path for violation in found.violations]
    assert paths == ["certification", "attachments[0].inline", "inspected_at"]
