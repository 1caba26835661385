"""After a run: what is in the database and on the topics, held against the oracle (G1 to G5)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from schemas.avro_strict import AvroSchema, SchemaRef
from schemas.envelope import Source
from schemas.reasons import Reason
from schemas.record_type import RecordType
from schemas.verdict import Accepted, Duplicate, Refused, Verdict
from schemas.verdict_page import unpack
from tests.protocol.oracle import Oracle
from tests.simulation.broker import SimulatedBroker
from tests.simulation.database import SimulatedLedger
from tests.simulation.records import refuses
from tests.simulation.worker import GROUP

if TYPE_CHECKING:
    from connectors.ports import Page

_NAMES = {Accepted: Verdict.COMMITTED, Duplicate: Verdict.DUPLICATE, Refused: Verdict.QUARANTINED}


def faults(
    record_type: RecordType,
    ledger: SimulatedLedger,
    broker: SimulatedBroker,
    sources: list[Source],
    schemas: Mapping[SchemaRef, AvroSchema | None],
) -> Iterator[str]:
    """What is not as it must be, each in a few words; nothing when all guarantees hold."""
    oracle = Oracle(record_type, schemas, refuses)
    records = {
        (source, record.offset): record
        for source in sources
        for record in broker.logs.get((source.topic, source.partition), [])
    }
    # Which of two partitions was first to take a key, only the order of commits tells.
    for commit in ledger.commits:
        page = commit.page
        if page.decision_set != commit.active:
            yield f"{commit.source}: batch {page.batch_number} under a set not in force (G4)"
        for offset in range(page.begin, page.next_offset):
            record = records.get((commit.source, offset))
            if record is not None and (commit.source, offset) not in oracle.verdicts:
                oracle.add(commit.source, record, ledger.sets[page.decision_set])
    missing = records.keys() - oracle.verdicts.keys()
    if missing:
        yield f"G1: {len(missing)} record(s) without a verdict, such as {min(missing)}"
    rows = {key: accepted.row for key, (_, accepted) in oracle.ledger.items()}
    if ledger.tables.ledger != rows:
        yield f"G2: {_differ(ledger.tables.ledger, rows)} ledger rows differ"
    receipts = [r for _, accepted in oracle.ledger.values() for r in accepted.receipts]
    if sorted(ledger.tables.receipts, key=repr) != sorted(receipts, key=repr):
        yield "G2: receipts differ"
    if any(
        isinstance(v, Refused) and v.reason is Reason.PROCESSING_ERROR
        for v in oracle.verdicts.values()
    ):
        yield "a record met a processing_error"
    for source in sources:
        yield from _of_partition(ledger, broker, oracle, source)


def _of_partition(
    ledger: SimulatedLedger, broker: SimulatedBroker, oracle: Oracle, source: Source
) -> Iterator[str]:
    tables, place = ledger.tables, (source.topic, source.partition)
    stable = broker.stable[place]
    cursor = tables.cursors[source.topic, source.partition, GROUP]
    emitted = broker.offsets.get((GROUP, place))
    if cursor.next_offset != stable:
        yield f"{source}: decided up to {cursor.next_offset}, the log up to {stable}"
    if emitted is None or emitted.next_offset != stable:
        yield f"{source}: emitted up to {emitted}, the log up to {stable}"
    if cursor.counts != oracle.counts(source):
        yield f"{source}: G1: counts {cursor.counts}, in truth {oracle.counts(source)}"
    pages = tables.pages.get((source.topic, source.incarnation, source.partition, GROUP), [])
    yield from _of_pages(pages, cursor.first_offset, oracle, source)
    rejects = [row for place, row in sorted(tables.quarantine.items()) if _is_of(place, source)]
    if rejects != oracle.rejects(source):
        yield f"{source}: G1: quarantine rows differ"
    record_type = ledger.record_type
    for topic, wanted in (
        (record_type.committed_topic, oracle.committed_events(source)),
        (record_type.quarantine_topic, oracle.quarantine_events(source)),
    ):
        found = broker.outputs.get((topic, source.partition), [])
        if found != wanted:
            more = len(found) - len(wanted)
            yield f"{source}: G3: {topic} differs, {more:+d} event(s)"


def _of_pages(pages: list[Page], begin: int, oracle: Oracle, source: Source) -> Iterator[str]:
    """Pages join up, and tell of every record once, what the oracle tells."""
    at, told = begin, {}
    for page in pages:
        if page.begin != at:
            yield f"{source}: G1: pages do not join up at {at}"
        at = page.next_offset
        for entry in unpack(page.packed):
            if entry.offset in told:
                yield f"{source}: G1: two verdicts at {entry.offset}"
            told[entry.offset] = entry.verdict
    wanted = {o: _NAMES[type(v)] for (at, o), v in oracle.verdicts.items() if at == source}
    if told != wanted:
        yield f"{source}: G1: the pages' verdicts differ at {_differ(told, wanted)} place(s)"


def _is_of(place: tuple[str, int, int, int], source: Source) -> bool:
    return place[:3] == (source.topic, source.incarnation, source.partition)


def _differ(one: Mapping[object, object], other: Mapping[object, object]) -> int:
    return sum(one.get(key) != other.get(key) for key in one.keys() | other.keys())
