"""PostgreSQL: the decided cursor, the ledger, quarantine and verdict pages.

`migrate` brings a database up to date, `pool` bounds and times every session, `ledger` is the one
transaction of step 3, `reports` is what `status` reads. All SQL is in `queries.sql` and in the
migrations, here and in each record type's folder. Imports `schemas` and `connectors` only.
"""
