"""Rejects of a real worker, handled with the real commands, from the first look to the end."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path

import pytest

from connectors.errors import Fenced
from connectors.kafka.resubmitter import KafkaResubmitter
from schemas import envelope
from schemas.decision_set import DecisionSet, Limits
from schemas.envelope import Position, last_header
from schemas.reasons import Reason
from schemas.resubmission import SentMark
from streams import resubmit
from tests.integration.stream import Sent, committed, events, report, send, statement, turned_away
from tests.quarantine.conftest import WHO, Desk

SECRETS = ("Q77Q77Q", "Mallory Moneypenny", "corr-of-mallory", "S-SECRET-9")
PERSON, NAME, CORRELATION, DRIVER = SECRETS
PAY = "9876543.21"
"""An amount is shown, for the employee is not; it is logged nowhere."""


async def _work(desk: Desk, type_name: str, *records: Sent) -> None:
    """Send records and have them weighed."""
    await send(desk.gate, type_name, records)
    if not desk.gate.workers:
        await desk.gate.worker(breaker_types="none")  # floods of rejects are made on purpose
    await desk.gate.drain()


def _ugly() -> Sent:
    """A statement with personal data and an amount with too many digits."""
    members = statement(PERSON, gross_pay=PAY + "9", employee_name=NAME)
    return Sent(
        members,
        turned_away(Reason.SCHEMA_VIOLATION),
        key=PERSON.encode(),
        headers=(
            ("correlation-id", CORRELATION.encode()),
            ("wb-chunk", b"a1b2/7"),
            ("wb-reason", b"forged"),
            ("traceparent", b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
        ),
    )


@pytest.mark.timeout(180)
async def test_from_reject_to_committed(desk: Desk, tmp_path: Path) -> None:
    """An ugly record is found, read masked, corrected, previewed, sent once however often the
    command is repeated, and committed; both ends know of each other, and nobody has seen a value
    who had not asked for it on record."""
    await _work(desk, "payroll", _ugly())
    groups = await desk.ask("ls")
    assert (groups["records"], groups["groups"]) == (1, 1)
    (name,) = await desk.ids("--reason", "schema_violation", "--field", "gross_pay")
    assert groups["items"][0]["newest"] == name
    shown = await desk.ask("show", name)
    assert shown["record"]["pay_period_start"] == "2026-10-19"
    assert shown["record"]["employee_id"] == "***" == shown["record"]["employee_name"]
    assert (shown["fixed_by"], shown["now"]["verdict"]) == (
        "publisher",
        "quarantined schema_violation",
    )
    assert shown["detail"][0]["path"] == "gross_pay"
    assert (await desk.call("show", name)).code == 0

    unchanged = await desk.ask("resubmit", name, "--yes", "--why", "no use", code=1)
    assert (unchanged["refused"], unchanged["resubmitted"]) == (1, 0)
    corrected = tmp_path / "corrected.json"
    corrected.write_text(json.dumps(statement("Q77Q77Q", gross_pay="9876543.21")))
    with_file = ("resubmit", name, "--with", corrected)
    dry = await desk.ask(*with_file)
    assert (dry["acted"], dry["verdicts"]) == (False, {"committed": 1})
    assert not await desk.query("SELECT FROM operations")
    done = await desk.ask(*with_file, "--yes", "--why", "typo at the source")
    assert (done["acted"], done["resubmitted"]) == (True, 1)
    again = await desk.ask(*with_file, "--yes", "--why", "typo at the source")
    assert (again["resubmitted"], again["already"]) == (0, 1)
    assert WHO in again["items"][0]["why"]
    await desk.gate.drain()

    raw = await events(desk.gate, "payroll.raw")
    (sent,) = [r for r in raw if dict(r.headers).get("wb-resubmission-of")]
    assert sent.value == corrected.read_bytes()
    assert sent.key == b"Q77Q77Q"
    headers = [(n, v) for n, v in sent.headers if not n.startswith("trace")]
    assert headers == [
        ("correlation-id", CORRELATION.encode()),
        ("wb-resubmission-of", name.encode()),
        ("wb-attempt", b"2"),
    ]
    shown = await desk.ask("show", name)
    (became,) = shown["resubmissions"]
    assert (became["verdict"], became["who"], became["corrected"]) == ("committed", WHO, True)
    at = Position.parse(became["position"])
    assert (at.partition, at.offset) == (sent.partition, sent.offset)
    assert (await desk.ask("ls"))["records"] == 0
    assert await desk.ids("--resubmitted") == [name]
    assert len(await desk.query("SELECT FROM payroll_ledger")) == 1
    (act,) = await desk.query("SELECT * FROM operations")
    assert (act["act"], act["who"], act["target"]) == ("resubmit", WHO, name)
    assert act["digest_after"] == envelope.raw_digest(corrected.read_bytes())
    printed, logged = "".join(desk.said), desk.gate.workers[0].text()
    assert not [secret for secret in SECRETS if secret in printed]
    assert not [secret for secret in (PERSON, PAY, NAME) if secret in logged]


async def test_revealing_goes_on_record_first(desk: Desk, tmp_path: Path) -> None:
    """Values and bytes are shown to whoever says why, after that is on record; a file that is
    there is not overwritten, and without the operator's role nothing is revealed."""
    await _work(desk, "payroll", _ugly())
    (name,) = await desk.ids()
    for wrong in (("--reveal",), ("--reveal", "--why", " "), ("--bytes", tmp_path / "x")):
        assert (await desk.call("show", name, *wrong)).code == 2
    assert not await desk.query("SELECT FROM operations")
    target = tmp_path / "bytes"
    shown = await desk.ask("show", name, "--reveal", "--why", "a ticket", "--bytes", target)
    assert shown["record"]["employee_name"] == NAME
    assert shown["correlation_id"] == CORRELATION
    (row,) = await desk.query("SELECT record_value FROM quarantine")
    assert target.read_bytes() == row["record_value"]
    assert target.stat().st_mode & 0o077 == 0
    (act,) = await desk.query("SELECT * FROM operations")
    assert (act["act"], act["who"], act["why"], act["target"]) == ("reveal", WHO, "a ticket", name)
    assert [one["act"] for one in (await desk.ask("show", name))["acts"]] == ["reveal"]
    over = await desk.call("show", name, "--reveal", "--why", "again", "--bytes", target)
    assert (over.code, "overwrites nothing" in over.err) == (2, True)
    assert len(await desk.query("SELECT FROM operations")) == 1


async def test_without_the_operators_role(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Looking works as any role; an act says what to set."""
    await _work(desk, "payroll", Sent(b"junk", turned_away(Reason.MALFORMED_JSON)))
    monkeypatch.delenv("WEIGHBRIDGE_POSTGRES_OPERATOR_DSN")
    reader = desk.gate.database.worker_dsn.replace("weighbridge_worker", "weighbridge_reader")
    monkeypatch.setenv("WEIGHBRIDGE_POSTGRES_DSN", reader)
    (name,) = await desk.ids()
    shown = await desk.ask("show", name)
    assert (shown["record"], shown["bytes"]) == (None, 4)
    assert shown["encoding"] == "neither JSON object nor Avro"
    assert (await desk.ask("resubmit", name, code=1))["refused"] == 1
    assert (await desk.ask("dismiss", name))["dismissed"] == 1
    for command in ("resubmit", "dismiss"):
        acted = await desk.call(command, name, "--yes", "--why", "x")
        assert (acted.code, "WEIGHBRIDGE_POSTGRES_OPERATOR_DSN" in acted.err) == (2, True)
    acted = await desk.call("show", name, "--reveal", "--why", "x")
    assert acted.code == 2
    assert not await desk.query("SELECT FROM operations")


def _critical(key: str) -> Sent:
    """An inspection with an open out-of-service defect that its driver has not certified."""
    defect = {
        "defect_id": "1",
        "part": "service_brakes",
        "severity": "out_of_service",
        "outcome": "open",
    }
    members = report(key, defects=[defect], driver_id=DRIVER, condition="unsafe")
    del members["certification"]
    return Sent(members, turned_away(Reason.UNCERTIFIED), key=b"1M8GDM9AXKP042788")


@pytest.mark.timeout(180)
async def test_finding_and_dismissing(desk: Desk) -> None:
    """Critical inspections come first and are dismissed one by one; each filter means what it says,
    alike rejects are one line, and lists are bounded and say how many more there are."""
    await _work(
        desk,
        "payroll",
        *(Sent(b"junk", turned_away(Reason.MALFORMED_JSON)) for _ in range(3)),
        Sent(statement("short", source_run_id="acme/1"), turned_away(Reason.SCHEMA_VIOLATION)),
        Sent(statement("short", source_run_id="acme/12"), turned_away(Reason.SCHEMA_VIOLATION)),
        Sent(
            json.dumps(statement("short", source_run_id="acme/1")).replace("/", "\\/").encode(),
            turned_away(Reason.SCHEMA_VIOLATION),
        ),
        Sent(b'{"source_run_id": "acme/1", ', turned_away(Reason.MALFORMED_JSON)),
    )
    await _work(desk, "dvir", _critical("r1"))
    groups = await desk.ask("ls")
    assert (groups["records"], groups["groups"]) == (8, 6)
    assert groups["items"][0]["record_type"] == "dvir"
    assert groups["items"][0]["safety_critical"]
    (junk,) = [one for one in groups["items"] if one["records"] == 3]
    assert len(await desk.ids("--like", junk["newest"])) == 3
    of_run = await desk.call("ls", "--each", "--run", "acme/1", "--json")
    assert json.loads(of_run.out)["records"] == 2
    assert "1 more hold the run's text and cannot be read" in of_run.err
    for filters, number in (
        (("--type", "dvir"), 1),
        (("--reason", "malformed_json", "--reason", "uncertified"), 5),
        (("--field", "employee_id"), 3),
        (("--field", "employee"), 0),
        (("--since", "1h"), 8),
        (("--until", "1h"), 0),
        (("--since", "2199-01-01"), 0),
        (("--dismissed",), 0),
        (("--all", "--type", "payroll"), 7),
    ):
        assert len(await desk.ids(*filters)) == number, filters
    page = await desk.call("ls", "--each", "--limit", 3, "--skip", 3)
    assert page.out.endswith("8 rejects; 2 more with --skip 6\n")
    assert (await desk.call("ls", "--since", "yesterday")).code == 2

    for nothing in ((), ("--yes",)):
        assert (await desk.call("dismiss", *nothing)).code == 2
    bulk = ("dismiss", "--open")
    assert (await desk.ask(*bulk, code=1))["safety_critical"] == 1
    dismissed = await desk.ask(*bulk, "--yes", "--why", "tests of the publisher", code=1)
    assert (dismissed["dismissed"], dismissed["safety_critical"]) == (7, 1)
    (critical,) = await desk.ids()
    assert (await desk.ask("dismiss", critical, "--yes", "--why", "seen"))["dismissed"] == 1
    twice = await desk.ask("dismiss", critical, "--yes", "--why", "seen")
    assert (twice["dismissed"], twice["already"]) == (0, 1)
    assert await desk.ids() == []
    assert len(await desk.ids("--dismissed")) == 8
    assert len(await desk.query("SELECT FROM operations WHERE act = 'dismiss'")) == 8
    await desk.gate.prove()
    assert DRIVER not in "".join(desk.said)


@pytest.mark.timeout(240)
async def test_five_thousand_after_a_decision_set(desk: Desk) -> None:
    """Rejects that a new decision set lets through are sent again in bulk, each once; those that
    are still wrong stay; the dry run says so beforehand."""
    count = 5_000
    nine = [statement(f"{n:09d}") for n in range(count)]
    wrong = Sent(statement("x"), turned_away(Reason.SCHEMA_VIOLATION))
    await _work(
        desk,
        "payroll",
        *(
            Sent(one, turned_away(Reason.SCHEMA_VIOLATION), n % 2, one["employee_id"].encode())
            for n, one in enumerate(nine)
        ),
        wrong,
    )
    changed = DecisionSet(limits=Limits(allow_nine_digit_ids=True))
    await desk.query(
        "INSERT INTO decision_set (digest, content) VALUES ($1, $2)",
        changed.digest,
        changed.as_json(),
    )
    await desk.query("INSERT INTO activation (digest) VALUES ($1)", changed.digest)
    bulk = ("resubmit", "--reason", "schema_violation", "--field", "employee_id")
    dry = await desk.ask(*bulk, code=1)
    assert (dry["resubmitted"], dry["refused"]) == (count, 1)
    assert dry["verdicts"] == {"committed": count}
    done = await desk.call(*bulk, "--yes", "--why", "nine digits are allowed now", "--json")
    assert json.loads(done.out)["resubmitted"] == count
    assert "resubmitting" in done.err
    await desk.gate.drain()
    (row,) = await desk.query("SELECT count(*) AS n FROM payroll_ledger")
    assert row["n"] == count
    (row,) = await desk.query("SELECT count(*) AS n FROM resubmission_sent")
    assert row["n"] == count
    assert len(await desk.ids()) == 1
    assert (await desk.ask(*bulk, "--all", code=1))["already"] == count


@pytest.mark.timeout(120)
async def test_rules_of_sending_again(desk: Desk, tmp_path: Path) -> None:
    """A collision and a dismissed reject are not sent again unchanged, attempts are counted and
    bounded, a forged origin changes no verdict, and a corrections file works line by line."""
    first = statement("A00001")
    other = {**first, "gross_pay": "1.00"}
    await _work(
        desk,
        "payroll",
        Sent(first, committed(first)),
        Sent(other, turned_away(Reason.IDEMPOTENCY_COLLISION)),
        Sent(
            statement("short"),
            turned_away(Reason.SCHEMA_VIOLATION),
            headers=(
                ("wb-resubmission-of", f"{desk.gate.prefix}payroll.raw/1/0/77".encode()),
                ("wb-attempt", b"5"),
            ),
        ),
        Sent(
            statement("short"),
            turned_away(Reason.SCHEMA_VIOLATION),
            headers=(("wb-resubmission-of", b"\xff/\x00"), ("wb-attempt", b"-3")),
        ),
        Sent(None, turned_away(Reason.TOMBSTONE), key=b"k"),
    )
    (collision,) = await desk.ids("--reason", "idempotency_collision")
    refused = await desk.ask("resubmit", collision, code=1)
    assert "correction" in refused["items"][0]["why"]
    short = await desk.ids("--reason", "schema_violation")
    fifth, forged = sorted(short, key=lambda name: Position.parse(name).offset)
    shown = await desk.ask("show", fifth)
    assert (shown["attempt"], shown["follows"]["on_record"]) == (5, False)
    shown = await desk.ask("show", forged)
    assert (shown["attempt"], shown["follows"]) == (1, None)

    lines = [
        {"quarantine_id": fifth, "record": statement("B00001", gross_pay="10.10")},
        {"quarantine_id": forged, "record": statement("B00002", gross_pay="10.10")},
        {"quarantine_id": f"{desk.gate.prefix}payroll.raw/1/0/999999", "record": {}},
    ]
    path = tmp_path / "corrections.ndjson"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    acted = ("resubmit", "--corrections", path, "--yes", "--why", "ids corrected")
    done = await desk.ask(*acted, code=1)
    assert (done["resubmitted"], done["refused"]) == (1, 2)
    done = await desk.ask(*acted, "--attempts-max", 6, code=1)
    assert (done["resubmitted"], done["already"], done["refused"]) == (1, 1, 1)
    await desk.gate.drain()
    raw = {r.key: dict(r.headers) for r in await events(desk.gate, "payroll.raw")}
    assert raw[b"B00001"]["wb-attempt"] == b"6"
    assert raw[b"B00002"]["wb-resubmission-of"] == forged.encode()
    assert len(await desk.query("SELECT FROM payroll_ledger")) == 3

    (tombstone,) = await desk.ids("--reason", "tombstone")
    assert (await desk.ask("dismiss", tombstone, "--yes", "--why", "none"))["dismissed"] == 1
    file = tmp_path / "instead.json"
    file.write_text(json.dumps(statement("C00001")))
    instead = ("resubmit", tombstone, "--with", file, "--yes", "--why", "it had a value after all")
    assert "--even-dismissed" in (await desk.ask(*instead, code=1))["items"][0]["why"]
    assert (await desk.ask(*instead, "--even-dismissed"))["resubmitted"] == 1
    await desk.gate.drain()
    assert len(await desk.query("SELECT FROM payroll_ledger")) == 4


async def test_turned_away_again(desk: Desk, tmp_path: Path) -> None:
    """A resubmission that the worker turns away after all is a reject of its own with its attempt,
    linked from the first and to it; it may be corrected in turn."""
    await _work(desk, "payroll", Sent(statement("short"), turned_away(Reason.SCHEMA_VIOLATION)))
    (name,) = await desk.ids()
    file = tmp_path / "one.json"
    file.write_text(json.dumps(statement("123456789")))
    changed = DecisionSet(limits=Limits(allow_nine_digit_ids=True))
    content = changed.as_json()
    await desk.query("INSERT INTO decision_set VALUES ($1, $2)", changed.digest, content)
    await desk.query("INSERT INTO activation (digest) VALUES ($1)", changed.digest)
    await desk.gate.workers[0].stop()
    assert (await desk.ask("resubmit", name, "--with", file, "--yes", "--why", "a"))["resubmitted"]
    waiting = (await desk.ask("show", name))["resubmissions"][0]
    assert waiting["verdict"] == "no verdict yet"
    await desk.query("INSERT INTO activation (digest) VALUES ($1)", DecisionSet().digest)
    await desk.gate.worker()
    await desk.gate.drain()
    (second,) = await desk.ids()
    shown = await desk.ask("show", second)
    assert shown["attempt"] == 2
    assert shown["follows"] == {"quarantine_id": name, "on_record": True}
    became = (await desk.ask("show", name))["resubmissions"][0]
    assert (became["verdict"], became["position"]) == ("quarantined schema_violation", second)


@pytest.mark.timeout(240)
async def test_killed_anywhere(desk: Desk) -> None:
    """Whatever moment a resubmission is killed at, the next one brings every reject to the topic
    exactly once, and knows where each stands. Does not prove it for a broker that loses data."""
    rejects = 25
    for number, (act, nth) in enumerate(
        (
            ("before-record", 2),
            ("after-record", 1),
            ("after-record", 3),
            ("inside-send", 2),
            ("before-commit", 1),
            ("after-commit", 2),
            ("after-commit", 3),
            ("after-note", 2),
        )
    ):
        ids = [f"{number}{n:08d}" for n in range(rejects)]
        await _activate(desk, DecisionSet())
        await _work(
            desk,
            "payroll",
            *(
                Sent(statement(one), turned_away(Reason.SCHEMA_VIOLATION), n % 2, one.encode())
                for n, one in enumerate(ids)
            ),
        )
        await _activate(desk, DecisionSet(limits=Limits(allow_nine_digit_ids=True)))
        bulk = ("--field", "employee_id", "--yes", "--why", "nine digits")
        await desk.killed(act, nth, 10, *bulk)
        await desk.ask("resubmit", *bulk)
        await desk.ask("resubmit", "--owed", "--yes", "--why", "to be sure")
        await desk.gate.drain()
        sent: dict[bytes, int] = {}
        positions: dict[str, int] = {}
        for record in await events(desk.gate, "payroll.raw"):
            origin = last_header(tuple(record.headers), envelope.RESUBMISSION_OF)
            if origin is not None:
                sent[origin] = sent.get(origin, 0) + 1
                positions[origin.decode()] = record.offset
        assert set(sent.values()) == {1}, act
        assert len(sent) == rejects * (number + 1), act
        noted = await desk.query(
            "SELECT of.topic || '/1/' || of.partition || '/' || of.record_offset AS name, "
            "s.record_offset FROM resubmission_sent s JOIN resubmission of USING (number)"
        )
        assert {row["name"]: row["record_offset"] for row in noted} == positions, act
        assert await desk.ids() == [], act
    assert len(await desk.query("SELECT FROM payroll_ledger")) == rejects * 8


async def _activate(desk: Desk, decision_set: DecisionSet) -> None:
    await desk.query(
        "INSERT INTO decision_set (digest, content) VALUES ($1, $2) ON CONFLICT DO NOTHING",
        decision_set.digest,
        decision_set.as_json(),
    )
    await desk.query("INSERT INTO activation (digest) VALUES ($1)", decision_set.digest)


async def test_taken_over(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who is fenced by another run ends with exit code 3 and says what to do, as does whoever finds
    Kafka and database in disagreement; what was put on record is sent once, by the next."""
    await _work(desk, "payroll", Sent(statement("123456789"), turned_away(Reason.SCHEMA_VIOLATION)))
    await _activate(desk, DecisionSet(limits=Limits(allow_nine_digit_ids=True)))
    (name,) = await desk.ids()

    async def fenced(*_: object) -> None:
        message = "another producer"
        raise Fenced(message)

    with monkeypatch.context() as patch:
        patch.setattr(KafkaResubmitter, "send", fenced)
        outcome = await desk.call("resubmit", name, "--yes", "--why", "now allowed")
    assert (outcome.code, "has taken over" in outcome.err) == (3, True)
    shown = await desk.ask("show", name)
    assert "not known to be sent" in shown["resubmissions"][0]["verdict"]
    assert (await desk.ask("resubmit", name))["owed"] == 1
    owed = ("resubmit", "--owed", "--yes", "--why", "go on")

    async def mark(*_: object) -> SentMark:
        return SentMark(1, 1, b"anothers", ((0, 0),))

    with monkeypatch.context() as patch:
        patch.setattr(KafkaResubmitter, "sent", mark)
        outcome = await desk.call(*owed)
    assert (outcome.code, "it was set back" in " ".join(outcome.err.split())) == (3, True)
    with monkeypatch.context() as patch:
        patch.setattr(resubmit, "OWED_AGE_MAX", timedelta(0))
        outcome = await desk.call(*owed)
    assert (outcome.code, "--even-if-sent" in outcome.err) == (3, True)
    assert (await desk.ask(*owed))["owed"] == 1
    await desk.gate.drain()
    shown = await desk.ask("show", name)
    assert shown["resubmissions"][0]["verdict"] == "committed"
