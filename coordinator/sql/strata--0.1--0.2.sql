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
