"""The DVIR: a driver vehicle inspection report, a certification of repairs, or a driver's review.

49 CFR 396.11 and 396.13. The later two arrive hours or days after the report, with only their own
signature.
"""

from __future__ import annotations

import base64
from decimal import Decimal
from enum import StrEnum
from typing import Annotated, Self

from pydantic import Field, PlainValidator, StringConstraints, model_validator

from schemas.contract import (
    Contract,
    CorrelationId,
    Instant,
    Name64,
    Name200,
    Printable200,
    Text64,
    Text200,
    Text2000,
    Whole,
    at_most,
)
from schemas.dvir.vin import FORM
from schemas.exact import decimal_of

UNITS_MAX = 8
SIGNATURES_MAX = 16
DEFECTS_MAX = 1_000
ATTACHMENTS_MAX = 64
UNIT_INDEX_MAX = UNITS_MAX - 1
LONG_MAX = 2**63 - 1
"""Avro's largest whole number, which the committed event must hold."""


class Event(StrEnum):
    """What the record tells of."""

    REPORT = "report"
    REPAIR_CERTIFICATION = "repair_certification"
    DRIVER_REVIEW = "driver_review"


class InspectionType(StrEnum):
    """When, or by whom, the vehicle was inspected."""

    PRE_TRIP = "pre_trip"
    POST_TRIP = "post_trip"
    IN_TRIP = "in_trip"
    MECHANIC = "mechanic"
    UNSPECIFIED = "unspecified"


class UnitRole(StrEnum):
    """What a unit is in its combination."""

    POWER_UNIT = "power_unit"
    TRAILER = "trailer"
    DOLLY = "dolly"
    BUS = "bus"
    CHASSIS = "chassis"
    OTHER = "other"


class Condition(StrEnum):
    """What the report says of the vehicle as a whole."""

    SAFE = "safe"
    UNSAFE = "unsafe"
    RESOLVED = "resolved"
    UNKNOWN = "unknown"


class Method(StrEnum):
    """How a certification was given (49 CFR 390.32)."""

    DRAWN = "drawn"
    ACCOUNT = "account"
    PAPER = "paper"
    IMPORTED = "imported"


class SignatureRole(StrEnum):
    """Who signed."""

    DRIVER = "driver"
    CO_DRIVER = "co_driver"
    MECHANIC = "mechanic"
    AGENT = "agent"
    REVIEWING_DRIVER = "reviewing_driver"
    OTHER = "other"


class Part(StrEnum):
    """The eleven parts of 49 CFR 396.11(a)(1), or another one."""

    SERVICE_BRAKES = "service_brakes"
    PARKING_BRAKE = "parking_brake"
    STEERING = "steering"
    LIGHTING = "lighting_devices_and_reflectors"
    TIRES = "tires"
    HORN = "horn"
    WIPERS = "windshield_wipers"
    MIRRORS = "rear_vision_mirrors"
    COUPLING = "coupling_devices"
    WHEELS = "wheels_and_rims"
    EMERGENCY_EQUIPMENT = "emergency_equipment"
    OTHER = "other"


class Severity(StrEnum):
    """How grave a defect is."""

    MINOR = "minor"
    MAJOR = "major"
    OUT_OF_SERVICE = "out_of_service"
    UNKNOWN = "unknown"


class Outcome(StrEnum):
    """What became of a defect: repaired and repair not necessary are two things (396.11(a)(3))."""

    OPEN = "open"
    REPAIRED = "repaired"
    NO_REPAIR_NEEDED = "no_repair_needed"


GRAVE = frozenset({Severity.MAJOR, Severity.OUT_OF_SERVICE})

Vin = Annotated[str, StringConstraints(strict=True, pattern=FORM)]
Metres = Annotated[Decimal, PlainValidator(lambda value: decimal_of(value, 14, 3))]
EngineHours = Annotated[Decimal, PlainValidator(lambda value: decimal_of(value, 11, 2))]
Sha256 = Annotated[str, StringConstraints(strict=True, pattern=r"^[0-9a-f]{64}$")]
Receipt = Annotated[str, StringConstraints(strict=True, max_length=4000)]
Text = Annotated[str, StringConstraints(strict=True)]
"""Bounded by the record's own size only."""


def _inline(value: object) -> str:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    if not isinstance(value, str):
        message = "base64 text"
        raise ValueError(message)  # noqa: TRY004 - a TypeError would mean a float
    return value


class Unit(Contract):
    """A vehicle of the combination; the first one is the record's key on the topics."""

    role: UnitRole
    vin: Vin | None = None
    legacy_serial: Name64 | None = None
    unit_number: Name64 | None = None
    odometer_m: Metres | None = None
    odometer_source_unit: Text64 | None = None
    engine_hours: EngineHours | None = None

    @property
    def identifier(self) -> str:
        """VIN, else serial number, else the carrier's own number."""
        return self.vin or self.legacy_serial or self.unit_number or ""

    @model_validator(mode="after")
    def _identified(self) -> Self:
        if not self.identifier:
            message = "vin, legacy_serial or unit_number"
            raise ValueError(message)
        return self


class Certification(Contract):
    """Who certifies, when and how."""

    by: Name200
    at: Instant
    method: Method


class Signature(Contract):
    """A signature; its receipt is kept in a table of its own."""

    role: SignatureRole
    signer_id: Text200 | None = None
    signed_at: Instant | None = None
    receipt: Receipt | None = None


class Defect(Contract):
    """A defect found or told."""

    defect_id: Text200 | None = None
    unit: Annotated[Whole, Field(ge=0, le=UNIT_INDEX_MAX)] | None = None
    """Index into `units`."""
    code: Text200 | None = None
    part: Part
    regulated: Annotated[bool, Field(strict=True)] | None = None
    severity: Severity = Severity.UNKNOWN
    outcome: Outcome = Outcome.OPEN
    note: Text2000 | None = None
    repaired_by: Text200 | None = None
    repaired_at: Instant | None = None


class Attachment(Contract):
    """A photo or document, inline or elsewhere."""

    sha256: Sha256
    media_type: Text200
    bytes: Annotated[Whole, Field(ge=0, le=LONG_MAX)]
    uri: Text2000 | None = None
    inline: Annotated[str, PlainValidator(_inline)] | None = None
    """Base64 (RFC 4648)."""

    @model_validator(mode="after")
    def _somewhere(self) -> Self:
        if self.uri is None and self.inline is None:
            message = "uri or inline"
            raise ValueError(message)
        return self


class Dvir(Contract):
    """A report, a certification of repairs or a review, as published."""

    idempotency_key: Printable200
    source: Text200 | None = None
    report_id: Text200 | None = None
    report_version: Text200 | None = None
    source_updated_at: Instant | None = None
    correlation_id: CorrelationId | None = None
    event: Event = Event.REPORT
    inspection_type: InspectionType = InspectionType.UNSPECIFIED
    driver_id: Name64 | None = None
    inspected_at: Instant
    received_at: Instant | None = None
    units: Annotated[tuple[Unit, ...], Field(min_length=1), at_most(UNITS_MAX)]
    condition: Condition = Condition.UNKNOWN
    condition_source: Text200 | None = None
    """The vendor's own word."""
    certification: Certification | None = None
    signatures: Annotated[tuple[Signature, ...], at_most(SIGNATURES_MAX)] = ()
    defects: Annotated[tuple[Defect, ...], at_most(DEFECTS_MAX)] = ()
    attachments: Annotated[tuple[Attachment, ...], at_most(ATTACHMENTS_MAX)] = ()
    carrier: Text200 | None = None
    capture_method: Text200 | None = None
    location: Text200 | None = None
    payload: Text | None = None
    """The vendor's own text, verbatim."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        mechanics = self.inspection_type is InspectionType.MECHANIC
        if self.event is Event.REPORT and not mechanics and self.driver_id is None:
            message = "driver_id: required for a report that is not a mechanic's"
            raise ValueError(message)
        for index, defect in enumerate(self.defects):
            if defect.unit is not None and defect.unit >= len(self.units):
                message = f"defects[{index}].unit: one of the units in the list"
                raise ValueError(message)
        return self
