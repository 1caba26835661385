"""The scorer: a Faust app that keeps a weighted defect score per unit. Copy it for your own.

    dvir.committed ──▶ agent `split` ──one fact per unit──▶ <id>-units ──▶ agent `tally` ──▶ table
    any partitioning          │ decode                      key = unit           │ apply     `units`
                              ▼                                                  ▼        changelog
                     cannot be decoded: stop                             /score/<unit>/

A Faust table is cut like the stream that writes it, and a report may be about eight units while its
message key is the first one's: so each unit's facts go through a topic keyed by unit.

Exactly-once effect, from at-least-once parts:

1. `read_committed`: what the gate aborted is never seen.
2. An event is acknowledged by us, after its facts, or the changed state, are acknowledged by the
   broker. Faust itself would acknowledge in a `finally`, even when it raises or is cancelled.
3. So a crash, a rebalance or a duplicate repeats work and loses none; and repeated work changes
   nothing, because `streams.scoring.apply` is the same whatever comes twice or late.
4. What cannot be decoded or applied ends the process before it is acknowledged, with exit code 3,
   at every start until the code can read it. Nothing is skipped.

Not promised: a worker that was stopped while it wrote, for longer than the session timeout, and
then goes on, may put its last, older state of one unit into the changelog behind its successor's.

Run it: `faust -A streams.scorer worker -l info` or `python -m streams.scorer`.
"""

from __future__ import annotations

import logging
import os
import sys
import tempfile
from collections.abc import AsyncIterable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import cast

import faust
from aiokafka.errors import KafkaError
from faust.web import Request, Response, View

from connectors.errors import ConfigurationError
from connectors.kafka.faust_transport import AwaitedTable, CommittedApp
from schemas.committed import UnreadableEvent, read_event
from schemas.record_types import RECORD_TYPES
from streams.scoring import FACT, SCORE, STATE, UnitState, apply, facts_of, score
from streams.settings import Settings
from streams.weights import SHIPPED, load
from streams.wiring import kafka_bootstrap

log = logging.getLogger("weighbridge.scorer")

DVIR = RECORD_TYPES["dvir"]
UNITS_RETENTION = timedelta(days=35)
"""As long as the committed events themselves are kept."""
EXIT_USAGE, EXIT_STOPPED, EXIT_UNREACHABLE = 2, 3, 4


def create_app(settings: Settings) -> faust.App:
    """The app with its two agents, its table and its page. Raises `ConfigurationError`."""
    weights = load(settings.scorer_weights or SHIPPED)
    app = _app(settings)
    committed = app.topic(
        settings.topic_prefix + DVIR.committed_topic, key_type=bytes, value_type=bytes
    )
    facts = app.topic(
        f"{app.conf.id}-units",
        partitions=settings.partitions,
        replicas=settings.replication,
        retention=UNITS_RETENTION,
        key_type=bytes,
        value_type=bytes,
        internal=True,
    )
    units = AwaitedTable(
        app, name="units", partitions=settings.partitions, key_type=bytes, value_type=bytes
    )
    app.tables.add(units)

    @app.agent(committed, name="split")
    async def split(stream: faust.StreamT[bytes]) -> None:
        """Send each unit's part of an event to that unit's partition."""
        async for event in _events(stream):
            with _stop_on_error(event):
                for unit, fact in facts_of(read_event(DVIR, event.value)):
                    await (await facts.send(key=unit.encode(), value=FACT.dump_json(fact)))
                event.ack()

    @app.agent(facts, name="tally")
    async def tally(stream: faust.StreamT[bytes]) -> None:
        """Apply each fact to the state of its unit."""
        async for event in _events(stream):
            with _stop_on_error(event):
                before = _state(units.get(event.key))
                after = apply(before, FACT.validate_json(event.value))
                if after != before:
                    units[event.key] = STATE.dump_json(after)
                await units.written()  # nothing new may still mean: changed before a cancellation
                event.ack()

    @app.page("/score/{unit}/")
    @app.table_route(units, match_info="unit")  # asks the worker that has this unit
    async def score_page(view: View, _: Request, unit: str) -> Response:
        """The score of a unit, with the open defects it is made of."""
        kept = units.get(unit.encode())
        if kept is None:
            return view.json({"unit": unit, "error": "nothing was reported of it"}, status=404)
        found = score(_state(kept), weights)
        return view.json({"unit": unit, **SCORE.dump_python(found, mode="json")})

    return app


def _app(settings: Settings) -> faust.App:
    """Faust as it must be set. Group, topics and table begin with `scorer_id`, never the gate's."""
    return CommittedApp(
        settings.topic_prefix + settings.scorer_id,
        broker=f"kafka://{kafka_bootstrap(settings).replace(',', ';kafka://')}",
        # "rocksdb://" (pip install faust-streaming-rocksdb) keeps the table on disk, for fleets
        # whose state does not fit into memory; then give each worker a datadir that stays.
        store="memory://",
        datadir=Path(tempfile.gettempdir()) / f"weighbridge-scorer-{os.getuid()}",
        autodiscover=False,
        # Bytes everywhere: then topic, table and page agree on the partition of a unit, and nothing
        # is decoded where Faust would log a fault and go on.
        key_serializer="raw",
        value_serializer="raw",
        topic_partitions=settings.partitions,
        topic_replication_factor=settings.replication,
        table_standby_replicas=0,
        broker_session_timeout=settings.session_timeout_ms // 1000,
        broker_heartbeat_interval=max(settings.session_timeout_ms // 3000, 1),
        # What is not acknowledged comes again: a stop waits for nothing.
        stream_wait_empty=False,
        web_bind=settings.http_host,
        web_host=settings.http_host,
        web_port=settings.scorer_http_port,
    )


def _events(stream: faust.StreamT[bytes]) -> AsyncIterable[faust.Event]:
    """The events of a stream, to be acknowledged by whoever has done the work on them."""
    unacknowledged = cast("faust.Stream[bytes]", stream).noack()
    return cast("AsyncIterable[faust.Event]", unacknowledged.events())


def _state(kept: bytes | None) -> UnitState:
    return UnitState() if kept is None else STATE.validate_json(kept)


@contextmanager
def _stop_on_error(event: faust.Event) -> Iterator[None]:
    """End the process, now, when the work on an event fails: it is not acknowledged, so it comes
    again. Says where it stands and why, never its values."""
    try:
        yield
    except Exception as error:  # whatever it is, the event must not pass for done
        message = event.message
        place = f"{message.topic}/{message.partition}/{message.offset}"
        why = str(error) if isinstance(error, UnreadableEvent) else type(error).__name__
        log.critical("stopped at %s, which is not acknowledged: %s", place, why)
        log.debug("traceback", exc_info=True)
        logging.shutdown()
        os._exit(EXIT_UNREACHABLE if isinstance(error, KafkaError) else EXIT_STOPPED)


def __getattr__(name: str) -> faust.App:
    """`app`, made from the settings when `faust -A streams.scorer` asks for it."""
    if name != "app":
        raise AttributeError(name)
    try:
        app = create_app(Settings.load())
    except ConfigurationError as error:
        sys.stderr.write(f"weighbridge: {error}\n")
        sys.exit(EXIT_USAGE)
    globals()["app"] = app
    return app


if __name__ == "__main__":
    sys.argv[1:] = sys.argv[1:] or ["worker", "-l", "info"]
    __getattr__("app").main()
