
-- ---------------------------------------------------------------------------
-- Options of indexes, and the order of an index (coordinator/src/ddl)
-- ---------------------------------------------------------------------------
--
-- A leaf's index has the storage parameters and statistics targets of the partitioned index that it is a part of, which has
-- the coordinator's.  PostgreSQL keeps storage parameters for a partitioned index, and gives them to parts that come later, but
-- has no command that changes them; statistics targets it changes in all parts, and gives to none that come later.

CREATE FUNCTION strata_worker.follow_index(part regclass) RETURNS void
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    action text;
BEGIN
    FOR action IN
        SELECT format('RESET (%I)', had.option_name)
          FROM pg_inherits AS i JOIN pg_class AS own ON own.oid = i.inhrelid JOIN pg_class AS model ON model.oid = i.inhparent
         CROSS JOIN LATERAL pg_options_to_table(own.reloptions) AS had
         WHERE i.inhrelid = part
           AND had.option_name NOT IN (SELECT o.option_name FROM pg_options_to_table(model.reloptions) AS o)
        UNION ALL
        SELECT format('SET (%I = %L)', has.option_name, has.option_value)
          FROM pg_inherits AS i JOIN pg_class AS own ON own.oid = i.inhrelid JOIN pg_class AS model ON model.oid = i.inhparent
         CROSS JOIN LATERAL pg_options_to_table(model.reloptions) AS has
         WHERE i.inhrelid = part
           AND (has.option_name, has.option_value) NOT IN (
                   SELECT o.option_name, o.option_value FROM pg_options_to_table(own.reloptions) AS o)
        UNION ALL
        SELECT format('ALTER COLUMN %s SET STATISTICS %s', a.attnum, coalesce(model.attstattarget, -1))
          FROM pg_inherits AS i JOIN pg_attribute AS a ON a.attrelid = i.inhrelid
          JOIN pg_attribute AS model ON model.attrelid = i.inhparent AND model.attnum = a.attnum
         WHERE i.inhrelid = part AND coalesce(a.attstattarget, -1) <> coalesce(model.attstattarget, -1)
    LOOP
        EXECUTE format('ALTER INDEX %s %s', part, action);
    END LOOP;
END
$$;
REVOKE ALL ON FUNCTION strata_worker.follow_index(regclass) FROM PUBLIC;
COMMENT ON FUNCTION strata_worker.follow_index(regclass) IS
    'gives a leaf''s index the options of the index that it is a part of';

CREATE FUNCTION strata_worker.follow_indexes(leaf regclass) RETURNS void
    LANGUAGE sql
    SET search_path = pg_catalog, pg_temp
AS $$
    SELECT strata_worker.follow_index(x.indexrelid::regclass) FROM pg_index AS x WHERE x.indrelid = leaf
$$;
REVOKE ALL ON FUNCTION strata_worker.follow_indexes(regclass) FROM PUBLIC;
COMMENT ON FUNCTION strata_worker.follow_indexes(regclass) IS
    'gives a new leaf''s indexes the options of the indexes that they are parts of';

-- Targets: of the index's columns, -1 for the default.  No partition comes or goes meanwhile.
CREATE FUNCTION strata_worker.set_index_options(index regclass, options text[], targets integer[]) RETURNS void
    LANGUAGE plpgsql STRICT SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    part regclass;
BEGIN
    PERFORM strata_worker.check_own_statement('set_index_options');
    FOR part IN SELECT p.relid FROM pg_index AS x CROSS JOIN LATERAL pg_partition_tree(x.indrelid) AS p
                 WHERE x.indexrelid = index AND NOT p.isleaf LOOP
        EXECUTE format('LOCK TABLE ONLY %s IN SHARE UPDATE EXCLUSIVE MODE', part);
    END LOOP;
    UPDATE pg_class AS c SET reloptions = nullif(options, '{}')
      FROM pg_partition_tree(index) AS p
     WHERE c.oid = p.relid AND c.relkind = 'I' AND c.reloptions IS DISTINCT FROM nullif(options, '{}');
    FOR i IN 1 .. cardinality(targets) LOOP
        IF targets[i] <> (SELECT coalesce(a.attstattarget, -1) FROM pg_attribute AS a
                           WHERE a.attrelid = index AND a.attnum = i) THEN
            EXECUTE format('ALTER INDEX %s ALTER COLUMN %s SET STATISTICS %s', index, i, targets[i]);
        END IF;
    END LOOP;
    PERFORM strata_worker.follow_index(p.relid) FROM pg_partition_tree(index) AS p WHERE p.isleaf;
END
$$;
COMMENT ON FUNCTION strata_worker.set_index_options(regclass, text[], integer[]) IS
    'gives a partitioned index and all its parts these storage parameters and statistics targets of columns';

CREATE FUNCTION strata_worker.execute_with_users_settings(command text) RETURNS void
    LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE
    AS 'MODULE_PATHNAME', 'strata_worker_execute_with_users_settings';
REVOKE ALL ON FUNCTION strata_worker.execute_with_users_settings(text) FROM PUBLIC;
COMMENT ON FUNCTION strata_worker.execute_with_users_settings(text) IS
    'runs a command under the search_path of the coordinator''s session';

-- With the rights of the extension's owner, for who may do it on the coordinator: core computes indexes as the tables' owner.
CREATE FUNCTION strata_worker.cluster_table(relation regclass, index regclass, is_verbose boolean) RETURNS void
    LANGUAGE plpgsql STRICT SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    leaf record;
BEGIN
    PERFORM strata_worker.check_own_statement('cluster_table');
    -- all at once, as queries lock them
    EXECUTE format('LOCK TABLE %s IN ACCESS EXCLUSIVE MODE', relation);
    FOR leaf IN
        SELECT x.indrelid::regclass AS name, c.relname AS index_name
          FROM (SELECT index UNION SELECT p.relid FROM pg_partition_tree(index) AS p) AS part (relid)
          JOIN pg_class AS c ON c.oid = part.relid AND c.relkind = 'i'
          JOIN pg_index AS x ON x.indexrelid = c.oid
    LOOP
        PERFORM strata_worker.execute_with_users_settings(format(
            'CLUSTER %s %s USING %I', CASE WHEN is_verbose THEN 'VERBOSE' END, leaf.name, leaf.index_name));
    END LOOP;
END
$$;
COMMENT ON FUNCTION strata_worker.cluster_table(regclass, regclass, boolean) IS
    'puts the rows of a table, or of each leaf of a partitioned one, in the order of an index';
