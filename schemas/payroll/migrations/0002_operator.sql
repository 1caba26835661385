-- Operators look into the ledger to tell what a reject would become now.
GRANT SELECT ON payroll_ledger, payroll_current, payroll_totals TO weighbridge_operator;
