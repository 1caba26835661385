"""Reading NDJSON and CSV files: nothing lost, nothing joined, nothing guessed."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from connectors.errors import ConfigurationError
from connectors.files import FileRow, MalformedFile, SourceFile, find_files, read_records
from connectors.files import csv_cutter as csv_module
from connectors.files import ndjson as ndjson_module
from connectors.files.csv_rows import CsvFields

FIELDS = CsvFields(("employee_id", "gross_pay", "note", "earnings"), ("earnings",))


def rows_of(tmp_path: Path, content: bytes, name: str = "rows.csv") -> list[FileRow]:
    path = tmp_path / name
    path.write_bytes(content)
    return list(read_records(path))


def members(row: FileRow) -> object:
    assert row.error is None
    return json.loads(row.value)


# --- NDJSON ---------------------------------------------------------------------------------------


def test_each_line_of_ndjson_is_one_records_bytes(tmp_path: Path) -> None:
    """Bytes pass untouched, well-formed or not; blank lines are none; line numbers are kept."""
    content = b'{"a": 1}\r\n\n{"b" :2}\n\xff\xfe\n  \n{"c'
    rows = rows_of(tmp_path, content, "x.ndjson")
    assert [row.value for row in rows] == [b'{"a": 1}', b'{"b" :2}', b"\xff\xfe", b'{"c']
    assert [row.line for row in rows] == [1, 3, 4, 6]
    assert rows[-1].end_offset == len(content)


def test_a_byte_order_mark_is_the_files_not_the_records(tmp_path: Path) -> None:
    """Only at the file's beginning: inside, it is the record's own fault."""
    rows = rows_of(tmp_path, b"\xef\xbb\xbf{}\n\xef\xbb\xbf{}\n", "x.jsonl")
    assert [row.value for row in rows] == [b"{}", b"\xef\xbb\xbf{}"]


def test_a_line_without_end_refuses_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Memory is bounded: a line longer than any record is no line (G6)."""
    monkeypatch.setattr(ndjson_module, "ROW_BYTES_MAX", 100)
    with pytest.raises(MalformedFile, match="line 2: longer than 100 bytes"):
        rows_of(tmp_path, b"{}\n" + b"x" * 200, "x.ndjson")


# --- CSV: rows ------------------------------------------------------------------------------------


def test_a_row_becomes_an_object_of_strings_without_its_empty_cells(tmp_path: Path) -> None:
    """Cells are text as it stands; absent and empty are the same."""
    (row,) = rows_of(tmp_path, b"employee_id,gross_pay,note\nA10042,1000.00,\n")
    assert members(row) == {"employee_id": "A10042", "gross_pay": "1000.00"}
    assert row.value == b'{"employee_id":"A10042","gross_pay":"1000.00"}'


def test_quotes_commas_and_line_ends_inside_quotes_are_text(tmp_path: Path) -> None:
    """RFC 4180; the line of a row is where it begins."""
    content = b'a,b\n"x, ""y""","l1\nl2\r\nl3\rl4"\nlast,1\n'
    first, second = rows_of(tmp_path, content)
    assert members(first) == {"a": 'x, "y"', "b": "l1\nl2\r\nl3\rl4"}
    assert (first.line, second.line) == (2, 5)


def test_mixed_line_endings_end_rows_alike(tmp_path: Path) -> None:
    """LF, CR LF, a lone CR and the file's end each end a row; none are joined."""
    rows = rows_of(tmp_path, b"a,b\r\n1,2\n3,4\r5,6\r\n\r\n7,8")
    assert [members(row) for row in rows] == [
        {"a": "1", "b": "2"},
        {"a": "3", "b": "4"},
        {"a": "5", "b": "6"},
        {"a": "7", "b": "8"},
    ]


def test_a_row_with_other_columns_keeps_its_bytes_and_says_why(tmp_path: Path) -> None:
    """An unquoted thousands separator, or a row cut short, costs its own row only."""
    rows = rows_of(tmp_path, b"a,b\n1,1,234.56\nshort\n3,4\n")
    assert (rows[0].value, rows[0].error) == (b"1,1,234.56", "3 columns, the header has 2")
    assert (rows[1].value, rows[1].error) == (b"short", "1 columns, the header has 2")
    assert members(rows[2]) == {"a": "3", "b": "4"}


@pytest.mark.parametrize(
    ("line", "error"),
    [
        (b'1,O"Brien', "a quote inside a cell that is not quoted"),
        (b'1,"Big" Joe', "text after a closing quote"),
        (b'1,"a""b"c,"d"', "text after a closing quote"),
        (b"1,M\xfcller", "not UTF-8"),
    ],
)
def test_a_row_that_cannot_be_mapped_costs_itself_only(
    tmp_path: Path, line: bytes, error: str
) -> None:
    """Its bytes are published with the reason; the rows around it are read."""
    first, second, third = rows_of(tmp_path, b"a,b\n0,x\n" + line + b"\r\n2,y\n")
    assert (second.value, second.error) == (line, error)
    assert "Müller" not in error
    assert [members(first), members(third)] == [{"a": "0", "b": "x"}, {"a": "2", "b": "y"}]


def test_rows_without_content_are_none(tmp_path: Path) -> None:
    """Blank lines, and rows of empty cells that spreadsheets append, are left out."""
    assert rows_of(tmp_path, b"a,b\n\n,\n , \n   \n,,,\n") == []


def test_a_control_character_is_left_to_the_gate(tmp_path: Path) -> None:
    """What a cell holds is judged once, by the contract."""
    (row,) = rows_of(tmp_path, b"a,b\nx\x00y,2\n")
    assert members(row) == {"a": "x\x00y", "b": "2"}


# --- CSV: files that are refused ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "is empty"),
        (b"\n\n", "is empty"),
        (b"a,b,a\n1,2,3\n", "line 1: two columns are called 'a'"),
        (b"a,,c\n", "line 1: column 2 has no name"),
        (b'a,b"c\n', "line 1: the header cannot be read"),
        (b"a,\xff\n", "line 1: the header is not UTF-8"),
        (b'a,b\n1,2\n3,"open\n5,6\n', "line 3: a quote is opened here and never closed"),
        (b'a,b\n1,"late\n2,x\n3,"y"\n', "line 2: a quote opened here is closed on a later line"),
    ],
)
def test_a_file_that_cannot_be_cut_into_rows_is_refused(
    tmp_path: Path, content: bytes, why: str
) -> None:
    """Where rows begin, or what columns mean, is never guessed."""
    with pytest.raises(MalformedFile, match=f"malformed_file: .*{why}"):
        rows_of(tmp_path, content)


@pytest.mark.parametrize(
    ("header", "why"),
    [
        (b"employee_id,earnings", "column 'earnings' holds a list.*NDJSON"),
        (b"sep=;", "names no field of the contract.*employee_id, gross_pay, note"),
        (b"Fake Fleet Inc  Payroll export", "names no field of the contract"),
    ],
)
def test_a_header_that_is_not_of_the_contract_is_refused(
    tmp_path: Path, header: bytes, why: str
) -> None:
    """A title line, another separator or a list column is said at once, not row by row."""
    path = tmp_path / "x.csv"
    path.write_bytes(header + b"\nA10042,1\n")
    with pytest.raises(MalformedFile, match=why):
        list(read_records(path, FIELDS))


def test_a_row_without_end_refuses_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A quote that swallows the file is noticed before memory is full (G6)."""
    monkeypatch.setattr(csv_module, "ROW_BYTES_MAX", 2_000)
    monkeypatch.setattr(csv_module, "CHUNK_BYTES", 500)
    with pytest.raises(MalformedFile, match="line 2: a row of more than 2000 bytes"):
        rows_of(tmp_path, b'a\n"' + b"x\n" * 5_000 + b'"\n')


# --- CSV: laws ------------------------------------------------------------------------------------

cells = st.text(
    st.characters(codec="utf-8", exclude_characters="\x00", max_codepoint=0x2FF)
    | st.sampled_from('",\n\r" '),
    max_size=6,
)
tables = st.integers(1, 4).flatmap(
    lambda width: st.lists(st.lists(cells, min_size=width, max_size=width), max_size=8)
)


def written(table: list[list[str]], ending: str, quotes: str) -> bytes:
    """A table as CSV; cells that need quotes have them, others if `quotes` says so."""

    def cell(text: str) -> str:
        needed = any(character in text for character in '",\r\n')
        return '"' + text.replace('"', '""') + '"' if needed or quotes == "always" else text

    return "".join(",".join(map(cell, row)) + ending for row in table).encode()


@given(
    tables,
    st.sampled_from(["\n", "\r\n", "\r"]),
    st.integers(1, 40),
    st.sampled_from(["always", "needed"]),
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_cells_come_back_as_they_were_whatever_the_chunks(
    tmp_path: Path, table: list[list[str]], ending: str, chunk: int, quotes: str
) -> None:
    """For any table, line ending, quoting and chunk size; rows without content are left out."""
    names = [f"c{n}" for n in range(len(table[0]) if table else 1)]
    path = tmp_path / "t.csv"
    path.write_bytes(written([names, *table], ending, quotes))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(csv_module, "CHUNK_BYTES", chunk)
        rows = list(read_records(path))
    with_content = [row for row in table if any(text.strip() for text in row)]
    assert [members(row) for row in rows] == [
        {name: text for name, text in zip(names, row, strict=True) if text} for row in with_content
    ]


@given(st.binary(max_size=60), st.integers(1, 7))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_chunks_never_change_what_is_read(tmp_path: Path, tail: bytes, chunk: int) -> None:
    """Any bytes give the same rows, or the same refusal, however they are read."""
    path = tmp_path / "b.csv"
    path.write_bytes(b"a,b\n" + tail)

    def outcome(size: int) -> object:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(csv_module, "CHUNK_BYTES", size)
            try:
                return [(r.value, r.line, r.end_offset, r.error) for r in read_records(path)]
            except MalformedFile as error:
                return str(error)

    assert outcome(chunk) == outcome(1_000)


# --- Files and folders ----------------------------------------------------------------------------


def test_folders_give_their_files_in_order_and_each_file_once(tmp_path: Path) -> None:
    """Files of other kinds, states, manifests and subfolders are left; naming a file twice
    publishes it once."""
    beside = ("b.csv.weighbridge-publish.json", "b.manifest.json")
    for name in ("b.csv", "a.ndjson", "c.txt", "D.CSV", *beside):
        (tmp_path / name).write_bytes(b"")
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "e.csv").write_bytes(b"")
    found = find_files([tmp_path / "b.csv", tmp_path])
    assert [path.name for path in found] == ["b.csv", "D.CSV", "a.ndjson"]


def test_paths_that_lead_nowhere_are_named(tmp_path: Path) -> None:
    """What is not there, of another kind, or empty is said before anything is published."""
    for name in ("x.txt", "x.manifest.json"):
        (tmp_path / name).write_bytes(b"")
    (tmp_path / "empty").mkdir()
    for path, why in (
        ("gone.csv", "neither a file nor a folder"),
        ("x.txt", "must end in .ndjson"),
        ("x.manifest.json", "and not in"),
        ("empty", "holds no .ndjson"),
    ):
        with pytest.raises(ConfigurationError, match=why):
            find_files([tmp_path / path])


def test_a_file_is_checked_whole_and_then_read_as_it_was_checked(tmp_path: Path) -> None:
    """Rows added between the two readings are not published; rows changed are noticed."""
    path = tmp_path / "x.csv"
    path.write_bytes(b"a,b\n1,2\nbad\n")
    with SourceFile(path) as source:
        checked = source.check()
        assert (checked.rows, checked.malformed) == (2, 1)
        with path.open("ab") as file:
            file.write(b"3,4\n")
        assert [row.line for row in source.rows(checked)] == [2, 3]
        path.write_bytes(b"a,b\n")
        with pytest.raises(MalformedFile, match="was changed"):
            list(source.rows(checked))


def test_a_file_is_recognised_by_its_content(tmp_path: Path) -> None:
    """Digests of all and of a part, and where its rows begin after so many lines."""
    path = tmp_path / "x.csv"
    content = b"first\nsecond\r\nthird!"
    path.write_bytes(content)
    with SourceFile(path) as source:
        identity = source.identity()
        assert (identity.size_bytes, identity.sha256) == (20, hashlib.sha256(content).hexdigest())
        assert [source.after_lines(count) for count in (0, 1, 2, 3, 4)] == [0, 6, 14, 20, 20]
        assert source.sha256(6, 14) == hashlib.sha256(b"second\r\n").hexdigest()
        assert source.sha256(14, 99) == hashlib.sha256(b"third!").hexdigest()


def test_a_file_that_cannot_be_opened_is_refused(tmp_path: Path) -> None:
    """What the system says is named by kind."""
    with pytest.raises(MalformedFile, match=r"cannot be read \(FileNotFoundError\)"):
        SourceFile(tmp_path / "gone.csv")
