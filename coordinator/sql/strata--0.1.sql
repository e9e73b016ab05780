-- Coordinator extension, version 0.1.
-- The build appends extensions/common/sql/*.sql, which both extensions share.
\echo Use "CREATE EXTENSION strata" to load this file. \quit

-- Made here, the schema is a part of the extension, and pg_dump leaves it to CREATE EXTENSION.
CREATE SCHEMA strata;
GRANT USAGE ON SCHEMA strata TO PUBLIC;
COMMENT ON SCHEMA strata IS 'Strata: distributed tables over many PostgreSQL servers';

-- ---------------------------------------------------------------------------
-- Metadata.  src/cluster/metadata_write.h names the columns by number: keep them in step.
-- ---------------------------------------------------------------------------

CREATE TABLE strata.cluster (
    id uuid NOT NULL,
    epoch bigint NOT NULL CHECK (epoch > 0),
    ddl_version bigint NOT NULL DEFAULT 0,
    -- at most one row; no index on an expression, because C code writes the table as a catalog
    only_row boolean NOT NULL DEFAULT true UNIQUE CHECK (only_row),
    holder uuid NOT NULL,
    timeline bigint,
    database oid NOT NULL
);
COMMENT ON TABLE strata.cluster IS
    'identity of this cluster, copied to its workers; the epoch rises when another coordinator takes over';
COMMENT ON COLUMN strata.cluster.holder IS
    'drawn when the epoch rose: tells apart two coordinators that took over at once';
COMMENT ON COLUMN strata.cluster.timeline IS
    'of the coordinator that has the workers, when the epoch rose; NULL in a copy, which has none';

CREATE FUNCTION strata.claim_server() RETURNS bigint
    LANGUAGE c AS 'MODULE_PATHNAME', 'strata_claim_server';
REVOKE ALL ON FUNCTION strata.claim_server() FROM PUBLIC;
COMMENT ON FUNCTION strata.claim_server() IS
    'notes that this data directory is no copy; returns the timeline of this server';

INSERT INTO strata.cluster (id, epoch, holder, timeline, database)
SELECT gen_random_uuid(), 1, gen_random_uuid(), strata.claim_server(), d.oid
  FROM pg_database AS d WHERE d.datname = current_database();
COMMENT ON COLUMN strata.cluster.database IS
    'of which the row speaks: in a copy of it (CREATE DATABASE ... TEMPLATE) it is another one''s';
COMMENT ON COLUMN strata.cluster.ddl_version IS
    'changes with each transaction that changes the schema of the workers, which record it; the upper 32 bits count';

CREATE SEQUENCE strata.worker_id_seq AS integer;
COMMENT ON SEQUENCE strata.worker_id_seq IS 'ids of workers, never used twice';

CREATE TABLE strata.worker (
    worker_id integer PRIMARY KEY CHECK (worker_id > 0),
    name text NOT NULL UNIQUE CHECK (name <> ''),
    conninfo text NOT NULL,
    state text NOT NULL DEFAULT 'active' CHECK (state IN ('active'))
);
COMMENT ON TABLE strata.worker IS 'the servers that hold the rows of distributed tables';
COMMENT ON COLUMN strata.worker.conninfo IS
    'libpq connection string without user and password; several hosts name a primary and its standbys';

CREATE SEQUENCE strata.colocation_id_seq AS integer;
COMMENT ON SEQUENCE strata.colocation_id_seq IS 'ids of colocation groups, never used twice';

CREATE TABLE strata.colocation (
    colocation_id integer PRIMARY KEY CHECK (colocation_id > 0),
    method text NOT NULL CHECK (method IN ('hash')),
    shard_count integer NOT NULL CHECK (shard_count > 0),
    key_type oid NOT NULL,
    key_collation oid NOT NULL,
    is_default boolean NOT NULL,
    name text UNIQUE,
    CHECK (is_default = (name IS NULL))
);
COMMENT ON COLUMN strata.colocation.name IS
    'by which tables of a dump find together again; NULL: a default group';
COMMENT ON TABLE strata.colocation IS
    'groups of tables with the same kind of key and the same placement: equal keys meet on one worker';
COMMENT ON COLUMN strata.colocation.key_type IS
    'type under which keys are hashed: the base type of a domain, text for varchar';
COMMENT ON COLUMN strata.colocation.is_default IS
    'tables distributed with colocate_with => ''default'' may join';

CREATE TABLE strata.shard (
    colocation_id integer NOT NULL REFERENCES strata.colocation,
    modulus integer NOT NULL,
    remainder integer NOT NULL CHECK (remainder >= 0 AND remainder < modulus),
    worker_id integer REFERENCES strata.worker,
    lost_with text,
    moved_by xid8,
    PRIMARY KEY (colocation_id, remainder),
    CHECK ((worker_id IS NULL) = (lost_with IS NOT NULL))
);
COMMENT ON TABLE strata.shard IS
    'which worker holds the keys whose partition hash modulo modulus is remainder';
COMMENT ON COLUMN strata.shard.lost_with IS
    'the worker that was written off with this shard, which is nowhere now; NULL: it is not lost';
COMMENT ON COLUMN strata.shard.moved_by IS
    'the transaction that moved it here: snapshots that do not see it would look for the rows in vain';

CREATE TABLE strata.distributed_table (
    relation regclass PRIMARY KEY,
    kind "char" NOT NULL CHECK (kind IN ('d', 'r')),
    key_attribute smallint,
    colocation_id integer REFERENCES strata.colocation,
    storage text NOT NULL CHECK (storage IN ('heap', 'columnar')),
    partition_attribute smallint,
    partition_interval text,
    retention text,
    partition_unit text CHECK (partition_unit IN ('none', 'seconds', 'milliseconds', 'nanoseconds')),
    cutoff text,
    moved_by xid8,
    CHECK ((kind = 'd') = (key_attribute IS NOT NULL)),
    CHECK ((kind = 'd') = (colocation_id IS NOT NULL))
);
COMMENT ON TABLE strata.distributed_table IS
    'distributed tables (kind d) and reference tables (kind r)';
COMMENT ON COLUMN strata.distributed_table.partition_attribute IS
    'the column by which each shard is divided into periods; NULL: into none';
COMMENT ON COLUMN strata.distributed_table.partition_unit IS
    'what numbers in that column count, if they are times: else none';
COMMENT ON COLUMN strata.distributed_table.moved_by IS
    'the transaction that last moved rows from a default partition to a period: older snapshots would miss them';
COMMENT ON COLUMN strata.distributed_table.cutoff IS
    'rows with a smaller value in that column do not exist any more, though they may not be dropped yet';

CREATE TABLE strata.distributed_transaction (
    incarnation bigint NOT NULL,
    counter bigint NOT NULL,
    PRIMARY KEY (incarnation, counter)
);
COMMENT ON TABLE strata.distributed_transaction IS
    'a row says: this two-phase transaction is committed; it goes when all workers have confirmed';

-- Sessions cache the metadata; whoever changes it by hand must tell them.
CREATE FUNCTION strata.invalidate_metadata() RETURNS trigger
    LANGUAGE c AS 'MODULE_PATHNAME', 'strata_invalidate_metadata';
REVOKE ALL ON FUNCTION strata.invalidate_metadata() FROM PUBLIC;
COMMENT ON FUNCTION strata.invalidate_metadata() IS
    'trigger: makes every session read the metadata again';

CREATE TRIGGER invalidate_metadata AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE
    ON strata.worker FOR EACH STATEMENT EXECUTE FUNCTION strata.invalidate_metadata();
CREATE TRIGGER invalidate_metadata AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE
    ON strata.colocation FOR EACH STATEMENT EXECUTE FUNCTION strata.invalidate_metadata();
CREATE TRIGGER invalidate_metadata AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE
    ON strata.shard FOR EACH STATEMENT EXECUTE FUNCTION strata.invalidate_metadata();
CREATE TRIGGER invalidate_metadata AFTER INSERT OR UPDATE OR DELETE
    ON strata.distributed_table FOR EACH ROW EXECUTE FUNCTION strata.invalidate_metadata();
-- with session_replication_role = replica, too
ALTER TABLE strata.worker ENABLE ALWAYS TRIGGER invalidate_metadata;
ALTER TABLE strata.colocation ENABLE ALWAYS TRIGGER invalidate_metadata;
ALTER TABLE strata.shard ENABLE ALWAYS TRIGGER invalidate_metadata;
ALTER TABLE strata.distributed_table ENABLE ALWAYS TRIGGER invalidate_metadata;

-- ---------------------------------------------------------------------------
-- Access method, and the trigger that keeps reference tables' copies in step
-- ---------------------------------------------------------------------------

CREATE FUNCTION strata.distributed_handler(internal) RETURNS table_am_handler
    LANGUAGE c AS 'MODULE_PATHNAME', 'strata_distributed_handler';
COMMENT ON FUNCTION strata.distributed_handler(internal) IS
    'handler of the table access method "distributed"';

CREATE ACCESS METHOD distributed TYPE TABLE HANDLER strata.distributed_handler;
COMMENT ON ACCESS METHOD distributed IS 'the rows are on the workers of the cluster';

CREATE FUNCTION strata.replicate_reference_row() RETURNS trigger
    LANGUAGE c AS 'MODULE_PATHNAME', 'strata_replicate_reference_row';
REVOKE ALL ON FUNCTION strata.replicate_reference_row() FROM PUBLIC;
COMMENT ON FUNCTION strata.replicate_reference_row() IS
    'trigger of reference tables: repeats each change of a row on all workers';

CREATE FUNCTION strata.truncate_reference_table() RETURNS trigger
    LANGUAGE c AS 'MODULE_PATHNAME', 'strata_truncate_reference_table';
REVOKE ALL ON FUNCTION strata.truncate_reference_table() FROM PUBLIC;
COMMENT ON FUNCTION strata.truncate_reference_table() IS
    'trigger of reference tables: has the workers empty their copies before other AFTER TRUNCATE triggers fire';

-- ---------------------------------------------------------------------------
-- Tables
-- ---------------------------------------------------------------------------

CREATE FUNCTION strata.create_distributed_table(
    relation regclass,
    key text,
    shard_count integer DEFAULT NULL,
    colocate_with text DEFAULT 'default',
    storage text DEFAULT 'columnar',
    method text DEFAULT 'hash',
    partition_by text DEFAULT NULL,
    partition_interval text DEFAULT NULL,
    retention text DEFAULT NULL,
    partition_epoch text DEFAULT NULL)
    RETURNS void
    LANGUAGE c AS 'MODULE_PATHNAME', 'strata_create_distributed_table';
COMMENT ON FUNCTION strata.create_distributed_table(
    regclass, text, integer, text, text, text, text, text, text, text) IS
    'spreads a table''s rows over the workers by the hash of its key column';

-- Citus has the method third, where a literal that is no number would be none of an integer.  Takes what the
-- other function would take as a literal: NULL and digits.
CREATE FUNCTION strata.create_distributed_table(
    relation regclass, key text, distribution_type text, colocate_with text DEFAULT 'default') RETURNS void
    LANGUAGE c AS 'MODULE_PATHNAME', 'strata_create_distributed_table_of_type';
COMMENT ON FUNCTION strata.create_distributed_table(regclass, text, text, text) IS
    'says what the third argument is, if somebody gives a method there';

CREATE FUNCTION strata.create_reference_table(relation regclass, storage text DEFAULT 'heap') RETURNS void
    LANGUAGE c AS 'MODULE_PATHNAME', 'strata_create_reference_table';
COMMENT ON FUNCTION strata.create_reference_table(regclass, text) IS
    'keeps a full copy of a table on every worker';

CREATE FUNCTION strata.alter_columnar_table_set(
    relation regclass,
    compression text DEFAULT NULL,
    compression_level integer DEFAULT NULL,
    row_group_rows integer DEFAULT NULL,
    order_by text DEFAULT NULL,
    bloom text[] DEFAULT NULL)
    RETURNS void
    LANGUAGE c AS 'MODULE_PATHNAME', 'strata_alter_columnar_table_set';
COMMENT ON FUNCTION
    strata.alter_columnar_table_set(regclass, text, integer, integer, text, text[]) IS
    'sets options of columnar shards or copies of a table, for rows written from now on';

CREATE FUNCTION strata.alter_columnar_table_reset(
    relation regclass,
    compression boolean DEFAULT false,
    compression_level boolean DEFAULT false,
    row_group_rows boolean DEFAULT false,
    order_by boolean DEFAULT false,
    bloom boolean DEFAULT false)
    RETURNS void
    LANGUAGE c AS 'MODULE_PATHNAME', 'strata_alter_columnar_table_reset';
COMMENT ON FUNCTION
    strata.alter_columnar_table_reset(regclass, boolean, boolean, boolean, boolean, boolean) IS
    'gives options of columnar shards or copies of a table back their defaults';

CREATE FUNCTION strata.undistribute_table(relation regclass) RETURNS void
    LANGUAGE c AS 'MODULE_PATHNAME', 'strata_undistribute_table';
COMMENT ON FUNCTION strata.undistribute_table(regclass) IS
    'makes a distributed or reference table an ordinary table of the coordinator, with its rows';

-- What a dump carries: the security label of provider strata.
CREATE FUNCTION strata.table_definition(relation regclass) RETURNS jsonb
    LANGUAGE c STRICT AS 'MODULE_PATHNAME', 'strata_table_definition';
COMMENT ON FUNCTION strata.table_definition(regclass) IS
    'how a table is distributed, as its security label says it in a dump; NULL for a local table';

CREATE FUNCTION strata.store_definition(relation regclass) RETURNS void
    LANGUAGE c STRICT AS 'MODULE_PATHNAME', 'strata_store_definition';
REVOKE ALL ON FUNCTION strata.store_definition(regclass) FROM PUBLIC;
COMMENT ON FUNCTION strata.store_definition(regclass) IS
    'writes the security label of a table after a change of what it says';

CREATE FUNCTION strata.set_columnar_options(relation regclass, options text) RETURNS void
    LANGUAGE c AS 'MODULE_PATHNAME', 'strata_set_columnar_options';
COMMENT ON FUNCTION strata.set_columnar_options(regclass, text) IS
    'gives columnar shards the options of another table, as table_definition() has them';

-- What SECURITY LABEL FOR strata does, with the rights of whoever restores a dump.  In the place of a group the
-- definition may say colocate_with, as create_distributed_table() understands it.  former: the colocation group that
-- the table was in, of which the user is told that it has left others there.
CREATE FUNCTION strata.define_table(relation regclass, definition jsonb, former integer DEFAULT NULL) RETURNS void
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    changeable text[] := ARRAY['columnar_options', 'tier_policy'];
    known jsonb := strata.table_definition(relation);
    policy jsonb := definition -> 'tier_policy';
    others text;
BEGIN
    IF coalesce(definition ->> 'kind', '') NOT IN ('distributed', 'reference') THEN
        RAISE EXCEPTION 'invalid definition of table "%"', relation
            USING ERRCODE = 'invalid_parameter_value',
                  DETAIL = format('It is of kind "%s".', definition ->> 'kind'),
                  HINT = 'A definition is what strata.table_definition() returns.';
    END IF;
    IF known - changeable IS DISTINCT FROM definition - changeable THEN
        IF known IS NOT NULL THEN
            PERFORM strata.undistribute_table(relation);
        END IF;
        IF definition ->> 'kind' = 'reference' THEN
            PERFORM strata.create_reference_table(relation, coalesce(definition ->> 'storage', 'heap'));
        ELSE
            PERFORM strata.create_distributed_table(
                relation, definition ->> 'key',
                shard_count => (definition ->> 'shard_count')::integer,
                colocate_with => coalesce(
                    definition ->> 'colocate_with', 'group:' || (definition ->> 'group'), 'default'),
                storage => coalesce(definition ->> 'storage', 'columnar'),
                partition_by => definition ->> 'partition_by',
                partition_interval => definition ->> 'partition_interval',
                retention => definition ->> 'retention',
                partition_epoch => definition ->> 'partition_epoch');
        END IF;
    END IF;
    IF definition ? 'columnar_options' THEN
        PERFORM strata.set_columnar_options(relation, definition ->> 'columnar_options');
    END IF;
    IF policy IS NOT NULL THEN
        BEGIN
            PERFORM strata.set_tier_policy(
                relation, policy ->> 'mode', policy ->> 'age', policy ->> 'tier',
                policy ->> 'index_tier', (policy ->> 'residence')::interval);
        EXCEPTION WHEN object_not_in_prerequisite_state THEN
            RAISE WARNING 'table "%" has no tier policy now: %', relation, SQLERRM;
        END;
    END IF;
    SELECT string_agg(t.relation::text, ', ' ORDER BY t.relation::text) INTO others
      FROM strata.tables AS t
     WHERE t.colocation_id = former
       AND former <> (SELECT own.colocation_id FROM strata.tables AS own WHERE own.relation = define_table.relation);
    IF others IS NOT NULL THEN
        RAISE NOTICE 'table "%" is not colocated with % any more', relation, others
            USING HINT = 'alter_distributed_table() can give those the same key type and number of shards.';
    END IF;
END
$$;
COMMENT ON FUNCTION strata.define_table(regclass, jsonb, integer) IS
    'distributes a table as table_definition() of another cluster says';

-- What alter_distributed_table() does.  other: the table that colocate_with names.
CREATE FUNCTION strata.distribute_anew(
    relation regclass, key text, shard_count integer, colocate_with text, other regclass, storage text) RETURNS void
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    known jsonb := strata.table_definition(relation);
    wanted jsonb := known || jsonb_strip_nulls(jsonb_build_object(
        'key', key, 'shard_count', shard_count::text, 'colocate_with', coalesce(other::text, colocate_with),
        'storage', storage));
BEGIN
    IF known ->> 'kind' IS DISTINCT FROM 'distributed' THEN
        RAISE EXCEPTION 'table "%" is not a distributed table', relation
            USING ERRCODE = 'wrong_object_type', HINT = 'Run create_distributed_table().';
    ELSIF num_nonnulls(key, shard_count, colocate_with, storage) = 0 THEN
        RAISE EXCEPTION 'nothing of table "%" is to be altered', relation
            USING ERRCODE = 'invalid_parameter_value',
                  HINT = 'Give a key, shard_count, colocate_with or storage.';
    END IF;
    IF shard_count IS NULL AND other IS NOT NULL THEN
        wanted := wanted - 'shard_count'; -- that of the other
    ELSIF colocate_with IS NULL AND known ? 'group' AND num_nonnulls(key, shard_count) > 0 THEN
        wanted := wanted || '{"colocate_with": "none"}';
    END IF;
    IF storage = 'heap' THEN
        wanted := wanted - 'columnar_options';
    END IF;
    PERFORM strata.define_table(
        relation, wanted, (SELECT t.colocation_id FROM strata.tables AS t
                            WHERE t.relation = distribute_anew.relation));
END
$$;
COMMENT ON FUNCTION strata.distribute_anew(regclass, text, integer, text, regclass, text) IS
    'does what alter_distributed_table() is called for';

-- Finds the table that colocate_with names where its caller does.
CREATE FUNCTION strata.alter_distributed_table(
    relation regclass,
    key text DEFAULT NULL,
    shard_count integer DEFAULT NULL,
    colocate_with text DEFAULT NULL,
    storage text DEFAULT NULL)
    RETURNS void
    LANGUAGE sql
AS $$
    SELECT strata.distribute_anew(
        relation, key, shard_count, colocate_with,
        CASE WHEN colocate_with OPERATOR(pg_catalog.<>) ALL ('{default,none}'::pg_catalog.text[])
             THEN colocate_with::pg_catalog.regclass END,
        storage)
$$;
COMMENT ON FUNCTION strata.alter_distributed_table(regclass, text, integer, text, text) IS
    'distributes a table anew, by another key, into other shards, with another table or in another storage; '
    'its rows pass through the coordinator meanwhile';

-- ---------------------------------------------------------------------------
-- Workers
-- ---------------------------------------------------------------------------

CREATE FUNCTION strata.add_worker(name text, conninfo text) RETURNS integer
    LANGUAGE c AS 'MODULE_PATHNAME', 'strata_add_worker';
REVOKE ALL ON FUNCTION strata.add_worker(text, text) FROM PUBLIC;
COMMENT ON FUNCTION strata.add_worker(text, text) IS
    'adds a server to the cluster, with the schema objects and reference tables it needs; returns its id';

CREATE FUNCTION strata.take_over() RETURNS bigint
    LANGUAGE c AS 'MODULE_PATHNAME', 'strata_take_over';
REVOKE ALL ON FUNCTION strata.take_over() FROM PUBLIC;
COMMENT ON FUNCTION strata.take_over() IS
    'makes this server the one coordinator of its workers, whichever was it before; returns the new epoch';

CREATE FUNCTION strata.hold_worker(name text, timeout interval DEFAULT '60 s', drain interval DEFAULT '10 s')
    RETURNS integer
    LANGUAGE c AS 'MODULE_PATHNAME', 'strata_hold_worker';
REVOKE ALL ON FUNCTION strata.hold_worker(text, interval, interval) FROM PUBLIC;
COMMENT ON FUNCTION strata.hold_worker(text, interval, interval) IS
    'lets transactions wait before they first use the worker, until it is released, the timeout, or the end of this session; returns how many still used it when the time to drain was over';

CREATE FUNCTION strata.release_worker(name text) RETURNS void
    LANGUAGE c AS 'MODULE_PATHNAME', 'strata_release_worker';
REVOKE ALL ON FUNCTION strata.release_worker(text) FROM PUBLIC;
COMMENT ON FUNCTION strata.release_worker(text) IS
    'waits until the worker that this session holds takes writes, and lets the transactions go on over new connections';

CREATE FUNCTION strata.remove_worker(
    name text, drain boolean DEFAULT false, lost boolean DEFAULT false) RETURNS void
    LANGUAGE c AS 'MODULE_PATHNAME', 'strata_remove_worker';
REVOKE ALL ON FUNCTION strata.remove_worker(text, boolean, boolean) FROM PUBLIC;
COMMENT ON FUNCTION strata.remove_worker(text, boolean, boolean) IS
    'removes a worker that holds no shards from the cluster, with drain after moving them to the others; or one that is lost for good: then statements that need its shards fail';

CREATE FUNCTION strata.recreate_lost_shards(relation regclass) RETURNS integer
    LANGUAGE c AS 'MODULE_PATHNAME', 'strata_recreate_lost_shards';
REVOKE ALL ON FUNCTION strata.recreate_lost_shards(regclass) FROM PUBLIC;
COMMENT ON FUNCTION strata.recreate_lost_shards(regclass) IS
    'gives up the rows that were lost with workers: makes the lost shards of the table and of those colocated with it anew, empty; returns how many shards';

CREATE FUNCTION strata.move_shard(relation regclass, shard integer, worker text) RETURNS bigint
    LANGUAGE c AS 'MODULE_PATHNAME', 'strata_move_shard';
REVOKE ALL ON FUNCTION strata.move_shard(regclass, integer, text) FROM PUBLIC;
COMMENT ON FUNCTION strata.move_shard(regclass, integer, text) IS
    'moves a shard of the table, and of those colocated with it, to another worker; returns how many rows; the tables are locked meanwhile';

CREATE FUNCTION strata.conninfo_address(conninfo text) RETURNS text
    LANGUAGE c STABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME', 'strata_conninfo_address';
COMMENT ON FUNCTION strata.conninfo_address(text) IS
    'host:port (several: comma-separated) and database of a connection string';

-- Runs in the current transaction, behind a savepoint: an error becomes the result.
-- So it sees what the transaction did there, and cannot wait for it; but commands that
-- refuse transaction blocks (VACUUM, CREATE DATABASE) fail.
CREATE FUNCTION strata.run_on_worker(
    worker_id integer, command text, writes boolean, OUT success boolean, OUT result text)
    LANGUAGE c AS 'MODULE_PATHNAME', 'strata_run_on_worker';
REVOKE ALL ON FUNCTION strata.run_on_worker(integer, text, boolean) FROM PUBLIC;
COMMENT ON FUNCTION strata.run_on_worker(integer, text, boolean) IS
    'runs a command on one worker; result is the first column of the first row, or the error';

-- No SET clause: the command shall see the caller's search_path there, too.
CREATE FUNCTION strata.run_command_on_workers(
    command text, OUT worker_name text, OUT success boolean, OUT result text)
    RETURNS SETOF record
    LANGUAGE sql
AS $$
    SELECT w.name, r.success, r.result
      FROM (SELECT * FROM strata.worker ORDER BY worker_id OFFSET 0) AS w
     CROSS JOIN LATERAL strata.run_on_worker(w.worker_id, command, true) AS r
$$;
REVOKE ALL ON FUNCTION strata.run_command_on_workers(text) FROM PUBLIC;
COMMENT ON FUNCTION strata.run_command_on_workers(text) IS
    'runs a command on every worker, in the current transaction; one worker''s error does not stop the others';

-- ---------------------------------------------------------------------------
-- What a new worker needs: the users' schema objects, in order of dependency
-- ---------------------------------------------------------------------------

CREATE FUNCTION strata.is_local_extension(name text) RETURNS boolean
    LANGUAGE c STABLE AS 'MODULE_PATHNAME', 'strata_is_local_extension';
REVOKE ALL ON FUNCTION strata.is_local_extension(text) FROM PUBLIC;
COMMENT ON FUNCTION strata.is_local_extension(text) IS
    'is the extension one of strata.local_extensions, which workers do not get?';

CREATE FUNCTION strata.schema_definition(schema oid) RETURNS text
    LANGUAGE sql STABLE STRICT
    SET search_path = pg_catalog, pg_temp
AS $$
    SELECT format('DO %L', format('BEGIN IF pg_catalog.to_regnamespace(%L) IS NULL '
                                  'THEN CREATE SCHEMA %I; END IF; END', quote_ident(nspname), nspname))
      FROM pg_namespace WHERE oid = schema
$$;
REVOKE ALL ON FUNCTION strata.schema_definition(oid) FROM PUBLIC;
COMMENT ON FUNCTION strata.schema_definition(oid) IS
    'command that creates a schema, unless it exists';

-- A type's CREATE command, run only where the type does not exist yet.
CREATE FUNCTION strata.type_definition(type_oid oid) RETURNS text
    LANGUAGE plpgsql STABLE STRICT
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    type pg_type;
    name text := format_type(type_oid, NULL);
    definition text;
BEGIN
    SELECT * INTO STRICT type FROM pg_type WHERE oid = type_oid;
    CASE type.typtype
    WHEN 'e' THEN
        SELECT format('CREATE TYPE %s AS ENUM (%s)', name,
                      string_agg(quote_literal(enumlabel), ', ' ORDER BY enumsortorder))
          INTO definition FROM pg_enum WHERE enumtypid = type_oid;
    WHEN 'c' THEN
        SELECT format('CREATE TYPE %s AS (%s)', name,
                      string_agg(format('%I %s%s', a.attname,
                                        format_type(a.atttypid, a.atttypmod),
                                        CASE WHEN a.attcollation <> t.typcollation
                                             THEN format(' COLLATE %s', a.attcollation::regcollation)
                                             ELSE '' END),
                                 ', ' ORDER BY a.attnum))
          INTO definition
          FROM pg_attribute AS a JOIN pg_type AS t ON t.oid = a.atttypid
         WHERE a.attrelid = type.typrelid AND a.attnum > 0 AND NOT a.attisdropped;
    WHEN 'd' THEN
        SELECT format('CREATE DOMAIN %s AS %s', name,
                      format_type(type.typbasetype, type.typtypmod))
               || CASE WHEN type.typcollation <> base.typcollation
                       THEN format(' COLLATE %s', type.typcollation::regcollation) ELSE '' END
               || CASE WHEN type.typdefault IS NOT NULL
                       THEN format(' DEFAULT %s', coalesce(pg_get_expr(type.typdefaultbin, 0),
                                                           quote_literal(type.typdefault)))
                       ELSE '' END
               || CASE WHEN type.typnotnull THEN ' NOT NULL' ELSE '' END
               || coalesce((SELECT string_agg(format(' CONSTRAINT %I %s', c.conname,
                                                     regexp_replace(pg_get_constraintdef(c.oid),
                                                                    ' NOT VALID$', '')),
                                              '' ORDER BY c.conname)
                              FROM pg_constraint AS c
                             WHERE c.contypid = type_oid AND c.contype = 'c'), '')
          INTO definition FROM pg_type AS base WHERE base.oid = type.typbasetype;
    WHEN 'r' THEN
        SELECT format('CREATE TYPE %s AS RANGE (SUBTYPE = %s, SUBTYPE_OPCLASS = %I.%I, '
                      'MULTIRANGE_TYPE_NAME = %s', name, format_type(r.rngsubtype, NULL),
                      n.nspname, o.opcname, format_type(r.rngmultitypid, NULL))
               || CASE WHEN r.rngcollation <> 0
                       THEN format(', COLLATION = %s', r.rngcollation::regcollation) ELSE '' END
               || CASE WHEN r.rngsubdiff <> 0
                       THEN format(', SUBTYPE_DIFF = %s', r.rngsubdiff) ELSE '' END || ')'
          INTO definition
          FROM pg_range AS r
          JOIN pg_opclass AS o ON o.oid = r.rngsubopc
          JOIN pg_namespace AS n ON n.oid = o.opcnamespace
         WHERE r.rngtypid = type_oid;
    END CASE;
    RETURN format('DO %L', format('BEGIN IF pg_catalog.to_regtype(%L) IS NULL THEN %s; END IF; END',
                                  name, definition));
END
$$;
REVOKE ALL ON FUNCTION strata.type_definition(oid) FROM PUBLIC;
COMMENT ON FUNCTION strata.type_definition(oid) IS
    'command that creates an enum, composite, domain or range type, unless it exists';

CREATE FUNCTION strata.collation_definition(collation_oid oid) RETURNS text
    LANGUAGE sql STABLE STRICT
    SET search_path = pg_catalog, pg_temp
AS $$
    SELECT format('DO %L', format(
                  'BEGIN IF pg_catalog.to_regcollation(%L) IS NULL THEN '
                  'CREATE COLLATION %s (PROVIDER = %s, %s, DETERMINISTIC = %s); END IF; END',
                  collation_oid::regcollation, collation_oid::regcollation,
                  CASE c.collprovider WHEN 'i' THEN 'icu' WHEN 'b' THEN 'builtin' ELSE 'libc' END,
                  CASE c.collprovider
                      WHEN 'c' THEN format('LC_COLLATE = %L, LC_CTYPE = %L', c.collcollate, c.collctype)
                      ELSE format('LOCALE = %L', coalesce(to_jsonb(c) ->> 'colliculocale',
                                                          to_jsonb(c) ->> 'colllocale')) END,
                  CASE WHEN c.collisdeterministic THEN 'true' ELSE 'false' END))
      FROM pg_collation AS c WHERE c.oid = collation_oid
$$;
REVOKE ALL ON FUNCTION strata.collation_definition(oid) FROM PUBLIC;
COMMENT ON FUNCTION strata.collation_definition(oid) IS
    'command that creates a collation, unless it exists';

CREATE FUNCTION strata.aggregate_definition(aggregate oid) RETURNS text
    LANGUAGE sql STABLE STRICT
    SET search_path = pg_catalog, pg_temp
AS $$
    SELECT format('CREATE OR REPLACE AGGREGATE %I.%I(%s) (SFUNC = %s, STYPE = %s',
                  n.nspname, p.proname,
                  CASE WHEN p.pronargs = 0 THEN '*' ELSE pg_get_function_arguments(p.oid) END,
                  a.aggtransfn, format_type(a.aggtranstype, NULL))
           || CASE WHEN a.aggtransspace <> 0 THEN format(', SSPACE = %s', a.aggtransspace) ELSE '' END
           || CASE WHEN a.aggfinalfn <> 0
                   THEN format(', FINALFUNC = %s%s', a.aggfinalfn,
                               CASE WHEN a.aggfinalextra THEN ', FINALFUNC_EXTRA' ELSE '' END)
                   ELSE '' END
           || format(', FINALFUNC_MODIFY = %s', CASE a.aggfinalmodify WHEN 'r' THEN 'READ_ONLY'
                                                    WHEN 's' THEN 'SHAREABLE' ELSE 'READ_WRITE' END)
           || CASE WHEN a.aggcombinefn <> 0 THEN format(', COMBINEFUNC = %s', a.aggcombinefn) ELSE '' END
           || CASE WHEN a.aggserialfn <> 0
                   THEN format(', SERIALFUNC = %s, DESERIALFUNC = %s', a.aggserialfn, a.aggdeserialfn)
                   ELSE '' END
           || CASE WHEN a.agginitval IS NOT NULL THEN format(', INITCOND = %L', a.agginitval) ELSE '' END
           || CASE WHEN a.aggsortop <> 0
                   THEN (SELECT format(', SORTOP = OPERATOR(%I.%s)', s.nspname, o.oprname)
                           FROM pg_operator AS o JOIN pg_namespace AS s ON s.oid = o.oprnamespace
                          WHERE o.oid = a.aggsortop) ELSE '' END
           || CASE WHEN a.aggkind = 'h' THEN ', HYPOTHETICAL' ELSE '' END
           || format(', PARALLEL = %s)', CASE p.proparallel WHEN 's' THEN 'SAFE'
                                             WHEN 'r' THEN 'RESTRICTED' ELSE 'UNSAFE' END)
      FROM pg_aggregate AS a
      JOIN pg_proc AS p ON p.oid = a.aggfnoid
      JOIN pg_namespace AS n ON n.oid = p.pronamespace
     WHERE a.aggfnoid = aggregate
$$;
REVOKE ALL ON FUNCTION strata.aggregate_definition(oid) FROM PUBLIC;
COMMENT ON FUNCTION strata.aggregate_definition(oid) IS
    'command that creates an aggregate';

CREATE FUNCTION strata.extension_definition(extension oid) RETURNS text
    LANGUAGE sql STABLE STRICT
    SET search_path = pg_catalog, pg_temp
AS $$
    SELECT format('DO %L', format(
               'BEGIN IF NOT EXISTS (SELECT FROM pg_catalog.pg_extension WHERE extname = %L) '
               'THEN %sCREATE EXTENSION %I WITH SCHEMA %I CASCADE; END IF; END', e.extname,
               CASE WHEN n.nspname !~ '^pg_'
                    THEN format('CREATE SCHEMA IF NOT EXISTS %I AUTHORIZATION %I; ', n.nspname,
                                pg_get_userbyid(n.nspowner)) ELSE '' END,
               e.extname, n.nspname))
      FROM pg_extension AS e JOIN pg_namespace AS n ON n.oid = e.extnamespace WHERE e.oid = extension
$$;
REVOKE ALL ON FUNCTION strata.extension_definition(oid) FROM PUBLIC;
COMMENT ON FUNCTION strata.extension_definition(oid) IS
    'command that creates an extension, unless it exists';

-- ---------------------------------------------------------------------------
-- Owners and privileges on workers
-- ---------------------------------------------------------------------------

CREATE FUNCTION strata.object_definition(class oid, object oid) RETURNS text
    LANGUAGE sql STABLE STRICT
    SET search_path = pg_catalog, pg_temp
AS $$
    SELECT CASE class
        WHEN 'pg_namespace'::regclass THEN strata.schema_definition(object)
        WHEN 'pg_collation'::regclass THEN strata.collation_definition(object)
        WHEN 'pg_type'::regclass THEN strata.type_definition(object)
        WHEN 'pg_extension'::regclass THEN strata.extension_definition(object)
        WHEN 'pg_proc'::regclass THEN
            (SELECT CASE p.prokind WHEN 'a' THEN strata.aggregate_definition(p.oid)
                                   ELSE pg_get_functiondef(p.oid) END
               FROM pg_proc AS p WHERE p.oid = object)
    END
$$;
REVOKE ALL ON FUNCTION strata.object_definition(oid, oid) FROM PUBLIC;
COMMENT ON FUNCTION strata.object_definition(oid, oid) IS
    'command that creates a schema, collation, type, function or extension';

CREATE FUNCTION strata.object_owner(
    class oid, object oid, OUT owner oid, OUT acl aclitem[], OUT schema oid)
    LANGUAGE sql STABLE STRICT
    SET search_path = pg_catalog, pg_temp
AS $$
    SELECT nspowner, nspacl, NULL::oid FROM pg_namespace WHERE class = 'pg_namespace'::regclass AND oid = object
    UNION ALL
    SELECT collowner, NULL, collnamespace FROM pg_collation WHERE class = 'pg_collation'::regclass AND oid = object
    UNION ALL
    SELECT typowner, typacl, typnamespace FROM pg_type WHERE class = 'pg_type'::regclass AND oid = object
    UNION ALL
    SELECT proowner, proacl, pronamespace FROM pg_proc WHERE class = 'pg_proc'::regclass AND oid = object
    UNION ALL
    SELECT lanowner, lanacl, NULL FROM pg_language WHERE class = 'pg_language'::regclass AND oid = object
    UNION ALL
    SELECT extowner, NULL, NULL FROM pg_extension WHERE class = 'pg_extension'::regclass AND oid = object
$$;
REVOKE ALL ON FUNCTION strata.object_owner(oid, oid) FROM PUBLIC;
COMMENT ON FUNCTION strata.object_owner(oid, oid) IS
    'owner, access control list and schema of an object';

-- What strata_worker.place_objects() is told of an object: its parts follow it when it is created.
CREATE FUNCTION strata.placed_object(how text, class oid, object oid) RETURNS SETOF json
    LANGUAGE sql STABLE STRICT
    SET search_path = pg_catalog, pg_temp
AS $$
    SELECT json_build_object(
               'how', CASE WHEN how = 'set' AND part.class <> 'pg_extension'::regclass
                                AND (part.oid < 16384 AND i.identity <> 'public'
                                     OR EXISTS (SELECT FROM pg_depend AS d
                                                 WHERE (d.classid, d.objid, d.objsubid, d.deptype)
                                                       = (part.class, part.oid, 0, 'e')))
                           THEN 'born' ELSE part.how END,
               'class', part.class::regclass, 'identity', i.identity,
               'kind', CASE part.class WHEN 'pg_namespace'::regclass THEN 'SCHEMA'
                                       WHEN 'pg_proc'::regclass THEN 'ROUTINE'
                                       ELSE upper(substr(part.class::regclass::text, 4)) END,
               'definition', CASE WHEN part.how = 'create'
                                  THEN strata.object_definition(part.class, part.oid) END,
               'owner', pg_get_userbyid(o.owner), 'privileges', o.acl::text,
               'schema', n.nspname, 'schema_owner', pg_get_userbyid(n.nspowner))
      FROM (SELECT 0, how, class, object
            UNION ALL
            SELECT 1, 'part', 'pg_proc'::regclass, d.objid FROM pg_depend AS d
             WHERE how = 'create' AND class = 'pg_type'::regclass AND (d.refclassid, d.refobjid) = (class, object)
               AND d.classid = 'pg_proc'::regclass AND d.deptype = 'i'
            UNION ALL
            SELECT 1, 'part', 'pg_type'::regclass, r.rngmultitypid FROM pg_range AS r
             WHERE how = 'create' AND class = 'pg_type'::regclass AND r.rngtypid = object
            UNION ALL
            SELECT 2, 'part', 'pg_proc'::regclass, d.objid FROM pg_range AS r
              JOIN pg_depend AS d ON (d.refclassid, d.refobjid) = ('pg_type'::regclass, r.rngmultitypid)
             WHERE how = 'create' AND class = 'pg_type'::regclass AND r.rngtypid = object
               AND d.classid = 'pg_proc'::regclass AND d.deptype = 'i'
           ) AS part (step, how, class, oid)
     CROSS JOIN LATERAL strata.object_owner(part.class, part.oid) AS o
     CROSS JOIN LATERAL pg_identify_object(part.class, part.oid, 0) AS i
      LEFT JOIN pg_namespace AS n ON n.oid = o.schema
     ORDER BY part.step, i.identity
$$;
REVOKE ALL ON FUNCTION strata.placed_object(text, oid, oid) FROM PUBLIC;
COMMENT ON FUNCTION strata.placed_object(text, oid, oid) IS
    'an object, with its owner and privileges, as workers are told of it';

-- Whoever has a worker create, own, open or drop an object: DDL of ordinary roles, too.
CREATE FUNCTION strata.place_command(how text, classes oid[], objects oid[]) RETURNS text
    LANGUAGE sql STABLE STRICT SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
AS $$
    SELECT format('SELECT strata_worker.place_objects(%L)', json_agg(p.placed ORDER BY a.n, p.m))
      FROM unnest(classes, objects) WITH ORDINALITY AS a (class, oid, n)
     CROSS JOIN LATERAL strata.placed_object(how, a.class, a.oid) WITH ORDINALITY AS p (placed, m)
$$;
REVOKE ALL ON FUNCTION strata.place_command(text, oid[], oid[]) FROM PUBLIC;
COMMENT ON FUNCTION strata.place_command(text, oid[], oid[]) IS
    'command for workers: create, set (the privileges of) or drop objects as they are here';

-- A script runs on each node, but default privileges are the coordinator's.  NULL: all is as the script has made it.
CREATE FUNCTION strata.extension_privileges(extension name) RETURNS text
    LANGUAGE sql STABLE STRICT SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
AS $$
    WITH RECURSIVE needed (oid) AS (
        SELECT oid FROM pg_extension WHERE extname = extension
        UNION
        SELECT d.refobjid FROM needed AS n
          JOIN pg_depend AS d ON (d.classid, d.objid, d.refclassid)
                                 = ('pg_extension'::regclass, n.oid, 'pg_extension'::regclass)
          JOIN pg_extension AS e ON e.oid = d.refobjid
         WHERE e.extname <> 'strata' AND NOT strata.is_local_extension(e.extname)
    )
    SELECT strata.place_command('set', array_agg(m.classid), array_agg(m.objid))
      FROM needed AS n
      JOIN pg_depend AS m ON (m.refclassid, m.refobjid, m.deptype) = ('pg_extension'::regclass, n.oid, 'e')
     CROSS JOIN LATERAL strata.object_owner(m.classid, m.objid) AS o
     WHERE m.objsubid = 0 AND o.acl IS NOT NULL
    HAVING count(*) > 0
$$;
REVOKE ALL ON FUNCTION strata.extension_privileges(name) FROM PUBLIC;
COMMENT ON FUNCTION strata.extension_privileges(name) IS
    'command for workers: the privileges of what belongs to an extension';

-- What exists on every server already (of PostgreSQL and of extensions) with other privileges, or another owner, than it
-- was born with; and row types of our tables.
CREATE FUNCTION strata.changed_privileges(OUT object text, OUT command text)
    RETURNS SETOF record
    LANGUAGE sql STABLE
    SET search_path = pg_catalog, pg_temp
AS $$
    WITH thing (class, oid, schema, acl, owner, is_table) AS (
        SELECT 'pg_proc'::regclass, oid, pronamespace, proacl, proowner, false FROM pg_proc
        UNION ALL
        SELECT 'pg_type'::regclass, t.oid, t.typnamespace, t.typacl, t.typowner, d.relation IS NOT NULL
          FROM pg_type AS t
          LEFT JOIN strata.distributed_table AS d ON d.relation = t.typrelid
        UNION ALL
        SELECT 'pg_language'::regclass, oid, NULL, lanacl, lanowner, false FROM pg_language
        UNION ALL
        SELECT 'pg_namespace'::regclass, oid, oid, nspacl, nspowner, false FROM pg_namespace
         WHERE nspname <> 'public'
    )
    SELECT format('privileges of %s %s', i.type, i.identity),
           strata.place_command('set', ARRAY[t.class::oid], ARRAY[t.oid])
      FROM thing AS t
      LEFT JOIN pg_namespace AS n ON n.oid = t.schema
      LEFT JOIN pg_roles AS r ON r.oid = t.owner
      LEFT JOIN pg_init_privs AS p ON (p.classoid, p.objoid, p.objsubid) = (t.class, t.oid, 0)
     CROSS JOIN LATERAL pg_identify_object(t.class, t.oid, 0) AS i
     WHERE (n.nspname IS NULL OR n.nspname NOT IN ('strata', 'strata_partial'))
       AND CASE WHEN t.is_table THEN t.acl IS NOT NULL
                WHEN t.oid < 16384 THEN t.acl IS DISTINCT FROM p.initprivs
                ELSE (t.acl IS NOT NULL OR NOT r.rolsuper)
                     AND EXISTS (SELECT FROM pg_depend AS d JOIN pg_extension AS e ON e.oid = d.refobjid
                                  WHERE (d.classid, d.objid, d.objsubid, d.deptype) = (t.class, t.oid, 0, 'e')
                                    AND e.extname <> 'strata' AND NOT strata.is_local_extension(e.extname)) END
$$;
REVOKE ALL ON FUNCTION strata.changed_privileges() FROM PUBLIC;
COMMENT ON FUNCTION strata.changed_privileges() IS
    'commands for owners and privileges on a new worker of objects that were not created there';

-- ---------------------------------------------------------------------------
-- Roles
-- ---------------------------------------------------------------------------

CREATE FUNCTION strata.role_setting(role text, name text, in_database boolean, value text)
    RETURNS text
    LANGUAGE c STABLE AS 'MODULE_PATHNAME', 'strata_role_setting';
REVOKE ALL ON FUNCTION strata.role_setting(text, text, boolean, text) FROM PUBLIC;
COMMENT ON FUNCTION strata.role_setting(text, text, boolean, text) IS
    'command that sets or resets a setting of a role on a worker, NULL for one that stays here';

-- What a worker must do to have this server's roles, given its strata.role_state() as JSON.
-- Roles that only the worker has are its own business.  A command may undo what a later one
-- needs (a grant that hung on another), so whoever runs them asks again until there is none.
CREATE FUNCTION strata.role_commands(remote_state json, OUT object text, OUT command text)
    RETURNS SETOF record
    LANGUAGE sql STABLE
    SET search_path = pg_catalog, pg_temp
AS $$
    WITH RECURSIVE remote AS MATERIALIZED (
        SELECT r.* FROM json_to_recordset(remote_state)
                     AS r (kind text, role name, key text, detail text, value text)
    ), local AS MATERIALIZED (
        SELECT * FROM strata.role_state()
    ), known AS (
        SELECT role FROM local WHERE kind = 'role'
    ), missing AS MATERIALIZED (
        SELECT * FROM local EXCEPT SELECT * FROM remote
    ), surplus AS MATERIALIZED (
        SELECT * FROM remote EXCEPT SELECT * FROM local
    ), grant_depth (role, member, depth) AS ( -- who grants a role must have been granted it
        SELECT l.role, l.key, 1 FROM local AS l
         WHERE l.kind = 'member' AND NOT EXISTS (SELECT FROM known WHERE known.role::text = l.detail)
        UNION
        SELECT l.role, l.key, d.depth + 1
          FROM grant_depth AS d
          JOIN local AS l ON l.kind = 'member' AND l.role = d.role AND l.detail = d.member
         WHERE d.depth < 100
    ), step AS (
        SELECT 1 AS phase, 0 AS depth, role, NULL::text AS key,
               format('role %I', role) AS object,
               format('SELECT strata_worker.create_role(%L, %L)', role, value) AS command
          FROM missing WHERE kind = 'role'
        UNION ALL
        SELECT 2, 0, s.role, s.key, format('role %I, member %I', s.role, s.key),
               format('REVOKE %I FROM %I%s CASCADE', s.role, s.key,
                      coalesce(' GRANTED BY ' || quote_ident(s.detail), ''))
          FROM surplus AS s
         WHERE s.kind = 'member' AND s.key IN (SELECT role::text FROM known)
        UNION ALL
        SELECT 3, coalesce((SELECT max(d.depth) FROM grant_depth AS d
                             WHERE (d.role, d.member) = (m.role, m.key)), 0),
               m.role, m.key, format('role %I, member %I', m.role, m.key),
               format('GRANT %I TO %I%s%s', m.role, m.key, coalesce(' WITH ' || m.value, ''),
                      coalesce(' GRANTED BY ' || quote_ident(m.detail), ''))
          FROM missing AS m WHERE m.kind = 'member'
        UNION ALL
        SELECT 4, 0, role, key, format('role %I, setting %I', role, key),
               strata.role_setting(role, key, detail::boolean, value)
          FROM missing WHERE kind = 'setting'
        UNION ALL
        SELECT 4, 0, s.role, s.key, format('role %I, setting %I', s.role, s.key),
               strata.role_setting(s.role, s.key, s.detail::boolean, NULL)
          FROM surplus AS s
         WHERE s.kind = 'setting' AND s.role IN (SELECT role FROM known)
           AND NOT EXISTS (SELECT FROM local AS l
                            WHERE (l.kind, l.role, l.key, l.detail) = ('setting', s.role, s.key, s.detail))
        UNION ALL
        SELECT 5, 0, l.role, NULL, format('comment of role %I', l.role),
               format('COMMENT ON ROLE %I IS %L', l.role, l.value)
          FROM missing AS l WHERE l.kind = 'comment'
        UNION ALL
        SELECT 5, 0, s.role, NULL, format('comment of role %I', s.role),
               format('COMMENT ON ROLE %I IS NULL', s.role)
          FROM surplus AS s
         WHERE s.kind = 'comment' AND s.role IN (SELECT role FROM known)
           AND NOT EXISTS (SELECT FROM local AS l WHERE (l.kind, l.role) = ('comment', s.role))
        UNION ALL
        SELECT 6, 0, l.role, NULL, format('owner %I of the database', l.role),
               format('SELECT strata_worker.own_database(%L)', l.role)
          FROM missing AS l WHERE l.kind = 'database'
    )
    SELECT s.object, s.command FROM step AS s WHERE s.command IS NOT NULL
     ORDER BY s.phase, s.depth, s.role, s.key
$$;
REVOKE ALL ON FUNCTION strata.role_commands(json) FROM PUBLIC;
COMMENT ON FUNCTION strata.role_commands(json) IS
    'commands that give a worker the roles, memberships, settings and comments of roles of this server';

-- Roles belong to the whole server: what is done to them in another database of it
-- does not reach the workers by itself.
CREATE FUNCTION strata.sync_roles(
    only_worker integer DEFAULT NULL, OUT worker_name text, OUT object text, OUT success boolean, OUT detail text)
    RETURNS SETOF record
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    member strata.worker;
    answer record;
    step record;
    done text[];
    news boolean;
BEGIN
    FOR member IN SELECT * FROM strata.worker AS w
                   WHERE only_worker IS NULL OR w.worker_id = only_worker ORDER BY w.worker_id
    LOOP
        worker_name := member.name;
        done := '{}';
        <<rounds>>
        LOOP
            answer := strata.run_on_worker(member.worker_id,
                'SELECT json_agg(r) FROM strata.role_state() AS r', false);
            IF NOT answer.success THEN
                object := NULL;
                success := false;
                detail := answer.result;
                RETURN NEXT;
                EXIT rounds;
            END IF;
            news := false;
            FOR step IN SELECT * FROM strata.role_commands(coalesce(answer.result, '[]')::json) LOOP
                CONTINUE WHEN step.command = ANY (done);
                done := done || step.command;
                news := true;
                answer := strata.run_on_worker(member.worker_id, step.command, true);
                object := step.object;
                success := answer.success;
                detail := CASE WHEN success THEN step.command ELSE answer.result END;
                RETURN NEXT;
            END LOOP;
            EXIT rounds WHEN NOT news;
        END LOOP;
    END LOOP;
END
$$;
REVOKE ALL ON FUNCTION strata.sync_roles(integer) FROM PUBLIC;
COMMENT ON FUNCTION strata.sync_roles(integer) IS
    'makes the roles, memberships, settings and comments of roles on the workers those of this server; returns what was done';

CREATE FUNCTION strata.object_is_everywhere(class oid, object oid) RETURNS boolean
    LANGUAGE c STABLE STRICT AS 'MODULE_PATHNAME', 'strata_object_is_everywhere';
REVOKE ALL ON FUNCTION strata.object_is_everywhere(oid, oid) FROM PUBLIC;
COMMENT ON FUNCTION strata.object_is_everywhere(oid, oid) IS
    'do the workers have the object?  Not if it is built on something that only this server has';

-- Extensions first, then everything else by its depth in the graph of dependencies.
-- Objects of extensions come with these.  A NULL command stands for a distributed or
-- reference table, which src/workers/worker_seed.c creates; a command with a relation needs its foreign keys.
CREATE FUNCTION strata.schema_commands(
    OUT ordinal bigint, OUT object text, OUT command text, OUT relation regclass, OUT optional boolean)
    RETURNS SETOF record
    LANGUAGE sql STABLE
    SET search_path = pg_catalog, pg_temp
AS $$
    WITH RECURSIVE owned AS (
        SELECT classid, objid FROM pg_depend WHERE deptype = 'e'
    ), user_schema AS (
        SELECT n.oid FROM pg_namespace AS n
         WHERE n.nspname !~ '^pg_'
           AND n.nspname NOT IN ('information_schema', 'strata', 'strata_partial')
           AND NOT EXISTS (SELECT FROM owned WHERE (classid, objid) = ('pg_namespace'::regclass, n.oid))
    ), node AS MATERIALIZED (
        SELECT 'pg_namespace'::regclass AS class, s.oid, 1 AS rank, format('schema %I', n.nspname) AS object
          FROM user_schema AS s JOIN pg_namespace AS n USING (oid)
        UNION ALL
        SELECT 'pg_collation'::regclass, c.oid, 2, format('collation %s', c.oid::regcollation)
          FROM pg_collation AS c WHERE c.collnamespace IN (SELECT oid FROM user_schema)
        UNION ALL
        SELECT 'pg_type'::regclass, t.oid, 3, format('type %s', t.oid::regtype)
          FROM pg_type AS t LEFT JOIN pg_class AS c ON c.oid = t.typrelid
         WHERE t.typnamespace IN (SELECT oid FROM user_schema) AND t.typisdefined
           AND (t.typtype IN ('e', 'd', 'r') OR (t.typtype = 'c' AND c.relkind = 'c'))
        UNION ALL
        SELECT 'pg_proc'::regclass, p.oid, 4,
               format('%s %s', CASE p.prokind WHEN 'a' THEN 'aggregate' ELSE 'function' END,
                      p.oid::regprocedure)
          FROM pg_proc AS p
         WHERE p.pronamespace IN (SELECT oid FROM user_schema)
           AND NOT EXISTS (SELECT FROM pg_depend AS d -- constructors come with their range type
                            WHERE (d.classid, d.objid, d.deptype) = ('pg_proc'::regclass, p.oid, 'i'))
        UNION ALL
        SELECT 'pg_class'::regclass, t.relation::oid, 5, format('table %s', t.relation)
          FROM strata.distributed_table AS t
    ), wanted AS MATERIALIZED (
        SELECT n.* FROM node AS n
         WHERE NOT EXISTS (SELECT FROM owned AS o WHERE (o.classid, o.objid) = (n.class, n.oid))
           AND strata.object_is_everywhere(n.class, n.oid)
    ), part (class, oid, whole_class, whole) AS MATERIALIZED (
        -- Catalog entries that belong to a wanted object.
        SELECT class, oid, class, oid FROM wanted
        UNION ALL
        SELECT 'pg_type'::regclass, member.oid, w.class, w.oid
          FROM wanted AS w
          JOIN pg_type AS t ON (w.class = 'pg_type'::regclass AND t.oid = w.oid)
                            OR (w.class = 'pg_class'::regclass AND t.typrelid = w.oid)
          LEFT JOIN pg_range AS r ON r.rngtypid = t.oid
         CROSS JOIN LATERAL (VALUES (t.oid), (t.typarray), (r.rngmultitypid)) AS member (oid)
         WHERE member.oid <> 0 AND (w.class, w.oid) <> ('pg_type'::regclass, member.oid)
        UNION ALL
        SELECT 'pg_class'::regclass, t.typrelid, w.class, w.oid
          FROM wanted AS w JOIN pg_type AS t ON w.class = 'pg_type'::regclass AND t.oid = w.oid
         WHERE t.typrelid <> 0
        UNION ALL
        SELECT 'pg_constraint'::regclass, c.oid, w.class, w.oid
          FROM wanted AS w
          JOIN pg_constraint AS c ON (w.class = 'pg_type'::regclass AND c.contypid = w.oid)
                                  OR (w.class = 'pg_class'::regclass AND c.conrelid = w.oid)
         WHERE c.contype <> 'f'
        UNION ALL
        SELECT 'pg_class'::regclass, i.indexrelid, w.class, w.oid
          FROM wanted AS w
          JOIN pg_index AS i ON w.class = 'pg_class'::regclass AND i.indrelid = w.oid
        UNION ALL
        SELECT 'pg_attrdef'::regclass, d.oid, w.class, w.oid
          FROM wanted AS w
          JOIN pg_attrdef AS d ON w.class = 'pg_class'::regclass AND d.adrelid = w.oid
          JOIN pg_attribute AS a ON a.attrelid = d.adrelid AND a.attnum = d.adnum
         WHERE a.attgenerated <> ''
    ), edge AS MATERIALIZED (
        SELECT DISTINCT depender.whole_class AS class, depender.whole AS oid,
               needed.whole_class AS needed_class, needed.whole AS needed
          FROM pg_depend AS d
          JOIN part AS depender ON (depender.class, depender.oid) = (d.classid, d.objid)
          JOIN part AS needed ON (needed.class, needed.oid) = (d.refclassid, d.refobjid)
         WHERE (depender.whole_class, depender.whole) <> (needed.whole_class, needed.whole)
    ), depth (class, oid, level) AS (
        SELECT class, oid, 0 FROM wanted
        UNION
        SELECT e.class, e.oid, d.level + 1
          FROM depth AS d JOIN edge AS e ON (e.needed_class, e.needed) = (d.class, d.oid)
         WHERE d.level < 100
    ), command AS (
        SELECT 0 AS level, 0 AS rank, e.oid, format('extension %I', e.extname) AS object,
               strata.place_command('create', ARRAY['pg_extension'::regclass::oid], ARRAY[e.oid]) AS command,
               NULL::regclass AS relation, true AS optional
          FROM pg_extension AS e
         WHERE e.extname NOT IN ('plpgsql', 'hll', 'strata') AND NOT strata.is_local_extension(e.extname)
        UNION ALL
        SELECT max(d.level) + 1, w.rank, w.oid, w.object,
               CASE WHEN w.rank < 5
                    THEN strata.place_command('create', ARRAY[w.class::oid], ARRAY[w.oid]) END,
               CASE w.rank WHEN 5 THEN w.oid::regclass END,
               w.rank = 4
          FROM wanted AS w JOIN depth AS d USING (class, oid)
         GROUP BY w.class, w.oid, w.rank, w.object
        UNION ALL
        SELECT 1000, 6, t.relation::oid, format('owner of table %s', t.relation),
               format('ALTER TABLE %s OWNER TO %I', t.relation, pg_get_userbyid(r.relowner)), NULL, false
          FROM strata.distributed_table AS t JOIN pg_class AS r ON r.oid = t.relation
        UNION ALL
        SELECT 1001, 7, 0, c.object, c.command, NULL, true
          FROM strata.changed_privileges() AS c
        UNION ALL
        -- Comments of an object and its parts.
        SELECT 1002, 8, w.oid, format('comments of %s', w.object),
               string_agg(format('COMMENT ON %s IS %L',
                                 CASE i.type
                                     WHEN 'table column' THEN 'COLUMN ' || i.identity
                                     WHEN 'composite type column' THEN 'COLUMN ' || i.identity
                                     WHEN 'table constraint' THEN 'CONSTRAINT ' || i.identity
                                     WHEN 'statistics object' THEN 'STATISTICS ' || i.identity
                                     WHEN 'domain constraint' THEN
                                         (SELECT format('CONSTRAINT %I ON DOMAIN %s', c.conname,
                                                        format_type(c.contypid, NULL))
                                            FROM pg_constraint AS c WHERE c.oid = d.objoid)
                                     ELSE upper(i.type) || ' ' || i.identity
                                 END, d.description),
                          '; ' ORDER BY d.objsubid, i.identity),
               NULL, true
          FROM (SELECT p.class, p.oid, p.whole_class, p.whole FROM part AS p
                UNION
                SELECT 'pg_statistic_ext'::regclass, e.oid, w.class, w.oid
                  FROM wanted AS w
                  JOIN pg_statistic_ext AS e ON w.class = 'pg_class'::regclass AND e.stxrelid = w.oid)
               AS p
          JOIN wanted AS w ON (w.class, w.oid) = (p.whole_class, p.whole)
          JOIN pg_description AS d ON (d.classoid, d.objoid) = (p.class, p.oid)
         CROSS JOIN LATERAL pg_identify_object(d.classoid, d.objoid, d.objsubid) AS i
         GROUP BY w.class, w.oid, w.object
        UNION ALL
        SELECT 1003, 9, c.oid, format('comment of foreign key %I of table %s', c.conname, t.relation),
               format('COMMENT ON CONSTRAINT %I ON %s IS %L', c.conname, t.relation, d.description),
               t.relation, true
          FROM strata.distributed_table AS t
          JOIN pg_constraint AS c ON c.conrelid = t.relation AND c.contype = 'f'
          JOIN pg_description AS d ON (d.classoid, d.objoid) = ('pg_constraint'::regclass, c.oid)
    )
    SELECT row_number() OVER (ORDER BY level, rank, oid, object), object, command, relation, optional
      FROM command
$$;
REVOKE ALL ON FUNCTION strata.schema_commands() FROM PUBLIC;
COMMENT ON FUNCTION strata.schema_commands() IS
    'commands that create the users'' schema objects on a new worker, in order';

-- ---------------------------------------------------------------------------
-- Views
-- ---------------------------------------------------------------------------

CREATE FUNCTION strata.worker_status(
    OUT worker_id integer, OUT status text, OUT since timestamptz, OUT reason text)
    RETURNS SETOF record
    LANGUAGE c STABLE ROWS 10 AS 'MODULE_PATHNAME', 'strata_worker_status';
COMMENT ON FUNCTION strata.worker_status() IS
    'what the heartbeat knows of each worker: up, read-only, down or unknown, since when and why';

CREATE VIEW strata.workers AS
SELECT w.worker_id, w.name, strata.conninfo_address(w.conninfo) AS address, w.state,
       (SELECT count(*) FROM strata.shard AS s
          JOIN strata.distributed_table AS t USING (colocation_id)
         WHERE s.worker_id = w.worker_id) AS shards,
       h.status, h.since, h.reason
  FROM strata.worker AS w LEFT JOIN strata.worker_status() AS h USING (worker_id);
COMMENT ON VIEW strata.workers IS
    'the workers of the cluster, how many shards each holds, and whether it answers';

CREATE VIEW strata.tables AS
SELECT t.relation,
       CASE t.kind WHEN 'd' THEN 'distributed' ELSE 'reference' END AS kind,
       a.attname AS key,
       t.colocation_id,
       c.shard_count,
       CASE t.kind WHEN 'd' THEN (SELECT count(DISTINCT s.worker_id) FROM strata.shard AS s
                                   WHERE s.colocation_id = t.colocation_id)
                   ELSE (SELECT count(*) FROM strata.worker) END AS workers,
       t.storage,
       greatest(r.reltuples, 0)::bigint AS row_estimate,
       pg_catalog.pg_get_userbyid(r.relowner) AS owner,
       (SELECT count(*) FROM strata.shard AS s
         WHERE s.colocation_id = t.colocation_id AND s.lost_with IS NOT NULL) AS lost_shards
  FROM strata.distributed_table AS t
  JOIN pg_catalog.pg_class AS r ON r.oid = t.relation
  LEFT JOIN strata.colocation AS c ON c.colocation_id = t.colocation_id
  LEFT JOIN pg_catalog.pg_attribute AS a
         ON a.attrelid = t.relation AND a.attnum = t.key_attribute;
COMMENT ON VIEW strata.tables IS 'the distributed and reference tables';

-- As information_schema.tables has it; and who reads all statistics.
CREATE FUNCTION strata.may_see(relation oid, role name DEFAULT current_user) RETURNS boolean
    LANGUAGE sql STABLE PARALLEL SAFE
    SET search_path = pg_catalog, pg_temp
AS $$
    SELECT pg_has_role(role, 'pg_read_all_stats', 'USAGE')
           OR pg_has_role(role, c.relowner, 'USAGE')
           OR has_table_privilege(role, c.oid, 'SELECT, INSERT, UPDATE, DELETE, TRUNCATE, REFERENCES, TRIGGER')
           OR has_any_column_privilege(role, c.oid, 'SELECT, INSERT, UPDATE, REFERENCES')
      FROM pg_class AS c WHERE c.oid = relation
$$;
COMMENT ON FUNCTION strata.may_see(oid, name) IS
    'has the role a privilege on the table, or does it read all statistics?';

-- For functions with the rights of the extension's owner, where current_user is that one.
CREATE FUNCTION strata.calling_role() RETURNS name
    LANGUAGE sql STABLE PARALLEL RESTRICTED
    SET search_path = pg_catalog, pg_temp
AS $$ SELECT coalesce(nullif(current_setting('role'), 'none'), session_user)::name $$;
COMMENT ON FUNCTION strata.calling_role() IS
    'the role of the session: the one that SET ROLE chose, or that it logged in as';

-- Asks each worker once, as the extension's owner; a worker that does not answer
-- contributes no rows.
CREATE FUNCTION strata.shard_statistics(
    OUT worker_id integer, OUT schema_name text, OUT table_name text, OUT partition_name text,
    OUT remainder integer, OUT bytes bigint, OUT row_estimate bigint)
    RETURNS SETOF record
    LANGUAGE sql SECURITY DEFINER ROWS 200
    SET search_path = pg_catalog, pg_temp
AS $$
    SELECT w.worker_id, s.schema_name, s.table_name, s.partition_name, s.remainder, s.bytes,
           s.row_estimate
      FROM (SELECT * FROM strata.worker ORDER BY worker_id OFFSET 0) AS w
     CROSS JOIN LATERAL strata.run_on_worker(
               w.worker_id, 'SELECT json_agg(s) FROM strata_worker.shard_list() AS s',
               false) AS answer
     CROSS JOIN LATERAL json_to_recordset(CASE WHEN answer.success THEN answer.result::json END)
                     AS s (schema_name text, table_name text, partition_name text,
                           remainder integer, bytes bigint, row_estimate bigint)
      JOIN pg_namespace AS n ON n.nspname = s.schema_name
      JOIN pg_class AS c ON c.relnamespace = n.oid AND c.relname = s.table_name
     WHERE strata.may_see(c.oid, strata.calling_role())
$$;
COMMENT ON FUNCTION strata.shard_statistics() IS
    'sizes and estimated rows of the shards of tables that the session''s role may see, asked from the workers';

CREATE VIEW strata.shards AS
SELECT t.relation, s.remainder AS shard, s.modulus, w.name AS worker, x.partition_name AS partition,
       x.bytes, x.row_estimate, s.lost_with
  FROM strata.distributed_table AS t
  JOIN pg_catalog.pg_class AS r ON r.oid = t.relation
  JOIN pg_catalog.pg_namespace AS n ON n.oid = r.relnamespace
  JOIN strata.shard AS s ON s.colocation_id = t.colocation_id
  LEFT JOIN strata.worker AS w ON w.worker_id = s.worker_id
  LEFT JOIN strata.shard_statistics() AS x
         ON x.worker_id = s.worker_id AND x.remainder = s.remainder
        AND x.schema_name = n.nspname AND x.table_name = r.relname
 WHERE strata.may_see(t.relation);
COMMENT ON VIEW strata.shards IS
    'every shard of the distributed tables that one may see, with its worker, size in bytes and estimated rows, or the worker it was lost with';

CREATE FUNCTION strata.list_in_doubt(
    OUT worker_id integer, OUT gid text, OUT since timestamptz, OUT decision text, OUT reason text,
    OUT last_attempt timestamptz)
    RETURNS SETOF record
    LANGUAGE c STRICT VOLATILE AS 'MODULE_PATHNAME', 'strata_list_in_doubt';
COMMENT ON FUNCTION strata.list_in_doubt() IS
    'prepared transactions that wait for their end, and workers that nobody has seen since the start';

CREATE VIEW strata.in_doubt AS
SELECT coalesce(w.name, d.worker_id::text) AS worker, d.gid, d.since, d.decision, d.reason,
       d.last_attempt
  FROM strata.list_in_doubt() AS d
  LEFT JOIN strata.worker AS w USING (worker_id);
COMMENT ON VIEW strata.in_doubt IS
    'transactions prepared on a worker that could not be ended there yet, and why';

GRANT SELECT ON strata.workers, strata.tables, strata.shards, strata.in_doubt TO PUBLIC;

-- ---------------------------------------------------------------------------
-- Lock waits and deadlocks over several nodes
-- ---------------------------------------------------------------------------

CREATE FUNCTION strata.session_wires(
    OUT session integer, OUT worker_id integer, OUT worker_pid integer, OUT waited boolean,
    OUT wait_number bigint, OUT waits_since timestamptz, OUT transaction_start timestamptz,
    OUT interruptible boolean, OUT committing text)
    RETURNS SETOF record
    LANGUAGE c AS 'MODULE_PATHNAME', 'strata_session_wires';
REVOKE ALL ON FUNCTION strata.session_wires() FROM PUBLIC;
COMMENT ON FUNCTION strata.session_wires() IS
    'which session of the coordinator each backend of a worker serves, and who waits for it';

-- Worker 0 is the coordinator.  A session is its process there; on a worker everything else is a
-- process of its own.  Asks the workers that somebody waits for, or all; one that cannot be asked
-- contributes no rows.
CREATE FUNCTION strata.lock_edges(
    everywhere boolean,
    OUT worker_id integer, OUT waiting_pid integer, OUT blocking_pid integer,
    OUT blocking_gid text, OUT object text, OUT since timestamptz,
    OUT waiting_session integer, OUT waiting_role oid, OUT waiting_statement text,
    OUT blocking_session integer, OUT blocking_role oid, OUT blocking_statement text,
    OUT waited boolean, OUT wait_number bigint, OUT transaction_start timestamptz,
    OUT interruptible boolean)
    RETURNS SETOF record
    LANGUAGE sql ROWS 10
    SET search_path = pg_catalog, pg_temp
AS $$
    WITH wire AS MATERIALIZED (
        SELECT * FROM strata.session_wires()
    ), preparing AS (
        SELECT DISTINCT session, committing FROM wire WHERE committing IS NOT NULL
    ), asked AS MATERIALIZED (
        SELECT w.worker_id
          FROM strata.worker AS w
         WHERE (everywhere OR w.worker_id IN (SELECT x.worker_id FROM wire AS x WHERE x.waited))
           -- one that is silent would keep the others' waits from being seen
           AND w.worker_id NOT IN (SELECT h.worker_id FROM strata.worker_status() AS h
                                    WHERE h.status = 'down')
         ORDER BY w.worker_id
    ), wait AS (
        SELECT 0 AS worker_id, l.* FROM strata.node_lock_waits() AS l
        UNION ALL
        SELECT a.worker_id, l.*
          FROM asked AS a
         CROSS JOIN LATERAL strata.run_on_worker(
                   a.worker_id, 'SELECT json_agg(l) FROM strata.node_lock_waits() AS l',
                   false) AS answer
         CROSS JOIN LATERAL json_to_recordset(CASE WHEN answer.success THEN answer.result::json END)
                         AS l (waiting_pid integer, blocking_pid integer, blocking_gid text,
                               object text, since timestamptz, waiting_role oid,
                               waiting_statement text, blocking_role oid, blocking_statement text)
    )
    SELECT w.worker_id, w.waiting_pid, w.blocking_pid, w.blocking_gid, w.object, w.since,
           waiting.session, coalesce(waiting.usesysid, w.waiting_role),
           coalesce(waiting.query, w.waiting_statement),
           blocking.session, coalesce(blocking.usesysid, w.blocking_role),
           coalesce(blocking.query, w.blocking_statement),
           coalesce(mine.waited, false), mine.wait_number, mine.transaction_start,
           coalesce(mine.interruptible, false)
      FROM wait AS w
      LEFT JOIN wire AS mine ON (mine.worker_id, mine.worker_pid) = (w.worker_id, w.waiting_pid)
      LEFT JOIN LATERAL (
               SELECT s.session, a.usesysid, a.query
                 FROM (SELECT CASE w.worker_id WHEN 0 THEN w.waiting_pid ELSE mine.session END)
                   AS s (session)
                 LEFT JOIN pg_stat_activity AS a ON a.pid = s.session) AS waiting ON true
      LEFT JOIN wire AS other ON (other.worker_id, other.worker_pid) = (w.worker_id, w.blocking_pid)
      LEFT JOIN preparing AS p
             ON regexp_replace(w.blocking_gid, '_\d+$', '') = p.committing
      LEFT JOIN LATERAL (
               SELECT s.session, a.usesysid, a.query
                 FROM (SELECT CASE w.worker_id WHEN 0 THEN w.blocking_pid
                              ELSE coalesce(other.session, p.session) END) AS s (session)
                 LEFT JOIN pg_stat_activity AS a ON a.pid = s.session) AS blocking ON true
$$;
REVOKE ALL ON FUNCTION strata.lock_edges(boolean) FROM PUBLIC;
COMMENT ON FUNCTION strata.lock_edges(boolean) IS
    'the lock waits of all nodes, or of those that sessions wait for, with the sessions they belong to';

CREATE FUNCTION strata.detect_deadlocks() RETURNS integer
    LANGUAGE c AS 'MODULE_PATHNAME', 'strata_detect_deadlocks';
REVOKE ALL ON FUNCTION strata.detect_deadlocks() FROM PUBLIC;
COMMENT ON FUNCTION strata.detect_deadlocks() IS
    'looks for deadlocks over several nodes now and ends them; returns how many sessions got an error';

CREATE FUNCTION strata.all_lock_waits(
    OUT node text, OUT waiting_session integer, OUT waiting_pid integer,
    OUT waiting_statement text, OUT blocking_session integer, OUT blocking_pid integer,
    OUT blocking_gid text, OUT blocking_statement text, OUT object text, OUT since timestamptz)
    RETURNS SETOF record
    LANGUAGE sql SECURITY DEFINER ROWS 10
    SET search_path = pg_catalog, pg_temp
AS $$
    SELECT coalesce(w.name, 'coordinator'), e.waiting_session, e.waiting_pid, e.waiting_statement,
           e.blocking_session, e.blocking_pid, e.blocking_gid, e.blocking_statement, e.object,
           e.since
      FROM strata.lock_edges(true) AS e
      LEFT JOIN strata.worker AS w ON w.worker_id = e.worker_id
     ORDER BY e.since
$$;
REVOKE ALL ON FUNCTION strata.all_lock_waits() FROM PUBLIC;
GRANT EXECUTE ON FUNCTION strata.all_lock_waits() TO pg_monitor;
COMMENT ON FUNCTION strata.all_lock_waits() IS
    'rows of strata.lock_waits; runs as the extension''s owner, who may ask the workers';

CREATE VIEW strata.lock_waits AS SELECT * FROM strata.all_lock_waits();
GRANT SELECT ON strata.lock_waits TO pg_monitor;
COMMENT ON VIEW strata.lock_waits IS
    'who waits for whom, on which node, since when; sessions are processes of the coordinator, NULL for others';

-- ---------------------------------------------------------------------------
-- What statements mean for the workers
-- ---------------------------------------------------------------------------

CREATE FUNCTION strata.statement_classes(OUT statements text, OUT class text, OUT note text)
    RETURNS SETOF record
    LANGUAGE c STABLE PARALLEL SAFE AS 'MODULE_PATHNAME', 'strata_statement_classes';
COMMENT ON FUNCTION strata.statement_classes() IS
    'utility statements: run everywhere as typed, adapted for the workers, checked first, or run on the coordinator only';

CREATE FUNCTION strata.object_classes(OUT object text, OUT class text)
    RETURNS SETOF record
    LANGUAGE c STABLE PARALLEL SAFE AS 'MODULE_PATHNAME', 'strata_object_classes';
COMMENT ON FUNCTION strata.object_classes() IS
    'kinds of objects: on all nodes, on the nodes of their table, or on the coordinator only';

-- ---------------------------------------------------------------------------
-- Health
-- ---------------------------------------------------------------------------

-- Differences between a distributed table here and what a worker says it has
-- (strata_worker.table_list, shard_list and index_list as JSON); no row when all is well.
-- An index that is invalid here is one that is still being built, or was left unfinished: no fault.
CREATE FUNCTION strata.find_table_faults(
    checked_worker integer, remote_tables json, remote_shards json, remote_indexes json,
    OUT relation regclass, OUT fault text)
    RETURNS SETOF record
    LANGUAGE sql STABLE
    SET search_path = pg_catalog, pg_temp
AS $$
    WITH remote AS MATERIALIZED (
        SELECT * FROM json_to_recordset(remote_tables)
                   AS t (schema_name text, table_name text, partitioned boolean, columns text)
    ), remote_shard AS MATERIALIZED (
        SELECT * FROM json_to_recordset(remote_shards)
                   AS s (schema_name text, table_name text, modulus integer, remainder integer)
    ), remote_index AS MATERIALIZED (
        SELECT * FROM json_to_recordset(remote_indexes)
                   AS i (schema_name text, table_name text, index_name text, complete boolean)
    ), local AS MATERIALIZED (
        SELECT t.relation, t.kind, t.colocation_id, n.nspname AS schema_name,
               c.relname AS table_name, t.kind = 'd' OR c.relkind = 'p' AS partitioned,
               (SELECT string_agg(format('%I %s', a.attname,
                                         format_type(a.atttypid, a.atttypmod)),
                                  ', ' ORDER BY a.attname)
                  FROM pg_attribute AS a
                 WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped) AS columns
          FROM strata.distributed_table AS t
          JOIN pg_class AS c ON c.oid = t.relation
          JOIN pg_namespace AS n ON n.oid = c.relnamespace
    )
    SELECT l.relation, 'the table does not exist'
      FROM local AS l
     WHERE NOT EXISTS (SELECT FROM remote AS r
                        WHERE (r.schema_name, r.table_name) = (l.schema_name, l.table_name))
    UNION ALL
    SELECT l.relation, CASE WHEN r.partitioned <> l.partitioned THEN 'the table is of another kind'
                            ELSE format('its columns are (%s), here (%s)', r.columns, l.columns) END
      FROM local AS l
      JOIN remote AS r ON (r.schema_name, r.table_name) = (l.schema_name, l.table_name)
     WHERE r.partitioned <> l.partitioned OR r.columns <> l.columns
    UNION ALL
    SELECT l.relation, format('shard %s (modulus %s) is missing', s.remainder, s.modulus)
      FROM local AS l
      JOIN strata.shard AS s ON s.colocation_id = l.colocation_id AND s.worker_id = checked_worker
     WHERE NOT EXISTS (SELECT FROM remote_shard AS r
                        WHERE (r.schema_name, r.table_name) = (l.schema_name, l.table_name)
                          AND (r.modulus, r.remainder) = (s.modulus, s.remainder))
    UNION ALL
    SELECT l.relation, format('shard %s (modulus %s) does not belong there', r.remainder, r.modulus)
      FROM local AS l
      JOIN remote_shard AS r ON (r.schema_name, r.table_name) = (l.schema_name, l.table_name)
     WHERE l.kind = 'd'
       AND NOT EXISTS (SELECT FROM strata.shard AS s
                        WHERE s.colocation_id = l.colocation_id
                          AND s.worker_id = checked_worker
                          AND (r.modulus, r.remainder) = (s.modulus, s.remainder))
    UNION ALL
    SELECT l.relation, format('index %I is valid here, but %s; REINDEX INDEX builds it', c.relname,
                              CASE WHEN r.complete IS NULL THEN 'missing' ELSE 'not complete' END)
      FROM local AS l
      JOIN pg_index AS x ON x.indrelid = l.relation AND x.indisvalid
      JOIN pg_class AS c ON c.oid = x.indexrelid
      LEFT JOIN remote_index AS r
             ON (r.schema_name, r.table_name, r.index_name) = (l.schema_name, l.table_name, c.relname)
     WHERE r.complete IS NOT TRUE
$$;
REVOKE ALL ON FUNCTION strata.find_table_faults(integer, json, json, json) FROM PUBLIC;
COMMENT ON FUNCTION strata.find_table_faults(integer, json, json, json) IS
    'compares the metadata with a worker''s lists of tables, shards and indexes';

-- As the extension's owner, for who monitors.  Nothing in it reads tables of users.
CREATE FUNCTION strata.node_health(
    OUT worker_name text, OUT check_name text, OUT ok boolean, OUT detail text)
    RETURNS SETOF record
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    member strata.worker;
    cluster strata.cluster;
    answer record;
    tables json;
    shards json;
    indexes json;
    here text;
    -- of reference tables, which are tables of their own, unlike shards
    partitions text[] := coalesce((
        SELECT array_agg(format('%I.%I', n.nspname, c.relname))
          FROM strata.distributed_table AS t
          JOIN pg_class AS c ON c.oid = t.relation AND c.relispartition
          JOIN pg_namespace AS n ON n.oid = c.relnamespace), '{}');
BEGIN
    SELECT * INTO cluster FROM strata.cluster;
    check_name := 'lost shards';
    ok := false;
    FOR worker_name, detail IN
        SELECT l.lost_with, string_agg(format('%s: %s of %s', l.relation, l.lost, l.modulus), '; '
                                       ORDER BY l.relation::text)
          FROM (SELECT s.lost_with, t.relation, s.modulus, count(*) AS lost
                  FROM strata.shard AS s JOIN strata.distributed_table AS t USING (colocation_id)
                 WHERE s.lost_with IS NOT NULL
                 GROUP BY s.lost_with, t.relation, s.modulus) AS l
         GROUP BY l.lost_with ORDER BY l.lost_with
    LOOP
        RETURN NEXT;
    END LOOP;

    FOR member IN SELECT * FROM strata.worker ORDER BY worker_id LOOP
        worker_name := member.name;

        check_name := 'reachable';
        answer := strata.run_on_worker(member.worker_id, 'SELECT 1', false);
        ok := answer.success;
        detail := CASE WHEN NOT ok THEN answer.result END;
        RETURN NEXT;
        CONTINUE WHEN NOT ok;

        check_name := 'PostgreSQL major version';
        answer := strata.run_on_worker(member.worker_id, 'SHOW server_version_num', false);
        ok := answer.success
              AND answer.result::integer / 10000
                  = current_setting('server_version_num')::integer / 10000;
        detail := CASE WHEN NOT ok THEN format('the worker says %s, the coordinator has %s',
                            answer.result, current_setting('server_version_num')) END;
        RETURN NEXT;

        -- each session here may have a transaction prepared there
        check_name := 'prepared transactions';
        answer := strata.run_on_worker(member.worker_id, 'SHOW max_prepared_transactions', false);
        ok := answer.success AND answer.result::integer >= current_setting('max_connections')::integer;
        detail := CASE WHEN NOT answer.success THEN answer.result
                       WHEN NOT ok THEN format('max_prepared_transactions is %s there, max_connections of the coordinator %s',
                                               answer.result, current_setting('max_connections')) END;
        RETURN NEXT;

        check_name := 'extension version';
        here := (SELECT extversion FROM pg_extension WHERE extname = 'strata');
        answer := strata.run_on_worker(member.worker_id,
            'SELECT extversion FROM pg_catalog.pg_extension WHERE extname = ''strata_worker''', false);
        ok := answer.success AND answer.result IS NOT DISTINCT FROM here;
        detail := CASE WHEN NOT ok THEN format('the worker says %s, the coordinator has %s',
                            coalesce(answer.result, 'not installed'), here) END;
        RETURN NEXT;
        CONTINUE WHEN NOT answer.success OR answer.result IS NULL;

        -- without it, what the worker computes by itself (autovacuum) is not watched
        check_name := 'preloaded library';
        answer := strata.run_on_worker(member.worker_id, 'SHOW shared_preload_libraries', false);
        ok := answer.success AND answer.result ~ '\mstrata_worker\M';
        detail := CASE WHEN NOT answer.success THEN answer.result
                       WHEN NOT ok THEN 'strata_worker is not in shared_preload_libraries there' END;
        RETURN NEXT;

        check_name := 'cluster identity';
        answer := strata.run_on_worker(member.worker_id,
            format('SELECT strata_worker.check_coordinator(%L, %L, %L)',
                   cluster.id, cluster.epoch, cluster.holder), false);
        ok := answer.success;
        detail := CASE WHEN NOT ok THEN answer.result END;
        RETURN NEXT;

        check_name := 'roles';
        answer := strata.run_on_worker(member.worker_id,
            'SELECT json_agg(r) FROM strata.role_state() AS r', false);
        ok := answer.success;
        detail := CASE WHEN NOT ok THEN answer.result END;
        IF ok THEN
            SELECT string_agg(DISTINCT c.object, '; ') INTO detail
              FROM strata.role_commands(coalesce(answer.result, '[]')::json) AS c;
            ok := detail IS NULL;
        END IF;
        RETURN NEXT;

        check_name := 'tables and shards';
        answer := strata.run_on_worker(member.worker_id,
            format('SELECT json_agg(t) FROM strata_worker.table_list(%L) AS t', partitions), false);
        ok := answer.success;
        detail := CASE WHEN NOT ok THEN answer.result END;
        IF ok THEN
            tables := coalesce(answer.result, '[]');
            answer := strata.run_on_worker(member.worker_id,
                'SELECT json_agg(s) FROM strata_worker.shard_list() AS s', false);
            ok := answer.success;
            detail := CASE WHEN NOT ok THEN answer.result END;
        END IF;
        IF ok THEN
            shards := coalesce(answer.result, '[]');
            answer := strata.run_on_worker(member.worker_id,
                format('SELECT json_agg(i) FROM strata_worker.index_list(%L) AS i', partitions), false);
            ok := answer.success;
            detail := CASE WHEN NOT ok THEN answer.result END;
        END IF;
        IF ok THEN
            indexes := coalesce(answer.result, '[]');
            SELECT string_agg(format('%s: %s', f.relation, f.fault), '; ' ORDER BY f.relation::text, f.fault)
              INTO detail FROM strata.find_table_faults(member.worker_id, tables, shards, indexes) AS f;
            ok := detail IS NULL;
        END IF;
        RETURN NEXT;

        check_name := 'periods';
        answer := strata.run_on_worker(member.worker_id,
            format('SELECT string_agg(u::text, '', '') FROM strata_worker.unknown_periods() AS u '
                   'WHERE u <> ALL (SELECT coalesce(pg_catalog.to_regclass(n), 0) FROM unnest(%L::text[]) AS n)',
                   partitions), false);
        ok := answer.success AND answer.result IS NULL;
        detail := CASE WHEN NOT answer.success THEN answer.result
                       WHEN NOT ok THEN format('pg_partman does not know %s', answer.result) END;
        RETURN NEXT;
    END LOOP;
END
$$;
REVOKE ALL ON FUNCTION strata.node_health() FROM PUBLIC;
GRANT EXECUTE ON FUNCTION strata.node_health() TO pg_monitor;
COMMENT ON FUNCTION strata.node_health() IS
    'what check_health() shows, but for the copies of reference tables';

-- Copies are compared by reading them, which runs code of their owners (indexes on expressions): not with
-- rights that the caller lacks.
CREATE FUNCTION strata.check_health(
    OUT worker_name text, OUT check_name text, OUT ok boolean, OUT detail text)
    RETURNS SETOF record
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    is_superuser CONSTANT boolean := (SELECT rolsuper FROM pg_roles WHERE rolname = current_user);
    answer record;
    reference regclass;
    here text;
BEGIN
    FOR worker_name, check_name, ok, detail IN SELECT * FROM strata.node_health() LOOP
        RETURN NEXT;
        -- the last check of a worker that answers
        CONTINUE WHEN check_name <> 'periods' OR NOT is_superuser;
        -- a partitioned table has the rows of its partitions, which are compared
        FOR reference IN
            SELECT t.relation FROM strata.distributed_table AS t JOIN pg_class AS c ON c.oid = t.relation
             WHERE t.kind = 'r' AND c.relkind = 'r' ORDER BY t.relation::text
        LOOP
            check_name := format('copy of %s', reference);
            here := (SELECT format('(%s,%s)', c.row_count, c.checksum)
                       FROM strata.table_checksum(reference) AS c);
            answer := strata.run_on_worker((SELECT w.worker_id FROM strata.worker AS w WHERE w.name = worker_name),
                format('SELECT strata.table_checksum(%L)', reference), false);
            ok := answer.success AND answer.result = here;
            detail := CASE WHEN NOT answer.success THEN answer.result
                           WHEN NOT ok THEN format('(rows,checksum) there %s, here %s',
                                                   answer.result, here) END;
            RETURN NEXT;
        END LOOP;
    END LOOP;
END
$$;
REVOKE ALL ON FUNCTION strata.check_health() FROM PUBLIC;
GRANT EXECUTE ON FUNCTION strata.check_health() TO pg_monitor;
COMMENT ON FUNCTION strata.check_health() IS
    'what of the cluster is lost; and for every worker: reachable, versions, prepared transactions, cluster, roles, tables and shards, periods; for superusers also copies of reference tables';


-- ---------------------------------------------------------------------------
-- Restore points
-- ---------------------------------------------------------------------------

CREATE FUNCTION strata.create_restore_point(name text, OUT node name, OUT lsn pg_lsn)
    RETURNS SETOF record
    LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE
    AS 'MODULE_PATHNAME', 'strata_create_restore_point';
REVOKE ALL ON FUNCTION strata.create_restore_point(text) FROM PUBLIC;
COMMENT ON FUNCTION strata.create_restore_point(text) IS
    'makes a restore point of this name on all nodes, so that no transaction is on different sides of it';
