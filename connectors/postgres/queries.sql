-- All statements of the PostgreSQL connector. Loaded by queries.py: `-- name:` begins a statement,
-- comment lines describe it, {placeholders} are filled with checked identifiers.

-- name: lock_migrations
-- One migration at a time per database; released with the session.
SELECT pg_advisory_lock(hashtext('weighbridge migrations'))

-- name: create_schema_migration
-- The list of applied migrations, before the first of them.
CREATE TABLE IF NOT EXISTS schema_migration (
    name text PRIMARY KEY,
    checksum bytea NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT now()
)

-- name: applied_migrations
-- What has been applied, and with which content.
SELECT name, checksum FROM schema_migration ORDER BY applied_at, name

-- name: record_migration
-- Runs in the migration's own transaction.
INSERT INTO schema_migration (name, checksum) VALUES ($1, $2)

-- name: store_decision_set
-- Immutable: the digest is over the content, so a second store of it changes nothing.
INSERT INTO decision_set (digest, content) VALUES ($1, $2) ON CONFLICT (digest) DO NOTHING

-- name: activate_first
-- Bring a decision set into force if none is.
INSERT INTO activation (digest)
SELECT $1 WHERE NOT EXISTS (SELECT FROM activation)

-- name: deployment
-- The random id made by the first migration.
SELECT id::text AS id FROM deployment

-- name: stop_mark
-- The oldest stop mark in force, if any.
SELECT why FROM stop_mark_in_force ORDER BY number LIMIT 1

-- name: set_stop_mark
-- Stop every partition at its next claim. Append-only.
INSERT INTO stop_mark (why) VALUES ($1)

-- name: take
-- Step (b): a new token in the cursor row fences the former owner's writes. Waits for the row no
-- longer than lock_timeout.
UPDATE partition_cursor SET owner_token = $4, updated_at = now()
WHERE topic = $1 AND partition = $2 AND consumer_group = $3
RETURNING {cursor}

-- name: terminate_blockers
-- Step (b), when the row stayed locked: the session that locks or changed it is the one whose
-- transaction id stands in the row as xmax. Those of our own role and application are ended.
SELECT pg_terminate_backend(activity.pid, $4) AS ended
FROM partition_cursor AS cursor
JOIN pg_locks AS held
    ON held.locktype = 'transactionid' AND held.granted AND held.transactionid = cursor.xmax
JOIN pg_stat_activity AS activity ON activity.pid = held.pid
WHERE cursor.topic = $1 AND cursor.partition = $2 AND cursor.consumer_group = $3
    AND activity.usename = session_user
    AND activity.application_name = current_setting('application_name')
    AND activity.pid <> pg_backend_pid()

-- name: begin
-- The cursor row of a partition never seen before.
INSERT INTO partition_cursor
    (topic, partition, consumer_group, incarnation, cluster_id, first_offset, next_offset,
     owner_token)
VALUES ($1, $2, $3, $4, $5, $6, $6, $7)
ON CONFLICT (topic, partition, consumer_group) DO NOTHING

-- name: read_cursor
-- The cursor row and its owner.
SELECT {cursor}, owner_token FROM partition_cursor
WHERE topic = $1 AND partition = $2 AND consumer_group = $3

-- name: claim
-- Start of step 3, in one statement: the locked cursor row, the stop mark, what is in force, what
-- keeps the partition or single positions from going on.
SELECT
    {cursor}, owner_token,
    (SELECT why FROM stop_mark_in_force ORDER BY number LIMIT 1) AS stop_mark,
    (SELECT digest FROM activation ORDER BY number DESC LIMIT 1) AS active,
    (SELECT why FROM partition_pause_in_force AS pause
     WHERE pause.topic = $1 AND pause.partition = $2 AND pause.consumer_group = $3
     ORDER BY number LIMIT 1) AS pause,
    ARRAY(SELECT record_offset FROM position_hold AS hold
          WHERE hold.topic = $1 AND hold.partition = $2
              AND hold.incarnation = partition_cursor.incarnation
              AND hold.record_offset >= partition_cursor.next_offset) AS holds
FROM partition_cursor
WHERE topic = $1 AND partition = $2 AND consumer_group = $3
FOR NO KEY UPDATE OF partition_cursor

-- name: probe
-- Who holds these keys: committed rows, and rows that retention has removed.
SELECT key, canonical_digest, incarnation, partition, record_offset
FROM {ledger} WHERE key = ANY ($1::bytea[])
UNION ALL
SELECT key, canonical_digest, incarnation, partition, record_offset
FROM retired_key WHERE record_type = $2 AND key = ANY ($1::bytea[])

-- name: bodies
-- Canonical bodies, to name the fields in which a collision differs.
SELECT key, body FROM {ledger} WHERE key = ANY ($1::bytea[])

-- name: finish
-- End of step 3, in one statement: store the verdict page and move D, by compare-and-set.
WITH stored AS (
    INSERT INTO verdict_page
        (topic, partition, consumer_group, incarnation, batch_number, begin_offset, next_offset,
         decision_set, record_count, page)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
)
UPDATE partition_cursor SET
    next_offset = $7,
    batch_number = $5,
    records_in = records_in + $11,
    committed = committed + $12,
    duplicate = duplicate + $13,
    quarantined = quarantined + $14,
    held = held + $15,
    close_records = close_records + $16,
    last_offset = $17,
    last_digest = $18,
    last_timestamp = $19,
    emitted_offset = coalesce($20, emitted_offset),
    updated_at = now()
WHERE topic = $1 AND partition = $2 AND consumer_group = $3
    AND incarnation = $4 AND batch_number = $5 - 1 AND next_offset = $6
RETURNING batch_number

-- name: page_at
-- The batch that holds the decision on an offset: looked for from the newest backwards.
SELECT batch_number FROM verdict_page
WHERE topic = $1 AND partition = $2 AND consumer_group = $3 AND incarnation = $4
    AND begin_offset <= $5
ORDER BY batch_number DESC LIMIT 1

-- name: page
-- One batch's verdict page.
SELECT begin_offset, next_offset, page FROM verdict_page
WHERE topic = $1 AND partition = $2 AND consumer_group = $3 AND incarnation = $4
    AND batch_number = $5

-- name: batch_end
-- Where a batch ended.
SELECT next_offset FROM verdict_page
WHERE topic = $1 AND partition = $2 AND consumer_group = $3 AND incarnation = $4
    AND batch_number = $5

-- name: ledger_rows
-- Committed rows, to emit what is owed.
SELECT {columns} FROM {ledger} WHERE key = ANY ($1::bytea[])

-- name: quarantine_rows
-- Rejects, to emit what is owed.
SELECT {columns} FROM quarantine
WHERE topic = $1 AND incarnation = $2 AND partition = $3 AND record_offset = ANY ($4::bigint[])
ORDER BY record_offset

-- name: decision_set
-- A stored decision set.
SELECT content FROM decision_set WHERE digest = $1

-- name: active_decision_set
-- The one in force: the newest activation.
SELECT digest FROM activation ORDER BY number DESC LIMIT 1

-- name: report_cursors
-- Every partition's decided cursor with its counts.
SELECT consumer_group, updated_at, {cursor}
FROM partition_cursor ORDER BY topic, partition, consumer_group

-- name: report_quarantine
-- Rejects by type and reason.
SELECT record_type, reason, count(*) AS records
FROM quarantine GROUP BY record_type, reason ORDER BY record_type, reason

-- name: report_totals
-- Rows and money of a ledger, from the view of its record type.
SELECT currency, ledger_rows, amount FROM {totals} ORDER BY currency

-- name: report_activation
-- What is in force, since when.
SELECT digest, activated_at FROM activation ORDER BY number DESC LIMIT 1

-- name: report_stop_marks
-- All stop marks in force.
SELECT why, marked_at FROM stop_mark_in_force ORDER BY number

-- name: append_act
-- An act of a person.
INSERT INTO operations (act, who, why, target, digest_before, digest_after, detail)
VALUES ($1, $2, $3, $4, $5, $6, $7)
RETURNING number

-- name: interventions
-- What keeps a partition, or positions from its cursor on, from going on.
SELECT
    (SELECT why FROM partition_pause_in_force AS pause
     WHERE pause.topic = $1 AND pause.partition = $2 AND pause.consumer_group = $3
     ORDER BY number LIMIT 1) AS pause,
    ARRAY(SELECT record_offset FROM position_hold AS hold
          WHERE hold.topic = $1 AND hold.partition = $2
              AND hold.incarnation = partition_cursor.incarnation
              AND hold.record_offset >= partition_cursor.next_offset) AS holds
FROM partition_cursor
WHERE topic = $1 AND partition = $2 AND consumer_group = $3

-- name: pause
-- The breaker of a partition has tripped. Append-only.
INSERT INTO partition_pause (topic, partition, consumer_group, why) VALUES ($1, $2, $3, $4)

-- name: pauses_in_force
-- Every pause in force of a group.
SELECT number, topic, partition, why, paused_at FROM partition_pause_in_force
WHERE consumer_group = $1 ORDER BY topic, partition, number

-- name: resume
-- End a pause, by an act on record.
INSERT INTO partition_pause (topic, partition, consumer_group, why, resumes, act)
VALUES ($1, $2, $3, $4, $5, $6)

-- name: pending_holds
-- How many positions from the cursor on are set aside already.
SELECT count(*) AS pending FROM position_hold
WHERE topic = $1 AND incarnation = $2 AND partition = $3 AND record_offset >= $4

-- name: hold
-- Set positions aside, one after the other; those that are already stay under their first act.
INSERT INTO position_hold (topic, incarnation, partition, record_offset, act)
SELECT $1, $2, $3, held, $6 FROM generate_series($4::bigint, $5::bigint) AS held
ON CONFLICT DO NOTHING

-- name: begin_incarnation
-- Another life of the topic: the cursor begins anew, the counts go on. By compare-and-set.
UPDATE partition_cursor SET
    incarnation = incarnation + 1,
    cluster_id = $6,
    first_offset = $7,
    next_offset = $7,
    batch_number = 0,
    last_offset = NULL,
    last_digest = NULL,
    last_timestamp = NULL,
    emitted_offset = NULL,
    updated_at = now()
WHERE topic = $1 AND partition = $2 AND consumer_group = $3
    AND incarnation = $4 AND owner_token = $5
RETURNING {cursor}
