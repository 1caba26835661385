"""Files of records: what is written is read back by other hands, by value, exactly."""

from __future__ import annotations

import csv
import io
import json
import os
import stat
import tempfile
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from connectors.errors import ConfigurationError, Stop
from connectors.export import FORMATS, Format, format_of, row_writer
from connectors.export.arrow_types import arrow_type
from connectors.export.new_file import NewFile
from connectors.export.text_files import NEUTRALISED
from schemas.avro_strict import SINGLE_OBJECT_HEAD_BYTES, AvroSchema
from schemas.columns import Column, Kind, Scalar, columns_of, mask, masked_paths, row_reader
from schemas.masking import MASK, Shown
from schemas.record_type import RecordType
from schemas.record_types import RECORD_TYPES
from tests.replaying.generated import TEXTS, data, encoded, from_json, from_text

TYPES = list(RECORD_TYPES.values())
SOME = settings(
    max_examples=12,
    suppress_health_check=[HealthCheck.too_slow],
    phases=[Phase.explicit, Phase.generate],  # shrinking events of this size takes minutes
)


def written(chosen: Format, columns: tuple[Column, ...], rows: list[dict[str, Any]]) -> bytes:
    out = io.BytesIO()
    writer = row_writer(chosen, out, columns)
    writer.write(rows)
    writer.finish()
    return out.getvalue()


def events(record_type: RecordType, draw: st.DrawFn) -> tuple[list[Any], list[dict[str, Any]]]:
    """What the strict decoder yields of some events, and the rows of them."""
    schema = record_type.committed_schemas[-1]
    values = [encoded(schema, one) for one in draw(st.lists(data(schema), max_size=3))]
    read = row_reader(schema, schema)
    return [schema.decode(v, SINGLE_OBJECT_HEAD_BYTES) for v in values], [read(v) for v in values]


def arrow_types(name: str) -> dict[str, Any]:
    """Column name to Arrow type of a record type's committed schema."""
    columns = columns_of(RECORD_TYPES[name].committed_schemas[-1])
    return {column.name: arrow_type(column.type) for column in columns}


# --- Types ----------------------------------------------------------------------------------------


def test_types_of_payroll_are_exact() -> None:
    """Money keeps its precision and scale, dates are dates, lists are lists of structs."""
    found = arrow_types("payroll")
    line = pa.struct(
        [
            pa.field("code", pa.string()),
            pa.field("amount", pa.decimal128(14, 2)),
            pa.field("ytd", pa.decimal128(14, 2)),
        ]
    )
    assert found["gross_pay"] == found["net_pay"] == pa.decimal128(14, 2)
    assert found["hours"] == pa.decimal128(9, 4)
    assert found["pay_date"] == pa.date32()
    assert found["statement_type"] == pa.string()
    assert found["offset"] == pa.int64()
    assert found["earnings"] == found["taxes"] == pa.list_(line)
    assert found["rule_ids"] == pa.list_(pa.string())
    assert found["raw_digest"] == pa.binary()


def test_types_of_dvir_are_exact() -> None:
    """Instants are microseconds in UTC, structs may be null."""
    found = {
        c.name: arrow_type(c.type) for c in columns_of(RECORD_TYPES["dvir"].committed_schemas[-1])
    }
    assert found["inspected_at"] == found["received_at"] == pa.timestamp("us", tz="UTC")
    assert found["certification"].field("at").type == pa.timestamp("us", tz="UTC")
    assert found["units"].value_type.field("odometer_m").type == pa.decimal128(14, 3)
    assert found["defects"].value_type.field("regulated").type == pa.bool_()
    assert found["critical"] == pa.bool_()


@pytest.mark.parametrize(
    "text",
    [
        '["null", "int", "string"]',
        '{"type": "long", "logicalType": "timestamp-millis"}',
        '{"type": "record", "name": "S", "fields": [{"name": "s", "type": ["null", "S"]}]}',
    ],
)
def test_what_no_column_can_hold_is_refused(text: str) -> None:
    """Rather than guessed at."""
    schema = f'{{"type": "record", "name": "R", "fields": [{{"name": "f", "type": {text}}}]}}'
    with pytest.raises(ValueError, match=r"column|unions"):
        columns_of(AvroSchema.from_text(schema))


# --- Read back ------------------------------------------------------------------------------------


@pytest.mark.parametrize("record_type", TYPES, ids=lambda t: t.name)
@SOME
@given(drawn=st.data())
def test_jsonl_is_read_back_exactly(record_type: RecordType, drawn: st.DataObject) -> None:
    """Every value, by a JSON parser that knows nothing of us."""
    decoded, rows = drawn.draw(st.composite(lambda draw: events(record_type, draw))())
    columns = columns_of(record_type.committed_schemas[-1])
    lines = written("jsonl", columns, rows).decode().split("\n")
    assert lines.pop() == ""
    found = [
        {c.name: from_json(c.type, json.loads(line)[c.name]) for c in columns} for line in lines
    ]
    assert found == decoded


@pytest.mark.parametrize("record_type", TYPES, ids=lambda t: t.name)
@SOME
@given(drawn=st.data())
def test_csv_is_read_back_exactly(record_type: RecordType, drawn: st.DataObject) -> None:
    """Every value, null and empty text told apart, the mark before a formula taken off."""
    decoded, rows = drawn.draw(st.composite(lambda draw: events(record_type, draw))())
    columns = columns_of(record_type.committed_schemas[-1])
    content = written("csv", columns, rows)
    cells = list(csv.reader(io.StringIO(content.decode(), newline="")))
    assert cells[0] == [c.name for c in columns]
    with tempfile.NamedTemporaryFile(suffix=".csv") as file:
        file.write(content)
        file.flush()
        told_apart = duckdb.execute(
            "SELECT * FROM read_csv(?, header=true, auto_detect=false, columns=?, delim=',', "
            "quote='\"', escape='\"', allow_quoted_nulls=false, parallel=false)",
            [file.name, {c.name: "VARCHAR" for c in columns}],
        ).fetchall()
    found = []
    for line, other in zip(cells[1:], told_apart, strict=True):
        assert [one or "" for one in other] == line
        found.append({c.name: _of_cell(c, one) for c, one in zip(columns, other, strict=True)})
    assert found == decoded


def _of_cell(column: Column, cell: str | None) -> Any:
    if cell is None:
        return None
    if not isinstance(column.type, Scalar):
        return from_json(column.type, json.loads(cell))
    if column.type.kind is Kind.TEXT and NEUTRALISED.match(cell):
        return cell[1:]
    return from_text(column.type, cell)


@pytest.mark.parametrize("record_type", TYPES, ids=lambda t: t.name)
@SOME
@given(drawn=st.data())
def test_parquet_is_read_back_exactly(record_type: RecordType, drawn: st.DataObject) -> None:
    """Every value, typed."""
    decoded, rows = drawn.draw(st.composite(lambda draw: events(record_type, draw))())
    columns = columns_of(record_type.committed_schemas[-1])
    found = pq.read_table(io.BytesIO(written("parquet", columns, rows)))
    assert found.to_pylist() == decoded


def test_duckdb_adds_up_to_the_cent(tmp_path: Path) -> None:
    """A reader that is not pyarrow sees decimals, not floating point."""
    schema = RECORD_TYPES["payroll"].committed_schemas[-1]
    datum, amounts = _example(), [Decimal(f"{n}.{n % 100:02d}") for n in range(1_000)]
    read = row_reader(schema, schema)
    rows = [read(encoded(schema, {**datum, "gross_pay": amount})) for amount in amounts]
    path = tmp_path / "x.parquet"
    path.write_bytes(written("parquet", columns_of(schema), rows))
    asked = "SELECT sum(gross_pay), typeof(any_value(gross_pay)) FROM read_parquet(?)"
    assert duckdb.execute(asked, [str(path)]).fetchone() == (sum(amounts), "DECIMAL(14,2)")


def _example() -> dict[str, Any]:
    from tests.replaying.events import event

    one = event("A10042")
    schema = RECORD_TYPES["payroll"].committed_schemas[-1]
    found = schema.decode(one.value, SINGLE_OBJECT_HEAD_BYTES)
    assert isinstance(found, dict)
    return found


@pytest.mark.parametrize("chosen", FORMATS)
def test_the_same_rows_give_the_same_bytes(chosen: Format) -> None:
    """Nothing in a file depends on when or where it was written."""
    schema = RECORD_TYPES["payroll"].committed_schemas[-1]
    rows = [row_reader(schema, schema)(encoded(schema, _example()))] * 50
    first, second = (written(chosen, columns_of(schema), rows) for _ in range(2))
    assert first == second


@pytest.mark.parametrize("chosen", FORMATS)
def test_a_decimal_beyond_its_digits_is_refused(chosen: Format) -> None:
    """A file never holds what its column does not declare."""
    columns = (Column("amount", Scalar(Kind.DECIMAL, 4, 2)),)
    with pytest.raises(ValueError, match="at most 4 digits"):
        written(chosen, columns, [{"amount": (10_000).to_bytes(3, "big")}])


# --- Formulas -------------------------------------------------------------------------------------


@given(TEXTS)
def test_no_cell_of_text_is_a_formula(text: str) -> None:
    """And the rule to read it back gives the same text."""
    content = written("csv", (Column("t", Scalar(Kind.TEXT)),), [{"t": text}]).decode()
    ((_,), (cell,)) = csv.reader(io.StringIO(content, newline=""))
    assert not cell.startswith(("=", "+", "-", "@", "\t", "\r", "\n"))
    assert (cell[1:] if NEUTRALISED.match(cell) else cell) == text


@given(st.integers(-(10**14) + 1, 10**14 - 1))
def test_numbers_are_never_touched(cents: int) -> None:
    """A negative amount begins with its sign and nothing else."""
    columns = (Column("amount", Scalar(Kind.DECIMAL, 14, 2)), Column("n", Scalar(Kind.LONG)))
    row = {"amount": cents.to_bytes(8, "big", signed=True), "n": cents}
    cells = written("csv", columns, [row]).decode().split("\n")[1].split(",")
    assert cells == [str(Decimal(cents).scaleb(-2)), str(cents)]


# --- Masking --------------------------------------------------------------------------------------


@pytest.mark.parametrize("record_type", TYPES, ids=lambda t: t.name)
@SOME
@given(drawn=st.data())
def test_masked_files_agree_with_the_record_type(
    record_type: RecordType, drawn: st.DataObject
) -> None:
    """JSONL holds what `Shown.masked` says, CSV the same, Parquet null in its place."""
    decoded, rows = drawn.draw(st.composite(lambda draw: events(record_type, draw))())
    columns = mask(columns_of(record_type.committed_schemas[-1]), record_type.shown)
    lines = written("jsonl", columns, rows).decode().split("\n")[:-1]
    table = pq.read_table(io.BytesIO(written("parquet", columns, rows))).to_pylist()
    cells = list(csv.DictReader(io.StringIO(written("csv", columns, rows).decode(), newline="")))
    for members, line, row, cell in zip(decoded, lines, table, cells, strict=True):
        masked = record_type.shown.masked(members)
        found = {c.name: _unless_masked(c, json.loads(line)[c.name]) for c in columns}
        assert found == masked
        assert row == _nulled(masked)
        for column in columns:
            if isinstance(column.type, Scalar) and column.type.masked:
                assert cell[column.name] == ("" if members[column.name] is None else MASK)


def _unless_masked(column: Column, value: Any) -> Any:
    """As `from_json`, masks left as they are."""
    return _read_masked(column.type, value)


def _read_masked(kind: Any, value: Any) -> Any:
    if isinstance(kind, Scalar):
        return value if value is None or kind.masked else from_json(kind, value)
    if isinstance(value, list):
        return [_read_masked(kind.item, one) for one in value]
    if isinstance(value, dict):
        return {m.name: _read_masked(m.type, value[m.name]) for m in kind.members}
    return value


def _nulled(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _nulled(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_nulled(one) for one in value]
    return None if value == MASK else value


def test_masked_paths_name_every_masked_value() -> None:
    """As a record type lists what it shows."""
    schema = RECORD_TYPES["dvir"].committed_schemas[-1]
    found = set(masked_paths(mask(columns_of(schema), RECORD_TYPES["dvir"].shown)))
    assert {"driver_id", "signatures[].receipt", "certification.by", "correlation_id"} <= found
    assert "units[].vin" not in found
    everything = Shown(frozenset(), message_key=False)
    assert "flags[]" in set(masked_paths(mask(columns_of(schema), everything)))


# --- The file itself ------------------------------------------------------------------------------


def test_a_file_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    """Until the end nothing stands under its name, and after a fault nothing is left."""
    path = tmp_path / "x.csv"
    with pytest.raises(KeyboardInterrupt):
        _interrupted(path)
    assert list(tmp_path.iterdir()) == []
    with NewFile(path, private=True, replace=False) as file:
        file.write(b"whole")
        file.settle()
        file.appear()
    assert path.read_bytes() == b"whole"
    assert list(tmp_path.iterdir()) == [path]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_file_that_is_there_is_not_replaced(tmp_path: Path) -> None:
    """Not at the start, and not when it came meanwhile."""
    path = tmp_path / "x.csv"
    with NewFile(path, private=False, replace=False) as file:
        path.write_bytes(b"another's")
        file.settle()
        with pytest.raises(ConfigurationError, match="--force"):
            file.appear()
    assert path.read_bytes() == b"another's"
    with pytest.raises(ConfigurationError, match="--force"):
        NewFile(path, private=False, replace=False).check()
    NewFile(path, private=False, replace=True).check()


def _interrupted(path: Path) -> None:
    with NewFile(path, private=True, replace=False) as file:
        file.write(b"half")
        assert not path.exists()
        raise KeyboardInterrupt


@pytest.mark.parametrize("chosen", FORMATS)
def test_a_full_disk_is_told(chosen: Format, tmp_path: Path) -> None:
    """As a stop that names file and cause, through whichever library was writing."""
    with pytest.raises(Stop, match="No space left"):
        _onto_full_disk(chosen, tmp_path / "x")
    assert list(tmp_path.iterdir()) == []


def _onto_full_disk(chosen: Format, path: Path) -> None:
    columns = (Column("t", Scalar(Kind.BYTES)),)
    with NewFile(path, private=True, replace=False) as file:
        file._opened().close()
        file._file = os.fdopen(os.open("/dev/full", os.O_WRONLY), "wb", buffering=0)
        writer = row_writer(chosen, file, columns)
        try:
            writer.write([{"t": os.urandom(100_000)}])
            writer.finish()
        finally:
            writer.abandon()


def test_the_format_follows_the_ending() -> None:
    """Unless it is named; an unknown ending is refused."""
    assert format_of(Path("a/x.Parquet"), None) == "parquet"
    assert format_of(Path("x.ndjson"), None) == "jsonl"
    assert format_of(Path("x"), "csv") == "csv"
    with pytest.raises(ConfigurationError, match="--format"):
        format_of(Path("x.xlsx"), None)
