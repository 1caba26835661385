"""What the demo makes: the same from the same seed, realistic, and decided as it says."""

from __future__ import annotations

import csv
import json
import random
import re
from collections import Counter
from datetime import UTC, datetime, timedelta
from importlib.resources import files
from pathlib import Path

import pytest

from connectors.schema_store import FileSchemaStore
from schemas.decision_set import DecisionSet
from schemas.envelope import Record, Source
from schemas.reasons import Reason
from schemas.record_types import RECORD_TYPES
from schemas.verdict import Accepted, Duplicate, Refused, Verdict
from streams.decide import decide_batch, schema_refs
from streams.demo import dvirs, payroll
from streams.demo.companies import shipped_authorities
from streams.demo.encoding import Encoder, schema_store_files
from streams.demo.fleet import TRACTOR_MAKERS, check_digit, make_vin
from streams.demo.generate import generate
from streams.demo.made import Expected, Made, dollars, payroll_key, render
from streams.demo.plan import RECORDS_MIN, kinds, shares
from streams.settle import settle

AS_OF = datetime(2026, 11, 20, 9, tzinfo=UTC)
SMALL = {"statements": 900, "dvirs": 600}


def made(**counts: int) -> list[Made]:
    return list(generate(AS_OF, **(SMALL | counts)))


def expected_of(records: list[Made]) -> dict[str, Expected]:
    sums = {"payroll": Expected(), "dvir": Expected()}
    for record in records:
        sums[record.type_name].add(record.truth)
    return sums


def test_the_same_seed_makes_the_same_records() -> None:
    """Seed, counts and moment decide every byte, header, key, timestamp and truth."""
    assert made(seed=7) == made(seed=7)
    assert made(seed=7) != made(seed=8)


@pytest.mark.parametrize("count", [RECORDS_MIN, 1_000])
def test_every_reason_occurs(count: int) -> None:
    """However few records are asked for, each reason a type can get is among them."""
    sums = expected_of(made(statements=count, dvirs=count))
    assert sums["payroll"].reasons.keys() == {str(r) for r in payroll.REASONS}
    assert sums["dvir"].reasons.keys() == {str(r) for r in dvirs.REASONS}
    for of_type in sums.values():
        assert of_type.records == count
        assert of_type.duplicate > 0


def test_the_reasons_cover_what_one_published_record_can_get() -> None:
    """Missing are only those that need rules, control totals, an operator or a failure of ours."""
    later = {
        Reason.STATUTORY_CAP,
        Reason.CONTROL_TOTAL_MISMATCH,
        Reason.PROCESSING_ERROR,
        Reason.PERSIST_FAILED,
        Reason.HELD_BY_OPERATOR,
    }
    assert {*payroll.REASONS, *dvirs.REASONS} == set(Reason) - later


def test_one_per_cent_is_faulty() -> None:
    """At the demo's own size one record in a hundred has a fault of its own."""
    plan = kinds(random.Random(1), 20_000, payroll.REASONS, payroll.LATER_KINDS)
    assert len(plan) == 20_000
    assert sum(isinstance(kind, Reason) for kind in plan) == 200


def test_too_few_records_are_refused() -> None:
    """A count with no room for every reason is refused, zero is not."""
    with pytest.raises(ValueError, match="at least"):
        kinds(random.Random(1), RECORDS_MIN - 1, dvirs.REASONS, {})
    assert kinds(random.Random(1), 0, dvirs.REASONS, {}) == []


def test_shares_add_up() -> None:
    """Cutting by weights loses nothing to rounding."""
    assert shares(10, [1, 1, 1]) == [4, 3, 3]
    assert sum(shares(997, [14, 4, 9, 3, 11])) == 997


def test_the_truths_add_up() -> None:
    """Records = committed + duplicate + quarantined, and the runs' money adds up to the total."""
    for of_type in expected_of(made()).values():
        assert of_type.records == of_type.committed + of_type.duplicate + of_type.quarantined
        assert sum(of_type.reasons.values()) == of_type.quarantined
        assert sum(of_type.run_cents.values()) == of_type.cents
        assert len(of_type.identities) == of_type.committed


def test_timestamps_fit_retention_and_broker() -> None:
    """Nothing is older than the topics keep it nor younger than the moment of publishing."""
    stamps = [record.timestamp for record in made()]
    assert stamps == sorted(stamps)
    assert stamps[0] >= (AS_OF - timedelta(days=30)).timestamp() * 1000
    assert stamps[-1] <= AS_OF.timestamp() * 1000


def test_statements_are_realistic() -> None:
    """Several companies, both frequencies, all statement types, several jurisdictions, no SSN."""
    committed = [
        json.loads(record.value)
        for record in made(statements=3_000)
        if record.type_name == "payroll"
        and record.truth.verdict is Verdict.COMMITTED
        and (record.value or b"").startswith(b"{")
    ]
    assert len({m["source_run_id"].split("/")[1] for m in committed}) == 8
    assert {m["pay_frequency"] for m in committed} == {"biweekly", "monthly"}
    types = {m.get("statement_type", "regular") for m in committed}
    assert types == {"regular", *payroll.LATER_KINDS}
    assert {m["tax_jurisdiction"] for m in committed} <= set(shipped_authorities())
    assert len({m["tax_jurisdiction"] for m in committed}) > 20
    ids = {m["employee_id"] for m in committed}
    assert all(re.fullmatch(r"[A-Z0-9]{6,12}", i) and not i.isdigit() for i in ids)
    amounts = Counter(type(m["gross_pay"]) for m in committed)
    assert amounts.keys() == {str, float}  # as text, and as numbers, which `json` reads as floats


def test_inspections_are_realistic() -> None:
    """Tractors with trailers, valid VINs, the eleven parts, repairs and reviews after reports."""
    committed = [
        json.loads(record.value)
        for record in made(dvirs=3_000)
        if record.type_name == "dvir"
        and record.truth.verdict is Verdict.COMMITTED
        and (record.value or b"").startswith(b"{")
    ]
    vins = {u["vin"] for m in committed for u in m["units"] if "vin" in u}
    assert all(vin[8] == check_digit(vin) for vin in vins)
    assert {len(m["units"]) for m in committed} == {2, 3}
    parts = {d["part"] for m in committed for d in m["defects"]}
    assert parts == set(dvirs.PARTS)
    events = Counter(m["event"] for m in committed)
    assert events["report"] > events["repair_certification"] > events["driver_review"] > 0
    assert {m["inspection_type"] for m in committed} == {"pre_trip", "post_trip"}
    assert all(m["certification"]["by"] and m["signatures"] for m in committed)


def test_check_digits_follow_the_regulation() -> None:
    """The published proof value's character nine is X, and every VIN made carries its own."""
    assert check_digit("1M8GDM9AXKP042788") == "X"
    vin = make_vin(random.Random(3), TRACTOR_MAKERS, 42)
    assert len(vin) == 17
    assert vin[8] == check_digit(vin)


@pytest.mark.parametrize(
    ("members", "key"),
    [
        (
            ("A10042", "2026-10-19", "2026-11-01", "acme-hris/001/R2026-22", None),
            "4845e3e44d39f6ff10212f35027f1fb6450d335a783d9a183f54bd576eb15863",
        ),
        (
            ("A10042", "2026-10-19", "2026-11-01", "acme-hris/001/R2026-22", "2"),
            "c5a590a5002b7d9f40acd1d8688d32d54c1d74bf66b74dd4050f2ebf65a50fa6",
        ),
        (
            ("219E05", "2026-12-21", "2027-01-03", "R1", ""),
            "4e231facf636698262fe1b788c22cdf7e0d848e47054018a800b6f6642b19527",
        ),
    ],
)
def test_keys_are_worked_out_independently(members: tuple[str | None, ...], key: str) -> None:
    """The truth's own key derivation meets the published vectors."""
    names = ("employee_id", "pay_period_start", "pay_period_end", "source_run_id", "statement_id")
    assert payroll_key(dict(zip(names, members, strict=True))) == key


def test_amounts_are_written_exactly() -> None:
    """An amount keeps its two digits, as text and as a JSON number."""
    assert render({"a": dollars(184_050)}) == '{"a":"1840.50"}'
    assert render({"a": [dollars(-5)]}, numbers=True) == '{"a":[-0.05]}'


def test_authorities_are_the_shipped_ones() -> None:
    """The generator takes jurisdictions from the file the project ships, the federal level left
    out."""
    text = files("schemas").joinpath("rules/authorities.csv").read_text(encoding="utf-8")
    levels = {row["key"]: row["level"] for row in csv.DictReader(text.splitlines())}
    assert {levels[key] for key in shipped_authorities()} == {"state", "municipal"}


@pytest.mark.parametrize("type_name", sorted(RECORD_TYPES))
@pytest.mark.parametrize("seed", [1, 2])
async def test_the_gate_decides_as_the_truth_says(
    type_name: str, seed: int, tmp_path: Path
) -> None:
    """Every record, decided and settled in order, gets the verdict, reason and key it was made
    for."""
    records = [
        m for m in made(statements=2_500, dvirs=2_500, seed=seed) if m.type_name == type_name
    ]
    encoders = {name: Encoder(name) for name in RECORD_TYPES}
    for name, content in schema_store_files(encoders).items():
        (tmp_path / name).write_text(content, encoding="utf-8")
    raw = [
        Record(offset, m.value, m.timestamp, m.key, m.headers) for offset, m in enumerate(records)
    ]
    store, record_type = FileSchemaStore(tmp_path), RECORD_TYPES[type_name]
    schemas = {ref: await store.find(ref) for ref in schema_refs(raw)}
    source = Source(record_type.raw_topic, 0)
    decided = decide_batch(raw, record_type, source, DecisionSet(), schemas)
    wrong = Counter[tuple[str, str]]()
    for m, outcome in zip(records, settle(decided, source, {}, {}, {}), strict=True):
        found, wanted = became(outcome), intended(m)
        if found != wanted:
            wrong[wanted, found] += 1
        elif isinstance(outcome, Accepted) and type_name == "payroll":
            assert outcome.key.hex() == m.truth.identity
    assert not wrong


def became(outcome: Accepted | Duplicate | Refused) -> str:
    if isinstance(outcome, Refused):
        return f"{outcome.reason}"
    return "COMMITTED" if isinstance(outcome, Accepted) else "DUPLICATE"


def intended(record: Made) -> str:
    truth = record.truth
    return str(truth.reason) if truth.reason is not None else truth.verdict.name
