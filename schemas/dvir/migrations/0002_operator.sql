-- Operators look into the ledger to tell what a reject would become now.
GRANT SELECT ON dvir_ledger, dvir_signature, dvir_current, dvir_totals TO weighbridge_operator;
