"""Vendors' reports through the shipped profiles: versions, certification, look-ups, payloads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from connectors.errors import ConfigurationError
from connectors.files import FileRow, MalformedFile
from connectors.profiles import json_profile as json_module
from connectors.profiles import load_profile
from schemas.record_types import RECORD_TYPES
from tests.connectors.profile_tools import SAMPLES, judge, rows_of, sample

DVIR = RECORD_TYPES["dvir"]
HISTORY = "samsara-history"
DEFECTS = SAMPLES / "geotab_defect_list.json"


def verdicts(rows: list[FileRow]) -> list[str]:
    return [one.verdict for one in judge(rows, DVIR)]


def members(row: FileRow) -> dict[str, Any]:
    assert row.error is None
    found: dict[str, Any] = json.loads(row.value)
    return found


def page(*reports: object) -> bytes:
    return json.dumps({"data": reports, "pagination": {"endCursor": "x"}}).encode()


def first_report(name: str = "samsara_history_page1.json") -> dict[str, Any]:
    found: dict[str, Any] = json.loads((SAMPLES / name).read_text("utf-8"))["data"][0]
    return found


# --- Samsara --------------------------------------------------------------------------------------


def test_a_report_that_comes_back_repaired_is_a_second_version() -> None:
    """The key of source and id alone would drop the certification of repairs as a duplicate."""
    rows = [
        *sample("samsara_history_page1.json", HISTORY),
        *sample("samsara_history_repoll.json", HISTORY),
    ]
    assert verdicts(rows) == [
        "committed",
        "committed",
        "committed",
        "schema_violation",
        "committed",
    ]
    before, after = members(rows[0]), members(rows[4])
    assert before["report_id"] == after["report_id"] == "7700000000000001"
    assert before["idempotency_key"] != after["idempotency_key"]
    assert [s["role"] for s in after["signatures"]] == ["driver", "mechanic", "reviewing_driver"]
    assert [(d["unit"], d["part"], d["outcome"]) for d in after["defects"]] == [
        (0, "service_brakes", "repaired"),
        (1, "lighting_devices_and_reflectors", "repaired"),
    ]
    assert (before["condition"], after["condition"]) == ("unsafe", "resolved")


def test_what_carries_no_meaning_makes_no_new_version() -> None:
    """Polled again with another signed URL, address, cursor or order of members: a duplicate."""
    report = first_report()
    again = dict(reversed(report.items()))
    again["location"] = "another resolved address"
    again["authorSignature"] = {**report["authorSignature"], "imageUrl": "https://x.invalid/?sig=2"}
    again["polledAt"] = "2026-11-04T07:00:00Z"
    rows = rows_of(load_profile(HISTORY), page(report, again), "p.json")
    assert verdicts(rows) == ["committed", "duplicate"]
    assert members(rows[0])["payload"] != members(rows[1])["payload"]


@pytest.mark.parametrize(
    "change",
    [
        {"safetyStatus": "resolved"},
        {"odometerMeters": 412338018},
        {"secondSignature": {"signatoryUser": {"id": "6"}, "type": "mechanic"}},
        {"vehicleDefects": []},
        {"safetyStatus": "a word of tomorrow"},
    ],
)
def test_what_carries_meaning_makes_a_new_version(change: dict[str, object]) -> None:
    """Each such change is another record, never a collision."""
    report = first_report()
    rows = rows_of(load_profile(HISTORY), page(report, {**report, **change}), "p.json")
    assert verdicts(rows) == ["committed", "committed"]


def test_the_payload_is_the_vendors_own_text() -> None:
    """Verbatim: blanks, order and number texts as they came."""
    text = '{ "id" : 1.50e1,  "b":"\\u00fc" }'
    profile = load_profile(HISTORY)
    (row,) = rows_of(
        profile, b'\xef\xbb\xbf{"x": [1, {}], "data": [ ' + text.encode() + b" ] }", "p.json"
    )
    assert members(row)["payload"] == text
    (line,) = rows_of(profile, text.encode() + b"\r\n", "p.jsonl")
    assert line.value == row.value


def test_lines_may_be_reports_or_pages() -> None:
    """A line that has the page's list of reports is a page."""
    report = json.dumps(first_report()).encode()
    (one,) = rows_of(load_profile(HISTORY), report, "p.jsonl")
    (two,) = rows_of(load_profile(HISTORY), b'\n{"data": [' + report + b"]}\n", "p.ndjson")
    assert (one.value, one.line, two.line) == (two.value, 1, 2)


def test_mapping_is_deterministic() -> None:
    """The same report gives the same bytes, each time and by each instance of the profile."""
    rows = [sample("samsara_history_page1.json", HISTORY) for _ in range(2)]
    assert [row.value for row in rows[0]] == [row.value for row in rows[1]]


def test_an_unknown_word_is_refused_by_name_or_declared() -> None:
    """A type nobody declared is refused without its word; a condition has a declared default."""
    report = {**first_report(), "type": "telepathic"}
    (row,) = rows_of(load_profile(HISTORY), page(report), "p.json")
    assert row.error == "inspection_type: a word of the map inspection_type"
    assert json.loads(row.value) == report
    (judged,) = judge([row], DVIR)
    assert (judged.verdict, judged.path) == ("malformed_row", "inspection_type")


def test_without_a_signature_a_report_is_uncertified() -> None:
    """A certification is mapped from what is there, never made up."""
    report = first_report()
    report["type"] = "mechanic"
    del report["authorSignature"]
    assert verdicts(rows_of(load_profile(HISTORY), page(report), "p.json")) == ["uncertified"]


def test_samsara_v1() -> None:
    """Milliseconds, miles and whole-number ids, exactly."""
    (row,) = sample("samsara_v1_legacy.json", "samsara-v1")
    assert verdicts([row]) == ["committed"]
    found = members(row)
    assert found["report_id"] == "7700000001"
    assert found["inspected_at"] == found["certification"]["at"] == "2026-11-03T11:42:09Z"
    assert found["certification"]["by"] == "51007"
    assert found["inspection_type"] == "pre_trip"
    vehicle, trailer = found["units"]
    assert (vehicle["odometer_m"], vehicle["odometer_source_unit"]) == ("412338072.96", "mi")
    assert trailer["unit_number"] == "TL-22"
    (defect,) = found["defects"]
    assert (defect["part"], defect["outcome"], defect["unit"]) == ("service_brakes", "repaired", 0)


def test_samsara_v1_says_which_of_two_outcomes() -> None:
    """Repaired and repair not needed are two things (49 CFR 396.11(a)(3))."""
    report = json.loads((SAMPLES / "samsara_v1_legacy.json").read_text("utf-8"))["dvirs"][0]
    report |= {"defectsCorrected": False, "defectsNeedNotBeCorrected": True}
    (row,) = rows_of(load_profile("samsara-v1"), json.dumps({"dvirs": [report]}).encode(), "p.json")
    assert members(row)["defects"][0]["outcome"] == "no_repair_needed"


def test_samsara_stream_with_and_without_its_defects(tmp_path: Path) -> None:
    """Ids only: open, of part other; with the defects' feed their part, outcome and comment."""
    (row,) = sample("samsara_stream_page.json", "samsara-stream")
    assert verdicts([row]) == ["schema_violation"]  # no signature, so no driver either
    found = members(row)
    assert found["source_updated_at"] == "2026-11-03T16:25:01.250Z"
    assert [(d["part"], d.get("code")) for d in found["defects"]] == [("other", None)] * 2
    feed = {"data": [{"id": "9000000000000101", "defectType": "Tires", "isResolved": True}]}
    (tmp_path / "d.json").write_text(json.dumps(feed), encoding="utf-8")
    (row,) = sample("samsara_stream_page.json", "samsara-stream", defects=tmp_path / "d.json")
    first, second = members(row)["defects"]
    assert (first["part"], first["code"], first["outcome"]) == ("tires", "Tires", "repaired")
    assert (second["part"], second["outcome"]) == ("other", "open")


def test_samsara_webhook() -> None:
    """The event's report; an event of another type is refused."""
    dvir = {
        "id": "1",
        "type": "preTrip",
        "endTime": "2026-11-03T11:42:09Z",
        "needsCorrection": True,
        "odometerMeters": 5,
        "authorSignature": first_report()["authorSignature"],
        "defects": [{"id": "7", "isResolved": False, "defectType": "Horn"}],
    }
    event = {
        "eventType": "DvirSubmitted",
        "data": {"vehicle": {"name": "T1", "vin": "1ZZFAKE02R1000001"}, "dvir": dvir},
    }
    other = {**event, "eventType": "VehicleUpdated"}
    content = b"\n".join(json.dumps(one).encode() for one in (event, other))
    rows = rows_of(load_profile("samsara-webhook"), content, "w.jsonl")
    assert verdicts(rows) == ["committed", "malformed_row"]
    found = members(rows[0])
    assert (found["condition"], found["defects"][0]["part"]) == ("unsafe", "horn")
    assert found["units"][0]["vin"] == "1ZZFAKE02R1000001"


# --- Motive ---------------------------------------------------------------------------------------


def test_motive() -> None:
    """A double wrapper, parts that are no defects, and a certification only where one is."""
    rows = sample("motive_inspection_reports.json", "motive")
    assert verdicts(rows) == ["uncertified", "uncertified", "committed"]
    first, second, third = map(members, rows)
    assert [d["code"] for d in first["defects"]] == ["Air Brake System", "Clearance Lamps"]
    assert [d["severity"] for d in first["defects"]] == ["major", "minor"]
    assert first["units"][0]["odometer_m"] == "412338072.96"
    assert (second["units"][0]["unit_number"], second["defects"][0]["outcome"]) == (
        "TL-22",
        "no_repair_needed",
    )
    assert third["event"] == "repair_certification"
    assert third["certification"] == {
        "at": "2026-11-03T00:00:00-05:00",
        "by": "61001",
        "method": "imported",
    }
    assert "signatures.invalid" not in json.dumps({**third, "payload": ""})
    assert json.loads(third["payload"])["id"] == 880003


# --- Geotab ---------------------------------------------------------------------------------------


def test_geotab() -> None:
    """Versions are records of their own; a part's id as defect is that part; no driver is none."""
    rows = sample("geotab_dvirlog_getfeed.json", "geotab", defects=DEFECTS)
    assert verdicts(rows) == ["uncertified", "committed", "schema_violation"]
    first, second, third = map(members, rows)
    assert first["idempotency_key"] == "geotab/aDV0001/00000000000a1b01"
    assert second["report_version"] == "00000000000a1b2c"
    leak, comfort = first["defects"]
    assert (leak["part"], leak["code"], leak["severity"], leak["note"]) == (
        "service_brakes",
        "Air leak",
        "major",
        "loses 5 psi/min",
    )
    assert (comfort["part"], comfort["code"], comfort["outcome"]) == ("other", "other", "open")
    assert [d["outcome"] for d in second["defects"]] == ["repaired", "no_repair_needed"]
    assert (second["event"], second["certification"]["by"]) == ("repair_certification", "u61001")
    assert [s["role"] for s in second["signatures"]] == ["mechanic", "reviewing_driver"]
    assert "driver_id" not in third
    assert third["units"] == [{"role": "trailer", "unit_number": "t22"}]


def test_a_defect_that_the_list_does_not_have_is_refused_by_name(tmp_path: Path) -> None:
    """Its report keeps its bytes and says which defect and which look-up."""
    (tmp_path / "d.json").write_text('{"result": []}', encoding="utf-8")
    rows = sample("geotab_dvirlog_getfeed.json", "geotab", defects=tmp_path / "d.json")
    assert rows[0].error == "defects[0].code: in the look-up defects"
    assert verdicts(rows)[0] == "malformed_row"


def test_a_driver_as_text_or_object(tmp_path: Path) -> None:
    """Both forms that Geotab writes."""
    (tmp_path / "d.json").write_text('{"result": []}', encoding="utf-8")
    profile = load_profile("geotab", {"defects": tmp_path / "d.json"})
    drivers = ('"u1"', '{"id":"u2"}', '"NoDriver"')
    lines = "".join(f'{{"id":"a","driver":{driver}}}\n' for driver in drivers).encode()
    found = [members(row).get("driver_id") for row in rows_of(profile, lines, "g.jsonl")]
    assert found == ["u1", "u2", None]


# --- Any report -----------------------------------------------------------------------------------

VENDORS = [
    ("samsara_history_page1.json", HISTORY),
    ("samsara_stream_page.json", "samsara-stream"),
    ("samsara_v1_legacy.json", "samsara-v1"),
    ("motive_inspection_reports.json", "motive"),
    ("geotab_dvirlog_getfeed.json", "geotab"),
]
odd = st.sampled_from(
    [
        None,
        True,
        False,
        0,
        -1,
        10**50,
        10**5_000,
        "",
        " ",
        "x/y",
        "é" * 300,
        [],
        {},
        [[]],
        [{}],
        [1],
    ]
) | st.recursive(
    st.text(max_size=3), lambda inner: st.lists(inner) | st.dictionaries(st.just("id"), inner)
)


def changed(value: object, choose: st.DataObject) -> object:
    """A report with one member, at any depth, replaced."""
    if isinstance(value, dict) and value:
        name = choose.draw(st.sampled_from(sorted(value)))
        return {**value, name: changed(value[name], choose)}
    if isinstance(value, list) and value and choose.draw(st.booleans()):
        at = choose.draw(st.integers(0, len(value) - 1))
        return [*value[:at], changed(value[at], choose), *value[at + 1 :]]
    return choose.draw(odd)


def written(value: object) -> str:
    """JSON, with numbers of more digits than Python writes."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{json.dumps(n)}:{written(v)}" for n, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(written, value)) + "]"
    if type(value) is int and abs(value) > 10**4_000:
        return "1" + "0" * 5_000
    return json.dumps(value)


@pytest.mark.parametrize(("name", "profile"), VENDORS, ids=[profile for _, profile in VENDORS])
@given(choose=st.data())
@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
def test_any_change_of_a_report_ends_in_a_verdict(
    name: str, profile: str, choose: st.DataObject
) -> None:
    """Whatever a vendor sends: mapped or kept, always the same way, and never our own error."""
    lookups = {"defects": DEFECTS} if profile == "geotab" else {}
    reader = load_profile(profile, lookups)
    given_page = written(changed(json.loads((SAMPLES / name).read_text("utf-8")), choose)).encode()
    try:
        rows = rows_of(reader, given_page, "p.json")
    except MalformedFile:
        return
    again = rows_of(reader, given_page, "p.json")
    assert [(r.value, r.error) for r in rows] == [(r.value, r.error) for r in again]
    assert "processing_error" not in verdicts(rows)


# --- Pages ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "no JSON document"),
        (b'{"data": [{"id": "1"}', "no JSON document"),
        (b'{"data": [{"id": "1"}],}', "no JSON document"),
        (b'{"data": [{"id": "1"},]}', "no JSON document"),
        (b'{"data": [{"id": "1"} {"id": "2"}]}', "no JSON document"),
        (b'{"data": [], "data": []}', "has the member data twice"),
        (b'{"data": []} {}', "goes on after its JSON document"),
        (b'{"data": {"id": "1"}}', "holds no list of reports at data"),
        (b'{"reports": []}', "holds no list of reports at data"),
        (b"[]", "has no object where"),
        (b'{"data": ["\xff"]}', "is not UTF-8"),
        (b'{"data":' + b"[" * 100_000, "no JSON document"),
    ],
)
def test_a_page_that_cannot_be_cut_is_refused_whole(content: bytes, why: str) -> None:
    """Nothing of it is published."""
    with pytest.raises(MalformedFile, match=why):
        rows_of(load_profile(HISTORY), content, "p.json")


def test_a_page_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A document is read whole, so there is a limit, and the way round it is said (G6)."""
    monkeypatch.setattr(json_module, "DOCUMENT_BYTES_MAX", 100)
    with pytest.raises(MalformedFile, match=r"more than 100 bytes.*\.jsonl"):
        rows_of(load_profile(HISTORY), page(first_report()), "p.json")


def test_one_broken_report_costs_itself_only() -> None:
    """In a page as in lines: what is no report passes as it is, for the gate to judge."""
    content = b'{"data": [{"id":"1","id":"2"}, 7, {"id": "\\u0000"}, {"id": "3"}]}'
    rows = rows_of(load_profile(HISTORY), content, "p.json")
    assert [row.line for row in rows] == [1, 2, 3, 4]
    assert verdicts(rows) == ["malformed_json", "schema_violation", "encoding", "schema_violation"]
    assert rows[0].value == b'{"id":"1","id":"2"}'
    lines = rows_of(load_profile(HISTORY), b'{"id":\n{"id":"3"}\n', "p.jsonl")
    assert verdicts(lines) == ["malformed_json", "schema_violation"]


def test_a_profile_reads_its_own_kind_of_file() -> None:
    """JSON profiles do not read CSV, and the other way round."""
    with pytest.raises(MalformedFile, match=r"end in \.json, \.jsonl, \.ndjson"):
        rows_of(load_profile(HISTORY), b"", "p.csv")
    with pytest.raises(MalformedFile, match=r"end in \.csv"):
        rows_of(load_profile("payroll-csv"), b"", "p.json")


def test_look_ups_are_asked_for_and_known() -> None:
    """A profile that needs a file says so; one that it does not declare is refused."""
    with pytest.raises(ConfigurationError, match="--with defects=FILE"):
        load_profile("geotab")
    with pytest.raises(ConfigurationError, match="no look-up drivers; it declares defects"):
        load_profile("geotab", {"drivers": DEFECTS, "defects": DEFECTS})
