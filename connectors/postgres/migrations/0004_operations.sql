-- Acts of people: who did what to which record or range, and why. Append-only; a later act may speak
-- of an earlier one, none is ever changed. `session_user` says which role did it, whatever `who` says.

-- weighbridge_operator handles rejects: it reads everything and adds acts, and can write no verdict.
DO $$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'weighbridge_operator') THEN
        BEGIN
            CREATE ROLE weighbridge_operator LOGIN;
        EXCEPTION
            -- Another database of the same server is being migrated at this moment.
            WHEN duplicate_object OR unique_violation THEN NULL;
        END;
    END IF;
END
$$;

CREATE TABLE operations (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    act text NOT NULL CHECK (act <> ''),
    who text NOT NULL CHECK (who <> ''),
    why text,
    target text NOT NULL,
    digest_before bytea CHECK (octet_length(digest_before) = 32),
    digest_after bytea CHECK (octet_length(digest_after) = 32),
    detail text NOT NULL DEFAULT '{}' CHECK (detail IS JSON OBJECT),
    database_role name NOT NULL DEFAULT session_user,
    acted_at timestamptz NOT NULL DEFAULT now()
);
CALL weighbridge_append_only('operations');

-- What was done to a record: looked up for every reject that is listed.
CREATE INDEX operations_target ON operations (target, number);

GRANT SELECT ON
    deployment, decision_set, activation, stop_mark, stop_mark_in_force, partition_cursor,
    verdict_page, quarantine, retired_key, schema_migration
TO weighbridge_operator;
GRANT SELECT ON operations TO weighbridge_operator, weighbridge_reader, weighbridge_worker;
GRANT INSERT (act, who, why, target, digest_before, digest_after, detail)
    ON operations TO weighbridge_operator;
