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

-- name: pages_from
-- Verdict pages in order of their batches, some at a time.
SELECT batch_number, begin_offset, page FROM verdict_page
WHERE topic = $1 AND partition = $2 AND consumer_group = $3 AND incarnation = $4
    AND batch_number >= $5
ORDER BY batch_number LIMIT $6

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

-- name: rejects_matching
-- Which rejects are meant: the end of several statements below, with the same parameters.
FROM reject
WHERE ($1::text IS NULL OR record_type = $1)
    AND ($2::text[] IS NULL OR reason = ANY ($2))
    AND ($3::timestamptz IS NULL OR quarantined_at >= $3)
    AND ($4::timestamptz IS NULL OR quarantined_at < $4)
    AND ($5::text[] IS NULL
        OR EXISTS (SELECT FROM unnest($5::text[]) AS needle WHERE strpos(detail, needle) > 0))
    AND CASE $6::text
        WHEN 'open' THEN NOT resubmitted AND NOT dismissed
        WHEN 'resubmitted' THEN resubmitted
        WHEN 'dismissed' THEN dismissed
        ELSE true END
    AND ($7::bytea IS NULL OR raw_digest = $7)
    AND ($8::text[] IS NULL OR (topic, incarnation, partition, record_offset) IN (
        SELECT * FROM unnest($8::text[], $9::integer[], $10::integer[], $11::bigint[])))
    -- A text that a JSON value holds stands there as it is, or some of it is escaped.
    AND ($12::bytea IS NULL OR position($12 IN record_value) > 0
        OR position('\x5c'::bytea IN record_value) > 0)

-- name: rejects_grouped
-- Rejects by what is the same about them, with how many there are in all. The newest one of a group
-- is the largest (time in microseconds, incarnation, partition, offset).
SELECT
    topic, record_type, reason, raw_digest, count(*) AS records, min(quarantined_at) AS first_seen,
    max(quarantined_at) AS last_seen, max(attempt) AS attempt,
    bool_or(safety_critical) AS safety_critical,
    max(ARRAY[
        (extract(epoch FROM quarantined_at) * 1000000)::bigint, incarnation, partition,
        record_offset
    ]) AS newest,
    count(*) OVER () AS groups_in_all, (sum(count(*)) OVER ())::bigint AS records_in_all
{rejects_matching}
GROUP BY topic, record_type, reason, raw_digest
ORDER BY bool_or(safety_critical) DESC, max(quarantined_at) DESC, topic, reason, raw_digest
LIMIT $13 OFFSET $14

-- name: rejects_listed
-- Rejects one by one, without their bytes.
SELECT
    topic, incarnation, partition, record_offset, record_type, reason, detail, raw_digest, attempt,
    safety_critical, quarantined_at, value_bytes, resubmitted, dismissed
{rejects_matching}
ORDER BY safety_critical DESC, quarantined_at DESC, topic, incarnation, partition,
    record_offset DESC
LIMIT $13 OFFSET $14

-- name: rejects_counted
-- How many there are.
SELECT count(*) AS records
{rejects_matching}

-- name: rejects_in_order
-- Rejects in the order in which they were turned away: that in which they are sent again. There may
-- be very many, so only what is needed for that.
SELECT
    topic, incarnation, partition, record_offset, record_type, reason, '' AS detail, raw_digest, attempt,
    safety_critical, quarantined_at, value_bytes, resubmitted, dismissed
{rejects_matching}
ORDER BY quarantined_at, topic, incarnation, partition, record_offset
LIMIT $13

-- name: rejects_whole
-- Rejects with their bytes, in the order they are asked for.
SELECT {columns}, quarantined_at
FROM unnest($1::text[], $2::integer[], $3::integer[], $4::bigint[])
    WITH ORDINALITY AS wanted (topic, incarnation, partition, record_offset, place)
JOIN quarantine USING (topic, incarnation, partition, record_offset)
ORDER BY place

-- name: acts_on
-- What people have done about a reject; the oldest first.
SELECT number, act, who, why, database_role::text AS database_role, acted_at
FROM operations WHERE target = $1 ORDER BY number LIMIT $2

-- name: resubmissions_of
-- A reject's resubmissions, and where they stand.
SELECT resubmission.number, resubmission.attempt, resubmission.corrected, operations.who,
    operations.acted_at, resubmission_sent.incarnation, resubmission_sent.partition,
    resubmission_sent.record_offset
FROM resubmission
JOIN operations USING (number)
LEFT JOIN resubmission_sent USING (number)
WHERE topic = $1 AND resubmission.incarnation = $2 AND resubmission.partition = $3
    AND resubmission.record_offset = $4
ORDER BY number LIMIT $5

-- name: resubmission_at
-- The reject that the record at a position was sent for, if we sent it.
SELECT resubmission.topic, resubmission.incarnation, resubmission.partition,
    resubmission.record_offset
FROM resubmission_sent
JOIN resubmission USING (number)
WHERE resubmission.topic = $1 AND resubmission_sent.incarnation = $2
    AND resubmission_sent.partition = $3 AND resubmission_sent.record_offset = $4
LIMIT 1

-- name: lock_acts
-- Acts on rejects are recorded one transaction after the other, so that their numbers become
-- visible in order and nobody acts on the same reject twice.
SELECT pg_advisory_xact_lock(hashtext('weighbridge acts on rejects'))

-- name: already_resubmitted
-- Which of these bytes of these rejects were sent again, by whom and when.
SELECT resubmission.topic, incarnation, partition, record_offset, resubmission.digest,
    operations.who, operations.acted_at
FROM unnest($1::text[], $2::integer[], $3::integer[], $4::bigint[], $5::bytea[])
    AS wanted (topic, incarnation, partition, record_offset, digest)
JOIN resubmission USING (topic, incarnation, partition, record_offset, digest)
JOIN operations USING (number)

-- name: record_resubmissions
-- Acts and what belongs to them, but for bytes of a reject that were sent again before.
WITH wanted AS (
    SELECT * FROM unnest(
        $3::text[], $4::text[], $5::integer[], $6::integer[], $7::bigint[], $8::bytea[],
        $9::bytea[], $10::integer[], $11::integer[], $12::boolean[], $13::bytea[], $14::bytea[],
        $15::text[]
    ) WITH ORDINALITY AS wanted (
        target, topic, incarnation, partition, record_offset, digest_before, digest, attempt,
        to_partition, corrected, record_key, record_value, detail, place
    )
), act AS (
    INSERT INTO operations (act, who, why, target, digest_before, digest_after, detail)
    SELECT 'resubmit', $1, $2, target, digest_before, digest, detail
    FROM wanted
    WHERE NOT EXISTS (
        SELECT FROM resubmission AS earlier
        WHERE earlier.topic = wanted.topic AND earlier.incarnation = wanted.incarnation
            AND earlier.partition = wanted.partition
            AND earlier.record_offset = wanted.record_offset AND earlier.digest = wanted.digest
    )
    ORDER BY place
    RETURNING number, target
)
INSERT INTO resubmission (
    number, topic, incarnation, partition, record_offset, digest, attempt, to_partition, corrected,
    record_key, record_value
)
SELECT number, topic, incarnation, partition, record_offset, digest, attempt, to_partition,
    corrected, record_key, record_value
FROM act JOIN wanted USING (target)
RETURNING number

-- name: resubmissions_after
-- What is recorded and not sent: in order, with the bytes of those that were not corrected taken
-- from the reject. As many as their values' bytes allow, but at least one.
WITH next AS (
    SELECT resubmission.*, quarantine.record_headers, quarantine.correlation_id,
        CASE WHEN corrected THEN resubmission.record_key ELSE quarantine.record_key END AS key,
        CASE WHEN corrected THEN resubmission.record_value ELSE quarantine.record_value END
            AS value
    FROM resubmission
    JOIN quarantine USING (topic, incarnation, partition, record_offset)
    WHERE topic = $1 AND number > $2
    ORDER BY number LIMIT $3
), measured AS (
    SELECT *, sum(octet_length(value)) OVER (ORDER BY number) - octet_length(value) AS before
    FROM next
)
SELECT
    number, topic, incarnation, partition, record_offset, digest, attempt, to_partition, corrected,
    record_headers, correlation_id, key, value
FROM measured
WHERE before <= $4
ORDER BY number

-- name: oldest_resubmission_after
-- When the first of them was recorded.
SELECT acted_at FROM resubmission JOIN operations USING (number)
WHERE resubmission.topic = $1 AND number > $2
ORDER BY number LIMIT 1

-- name: resubmission_digest
-- The bytes that an act sent.
SELECT digest FROM resubmission WHERE topic = $1 AND number = $2

-- name: last_sent
-- The highest act of a topic whose record is known to stand in the log.
SELECT max(number) AS number
FROM resubmission_sent JOIN resubmission USING (number) WHERE topic = $1

-- name: unsent
-- Acts whose record is not known to stand in the log, and whether there are any.
SELECT topic, count(*) AS records
FROM resubmission
WHERE NOT EXISTS (
    SELECT FROM resubmission_sent WHERE resubmission_sent.number = resubmission.number)
GROUP BY topic ORDER BY topic

-- name: numbers_to_partition
-- Acts in order whose records one transaction sent, with the partitions they went to.
SELECT number, to_partition FROM resubmission
WHERE topic = $1 AND number >= $2 AND number <= $3 ORDER BY number

-- name: record_sent
-- Where records stand that were sent. To be told again changes nothing.
INSERT INTO resubmission_sent (number, incarnation, partition, record_offset)
SELECT * FROM unnest($1::bigint[], $2::integer[], $3::integer[], $4::bigint[])
ON CONFLICT (number) DO NOTHING

-- name: incarnation_of
-- In which of its lives a topic is, as far as anybody has read it.
SELECT coalesce(max(incarnation), 1) AS incarnation FROM partition_cursor WHERE topic = $1

-- name: record_dismissals
-- Acts, but for rejects that were dismissed before.
INSERT INTO operations (act, who, why, target, digest_before)
SELECT 'dismiss', $1, $2, target, digest
FROM unnest($3::text[], $4::bytea[]) WITH ORDINALITY AS wanted (target, digest, place)
WHERE NOT EXISTS (
    SELECT FROM operations AS earlier
    WHERE earlier.target = wanted.target AND earlier.act = 'dismiss'
)
ORDER BY place
RETURNING number

-- name: heal_limits
-- `heal` is one long transaction: it as a whole has no limit, its waits have. It is idle while it
-- looks for the first event of a range.
SET LOCAL transaction_timeout = 0;
SET LOCAL lock_timeout = '20s';
SET LOCAL idle_in_transaction_session_timeout = '1h'

-- name: heal_lock
-- One `heal` at a time per database.
SELECT pg_try_advisory_xact_lock(hashtext('weighbridge heal')) AS taken

-- name: create_heal_entry
-- What a lost verdict was, one row per record, until its page is written; on the server's disk, not
-- in the client's memory. A duplicate's holder is looked up when all keys are back.
CREATE TEMPORARY TABLE heal_entry (
    place integer NOT NULL,
    record_offset bigint NOT NULL,
    kafka_timestamp bigint NOT NULL,
    verdict smallint NOT NULL,
    reason text,
    key bytea,
    raw_digest bytea NOT NULL,
    canonical_digest bytea,
    decision_set bytea,
    event_digest bytea,
    PRIMARY KEY (place, record_offset)
) ON COMMIT DROP

-- name: heal_cursors
-- The cursor rows of a group.
SELECT {cursor} FROM partition_cursor WHERE consumer_group = $1

-- name: heal_last_page
-- Under what the last batch was decided, and when it was persisted.
SELECT decision_set, stored_at FROM verdict_page
WHERE topic = $1 AND partition = $2 AND consumer_group = $3 AND incarnation = $4
    AND batch_number = $5

-- name: heal_events
-- The events that entries came from.
SELECT record_offset, event_digest FROM heal_entry
WHERE place = $1 AND record_offset = ANY ($2::bigint[])

-- name: heal_entries
-- A partition's entries in order, a part at a time.
SELECT record_offset, kafka_timestamp, verdict, reason, key, raw_digest, canonical_digest,
    decision_set
FROM heal_entry WHERE place = $1 AND record_offset > $2
ORDER BY record_offset LIMIT $3

-- name: heal_renumber
-- The healed pages end at the number of the batch that moved the group's offset last; there are
-- fewer of them than there were batches, so numbers before them are left out.
UPDATE partition_cursor SET batch_number = $4
WHERE topic = $1 AND partition = $2 AND consumer_group = $3 AND batch_number <= $4

-- name: heal_clear_stop_marks
-- Clear the stop marks that name `heal` as what clears them.
INSERT INTO stop_mark (why, clears)
SELECT $1, number FROM stop_mark_in_force WHERE strpos(why, $2) > 0
RETURNING clears

-- name: heal_newest
-- What people did last, as far as this database knows.
SELECT
    (SELECT max(acted_at) FROM operations) AS act,
    (SELECT max(activated_at) FROM activation) AS activation

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
