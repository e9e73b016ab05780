
-- ---------------------------------------------------------------------------
-- Tiers: what the coordinator wants, what there is, what is to be done
--
-- A leaf's tier is cold if it is in tablespace "cold", else hot.  The coordinator says every few minutes
-- which table has which policy (begin_round()), and a background process makes the moves that
-- plan() finds, one after the other.
-- ---------------------------------------------------------------------------

CREATE TABLE strata_tiering.policy (
    parent oid PRIMARY KEY,
    mode text NOT NULL CHECK (mode IN ('pinned', 'age', 'heat')),
    tier text CHECK (tier IN ('hot', 'cold')),
    cold_before text,
    age numeric,
    index_tier text NOT NULL CHECK (index_tier IN ('hot', 'follow')),
    residence interval NOT NULL
);
REVOKE ALL ON strata_tiering.policy FROM PUBLIC;
COMMENT ON TABLE strata_tiering.policy IS 'the policies of this database''s tables, as the coordinator last said';
COMMENT ON COLUMN strata_tiering.policy.cold_before IS
    'by age: leaves whose period ends at or before this are cold; NULL with an age in numbers';
COMMENT ON COLUMN strata_tiering.policy.age IS
    'by age, of a column of numbers: how far behind the newest period with rows a leaf is cold';

CREATE TABLE strata_tiering.setting (
    name text PRIMARY KEY,
    value text NOT NULL
);
REVOKE ALL ON strata_tiering.setting FROM PUBLIC;
COMMENT ON TABLE strata_tiering.setting IS 'what else the coordinator last said: enabled, bytes_per_second, seconds (of a round)';

CREATE TABLE strata_tiering.move (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    leaf oid NOT NULL,
    parent oid NOT NULL,
    leaf_name text NOT NULL,
    from_tier text NOT NULL,
    to_tier text NOT NULL,
    reason text NOT NULL,
    bytes bigint NOT NULL,
    heat double precision NOT NULL,
    state text NOT NULL DEFAULT 'running',
    begun timestamptz NOT NULL DEFAULT clock_timestamp(),
    ended timestamptz,
    bytes_written bigint,
    error text
);
CREATE INDEX ON strata_tiering.move (leaf, ended);
REVOKE ALL ON strata_tiering.move FROM PUBLIC;
COMMENT ON TABLE strata_tiering.move IS 'the moves of this database: running, done, failed, or lost (the server stopped)';

-- A file system's size and what is used of it, by the directory of a tablespace.
CREATE FUNCTION strata_tiering.disk(tablespace name, OUT bytes bigint, OUT used bigint)
    LANGUAGE c VOLATILE STRICT
    AS 'MODULE_PATHNAME', 'strata_tiering_disk';
REVOKE ALL ON FUNCTION strata_tiering.disk(name) FROM PUBLIC;
COMMENT ON FUNCTION strata_tiering.disk(name) IS
    'size of the file system of a tablespace and bytes used of it';

-- Of the fast tablespace: what may be used, and what is.
CREATE FUNCTION strata_tiering.hot_room(OUT bytes bigint, OUT used bigint)
    LANGUAGE sql VOLATILE
    SET search_path = pg_catalog, pg_temp
AS $$
    SELECT CASE WHEN l.capacity > 0 THEN l.capacity ELSE d.bytes END,
           CASE WHEN l.capacity > 0
                THEN pg_tablespace_size('hot')
                     + CASE WHEN t.spcname <> 'hot' THEN pg_database_size(b.oid) - coalesce(o.bytes, 0) ELSE 0 END
                ELSE d.used END
      FROM pg_database AS b
      JOIN pg_tablespace AS t ON t.oid = b.dattablespace
     CROSS JOIN strata_tiering.disk('hot') AS d
     CROSS JOIN pg_size_bytes(current_setting('strata_tiering.hot_capacity')) AS l (capacity)
      -- the database's own tablespace counts as hot; its size has all others' in it
      LEFT JOIN LATERAL (SELECT sum(pg_relation_size(c.oid)) AS bytes FROM pg_class AS c
                          WHERE c.reltablespace <> 0 AND c.relkind IN ('r', 'i', 't', 'm')
                            AND NOT c.relisshared) AS o ON true
     WHERE b.datname = current_database()
$$;
REVOKE ALL ON FUNCTION strata_tiering.hot_room() FROM PUBLIC;
COMMENT ON FUNCTION strata_tiering.hot_room() IS
    'bytes that the hot tier may have (strata_tiering.hot_capacity, else its file system), and those it has';

-- How far the replica behind the most is; 0 without.
CREATE FUNCTION strata_tiering.replica_lag() RETURNS numeric
    LANGUAGE sql VOLATILE
    SET search_path = pg_catalog, pg_temp
AS $$
    SELECT coalesce(max(pg_wal_lsn_diff(pg_current_wal_lsn(), r.replay_lsn)), 0)
      FROM pg_stat_replication AS r WHERE r.state = 'streaming'
$$;
REVOKE ALL ON FUNCTION strata_tiering.replica_lag() FROM PUBLIC;
COMMENT ON FUNCTION strata_tiering.replica_lag() IS 'bytes of WAL that the slowest replica has not replayed';

CREATE FUNCTION strata_tiering.leaves(
    OUT parent oid, OUT leaf oid, OUT shard integer, OUT is_columnar boolean, OUT tier text, OUT upper text,
    OUT has_rows boolean, OUT table_bytes bigint, OUT index_bytes bigint)
    RETURNS SETOF record
    LANGUAGE sql VOLATILE ROWS 1000
    SET search_path = pg_catalog, pg_temp
    SET timezone = 'UTC'
    SET datestyle = 'ISO, YMD'
AS $$
    SELECT h.partrelid, c.oid,
           substring(pg_get_expr(s.relpartbound, s.oid) FROM 'remainder (\d+)')::integer,
           a.amname = 'columnar', CASE t.spcname WHEN 'cold' THEN 'cold' ELSE 'hot' END,
           substring(pg_get_expr(c.relpartbound, c.oid) FROM 'TO \(''?([^'')]*)''?\)'),
           -- NULL of what is just dropped
           coalesce(pg_relation_size(c.oid) > 0, false), coalesce(pg_table_size(c.oid), 0),
           coalesce(pg_indexes_size(c.oid), 0)
      FROM pg_partitioned_table AS h
      JOIN pg_inherits AS i ON i.inhparent = h.partrelid
      JOIN pg_class AS s ON s.oid = i.inhrelid
     CROSS JOIN LATERAL strata_tiering.leaves_of_shard(s.oid) AS l
      JOIN pg_class AS c ON c.oid = l
      JOIN pg_am AS a ON a.oid = c.relam
      LEFT JOIN pg_tablespace AS t ON t.oid = c.reltablespace
     WHERE h.partstrat = 'h'
$$;
REVOKE ALL ON FUNCTION strata_tiering.leaves() FROM PUBLIC;
COMMENT ON FUNCTION strata_tiering.leaves() IS
    'leaves of tables that are partitioned by hash: tier, end of their period (none: no or the default period), whether they ever had rows, bytes';

-- What the decision knows of each leaf that has a policy.  A leaf without rows moves only if it is pinned.
CREATE FUNCTION strata_tiering.leaf_states(
    OUT leaf oid, OUT parent oid, OUT mode text, OUT pinned text, OUT tier text, OUT bytes bigint,
    OUT heat double precision, OUT is_young boolean, OUT age_rank bigint, OUT movable_from timestamptz,
    OUT index_tier text)
    RETURNS SETOF record
    LANGUAGE sql VOLATILE ROWS 1000
    SET search_path = pg_catalog, pg_temp
    SET timezone = 'UTC'
AS $$
    WITH known AS MATERIALIZED (SELECT * FROM strata_tiering.leaves() WHERE is_columnar),
         newest AS (SELECT k.parent, max(k.upper::numeric) AS upper
                      FROM known AS k JOIN strata_tiering.policy AS p ON p.parent = k.parent AND p.age IS NOT NULL
                     WHERE k.has_rows
                     GROUP BY k.parent)
    SELECT k.leaf, k.parent, p.mode, p.tier, k.tier,
           k.table_bytes + CASE p.index_tier WHEN 'follow' THEN k.index_bytes ELSE 0 END,
           coalesce(h.heat, 0),
           CASE WHEN p.mode <> 'age' THEN NULL
                WHEN k.upper IS NULL THEN true
                WHEN p.age IS NOT NULL THEN k.upper::numeric > n.upper - p.age
                WHEN p.cold_before ~ '^-?\d+$' THEN k.upper::numeric > p.cold_before::numeric
                ELSE k.upper::timestamptz > p.cold_before::timestamptz END,
           row_number() OVER (ORDER BY CASE WHEN k.upper ~ '^-?\d+$' THEN k.upper::numeric
                                            ELSE extract(epoch FROM k.upper::timestamptz) END, k.leaf),
           m.ended + p.residence, p.index_tier
      FROM known AS k
      JOIN strata_tiering.policy AS p ON p.parent = k.parent
      LEFT JOIN newest AS n ON n.parent = k.parent
      LEFT JOIN strata_tiering.leaf_heat() AS h ON h.leaf = k.leaf
      LEFT JOIN LATERAL (SELECT max(m.ended) AS ended FROM strata_tiering.move AS m
                          WHERE m.leaf = k.leaf AND m.state = 'done') AS m ON true
     WHERE k.has_rows OR p.mode = 'pinned'
$$;
REVOKE ALL ON FUNCTION strata_tiering.leaf_states() FROM PUBLIC;
COMMENT ON FUNCTION strata_tiering.leaf_states() IS 'the leaves that a policy applies to, as the decision sees them';

-- seconds: of the round, whose budget follows from the rate.  NULL: what would be done without a budget, were
-- tiering on and no replica behind.
CREATE FUNCTION strata_tiering.plan(
    seconds double precision, OUT leaf oid, OUT parent oid, OUT from_tier text, OUT to_tier text,
    OUT reason text, OUT bytes bigint, OUT heat double precision, OUT index_tier text)
    RETURNS SETOF record
    LANGUAGE c VOLATILE ROWS 100
    AS 'MODULE_PATHNAME', 'strata_tiering_plan';
REVOKE ALL ON FUNCTION strata_tiering.plan(double precision) FROM PUBLIC;
COMMENT ON FUNCTION strata_tiering.plan(double precision) IS
    'the moves that the policies ask for now, in their order; in a round, none while tiering is off or replicas lag';

CREATE FUNCTION strata_tiering.set_policies(policies json, settings json) RETURNS void
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    received text := md5(policies::text || settings::text);
BEGIN
    -- what is known already costs no WAL, unless a table was made anew
    IF EXISTS (SELECT FROM strata_tiering.setting AS s WHERE s.name = 'received' AND s.value = received)
       AND json_array_length(policies) = (SELECT count(*) FROM strata_tiering.policy AS p
                                            JOIN pg_class AS c ON c.oid = p.parent) THEN
        RETURN;
    END IF;
    DELETE FROM strata_tiering.policy;
    INSERT INTO strata_tiering.policy
    SELECT c.oid, p.mode, p.tier, p.cold_before, p.age, p.index_tier, p.residence
      FROM json_to_recordset(policies)
        AS p (schema_name text, table_name text, mode text, tier text, cold_before text, age numeric,
              index_tier text, residence interval)
      JOIN pg_namespace AS n ON n.nspname = p.schema_name
      JOIN pg_class AS c ON c.relnamespace = n.oid AND c.relname = p.table_name AND c.relkind = 'p';
    DELETE FROM strata_tiering.setting;
    INSERT INTO strata_tiering.setting
    SELECT * FROM json_each_text(settings) UNION ALL VALUES ('received', received);
END
$$;
REVOKE ALL ON FUNCTION strata_tiering.set_policies(json, json) FROM PUBLIC;
COMMENT ON FUNCTION strata_tiering.set_policies(json, json) IS 'replaces all policies and settings by the coordinator''s';

-- The first transaction of a round, in the process that makes the moves.
CREATE FUNCTION strata_tiering.begin_round() RETURNS void
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    PERFORM strata_tiering.keep_heat();
    PERFORM strata_columnar.forget_moves();
    UPDATE strata_tiering.move SET state = 'lost', ended = clock_timestamp() WHERE state = 'running';
    DELETE FROM strata_tiering.move WHERE ended < now() - interval '90 days';
END
$$;
REVOKE ALL ON FUNCTION strata_tiering.begin_round() FROM PUBLIC;
COMMENT ON FUNCTION strata_tiering.begin_round() IS 'keeps the heat, and cleans up after a server that stopped';

-- Looked at before each move of a round.
CREATE FUNCTION strata_tiering.may_move() RETURNS boolean
    LANGUAGE sql VOLATILE
    SET search_path = pg_catalog, pg_temp
AS $$
    SELECT EXISTS (SELECT FROM strata_tiering.setting AS s WHERE s.name = 'enabled' AND s.value::boolean)
           AND strata_tiering.replica_lag()
               <= pg_size_bytes(current_setting('strata_tiering.replica_lag_limit'))
$$;
REVOKE ALL ON FUNCTION strata_tiering.may_move() FROM PUBLIC;
COMMENT ON FUNCTION strata_tiering.may_move() IS 'false while tiering is off or a replica lags';

CREATE FUNCTION strata_tiering.move_rate() RETURNS bigint
    LANGUAGE sql VOLATILE
    SET search_path = pg_catalog, pg_temp
AS $$
    SELECT s.value::bigint FROM strata_tiering.setting AS s WHERE s.name = 'bytes_per_second'
$$;
REVOKE ALL ON FUNCTION strata_tiering.move_rate() FROM PUBLIC;
COMMENT ON FUNCTION strata_tiering.move_rate() IS 'bytes that a move may write in a second, WAL included';

CREATE FUNCTION strata_tiering.start() RETURNS boolean
    LANGUAGE c VOLATILE
    AS 'MODULE_PATHNAME', 'strata_tiering_start';
REVOKE ALL ON FUNCTION strata_tiering.start() FROM PUBLIC;
COMMENT ON FUNCTION strata_tiering.start() IS
    'starts a round in the background; false if there is no free background process';

-- For the coordinator's views.
CREATE FUNCTION strata_tiering.leaf_list(
    OUT schema_name name, OUT table_name name, OUT remainder integer, OUT leaf_name name, OUT tier text,
    OUT compression text, OUT bytes bigint, OUT heat double precision, OUT last_access timestamptz,
    OUT next_tier text, OUT next_reason text)
    RETURNS SETOF record
    LANGUAGE sql VOLATILE ROWS 1000
    SET search_path = pg_catalog, pg_temp
AS $$
    SELECT n.nspname, r.relname, l.shard, c.relname, l.tier,
           CASE WHEN l.is_columnar THEN (SELECT o.compression FROM strata_columnar.columnar_options(l.leaf::regclass) AS o) END,
           l.table_bytes + l.index_bytes, coalesce(h.heat, 0), h.last_read, p.to_tier, p.reason
      FROM strata_tiering.leaves() AS l
      JOIN pg_class AS r ON r.oid = l.parent
      JOIN pg_namespace AS n ON n.oid = r.relnamespace
      JOIN pg_class AS c ON c.oid = l.leaf
      LEFT JOIN strata_tiering.leaf_heat() AS h ON h.leaf = l.leaf
      LEFT JOIN strata_tiering.plan(NULL) AS p ON p.leaf = l.leaf
$$;
REVOKE ALL ON FUNCTION strata_tiering.leaf_list() FROM PUBLIC;
COMMENT ON FUNCTION strata_tiering.leaf_list() IS 'the leaves here: tier, compression, heat, and the move that is next';

CREATE FUNCTION strata_tiering.move_list(
    OUT schema_name name, OUT table_name name, OUT leaf_name text, OUT from_tier text, OUT to_tier text, OUT reason text,
    OUT bytes bigint, OUT heat double precision, OUT state text, OUT begun timestamptz, OUT ended timestamptz,
    OUT bytes_written bigint, OUT error text)
    RETURNS SETOF record
    LANGUAGE sql STABLE ROWS 1000
    SET search_path = pg_catalog, pg_temp
AS $$
    SELECT n.nspname, r.relname, m.leaf_name, m.from_tier, m.to_tier, m.reason, m.bytes, m.heat, m.state, m.begun,
           m.ended, m.bytes_written, m.error
      FROM strata_tiering.move AS m
      JOIN pg_class AS r ON r.oid = m.parent
      JOIN pg_namespace AS n ON n.oid = r.relnamespace
$$;
REVOKE ALL ON FUNCTION strata_tiering.move_list() FROM PUBLIC;
COMMENT ON FUNCTION strata_tiering.move_list() IS 'the moves of leaves of tables that exist';
