-- What append-only means: UPDATE, DELETE and TRUNCATE are refused to everyone, owner and superuser
-- included, and also to sessions that claim to be a replica (ENABLE ALWAYS). Whoever wants to
-- rewrite the book must first alter the table, which is an act of its own.

CREATE FUNCTION weighbridge_refuse_change() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'table % is append-only: % is refused', TG_TABLE_NAME, TG_OP
        USING ERRCODE = 'restrict_violation', TABLE = TG_TABLE_NAME, SCHEMA = TG_TABLE_SCHEMA;
END
$$;

-- Make a table append-only. A row trigger does not see TRUNCATE, so there are two.
CREATE PROCEDURE weighbridge_append_only(target regclass)
LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE format(
        'CREATE TRIGGER append_only_rows BEFORE UPDATE OR DELETE ON %s '
        'FOR EACH ROW EXECUTE FUNCTION weighbridge_refuse_change()', target);
    EXECUTE format(
        'CREATE TRIGGER append_only_table BEFORE TRUNCATE ON %s '
        'FOR EACH STATEMENT EXECUTE FUNCTION weighbridge_refuse_change()', target);
    EXECUTE format('ALTER TABLE %s ENABLE ALWAYS TRIGGER append_only_rows', target);
    EXECUTE format('ALTER TABLE %s ENABLE ALWAYS TRIGGER append_only_table', target);
END
$$;
