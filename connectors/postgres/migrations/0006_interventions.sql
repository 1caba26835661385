-- What keeps a partition from going on although nothing is wrong with its cursors: a pause, and
-- positions that an operator set aside. Both are read at every assignment and every claim, so they
-- hold for whichever worker owns the partition.

-- A pause is in force until a later row resumes it. The worker's role can pause, in the transaction
-- of the batch that tripped its breaker; only the operator's can resume, as an act on record.
CREATE TABLE partition_pause (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    topic text NOT NULL,
    partition integer NOT NULL,
    consumer_group text NOT NULL,
    why text NOT NULL CHECK (why <> ''),
    resumes bigint UNIQUE REFERENCES partition_pause (number),
    act bigint REFERENCES operations (number),
    paused_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT partition_pause_resumed_by_an_act CHECK ((resumes IS NULL) = (act IS NULL))
);
CALL weighbridge_append_only('partition_pause');
CREATE INDEX partition_pause_place ON partition_pause (topic, partition, consumer_group);

CREATE VIEW partition_pause_in_force AS
SELECT pause.number, pause.topic, pause.partition, pause.consumer_group, pause.why, pause.paused_at
FROM partition_pause AS pause
WHERE pause.resumes IS NULL
    AND NOT EXISTS (SELECT FROM partition_pause AS later WHERE later.resumes = pause.number);

-- Positions whose records get the verdict `held_by_operator` when their turn comes.
CREATE TABLE position_hold (
    topic text NOT NULL,
    incarnation integer NOT NULL,
    partition integer NOT NULL,
    record_offset bigint NOT NULL,
    act bigint NOT NULL REFERENCES operations (number),
    PRIMARY KEY (topic, incarnation, partition, record_offset)
);
CALL weighbridge_append_only('position_hold');

GRANT SELECT ON partition_pause, partition_pause_in_force, position_hold
TO weighbridge_worker, weighbridge_reader, weighbridge_operator;
GRANT INSERT (topic, partition, consumer_group, why) ON partition_pause TO weighbridge_worker;
GRANT INSERT (topic, partition, consumer_group, why, resumes, act)
    ON partition_pause TO weighbridge_operator;
GRANT INSERT (topic, incarnation, partition, record_offset, act)
    ON position_hold TO weighbridge_operator;
