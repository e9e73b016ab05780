-- Coordinator extension, version 0.1.
-- The build appends extensions/common/sql/*.sql, which both extensions share.
\echo Use "CREATE EXTENSION strata" to load this file. \quit

GRANT USAGE ON SCHEMA strata TO PUBLIC;
COMMENT ON SCHEMA strata IS 'Strata: distributed tables over many PostgreSQL servers';

-- ---------------------------------------------------------------------------
-- Metadata.  src/metadata_catalog.h names the columns by number: keep them in step.
-- ---------------------------------------------------------------------------

CREATE TABLE strata.cluster (
    id uuid NOT NULL,
    epoch bigint NOT NULL CHECK (epoch > 0)
);
CREATE UNIQUE INDEX cluster_has_one_row ON strata.cluster ((true));
INSERT INTO strata.cluster VALUES (gen_random_uuid(), 1);
COMMENT ON TABLE strata.cluster IS
    'identity of this cluster, copied to its workers; the epoch rises when another coordinator takes over';

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
    is_default boolean NOT NULL
);
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
    worker_id integer NOT NULL REFERENCES strata.worker,
    PRIMARY KEY (colocation_id, remainder)
);
COMMENT ON TABLE strata.shard IS
    'which worker holds the keys whose partition hash modulo modulus is remainder';

CREATE TABLE strata.distributed_table (
    relation regclass PRIMARY KEY,
    kind "char" NOT NULL CHECK (kind IN ('d', 'r')),
    key_attribute smallint,
    colocation_id integer REFERENCES strata.colocation,
    storage text NOT NULL CHECK (storage IN ('heap')),
    partition_attribute smallint,
    partition_interval text,
    retention text,
    CHECK ((kind = 'd') = (key_attribute IS NOT NULL)),
    CHECK ((kind = 'd') = (colocation_id IS NOT NULL))
);
COMMENT ON TABLE strata.distributed_table IS
    'distributed tables (kind d) and reference tables (kind r)';

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
COMMENT ON FUNCTION strata.replicate_reference_row() IS
    'trigger of reference tables: repeats each change of a row on all workers';

-- ---------------------------------------------------------------------------
-- Tables
-- ---------------------------------------------------------------------------

CREATE FUNCTION strata.create_distributed_table(
    relation regclass,
    key text,
    shard_count integer DEFAULT NULL,
    colocate_with text DEFAULT 'default',
    storage text DEFAULT 'heap',
    method text DEFAULT 'hash',
    partition_by text DEFAULT NULL,
    partition_interval interval DEFAULT NULL,
    retention interval DEFAULT NULL)
    RETURNS void
    LANGUAGE c AS 'MODULE_PATHNAME', 'strata_create_distributed_table';
COMMENT ON FUNCTION strata.create_distributed_table(
    regclass, text, integer, text, text, text, text, interval, interval) IS
    'spreads a table''s rows over the workers by the hash of its key column';

CREATE FUNCTION strata.create_reference_table(relation regclass) RETURNS void
    LANGUAGE c STRICT AS 'MODULE_PATHNAME', 'strata_create_reference_table';
COMMENT ON FUNCTION strata.create_reference_table(regclass) IS
    'keeps a full copy of a table on every worker';

CREATE FUNCTION strata.undistribute_table(relation regclass) RETURNS void
    LANGUAGE c STRICT AS 'MODULE_PATHNAME', 'strata_undistribute_table';
COMMENT ON FUNCTION strata.undistribute_table(regclass) IS
    'makes a distributed or reference table an ordinary table of the coordinator, with its rows';

-- ---------------------------------------------------------------------------
-- Workers
-- ---------------------------------------------------------------------------

CREATE FUNCTION strata.add_worker(name text, conninfo text) RETURNS integer
    LANGUAGE c STRICT AS 'MODULE_PATHNAME', 'strata_add_worker';
REVOKE ALL ON FUNCTION strata.add_worker(text, text) FROM PUBLIC;
COMMENT ON FUNCTION strata.add_worker(text, text) IS
    'adds a server to the cluster, with the schema objects and reference tables it needs; returns its id';

CREATE FUNCTION strata.remove_worker(name text, drain boolean DEFAULT false) RETURNS void
    LANGUAGE c STRICT AS 'MODULE_PATHNAME', 'strata_remove_worker';
REVOKE ALL ON FUNCTION strata.remove_worker(text, boolean) FROM PUBLIC;
COMMENT ON FUNCTION strata.remove_worker(text, boolean) IS
    'removes a worker that holds no shards from the cluster';

CREATE FUNCTION strata.conninfo_address(conninfo text) RETURNS text
    LANGUAGE c STABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME', 'strata_conninfo_address';
COMMENT ON FUNCTION strata.conninfo_address(text) IS
    'host:port (several: comma-separated) and database of a connection string';

-- Runs in the current transaction, behind a savepoint: an error becomes the result.
CREATE FUNCTION strata.run_on_worker(worker_id integer, command text, OUT success boolean, OUT result text)
    LANGUAGE c STRICT AS 'MODULE_PATHNAME', 'strata_run_on_worker';
REVOKE ALL ON FUNCTION strata.run_on_worker(integer, text) FROM PUBLIC;
COMMENT ON FUNCTION strata.run_on_worker(integer, text) IS
    'runs a command on one worker; result is the first column of the first row, or the error';

CREATE FUNCTION strata.run_command_on_workers(
    command text, OUT worker_name text, OUT success boolean, OUT result text)
    RETURNS SETOF record
    LANGUAGE sql STRICT
    SET search_path = pg_catalog, pg_temp
AS $$
    SELECT w.name, r.success, r.result
      FROM (SELECT * FROM strata.worker ORDER BY worker_id OFFSET 0) AS w
     CROSS JOIN LATERAL strata.run_on_worker(w.worker_id, command) AS r
$$;
REVOKE ALL ON FUNCTION strata.run_command_on_workers(text) FROM PUBLIC;
COMMENT ON FUNCTION strata.run_command_on_workers(text) IS
    'runs a command on every worker, in the current transaction; one worker''s error does not stop the others';

-- ---------------------------------------------------------------------------
-- Views
-- ---------------------------------------------------------------------------

CREATE VIEW strata.workers AS
SELECT w.worker_id, w.name, strata.conninfo_address(w.conninfo) AS address, w.state,
       (SELECT count(*) FROM strata.shard AS s
          JOIN strata.distributed_table AS t USING (colocation_id)
         WHERE s.worker_id = w.worker_id) AS shards
  FROM strata.worker AS w;
COMMENT ON VIEW strata.workers IS 'the workers of the cluster and how many shards each holds';

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
       pg_catalog.pg_get_userbyid(r.relowner) AS owner
  FROM strata.distributed_table AS t
  JOIN pg_catalog.pg_class AS r ON r.oid = t.relation
  LEFT JOIN strata.colocation AS c ON c.colocation_id = t.colocation_id
  LEFT JOIN pg_catalog.pg_attribute AS a
         ON a.attrelid = t.relation AND a.attnum = t.key_attribute;
COMMENT ON VIEW strata.tables IS 'the distributed and reference tables';

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
               w.worker_id, 'SELECT json_agg(s) FROM strata_worker.shard_list() AS s') AS answer
     CROSS JOIN LATERAL json_to_recordset(CASE WHEN answer.success THEN answer.result::json END)
                     AS s (schema_name text, table_name text, partition_name text,
                           remainder integer, bytes bigint, row_estimate bigint)
$$;
COMMENT ON FUNCTION strata.shard_statistics() IS
    'sizes and estimated rows of all shards, asked from the workers';

CREATE VIEW strata.shards AS
SELECT t.relation, s.remainder AS shard, s.modulus, w.name AS worker, x.partition_name AS partition,
       x.bytes, x.row_estimate
  FROM strata.distributed_table AS t
  JOIN pg_catalog.pg_class AS r ON r.oid = t.relation
  JOIN pg_catalog.pg_namespace AS n ON n.oid = r.relnamespace
  JOIN strata.shard AS s ON s.colocation_id = t.colocation_id
  JOIN strata.worker AS w ON w.worker_id = s.worker_id
  LEFT JOIN strata.shard_statistics() AS x
         ON x.worker_id = s.worker_id AND x.remainder = s.remainder
        AND x.schema_name = n.nspname AND x.table_name = r.relname;
COMMENT ON VIEW strata.shards IS
    'every shard of every distributed table with its worker, size in bytes and estimated rows';

GRANT SELECT ON strata.workers, strata.tables, strata.shards TO PUBLIC;

-- ---------------------------------------------------------------------------
-- Health
-- ---------------------------------------------------------------------------

-- Differences between a distributed table here and what a worker says it has
-- (strata_worker.table_list and shard_list as JSON); no row when all is well.
CREATE FUNCTION strata.find_table_faults(
    checked_worker integer, remote_tables json, remote_shards json,
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
    ), local AS MATERIALIZED (
        SELECT t.relation, t.kind, t.colocation_id, n.nspname AS schema_name,
               c.relname AS table_name,
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
    SELECT l.relation, CASE WHEN r.partitioned <> (l.kind = 'd') THEN 'the table is of another kind'
                            ELSE format('its columns are (%s), here (%s)', r.columns, l.columns) END
      FROM local AS l
      JOIN remote AS r ON (r.schema_name, r.table_name) = (l.schema_name, l.table_name)
     WHERE r.partitioned <> (l.kind = 'd') OR r.columns <> l.columns
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
     WHERE NOT EXISTS (SELECT FROM strata.shard AS s
                        WHERE s.colocation_id = l.colocation_id
                          AND s.worker_id = checked_worker
                          AND (r.modulus, r.remainder) = (s.modulus, s.remainder))
$$;
REVOKE ALL ON FUNCTION strata.find_table_faults(integer, json, json) FROM PUBLIC;
COMMENT ON FUNCTION strata.find_table_faults(integer, json, json) IS
    'compares the metadata with a worker''s list of tables and shards';

CREATE FUNCTION strata.check_health(
    OUT worker_name text, OUT check_name text, OUT ok boolean, OUT detail text)
    RETURNS SETOF record
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    member strata.worker;
    cluster strata.cluster;
    answer record;
    tables json;
    shards json;
    reference regclass;
    here text;
BEGIN
    SELECT * INTO cluster FROM strata.cluster;
    FOR member IN SELECT * FROM strata.worker ORDER BY worker_id LOOP
        worker_name := member.name;

        check_name := 'reachable';
        answer := strata.run_on_worker(member.worker_id, 'SELECT 1');
        ok := answer.success;
        detail := CASE WHEN NOT ok THEN answer.result END;
        RETURN NEXT;
        CONTINUE WHEN NOT ok;

        check_name := 'PostgreSQL major version';
        answer := strata.run_on_worker(member.worker_id, 'SHOW server_version_num');
        ok := answer.success
              AND answer.result::integer / 10000
                  = current_setting('server_version_num')::integer / 10000;
        detail := CASE WHEN NOT ok THEN format('the worker says %s, the coordinator has %s',
                            answer.result, current_setting('server_version_num')) END;
        RETURN NEXT;

        check_name := 'extension version';
        here := (SELECT extversion FROM pg_extension WHERE extname = 'strata');
        answer := strata.run_on_worker(member.worker_id,
            'SELECT extversion FROM pg_catalog.pg_extension WHERE extname = ''strata_worker''');
        ok := answer.success AND answer.result IS NOT DISTINCT FROM here;
        detail := CASE WHEN NOT ok THEN format('the worker says %s, the coordinator has %s',
                            coalesce(answer.result, 'not installed'), here) END;
        RETURN NEXT;
        CONTINUE WHEN NOT answer.success OR answer.result IS NULL;

        check_name := 'cluster identity';
        answer := strata.run_on_worker(member.worker_id,
            format('SELECT strata_worker.check_coordinator(%L, %L)', cluster.id, cluster.epoch));
        ok := answer.success;
        detail := CASE WHEN NOT ok THEN answer.result END;
        RETURN NEXT;

        check_name := 'tables and shards';
        answer := strata.run_on_worker(member.worker_id,
            'SELECT json_agg(t) FROM strata_worker.table_list() AS t');
        ok := answer.success;
        detail := CASE WHEN NOT ok THEN answer.result END;
        IF ok THEN
            tables := coalesce(answer.result, '[]');
            answer := strata.run_on_worker(member.worker_id,
                'SELECT json_agg(s) FROM strata_worker.shard_list() AS s');
            ok := answer.success;
            detail := CASE WHEN NOT ok THEN answer.result END;
        END IF;
        IF ok THEN
            shards := coalesce(answer.result, '[]');
            SELECT string_agg(format('%s: %s', f.relation, f.fault), '; ' ORDER BY f.relation::text, f.fault)
              INTO detail FROM strata.find_table_faults(member.worker_id, tables, shards) AS f;
            ok := detail IS NULL;
        END IF;
        RETURN NEXT;

        FOR reference IN SELECT relation FROM strata.distributed_table WHERE kind = 'r' ORDER BY relation::text
        LOOP
            check_name := format('copy of %s', reference);
            here := (SELECT format('(%s,%s)', c.row_count, c.checksum)
                       FROM strata.table_checksum(reference) AS c);
            answer := strata.run_on_worker(member.worker_id,
                format('SELECT strata.table_checksum(%L)', reference));
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
COMMENT ON FUNCTION strata.check_health() IS
    'checks every worker: reachable, versions, cluster, tables and shards, copies of reference tables';

