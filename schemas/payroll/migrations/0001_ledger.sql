-- The payroll ledger: one row per idempotency key, ever. The first columns are common to all
-- ledgers (`schemas.record_type.COMMON_LEDGER_COLUMNS`), in that order. Constraints begin with
-- `payroll_`: what they refuse counts as the record's fault, not the database's.

CREATE TABLE payroll_ledger (
    key bytea NOT NULL,
    canonical_digest bytea NOT NULL,
    canonical_version smallint NOT NULL,
    raw_digest bytea NOT NULL,
    incarnation integer NOT NULL,
    partition integer NOT NULL,
    record_offset bigint NOT NULL,
    kafka_timestamp bigint NOT NULL,
    decision_set bytea NOT NULL,
    contract_version smallint NOT NULL,
    writer_schema bytea,
    correlation_id text NOT NULL,
    traceparent text,
    supplied_key text,
    flags text[] NOT NULL,
    body text NOT NULL,
    employee_id text NOT NULL,
    source_run_id text NOT NULL,
    statement_id text,
    statement_type text NOT NULL,
    corrects text,
    pay_period_start date NOT NULL,
    pay_period_end date NOT NULL,
    pay_date date,
    gross_pay numeric(14, 2) NOT NULL,
    net_pay numeric(14, 2),
    currency text NOT NULL,
    tax_jurisdiction text NOT NULL,
    authority text NOT NULL,
    authority_level smallint NOT NULL,
    rule_ids text[] NOT NULL,
    residence_authority text,
    committed_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT payroll_ledger_pkey PRIMARY KEY (key),
    CONSTRAINT payroll_ledger_key_length CHECK (octet_length(key) = 32),
    CONSTRAINT payroll_ledger_gross_pay CHECK (gross_pay >= 0),
    CONSTRAINT payroll_ledger_period CHECK (pay_period_start <= pay_period_end)
);
CALL weighbridge_append_only('payroll_ledger');

-- Few statements correct another one, so this index costs the others nothing.
CREATE INDEX payroll_ledger_corrects ON payroll_ledger (corrects) WHERE corrects IS NOT NULL;

-- The last word on each statement. A statement that another one corrects, reverses or voids is not
-- here, the other one is; of several that name the same statement, the one committed last.
-- `standing_gross_pay` is what remains to be counted: nothing after a reversal or a void.
CREATE VIEW payroll_current AS
SELECT
    encode(ledger.key, 'hex') AS idempotency_key,
    CASE WHEN ledger.statement_type IN ('reversal', 'void') THEN 0.00 ELSE ledger.gross_pay END
        AS standing_gross_pay,
    ledger.*
FROM payroll_ledger AS ledger
WHERE NOT EXISTS (
    SELECT FROM payroll_ledger AS later
    WHERE later.corrects = encode(ledger.key, 'hex') AND later.key <> ledger.key
)
AND NOT EXISTS (
    SELECT FROM payroll_ledger AS rival
    WHERE rival.corrects = ledger.corrects
        AND (rival.committed_at, rival.incarnation, rival.partition, rival.record_offset)
            > (ledger.committed_at, ledger.incarnation, ledger.partition, ledger.record_offset)
);

-- Rows and money. The amount of a reversal or void is a magnitude that counts negative.
CREATE VIEW payroll_totals AS
SELECT
    currency,
    count(*) AS ledger_rows,
    sum(CASE WHEN statement_type IN ('reversal', 'void') THEN -gross_pay ELSE gross_pay END)
        AS amount
FROM payroll_ledger
GROUP BY currency;

GRANT SELECT, INSERT ON payroll_ledger TO weighbridge_worker;
GRANT SELECT ON payroll_ledger TO weighbridge_reader;
GRANT SELECT ON payroll_current, payroll_totals TO weighbridge_worker, weighbridge_reader;
