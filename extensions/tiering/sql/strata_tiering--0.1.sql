-- strata_tiering: which parts of columnar tables are read.
\echo Use "CREATE EXTENSION strata_tiering" to load this file. \quit

-- ---------------------------------------------------------------------------
-- Heat: what is in shared memory, and its copy that outlives the server
-- ---------------------------------------------------------------------------

CREATE FUNCTION strata_tiering.row_group_heat(
    OUT leaf oid, OUT row_group bigint, OUT heat double precision, OUT last_read timestamptz,
    OUT heat_then double precision, OUT bytes_read bigint)
    RETURNS SETOF record
    LANGUAGE c VOLATILE STRICT PARALLEL RESTRICTED
    AS 'MODULE_PATHNAME', 'strata_tiering_row_group_heat';
REVOKE ALL ON FUNCTION strata_tiering.row_group_heat() FROM PUBLIC;
COMMENT ON FUNCTION strata_tiering.row_group_heat() IS
    'what queries read of each row group of this database: decayed bytes as of now, last time, decayed bytes as of then, bytes ever';

CREATE FUNCTION strata_tiering.leaf_heat(
    OUT leaf regclass, OUT heat double precision, OUT last_read timestamptz, OUT bytes_read bigint)
    RETURNS SETOF record
    LANGUAGE sql VOLATILE
    SET search_path = pg_catalog, pg_temp
AS $$
    SELECT c.oid::regclass, sum(h.heat), max(h.last_read), sum(h.bytes_read)::bigint
      FROM strata_tiering.row_group_heat() AS h JOIN pg_class AS c ON c.oid = h.leaf
     GROUP BY c.oid
$$;
REVOKE ALL ON FUNCTION strata_tiering.leaf_heat() FROM PUBLIC;
COMMENT ON FUNCTION strata_tiering.leaf_heat() IS 'what queries read of each columnar table of this database';

CREATE TABLE strata_tiering.heat (
    leaf oid NOT NULL,
    row_group bigint NOT NULL,
    heat double precision NOT NULL,
    last_read timestamptz NOT NULL,
    bytes_read bigint NOT NULL,
    PRIMARY KEY (leaf, row_group)
);
REVOKE ALL ON strata_tiering.heat FROM PUBLIC;
COMMENT ON TABLE strata_tiering.heat IS
    'heat as of each row group''s last read, for the time after a restart or a promotion';

CREATE FUNCTION strata_tiering.add_heat(
    leaf oid, row_group bigint, heat double precision, at timestamptz, bytes bigint) RETURNS void
    LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE
    AS 'MODULE_PATHNAME', 'strata_tiering_add_heat';
REVOKE ALL ON FUNCTION strata_tiering.add_heat(oid, bigint, double precision, timestamptz, bigint) FROM PUBLIC;
COMMENT ON FUNCTION strata_tiering.add_heat(oid, bigint, double precision, timestamptz, bigint) IS
    'counts reads of a row group that the server does not know of';

CREATE FUNCTION strata_tiering.forget_heat(leaf oid) RETURNS void
    LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE
    AS 'MODULE_PATHNAME', 'strata_tiering_forget_heat';
REVOKE ALL ON FUNCTION strata_tiering.forget_heat(oid) FROM PUBLIC;
COMMENT ON FUNCTION strata_tiering.forget_heat(oid) IS 'forgets what was read of a table';

CREATE FUNCTION strata_tiering.begin_loading() RETURNS boolean
    LANGUAGE c VOLATILE PARALLEL UNSAFE
    AS 'MODULE_PATHNAME', 'strata_tiering_begin_loading';
REVOKE ALL ON FUNCTION strata_tiering.begin_loading() FROM PUBLIC;
COMMENT ON FUNCTION strata_tiering.begin_loading() IS
    'true once after each start of the server: whoever gets it loads the heat of this database';

-- Loads what an earlier server has kept, keeps what has changed, forgets what does not exist any more.
CREATE FUNCTION strata_tiering.keep_heat() RETURNS bigint
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    kept bigint;
BEGIN
    -- one at a time; readers go on
    LOCK TABLE strata_tiering.heat IN SHARE ROW EXCLUSIVE MODE;
    IF strata_tiering.begin_loading() THEN
        PERFORM strata_tiering.add_heat(h.leaf, h.row_group, h.heat, h.last_read, h.bytes_read)
          FROM strata_tiering.heat AS h;
    END IF;
    PERFORM strata_tiering.forget_heat(h.leaf)
       FROM (SELECT DISTINCT leaf FROM strata_tiering.row_group_heat()) AS h
      WHERE NOT EXISTS (SELECT FROM pg_class AS c WHERE c.oid = h.leaf);
    INSERT INTO strata_tiering.heat AS t
    SELECT h.leaf, h.row_group, h.heat_then, h.last_read, h.bytes_read
      FROM strata_tiering.row_group_heat() AS h
      LEFT JOIN strata_tiering.heat AS old USING (leaf, row_group)
     WHERE old.bytes_read IS DISTINCT FROM h.bytes_read
        ON CONFLICT (leaf, row_group) DO UPDATE
       SET heat = excluded.heat, last_read = excluded.last_read, bytes_read = excluded.bytes_read;
    GET DIAGNOSTICS kept = ROW_COUNT;
    DELETE FROM strata_tiering.heat AS t
     WHERE NOT EXISTS (SELECT FROM pg_class AS c WHERE c.oid = t.leaf);
    RETURN kept;
END
$$;
REVOKE ALL ON FUNCTION strata_tiering.keep_heat() FROM PUBLIC;
COMMENT ON FUNCTION strata_tiering.keep_heat() IS
    'keeps the heat for the time after a restart or promotion, and loads it then; returns the row groups written';

-- Not pg_partition_tree(), which keeps a lock on each: whoever drops the table meanwhile would end in a deadlock.
CREATE FUNCTION strata_tiering.leaves_of_shard(shard oid) RETURNS SETOF oid
    LANGUAGE sql STABLE ROWS 100
    SET search_path = pg_catalog, pg_temp
AS $$
    SELECT c.oid FROM pg_class AS c WHERE c.oid = shard AND c.relkind <> 'p'
     UNION ALL
    SELECT i.inhrelid FROM pg_inherits AS i WHERE i.inhparent = shard
$$;
REVOKE ALL ON FUNCTION strata_tiering.leaves_of_shard(oid) FROM PUBLIC;
COMMENT ON FUNCTION strata_tiering.leaves_of_shard(oid) IS 'its periods, or itself';

CREATE FUNCTION strata_tiering.table_heat(
    parent regclass, OUT remainder integer, OUT leaf_name text, OUT row_group bigint,
    OUT rows bigint, OUT bytes bigint, OUT heat double precision, OUT last_access timestamptz)
    RETURNS SETOF record
    LANGUAGE sql VOLATILE STRICT
    SET search_path = pg_catalog, pg_temp
AS $$
    WITH known AS MATERIALIZED (SELECT * FROM strata_tiering.row_group_heat())
    SELECT substring(pg_get_expr(s.relpartbound, s.oid) FROM 'remainder (\d+)')::integer,
           c.relname::text, g.group_id, g.rows - g.deleted_rows, g.bytes, coalesce(k.heat, 0), k.last_read
      FROM pg_inherits AS i
      JOIN pg_class AS s ON s.oid = i.inhrelid
     CROSS JOIN LATERAL strata_tiering.leaves_of_shard(s.oid) AS l
      JOIN pg_class AS c ON c.oid = l
      JOIN pg_am AS a ON a.oid = c.relam AND a.amname = 'columnar'
     CROSS JOIN LATERAL strata_columnar.columnar_row_groups(c.oid::regclass) AS g
      LEFT JOIN known AS k ON k.leaf = c.oid AND k.row_group = g.group_id
     WHERE i.inhparent = parent
$$;
REVOKE ALL ON FUNCTION strata_tiering.table_heat(regclass) FROM PUBLIC;
COMMENT ON FUNCTION strata_tiering.table_heat(regclass) IS
    'heat of the row groups of all leaves of a table that is partitioned by hash, with their shards';
