"""Inspection reports of tractors and trailers, their repairs and reviews, and their faults.

A report with defects has an afterlife: the mechanic certifies the repair hours later, the next
driver reviews it (49 CFR 396.11, 396.13). Pure: all follows from the random source handed in.
"""

from __future__ import annotations

import base64
import hashlib
import heapq
import random
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal

from schemas.envelope import CORRELATION_ID, Headers
from schemas.reasons import Reason
from schemas.verdict import Verdict
from streams.demo import plan
from streams.demo.encoding import Encoder, Form
from streams.demo.faults import TRANSPORT_FAULTS, Fault, pick
from streams.demo.fleet import Vehicle, fleets
from streams.demo.made import Made, Truth

TYPE = "dvir"
WINDOW = timedelta(days=20)
"""How far back the reports go; the topics keep 35 days."""
REASONS = (
    Reason.TOMBSTONE,
    Reason.OVERSIZE,
    Reason.ENCODING,
    Reason.MALFORMED_ROW,
    Reason.MALFORMED_JSON,
    Reason.MALFORMED_AVRO,
    Reason.UNKNOWN_SCHEMA,
    Reason.MISSING_KEY,
    Reason.SCHEMA_VIOLATION,
    Reason.UNCERTIFIED,
    Reason.ATTACHMENT_INVALID,
    Reason.CLOCK_SKEW,
    Reason.IDEMPOTENCY_COLLISION,
)
"""Reasons a DVIR can get by itself or against an earlier one."""
FORMS = {Form.JSON: 60, Form.JSON_NUMBERS: 28, Form.AVRO: 9, Form.CONFLUENT: 3}
PAST = 300
"""How many committed records are remembered for duplicates and conflicts."""
REPORTS_PER_TRACTOR = 40
DEFECT_SHARE = 0.22
OFFLINE_SHARE = 0.06
PARTS = {
    "service_brakes": ("air leak at chamber", "lining worn"),
    "parking_brake": ("does not hold on grade",),
    "steering": ("play in wheel",),
    "lighting_devices_and_reflectors": ("left turn signal out", "marker lamp broken"),
    "tires": ("tread below limit", "cut in sidewall"),
    "horn": ("no sound",),
    "windshield_wipers": ("blade torn",),
    "rear_vision_mirrors": ("right mirror cracked",),
    "coupling_devices": ("fifth wheel dry", "glad hand seal leaks"),
    "wheels_and_rims": ("lug nut loose",),
    "emergency_equipment": ("triangle missing", "extinguisher expired"),
}
"""The eleven parts of 49 CFR 396.11(a)(1), with what drivers write about them."""
SEVERITIES = {"minor": 70, "major": 20, "out_of_service": 6, "unknown": 4}
GRAVE = frozenset({"major", "out_of_service"})
DEPOTS = {"US-PA": (-5, "Carlisle, PA"), "US-CO": (-7, "Denver, CO"), "US-MI": (-5, "Detroit, MI")}

Members = dict[str, object]


@dataclass(frozen=True, slots=True)
class Inspection:
    """A committed record, remembered."""

    members: Members
    made: Made


@dataclass(frozen=True, slots=True, order=True)
class Later:
    """Something that will happen to a report."""

    due: datetime
    number: int
    """Breaks ties, so that members are never compared."""


class DvirMaker:
    """Makes inspection records one after another."""

    def __init__(
        self, chance: random.Random, encoder: Encoder, as_of: datetime, count: int
    ) -> None:
        self._chance = chance
        self._encoder = encoder
        self._plan = plan.kinds(chance, count, REASONS, {})
        self._fleets = fleets(chance, count // REPORTS_PER_TRACTOR)
        self._past: deque[Inspection] = deque(maxlen=PAST)
        self._later: list[Later] = []
        self._reports: dict[int, tuple[Members, str]] = {}
        """What is waiting in `_later`: the report and the event to come, by number."""
        self._number = 0
        self._as_of = as_of

    def __iter__(self) -> Iterator[Made]:
        """All records, in the order they are published; timestamps never go back."""
        step = WINDOW / max(1, len(self._plan))
        for index, kind in enumerate(self._plan):
            now = self._as_of - WINDOW + step * index
            self._number += 1
            if kind in self._own:
                yield self._own[kind](self, now)
            elif kind != plan.PLAIN:
                yield self._fault(Reason(kind), self._report(now), now)
            elif self._later and self._later[0].due <= now:
                yield self._afterlife(heapq.heappop(self._later), now)
            else:
                yield self._commit(self._report(now), now)

    # -- kinds that refer to the past --------------------------------------------------------------

    def _duplicate(self, now: datetime) -> Made:
        """A tablet that was offline sends again what had already arrived."""
        earlier = self._chance.choice(self._past).made
        truth = Truth(Verdict.DUPLICATE, identity=earlier.truth.identity)
        return Made(TYPE, earlier.key, earlier.value, earlier.headers, _ms(now), truth)

    def _conflict(self, now: datetime) -> Made:
        """The key of a committed record with another content: its key should have changed too."""
        earlier = self._chance.choice(self._past)
        changed = {"safe": "unsafe"}.get(str(earlier.members["condition"]), "safe")
        members = earlier.members | {"condition": changed}
        truth = Truth(Verdict.QUARANTINED, Reason.IDEMPOTENCY_COLLISION)
        return self._made(members, Form.JSON, now, truth)

    _own: Mapping[plan.Kind, Callable[[DvirMaker, datetime], Made]] = {
        plan.DUPLICATE: _duplicate,
        plan.CONFLICT: _conflict,
        Reason.IDEMPOTENCY_COLLISION: _conflict,
    }

    # -- records -----------------------------------------------------------------------------------

    def _report(self, now: datetime) -> Members:
        """A driver's report on a tractor and what it pulls."""
        fleet = self._chance.choice(self._fleets)
        place = self._chance.randrange(len(fleet.tractors))
        tractor, driver = fleet.tractors[place], fleet.drivers[place]
        trailers = self._chance.sample(
            fleet.trailers, min(len(fleet.trailers), self._chance.choice((1, 1, 1, 2)))
        )
        offline = self._chance.random() < OFFLINE_SHARE
        delay = timedelta(hours=self._chance.randrange(6, 60)) if offline else timedelta()
        zone, depot = DEPOTS.get(fleet.company.state, (-6, "Joplin, MO"))
        at = (now - delay - timedelta(seconds=self._chance.randrange(20, 400))).astimezone(
            timezone(timedelta(hours=zone))
        )
        tractor.odometer_m += self._chance.randrange(40_000, 900_000)
        defects = self._defects(len(trailers) + 1)
        grave = any(defect["severity"] in GRAVE for defect in defects)
        report_id = f"R{self._number:07d}"
        return {
            "idempotency_key": f"eld/{fleet.company.slug}/{report_id}/1",
            "source": f"eld/{fleet.company.slug}",
            "report_id": report_id,
            "report_version": "1",
            "event": "report",
            "inspection_type": "pre_trip" if at.hour < 12 else "post_trip",  # noqa: PLR2004 - noon
            "driver_id": driver,
            "inspected_at": at,
            "units": [_unit(tractor), *(_unit(trailer) for trailer in trailers)],
            "condition": "unsafe" if grave else "safe",
            "certification": {"by": driver, "at": at, "method": "drawn"},
            "signatures": [self._signature("driver", driver, at)],
            "defects": defects,
            "carrier": fleet.company.name,
            "capture_method": "offline" if offline else "mobile",
            "location": depot,
        }

    def _defects(self, units: int) -> list[Members]:
        """None, mostly; else one to three of the eleven parts."""
        if self._chance.random() >= DEFECT_SHARE:
            return []
        parts = self._chance.sample(sorted(PARTS), self._chance.choice((1, 1, 1, 2, 2, 3)))
        return [
            {
                "defect_id": f"D{self._number:07d}-{place}",
                "unit": self._chance.randrange(units),
                "part": part,
                "regulated": True,
                "severity": plan.weighted(self._chance, SEVERITIES),
                "outcome": "open",
                "note": self._chance.choice(PARTS[part]),
            }
            for place, part in enumerate(parts, 1)
        ]

    def _afterlife(self, later: Later, now: datetime) -> Made:
        """The repair of a reported defect is certified, or the next driver reviews the report."""
        report, event = self._reports.pop(later.number)
        at = later.due.astimezone(UTC)
        mechanic = event == "repair_certification"
        by = f"MECH-{self._chance.randrange(10, 40)}" if mechanic else str(report["driver_id"])
        version = str(int(str(report["report_version"])) + 1)
        members = report | {
            "idempotency_key": f"{str(report['idempotency_key']).rsplit('/', 1)[0]}/{version}",
            "report_version": version,
            "event": event,
            "inspected_at": at,
            "condition": "resolved" if mechanic else "safe",
            "certification": {"by": by, "at": at, "method": "account"},
            "signatures": [self._signature("mechanic" if mechanic else "reviewing_driver", by, at)],
            "defects": [self._repaired(defect, by, at) for defect in _list(report["defects"])]
            if mechanic
            else report["defects"],
        }
        return self._commit(members, now)

    def _repaired(self, defect: Mapping[str, object], by: str, at: datetime) -> Members:
        outcome = "no_repair_needed" if self._chance.random() < 0.15 else "repaired"  # noqa: PLR2004
        return {**defect, "outcome": outcome, "repaired_by": by, "repaired_at": at}

    def _signature(self, role: str, signer: str, at: datetime) -> Members:
        receipt = f"rcpt-{self._chance.randrange(16**12):012x}"
        return {"role": role, "signer_id": signer, "signed_at": at, "receipt": receipt}

    def _commit(self, members: Members, now: datetime) -> Made:
        truth = Truth(
            Verdict.COMMITTED,
            identity=str(members["idempotency_key"]),
            receipts=len(_list(members["signatures"])),
        )
        made = self._made(members, plan.weighted(self._chance, FORMS), now, truth)
        self._past.append(Inspection(members, made))
        self._foresee(members, now)
        return made

    def _foresee(self, members: Members, now: datetime) -> None:
        """Reports with defects will be repaired, repaired ones reviewed."""
        if not members["defects"] or members["event"] == "driver_review":
            return
        event = "repair_certification" if members["event"] == "report" else "driver_review"
        due = now + timedelta(hours=self._chance.randrange(2, 40))
        self._reports[self._number] = (members, event)
        heapq.heappush(self._later, Later(due, self._number))

    def _fault(self, reason: Reason, members: Members, now: datetime) -> Made:
        faults = {**TRANSPORT_FAULTS, **DVIR_FAULTS}
        value, headers = pick(self._chance, faults[reason])(self._chance, self._encoder, members)
        headers = (*self._headers(members), *headers)
        truth = Truth(Verdict.QUARANTINED, reason)
        return Made(TYPE, _key(members), value, headers, _ms(now), truth)

    def _made(self, members: Members, form: Form, now: datetime, truth: Truth) -> Made:
        value = self._encoder.encode(members, form)
        return Made(TYPE, _key(members), value, self._headers(members), _ms(now), truth)

    def _headers(self, members: Members) -> Headers:
        """A third of the devices send a correlation id."""
        if self._chance.random() < 0.67:  # noqa: PLR2004
            return ()
        return ((CORRELATION_ID, f"{members['report_id']}#{self._number}".encode()),)


def _unit(vehicle: Vehicle) -> Members:
    unit: Members = {"role": vehicle.role, "unit_number": vehicle.unit_number}
    if vehicle.vin is not None:
        unit["vin"] = vehicle.vin
    if vehicle.legacy_serial is not None:
        unit["legacy_serial"] = vehicle.legacy_serial
    if vehicle.odometer_m:
        unit |= {"odometer_m": Decimal(vehicle.odometer_m), "odometer_source_unit": "m"}
    return unit


def _key(members: Mapping[str, object]) -> bytes:
    """The first unit's identifier, which every tractor of the demo has: its VIN."""
    return str(_list(members["units"])[0]["vin"]).encode()


def _list(value: object) -> list[Members]:
    return value if isinstance(value, list) else []


def _ms(moment: datetime) -> int:
    return int(moment.timestamp()) * 1000 + moment.microsecond // 1000


# What can be wrong with a report that decodes -----------------------------------------------------


def _changed(change: Callable[[Members], object]) -> Fault:
    """A fault made by changing a copy of the members."""

    def fault(
        chance: random.Random,  # noqa: ARG001 - the shape of a fault
        encoder: Encoder,
        members: Mapping[str, object],
    ) -> tuple[bytes | None, Headers]:
        wrong = dict(members)
        change(wrong)
        return encoder.encode(wrong, Form.JSON), ()

    return fault


def _with(**changed: object) -> Fault:
    """A member with a wrong value."""
    return _changed(lambda members: members.update(changed))


def _without(name: str) -> Fault:
    """A member that is not there."""
    return _changed(lambda members: members.pop(name))


def _at(shift: timedelta) -> Fault:
    """A device whose clock is off."""

    def change(members: Members) -> None:
        at = members["inspected_at"]
        if isinstance(at, datetime):
            members["inspected_at"] = at + shift

    return _changed(change)


def _unit_with(**changed: object) -> Fault:
    """A wrong value in the first unit."""

    def change(members: Members) -> None:
        first, *rest = _list(members["units"])
        members["units"] = [first | changed, *rest]

    return _changed(change)


def _attachment(*, claimed: bytes, length: int) -> Fault:
    """A photo that arrived, beside what was said about it."""
    content = b"\xff\xd8\xff\xe0 photo of a tire"
    return _with(
        attachments=[
            {
                "sha256": hashlib.sha256(claimed or content).hexdigest(),
                "media_type": "image/jpeg",
                "bytes": length or len(content),
                "inline": base64.b64encode(content).decode(),
            }
        ]
    )


DVIR_FAULTS: dict[Reason, tuple[Fault, ...]] = {
    Reason.MISSING_KEY: (_without("idempotency_key"), _with(idempotency_key="  ")),
    Reason.SCHEMA_VIOLATION: (
        _with(inspected_at="2026-11-03T11:42:09"),
        _with(inspected_at=1_793_000_000),
        _with(inspection_type="annual"),
        _with(condition="fine"),
        _with(units=[]),
        _without("units"),
        _without("driver_id"),
        _unit_with(vin="1ZZFAKEO2R1OOOOO1"),
        _unit_with(role="tractor"),
    ),
    Reason.UNCERTIFIED: (_without("certification"),),
    Reason.ATTACHMENT_INVALID: (
        _attachment(claimed=b"another photo", length=0),
        _attachment(claimed=b"", length=7),
    ),
    Reason.CLOCK_SKEW: (_at(timedelta(days=3)), _at(timedelta(days=-500))),
}
