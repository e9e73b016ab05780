-- What version 0.2 changes.

-- As the extension's owner, for who monitors.
CREATE FUNCTION strata.versions(
    OUT node text, OUT postgresql text, OUT library text, OUT extension text, OUT installable text)
    RETURNS SETOF record
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    member record;
    answer record;
    -- the library that a session there has loaded, by a setting; none before 0.2
    question CONSTANT text := $q$
        SELECT json_build_array(current_setting('server_version'), current_setting(%L, true),
                                (SELECT e.extversion FROM pg_catalog.pg_extension AS e WHERE e.extname = %L),
                                (SELECT a.default_version FROM pg_catalog.pg_available_extensions AS a
                                  WHERE a.name = %L)) $q$;
    answers json;
BEGIN
    FOR member IN SELECT w.worker_id, w.name FROM strata.worker AS w
                   UNION ALL SELECT 0, 'coordinator' ORDER BY 1 LOOP
        node := member.name;
        IF member.worker_id = 0 THEN
            EXECUTE format(question, 'strata.version', 'strata', 'strata') INTO answers;
        ELSE
            answer := strata.run_on_worker(member.worker_id,
                format(question, 'strata_worker.version', 'strata_worker', 'strata_worker'), false);
            IF NOT answer.success THEN
                RAISE WARNING 'worker "%" could not be asked for its versions', node
                    USING DETAIL = answer.result;
            END IF;
            answers := CASE WHEN answer.success THEN answer.result::json END;
        END IF;
        postgresql := answers ->> 0;
        library := answers ->> 1;
        extension := answers ->> 2;
        installable := answers ->> 3;
        RETURN NEXT;
    END LOOP;
END
$$;
REVOKE ALL ON FUNCTION strata.versions() FROM PUBLIC;
GRANT EXECUTE ON FUNCTION strata.versions() TO pg_monitor;
COMMENT ON FUNCTION strata.versions() IS
    'of each node: PostgreSQL, the library that runs, the extension''s SQL, and the newest SQL that ALTER EXTENSION strata UPDATE could install; NULL where a worker does not answer';

-- What a worker's libraries of locales have in another version than those here; NULL: nothing.  Rows that one version has
-- sorted or hashed, another one may not find.  As the extension's owner, for who monitors.
CREATE FUNCTION strata.find_collation_faults(worker_name name) RETURNS text
    LANGUAGE plpgsql SECURITY DEFINER STRICT
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    -- of ICU all collations that initdb makes have one version
    question CONSTANT text := $q$
        SELECT json_object_agg(v.name, v.version)
          FROM (SELECT 'the database' AS name, pg_catalog.pg_database_collation_actual_version(d.oid) AS version
                  FROM pg_catalog.pg_database AS d WHERE d.datname = pg_catalog.current_database()
                 UNION ALL
                SELECT pg_catalog.format('collation %I.%I', n.nspname, c.collname), pg_catalog.pg_collation_actual_version(c.oid)
                  FROM pg_catalog.pg_collation AS c JOIN pg_catalog.pg_namespace AS n ON n.oid = c.collnamespace
                 WHERE c.oid >= 16384 OR (n.nspname = 'pg_catalog' AND c.collname = 'und-x-icu')) AS v
         WHERE v.version IS NOT NULL $q$;
    here json;
    answer record;
BEGIN
    EXECUTE question INTO here;
    answer := strata.run_on_worker((SELECT w.worker_id FROM strata.worker AS w
                                     WHERE w.name = find_collation_faults.worker_name), question, false);
    IF NOT answer.success THEN
        RETURN answer.result;
    END IF;
    RETURN (SELECT string_agg(format('%s has version %s there, %s here', h.key, t.value, h.value), '; ' ORDER BY h.key)
              FROM json_each_text(here) AS h JOIN json_each_text(answer.result::json) AS t USING (key)
             WHERE t.value <> h.value);
END
$$;
REVOKE ALL ON FUNCTION strata.find_collation_faults(name) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION strata.find_collation_faults(name) TO pg_monitor;
COMMENT ON FUNCTION strata.find_collation_faults(name) IS
    'which collations of a worker are of another version than here; NULL: none';

-- Values in more than two shards' share of many rows: their shard is large, and no move or split spreads it; NULL: there are none.  As the
-- extension's owner, for who monitors.
CREATE FUNCTION strata.find_heavy_keys() RETURNS text
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
AS $$
    SELECT string_agg(format('one value of column %I has %s %% of the rows of %s', a.attname,
                             round(100 * s.most_common_freqs[1]::numeric), t.relation), '; ' ORDER BY t.relation::text)
      FROM strata.distributed_table AS t
      JOIN pg_class AS c ON c.oid = t.relation
      JOIN pg_namespace AS n ON n.oid = c.relnamespace
      JOIN pg_attribute AS a ON (a.attrelid, a.attnum) = (t.relation, t.key_attribute)
      JOIN pg_stats AS s ON (s.schemaname, s.tablename, s.attname) = (n.nspname, c.relname, a.attname)
     CROSS JOIN LATERAL (SELECT count(*) FROM strata.shard AS o WHERE o.colocation_id = t.colocation_id) AS shards (count)
     WHERE c.reltuples >= 1000000 AND shards.count > 1 AND s.most_common_freqs[1] * shards.count > 2
$$;
REVOKE ALL ON FUNCTION strata.find_heavy_keys() FROM PUBLIC;
GRANT EXECUTE ON FUNCTION strata.find_heavy_keys() TO pg_monitor;
COMMENT ON FUNCTION strata.find_heavy_keys() IS
    'of large distributed tables the keys that fill a shard alone; NULL: none';

CREATE OR REPLACE FUNCTION strata.check_health(
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
    worker_name := 'coordinator';
    check_name := 'heavy keys';
    detail := strata.find_heavy_keys();
    ok := detail IS NULL;
    RETURN NEXT;
    FOR worker_name, check_name, ok, detail IN SELECT * FROM strata.node_health() LOOP
        RETURN NEXT;
        -- the first check of a worker that answers
        IF check_name = 'PostgreSQL major version' THEN
            check_name := 'collation versions';
            detail := strata.find_collation_faults(worker_name);
            ok := detail IS NULL;
            RETURN NEXT;
        END IF;
        -- its last
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
COMMENT ON FUNCTION strata.check_health() IS
    'what of the cluster is lost, and keys that fill a shard alone; and for every worker: reachable, versions, also of collations, prepared transactions, cluster, roles, tables and shards, periods; for superusers also copies of reference tables';

-- As in 0.1, and by heat.  A shard that has moved begins cold, so plan again when it has been read for a while.
CREATE OR REPLACE FUNCTION strata.rebalance_plan(
    strategy text DEFAULT 'bytes', drain text DEFAULT NULL, threshold float8 DEFAULT 0.1,
    OUT relation regclass, OUT shard integer, OUT source text, OUT target text, OUT bytes bigint,
    OUT row_estimate bigint, OUT reason text)
    RETURNS SETOF record
    LANGUAGE plpgsql STABLE
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    leaving integer[] := '{}';
    state record;
BEGIN
    IF strategy IS NULL OR strategy NOT IN ('bytes', 'rows', 'count', 'heat') THEN
        RAISE EXCEPTION 'unknown strategy "%"', strategy
            USING ERRCODE = 'invalid_parameter_value', HINT = 'There are "bytes", "rows", "count" and "heat".';
    ELSIF threshold IS NULL OR NOT threshold BETWEEN 0 AND 1 THEN
        RAISE EXCEPTION 'threshold must be between 0 and 1' USING ERRCODE = 'invalid_parameter_value';
    ELSIF drain IS NOT NULL THEN
        leaving := ARRAY(SELECT w.worker_id FROM strata.worker AS w WHERE w.name = drain);
        IF cardinality(leaving) = 0 THEN
            RAISE EXCEPTION 'worker "%" does not exist', drain
                USING ERRCODE = 'undefined_object', HINT = 'SELECT * FROM strata.workers lists the workers.';
        END IF;
    END IF;
    RETURN QUERY
        WITH heat AS (
            SELECT t.relation, h.shard, sum(h.heat) AS heat
              FROM strata.distributed_table AS t CROSS JOIN LATERAL strata.heat(t.relation) AS h
             WHERE strategy = 'heat'
             GROUP BY t.relation, h.shard
        ), shards AS (
            SELECT t.colocation_id, s.shard, min(t.relation::oid) AS relation, min(w.worker_id) AS worker_id,
                   sum(s.bytes)::bigint AS bytes, sum(s.row_estimate)::bigint AS row_estimate,
                   sum(h.heat) AS heat
              FROM strata.shards AS s
              JOIN strata.distributed_table AS t ON t.relation = s.relation
              JOIN strata.worker AS w ON w.name = s.worker
              LEFT JOIN heat AS h ON h.relation = s.relation AND h.shard = s.shard
             GROUP BY t.colocation_id, s.shard
        ), weighted AS (
            SELECT s.*, CASE strategy WHEN 'bytes' THEN coalesce(s.bytes, 0)
                                      WHEN 'rows' THEN coalesce(s.row_estimate, 0)
                                      WHEN 'heat' THEN coalesce(s.heat, 0) ELSE 1 END AS weight
              FROM shards AS s
        ), plan AS (
            SELECT p.*
              FROM (SELECT array_agg(s.colocation_id ORDER BY s.colocation_id, s.shard) AS groups,
                           array_agg(s.shard ORDER BY s.colocation_id, s.shard) AS shards,
                           array_agg(s.worker_id ORDER BY s.colocation_id, s.shard) AS places,
                           array_agg(s.weight::float8 ORDER BY s.colocation_id, s.shard) AS weights
                      FROM weighted AS s) AS a
             CROSS JOIN LATERAL strata.plan_moves(
                       a.groups, a.shards, a.places, a.weights,
                       ARRAY(SELECT w.worker_id FROM strata.worker AS w), leaving, threshold) AS p
        )
        SELECT s.relation::regclass, s.shard, here.name, there.name, s.bytes, s.row_estimate,
               CASE WHEN p.drained THEN format('worker "%s" is drained', here.name)
                    ELSE format('worker "%s" has more %s', here.name,
                                CASE strategy WHEN 'count' THEN 'shards' ELSE strategy END) END
          FROM plan AS p
          JOIN shards AS s USING (colocation_id, shard)
          JOIN strata.worker AS here ON here.worker_id = p.source
          JOIN strata.worker AS there ON there.worker_id = p.target
         ORDER BY p.drained DESC, s.bytes DESC NULLS LAST, s.relation, s.shard;
END
$$;
COMMENT ON FUNCTION strata.rebalance_plan(text, text, float8) IS
    'the moves that would make workers hold the same bytes, rows or number of shards of each colocation group, or be read the same, or empty one of them';

CREATE FUNCTION strata.adopt_shards() RETURNS integer
    LANGUAGE c AS 'MODULE_PATHNAME', 'strata_adopt_shards';
REVOKE ALL ON FUNCTION strata.adopt_shards() FROM PUBLIC;
COMMENT ON FUNCTION strata.adopt_shards() IS
    'looks for shards where they are now, after the coordinator was restored to an earlier time; returns how many were elsewhere';

CREATE FUNCTION strata.split_shard(relation regclass, shard integer, workers text[] DEFAULT NULL) RETURNS bigint
    LANGUAGE c AS 'MODULE_PATHNAME', 'strata_split_shard';
REVOKE ALL ON FUNCTION strata.split_shard(regclass, integer, text[]) FROM PUBLIC;
COMMENT ON FUNCTION strata.split_shard(regclass, integer, text[]) IS
    'makes two shards of one, of all tables of its colocation group, on one or two other workers; returns the number of rows';

-- What workers keep of shards that have left them, until it is archived where they are (src/stream/kept_shard.c).
CREATE TABLE strata.kept_shard (
    name text PRIMARY KEY DEFAULT 'strata_kept_' || replace(gen_random_uuid()::text, '-', ''),
    colocation_id integer NOT NULL,
    modulus integer NOT NULL,
    remainder integer NOT NULL,
    worker_id integer NOT NULL,
    target text NOT NULL,
    wal_file text,
    kept_since timestamptz NOT NULL DEFAULT clock_timestamp()
);
COMMENT ON TABLE strata.kept_shard IS
    'shards that have left a worker which keeps them as they were: each table in a schema of this name and its OID';
COMMENT ON COLUMN strata.kept_shard.target IS
    'the worker to which it went; one that is gone, with the shard, may be written off';
COMMENT ON COLUMN strata.kept_shard.wal_file IS
    'when the target has archived this, a restore of it has the shard; NULL: not yet asked for';

CREATE VIEW strata.kept_shards AS
SELECT t.relation, k.remainder AS shard, w.name AS worker, k.target, k.kept_since,
       s.lost_with IS NOT DISTINCT FROM k.target AS lost
  FROM strata.kept_shard AS k
  JOIN strata.distributed_table AS t ON t.colocation_id = k.colocation_id
  LEFT JOIN strata.worker AS w ON w.worker_id = k.worker_id
  LEFT JOIN strata.shard AS s ON (s.colocation_id, s.modulus, s.remainder) = (k.colocation_id, k.modulus, k.remainder);
COMMENT ON VIEW strata.kept_shards IS
    'shards that have moved, which their old worker keeps until the new one''s archive has them; those that were lost with the new one come back by strata.move_back()';
GRANT SELECT ON strata.kept_shards TO pg_monitor;

-- As the extension's owner, for DDL calls it.
CREATE FUNCTION strata.release_kept_shards(at_once boolean DEFAULT false) RETURNS integer
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    kept record;
    answer record;
    names text[] := '{}';
    -- timelines are left out: what was archived before a failover is archived
    archived CONSTANT text := $q$
        SELECT pg_catalog.current_setting('archive_mode') = 'off'
            OR pg_catalog.right(pg_catalog."substring"(a.last_archived_wal, '^[0-9A-F]{24}'), 16) COLLATE "C"
               >= pg_catalog.right(%L, 16)
          FROM pg_catalog.pg_stat_archiver AS a $q$;
BEGIN
    LOCK TABLE strata.kept_shard IN SHARE ROW EXCLUSIVE MODE;
    FOR kept IN SELECT k.name, k.wal_file, here.worker_id AS holder, there.worker_id AS target_id
                  FROM strata.kept_shard AS k
                  LEFT JOIN strata.worker AS here ON here.worker_id = k.worker_id
                  LEFT JOIN strata.worker AS there ON there.name = k.target
                  LEFT JOIN strata.shard AS s
                         ON (s.colocation_id, s.modulus, s.remainder) = (k.colocation_id, k.modulus, k.remainder)
                 WHERE here.worker_id IS NULL OR s.lost_with IS DISTINCT FROM k.target
                 ORDER BY k.name LOOP
        IF NOT at_once AND kept.holder IS NOT NULL AND kept.target_id IS NOT NULL THEN
            IF kept.wal_file IS NULL THEN
                answer := strata.run_on_worker(kept.target_id, 'SELECT pg_catalog.pg_walfile_name(pg_catalog.pg_switch_wal())', true);
                UPDATE strata.kept_shard AS k SET wal_file = answer.result WHERE k.name = kept.name AND answer.success;
                CONTINUE;
            END IF;
            answer := strata.run_on_worker(kept.target_id, format(archived, kept.wal_file), false);
            CONTINUE WHEN NOT answer.success OR answer.result IS DISTINCT FROM 't';
        END IF;
        IF kept.holder IS NOT NULL THEN
            answer := strata.run_on_worker(kept.holder, format('SELECT strata_worker.drop_kept_shard(%L)', kept.name), true);
            CONTINUE WHEN NOT answer.success AND NOT at_once;
            IF NOT answer.success THEN
                RAISE EXCEPTION 'could not drop what a worker keeps of a shard that has moved' USING DETAIL = answer.result;
            END IF;
        END IF;
        names := names || kept.name;
    END LOOP;
    DELETE FROM strata.kept_shard AS k WHERE k.name = ANY (names);
    RETURN cardinality(names);
END
$$;
REVOKE ALL ON FUNCTION strata.release_kept_shards(boolean) FROM PUBLIC;
COMMENT ON FUNCTION strata.release_kept_shards(boolean) IS
    'drops what workers keep of shards that the archives of their new workers have, or of all that are not lost; returns of how many';

CREATE FUNCTION strata.move_back(relation regclass, shard integer) RETURNS timestamptz
    LANGUAGE c AS 'MODULE_PATHNAME', 'strata_move_back';
REVOKE ALL ON FUNCTION strata.move_back(regclass, integer) FROM PUBLIC;
COMMENT ON FUNCTION strata.move_back(regclass, integer) IS
    'a shard, of all tables of its colocation group, that was lost with the worker to which it had moved is as it was before the move, on its old worker; returns when that was';

-- Shards are counted, for some may have been split.
CREATE OR REPLACE VIEW strata.tables AS
SELECT t.relation,
       CASE t.kind WHEN 'd' THEN 'distributed' ELSE 'reference' END AS kind,
       a.attname AS key,
       t.colocation_id,
       CASE t.kind WHEN 'd' THEN (SELECT count(*)::integer FROM strata.shard AS s
                                   WHERE s.colocation_id = t.colocation_id) END AS shard_count,
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
  LEFT JOIN pg_catalog.pg_attribute AS a
         ON a.attrelid = t.relation AND a.attnum = t.key_attribute;
