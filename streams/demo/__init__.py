"""`weighbridge demo`: a day at the gate, with a crash in it, and the proof read from outside.

`generate` (with `companies`, `payroll`, `dvirs`, `faults`) makes records and says what must become
of each; `publishing`, `worker_process` and `run` do it on real services; `proof` reads topics and
tables with clients of its own and compares. Nothing imports from here but the command.
"""
