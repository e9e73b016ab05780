
-- ---------------------------------------------------------------------------
-- Tiers: which leaves belong on the fast disk of their worker
-- ---------------------------------------------------------------------------

CREATE TABLE strata.tier_policy (
    relation regclass PRIMARY KEY,
    mode text NOT NULL CHECK (mode IN ('age', 'heat', 'pinned')),
    age text,
    tier text CHECK (tier IN ('hot', 'cold')),
    index_tier text NOT NULL CHECK (index_tier IN ('hot', 'follow')),
    residence interval NOT NULL
);
REVOKE ALL ON strata.tier_policy FROM PUBLIC;
COMMENT ON TABLE strata.tier_policy IS 'which leaves of a table belong on which tier; the workers get copies';

-- The table's storage and the type of its control column, NULL without periods; checks the caller.
CREATE FUNCTION strata.tier_policy_target(
    relation regclass, OUT column_type text, OUT unit text) RETURNS record
    LANGUAGE plpgsql STABLE STRICT
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    storage text;
BEGIN
    SELECT t.storage, format_type(a.atttypid, NULL), t.partition_unit INTO storage, column_type, unit
      FROM strata.distributed_table AS t
      LEFT JOIN pg_attribute AS a ON a.attrelid = t.relation AND a.attnum = t.partition_attribute
     WHERE t.relation = tier_policy_target.relation AND t.kind = 'd';
    IF NOT FOUND THEN
        RAISE EXCEPTION '"%" is not a distributed table', relation
            USING ERRCODE = 'wrong_object_type', HINT = 'Distribute it with create_distributed_table() first.';
    END IF;
    IF NOT EXISTS (SELECT FROM pg_class AS c
                    WHERE c.oid = relation AND pg_has_role(session_user, c.relowner, 'USAGE')) THEN
        RAISE EXCEPTION 'must be owner of table %', relation USING ERRCODE = 'insufficient_privilege';
    END IF;
    IF storage <> 'columnar' THEN
        RAISE EXCEPTION 'table "%" cannot have a tier policy', relation
            USING ERRCODE = 'feature_not_supported',
                  DETAIL = 'Its storage is heap; only columnar leaves move while they are in use.',
                  HINT = 'Distribute it with storage => ''columnar''.';
    END IF;
END
$$;
REVOKE ALL ON FUNCTION strata.tier_policy_target(regclass) FROM PUBLIC;
COMMENT ON FUNCTION strata.tier_policy_target(regclass) IS
    'raises an error unless the session''s user may give the table a policy';

CREATE FUNCTION strata.check_tier_age(relation regclass, age text) RETURNS void
    LANGUAGE plpgsql STABLE
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    target record := strata.tier_policy_target(relation);
    is_number boolean := target.unit = 'none' AND target.column_type IN ('smallint', 'integer', 'bigint');
    is_good boolean;
BEGIN
    IF target.column_type IS NULL THEN
        RAISE EXCEPTION 'table "%" has no periods, so its leaves have no age', relation
            USING ERRCODE = 'object_not_in_prerequisite_state',
                  HINT = 'Distribute it with partition_by, or use mode => ''heat''.';
    END IF;
    IF age IS NULL THEN
        RAISE EXCEPTION 'mode "age" needs an age'
            USING ERRCODE = 'invalid_parameter_value', HINT = 'For example: age => ''30 days''.';
    END IF;
    BEGIN
        is_good := CASE WHEN is_number THEN age::bigint > 0
                        ELSE now() - age::interval < now() END;
    EXCEPTION WHEN data_exception THEN
        is_good := false;
    END;
    IF NOT is_good THEN
        RAISE EXCEPTION 'invalid age: "%"', age
            USING ERRCODE = 'invalid_parameter_value',
                  DETAIL = format('The periods of table "%s" are those of a column of type %s.', relation, target.column_type),
                  HINT = CASE WHEN is_number THEN 'Give a number above 0.' ELSE 'Give an interval, as in ''30 days''.' END;
    END IF;
END
$$;
REVOKE ALL ON FUNCTION strata.check_tier_age(regclass, text) FROM PUBLIC;
COMMENT ON FUNCTION strata.check_tier_age(regclass, text) IS 'raises an error unless leaves of the table can have this age';

-- The first worker that lacks one of the two tablespaces; no row if none does.
CREATE FUNCTION strata.find_missing_tier(OUT worker name, OUT tablespace text)
    RETURNS SETOF record
    LANGUAGE sql VOLATILE
    SET search_path = pg_catalog, pg_temp
AS $$
    SELECT w.name, answer.result
      FROM (SELECT * FROM strata.worker ORDER BY worker_id OFFSET 0) AS w
     CROSS JOIN LATERAL strata.run_on_worker(
               w.worker_id,
               'SELECT t.name FROM (VALUES (''hot''), (''cold'')) AS t (name)'
               ' WHERE NOT EXISTS (SELECT FROM pg_catalog.pg_tablespace AS s'
               ' WHERE s.spcname OPERATOR(pg_catalog.=) t.name)', false) AS answer
     WHERE answer.success AND answer.result IS NOT NULL
     LIMIT 1
$$;
REVOKE ALL ON FUNCTION strata.find_missing_tier() FROM PUBLIC;
COMMENT ON FUNCTION strata.find_missing_tier() IS 'a worker without tablespace hot or cold, if there is one';

CREATE FUNCTION strata.set_tier_policy(
    relation regclass, mode text, age text DEFAULT NULL, tier text DEFAULT NULL,
    index_tier text DEFAULT 'hot', residence interval DEFAULT '6 hours') RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    set_relation regclass := relation;
    missing record;
BEGIN
    PERFORM strata.tier_policy_target(relation);
    IF mode IS NULL OR mode NOT IN ('age', 'heat', 'pinned', 'none') THEN
        RAISE EXCEPTION 'invalid mode of a tier policy: "%"', mode
            USING ERRCODE = 'invalid_parameter_value', HINT = 'Modes are age, heat, pinned, and none.';
    END IF;
    IF index_tier IS NULL OR index_tier NOT IN ('hot', 'follow') THEN
        RAISE EXCEPTION 'invalid index_tier: "%"', index_tier
            USING ERRCODE = 'invalid_parameter_value',
                  HINT = 'hot: indexes stay where they are; follow: they move with their leaf.';
    END IF;
    IF residence IS NULL OR now() + residence < now() THEN
        RAISE EXCEPTION 'invalid residence: "%"', residence
            USING ERRCODE = 'invalid_parameter_value', HINT = 'Give the time for which a leaf stays where it was moved.';
    END IF;
    IF (mode = 'pinned') <> (tier IS NOT NULL) OR tier NOT IN ('hot', 'cold') THEN
        RAISE EXCEPTION 'invalid tier of mode "%": "%"', mode, tier
            USING ERRCODE = 'invalid_parameter_value', HINT = 'Mode pinned has tier hot or cold, others have none.';
    END IF;
    IF mode = 'age' THEN
        PERFORM strata.check_tier_age(relation, age);
    ELSIF age IS NOT NULL THEN
        RAISE EXCEPTION 'mode "%" has no age', mode
            USING ERRCODE = 'invalid_parameter_value', HINT = 'Use mode => ''age''.';
    END IF;
    DELETE FROM strata.tier_policy AS p WHERE p.relation = set_relation;
    IF mode <> 'none' THEN
        SELECT * INTO missing FROM strata.find_missing_tier();
        IF FOUND THEN
            RAISE EXCEPTION 'worker "%" has no tablespace "%"', missing.worker, missing.tablespace
                USING ERRCODE = 'object_not_in_prerequisite_state',
                      DETAIL = 'Every worker needs tablespaces hot and cold, on its fast and its slow disk.',
                      HINT = format('Run CREATE TABLESPACE %I LOCATION ... there.', missing.tablespace);
        END IF;
        INSERT INTO strata.tier_policy VALUES (set_relation, mode, age, tier, index_tier, residence);
    END IF;
    PERFORM strata.store_definition(set_relation);
END
$$;
COMMENT ON FUNCTION strata.set_tier_policy(regclass, text, text, text, text, interval) IS
    'which leaves of a table belong on the fast disk: the young (age), the most read (heat), all or none (pinned)';

-- As the workers want them.
CREATE FUNCTION strata.tier_policies(
    OUT schema_name text, OUT table_name text, OUT mode text, OUT tier text, OUT cold_before text,
    OUT age numeric, OUT index_tier text, OUT residence interval)
    RETURNS SETOF record
    LANGUAGE sql STABLE
    SET search_path = pg_catalog, pg_temp
AS $$
    SELECT n.nspname, c.relname, p.mode, p.tier,
           CASE WHEN p.mode = 'age' AND NOT x.is_number
                THEN strata.period_bound(
                         -- the begin of a period, so that it changes only with the next one
                         strata.period_start(now() - p.age::interval, t.partition_interval::interval),
                         x.column_type, t.partition_unit) END,
           CASE WHEN p.mode = 'age' AND x.is_number THEN p.age::numeric END,
           p.index_tier, p.residence
      FROM strata.tier_policy AS p
      JOIN strata.distributed_table AS t ON t.relation = p.relation
      JOIN pg_class AS c ON c.oid = p.relation
      JOIN pg_namespace AS n ON n.oid = c.relnamespace
      LEFT JOIN pg_attribute AS a ON a.attrelid = t.relation AND a.attnum = t.partition_attribute
     CROSS JOIN LATERAL format_type(a.atttypid, NULL) AS f (column_type)
     CROSS JOIN LATERAL (SELECT f.column_type,
                                t.partition_unit = 'none' AND f.column_type IN ('smallint', 'integer', 'bigint'))
                     AS x (column_type, is_number)
     ORDER BY 1, 2
$$;
REVOKE ALL ON FUNCTION strata.tier_policies() FROM PUBLIC;
COMMENT ON FUNCTION strata.tier_policies() IS 'the policies of all tables, as the workers are told them';

-- Both ask each worker once, as the extension's owner; one that does not answer contributes no rows.
CREATE FUNCTION strata.tier_statistics(
    OUT worker_id integer, OUT relation regclass, OUT remainder integer, OUT leaf_name text, OUT tier text,
    OUT compression text, OUT bytes bigint, OUT heat float8, OUT last_access timestamptz,
    OUT next_tier text, OUT next_reason text)
    RETURNS SETOF record
    LANGUAGE sql SECURITY DEFINER ROWS 1000
    SET search_path = pg_catalog, pg_temp
AS $$
    SELECT w.worker_id, t.relation, l.remainder, l.leaf_name, l.tier, l.compression, l.bytes, l.heat,
           l.last_access, l.next_tier, l.next_reason
      FROM (SELECT * FROM strata.worker ORDER BY worker_id OFFSET 0) AS w
     CROSS JOIN LATERAL strata.run_on_worker(
               w.worker_id, 'SELECT json_agg(l) FROM strata_tiering.leaf_list() AS l', false) AS answer
     CROSS JOIN LATERAL json_to_recordset(CASE WHEN answer.success THEN answer.result::json END)
                     AS l (schema_name text, table_name text, remainder integer, leaf_name text, tier text,
                           compression text, bytes bigint, heat float8, last_access timestamptz,
                           next_tier text, next_reason text)
      JOIN pg_namespace AS n ON n.nspname = l.schema_name
      JOIN pg_class AS c ON c.relnamespace = n.oid AND c.relname = l.table_name
      JOIN strata.distributed_table AS t ON t.relation = c.oid
     WHERE strata.may_see(c.oid, strata.calling_role())
$$;
COMMENT ON FUNCTION strata.tier_statistics() IS
    'tiers, heat and next moves of all leaves, asked from the workers; of tables that the session''s role may see';

CREATE FUNCTION strata.tier_move_statistics(
    OUT worker name, OUT relation regclass, OUT partition text, OUT from_tier text, OUT to_tier text,
    OUT reason text, OUT bytes bigint, OUT heat float8, OUT state text, OUT begun timestamptz,
    OUT ended timestamptz, OUT bytes_written bigint, OUT error text)
    RETURNS SETOF record
    LANGUAGE sql SECURITY DEFINER ROWS 1000
    SET search_path = pg_catalog, pg_temp
AS $$
    SELECT w.name, t.relation, m.leaf_name, m.from_tier, m.to_tier, m.reason, m.bytes, m.heat, m.state, m.begun,
           m.ended, m.bytes_written, m.error
      FROM (SELECT * FROM strata.worker ORDER BY worker_id OFFSET 0) AS w
     CROSS JOIN LATERAL strata.run_on_worker(
               w.worker_id, 'SELECT json_agg(m) FROM strata_tiering.move_list() AS m', false) AS answer
     CROSS JOIN LATERAL json_to_recordset(CASE WHEN answer.success THEN answer.result::json END)
                     AS m (schema_name text, table_name text, leaf_name text, from_tier text, to_tier text,
                           reason text, bytes bigint, heat float8, state text, begun timestamptz,
                           ended timestamptz, bytes_written bigint, error text)
      JOIN pg_namespace AS n ON n.nspname = m.schema_name
      JOIN pg_class AS c ON c.relnamespace = n.oid AND c.relname = m.table_name
      JOIN strata.distributed_table AS t ON t.relation = c.oid
     WHERE strata.may_see(c.oid, strata.calling_role())
$$;
COMMENT ON FUNCTION strata.tier_move_statistics() IS
    'moves between tiers, asked from the workers; of tables that the session''s role may see';

CREATE VIEW strata.tier_moves AS SELECT * FROM strata.tier_move_statistics();
GRANT SELECT ON strata.tier_moves TO PUBLIC;
COMMENT ON VIEW strata.tier_moves IS
    'moves of leaves between tiers: why, when, and how they ended (running, done, failed, lost with its server)';

CREATE FUNCTION strata.tier_plan(
    relation regclass DEFAULT NULL, OUT worker name, OUT table_name regclass, OUT partition text,
    OUT from_tier text, OUT to_tier text, OUT reason text, OUT bytes bigint, OUT heat float8)
    RETURNS SETOF record
    LANGUAGE sql ROWS 100
    SET search_path = pg_catalog, pg_temp
AS $$
    SELECT w.name, x.relation, x.leaf_name, x.tier, x.next_tier, x.next_reason, x.bytes, x.heat
      FROM strata.tier_statistics() AS x
      JOIN strata.workers AS w ON w.worker_id = x.worker_id
     WHERE x.next_tier IS NOT NULL AND (tier_plan.relation IS NULL OR x.relation = tier_plan.relation)
     ORDER BY w.name, x.relation::text, x.leaf_name
$$;
COMMENT ON FUNCTION strata.tier_plan(regclass) IS
    'the moves that the policies ask for now, without making them; all tables'' if relation is NULL';
