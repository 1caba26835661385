"""`weighbridge heal`: a database that is behind its events gets back what it has lost.

In data order: `plan` (which partitions, from D to E), `lost` (raw records and events of a range,
side by side), `sets` (the decision sets that they name), `rebuild` (pure: what was decided, from
both), `pages` (pure: where one ends), `write` (rows, pages, cursor). `streams/heal.py` calls them,
in one transaction.
"""
