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
