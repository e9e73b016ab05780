
-- ---------------------------------------------------------------------------
-- Periods
-- ---------------------------------------------------------------------------

-- Asks each worker once, as the extension's owner; one that does not answer contributes no rows.
CREATE FUNCTION strata.leaf_statistics(
    OUT worker_id integer, OUT schema_name text, OUT table_name text, OUT remainder integer,
    OUT leaf_name text, OUT lower text, OUT upper text, OUT bytes bigint)
    RETURNS SETOF record
    LANGUAGE sql SECURITY DEFINER ROWS 1000
    SET search_path = pg_catalog, pg_temp
AS $$
    SELECT w.worker_id, l.*
      FROM (SELECT * FROM strata.worker ORDER BY worker_id OFFSET 0) AS w
     CROSS JOIN LATERAL strata.run_on_worker(
               w.worker_id, 'SELECT json_agg(l) FROM strata_worker.leaf_list() AS l', false) AS answer
     CROSS JOIN LATERAL json_to_recordset(CASE WHEN answer.success THEN answer.result::json END)
                     AS l (schema_name text, table_name text, remainder integer, leaf_name text,
                           lower text, upper text, bytes bigint)
$$;
COMMENT ON FUNCTION strata.leaf_statistics() IS
    'bounds and sizes of all leaves of tables with periods, asked from the workers';

CREATE VIEW strata.partitions AS
SELECT t.relation, s.remainder AS shard, w.name AS worker, l.leaf_name AS partition,
       l.lower AS period_from, l.upper AS period_to, l.bytes
  FROM strata.distributed_table AS t
  JOIN pg_catalog.pg_class AS r ON r.oid = t.relation
  JOIN pg_catalog.pg_namespace AS n ON n.oid = r.relnamespace
  JOIN strata.shard AS s ON s.colocation_id = t.colocation_id
  JOIN strata.worker AS w ON w.worker_id = s.worker_id
  JOIN strata.leaf_statistics() AS l
         ON l.worker_id = s.worker_id AND l.remainder = s.remainder
        AND l.schema_name = n.nspname AND l.table_name = r.relname
 WHERE t.partition_attribute IS NOT NULL;
GRANT SELECT ON strata.partitions TO PUBLIC;
COMMENT ON VIEW strata.partitions IS
    'every leaf of the tables with periods: shard, worker, period (none: the default partition), bytes';

-- The cut-off that a table's retention gives now, a begin of a period; NULL if none.
CREATE FUNCTION strata.next_cutoff(checked regclass) RETURNS text
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
    SET timezone = 'UTC'
AS $$
DECLARE
    rule strata.distributed_table;
    column_name name;
    column_type text;
    newest bigint;
BEGIN
    SELECT * INTO STRICT rule FROM strata.distributed_table AS t WHERE t.relation = checked;
    IF rule.retention IS NULL THEN
        RETURN NULL;
    END IF;
    SELECT a.attname, format_type(a.atttypid, NULL) INTO STRICT column_name, column_type
      FROM pg_attribute AS a WHERE a.attrelid = checked AND a.attnum = rule.partition_attribute;
    IF rule.partition_unit <> 'none' OR column_type NOT IN ('integer', 'bigint') THEN
        RETURN strata.period_bound(
            strata.period_start(now() - rule.retention::interval, rule.partition_interval::interval),
            column_type, rule.partition_unit);
    END IF;
    EXECUTE format('SELECT max(%I) FROM %s', column_name, checked) INTO newest;
    RETURN strata.period_start(newest - rule.retention::bigint, rule.partition_interval::bigint)::text;
END
$$;
REVOKE ALL ON FUNCTION strata.next_cutoff(regclass) FROM PUBLIC;
COMMENT ON FUNCTION strata.next_cutoff(regclass) IS
    'from which value on rows are kept, by the table''s retention, now';
