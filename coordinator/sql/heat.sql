
-- ---------------------------------------------------------------------------
-- Heat
-- ---------------------------------------------------------------------------

-- Asks each worker once, as the extension's owner; one that does not answer contributes no rows.
CREATE FUNCTION strata.heat_statistics(
    asked regclass, OUT worker name, OUT remainder integer, OUT leaf_name text,
    OUT row_group bigint, OUT rows bigint, OUT bytes bigint, OUT heat float8,
    OUT last_access timestamptz)
    RETURNS SETOF record
    LANGUAGE sql SECURITY DEFINER ROWS 1000
    SET search_path = pg_catalog, pg_temp
AS $$
    SELECT w.name, h.*
      FROM (SELECT format('%I.%I', n.nspname, c.relname) AS name
              FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
             WHERE c.oid = asked
               AND strata.may_see(c.oid, strata.calling_role())) AS t
     CROSS JOIN (SELECT * FROM strata.worker ORDER BY worker_id OFFSET 0) AS w
     CROSS JOIN LATERAL strata.run_on_worker(
               w.worker_id,
               format('SELECT json_agg(h) FROM strata_tiering.table_heat(%L) AS h', t.name),
               false) AS answer
     CROSS JOIN LATERAL json_to_recordset(CASE WHEN answer.success THEN answer.result::json END)
                     AS h (remainder integer, leaf_name text, row_group bigint, rows bigint,
                           bytes bigint, heat float8, last_access timestamptz)
$$;
COMMENT ON FUNCTION strata.heat_statistics(regclass) IS
    'heat of the row groups of a distributed table, asked from the workers; for who may see the table';

-- Which rows are read most.
CREATE FUNCTION strata.heat(
    relation regclass, OUT worker name, OUT shard integer, OUT leaf text, OUT row_group bigint,
    OUT rows bigint, OUT bytes bigint, OUT heat float8, OUT last_access timestamptz,
    OUT share float8, OUT cumulative_share float8, OUT cumulative_bytes numeric)
    RETURNS SETOF record
    LANGUAGE sql ROWS 1000
    SET search_path = pg_catalog, pg_temp
AS $$
    SELECT h.worker, h.remainder, h.leaf_name, h.row_group, h.rows, h.bytes, h.heat, h.last_access,
           h.heat / nullif(sum(h.heat) OVER (), 0),
           sum(h.heat) OVER hottest_first / nullif(sum(h.heat) OVER (), 0),
           sum(h.bytes) OVER hottest_first
      FROM strata.heat_statistics(relation) AS h
    WINDOW hottest_first AS (ORDER BY h.heat DESC, h.worker, h.leaf_name, h.row_group
                             ROWS UNBOUNDED PRECEDING)
     ORDER BY h.heat DESC, h.worker, h.leaf_name, h.row_group
$$;
COMMENT ON FUNCTION strata.heat(regclass) IS
    'row groups of a distributed table, those read most first: heat, share of the total, sums so far';
