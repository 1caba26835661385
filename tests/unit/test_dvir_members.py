"""The DVIR contract's members: key, null, certification, ledger row, receipts, any junk."""

from __future__ import annotations

import copy
import hashlib
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.decision_set import DecisionSet
from schemas.dvir import RECORD_TYPE
from schemas.dvir.checks import key_of
from schemas.envelope import Record, Source
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


def _decide(members: Any) -> Decided:
    return decide(
        Record(4, json.dumps(members).encode(), -1), RECORD_TYPE, SOURCE, DecisionSet(), {}
    )


def _report(**changes: Any) -> dict[str, Any]:
    return {**copy.deepcopy(REPORT), **changes}


# --- Key, null, row, receipts ---------------------------------------------------------------------


def _column(found: Decided, name: str) -> object:
    assert isinstance(found, Accepted), found
    return found.row[RECORD_TYPE.ledger_columns.index(name)]


def test_the_ledger_key() -> None:
    """The ledger key is SHA-256 over domain, length and idempotency key, of nothing else."""
    given = b"eld/acme/R1/1"
    expected = hashlib.sha256(b"wb/dvir/1" + len(given).to_bytes(4, "big") + given).digest()
    assert key_of(given.decode()) == expected
    for members in (REPORT, _report(condition="unsafe"), _report(certification=None)):
        assert _decide(members).key == expected


@pytest.mark.parametrize("key", [None, "", " ", "\t", "\u00a0"])
def test_a_missing_key_comes_first(key: str | None) -> None:
    """Absent, null and blank keys are one reason, before every other of the type."""
    found = _decide(_report(idempotency_key=key, condition="fine", certification=None))
    assert isinstance(found, Refused)
    assert (found.reason, found.key) == (Reason.MISSING_KEY, None)
    assert [v.path for v in found.violations] == ["idempotency_key", "condition"]


@pytest.mark.parametrize("key", [" a", "a ", "a\n", "\u00e4", "a" * 201, 7, ["a"]])
def test_a_key_of_wrong_form_breaks_the_contract(key: object) -> None:
    """A key that is there is 1 to 200 printable ASCII characters without outer blanks."""
    found = _decide(_report(idempotency_key=key))
    assert isinstance(found, Refused)
    assert (found.reason, found.violations[0].path) == (Reason.SCHEMA_VIOLATION, "idempotency_key")


@pytest.mark.parametrize("name", ["event", "condition", "signatures", "source", "unheard_of"])
def test_null_is_absent(name: str) -> None:
    """What is null has the verdict and the digest of what is absent."""
    absent = _report()
    absent.pop(name, None)
    one, other = _decide(absent), _decide({**absent, name: None})
    assert isinstance(one, Accepted)
    assert isinstance(other, Accepted), other
    assert one.canonical_digest == other.canonical_digest


def test_null_is_absent_in_the_members_of_lists() -> None:
    """So it is inside units, defects, signatures and attachments."""
    nulls = {"severity": None, "outcome": None, "note": None, "unheard_of": None}
    one = _decide(_report(defects=[{"part": "tires"}]))
    other = _decide(_report(defects=[{"part": "tires", **nulls}]))
    assert isinstance(one, Accepted)
    assert isinstance(other, Accepted), other
    assert one.canonical_digest == other.canonical_digest


@pytest.mark.parametrize("name", ["inspected_at", "units", "driver_id"])
def test_null_is_no_way_round_a_required_member(name: str) -> None:
    """A required member that is null is missing."""
    found = _decide(_report(**{name: None}))
    assert isinstance(found, Refused)
    assert found.reason is Reason.SCHEMA_VIOLATION


@pytest.mark.parametrize("name", ["idempotency_key", "correlation_id", "received_at", "payload"])
def test_what_the_digest_leaves_out(name: str) -> None:
    """Key, correlation id, time of receipt and the vendor's text do not make another content."""
    other = {"received_at": AT.isoformat()}.get(name, "something else")
    one, changed = _decide(REPORT), _decide(_report(**{name: other}))
    assert isinstance(one, Accepted)
    assert isinstance(changed, Accepted)
    assert one.canonical_digest == changed.canonical_digest


def test_receipts_are_rows_of_their_own() -> None:
    """Each signature is one row under the report's key, in the order they were given."""
    signatures = [
        {"role": "driver", "signer_id": "D-7", "signed_at": AT.isoformat(), "receipt": "r1"},
        {"role": "other"},
    ]
    found = _decide(_report(signatures=signatures))
    assert isinstance(found, Accepted)
    assert found.receipts == (
        (found.key, 0, "driver", "D-7", AT, "r1"),
        (found.key, 1, "other", None, None, None),
    )


@pytest.mark.parametrize(("shift", "flagged"), [(-1, True), (0, False), (1, False)])
def test_signature_order(shift: int, *, flagged: bool) -> None:
    """A mechanic who signed before the driver is a remark; at the same instant he did not."""
    repaired = (AT + timedelta(microseconds=shift)).isoformat()
    signatures = [
        {"role": "driver", "signed_at": AT.isoformat()},
        {"role": "mechanic", "signed_at": repaired},
        {"role": "agent"},
    ]
    found = _decide(_report(signatures=signatures))
    assert _column(found, "flags") == ([Flag.SIGNATURE_ORDER] if flagged else [])


def test_open_defects_are_counted() -> None:
    """A defect is open until it says otherwise; the row tells how many and whether one is grave."""
    defects = [
        {"part": "tires", "severity": "major", "outcome": "repaired"},
        {"part": "horn", "severity": "minor"},
        {"part": "other", "outcome": "open"},
    ]
    found = _decide(_report(defects=defects))
    assert (_column(found, "defects_open"), _column(found, "critical")) == (2, False)
    found = _decide(_report(defects=[*defects, {"part": "steering", "severity": "major"}]))
    assert (_column(found, "defects_open"), _column(found, "critical")) == (3, True)


@pytest.mark.parametrize(
    ("unit", "identifier"),
    [
        ({"vin": VIN, "legacy_serial": "S1", "unit_number": "12"}, VIN),
        ({"vin": None, "legacy_serial": "S1", "unit_number": "12"}, "S1"),
        ({"unit_number": "12"}, "12"),
    ],
)
def test_the_first_unit_names_the_record(unit: dict[str, object], identifier: str) -> None:
    """VIN, else serial, else number: in the row, on the topic and for publishers alike."""
    members = _report(units=[{"role": "bus", **unit}, {"role": "trailer", "unit_number": "T"}])
    found = _decide(members)
    assert isinstance(found, Accepted)
    assert found.event_key.decode() == _column(found, "unit_identifier") == identifier
    assert RECORD_TYPE.identify(members) == identifier


# --- Any members ----------------------------------------------------------------------------------

FULL = _report(
    signatures=[{"role": "driver", "signer_id": "D-7", "signed_at": AT.isoformat()}],
    defects=[{"part": "tires", "unit": 0, "severity": "major", "regulated": True}],
    attachments=[{"sha256": "0" * 64, "media_type": "image/png", "bytes": 1, "uri": "s3://x"}],
)
PLACES = [(name,) for name in [*RECORD_TYPE.raw_schemas[-1].fields(), "unheard_of"]] + [
    (member, name)
    for member in ("units", "signatures", "defects", "attachments")
    for name in [*FULL[member][0], "repaired_at", "receipt", "odometer_m", "engine_hours", "inline"]
]
_junk = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=12,
)
_values = (
    _junk
    | st.integers(2**62, 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from(["", " ", "a" * 5_000, "\U0010ffff" * 200, AT.isoformat(), "12.5"])
)


AWKWARD: list[object] = [
    None, True, 0, -1, 8, 2**31, 2**63, -(2**63) - 1, 10**30, 1.5, 1e300, "", " ", "12.5", "-0",
    "a" * 5_000, "\U0010ffff" * 200, AT.isoformat(), "9999-12-31T23:59:59Z", [], [None], [[]], {},
    {"part": None}, [{"role": 7}],
]  # fmt: skip


def _changed(changes: dict[tuple[str, ...], object]) -> dict[str, Any]:
    """The full report with other values at some places."""
    members = copy.deepcopy(FULL)
    for place, value in changes.items():
        inner = members[place[0]] if len(place) > 1 else None
        if isinstance(inner, list) and inner and isinstance(inner[0], dict):
            inner[0][place[1]] = value
        else:
            members[place[0]] = value
    return members


def _check(members: dict[str, Any]) -> None:
    """Deciding yields a verdict, and what it accepts can be emitted again from its row."""
    found = _decide(members)
    if isinstance(found, Accepted):
        assert RECORD_TYPE.event_of(found.row) == (found.event_key, found.event_value)
    else:
        assert found.violations
        assert found.reason is not Reason.PROCESSING_ERROR


@pytest.mark.parametrize("place", PLACES, ids=".".join)
def test_awkward_values_get_a_verdict(place: tuple[str, ...]) -> None:
    """Each awkward value in each member is decided, never raised over."""
    for value in AWKWARD:
        _check(_changed({place: value}))


@given(st.dictionaries(st.sampled_from(PLACES), _values, max_size=3))
def test_any_members_get_a_verdict(changes: dict[tuple[str, ...], object]) -> None:
    """So is anything at all in up to three members at once."""
    _check(_changed(changes))


# --- Certification, attachments ------------------------------------------------------------


@pytest.mark.parametrize(
    ("certification", "path"),
    [
        ({"by": "", "at": AT.isoformat(), "method": "drawn"}, "certification.by"),
        ({"by": "D-7", "at": "2026-11-03T11:42:09", "method": "drawn"}, "certification.at"),
        ({"by": "D-7", "at": AT.isoformat(), "method": "scribbled"}, "certification.method"),
        ("D-7", "certification"),
    ],
)
def test_a_malformed_certification_is_no_missing_one(certification: object, path: str) -> None:
    """A certification that is there but broken breaks the contract: `uncertified` is for none."""
    found = _decide(_report(certification=certification))
    assert isinstance(found, Refused)
    assert (found.reason, found.violations[0].path) == (Reason.SCHEMA_VIOLATION, path)


@pytest.mark.parametrize(
    ("length", "accepted"), [(0, True), (2**63 - 1, True), (2**63, False), (10**30, False)]
)
def test_lengths_end_where_the_event_can_hold_them(length: int, *, accepted: bool) -> None:
    """A length that Avro's long cannot hold breaks the contract, it does not break us."""
    attachment = {"sha256": "0" * 64, "media_type": "image/png", "bytes": length, "uri": "s3://x"}
    found = _decide(_report(attachments=[attachment]))
    assert isinstance(found, Accepted if accepted else Refused)
    if isinstance(found, Refused):
        assert found.violations[0].path == "attachments[0].bytes"
