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
    attached_at timestamptz NOT NULL DEFAULT now()
);
CREATE UNIQUE INDEX cluster_has_one_row ON strata_worker.cluster ((true));
REVOKE ALL ON strata_worker.cluster FROM PUBLIC;
COMMENT ON TABLE strata_worker.cluster IS
    'the cluster this worker belongs to, at most one row; a coordinator with an older epoch is refused';

-- A coordinator that does not own this worker must neither read nor write here: a
-- restored copy of a coordinator would resolve the original's transactions.
CREATE FUNCTION strata_worker.check_coordinator(id uuid, epoch bigint) RETURNS void
    LANGUAGE plpgsql STABLE STRICT SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    owner strata_worker.cluster;
BEGIN
    SELECT * INTO owner FROM strata_worker.cluster;
    IF owner.id IS NULL THEN
        RAISE EXCEPTION 'this server does not belong to a cluster'
            USING ERRCODE = 'object_not_in_prerequisite_state',
                  HINT = 'Add it on the coordinator with strata.add_worker().';
    ELSIF owner.id <> check_coordinator.id THEN
        RAISE EXCEPTION 'this server belongs to another cluster'
            USING ERRCODE = 'object_not_in_prerequisite_state',
                  DETAIL = format('It belongs to cluster %s, the coordinator''s is %s.',
                                  owner.id, check_coordinator.id);
    ELSIF owner.epoch > check_coordinator.epoch THEN
        RAISE EXCEPTION 'the coordinator is outdated'
            USING ERRCODE = 'object_not_in_prerequisite_state',
                  DETAIL = format('This server has seen epoch %s of the cluster, the coordinator''s is %s.',
                                  owner.epoch, check_coordinator.epoch),
                  HINT = 'Another coordinator took over; connect to that one.';
    END IF;
END
$$;
COMMENT ON FUNCTION strata_worker.check_coordinator(uuid, bigint) IS
    'raises an error unless this worker belongs to the cluster and has seen no later epoch';

CREATE FUNCTION strata_worker.attach_coordinator(id uuid, epoch bigint) RETURNS void
    LANGUAGE plpgsql STRICT
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    LOCK TABLE strata_worker.cluster IN SHARE ROW EXCLUSIVE MODE;
    IF EXISTS (SELECT FROM strata_worker.cluster) THEN
        PERFORM strata_worker.check_coordinator(id, epoch);
        UPDATE strata_worker.cluster AS c SET epoch = attach_coordinator.epoch;
    ELSE
        INSERT INTO strata_worker.cluster VALUES (id, epoch);
    END IF;
END
$$;
REVOKE ALL ON FUNCTION strata_worker.attach_coordinator(uuid, bigint) FROM PUBLIC;
COMMENT ON FUNCTION strata_worker.attach_coordinator(uuid, bigint) IS
    'makes this server a worker of the cluster, or raises the epoch it has seen';

CREATE FUNCTION strata_worker.detach_coordinator(id uuid) RETURNS void
    LANGUAGE sql STRICT
    SET search_path = pg_catalog, pg_temp
AS $$ DELETE FROM strata_worker.cluster AS c WHERE c.id = detach_coordinator.id $$;
REVOKE ALL ON FUNCTION strata_worker.detach_coordinator(uuid) FROM PUBLIC;
COMMENT ON FUNCTION strata_worker.detach_coordinator(uuid) IS
    'the server leaves the cluster and can be added to another';

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

-- ---------------------------------------------------------------------------
-- What this worker holds
-- ---------------------------------------------------------------------------

-- Sizes need a lock on each partition.  The caller may itself hold a stronger one
-- in another session here (another role of the same coordinator session), which
-- no deadlock detector sees: hence the short lock_timeout.
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
           (SELECT sum(pg_total_relation_size(member.relid))
              FROM pg_partition_tree(child.oid) AS member WHERE member.isleaf)::bigint,
           (SELECT sum(greatest(leaf.reltuples, 0))
              FROM pg_partition_tree(child.oid) AS member
              JOIN pg_class AS leaf ON leaf.oid = member.relid
             WHERE member.isleaf)::bigint
      FROM pg_partitioned_table AS p
      JOIN pg_class AS parent ON parent.oid = p.partrelid
      JOIN pg_namespace AS n ON n.oid = parent.relnamespace
      JOIN pg_inherits AS i ON i.inhparent = parent.oid
      JOIN pg_class AS child ON child.oid = i.inhrelid
     CROSS JOIN LATERAL regexp_match(pg_get_expr(child.relpartbound, child.oid),
                                     'modulus (\d+), remainder (\d+)') AS bound (parts)
     WHERE p.partstrat = 'h' AND NOT parent.relispartition
$$;
COMMENT ON FUNCTION strata_worker.shard_list() IS
    'the shards on this worker: hash partitions with their bounds, sizes and estimated rows';

CREATE FUNCTION strata_worker.table_list(
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
     WHERE c.relkind IN ('r', 'p') AND NOT c.relispartition
       AND n.nspname NOT IN ('pg_catalog', 'information_schema')
       AND n.nspname !~ '^pg_'
$$;
COMMENT ON FUNCTION strata_worker.table_list() IS
    'the tables on this worker with their columns in one line, and the sizes of those that are not partitioned';

CREATE FUNCTION strata_worker.create_partials() RETURNS integer
    LANGUAGE sql
    SET search_path = pg_catalog, pg_temp
AS $$ SELECT strata_partial.create_partials() $$;
COMMENT ON FUNCTION strata_worker.create_partials() IS
    'creates the partial aggregates that are missing; returns how many';

