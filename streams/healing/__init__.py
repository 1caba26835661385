"""`weighbridge heal`: a database that is behind its events gets back what it has lost.

In data order: `plan` (which partitions, from D to E), `lost` (raw records and events of a range,
side by side), `rebuild` (pure: what was decided, from both), `write` (one transaction), `run`.
"""
