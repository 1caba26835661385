-- Rejects that are sent again. A row here is the intent, durable before the record is sent, and
-- names the act of a person it belongs to; where the record then stands is `resubmission_sent`.
-- What was corrected is kept as long as the rejects are, for it is what a reject may hold.

CREATE TABLE resubmission (
    number bigint PRIMARY KEY REFERENCES operations (number),
    topic text NOT NULL,
    incarnation integer NOT NULL,
    partition integer NOT NULL,
    record_offset bigint NOT NULL,
    digest bytea NOT NULL CHECK (octet_length(digest) = 32),
    attempt integer NOT NULL CHECK (attempt >= 2),
    to_partition integer NOT NULL,
    corrected boolean NOT NULL,
    record_key bytea,
    record_value bytea,
    CONSTRAINT resubmission_of FOREIGN KEY (topic, incarnation, partition, record_offset)
        REFERENCES quarantine (topic, incarnation, partition, record_offset),
    -- The same bytes of the same reject are sent again once, ever; so nothing can go in circles.
    CONSTRAINT resubmission_once UNIQUE (topic, incarnation, partition, record_offset, digest),
    -- Unchanged bytes are those of the reject and are not kept twice.
    CONSTRAINT resubmission_bytes CHECK (
        CASE WHEN corrected THEN record_value IS NOT NULL
        ELSE record_key IS NULL AND record_value IS NULL END)
);
CALL weighbridge_append_only('resubmission');

-- What is recorded and not sent yet is read in this order.
CREATE INDEX resubmission_order ON resubmission (topic, number);

CREATE TABLE resubmission_sent (
    number bigint PRIMARY KEY REFERENCES resubmission (number),
    incarnation integer NOT NULL,
    partition integer NOT NULL,
    record_offset bigint NOT NULL,
    sent_at timestamptz NOT NULL DEFAULT now()
);
CALL weighbridge_append_only('resubmission_sent');

-- From a raw record back to the act that sent it.
CREATE INDEX resubmission_sent_at ON resubmission_sent (partition, record_offset);

-- Rejects as they are listed: without their bytes, with what people have done about them.
CREATE VIEW reject AS
SELECT
    quarantine.topic, quarantine.incarnation, quarantine.partition, quarantine.record_offset,
    quarantine.record_type, quarantine.reason, quarantine.detail, quarantine.raw_digest,
    quarantine.attempt, quarantine.safety_critical, quarantine.quarantined_at,
    quarantine.record_value,
    coalesce(octet_length(quarantine.record_value), 0) AS value_bytes,
    again.topic IS NOT NULL AS resubmitted,
    dismissal.target IS NOT NULL AS dismissed
FROM quarantine
LEFT JOIN (
    SELECT DISTINCT topic, incarnation, partition, record_offset FROM resubmission
) AS again
    ON again.topic = quarantine.topic AND again.incarnation = quarantine.incarnation
    AND again.partition = quarantine.partition
    AND again.record_offset = quarantine.record_offset
LEFT JOIN (
    SELECT DISTINCT target FROM operations WHERE act = 'dismiss'
) AS dismissal
    ON dismissal.target = quarantine.topic || '/' || quarantine.incarnation || '/'
        || quarantine.partition || '/' || quarantine.record_offset;

-- The newest first, those that matter for safety before all others.
CREATE INDEX quarantine_listed ON quarantine (safety_critical DESC, quarantined_at DESC);

GRANT SELECT ON resubmission, resubmission_sent, reject
TO weighbridge_operator, weighbridge_reader, weighbridge_worker;
GRANT INSERT (
    number, topic, incarnation, partition, record_offset, digest, attempt, to_partition, corrected,
    record_key, record_value
) ON resubmission TO weighbridge_operator;
GRANT INSERT (number, incarnation, partition, record_offset) ON resubmission_sent
    TO weighbridge_operator;
