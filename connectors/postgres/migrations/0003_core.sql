-- Tables every record type shares. A record type's own tables are in its folder's migrations.

-- Who this database is. The id stands beside every offset the group commits, so offsets that
-- another deployment moved are told apart from ours.
CREATE TABLE deployment (
    only_one boolean PRIMARY KEY DEFAULT true CHECK (only_one),
    id uuid NOT NULL DEFAULT gen_random_uuid(),
    created_at timestamptz NOT NULL DEFAULT now()
);
INSERT INTO deployment DEFAULT VALUES;
CALL weighbridge_append_only('deployment');

-- Everything besides the record that a verdict may depend on, under its digest.
CREATE TABLE decision_set (
    digest bytea PRIMARY KEY CHECK (octet_length(digest) = 32),
    content text NOT NULL CHECK (content IS JSON OBJECT),
    stored_at timestamptz NOT NULL DEFAULT now()
);
CALL weighbridge_append_only('decision_set');

-- Which decision set came into force when. The newest row is in force.
CREATE TABLE activation (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    digest bytea NOT NULL REFERENCES decision_set (digest),
    activated_at timestamptz NOT NULL DEFAULT now()
);
CALL weighbridge_append_only('activation');

-- Stops every partition at its next claim. A mark is in force until a later row clears it; only the
-- owner can clear.
CREATE TABLE stop_mark (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    why text NOT NULL,
    clears bigint REFERENCES stop_mark (number),
    marked_at timestamptz NOT NULL DEFAULT now()
);
CALL weighbridge_append_only('stop_mark');

CREATE VIEW stop_mark_in_force AS
SELECT mark.number, mark.why, mark.marked_at
FROM stop_mark AS mark
WHERE mark.clears IS NULL
    AND NOT EXISTS (SELECT FROM stop_mark AS later WHERE later.clears = mark.number);

-- The decided cursor of a partition. Small and hot: every batch updates its row in place, so pages
-- are kept mostly empty (HOT updates), no changing column is indexed, and vacuum comes early.
CREATE TABLE partition_cursor (
    topic text NOT NULL,
    partition integer NOT NULL,
    consumer_group text NOT NULL,
    incarnation integer NOT NULL CHECK (incarnation >= 1),
    cluster_id text NOT NULL,
    first_offset bigint NOT NULL,
    next_offset bigint NOT NULL,
    batch_number bigint NOT NULL DEFAULT 0,
    owner_token bytea NOT NULL,
    last_offset bigint,
    last_digest bytea,
    last_timestamp bigint,
    emitted_offset bigint,
    records_in bigint NOT NULL DEFAULT 0,
    committed bigint NOT NULL DEFAULT 0,
    duplicate bigint NOT NULL DEFAULT 0,
    quarantined bigint NOT NULL DEFAULT 0,
    held bigint NOT NULL DEFAULT 0,
    close_records bigint NOT NULL DEFAULT 0,
    updated_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (topic, partition, consumer_group),
    CONSTRAINT partition_cursor_order CHECK (first_offset <= next_offset),
    CONSTRAINT partition_cursor_balance
        CHECK (records_in = committed + duplicate + quarantined + held)
) WITH (
    fillfactor = 20,
    autovacuum_vacuum_threshold = 50,
    autovacuum_vacuum_scale_factor = 0
);

-- What each batch decided and settled, one entry per record, packed. Digests do not compress, so
-- the page is stored outside the row as it is.
CREATE TABLE verdict_page (
    topic text NOT NULL,
    partition integer NOT NULL,
    consumer_group text NOT NULL,
    incarnation integer NOT NULL,
    batch_number bigint NOT NULL,
    begin_offset bigint NOT NULL,
    next_offset bigint NOT NULL,
    decision_set bytea NOT NULL,
    record_count integer NOT NULL,
    page bytea NOT NULL,
    stored_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (topic, partition, consumer_group, incarnation, batch_number),
    CONSTRAINT verdict_page_order CHECK (begin_offset < next_offset)
);
ALTER TABLE verdict_page ALTER COLUMN page SET STORAGE EXTERNAL;
CALL weighbridge_append_only('verdict_page');

-- Every record that was turned away, with its bytes untouched. A position has one verdict, so it is
-- the key. Columns up to record_headers are those of `schemas.quarantine.QUARANTINE_COLUMNS`.
CREATE TABLE quarantine (
    topic text NOT NULL,
    incarnation integer NOT NULL,
    partition integer NOT NULL,
    record_offset bigint NOT NULL,
    kafka_timestamp bigint NOT NULL,
    record_type text NOT NULL,
    reason text NOT NULL,
    detail text NOT NULL,
    key bytea,
    correlation_id text NOT NULL,
    decision_set bytea NOT NULL,
    raw_digest bytea NOT NULL,
    attempt integer NOT NULL,
    safety_critical boolean NOT NULL,
    record_key bytea,
    record_value bytea,
    record_headers bytea NOT NULL,
    quarantined_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT quarantine_pkey PRIMARY KEY (topic, incarnation, partition, record_offset)
);
CALL weighbridge_append_only('quarantine');

-- Keys whose ledger rows retention has removed: still taken, for ever.
CREATE TABLE retired_key (
    record_type text NOT NULL,
    key bytea NOT NULL,
    canonical_digest bytea NOT NULL,
    incarnation integer NOT NULL,
    partition integer NOT NULL,
    record_offset bigint NOT NULL,
    retired_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (record_type, key)
);
CALL weighbridge_append_only('retired_key');

GRANT SELECT ON
    deployment, decision_set, activation, stop_mark, stop_mark_in_force, partition_cursor,
    verdict_page, quarantine, retired_key, schema_migration
TO weighbridge_worker, weighbridge_reader;
GRANT INSERT ON verdict_page, quarantine TO weighbridge_worker;
GRANT INSERT, UPDATE ON partition_cursor TO weighbridge_worker;
GRANT INSERT (why) ON stop_mark TO weighbridge_worker;
