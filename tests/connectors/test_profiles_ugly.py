"""Ugly exports, each line with its verdict: what a declared profile makes of every quirk.

Each table names line, verdict (of a quarantined record the reason), the field to blame, and why
where the samples' own notes suggest something else; the contract decides.
"""

from __future__ import annotations

import pytest

from connectors.files import MalformedFile, SourceFile
from connectors.profiles import load_profile
from schemas.record_types import RECORD_TYPES
from tests.connectors.profile_tools import SAMPLES, Judged, judge, sample

RECEIVED_MS = 1_793_772_002_000
"""2026-11-04T06:00:02Z, when the reports of dvir_ugly.jsonl were received."""

ID, GROSS, DAY = "employee_id", "gross_pay", "pay_date"
PAYROLL: list[tuple[int, str, str, str]] = [
    (4, "committed", "", "a plain row"),
    (5, "committed", "", "042117: the profile declares the width 6"),
    (6, "schema_violation", ID, "an id in scientific notation"),
    (7, "committed", "", "219E05 is an id"),
    (8, "committed", "", "AB12CD: blanks, a no-break space and case are declared"),
    (9, "schema_violation", ID, "a Cyrillic letter"),
    (10, "schema_violation", ID, "full-width digits; the declared width does not touch them"),
    (11, "schema_violation", ID, "nine digits look like a social security number"),
    (12, "schema_violation", ID, "hyphens"),
    (13, "committed", "", "a spreadsheet's apostrophe, declared"),
    (14, "duplicate", "", '="042117" is declared, and is the padded employee of line 5'),
    (15, "committed", "", "1,234.56: the thousands mark is declared"),
    (16, "malformed_row", "", "an unquoted thousands mark is a column too many"),
    (17, "committed", "", "$1000.00: declared"),
    (18, "schema_violation", "corrects", "(250.00) is read; a reversal names what it corrects"),
    (19, "schema_violation", "corrects", "250.00- is read; as line 18"),
    (20, "schema_violation", "corrects", "U+2212 is read, never as +250.00; as line 18"),
    (21, "malformed_row", GROSS, "a decimal comma is not declared"),
    (22, "committed", "", "1,234 is 1234, as the thousands mark is declared"),
    (23, "malformed_row", GROSS, "1,23,45: marks stand every three digits"),
    (24, "schema_violation", GROSS, "four decimals: never rounded"),
    (25, "schema_violation", GROSS, "float noise: never rounded"),
    (26, "malformed_row", GROSS, "an exponent"),
    (27, "malformed_row", GROSS, "NaN"),
    (28, "malformed_row", GROSS, "an underscore"),
    (29, "malformed_row", GROSS, "full-width digits"),
    (30, "malformed_row", GROSS, "zero-filled: implied decimals are not declared"),
    (31, "schema_violation", GROSS, "no amount is not zero"),
    (32, "committed", "", "a dash is zero: declared"),
    (33, "malformed_row", GROSS, "words"),
    (34, "committed", "", "-0.00 is 0"),
    (35, "malformed_row", GROSS, "a spreadsheet's error"),
    (36, "committed", "", "11/06/2026: the order is declared"),
    (37, "committed", "", "11/06/26: the pivot is declared"),
    (38, "committed", "", "03/04/2026 is 4 March: the order is declared"),
    (39, "committed", "", "46332 is 2026-11-06: Excel's days are declared"),
    (40, "malformed_row", DAY, "a timestamp is no date: a zone would move it"),
    (41, "schema_violation", "pay_period_end", "ends before it starts"),
    (42, "committed", "", "no pay date: the contract has it optional (the notes reject)"),
    (43, "malformed_row", "pay_period_end", "30 February"),
    (44, "committed", "", "first of two identical rows"),
    (45, "duplicate", "", "second of two identical rows"),
    (46, "committed", "", "another run: a bonus"),
    (47, "idempotency_collision", "", "same key, other amount; line 46 stays (the notes: both)"),
    (48, "unresolved_jurisdiction", "tax_jurisdiction", "a PSD code without its leading zero"),
    (49, "unresolved_jurisdiction", "tax_jurisdiction", "a city by free text"),
    (50, "committed", "", "a state alone is an authority"),
    (51, "schema_violation", "tax_jurisdiction", "no location"),
    (52, "committed", "", "CAD is a currency of the contract (the notes reject it)"),
    (53, "schema_violation", "hours", "40:30 is no number"),
    # 54: the header again, left out.
    (55, "committed", "", "a newline inside a quoted note"),
    (57, "committed", "", "a formula is text"),
    (58, "malformed_row", "", "a stray quote costs its own row"),
    (59, "committed", "", "CR LF amid LF"),
    (60, "committed", "", "a lone CR ends a row"),
    (60, "committed", "", "the row after the CR"),
    (61, "encoding", "", "a Latin-1 byte in a UTF-8 file"),
    (62, "encoding", "", "U+0000"),
    (63, "malformed_row", "", "a short row"),
    # 64: empty cells; 65: the totals row; 66: the trailer: all left out.
    (67, "committed", "", "no final line ending: the profile does not ask for one"),
]  # fmt: skip

EU: list[tuple[int, str, str, str]] = [
    (3, "unresolved_jurisdiction", "tax_jurisdiction", "1234.56; US-NY:nyc is no authority"),
    (4, "schema_violation", "gross_pay", "-1234.56: no reversal is declared"),
]  # fmt: skip

DVIR: list[tuple[int, str, str, str]] = [
    (1, "committed", "", "a VIN in lower case with blanks: both declared"),
    (2, "schema_violation", "units[0].vin", "O is never taken for 0"),
    (3, "schema_violation", "units[0].vin", "I and Q"),
    (4, "committed", "vin_check_digit", "a wrong check digit is a remark"),
    (5, "committed", "", "a European VIN has no check digit"),
    (6, "committed", "vin_placeholder", "seventeen ones"),
    (7, "committed", "", "a serial of 1979: declared by its model year"),
    (8, "committed", "", "no VIN: the unit number stands in"),
    (9, "committed", "", "a naive time in the declared zone"),
    (10, "malformed_row", "inspected_at", "a local time that its zone has twice"),
    (11, "clock_skew", "inspected_at", "26 h ahead; the contract allows 24 (the notes accept)"),
    (12, "clock_skew", "inspected_at", "the device's clock at 1970 (the notes accept with a flag)"),
    (13, "committed", "", "milliseconds since 1970 as text: declared"),
    (14, "committed", "", "captured offline, first send"),
    (15, "duplicate", "", "sent again; only the time of receipt differs"),
    (16, "committed", "", "another id: nothing in lines 14 and 15 carries the client's id"),
    (17, "committed", "", "version 2, signed by the mechanic: a new record"),
    (18, "committed", "", "version 1 after version 2: kept, a record of its own"),
    (19, "committed", "", "an unknown word is the condition `unknown`; there is no flag for it"),
    (20, "committed", "", "safe with open defects"),
    (21, "committed", "unsafe_without_defect", "unsafe without a defect"),
    (22, "committed", "signature_order", "the mechanic signed first"),
    (23, "committed", "", "resolved; the driver's report needs no mechanic's signature"),
    (24, "committed", "odometer_unit_missing", "an odometer without a unit goes unconverted"),
    (25, "committed", "", "kilometres are metres"),
    (26, "committed", "", "an odometer that goes back: no flag in the list"),
    (27, "committed", "", "a part outside the eleven is `other`"),
    (28, "committed", "", "a part's id as defect: `other`, with the id as its code"),
    (29, "committed", "", "newline, emoji and a formula are text"),
    (30, "committed", "", "an inline image stays in the payload"),
]


def _told(judged: list[Judged]) -> list[tuple[int, str, str]]:
    """Line, verdict, and the field to blame or, of a committed record, its flags."""
    return [
        (j.line, j.verdict, ",".join(j.flags) if j.verdict == "committed" else j.path)
        for j in judged
    ]


def test_every_line_of_the_ugly_payroll_file() -> None:
    """With all quirks of its source declared: read what is declared, refuse the rest by name."""
    judged = judge(
        sample("payroll_ugly.csv", str(SAMPLES / "payroll_ugly.toml")), RECORD_TYPES["payroll"]
    )
    expected = [(line, verdict, path) for line, verdict, path, _ in PAYROLL]
    assert [one if one[1] != "duplicate" else (*one[:2], "") for one in _told(judged)] == expected


@pytest.mark.parametrize(
    ("line", "name", "value"),
    [
        (5, "employee_id", "042117"),
        (8, "employee_id", "AB12CD"),
        (13, "employee_id", "A20002"),
        (15, "gross_pay", "1234.56"),
        (17, "gross_pay", "1000.00"),
        (18, "gross_pay", "250.00"),
        (19, "gross_pay", "250.00"),
        (20, "gross_pay", "250.00"),
        (22, "gross_pay", "1234"),
        (24, "gross_pay", "2307.6923"),
        (32, "gross_pay", "0"),
        (36, "pay_date", "2026-11-06"),
        (37, "pay_date", "2026-11-06"),
        (38, "pay_date", "2026-03-04"),
        (39, "pay_date", "2026-11-06"),
        (55, "note", "late\ncorrection"),
        (57, "note", '=HYPERLINK("http://x.invalid","pay")'),
        (67, "source_run_id", "fake-hris/001/R2026-22"),
    ],
)
def test_what_the_ugly_payroll_cells_become(line: int, name: str, value: str) -> None:
    """A declared conversion is exact."""
    rows = sample("payroll_ugly.csv", str(SAMPLES / "payroll_ugly.toml"))
    (row,) = (row for row in rows if row.line == line)
    assert row.members is not None
    assert row.members[name] == value


def test_what_is_no_record_is_told() -> None:
    """Left out only where declared, and said; a total over rows that cannot be read is not
    compared."""
    profile = load_profile(str(SAMPLES / "payroll_ugly.toml"))
    with SourceFile(SAMPLES / "payroll_ugly.csv", profile=profile) as source:
        checked = source.check()
        assert len(list(source.rows(checked))) == checked.rows == 60
    assert checked.remarks == (
        "line 54: the header again: left out",
        "line 65: the total of gross_pay is not compared: rows that cannot be read: 15",
        "line 66: a declared trailer: left out",
    )


def test_the_strict_profile_refuses_the_ugly_file_by_name() -> None:
    """Undeclared, the title line is no header, and nothing is published."""
    with pytest.raises(MalformedFile, match="line 1: no column 'employee_id'"):
        sample("payroll_ugly.csv", "payroll-csv")


def test_every_line_of_the_european_file() -> None:
    """`sep=`, semicolons, cp1252, decimal commas, days first, a blank as thousands mark."""
    rows = sample("payroll_ugly_eu.csv", str(SAMPLES / "payroll_ugly_eu.toml"))
    judged = judge(rows, RECORD_TYPES["payroll"])
    assert _told(judged) == [(line, verdict, path) for line, verdict, path, _ in EU]
    first, second = (row.members for row in rows)
    assert first is not None
    assert second is not None
    assert (first["gross_pay"], second["gross_pay"]) == ("1234.56", "-1234.56")
    assert (first["hours"], first["note"], second["note"]) == ("80.00", "Müller", "€ sign")
    assert first["pay_period_start"] == "2026-11-01"


def test_every_line_of_the_ugly_reports() -> None:
    """An envelope of another vendor, all of whose quirks are declared."""
    rows = sample("dvir_ugly.jsonl", str(SAMPLES / "dvir_ugly.toml"))
    judged = judge(rows, RECORD_TYPES["dvir"], RECEIVED_MS)
    expected = [(line, verdict, told) for line, verdict, told, _ in DVIR]
    assert [one if one[1] != "duplicate" else (*one[:2], "") for one in _told(judged)] == expected
    by_line = {row.line: row.members or {} for row in rows}

    def unit(line: int, name: str) -> object:
        (found,) = by_line[line]["units"]  # type: ignore[misc]
        return found.get(name)  # type: ignore[attr-defined]

    assert unit(1, "vin") == "1ZZFAKE02R1000001"
    assert (unit(7, "legacy_serial"), unit(7, "vin")) == ("TX79H0042", None)
    assert unit(8, "unit_number") == "TL-22"
    assert by_line[9]["inspected_at"] == by_line[13]["inspected_at"] == "2026-11-03T11:42:09Z"
    assert (unit(25, "odometer_m"), unit(25, "odometer_source_unit")) == ("412338000", "km")
    assert by_line[19]["condition_source"] == "acceptable_2"
    assert by_line[29]["comment"] == "=2+3\nleft mirror 🚛"
    lines = (SAMPLES / "dvir_ugly.jsonl").read_text("utf-8").splitlines()
    assert [by_line[n].get("payload", lines[n - 1]) for n in range(1, 31)] == lines
