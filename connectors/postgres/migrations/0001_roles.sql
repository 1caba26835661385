-- Roles of least privilege. They belong to the whole server: databases on it share them.
--
-- weighbridge_worker runs the gate: it reads and appends, and cannot change or remove a row of any
-- append-only table. weighbridge_reader reads. Neither is given a password here: where the server
-- asks for one, nobody can log in with them until an administrator has set it.
-- An administrator may create both beforehand; then the owner needs no CREATEROLE.

DO $$
DECLARE
    wanted name;
BEGIN
    FOREACH wanted IN ARRAY ARRAY['weighbridge_worker', 'weighbridge_reader']::name[] LOOP
        IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = wanted) THEN
            BEGIN
                EXECUTE format('CREATE ROLE %I LOGIN', wanted);
            EXCEPTION
                -- Another database of the same server is being migrated at this moment.
                WHEN duplicate_object OR unique_violation THEN NULL;
            END;
        END IF;
    END LOOP;
END
$$;
