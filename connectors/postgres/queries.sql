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
