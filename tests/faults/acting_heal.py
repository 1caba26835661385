"""A heal that kills itself: `python -m tests.faults.acting_heal ACT NTH`; see `acting_worker`."""

from __future__ import annotations

import sys

from connectors.postgres.healing import HealTransaction
from connectors.postgres.pool import Pool
from streams.cli import main
from tests.faults.acting_worker import KILL, Act, after, before

POINTS = {
    "after-rows": lambda n: after(HealTransaction, "write_entries", Act(KILL, n)),
    "after-page": lambda n: after(HealTransaction, "finish", Act(KILL, n)),
    "after-act": lambda n: after(HealTransaction, "record", Act(KILL, n)),
    "before-commit": lambda n: before(Pool, "_commit", Act(KILL, n)),
    "after-commit": lambda n: after(Pool, "_commit", Act(KILL, n)),
}

if __name__ == "__main__":
    act_name, nth = sys.argv[1], int(sys.argv[2])
    POINTS[act_name](nth)
    sys.argv = ["weighbridge", "heal"]
    main()
