
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
      JOIN pg_namespace AS n ON n.nspname = l.schema_name
      JOIN pg_class AS c ON c.relnamespace = n.oid AND c.relname = l.table_name
     WHERE strata.may_see(c.oid, strata.calling_role())
$$;
COMMENT ON FUNCTION strata.leaf_statistics() IS
    'bounds and sizes of the leaves of tables with periods that the session''s role may see, asked from the workers';

CREATE VIEW strata.partitions AS
SELECT t.relation, s.remainder AS shard, w.name AS worker, l.leaf_name AS partition,
       l.lower AS period_from, l.upper AS period_to, l.bytes, x.tier, x.compression, x.heat, x.last_access,
       x.next_tier || ' (' || x.next_reason || ')' AS next_move
  FROM strata.distributed_table AS t
  JOIN pg_catalog.pg_class AS r ON r.oid = t.relation
  JOIN pg_catalog.pg_namespace AS n ON n.oid = r.relnamespace
  JOIN strata.shard AS s ON s.colocation_id = t.colocation_id
  JOIN strata.worker AS w ON w.worker_id = s.worker_id
  JOIN strata.leaf_statistics() AS l
         ON l.worker_id = s.worker_id AND l.remainder = s.remainder
        AND l.schema_name = n.nspname AND l.table_name = r.relname
  LEFT JOIN strata.tier_statistics() AS x
         ON x.worker_id = s.worker_id AND x.relation = t.relation AND x.leaf_name = l.leaf_name
 WHERE t.partition_attribute IS NOT NULL AND strata.may_see(t.relation);
GRANT SELECT ON strata.partitions TO PUBLIC;
COMMENT ON VIEW strata.partitions IS
    'every leaf of the tables with periods that one may see: shard, worker, period (none: the default partition), bytes, tier, compression, heat, next move';

-- The cut-off that a table's retention gives now, a begin of a period; NULL if none.  newest: the largest
-- value in the column, if it is one of numbers that are no times.
CREATE FUNCTION strata.next_cutoff(checked regclass, newest bigint) RETURNS text
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
    SET timezone = 'UTC'
AS $$
DECLARE
    rule strata.distributed_table;
    column_type text;
BEGIN
    SELECT * INTO STRICT rule FROM strata.distributed_table AS t WHERE t.relation = checked;
    IF rule.retention IS NULL THEN
        RETURN NULL;
    END IF;
    SELECT format_type(a.atttypid, NULL) INTO STRICT column_type
      FROM pg_attribute AS a WHERE a.attrelid = checked AND a.attnum = rule.partition_attribute;
    IF rule.partition_unit <> 'none' OR column_type NOT IN ('integer', 'bigint') THEN
        RETURN strata.period_bound(
            strata.period_start(now() - rule.retention::interval, rule.partition_interval::interval),
            column_type, rule.partition_unit);
    END IF;
    RETURN strata.period_start(newest - rule.retention::bigint, rule.partition_interval::bigint)::text;
END
$$;
REVOKE ALL ON FUNCTION strata.next_cutoff(regclass, bigint) FROM PUBLIC;
COMMENT ON FUNCTION strata.next_cutoff(regclass, bigint) IS
    'from which value on rows are kept, by the table''s retention, now';

-- What a partitioned table has that its replacement by flatten_partitioned_table() would not.
CREATE FUNCTION strata.flatten_obstacle(relation regclass) RETURNS text
    LANGUAGE sql STABLE STRICT
    SET search_path = pg_catalog, pg_temp
AS $$
    SELECT coalesce(
        (SELECT format('View "%s" reads it.', r.ev_class::regclass)
           FROM pg_depend AS d JOIN pg_rewrite AS r ON d.classid = 'pg_rewrite'::regclass AND r.oid = d.objid
          WHERE d.refclassid = 'pg_class'::regclass AND d.refobjid = relation AND r.ev_class <> relation
          LIMIT 1),
        (SELECT format('Foreign key "%s" of table "%s" points to it.', k.conname, k.conrelid::regclass)
           FROM pg_constraint AS k
          WHERE k.confrelid = relation AND k.contype = 'f' AND k.conparentid = 0 LIMIT 1),
        (SELECT format('It has trigger "%s".', g.tgname)
           FROM pg_trigger AS g WHERE g.tgrelid = relation AND NOT g.tgisinternal LIMIT 1),
        (SELECT format('It has policy "%s".', p.polname)
           FROM pg_policy AS p WHERE p.polrelid = relation LIMIT 1),
        (SELECT 'It is a partition.' FROM pg_class AS c WHERE c.oid = relation AND c.relispartition),
        (SELECT 'It is partitioned by something else than ranges of one column.'
           FROM pg_partitioned_table AS p
          WHERE p.partrelid = relation AND (p.partstrat <> 'r' OR p.partnatts <> 1 OR p.partattrs[0] = 0)))
$$;
COMMENT ON FUNCTION strata.flatten_obstacle(regclass) IS
    'why a partitioned table cannot be distributed; NULL when it can';

-- Replaces a partitioned table by one without partitions that has its rows, name and all else, so that it can
-- be distributed.  Runs as its caller, who owns the table.
CREATE FUNCTION strata.flatten_partitioned_table(relation regclass) RETURNS regclass
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
    SET client_min_messages = warning
AS $$
DECLARE
    old record;
    flat regclass;
    columns text;
    commands text[];
    command text;
BEGIN
    EXECUTE format('LOCK TABLE %s IN ACCESS EXCLUSIVE MODE', relation);
    SELECT c.relname, n.nspname, c.relowner, c.relacl INTO STRICT old
      FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace WHERE c.oid = relation;
    EXECUTE format('CREATE TABLE %I.%I (LIKE %s INCLUDING ALL) USING heap', old.nspname,
                   format('%s_strata_%s', left(old.relname, 40), relation::oid), relation);
    flat := format('%I.%I', old.nspname, format('%s_strata_%s', left(old.relname, 40), relation::oid))::regclass;

    SELECT string_agg(format('%I', a.attname), ', ' ORDER BY a.attnum) INTO columns
      FROM pg_attribute AS a
     WHERE a.attrelid = relation AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = '';
    EXECUTE format('INSERT INTO %s (%s) OVERRIDING SYSTEM VALUE SELECT %s FROM %s', flat, columns, columns, relation);

    -- before the old table takes them along: what has to be repeated for the new one
    SELECT array_agg(c.command ORDER BY c.rank, c.ordinal) INTO commands FROM (
        SELECT 1, 0, format('ALTER SEQUENCE %s OWNED BY %s.%I', d.objid::regclass, flat, a.attname)
          FROM pg_depend AS d JOIN pg_attribute AS a ON a.attrelid = relation AND a.attnum = d.refobjsubid
          JOIN pg_class AS s ON s.oid = d.objid AND s.relkind = 'S'
         WHERE d.classid = 'pg_class'::regclass AND d.refclassid = 'pg_class'::regclass
           AND d.refobjid = relation AND d.deptype = 'a'
        UNION ALL
        SELECT 2, 0, format('SELECT setval(%L, s.last_value, s.is_called) FROM %s AS s',
                            pg_get_serial_sequence(flat::text, a.attname),
                            pg_get_serial_sequence(relation::text, a.attname))
          FROM pg_attribute AS a WHERE a.attrelid = relation AND a.attidentity <> ''
        UNION ALL
        SELECT 3, 0, format('DROP TABLE %s', relation)
        UNION ALL
        SELECT 4, 0, format('ALTER TABLE %s RENAME TO %I', flat, old.relname)
        UNION ALL
        SELECT 5, i.indexrelid::bigint, format('ALTER INDEX %I.%I RENAME TO %I', old.nspname, fresh.relname, known.relname)
          FROM (SELECT x.*, regexp_replace(pg_get_indexdef(x.indexrelid), '^(CREATE [A-Z ]*INDEX) .*? USING', '\1') AS definition,
                       row_number() OVER (PARTITION BY regexp_replace(pg_get_indexdef(x.indexrelid), '^(CREATE [A-Z ]*INDEX) .*? USING', '\1'), x.indisprimary ORDER BY x.indexrelid)
                  FROM pg_index AS x WHERE x.indrelid = relation) AS i
          JOIN (SELECT x.*, regexp_replace(pg_get_indexdef(x.indexrelid), '^(CREATE [A-Z ]*INDEX) .*? USING', '\1') AS definition,
                       row_number() OVER (PARTITION BY regexp_replace(pg_get_indexdef(x.indexrelid), '^(CREATE [A-Z ]*INDEX) .*? USING', '\1'), x.indisprimary ORDER BY x.indexrelid)
                  FROM pg_index AS x WHERE x.indrelid = flat) AS j USING (definition, row_number, indisprimary)
          JOIN pg_class AS known ON known.oid = i.indexrelid
          JOIN pg_class AS fresh ON fresh.oid = j.indexrelid
        UNION ALL
        SELECT 6, k.oid::bigint, format('ALTER TABLE %I.%I ADD CONSTRAINT %I %s', old.nspname, old.relname,
                                        k.conname, pg_get_constraintdef(k.oid))
          FROM pg_constraint AS k WHERE k.conrelid = relation AND k.contype = 'f' AND k.conparentid = 0
        UNION ALL
        SELECT 7, 0, format('GRANT %s%s ON %I.%I TO %s%s', a.privilege_type, '', old.nspname, old.relname,
                            CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE a.grantee::regrole::text END,
                            CASE WHEN a.is_grantable THEN ' WITH GRANT OPTION' ELSE '' END)
          FROM aclexplode(old.relacl) AS a WHERE a.grantee <> old.relowner
        UNION ALL
        SELECT 7, 1, format('GRANT %s (%I) ON %I.%I TO %s%s', a.privilege_type, c.attname, old.nspname, old.relname,
                            CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE a.grantee::regrole::text END,
                            CASE WHEN a.is_grantable THEN ' WITH GRANT OPTION' ELSE '' END)
          FROM pg_attribute AS c CROSS JOIN LATERAL aclexplode(c.attacl) AS a
         WHERE c.attrelid = relation AND c.attnum > 0 AND NOT c.attisdropped
        UNION ALL
        SELECT 8, 0, format('COMMENT ON TABLE %I.%I IS %L', old.nspname, old.relname, obj_description(relation, 'pg_class'))
         WHERE obj_description(relation, 'pg_class') IS NOT NULL
        UNION ALL
        SELECT 8, 1, format('ALTER TABLE %I.%I OF %s', old.nspname, old.relname, c.reloftype::regtype)
          FROM pg_class AS c WHERE c.oid = relation AND c.reloftype <> 0
        UNION ALL
        SELECT 9, 0, format('ALTER TABLE %I.%I OWNER TO %I', old.nspname, old.relname, pg_get_userbyid(old.relowner))
         WHERE old.relowner <> (SELECT r.oid FROM pg_roles AS r WHERE r.rolname = current_user)
    ) AS c (rank, ordinal, command);
    FOREACH command IN ARRAY commands LOOP
        EXECUTE command;
    END LOOP;
    RETURN flat;
END
$$;
COMMENT ON FUNCTION strata.flatten_partitioned_table(regclass) IS
    'replaces a partitioned table by one with the same rows, indexes and privileges and without partitions';

-- How pg_partman here divides a table, and how long it keeps rows; no row if it does not.  Runs as the
-- extension's owner: pg_partman's tables are not everybody's.
CREATE FUNCTION strata.partman_rule(
    relation regclass, OUT control text, OUT step text, OUT retention text, OUT unit text)
    RETURNS SETOF record
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    partman name := (SELECT n.nspname FROM pg_extension AS e JOIN pg_namespace AS n ON n.oid = e.extnamespace
                      WHERE e.extname = 'pg_partman');
BEGIN
    IF partman IS NOT NULL THEN
        RETURN QUERY EXECUTE format(
            'SELECT p.control, p.partition_interval, p.retention, nullif(p.epoch, ''none'') '
            '  FROM %I.part_config AS p JOIN pg_class AS c ON c.oid = $1 '
            '  JOIN pg_namespace AS n ON n.oid = c.relnamespace '
            ' WHERE p.parent_table = n.nspname || ''.'' || c.relname '
            '   AND pg_has_role(session_user, c.relowner, ''USAGE'')', partman) USING relation;
    END IF;
END
$$;
COMMENT ON FUNCTION strata.partman_rule(regclass) IS
    'the periods that pg_partman on the coordinator maintains for a partitioned table';

CREATE FUNCTION strata.partman_forget(relation regclass) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    partman name := (SELECT n.nspname FROM pg_extension AS e JOIN pg_namespace AS n ON n.oid = e.extnamespace
                      WHERE e.extname = 'pg_partman');
    template text;
BEGIN
    IF partman IS NOT NULL THEN
        EXECUTE format(
            'DELETE FROM %I.part_config AS p USING pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace '
            ' WHERE c.oid = $1 AND p.parent_table = n.nspname || ''.'' || c.relname '
            '   AND pg_has_role(session_user, c.relowner, ''USAGE'') RETURNING p.template_table', partman)
            INTO template USING relation;
        IF starts_with(template, partman || '.template_') THEN
            EXECUTE format('DROP TABLE IF EXISTS %I.%I', partman, substr(template, length(partman) + 2));
        END IF;
    END IF;
END
$$;
COMMENT ON FUNCTION strata.partman_forget(regclass) IS
    'has pg_partman on the coordinator leave a table alone';
