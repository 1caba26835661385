"""What we do with records: the service, the agent, the numbered protocol and the commands.

Imports `schemas` and `connectors`. Read `app.py` first; the modules follow a record in order:
`decide.py`, `settle.py`, `batch.py`, `partition.py`.
"""
