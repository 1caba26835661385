"""CSV through profiles: dialects, headers, what is no record, totals, reversals."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.errors import ConfigurationError
from connectors.files import FileRow, MalformedFile, SourceFile
from connectors.files import csv_cutter as cutter_module
from connectors.profiles import Profile, check_profile, load_profile, shipped_profiles
from tests.connectors.profile_tools import SAMPLES, rows_of

HEAD = """
profile_version = 1
about = "a test"
format = "csv"
record_type = "payroll"
"""
FIELDS = """
[fields]
employee_id = { from = "id" }
gross_pay = { from = "gross", number = "us" }
[numbers.us]
group = [","]
negative = ["leading", "brackets"]
"""


def profile_of(tmp_path: Path, text: str, head: str = HEAD) -> Profile:
    path = tmp_path / "p.toml"
    path.write_text(head + text, encoding="utf-8")
    return load_profile(str(path))


def members(rows: list[FileRow]) -> list[object]:
    return [json.loads(row.value) if row.error is None else row.error for row in rows]


def read(tmp_path: Path, text: str, content: bytes) -> list[object]:
    return members(rows_of(profile_of(tmp_path, text), content))


# --- Dialects -------------------------------------------------------------------------------------


def test_delimiter_quote_and_encoding_are_declared(tmp_path: Path) -> None:
    """Tabs, single quotes and cp1252; line endings may be mixed as ever."""
    csv = "[csv]\ndelimiter = '\\t'\nquote = \"'\"\nencoding = 'cp1252'\nother_columns = 'keep'\n"
    csv = csv.replace("'\\t'", '"\\t"')
    content = "id\tgross\tnote\r\nA\t'1,000'\t'it''s\nMüller €'\rB\t5\t\"x\n".encode("cp1252")
    assert read(tmp_path, csv + FIELDS, content) == [
        {"employee_id": "A", "gross_pay": "1000", "note": "it's\nMüller €"},
        {"employee_id": "B", "gross_pay": "5", "note": '"x'},
    ]


def test_a_source_that_quotes_nothing(tmp_path: Path) -> None:
    """Quotes are text, and never open a cell."""
    content = b'id;gross\n"A;5\r6"" x";7\n'
    csv = '[csv]\ndelimiter = ";"\nquote = ""\n'
    assert read(tmp_path, csv + FIELDS, content) == [
        {"employee_id": '"A', "gross_pay": "5"},
        {"employee_id": '6"" x"', "gross_pay": "7"},
    ]


def test_bytes_outside_the_encoding_cost_their_row(tmp_path: Path) -> None:
    """The row keeps them; the rows around it are read."""
    rows = rows_of(profile_of(tmp_path, FIELDS), b"id,gross\nA\xff,1\nB,2\n")
    assert [row.error for row in rows] == ["not UTF-8", None]
    assert rows[0].value == b"A\xff,1"
    csv = '[csv]\nencoding = "cp1252"\n'
    rows = rows_of(profile_of(tmp_path, csv + FIELDS), b"id,gross\nA\x81,1\n")
    assert rows[0].error == "not CP1252"


@given(st.binary(max_size=60), st.integers(1, 7))
def test_chunks_never_change_what_a_profile_reads(tail: bytes, chunk: int) -> None:
    """Any bytes give the same rows, or the same refusal, however they are read."""
    profile = load_profile(str(SAMPLES / "payroll_ugly_eu.toml"))
    header = b"\n".join((SAMPLES / "payroll_ugly_eu.csv").read_bytes().splitlines()[:2]) + b"\n"

    def outcome(size: int) -> object:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(cutter_module, "CHUNK_BYTES", size)
            try:
                found = rows_of(profile, header + tail.replace(b"a", b";"))
                return [(r.value, r.line, r.end_offset, r.error) for r in found]
            except MalformedFile as error:
                return str(error)

    assert outcome(chunk) == outcome(1_000) == outcome(1_000)


# --- Headers --------------------------------------------------------------------------------------

SEP = '[csv]\nsep_line = true\ndelimiter = ";"\n'
THIRD = "[csv]\nheader_line = 3\n"


@pytest.mark.parametrize(
    ("csv", "content"),
    [
        ("", b"\xef\xbb\xbfid,gross\nA,5\n"),
        (SEP, b"\xef\xbb\xbfsep=;\r\nid;gross\nA;5\n"),
        (THIRD, b"Title, with a comma\n\nid,gross\nA,5\n"),
        (THIRD, b'A "title"\nanother\nid,gross\nA,5\n'),
        ('[csv]\nheader_names = "loose"\n', b" ID ,Gross\nA,5\n"),
        ('[csv]\nother_columns = "drop"\n', b"id,gross,,x,x\nA,5,1,2,3\n"),
    ],
)
def test_a_declared_header_is_found(tmp_path: Path, csv: str, content: bytes) -> None:
    """Where and as the profile says."""
    assert read(tmp_path, csv + FIELDS, content) == [{"employee_id": "A", "gross_pay": "5"}]


@pytest.mark.parametrize(
    ("csv", "content", "why"),
    [
        ("", b"", "line 1: .*none begins"),
        ("", b"\nid,gross\n", "line 1: .*none begins"),
        ("", b"Title\nid,gross\n", "line 1: no column 'id'"),
        ("", b"id,Gross\n", "no column 'gross'"),
        ("", b"id,gross,id\n", "2 columns are called 'id': occurrence"),
        ("", b"id,gross,x\n", "does not name: 'x'; other_columns"),
        ("", b'id,"gro"ss\n', "the header cannot be read"),
        ("", b"id,gross\xff\n", "the header is not UTF-8"),
        (SEP, b"id;gross\nA;5\n", "line 1: the profile declares a first line sep=;"),
        (SEP, b"sep=,\nid;gross\n", "sep=;"),
        (THIRD, b"Title\n", "line 3: .*none begins"),
        (THIRD, b'Title\n"two\nlines"\nid,gross\n', "line 3: .*none begins"),
        ('[csv]\nheader_names = "loose"\n', b"id,ID,gross\n", "2 columns are called 'id'"),
        ('[csv]\nother_columns = "keep"\n', b"id,gross,\n", "column 3 has no name"),
        ('[csv]\nother_columns = "keep"\n', b"id,gross,x,x\n", "cannot be kept under its name"),
        ('[csv]\nother_columns = "keep"\n', b"id,gross,net_pay\n", "does not map it"),
    ],
)
def test_another_header_refuses_the_file(
    tmp_path: Path, csv: str, content: bytes, why: str
) -> None:
    """What columns mean is never guessed; the message says what to declare."""
    with pytest.raises(MalformedFile, match=why):
        read(tmp_path, csv + FIELDS, content)


def test_aliases_and_optional_columns() -> None:
    """One of the names must be there, and one only."""
    strict = load_profile("payroll-csv")
    header = "employee_id,period_start,pay_period_end,source_run_id,gross_pay,work_location"
    (row,) = rows_of(strict, f"{header},site\nA,1,2,R,5,US-OH,x\n".encode())
    assert row.members == {
        "employee_id": "A",
        "pay_period_start": "1",
        "pay_period_end": "2",
        "source_run_id": "R",
        "gross_pay": "5",
        "tax_jurisdiction": "US-OH",
        "site": "x",
    }
    with pytest.raises(MalformedFile, match="'tax_jurisdiction' and 'work_location' mean the same"):
        rows_of(strict, f"{header},tax_jurisdiction\n".encode())
    with pytest.raises(MalformedFile, match="no column 'gross_pay'"):
        rows_of(strict, header.replace("gross_pay", "gross").encode() + b"\n")


# --- Cells ----------------------------------------------------------------------------------------


def test_constants_defaults_templates_and_words(tmp_path: Path) -> None:
    """All declared; an unknown word is refused unless something stands for it."""
    text = """
[fields]
employee_id = { from = "id", lookup = "people", take = "ours" }
source_run_id = { template = "acme/{company}/{run}" }
statement_type = { from = "kind", map = "kind", default = "regular" }
currency = { const = "USD" }
pay_group = { from = "group", optional = true, default = "ALL" }
pay_code = { from = "code", map = "code" }
[maps.kind]
ignore_case = true
words = { BONUS = "off_cycle" }
[maps.code]
keep_others = true
words = { "1" = "REG" }
[lookups.people]
format = "csv"
key = "theirs"
"""
    (tmp_path / "p.toml").write_text(HEAD + text, encoding="utf-8")
    (tmp_path / "people.csv").write_text("theirs,ours\n7,EMP007\n8,\n", encoding="utf-8")
    profile = load_profile(str(tmp_path / "p.toml"), {"people": tmp_path / "people.csv"})
    rows = rows_of(
        profile,
        b"id,company,run,kind,code\n7,001,R1,bonus,1\n7,001,R1,,x\n9,001,R1,,x\n"
        b"7,0/1,R1,,x\n7,001, R1,,x\n7,001,R1,gift,x\n8,1,R,,x\n",
    )
    common = {"employee_id": "EMP007", "currency": "USD", "pay_group": "ALL"}
    run = {"source_run_id": "acme/001/R1"}
    template = (
        "source_run_id: made as acme/{company}/{run}, each part present, without outer blanks or "
        "a slash"
    )
    assert members(rows) == [
        {**common, **run, "statement_type": "off_cycle", "pay_code": "REG"},
        {**common, **run, "statement_type": "regular", "pay_code": "x"},
        "employee_id: in the look-up people",
        template,
        template,
        "statement_type: a word of the map kind",
        {
            "currency": "USD",
            "pay_group": "ALL",
            "source_run_id": "acme/1/R",
            "statement_type": "regular",
            "pay_code": "x",
        },
    ]


def test_an_undeclared_oddity_is_left_to_the_gate(tmp_path: Path) -> None:
    """Only a declared conversion can find a row unmappable."""
    fields = '[fields]\nemployee_id = { from = "id" }\ngross_pay = { from = "gross" }\n'
    content = b"id,gross\n 7 ,NaN\n"
    assert read(tmp_path, fields, content) == [{"employee_id": " 7 ", "gross_pay": "NaN"}]


def test_a_row_that_cannot_be_mapped_names_its_field_and_keeps_its_bytes(tmp_path: Path) -> None:
    """Raw text may mean something else to the gate; the value is not told."""
    rows = rows_of(profile_of(tmp_path, FIELDS), b'id,gross\n"A",12.3.4\nB,2\n')
    assert rows[0].value == b'"A",12.3.4'
    assert rows[0].error == "gross_pay: an amount as declared, such as 1,234.56"
    assert rows[1].error is None


# --- Reversals ------------------------------------------------------------------------------------

REVERSALS = """
[fields]
employee_id = { from = "id" }
statement_type = { from = "type" }
gross_pay = { from = "gross", number = "us" }
[numbers.us]
negative = ["leading", "brackets"]
[reversals]
types = ["reversal"]
fields = ["gross_pay"]
[[totals]]
cells = { id = "Total" }
sums = ["gross_pay"]
"""


def test_a_source_that_writes_reversals_negative(tmp_path: Path) -> None:
    """They become magnitudes; a positive one contradicts the declaration; others stay negative for
    the gate to refuse; totals are the source's own, with its signs."""
    content = b"id,type,gross\nA,reversal,-5\nB,reversal,(6)\nC,regular,-7\nD,reversal,0\n"
    found = read(tmp_path, REVERSALS, content + b"Total,,-18\n")
    assert [one["gross_pay"] for one in found] == ["5", "6", "-7", "0"]  # type: ignore[index]
    found = read(tmp_path, REVERSALS, b"id,type,gross\nA,reversal,5\n")
    assert found == ["gross_pay: negative in a row that reverses, as the profile declares"]


# --- What is no record ----------------------------------------------------------------------------

TOTALS = (
    FIELDS
    + """
[[totals]]
cells = { id = "Total" }
sums = ["gross_pay"]
"""
)
TRAILER = FIELDS + '[[trailers]]\ntext = "END"\nlast = true\n'


def test_a_totals_row_is_compared(tmp_path: Path) -> None:
    """It agrees exactly, or the file is refused before anything of it is sent."""
    rows = b"id,gross\nA,0.10\nB,0.20\n"
    assert len(read(tmp_path, TOTALS, rows + b'Total,"0.3"\n')) == 2
    assert len(read(tmp_path, TOTALS, rows + b"Totals,0.4\n")) == 3  # not known by this text
    path = tmp_path / "x.csv"
    path.write_bytes(rows + b"Total,0.31\n")
    profile = profile_of(tmp_path, TOTALS)
    with (
        SourceFile(path, profile=profile) as source,
        pytest.raises(MalformedFile, match=r"line 4: .* disagrees with the sum of gross_pay"),
    ):
        source.check()
    with pytest.raises(MalformedFile, match="the totals row cannot be read: an amount"):
        read(tmp_path, TOTALS, rows + b"Total,\n")


def test_a_total_over_rows_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    """It is neither believed nor refused: the rows themselves get their verdicts."""
    path = tmp_path / "x.csv"
    path.write_bytes(b"id,gross\nA,x\nB,1,2\nTotal,7\n")
    with SourceFile(path, profile=profile_of(tmp_path, TOTALS)) as source:
        checked = source.check()
    assert (checked.rows, checked.malformed) == (2, 2)
    assert checked.remarks == (
        "line 4: the total of gross_pay is not compared: rows that cannot be read: 2",
    )


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"id,gross\nA,5\n", "a last row that is not there"),
        (b"id,gross\nA,5\nEND\nB,6\n", "line 4: a row after the declared last one"),
        (b"id,gross\nA,5\nEND,6\n", "a last row that is not there"),
    ],
)
def test_a_declared_last_row_must_be_there(tmp_path: Path, content: bytes, why: str) -> None:
    """A file cut short is not published as if it were whole."""
    assert len(read(tmp_path, TRAILER, b"id,gross\nA,5\nEND,\n\n,\n")) == 1
    with pytest.raises(MalformedFile, match=why):
        read(tmp_path, TRAILER, content)


def test_a_final_newline_may_be_demanded(tmp_path: Path) -> None:
    """So that a file cut inside its last row is noticed."""
    csv = '[csv]\nfinal_newline = "require"\n'
    assert len(read(tmp_path, csv + FIELDS, b"id,gross\nA,5\r")) == 1
    with pytest.raises(MalformedFile, match="no line ending"):
        read(tmp_path, csv + FIELDS, b"id,gross\nA,5")


# --- Profile files that are refused ---------------------------------------------------------------

JSON = HEAD.replace('"csv"', '"json"').replace("payroll", "dvir")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[fields", r"p\.toml: "),
        ("[fields]\n", "fields: "),
        ('[fields]\nemployee_id = { form = "x" }\n', r"fields\.employee_id\.form: no such key"),
        ("[fields]\nemployee_id = { }\n", "exactly one of from, const, template; here: none"),
        ('[fields]\nemployee_id = { from = "a", const = "b" }\n', "here: from, const"),
        ('[fields]\nemployee = { from = "a" }\n', "employee is no field .* extra = true"),
        ('[fields]\nearnings = { from = "a" }\n', "earnings is no field .* that a cell can hold"),
        ('[fields]\nhours = { from = "a", extra = true }\n', "extra is for members"),
        ('[fields]\nhours = { from = "a", number = "x" }\n', r"fields\.hours: numbers\.x is not"),
        ('[fields]\nhours = { from = "a", map = "m", date = "d" }\n', "map and date exclude"),
        ('[fields]\nhours = { from = "a", lookup = "m" }\n', "lookup and take go together"),
        ('[fields]\nhours = { from = "a", lookup = "m", take = "t" }\n', "lookups.m is not decl"),
        ('[fields]\nhours = { template = "x" }\n', "a template has {names}"),
        ("[fields]\nhours = { const = 1, optional = true }\n", "are for a field with from"),
        (FIELDS + '[dates.d]\nforms = ["MM/DD/YY"]\n', r"dates\.d: .*declare pivot"),
        (FIELDS + 'decimal = ","\n', "decimal and group are the same mark"),
        (FIELDS + "implied_decimals = 2\n", "implied_decimals excludes decimal and group"),
        (FIELDS + 'currency = ["5"]\n', "holds a digit"),
        (FIELDS + 'colour = "red"\n', r"numbers\.us\.colour: no such key"),
        (FIELDS + '[times.t]\nforms = ["rfc3339"]\nzone = "UTC"\n', "zone is for naive"),
        (FIELDS + '[times.t]\nforms = ["naive"]\nzone = "Mars"\n', "is not a time zone"),
        (FIELDS + '[maps.m]\nwords = { A = "a", a = "b" }\nignore_case = true\n', "in case only"),
        (FIELDS + '[maps.m]\nwords = { A = "a" }\notherwise = "b"\nkeep_others = true\n', "excl"),
        (FIELDS + '[lookups.l]\nformat = "csv"\n', "a CSV look-up declares key"),
        (FIELDS + '[lookups.l]\nformat = "json"\nkey = "k"\n', "a JSON look-up declares rows"),
        (FIELDS + '[csv]\ndelimiter = ";;"\n', r"csv\.delimiter"),
        (FIELDS + '[csv]\nquote = ","\n', r"csv\.quote"),
        (FIELDS + '[csv]\ndelimiter = "\'"\nquote = "\'"\n', "are the same mark"),
        (FIELDS + '[csv]\nencoding = "utf-16"\n', r"csv\.encoding"),
        (FIELDS + "[csv]\nsep_line = true\nheader_line = 1\n", "is the sep= line"),
        (FIELDS + '[[totals]]\ncells = { id = "T" }\nsums = ["hours"]\n', "hours is summed"),
        (FIELDS + '[reversals]\ntypes = ["v"]\nfields = ["gross_pay"]\n', "is not a field"),
    ],
)  # fmt: skip
def test_a_profile_with_a_fault_is_refused_by_name(tmp_path: Path, text: str, why: str) -> None:
    """An unknown key, a contradiction or a missing declaration: said before any file is read."""
    with pytest.raises(ConfigurationError, match=why):
        profile_of(tmp_path, text)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('[fields]\nvin = { from = "v" }\n', "vin is no field"),
        ('[fields]\ndriver_id = { from = "a..b" }\n', r"fields\.driver_id: path 'a\.\.b'"),
        ('[fields]\ndriver_id = { from = "^.a" }\n', "goes above the report"),
        ('[fields]\ndriver_id = { from = "a[]" }\n', "not ask for every element"),
        ('[fields]\ndriver_id = { verbatim = true, from = "a" }\n', "here: from, verbatim"),
        ('[fields]\ndriver_id = { from = "a", unit_missing = "unconverted" }\n', "unit_missing is"),
        ('[fields]\ndriver_id = { from = "a", unit = "mi", unit_from = "b" }\n', "exclude"),
        ('[fields]\ndriver_id = { from = "a", unit = "ft" }\n', r"driver_id\.unit"),
        ('[fields]\ndriver_id = { from = "a", zone_from = "b" }\n', "zone_from is for"),
        ('[fields]\ndriver_id = { from = "a", if = { b = { maybe = true } } }\n', "condition on"),
        ('[fields]\nsource = { const = "s" }\n[identity]\nsource = "s"\nreport_id = "id"\n',
         "identity makes source"),
        ('[fields]\n[identity]\nsource = "s"\nreport_id = "a["\n', "identity: path"),
        ('[fields]\n[document]\nunwrap = "r"\n', "declare document.records"),
        ('[fields]\n[document]\nrecords = "a..b"\n', "names joined by dots"),
        ('[fields]\n[[list.units]]\n[list.units.fields]\ncolour = { const = "x" }\n',
         "list.units: colour is no field"),
        ('[fields]\n[[list.defects]]\neach = "d"\n[list.defects.fields]\npart = { const = "x" }\n',
         r"list\.defects\.each: .*every element"),
        ('[fields]\n[[list.defects]]\nrefers = { unit = "v" }\nfields.part.const = "x"\n',
         "refers to 'v'"),
        ("[fields]\n[[list.units]]\nfields.vin.verbatim = true\n", "verbatim is for"),
        ('[fields]\n[object.certificate]\n[object.certificate.fields]\nby = { const = "x" }\n',
         "certificate is no field"),
    ],
)  # fmt: skip
def test_a_json_profile_with_a_fault_is_refused_by_name(
    tmp_path: Path, text: str, why: str
) -> None:
    """As for CSV."""
    with pytest.raises(ConfigurationError, match=why):
        profile_of(tmp_path, text, JSON)


def test_an_identity_is_for_reports(tmp_path: Path) -> None:
    """Payroll derives its key: a connector makes none."""
    text = '[fields]\n[identity]\nsource = "s"\nreport_id = "id"\n'
    with pytest.raises(ConfigurationError, match="records that have a report_id"):
        profile_of(tmp_path, text, HEAD.replace('"csv"', '"json"'))


def test_heads_of_profiles(tmp_path: Path) -> None:
    """Format, record type and version are known ones; a profile's file is there and small."""
    for change, why in (
        (('"csv"', '"xml"'), 'format is "csv" or "json"'),
        (('"payroll"', '"invoices"'), "record_type is one of dvir, payroll"),
        (("version = 1", "version = 2"), "profile_version"),
    ):
        with pytest.raises(ConfigurationError, match=why):
            profile_of(tmp_path, FIELDS, HEAD.replace(*change))
    with pytest.raises(ConfigurationError, match=r"no profile 'gone.toml': .*samsara-v1"):
        load_profile("gone.toml")
    (tmp_path / "big.toml").write_bytes(b"#" * 1_048_577)
    with pytest.raises(ConfigurationError, match="more than 1048576 bytes"):
        load_profile(str(tmp_path / "big.toml"))


@pytest.mark.parametrize("name", shipped_profiles())
def test_shipped_profiles_are_whole(name: str) -> None:
    """Each compiles, says what it reads, and is written for people to copy."""
    found = check_profile(name)
    assert found.about.endswith(".")
    assert found.record_type.name in {"payroll", "dvir"}


# --- Look-up files --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"a,b\n1,2\n", "it has no column 'theirs'"),
        (b"theirs,ours\n1,2\n1,3\n", "row 2 has a key that an earlier row has too"),
        (b"theirs,ours\n1,2,3\n", "other columns than the header"),
        (b"theirs,ours\n1\n", "other columns than the header"),
        (b"theirs,ours\n\xff,1\n", "is not as the profile declares"),
        (b'theirs,ours\n"1,2\n', "is not as the profile declares"),
        (None, "cannot be read"),
    ],
)
def test_a_look_up_file_with_a_fault_is_refused(
    tmp_path: Path, content: bytes | None, why: str
) -> None:
    """By its name, before any record is read."""
    text = (
        '[fields]\nemployee_id = { from = "id", lookup = "people", take = "ours" }\n'
        '[lookups.people]\nformat = "csv"\nkey = "theirs"\n'
    )
    (tmp_path / "p.toml").write_text(HEAD + text, encoding="utf-8")
    if content is not None:
        (tmp_path / "people.csv").write_bytes(content)
    with pytest.raises(ConfigurationError, match=f"look-up people: .*{why}"):
        load_profile(str(tmp_path / "p.toml"), {"people": tmp_path / "people.csv"})
