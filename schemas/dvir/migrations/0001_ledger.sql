-- The DVIR ledger: one row per idempotency key, ever. The first columns are common to all ledgers
-- (`schemas.record_type.COMMON_LEDGER_COLUMNS`), in that order; `key` is SHA-256 over the
-- idempotency key. Constraints begin with `dvir_`: what they refuse counts as the record's fault.

CREATE TABLE dvir_ledger (
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
    idempotency_key text NOT NULL,
    source text,
    report_id text,
    report_version text,
    source_updated_at timestamptz,
    event text NOT NULL,
    inspection_type text NOT NULL,
    driver_id text,
    inspected_at timestamptz NOT NULL,
    received_at timestamptz,
    condition text NOT NULL,
    unit_identifier text NOT NULL,
    defects_open integer NOT NULL,
    critical boolean NOT NULL,
    payload text,
    committed_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT dvir_ledger_pkey PRIMARY KEY (key),
    CONSTRAINT dvir_ledger_key_length CHECK (octet_length(key) = 32),
    CONSTRAINT dvir_ledger_defects_open CHECK (defects_open >= 0)
);
CALL weighbridge_append_only('dvir_ledger');

CREATE INDEX dvir_ledger_report ON dvir_ledger (report_id, source) WHERE report_id IS NOT NULL;

-- Signature receipts, written in the transaction of their ledger row and never without it. No
-- foreign key says so: it would read and lock each ledger row once more and more than double the
-- cost of a receipt, while no row of either table can go away.
CREATE TABLE dvir_signature (
    key bytea NOT NULL,
    ordinal smallint NOT NULL,
    role text NOT NULL,
    signer_id text,
    signed_at timestamptz,
    receipt text,
    CONSTRAINT dvir_signature_pkey PRIMARY KEY (key, ordinal),
    CONSTRAINT dvir_signature_ordinal CHECK (ordinal >= 0)
);
CALL weighbridge_append_only('dvir_signature');

-- The latest version of each report a source gave an id to, per event: a certification of repairs
-- does not hide the report it certifies. Records without a report id stand for themselves.
CREATE VIEW dvir_current AS
SELECT encode(ledger.key, 'hex') AS ledger_key, ledger.*
FROM dvir_ledger AS ledger
WHERE NOT EXISTS (
    SELECT FROM dvir_ledger AS later
    WHERE later.report_id IS NOT NULL
        AND later.report_id = ledger.report_id
        AND later.source IS NOT DISTINCT FROM ledger.source
        AND later.event = ledger.event
        AND (
            coalesce(later.source_updated_at, '-infinity'),
            later.committed_at, later.incarnation, later.partition, later.record_offset
        ) > (
            coalesce(ledger.source_updated_at, '-infinity'),
            ledger.committed_at, ledger.incarnation, ledger.partition, ledger.record_offset
        )
);

-- Rows; inspections carry no money.
CREATE VIEW dvir_totals AS
SELECT NULL::text AS currency, count(*) AS ledger_rows, NULL::numeric AS amount
FROM dvir_ledger;

GRANT SELECT, INSERT ON dvir_ledger, dvir_signature TO weighbridge_worker;
GRANT SELECT ON dvir_ledger, dvir_signature TO weighbridge_reader;
GRANT SELECT ON dvir_current, dvir_totals TO weighbridge_worker, weighbridge_reader;
