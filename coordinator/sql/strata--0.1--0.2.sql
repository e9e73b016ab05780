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
    'what of the cluster is lost; and for every worker: reachable, versions, also of collations, prepared transactions, cluster, roles, tables and shards, periods; for superusers also copies of reference tables';

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
