"""`weighbridge quarantine resubmit` that kills itself: `python -m ... ACT NTH PORTION ARGUMENT...`.

The real command with one function wrapped, so that the process is killed at an exact point of the
numbered steps of `streams.resubmit`, the NTH time it passes there. PORTION is how many records make
a portion, so that a few records need several.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

from aiokafka import AIOKafkaProducer

from connectors.postgres import rejects, resubmissions
from streams.cli import main
from tests.faults.acting_worker import KILL, Act, after, before

POINTS: dict[str, Callable[[int], None]] = {
    "before-record": lambda n: before(resubmissions, "record", Act(KILL, n)),
    "after-record": lambda n: after(resubmissions, "record", Act(KILL, n)),
    "inside-send": lambda n: before(AIOKafkaProducer, "send_offsets_to_transaction", Act(KILL, n)),
    "before-commit": lambda n: before(AIOKafkaProducer, "commit_transaction", Act(KILL, n)),
    "after-commit": lambda n: after(AIOKafkaProducer, "commit_transaction", Act(KILL, n)),
    "after-note": lambda n: after(resubmissions, "note_sent", Act(KILL, n)),
}
"""Names of the places between the steps."""

if __name__ == "__main__":
    act_name, nth, portion = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    POINTS[act_name](nth)
    rejects.PORTION_RECORDS_MAX = portion
    resubmissions.PORTION_RECORDS_MAX = portion
    sys.argv = ["weighbridge", "quarantine", "resubmit", *sys.argv[4:]]
    main()
