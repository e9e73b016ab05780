
-- ---------------------------------------------------------------------------
-- Who waits for whom on this node
-- ---------------------------------------------------------------------------

-- The conflicts of table locks, as in PostgreSQL's manual ("Explicit Locking"): needed only for
-- prepared transactions, which pg_blocking_pids() does not tell apart.
CREATE FUNCTION strata.lock_modes_conflict(wanted text, held text) RETURNS boolean
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
    SET search_path = pg_catalog, pg_temp
AS $$
    SELECT held = ANY (CASE wanted
        WHEN 'AccessShareLock' THEN ARRAY['AccessExclusiveLock']
        WHEN 'RowShareLock' THEN ARRAY['ExclusiveLock', 'AccessExclusiveLock']
        WHEN 'RowExclusiveLock' THEN ARRAY['ShareLock', 'ShareRowExclusiveLock', 'ExclusiveLock',
                                           'AccessExclusiveLock']
        WHEN 'ShareUpdateExclusiveLock' THEN ARRAY['ShareUpdateExclusiveLock', 'ShareLock',
                                                   'ShareRowExclusiveLock', 'ExclusiveLock',
                                                   'AccessExclusiveLock']
        WHEN 'ShareLock' THEN ARRAY['RowExclusiveLock', 'ShareUpdateExclusiveLock',
                                    'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock']
        WHEN 'ShareRowExclusiveLock' THEN ARRAY['RowExclusiveLock', 'ShareUpdateExclusiveLock',
                                                'ShareLock', 'ShareRowExclusiveLock',
                                                'ExclusiveLock', 'AccessExclusiveLock']
        WHEN 'ExclusiveLock' THEN ARRAY['RowShareLock', 'RowExclusiveLock',
                                        'ShareUpdateExclusiveLock', 'ShareLock',
                                        'ShareRowExclusiveLock', 'ExclusiveLock',
                                        'AccessExclusiveLock']
        ELSE ARRAY[held]
    END)
$$;
REVOKE ALL ON FUNCTION strata.lock_modes_conflict(text, text) FROM PUBLIC;
COMMENT ON FUNCTION strata.lock_modes_conflict(text, text) IS 'do these two lock modes exclude each other?';

-- A wait for a prepared transaction has no blocking_pid but its gid.  pg_locks tells which of its locks
-- belong together (virtualtransaction), and the lock on its own number tells whose they are.
CREATE FUNCTION strata.node_lock_waits(
    OUT waiting_pid integer, OUT blocking_pid integer, OUT blocking_gid text, OUT object text,
    OUT since timestamptz, OUT waiting_role oid, OUT waiting_statement text,
    OUT blocking_role oid, OUT blocking_statement text)
    RETURNS SETOF record
    LANGUAGE sql ROWS 10
    SET search_path = pg_catalog, pg_temp
AS $$
    WITH locks AS MATERIALIZED (
        SELECT * FROM pg_lock_status()
    ), waiter AS MATERIALIZED (
        SELECT l.*, coalesce(a.leader_pid, l.pid) AS session, pg_blocking_pids(l.pid) AS blockers
          FROM locks AS l
          LEFT JOIN pg_stat_activity AS a ON a.pid = l.pid
         WHERE NOT l.granted AND l.waitstart IS NOT NULL
    ), edge AS (
        SELECT DISTINCT w.*, b.pid AS blocking_pid, NULL AS gid
          FROM waiter AS w CROSS JOIN LATERAL unnest(w.blockers) AS b (pid)
         WHERE b.pid <> 0
        UNION ALL
        SELECT w.*, NULL, p.gid
          FROM waiter AS w
          JOIN locks AS h
            ON h.pid IS NULL AND h.granted
           AND (h.locktype, h.database, h.relation, h.page, h.tuple, h.virtualxid, h.transactionid,
                h.classid, h.objid, h.objsubid)
               IS NOT DISTINCT FROM
               (w.locktype, w.database, w.relation, w.page, w.tuple, w.virtualxid, w.transactionid,
                w.classid, w.objid, w.objsubid)
           AND strata.lock_modes_conflict(w.mode, h.mode)
          JOIN locks AS x
            ON x.pid IS NULL AND x.locktype = 'transactionid' AND x.granted
           AND x.virtualtransaction = h.virtualtransaction
          JOIN pg_prepared_xacts AS p ON p.transaction = x.transactionid
         WHERE 0 = ANY (w.blockers)
    )
    SELECT e.session, e.blocking_pid, e.gid,
           format('%s on %s', e.mode,
                  CASE e.locktype
                      WHEN 'transactionid' THEN format('transaction %s', e.transactionid)
                      WHEN 'tuple' THEN format('tuple (%s,%s) of relation %s', e.page, e.tuple,
                                               e.relation::regclass)
                      WHEN 'relation' THEN format('relation %s', e.relation::regclass)
                      ELSE e.locktype
                  END),
           e.waitstart, w.usesysid, w.query, b.usesysid, b.query
      FROM edge AS e
      LEFT JOIN pg_stat_activity AS w ON w.pid = e.session
      LEFT JOIN pg_stat_activity AS b ON b.pid = e.blocking_pid
$$;
REVOKE ALL ON FUNCTION strata.node_lock_waits() FROM PUBLIC;
COMMENT ON FUNCTION strata.node_lock_waits() IS
    'the lock waits on this server, one row per blocking session or prepared transaction';
