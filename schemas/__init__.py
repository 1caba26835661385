"""What a record is and what is true of it.

Everything here is pure: no await, no network, no clock, no environment, no randomness. SQL and
Avro files in this package are data. It imports nothing of the project but itself.
"""
