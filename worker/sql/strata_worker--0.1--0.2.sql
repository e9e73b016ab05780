-- The coordinator reads a standby of this worker, and asks before each statement.  What a standby lacks it lacks for a
-- moment: it replays on, also what makes a new worker one.  position: NULL, any will do.  One that was promoted meanwhile has all there is.
CREATE FUNCTION strata_worker.check_standby(id uuid, version bigint, "position" pg_lsn) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    replayed CONSTANT pg_lsn := pg_last_wal_replay_lsn();
BEGIN
    PERFORM strata_worker.check_session(id);
    IF NOT EXISTS (SELECT FROM strata_worker.schema_version AS v WHERE v.version = check_standby.version) THEN
        RAISE EXCEPTION 'the standby has not replayed the schema that the cluster has'
            USING ERRCODE = 'object_not_in_prerequisite_state',
                  DETAIL = format('It lacks change number %s of the schema, the coordinator''s last one.', version >> 32),
                  HINT = 'Wait until it has replayed more, or let strata.read_from be ''any''.';
    ELSIF pg_is_in_recovery() AND replayed < "position" THEN
        RAISE EXCEPTION 'the standby is too far behind'
            USING ERRCODE = 'object_not_in_prerequisite_state',
                  DETAIL = format('It has replayed up to %s, and its primary was at %s strata.max_staleness ago.',
                                  replayed, "position"),
                  HINT = 'Let strata.max_staleness be longer, or strata.read_from be ''any''.';
    END IF;
END
$$;
COMMENT ON FUNCTION strata_worker.check_standby(uuid, bigint, pg_lsn) IS
    'error unless this standby shows the schema that the coordinator has, and has replayed so much';
