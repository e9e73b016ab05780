-- Worker extension, version 0.1: what a coordinator may call (worker/README.md).
-- The build appends extensions/common/sql/*.sql, which both extensions share.
\echo Use "CREATE EXTENSION strata_worker" to load this file. \quit

GRANT USAGE ON SCHEMA strata_worker TO PUBLIC;

-- The functions that SQL from the coordinator may name stand in schema strata there and here.
CREATE SCHEMA strata;
GRANT USAGE ON SCHEMA strata TO PUBLIC;
COMMENT ON SCHEMA strata IS 'functions of Strata that have the same name on every node';

-- ---------------------------------------------------------------------------
-- Whose worker this is
-- ---------------------------------------------------------------------------

CREATE TABLE strata_worker.cluster (
    id uuid NOT NULL,
    epoch bigint NOT NULL,
    attached_at timestamptz NOT NULL DEFAULT now(),
    holder uuid NOT NULL,
    is_fenced boolean NOT NULL
);
CREATE UNIQUE INDEX cluster_has_one_row ON strata_worker.cluster ((true));
REVOKE ALL ON strata_worker.cluster FROM PUBLIC;
COMMENT ON TABLE strata_worker.cluster IS
    'the cluster this worker belongs to, at most one row; a coordinator with an older epoch is refused';
COMMENT ON COLUMN strata_worker.cluster.holder IS
    'which of several coordinators has the epoch';
COMMENT ON COLUMN strata_worker.cluster.is_fenced IS
    'no session of an older epoch is left, so that this one''s are let in';

CREATE FUNCTION strata_worker.mark_session(epoch bigint) RETURNS void
    LANGUAGE c STRICT
    AS 'MODULE_PATHNAME', 'strata_worker_mark_session';
REVOKE ALL ON FUNCTION strata_worker.mark_session(bigint) FROM PUBLIC;
COMMENT ON FUNCTION strata_worker.mark_session(bigint) IS
    'marks this session as a coordinator''s, for end_older_sessions()';

CREATE FUNCTION strata_worker.session_has_mark(epoch bigint) RETURNS boolean
    LANGUAGE c STRICT
    AS 'MODULE_PATHNAME', 'strata_worker_session_has_mark';
REVOKE ALL ON FUNCTION strata_worker.session_has_mark(bigint) FROM PUBLIC;
COMMENT ON FUNCTION strata_worker.session_has_mark(bigint) IS
    'whether this session has been marked as one of this epoch';

CREATE FUNCTION strata_worker.marked_sessions(OUT pid integer, OUT epoch bigint)
    RETURNS SETOF record
    LANGUAGE sql
    SET search_path = pg_catalog, pg_temp
AS $$
    SELECT l.pid, l.objid::bigint
      FROM pg_locks AS l
     WHERE l.locktype = 'advisory' AND l.classid = 1398034497 AND l.objsubid = 3
       AND l.database = (SELECT d.oid FROM pg_database AS d WHERE d.datname = current_database())
$$;
REVOKE ALL ON FUNCTION strata_worker.marked_sessions() FROM PUBLIC;
COMMENT ON FUNCTION strata_worker.marked_sessions() IS
    'sessions of coordinators, with their epochs';

CREATE FUNCTION strata_worker.register_session(incarnation bigint) RETURNS void
    LANGUAGE c STRICT
    AS 'MODULE_PATHNAME', 'strata_worker_register_session';
COMMENT ON FUNCTION strata_worker.register_session(bigint) IS
    'says which start of the coordinator this session belongs to, for end_sessions()';

-- In functions with the rights of the extension's owner, for what the coordinator has checked.
CREATE FUNCTION strata_worker.check_own_statement(function text) RETURNS void
    LANGUAGE c STRICT PARALLEL UNSAFE
    AS 'MODULE_PATHNAME', 'strata_worker_check_own_statement';
REVOKE ALL ON FUNCTION strata_worker.check_own_statement(text) FROM PUBLIC;
COMMENT ON FUNCTION strata_worker.check_own_statement(text) IS
    'raises an error unless the coordinator itself has called this function, not code that a statement runs';

CREATE FUNCTION strata_worker.registered_sessions(
    OUT pid integer, OUT started bigint, OUT incarnation bigint)
    RETURNS SETOF record
    LANGUAGE sql
    SET search_path = pg_catalog, pg_temp
AS $$
    SELECT l.pid, (extract(epoch FROM a.backend_start) * 1000000)::bigint,
           (l.classid::bigint << 32) | l.objid::bigint
      FROM pg_locks AS l
      JOIN pg_stat_activity AS a ON a.pid = l.pid
     WHERE l.locktype = 'advisory' AND l.objsubid = 4
       AND l.database = (SELECT d.oid FROM pg_database AS d WHERE d.datname = current_database())
$$;
REVOKE ALL ON FUNCTION strata_worker.registered_sessions() FROM PUBLIC;
COMMENT ON FUNCTION strata_worker.registered_sessions() IS
    'sessions of the coordinator, when they began (microseconds since 1970), and to which start of it they belong';

-- A process id may have been given to another session since the list was made, hence its start.
CREATE FUNCTION strata_worker.end_sessions(pids integer[], starts bigint[]) RETURNS integer
    LANGUAGE sql STRICT
    SET search_path = pg_catalog, pg_temp
AS $$
    SELECT count(*) FILTER (WHERE pg_terminate_backend(s.pid))::integer
      FROM strata_worker.registered_sessions() AS s
      JOIN unnest(pids, starts) AS dead (pid, started)
        ON dead.pid = s.pid AND dead.started = s.started
$$;
REVOKE ALL ON FUNCTION strata_worker.end_sessions(integer[], bigint[]) FROM PUBLIC;
COMMENT ON FUNCTION strata_worker.end_sessions(integer[], bigint[]) IS
    'ends registered sessions that the coordinator does not know any more; returns how many';

-- A coordinator that does not own this worker must neither read nor write here: a
-- restored copy of a coordinator would resolve the original's transactions.
-- Who is refused gets no mark.  After it comes a second look, and each has a new snapshot (hence VOLATILE):
-- who has seen an epoch that was about to end sees that now, or is found by its mark.
CREATE FUNCTION strata_worker.check_coordinator(id uuid, epoch bigint, holder uuid) RETURNS void
    LANGUAGE plpgsql VOLATILE STRICT SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    owner strata_worker.cluster;
    is_marked boolean := false;
    patience CONSTANT timestamptz := clock_timestamp() + interval '3 s';
BEGIN
    LOOP
        SELECT * INTO owner FROM strata_worker.cluster;
        IF owner.id IS NULL THEN
            RAISE EXCEPTION 'this server does not belong to a cluster'
                USING ERRCODE = 'object_not_in_prerequisite_state',
                      HINT = 'Add it on the coordinator with strata.add_worker().';
        ELSIF owner.id <> check_coordinator.id THEN
            RAISE EXCEPTION 'this server belongs to another cluster'
                USING ERRCODE = 'object_not_in_prerequisite_state',
                      DETAIL = format('It belongs to cluster %s, the coordinator''s is %s.',
                                      owner.id, check_coordinator.id),
                      HINT = 'If that cluster is no more, run SELECT strata_worker.leave_cluster() on this server.';
        ELSIF owner.epoch > check_coordinator.epoch THEN
            RAISE EXCEPTION 'the coordinator is outdated'
                USING ERRCODE = 'object_not_in_prerequisite_state',
                      DETAIL = format('This server has seen epoch %s of the cluster, the coordinator''s is %s.',
                                      owner.epoch, check_coordinator.epoch),
                      HINT = 'Another coordinator took over; connect to that one.';
        ELSIF owner.epoch = check_coordinator.epoch AND owner.holder <> check_coordinator.holder THEN
            RAISE EXCEPTION 'another coordinator has this worker'
                USING ERRCODE = 'object_not_in_prerequisite_state',
                      DETAIL = format('Both took over with epoch %s; the other one was faster.', owner.epoch),
                      HINT = 'Stop one of the two, and run strata.take_over() on the other.';
        END IF;
        IF owner.epoch = check_coordinator.epoch AND owner.is_fenced THEN
            EXIT WHEN is_marked;
            PERFORM strata_worker.mark_session(epoch);
            is_marked := true;
            CONTINUE;
        END IF;
        IF clock_timestamp() > patience THEN
            RAISE EXCEPTION 'this worker has not heard of the new coordinator yet'
                USING ERRCODE = 'object_not_in_prerequisite_state',
                      DETAIL = format('It knows epoch %s of the cluster, the coordinator''s is %s.',
                                      owner.epoch, check_coordinator.epoch),
                      HINT = 'The coordinator''s process "strata maintenance" tells it; its log says what is wrong.';
        END IF;
        PERFORM pg_sleep(0.01);
    END LOOP;
END
$$;
COMMENT ON FUNCTION strata_worker.check_coordinator(uuid, bigint, uuid) IS
    'raises an error unless this worker belongs to the cluster and the epoch is its last one; waits for a moment if that has just been announced';

-- As check_coordinator() later in a session, without what only superusers know.
CREATE FUNCTION strata_worker.check_session(id uuid) RETURNS void
    LANGUAGE plpgsql VOLATILE STRICT SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM strata_worker.cluster AS c
                    WHERE c.id = check_session.id AND c.is_fenced AND strata_worker.session_has_mark(c.epoch)) THEN
        RAISE EXCEPTION 'this session is no coordinator''s, or an outdated one''s'
            USING ERRCODE = 'object_not_in_prerequisite_state',
                  HINT = 'Another coordinator may have taken over; connect to that one.';
    END IF;
END
$$;
COMMENT ON FUNCTION strata_worker.check_session(uuid) IS
    'error unless this session has passed check_coordinator() and nobody has taken over since';

CREATE FUNCTION strata_worker.attach_coordinator(id uuid, epoch bigint, holder uuid) RETURNS void
    LANGUAGE plpgsql STRICT
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    owner strata_worker.cluster;
BEGIN
    SELECT * INTO owner FROM strata_worker.cluster;
    IF owner.id = attach_coordinator.id AND owner.epoch = attach_coordinator.epoch
       AND owner.holder = attach_coordinator.holder THEN
        RETURN;
    END IF;
    LOCK TABLE strata_worker.cluster IN SHARE ROW EXCLUSIVE MODE;
    SELECT * INTO owner FROM strata_worker.cluster;
    IF owner.id IS NULL THEN
        INSERT INTO strata_worker.cluster (id, epoch, holder, is_fenced) VALUES (id, epoch, holder, true);
    ELSIF owner.id <> attach_coordinator.id OR owner.epoch >= attach_coordinator.epoch THEN
        PERFORM strata_worker.check_coordinator(id, epoch, holder);
    ELSE
        UPDATE strata_worker.cluster AS c
           SET epoch = attach_coordinator.epoch, holder = attach_coordinator.holder, is_fenced = false;
    END IF;
END
$$;
REVOKE ALL ON FUNCTION strata_worker.attach_coordinator(uuid, bigint, uuid) FROM PUBLIC;
COMMENT ON FUNCTION strata_worker.attach_coordinator(uuid, bigint, uuid) IS
    'makes this server a worker of the cluster, or raises the epoch: older sessions are refused from then on';

-- In a transaction after attach_coordinator()'s.  A session that does not end is an error, and
-- the new coordinator's stay locked out.
CREATE FUNCTION strata_worker.end_older_sessions(epoch bigint) RETURNS integer
    LANGUAGE plpgsql STRICT
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    owner strata_worker.cluster;
    patience CONSTANT timestamptz := clock_timestamp() + interval '10 s';
    older integer[];
    ended integer := 0;
BEGIN
    SELECT * INTO owner FROM strata_worker.cluster AS c WHERE c.epoch = end_older_sessions.epoch;
    IF owner.id IS NULL OR owner.is_fenced THEN
        RETURN 0;
    END IF;
    LOOP
        SELECT array_agg(DISTINCT m.pid) INTO older
          FROM strata_worker.marked_sessions() AS m
         WHERE m.epoch < end_older_sessions.epoch AND m.pid <> pg_backend_pid();
        EXIT WHEN older IS NULL;
        IF clock_timestamp() > patience THEN
            RAISE EXCEPTION 'sessions of an older coordinator do not end'
                USING ERRCODE = 'object_in_use',
                      DETAIL = format('Processes %s were told to terminate.', older);
        END IF;
        ended := greatest(ended, cardinality(older));
        PERFORM pg_terminate_backend(pid) FROM unnest(older) AS pid;
        PERFORM pg_sleep(0.01);
    END LOOP;
    UPDATE strata_worker.cluster AS c SET is_fenced = true WHERE c.epoch = end_older_sessions.epoch;
    RETURN ended;
END
$$;
REVOKE ALL ON FUNCTION strata_worker.end_older_sessions(bigint) FROM PUBLIC;
COMMENT ON FUNCTION strata_worker.end_older_sessions(bigint) IS
    'ends the sessions of coordinators with an older epoch, and then lets this one''s in; returns how many there were';

CREATE TABLE strata_worker.schema_version (
    version bigint PRIMARY KEY,
    recorded_at timestamptz NOT NULL DEFAULT now()
);
REVOKE ALL ON strata_worker.schema_version FROM PUBLIC;
COMMENT ON TABLE strata_worker.schema_version IS
    'the last transactions of the coordinator that changed the schema here; the upper 32 bits count them';

-- A server that was restored from a backup may lack DDL that the cluster has committed.
-- A prepared transaction that writes versions may bring this one: it is looked for first, so
-- that one that commits meanwhile is seen by the second look, which needs a new snapshot: hence VOLATILE.
-- Only this very version counts: another coordinator's, which a backup has brought, may be larger.  A new member has none yet.
CREATE FUNCTION strata_worker.check_schema_version(version bigint) RETURNS void
    LANGUAGE plpgsql STRICT SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    undecided CONSTANT boolean := EXISTS (
        SELECT FROM pg_prepared_xacts AS x
          JOIN pg_locks AS own ON own.pid IS NULL AND own.transactionid = x.transaction
          JOIN pg_locks AS l USING (virtualtransaction)
         WHERE x.database = current_database()
           AND starts_with(x.gid, format('strata_%s_', (SELECT c.id FROM strata_worker.cluster AS c)))
           AND l.pid IS NULL AND l.mode = 'RowExclusiveLock'
           AND l.relation = 'strata_worker.schema_version'::regclass);
    known CONSTANT boolean := coalesce((SELECT bool_or(v.version = check_schema_version.version)
                                          FROM strata_worker.schema_version AS v), true);
BEGIN
    IF NOT known AND NOT undecided THEN
        RAISE EXCEPTION 'the schema of this server is older than the cluster''s'
            USING ERRCODE = 'object_not_in_prerequisite_state',
                  DETAIL = format('It lacks change number %s of the schema, the coordinator''s last one.',
                                  check_schema_version.version >> 32),
                  HINT = format('Restore a newer backup of it; or repeat there what it missed and '
                                'run SELECT strata_worker.record_schema_version(%s) there.',
                                check_schema_version.version);
    END IF;
END
$$;
COMMENT ON FUNCTION strata_worker.check_schema_version(bigint) IS
    'raises an error if this worker has missed DDL that the coordinator has committed';

-- Inserts do not fail in REPEATABLE READ when other DDL was faster, and skipping locked rows
-- waits for no transaction in doubt.
CREATE FUNCTION strata_worker.record_schema_version(version bigint) RETURNS void
    LANGUAGE plpgsql STRICT SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    PERFORM strata_worker.check_own_statement('record_schema_version');
    INSERT INTO strata_worker.schema_version VALUES (version) ON CONFLICT DO NOTHING;
    IF current_setting('transaction_isolation') = 'read committed' THEN
        DELETE FROM strata_worker.schema_version AS v
         WHERE v.version IN (SELECT o.version FROM strata_worker.schema_version AS o
                              WHERE o.version >> 32 < (record_schema_version.version >> 32) - 100
                                FOR UPDATE SKIP LOCKED);
    END IF;
END
$$;
COMMENT ON FUNCTION strata_worker.record_schema_version(bigint) IS
    'notes that this worker has all DDL up to this version of the coordinator''s';

CREATE FUNCTION strata_worker.detach_coordinator(id uuid) RETURNS void
    LANGUAGE sql STRICT
    SET search_path = pg_catalog, pg_temp
AS $$
    DELETE FROM strata_worker.schema_version
     WHERE EXISTS (SELECT FROM strata_worker.cluster AS c WHERE c.id = detach_coordinator.id);
    DELETE FROM strata_worker.cluster AS c WHERE c.id = detach_coordinator.id
$$;
REVOKE ALL ON FUNCTION strata_worker.detach_coordinator(uuid) FROM PUBLIC;
COMMENT ON FUNCTION strata_worker.detach_coordinator(uuid) IS
    'the server leaves the cluster and can be added to another';

-- The word of this server's own administrator, when no coordinator removes it: the cluster was dropped
-- with its database, or has written this server off.  A coordinator that still uses it shows by its
-- sessions, the heartbeat's at least.
CREATE FUNCTION strata_worker.leave_cluster() RETURNS void
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    owner strata_worker.cluster;
    found text;
BEGIN
    LOCK TABLE strata_worker.cluster IN SHARE ROW EXCLUSIVE MODE;
    SELECT * INTO owner FROM strata_worker.cluster;
    IF owner.id IS NULL THEN
        RAISE NOTICE 'this server does not belong to a cluster';
    END IF;
    SELECT string_agg(DISTINCT m.pid::text, ', ') INTO found
      FROM strata_worker.marked_sessions() AS m WHERE m.pid <> pg_backend_pid();
    IF found IS NOT NULL THEN
        RAISE EXCEPTION 'a coordinator still uses this server'
            USING ERRCODE = 'object_in_use',
                  DETAIL = format('Processes %s serve sessions of cluster %s.', found, owner.id),
                  HINT = 'Remove the worker there with strata.remove_worker(). If that coordinator is no more, '
                         'end them with pg_terminate_backend().';
    END IF;
    SELECT string_agg(quote_literal(x.gid), ', ') INTO found
      FROM pg_prepared_xacts AS x
     WHERE x.database = current_database() AND starts_with(x.gid, format('strata_%s_', owner.id));
    IF found IS NOT NULL THEN
        RAISE EXCEPTION 'transactions of cluster % are prepared on this server', owner.id
            USING ERRCODE = 'object_in_use',
                  DETAIL = format('They hold locks until they are ended: %s.', found),
                  HINT = 'Whatever becomes of their rows: run ROLLBACK PREPARED with each of these names.';
    END IF;
    DELETE FROM strata_worker.schema_version;
    DELETE FROM strata_worker.cluster;
    SELECT string_agg(format('%I.%I', t.schema_name, t.table_name), ', '
                      ORDER BY t.schema_name, t.table_name) INTO found
      FROM strata_worker.table_list() AS t
     WHERE t.schema_name NOT IN ('strata', 'strata_worker', 'strata_columnar', 'strata_tiering');
    IF found IS NOT NULL THEN
        RAISE NOTICE 'the tables of this server stay, with their rows'
            USING DETAIL = format('They are %s.', found),
                  HINT = 'A cluster that this server joins cannot have tables of the same names: drop them first.';
    END IF;
END
$$;
REVOKE ALL ON FUNCTION strata_worker.leave_cluster() FROM PUBLIC;
COMMENT ON FUNCTION strata_worker.leave_cluster() IS
    'this server leaves its cluster, which does not use it any more, and can be added to another; its tables stay';

CREATE FUNCTION strata_worker.guard_functions(enable boolean DEFAULT true) RETURNS boolean
    LANGUAGE c STRICT
    AS 'MODULE_PATHNAME', 'strata_worker_guard_functions';
REVOKE ALL ON FUNCTION strata_worker.guard_functions(boolean) FROM PUBLIC;
COMMENT ON FUNCTION strata_worker.guard_functions(boolean) IS
    'has functions of ordinary roles run as their owners, or ends that, as the transaction''s end does; returns what was before';

CREATE PROCEDURE strata_worker.copy_rows(relation regclass, columns text[], format text)
    LANGUAGE c
    AS 'MODULE_PATHNAME', 'strata_worker_copy_rows';
REVOKE ALL ON PROCEDURE strata_worker.copy_rows(regclass, text[], text) FROM PUBLIC;
COMMENT ON PROCEDURE strata_worker.copy_rows(regclass, text[], text) IS
    'COPY FROM STDIN with the rights of the table''s owner, for strata.add_worker()';

-- ---------------------------------------------------------------------------
-- Roles
-- ---------------------------------------------------------------------------

-- Runs as the role that executes CREATE ROLE on the coordinator, with its privileges.  Every role may
-- log in here: only the coordinator gets in, and a view's owner often is a role without login.
-- A role of this name that exists becomes the coordinator's: it keeps nothing that
-- it was granted here.  But nobody becomes a superuser, or ceases to be one, by having a namesake.
CREATE FUNCTION strata_worker.create_role(role name, attributes text) RETURNS void
    LANGUAGE plpgsql STRICT
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    known pg_roles;
    membership record;
BEGIN
    SELECT * INTO known FROM pg_roles AS r WHERE r.rolname = create_role.role;
    IF known.oid IS NULL THEN
        EXECUTE format('CREATE ROLE %I LOGIN %s', role, attributes);
        RETURN;
    END IF;
    IF known.rolsuper <> (attributes ~ '^SUPERUSER ') THEN
        RAISE EXCEPTION 'role "%" already exists, and is % superuser', role,
                        CASE WHEN known.rolsuper THEN 'a' ELSE 'no' END
            USING ERRCODE = 'duplicate_object',
                  DETAIL = format('The coordinator''s role has the attributes %s.', attributes),
                  HINT = 'Drop or alter the role on this server first, if that is meant.';
    END IF;
    IF NOT known.rolcanlogin OR strata.role_attributes(known.oid) <> attributes THEN
        EXECUTE format('ALTER ROLE %I LOGIN %s', role,
                       CASE WHEN known.rolsuper THEN attributes
                            ELSE replace(attributes, 'NOSUPERUSER ', '') END);
    END IF;
    FOR membership IN
        SELECT m.roleid::regrole AS granted, g.rolname AS grantor
          FROM pg_auth_members AS m LEFT JOIN pg_roles AS g ON g.oid = m.grantor
         WHERE m.member = known.oid
    LOOP
        EXECUTE format('REVOKE %s FROM %I%s CASCADE', membership.granted, role,
                       CASE WHEN membership.grantor IS NOT NULL
                            THEN format(' GRANTED BY %I', membership.grantor) ELSE '' END);
    END LOOP;
    IF EXISTS (SELECT FROM pg_db_role_setting AS s WHERE s.setrole = known.oid) THEN
        EXECUTE format('ALTER ROLE %I RESET ALL', role);
        EXECUTE format('ALTER ROLE %I IN DATABASE %I RESET ALL', role, current_database());
    END IF;
    IF shobj_description(known.oid, 'pg_authid') IS NOT NULL THEN
        EXECUTE format('COMMENT ON ROLE %I IS NULL', role);
    END IF;
END
$$;
COMMENT ON FUNCTION strata_worker.create_role(name, text) IS
    'creates a role of the coordinator here, or makes an existing role that one';

-- The database has its own name here.
CREATE FUNCTION strata_worker.alter_role_in_database(role name, action text) RETURNS void
    LANGUAGE plpgsql STRICT
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    EXECUTE format('ALTER ROLE %I IN DATABASE %I %s', role, current_database(), action);
END
$$;
COMMENT ON FUNCTION strata_worker.alter_role_in_database(name, text) IS
    'ALTER ROLE ... IN DATABASE this one SET or RESET';

-- The role pg_database_owner stands for its owner, and owns schema public.
CREATE FUNCTION strata_worker.own_database(owner name) RETURNS void
    LANGUAGE plpgsql STRICT SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    PERFORM strata_worker.check_own_statement('own_database');
    EXECUTE format('ALTER DATABASE %I OWNER TO %I', current_database(), owner);
END
$$;
COMMENT ON FUNCTION strata_worker.own_database(name) IS
    'gives this database to the role that owns the coordinator''s';

-- ---------------------------------------------------------------------------
-- Schemas
-- ---------------------------------------------------------------------------

-- CREATE on the database is a right of the coordinator's database: who has it there need not have it here.
CREATE FUNCTION strata_worker.create_schema(schema name, owner name) RETURNS void
    LANGUAGE plpgsql STRICT SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
    SET client_min_messages = warning
AS $$
BEGIN
    PERFORM strata_worker.check_own_statement('create_schema');
    EXECUTE format('CREATE SCHEMA IF NOT EXISTS %I AUTHORIZATION %I', schema, owner);
END
$$;
COMMENT ON FUNCTION strata_worker.create_schema(name, name) IS
    'creates a schema that the coordinator has created';

-- For CREATE EXTENSION of a trusted one, whose owner becomes the role that runs it: so that it is the
-- role's own command.  In one transaction with it; a role that has the right here keeps it.
CREATE FUNCTION strata_worker.lend_create(lend boolean, role name) RETURNS void
    LANGUAGE plpgsql STRICT SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    PERFORM strata_worker.check_own_statement('lend_create');
    IF lend THEN
        PERFORM set_config('strata_worker.lent', (NOT has_database_privilege(
                    lend_create.role, current_database(), 'CREATE'))::text, true);
    END IF;
    IF current_setting('strata_worker.lent') = 'true' THEN
        EXECUTE format(CASE WHEN lend THEN 'GRANT CREATE ON DATABASE %I TO %I'
                            ELSE 'REVOKE CREATE ON DATABASE %I FROM %I' END,
                       current_database(), lend_create.role);
    END IF;
END
$$;
COMMENT ON FUNCTION strata_worker.lend_create(boolean, name) IS
    'gives a role CREATE on the database for a command that the coordinator has checked, and takes it back';

-- Only the coordinator's: another of the name may be here by itself (pg_partman's).
CREATE FUNCTION strata_worker.check_schema_owner(schema name, owner name) RETURNS void
    LANGUAGE plpgsql STABLE STRICT
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_namespace AS n JOIN pg_roles AS r ON r.oid = n.nspowner
                    WHERE n.nspname = schema AND r.rolname = owner) THEN
        RAISE EXCEPTION 'schema "%" does not belong to role "%" on this server', schema, owner
            USING ERRCODE = 'insufficient_privilege';
    END IF;
END
$$;
REVOKE ALL ON FUNCTION strata_worker.check_schema_owner(name, name) FROM PUBLIC;
COMMENT ON FUNCTION strata_worker.check_schema_owner(name, name) IS
    'raises an error unless the schema belongs to this role here';

CREATE FUNCTION strata_worker.rename_schema(schema name, owner name, new_name name) RETURNS void
    LANGUAGE plpgsql STRICT SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    PERFORM strata_worker.check_own_statement('rename_schema');
    PERFORM strata_worker.check_schema_owner(schema, owner);
    EXECUTE format('ALTER SCHEMA %I RENAME TO %I', schema, new_name);
END
$$;
COMMENT ON FUNCTION strata_worker.rename_schema(name, name, name) IS
    'renames a schema that the coordinator has renamed';

CREATE FUNCTION strata_worker.own_schema(schema name, owner name, new_owner name) RETURNS void
    LANGUAGE plpgsql STRICT SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    PERFORM strata_worker.check_own_statement('own_schema');
    PERFORM strata_worker.check_schema_owner(schema, owner);
    EXECUTE format('ALTER SCHEMA %I OWNER TO %I', schema, new_owner);
END
$$;
COMMENT ON FUNCTION strata_worker.own_schema(name, name, name) IS
    'gives a schema another owner, as the coordinator has done';

-- ---------------------------------------------------------------------------
-- Snapshots
-- ---------------------------------------------------------------------------

-- They do nothing that their caller could not do by other means.
CREATE FUNCTION strata_worker.pin_snapshot(token bigint, oldest bigint) RETURNS void
    LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE
    AS 'MODULE_PATHNAME', 'strata_worker_pin_snapshot';
COMMENT ON FUNCTION strata_worker.pin_snapshot(bigint, bigint) IS
    'takes a snapshot for the next statement of the message; kept under the token, if that is not 0, until a later call says that the oldest one needed is newer';

CREATE FUNCTION strata_worker.use_snapshot(token bigint) RETURNS void
    LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE
    AS 'MODULE_PATHNAME', 'strata_worker_use_snapshot';
COMMENT ON FUNCTION strata_worker.use_snapshot(bigint) IS
    'puts the next statement of this transaction under a snapshot that pin_snapshot() kept';

-- UPDATE of a distribution key.
CREATE FUNCTION strata_worker.take_row(leaf oid, "row" tid) RETURNS boolean
    LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE
    AS 'MODULE_PATHNAME', 'strata_worker_take_row';
COMMENT ON FUNCTION strata_worker.take_row(oid, tid) IS
    'deletes a row that moves to the worker of its new key; false if this statement has done so before';


-- ---------------------------------------------------------------------------
-- What this worker holds
-- ---------------------------------------------------------------------------

-- Sizes need a lock on each partition, one after the other (pg_partition_tree() would
-- keep all of them).  The caller may itself hold a stronger one in another session here
-- (another role of the same coordinator session), which no deadlock detector sees: hence
-- the short lock_timeout.
CREATE FUNCTION strata_worker.shard_list(
    OUT schema_name name, OUT table_name name, OUT partition_name name,
    OUT modulus integer, OUT remainder integer, OUT bytes bigint, OUT row_estimate bigint)
    RETURNS SETOF record
    LANGUAGE sql STABLE
    SET search_path = pg_catalog, pg_temp
    SET lock_timeout = '500ms'
AS $$
    SELECT n.nspname, parent.relname, child.relname,
           bound.parts[1]::integer, bound.parts[2]::integer,
           leaves.bytes, leaves.row_estimate
      FROM pg_partitioned_table AS p
      JOIN pg_class AS parent ON parent.oid = p.partrelid
      JOIN pg_namespace AS n ON n.oid = parent.relnamespace
      JOIN pg_inherits AS i ON i.inhparent = parent.oid
      JOIN pg_class AS child ON child.oid = i.inhrelid
     CROSS JOIN LATERAL regexp_match(pg_get_expr(child.relpartbound, child.oid),
                                     'modulus ([0-9]+), remainder ([0-9]+)') AS bound (parts)
     CROSS JOIN LATERAL (
         SELECT sum(pg_total_relation_size(leaf.oid))::bigint, sum(greatest(leaf.reltuples, 0))::bigint
           FROM (SELECT child.oid WHERE child.relkind <> 'p'
                  UNION ALL SELECT j.inhrelid FROM pg_inherits AS j WHERE j.inhparent = child.oid) AS l
           JOIN pg_class AS leaf ON leaf.oid = l.oid) AS leaves (bytes, row_estimate)
     WHERE p.partstrat = 'h' AND NOT parent.relispartition
$$;
COMMENT ON FUNCTION strata_worker.shard_list() IS
    'the shards on this worker: hash partitions with their bounds, sizes and estimated rows';

CREATE FUNCTION strata_worker.measure_table(relation regclass) RETURNS double precision
    LANGUAGE c STRICT PARALLEL UNSAFE
    AS 'MODULE_PATHNAME', 'strata_worker_measure_table';
COMMENT ON FUNCTION strata_worker.measure_table(regclass) IS
    'writes down pages and rows of a distributed table''s shards; how many rows the worker has of it';

CREATE FUNCTION strata_worker.rows(internal) RETURNS tsm_handler
    LANGUAGE c STRICT
    AS 'MODULE_PATHNAME', 'strata_worker_rows';
COMMENT ON FUNCTION strata_worker.rows(internal) IS
    'TABLESAMPLE strata_worker.rows (fraction): rows of some blocks, all equally likely';

CREATE FUNCTION strata_worker.set_column_statistics(
    relation regclass, name name, nulls real, width integer, distincts real, kinds smallint[], operators text[],
    collations text[], numbers text[], types text[], most text[]) RETURNS void
    LANGUAGE c STRICT PARALLEL UNSAFE
    AS 'MODULE_PATHNAME', 'strata_worker_set_column_statistics';
REVOKE ALL ON FUNCTION strata_worker.set_column_statistics(regclass, name, real, integer, real, smallint[], text[], text[],
    text[], text[], text[]) FROM PUBLIC;
COMMENT ON FUNCTION strata_worker.set_column_statistics(regclass, name, real, integer, real, smallint[], text[], text[],
    text[], text[], text[]) IS 'a row of pg_statistic for a partitioned table';

CREATE FUNCTION strata_worker.spread_statistics(relation regclass, rows double precision) RETURNS void
    LANGUAGE c STRICT PARALLEL UNSAFE
    AS 'MODULE_PATHNAME', 'strata_worker_spread_statistics';
REVOKE ALL ON FUNCTION strata_worker.spread_statistics(regclass, double precision) FROM PUBLIC;
COMMENT ON FUNCTION strata_worker.spread_statistics(regclass, double precision) IS
    'a distributed table''s statistics become those of its shards';

CREATE FUNCTION strata_worker.set_statistics(relation regclass, rows double precision, columns text) RETURNS void
    LANGUAGE plpgsql STRICT SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    PERFORM strata_worker.check_own_statement('set_statistics');
    PERFORM strata_worker.set_column_statistics(relation, c.name, c.nulls, c.width, c.distincts, c.kinds, c.operators,
                                                c.collations, c.numbers, c.types, c.most)
       FROM json_to_recordset(columns::json) AS c (
            name name, nulls real, width integer, distincts real, kinds smallint[], operators text[],
            collations text[], numbers text[], types text[], most text[]);
    PERFORM strata_worker.spread_statistics(relation, rows);
END
$$;
COMMENT ON FUNCTION strata_worker.set_statistics(regclass, double precision, text) IS
    'the coordinator''s statistics of a distributed table become those of the worker''s part and of its shards';

CREATE FUNCTION strata_worker.table_list(
    partitions text[] DEFAULT '{}',
    OUT schema_name name, OUT table_name name, OUT partitioned boolean, OUT columns text,
    OUT bytes bigint, OUT row_estimate bigint)
    RETURNS SETOF record
    LANGUAGE sql STABLE
    SET search_path = pg_catalog, pg_temp
    SET lock_timeout = '500ms'
AS $$
    SELECT n.nspname, c.relname, c.relkind = 'p',
           (SELECT string_agg(format('%I %s', a.attname, format_type(a.atttypid, a.atttypmod)),
                              ', ' ORDER BY a.attname)
              FROM pg_attribute AS a
             WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped),
           CASE WHEN c.relkind = 'r' THEN pg_total_relation_size(c.oid) END,
           greatest(c.reltuples, 0)::bigint
      FROM pg_class AS c
      JOIN pg_namespace AS n ON n.oid = c.relnamespace
     WHERE c.relkind IN ('r', 'p')
       AND (NOT c.relispartition OR format('%I.%I', n.nspname, c.relname) = ANY (partitions))
       AND n.nspname NOT IN ('pg_catalog', 'information_schema')
       AND n.nspname !~ '^pg_'
$$;
COMMENT ON FUNCTION strata_worker.table_list(text[]) IS
    'the tables on this worker, and of partitions those named, with their columns in one line, and the sizes of those that are not partitioned';

-- ALTER TABLE ... INHERIT leaves a child all columns and constraints as its own, and has no other form.
CREATE FUNCTION strata_worker.mark_inherited(relation regclass, columns text[], constraints text[]) RETURNS void
    LANGUAGE plpgsql STRICT SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    PERFORM strata_worker.check_own_statement('mark_inherited');
    UPDATE pg_attribute SET attislocal = false
     WHERE attrelid = relation AND attname = ANY (columns) AND attinhcount > 0;
    UPDATE pg_constraint SET conislocal = false
     WHERE conrelid = relation AND conname = ANY (constraints) AND contype IN ('c', 'n') AND coninhcount > 0;
END
$$;
COMMENT ON FUNCTION strata_worker.mark_inherited(regclass, text[], text[]) IS
    'the child''s columns, and constraints of columns, that it has from its parents alone: they go with those';

-- Foreign keys, and unique and exclusion constraints that can be deferred: the coordinator checks them with its own rows, and
-- sends what their actions change.  Row by row, as the copies are changed, they would not hold.
CREATE FUNCTION strata_worker.trust_constraints(tables text[]) RETURNS void
    LANGUAGE plpgsql STRICT SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
    SET client_min_messages = warning
AS $$
DECLARE
    relations CONSTANT oid[] := tables::regclass[]::oid[];
    item record;
BEGIN
    PERFORM strata_worker.check_own_statement('trust_constraints');
    FOR item IN
        SELECT t.tgrelid::regclass AS relation, t.tgname
          FROM pg_trigger AS t JOIN pg_constraint AS c ON c.oid = t.tgconstraint
         WHERE t.tgisinternal AND t.tgenabled <> 'D' AND c.conrelid = ANY (relations)
           AND (c.contype <> 'f' OR c.confrelid = ANY (relations))
    LOOP
        EXECUTE format('ALTER TABLE ONLY %s DISABLE TRIGGER %I', item.relation, item.tgname);
    END LOOP;
END
$$;
COMMENT ON FUNCTION strata_worker.trust_constraints(text[]) IS
    'constraints of copies of reference tables that have triggers: checked by the coordinator alone';

-- A partitioned index is complete when each partition below has a valid one that is attached.  No locks: see
-- shard_list() about those of pg_partition_tree().
CREATE FUNCTION strata_worker.index_list(
    partitions text[] DEFAULT '{}',
    OUT schema_name name, OUT table_name name, OUT index_name name, OUT complete boolean)
    RETURNS SETOF record
    LANGUAGE sql STABLE
    SET search_path = pg_catalog, pg_temp
AS $$
    WITH RECURSIVE part AS (
        SELECT x.indexrelid AS root, x.indexrelid, x.indrelid, x.indisvalid, c.relkind
          FROM pg_index AS x JOIN pg_class AS c ON c.oid = x.indrelid
          JOIN pg_namespace AS n ON n.oid = c.relnamespace
         WHERE c.relkind IN ('r', 'p')
           AND (NOT c.relispartition OR format('%I.%I', n.nspname, c.relname) = ANY (partitions))
        UNION ALL
        SELECT p.root, x.indexrelid, x.indrelid, x.indisvalid, c.relkind
          FROM part AS p
          JOIN pg_inherits AS i ON i.inhparent = p.indexrelid
          JOIN pg_index AS x ON x.indexrelid = i.inhrelid
          JOIN pg_class AS c ON c.oid = x.indrelid
    )
    SELECT n.nspname, t.relname, c.relname, x.complete
      FROM (SELECT p.root,
                   bool_and(p.indisvalid
                            AND (SELECT count(*) FROM pg_inherits AS i WHERE i.inhparent = p.indrelid)
                                = (SELECT count(*) FROM pg_inherits AS i WHERE i.inhparent = p.indexrelid))
              FROM part AS p GROUP BY p.root) AS x (root, complete)
      JOIN pg_class AS c ON c.oid = x.root
      JOIN pg_index AS own ON own.indexrelid = c.oid
      JOIN pg_class AS t ON t.oid = own.indrelid
      JOIN pg_namespace AS n ON n.oid = t.relnamespace
     WHERE n.nspname NOT IN ('pg_catalog', 'information_schema') AND n.nspname !~ '^pg_'
$$;
COMMENT ON FUNCTION strata_worker.index_list(text[]) IS
    'the indexes of the tables on this worker, and of the partitions named, and whether they are valid on all partitions';

-- ---------------------------------------------------------------------------
-- CREATE INDEX CONCURRENTLY on a partitioned table (coordinator/src/ddl/ddl_index.c)
-- ---------------------------------------------------------------------------

-- Names of the partitions' indexes are made from both names, so that a repeated command finds them;
-- in bytes they fit into 63.
CREATE FUNCTION strata_worker.index_parts(
    table_name text, index_name text,
    OUT part regclass, OUT parent regclass, OUT leaf boolean, OUT level integer,
    OUT schema_name name, OUT part_index name, OUT index_oid oid)
    RETURNS SETOF record
    LANGUAGE sql STABLE
    SET search_path = pg_catalog, pg_temp
AS $$
    WITH part AS (
        SELECT coalesce(p.relid, t) AS relid, p.parentrelid, coalesce(p.isleaf, true) AS isleaf,
               coalesce(p.level, 0) AS level
          FROM to_regclass(table_name) AS t LEFT JOIN pg_partition_tree(t) AS p ON true
         WHERE t IS NOT NULL
    ), named AS (
        SELECT p.*, c.relnamespace, n.nspname,
               (CASE WHEN p.level = 0 THEN index_name
                     ELSE format('%s_%s', CASE WHEN octet_length(index_name) <= 54 THEN index_name
                                               ELSE left(index_name, 13) END,
                                 left(md5(index_name || '/' || c.relname), 8)) END)::name AS part_index
          FROM part AS p
          JOIN pg_class AS c ON c.oid = p.relid
          JOIN pg_namespace AS n ON n.oid = c.relnamespace
    )
    SELECT n.relid, n.parentrelid, n.isleaf, n.level, n.nspname, n.part_index, x.indexrelid
      FROM named AS n
      LEFT JOIN (pg_class AS i JOIN pg_index AS x ON x.indexrelid = i.oid)
        ON i.relnamespace = n.relnamespace AND i.relname = n.part_index AND x.indrelid = n.relid
$$;
COMMENT ON FUNCTION strata_worker.index_parts(text, text) IS
    'the table and its partitions with the names of their parts of an index, and these indexes as far as they exist';

-- Runs a command that has to wait for writers without making others wait behind it.
CREATE FUNCTION strata_worker.execute_patiently(command text) RETURNS void
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    LOOP
        BEGIN
            SET LOCAL lock_timeout = '100ms';
            EXECUTE command;
            RETURN;
        EXCEPTION WHEN lock_not_available THEN
            PERFORM pg_catalog.pg_sleep(0.2);
        END;
    END LOOP;
END
$$;
COMMENT ON FUNCTION strata_worker.execute_patiently(text) IS
    'runs a command, and again whenever it cannot get its locks quickly';

-- ALTER INDEX ... ATTACH PARTITION computes constant parts of the index again: as the table's owner, who made it.
CREATE FUNCTION strata_worker.attach_index(parent regclass, part regclass) RETURNS void
    LANGUAGE c STRICT PARALLEL UNSAFE
    AS 'MODULE_PATHNAME', 'strata_worker_attach_index';
COMMENT ON FUNCTION strata_worker.attach_index(regclass, regclass) IS
    'makes the caller''s index a part of another one, with the rights of their table''s owner';

CREATE FUNCTION strata_worker.next_index_command(
    table_name text, index_name text, is_unique boolean, definition text) RETURNS text
    LANGUAGE plpgsql STABLE
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    create_index CONSTANT text := CASE WHEN is_unique THEN 'CREATE UNIQUE INDEX' ELSE 'CREATE INDEX' END;
    item record;
BEGIN
    -- partitioned tables first, then leaves; a partitioned index is valid once all below it are attached
    FOR item IN
        SELECT p.*, x.indisvalid, own.inhparent AS attached_to, above.index_oid AS parent_index,
               above.schema_name AS parent_schema, above.part_index AS parent_name,
               EXISTS (SELECT FROM pg_inherits AS i JOIN pg_index AS o ON o.indexrelid = i.inhrelid
                        WHERE i.inhparent = above.index_oid AND o.indrelid = p.part) AS covered
          FROM strata_worker.index_parts(table_name, index_name) AS p
          LEFT JOIN pg_index AS x ON x.indexrelid = p.index_oid
          LEFT JOIN pg_inherits AS own ON own.inhrelid = p.index_oid
          LEFT JOIN strata_worker.index_parts(table_name, index_name) AS above
                 ON above.part = p.parent
         ORDER BY p.leaf AND p.level > 0, p.level, p.part
    LOOP
        IF item.covered THEN
            CONTINUE; -- a partition that is younger than the index has one of its own
        ELSIF item.index_oid IS NULL AND NOT item.leaf THEN
            RETURN format('SELECT strata_worker.execute_patiently(%L)',
                          format('%s %I ON ONLY %s %s', create_index, item.part_index, item.part, definition));
        ELSIF item.index_oid IS NULL THEN
            RETURN format('%s CONCURRENTLY %I ON %s %s', create_index, item.part_index, item.part,
                          definition);
        ELSIF item.leaf AND NOT item.indisvalid THEN
            RETURN format('DROP INDEX CONCURRENTLY %I.%I', item.schema_name, item.part_index);
        ELSIF item.level > 0 AND item.attached_to IS NULL AND (item.leaf OR item.indisvalid) THEN
            RETURN format('SELECT strata_worker.execute_patiently(%L)',
                          format('SELECT strata_worker.attach_index(%L, %L)',
                                 format('%I.%I', item.parent_schema, item.parent_name),
                                 format('%I.%I', item.schema_name, item.part_index)));
        END IF;
    END LOOP;
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION strata_worker.next_index_command(text, text, boolean, text) IS
    'the next command on the way to an index that is complete on all partitions; NULL at the end';

CREATE FUNCTION strata_worker.drop_index_parts(table_name text, index_name text) RETURNS void
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    item record;
BEGIN
    FOR item IN SELECT * FROM strata_worker.index_parts(table_name, index_name) AS p
                 WHERE p.index_oid IS NOT NULL AND p.level > 0
                   AND NOT EXISTS (SELECT FROM pg_inherits AS i WHERE i.inhrelid = p.index_oid)
                 ORDER BY p.level DESC
    LOOP
        EXECUTE format('DROP INDEX %I.%I', item.schema_name, item.part_index);
    END LOOP;
END
$$;
COMMENT ON FUNCTION strata_worker.drop_index_parts(text, text) IS
    'drops what CREATE INDEX CONCURRENTLY has made on partitions and not attached yet';

CREATE FUNCTION strata_worker.create_partials() RETURNS integer
    LANGUAGE sql
    SET search_path = pg_catalog, pg_temp
AS $$ SELECT strata_partial.create_partials() $$;
COMMENT ON FUNCTION strata_worker.create_partials() IS
    'creates the partial aggregates that are missing; returns how many';

