
-- ---------------------------------------------------------------------------
-- Periods: shards that are pg_partman sets
--
-- A shard with periods is PARTITION BY RANGE (control), with a default partition and a leaf per
-- period.  pg_partman knows it (part_config) and has made its first leaves; its own maintenance is
-- switched off.  What differs between pg_partman 4 and 5 is in partman_create_parent().
--
-- The functions are the cluster's owner's (SECURITY DEFINER), because pg_partman's tables are not the
-- users', and check who calls them.  Rows are written as the table's owner (worker/src/owner_command.c), and
-- guard_functions() is on while his tables are altered or read: his functions in constraints and indexes
-- must not run with more rights.
-- ---------------------------------------------------------------------------

-- pg_partman wants one, to copy indexes and parameters from.
CREATE TABLE strata_worker.period_template ();
REVOKE ALL ON strata_worker.period_template FROM PUBLIC;
COMMENT ON TABLE strata_worker.period_template IS 'what pg_partman takes as template of leaves: nothing';

CREATE FUNCTION strata_worker.execute_as_owner(relation regclass, command text) RETURNS bigint
    LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE
    AS 'MODULE_PATHNAME', 'strata_worker_execute_as_owner';
REVOKE ALL ON FUNCTION strata_worker.execute_as_owner(regclass, text) FROM PUBLIC;
COMMENT ON FUNCTION strata_worker.execute_as_owner(regclass, text) IS
    'runs an INSERT or DELETE with the rights of the relation''s owner, and fires no triggers; returns the rows it processed';

CREATE FUNCTION strata_worker.execute_keeping_settings(command text) RETURNS void
    LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE
    AS 'MODULE_PATHNAME', 'strata_worker_execute_keeping_settings';
REVOKE ALL ON FUNCTION strata_worker.execute_keeping_settings(text) FROM PUBLIC;
COMMENT ON FUNCTION strata_worker.execute_keeping_settings(text) IS
    'runs a command and takes back what it has done to the session''s settings';

CREATE FUNCTION strata_worker.check_shard_owner(shard regclass) RETURNS void
    LANGUAGE plpgsql STABLE STRICT
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_class AS c JOIN pg_inherits AS i ON i.inhrelid = c.oid
                    WHERE c.oid = shard AND pg_has_role(session_user, c.relowner, 'USAGE')) THEN
        RAISE EXCEPTION 'must be owner of table %', shard USING ERRCODE = 'insufficient_privilege';
    END IF;
END
$$;
REVOKE ALL ON FUNCTION strata_worker.check_shard_owner(regclass) FROM PUBLIC;
COMMENT ON FUNCTION strata_worker.check_shard_owner(regclass) IS
    'raises an error unless the session''s user may change this shard';

-- The schema of pg_partman, which is made when the first table needs it: one that no ordinary role owns, who would have
-- functions of hers called in the place of pg_partman's.
CREATE FUNCTION strata_worker.partman_schema() RETURNS name
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
    SET client_min_messages = warning
AS $$
DECLARE
    found name := (SELECT n.nspname FROM pg_extension AS e JOIN pg_namespace AS n ON n.oid = e.extnamespace
                    WHERE e.extname = 'pg_partman');
BEGIN
    IF found IS NULL THEN
        IF NOT EXISTS (SELECT FROM pg_available_extensions AS a WHERE a.name = 'pg_partman') THEN
            RAISE EXCEPTION 'extension "pg_partman" is not installed on this server'
                USING ERRCODE = 'undefined_file',
                      HINT = format('Install package postgresql-%s-partman on all nodes.',
                                    current_setting('server_version_num')::integer / 10000);
        END IF;
        found := 'partman';
        WHILE EXISTS (SELECT FROM pg_namespace AS n JOIN pg_roles AS r ON r.oid = n.nspowner
                       WHERE n.nspname = found AND NOT r.rolsuper) LOOP
            found := found || '_';
        END LOOP;
        EXECUTE format('CREATE SCHEMA IF NOT EXISTS %I', found);
        EXECUTE format('CREATE EXTENSION IF NOT EXISTS pg_partman WITH SCHEMA %I', found);
    END IF;
    RETURN found;
END
$$;
REVOKE ALL ON FUNCTION strata_worker.partman_schema() FROM PUBLIC;
COMMENT ON FUNCTION strata_worker.partman_schema() IS
    'the schema of extension pg_partman, which is created if it does not exist';

-- The one place that knows of pg_partman's versions.  pg_partman leaves a search_path of its own in the
-- session, which outlives a SET clause of a function that calls it.
CREATE FUNCTION strata_worker.partman_create_parent(
    shard_name text, control text, step text, unit text, premake integer, first text) RETURNS void
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    PERFORM strata_worker.execute_keeping_settings(format(
        'SELECT %I.create_parent(p_parent_table => %L, p_control => %L, p_interval => %L, p_epoch => %L, '
        'p_premake => %s, p_start_partition => %L, p_type => %L, p_automatic_maintenance => ''off'', '
        'p_template_table => ''strata_worker.period_template'', p_jobmon => false)',
        strata_worker.partman_schema(), shard_name, control, step, unit, premake, first,
        CASE WHEN (SELECT extversion FROM pg_extension WHERE extname = 'pg_partman') ~ '^4\.'
             THEN 'native' ELSE 'range' END));
END
$$;
REVOKE ALL ON FUNCTION
    strata_worker.partman_create_parent(text, text, text, text, integer, text) FROM PUBLIC;
COMMENT ON FUNCTION strata_worker.partman_create_parent(text, text, text, text, integer, text) IS
    'makes a shard that is partitioned by range a pg_partman set';

CREATE FUNCTION strata_worker.period_leaves(
    shard regclass, OUT leaf regclass, OUT lower text, OUT upper text, OUT is_default boolean)
    RETURNS SETOF record
    LANGUAGE sql STABLE STRICT
    SET search_path = pg_catalog, pg_temp
    SET timezone = 'UTC'
    SET datestyle = 'ISO, YMD'
AS $$
    SELECT c.oid::regclass, b.part[1], b.part[2], b.part IS NULL
      FROM pg_inherits AS i
      JOIN pg_class AS c ON c.oid = i.inhrelid
     CROSS JOIN LATERAL (SELECT regexp_match(pg_get_expr(c.relpartbound, c.oid),
                                             'FROM \(''?([^'')]*)''?\) TO \(''?([^'')]*)''?\)')) AS b (part)
     WHERE i.inhparent = shard
$$;
COMMENT ON FUNCTION strata_worker.period_leaves(regclass) IS
    'the leaves of a shard with their bounds, as text; the default partition has none';

-- What pg_partman and LIKE leave to do: owner, and what partitions do not inherit, as the default partition
-- has it; and that one, when it is new, as the table.
CREATE FUNCTION strata_worker.adopt_leaf(shard regclass, new_leaf regclass) RETURNS void
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    default_leaf CONSTANT oid := (SELECT p.partdefid FROM pg_partitioned_table AS p WHERE p.partrelid = shard);
    model CONSTANT regclass :=
        CASE WHEN new_leaf = default_leaf THEN pg_partition_root(shard) ELSE default_leaf END;
    item record;
BEGIN
    FOR item IN
        SELECT format('ALTER TABLE %s OWNER TO %I', new_leaf, pg_get_userbyid(p.relowner)) AS command
          FROM pg_class AS p JOIN pg_class AS c ON c.oid = new_leaf
         WHERE p.oid = shard AND c.relowner <> p.relowner
        UNION ALL
        SELECT format('ALTER TABLE %s SET (%s)', new_leaf, string_agg(
                   format('%I = %L', o.option_name, o.option_value), ', '))
          FROM pg_class AS m CROSS JOIN LATERAL pg_options_to_table(m.reloptions) AS o
         WHERE m.oid = model
        HAVING count(*) > 0
        UNION ALL
        SELECT format('ALTER TABLE %s ALTER COLUMN %I SET STATISTICS %s', new_leaf, a.attname, a.attstattarget)
          FROM pg_attribute AS a
         WHERE a.attrelid = model AND a.attnum > 0 AND NOT a.attisdropped
           AND a.attstattarget >= 0
        UNION ALL
        SELECT format('ALTER TABLE %s ALTER COLUMN %I SET (%s)', new_leaf, a.attname, string_agg(
                   format('%I = %L', o.option_name, o.option_value), ', '))
          FROM pg_attribute AS a CROSS JOIN LATERAL pg_options_to_table(a.attoptions) AS o
         WHERE a.attrelid = model AND a.attnum > 0 AND NOT a.attisdropped
         GROUP BY a.attname
        UNION ALL
        SELECT format('ALTER TABLE %s ALTER COLUMN %I SET COMPRESSION %s', new_leaf, a.attname,
                      CASE a.attcompression WHEN 'p' THEN 'pglz' ELSE 'lz4' END)
          FROM pg_attribute AS a
         WHERE a.attrelid = model AND a.attnum > 0 AND NOT a.attisdropped AND a.attcompression IN ('p', 'l')
        UNION ALL
        -- pg_partman's second check of numbers that are times: the bounds say the same, and exactly
        SELECT format('ALTER TABLE %s DROP CONSTRAINT %I', new_leaf, k.conname)
          FROM pg_constraint AS k JOIN pg_class AS c ON c.oid = k.conrelid
         WHERE k.conrelid = new_leaf AND k.contype = 'c' AND k.conislocal AND k.coninhcount = 0
           AND k.conname = (c.relname || '_partition_check')::name
    LOOP
        EXECUTE item.command;
    END LOOP;
    PERFORM strata_worker.follow_indexes(new_leaf);
END
$$;
REVOKE ALL ON FUNCTION strata_worker.adopt_leaf(regclass, regclass) FROM PUBLIC;
COMMENT ON FUNCTION strata_worker.adopt_leaf(regclass, regclass) IS
    'gives a leaf the owner and settings of its shard''s other leaves';

-- How a shard is divided, as pg_partman knows it; no row if it is not.
CREATE FUNCTION strata_worker.period_rule(
    shard regclass, OUT control name, OUT step text, OUT unit text, OUT premake integer,
    OUT suffix_format text, OUT type text, OUT is_time boolean)
    RETURNS SETOF record
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN QUERY EXECUTE format(
        'SELECT a.attname, p.partition_interval, p.epoch, p.premake, p.datetime_string, '
        '       format_type(a.atttypid, NULL), p.epoch <> ''none'' OR t.typcategory = ''D'' '
        '  FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace '
        '  JOIN %I.part_config AS p ON p.parent_table = n.nspname || ''.'' || c.relname '
        '  JOIN pg_partitioned_table AS r ON r.partrelid = c.oid '
        '  JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attnum = r.partattrs[0] '
        '  JOIN pg_type AS t ON t.oid = a.atttypid '
        ' WHERE c.oid = $1', strata_worker.partman_schema()) USING shard;
END
$$;
REVOKE ALL ON FUNCTION strata_worker.period_rule(regclass) FROM PUBLIC;
COMMENT ON FUNCTION strata_worker.period_rule(regclass) IS
    'control column (whatever it was called when pg_partman was told), interval and names of a shard''s periods';

CREATE FUNCTION strata_worker.unknown_periods() RETURNS SETOF regclass
    LANGUAGE sql VOLATILE
    SET search_path = pg_catalog, pg_temp
AS $$
    SELECT s.oid::regclass
      FROM pg_partitioned_table AS h
      JOIN pg_inherits AS i ON i.inhparent = h.partrelid
      JOIN pg_class AS s ON s.oid = i.inhrelid AND s.relkind = 'p'
     WHERE h.partstrat = 'h'
       -- period_rule() would create the extension
       AND CASE WHEN EXISTS (SELECT FROM pg_extension AS e WHERE e.extname = 'pg_partman')
                THEN NOT EXISTS (SELECT FROM strata_worker.period_rule(s.oid::regclass)) ELSE true END
$$;
REVOKE ALL ON FUNCTION strata_worker.unknown_periods() FROM PUBLIC;
COMMENT ON FUNCTION strata_worker.unknown_periods() IS
    'shards that are divided, of which pg_partman does not know: nobody makes or drops their periods';

-- Begin and end of the period in which a value (as text) lies.
CREATE FUNCTION strata_worker.period_of(
    value text, step text, unit text, type text, is_time boolean,
    OUT lower text, OUT upper text, OUT suffix_time timestamptz)
    LANGUAGE plpgsql STABLE
    SET search_path = pg_catalog, pg_temp
    SET timezone = 'UTC'
AS $$
DECLARE
    base timestamptz;
    number bigint;
BEGIN
    IF is_time THEN
        base := strata.period_start(
            CASE unit WHEN 'none' THEN value::timestamptz
                      ELSE to_timestamp(0) + floor(value::numeric / CASE unit WHEN 'seconds' THEN 1
                               WHEN 'milliseconds' THEN 1000 ELSE 1000000000 END)::float8
                                             * interval '1 second' END, step::interval);
        lower := strata.period_bound(base, type, unit);
        upper := strata.period_bound(base + step::interval, type, unit);
        suffix_time := base;
    ELSE
        number := strata.period_start(value::bigint, step::bigint);
        lower := number::text;
        upper := (number + step::bigint)::text;
    END IF;
END
$$;
COMMENT ON FUNCTION strata_worker.period_of(text, text, text, text, boolean) IS
    'bounds of the period that a value of a control column belongs to';

-- As pg_partman calls it.
CREATE FUNCTION strata_worker.period_leaf_name(
    shard regclass, lower text, suffix_time timestamptz, suffix_format text) RETURNS text
    LANGUAGE sql STABLE
    SET search_path = pg_catalog, pg_temp
    SET timezone = 'UTC'
AS $$
    SELECT format('%I.%I', n.nspname, c.relname || '_p' || coalesce(to_char(suffix_time, suffix_format), lower))
      FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace WHERE c.oid = shard
$$;
COMMENT ON FUNCTION strata_worker.period_leaf_name(regclass, text, timestamptz, text) IS
    'name of the leaf of a period';

-- Makes the leaf of the period in which a value lies, and takes the rows of that period out of the default
-- partition.  Returns the number of rows moved, NULL if the period was there.
-- The coordinator sees to it that nobody reads or writes the shard while rows move.
CREATE FUNCTION strata_worker.create_period(shard regclass, value text, may_move boolean) RETURNS bigint
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
    SET timezone = 'UTC'
    SET datestyle = 'ISO, YMD'
    SET client_min_messages = warning
AS $$
DECLARE
    rule record;
    period record;
    rest record;
    leaf_name text;
    columns text;
    misplaced boolean;
    moved bigint := 0;
BEGIN
    PERFORM strata_worker.guard_functions();
    SELECT * INTO STRICT rule FROM strata_worker.period_rule(shard);
    SELECT * INTO period FROM strata_worker.period_of(value, rule.step, rule.unit, rule.type, rule.is_time);
    leaf_name := strata_worker.period_leaf_name(shard, period.lower, period.suffix_time, rule.suffix_format);
    IF to_regclass(leaf_name) IS NOT NULL THEN
        RETURN NULL;
    END IF;
    SELECT c.oid::regclass AS leaf, am.amname,
           format('%I >= %L AND %I < %L', rule.control, period.lower, rule.control, period.upper) AS condition
      INTO STRICT rest
      FROM pg_partitioned_table AS p JOIN pg_class AS c ON c.oid = p.partdefid
      JOIN pg_am AS am ON am.oid = c.relam
     WHERE p.partrelid = shard;
    -- ATTACH needs this lock, too; taken first, nothing has been done when it is not to be had
    EXECUTE format('LOCK TABLE %s IN ACCESS EXCLUSIVE MODE', rest.leaf);
    EXECUTE format('SELECT EXISTS (SELECT FROM %s WHERE %s)', rest.leaf, rest.condition) INTO misplaced;
    IF misplaced AND NOT may_move THEN
        RETURN NULL;
    END IF;

    EXECUTE format('CREATE TABLE %s (LIKE %s INCLUDING CONSTRAINTS INCLUDING GENERATED INCLUDING STORAGE) USING %I',
                   leaf_name, shard, rest.amname);
    PERFORM strata_worker.adopt_leaf(shard, leaf_name::regclass);
    IF misplaced THEN
        SELECT string_agg(format('%I', a.attname), ', ' ORDER BY a.attnum) INTO columns
          FROM pg_attribute AS a
         WHERE a.attrelid = shard AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = '';
        moved := strata_worker.execute_as_owner(shard, format(
            'INSERT INTO %s (%s) SELECT %s FROM %s WHERE %s', leaf_name, columns, columns, rest.leaf, rest.condition));
        IF moved <> strata_worker.execute_as_owner(shard, format(
               'DELETE FROM %s WHERE %s', rest.leaf, rest.condition)) THEN
            RAISE EXCEPTION 'rows of table % were changed while they moved', rest.leaf;
        END IF;
        -- what is empty now gives its space back: nobody with an older snapshot may read the table any more.
        -- A leaf that foreign keys refer to cannot be truncated; its space is used again.
        EXECUTE format('SELECT EXISTS (SELECT FROM %s)', rest.leaf) INTO misplaced;
        IF NOT misplaced AND NOT EXISTS (SELECT FROM pg_constraint AS f WHERE f.confrelid = rest.leaf) THEN
            EXECUTE format('TRUNCATE ONLY %s', rest.leaf);
        END IF;
    END IF;
    EXECUTE format('ALTER TABLE %s ATTACH PARTITION %s FOR VALUES FROM (%L) TO (%L)',
                   shard, leaf_name, period.lower, period.upper);
    PERFORM strata_worker.follow_indexes(leaf_name::regclass);
    RETURN moved;
END
$$;
REVOKE ALL ON FUNCTION strata_worker.create_period(regclass, text, boolean) FROM PUBLIC;
COMMENT ON FUNCTION strata_worker.create_period(regclass, text, boolean) IS
    'makes the period that a value belongs to, with its rows from the default partition; returns their number, NULL if there was nothing to do';

-- What strata.create_distributed_table() and DDL call, as the table's owner.
CREATE FUNCTION strata_worker.create_periods(
    shard regclass, control name, step text, unit text, premake integer, access_method name,
    parameters text[], periods text[]) RETURNS integer
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
    SET default_table_access_method = heap
    SET timezone = 'UTC'
    SET datestyle = 'ISO, YMD'
    SET client_min_messages = warning
AS $$
DECLARE
    shard_name text;
    column_type text;
    rule record;
    period record;
    item record;
    default_leaf regclass;
    leaf_name text;
    made integer := 0;
    was_guarded boolean;
BEGIN
    was_guarded := strata_worker.guard_functions(true);
    PERFORM strata_worker.check_shard_owner(shard);
    SELECT n.nspname || '.' || c.relname, format_type(a.atttypid, NULL) INTO STRICT shard_name, column_type
      FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
      JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attname = control
     WHERE c.oid = shard;
    IF shard_name || control ~ '[''"\\]' OR shard_name ~ '\..*\.' THEN
        RAISE EXCEPTION 'pg_partman does not take the name %', shard_name
            USING ERRCODE = 'feature_not_supported', DETAIL = 'It contains dots or quotes.';
    END IF;
    -- what a table of this name that was dropped by hand has left
    EXECUTE format('DELETE FROM %I.part_config WHERE parent_table = $1', strata_worker.partman_schema())
        USING shard_name;

    PERFORM set_config('default_table_access_method', access_method, true);
    PERFORM strata_worker.partman_create_parent(
        shard_name, control, step, unit, premake,
        CASE WHEN unit <> 'none' OR column_type !~ 'int' THEN strata.period_start(now(), step::interval)::text
             ELSE coalesce(periods[cardinality(periods)], '0') END);
    -- many leaves at once are attached before the default partition, which else would be looked at each time
    SELECT * INTO STRICT rule FROM strata_worker.period_rule(shard);
    SELECT p.partdefid INTO STRICT default_leaf FROM pg_partitioned_table AS p WHERE p.partrelid = shard;
    EXECUTE format('ALTER TABLE %s DETACH PARTITION %s', shard, default_leaf);
    FOREACH leaf_name IN ARRAY periods LOOP
        SELECT * INTO period
          FROM strata_worker.period_of(leaf_name, rule.step, rule.unit, rule.type, rule.is_time);
        leaf_name := strata_worker.period_leaf_name(shard, period.lower, period.suffix_time, rule.suffix_format);
        IF to_regclass(leaf_name) IS NULL THEN
            EXECUTE format('CREATE TABLE %s PARTITION OF %s FOR VALUES FROM (%L) TO (%L) USING %I',
                           leaf_name, shard, period.lower, period.upper, access_method);
        END IF;
    END LOOP;
    EXECUTE format('ALTER TABLE %s ATTACH PARTITION %s DEFAULT', shard, default_leaf);
    IF cardinality(parameters) > 0 THEN
        EXECUTE format('ALTER TABLE %s SET (%s)', default_leaf, (
            SELECT string_agg(format('%I = %L', o.option_name, o.option_value), ', ')
              FROM pg_options_to_table(parameters) AS o));
    END IF;
    FOR item IN SELECT * FROM strata_worker.period_leaves(shard) AS l ORDER BY l.is_default DESC LOOP
        PERFORM strata_worker.adopt_leaf(shard, item.leaf);
        made := made + 1;
    END LOOP;
    PERFORM strata_worker.guard_functions(was_guarded);
    RETURN made;
END
$$;
COMMENT ON FUNCTION
    strata_worker.create_periods(regclass, name, text, text, integer, name, text[], text[]) IS
    'makes a shard that is partitioned by range a pg_partman set with these periods and those to come; returns the number of leaves';

CREATE FUNCTION strata_worker.own_leaves(shard regclass) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    PERFORM strata_worker.check_shard_owner(shard);
    PERFORM strata_worker.adopt_leaf(shard, l.leaf) FROM strata_worker.period_leaves(shard) AS l;
END
$$;
COMMENT ON FUNCTION strata_worker.own_leaves(regclass) IS
    'gives the leaves of a shard to the shard''s owner';

-- After the shard itself has another name or schema.
CREATE FUNCTION strata_worker.rename_periods(shard regclass, old_schema name, old_name name) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    shard_schema name;
    shard_name name;
    item record;
BEGIN
    PERFORM strata_worker.check_shard_owner(shard);
    SELECT n.nspname, c.relname INTO STRICT shard_schema, shard_name
      FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace WHERE c.oid = shard;
    IF to_regclass(format('%I.%I', old_schema, old_name)) IS NULL THEN
        EXECUTE format('UPDATE %I.part_config SET parent_table = $1 WHERE parent_table = $2',
                       strata_worker.partman_schema())
            USING shard_schema || '.' || shard_name, old_schema || '.' || old_name;
    END IF;
    FOR item IN SELECT l.leaf, shard_name || substr(c.relname, length(old_name) + 1) AS new_name
                  FROM strata_worker.period_leaves(shard) AS l JOIN pg_class AS c ON c.oid = l.leaf
                 WHERE starts_with(c.relname, old_name || '_') AND shard_name <> old_name
    LOOP
        EXECUTE format('ALTER TABLE %s RENAME TO %I', item.leaf, item.new_name);
    END LOOP;
END
$$;
COMMENT ON FUNCTION strata_worker.rename_periods(regclass, name, name) IS
    'has the leaves of a shard, and pg_partman, follow its new name';

CREATE FUNCTION strata_worker.forget_periods() RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF EXISTS (SELECT FROM pg_extension AS e WHERE e.extname = 'pg_partman') THEN
        EXECUTE format(
            'DELETE FROM %I.part_config AS p WHERE p.template_table = ''strata_worker.period_template'' '
            '   AND NOT EXISTS (SELECT FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace '
            '                    WHERE p.parent_table = n.nspname || ''.'' || c.relname)',
            strata_worker.partman_schema());
    END IF;
END
$$;
COMMENT ON FUNCTION strata_worker.forget_periods() IS
    'has pg_partman forget shards that do not exist any more';

-- What there is to do on this worker for a table: 'create' a period that holds `value` ahead of time, 'move'
-- the rows of such a period out of the default partition, 'drop' the leaf `value`.  Nothing is locked or
-- done here: each item is a transaction of its own, which finds out that it is too late.
-- A shard with very many leaves keeps what it has in the default partition: rows of all times, by mistake.
CREATE FUNCTION strata_worker.period_work(
    relation regclass, cutoff text, OUT shard regclass, OUT task text, OUT value text)
    RETURNS SETOF record
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
    SET timezone = 'UTC'
    SET datestyle = 'ISO, YMD'
AS $$
DECLARE
    most_leaves CONSTANT integer := 4000;
    rule record;
    leaves regclass[]; -- by their upper bounds, the default partition last
    lowers text[];
    uppers text[];
    number integer;
    current text;
BEGIN
    PERFORM strata_worker.guard_functions();
    FOR shard IN SELECT i.inhrelid FROM pg_inherits AS i WHERE i.inhparent = relation ORDER BY 1 LOOP
        SELECT * INTO rule FROM strata_worker.period_rule(shard);
        IF rule.control IS NULL THEN
            CONTINUE WHEN NOT EXISTS (SELECT FROM strata_worker.unknown_periods() AS u WHERE u = shard);
            RAISE EXCEPTION 'pg_partman does not know shard "%"', shard
                USING ERRCODE = 'object_not_in_prerequisite_state',
                      DETAIL = 'Its extension was dropped on this worker, or its table part_config was changed.',
                      HINT = 'Undistribute the table, and distribute it again.';
        END IF;
        SELECT array_agg(l.leaf ORDER BY place), array_agg(l.lower ORDER BY place), array_agg(l.upper ORDER BY place)
          INTO leaves, lowers, uppers
          FROM (SELECT x.*, row_number() OVER (ORDER BY x.is_default,
                           CASE WHEN rule.is_time AND rule.unit = 'none' THEN extract(epoch FROM x.upper::timestamptz)
                                ELSE x.upper::numeric END) AS place
                  FROM strata_worker.period_leaves(shard) AS x) AS l;
        number := cardinality(leaves);

        task := 'create';
        current := NULL;
        IF rule.is_time THEN
            current := strata.period_bound(now(), rule.type, rule.unit);
        ELSE
            FOR i IN REVERSE number - 1 .. 1 LOOP
                EXECUTE format('SELECT max(%I)::text FROM %s', rule.control, leaves[i]) INTO current;
                EXIT WHEN current IS NOT NULL;
            END LOOP;
        END IF;
        FOR i IN 0 .. CASE WHEN current IS NULL THEN -1 ELSE rule.premake END LOOP
            value := strata_worker.later_period(current, i, rule.step, rule.unit, rule.type, rule.is_time);
            IF value IS NOT NULL AND array_position(lowers, value) IS NULL THEN
                RETURN NEXT;
            END IF;
        END LOOP;

        task := 'move';
        IF number < most_leaves THEN
            FOR value IN SELECT p FROM strata.used_periods(leaves[number], rule.control, rule.step, rule.unit) AS p
                          LIMIT 100 LOOP
                RETURN NEXT;
            END LOOP;
        END IF;

        task := 'drop';
        FOR i IN 1 .. CASE WHEN cutoff IS NULL THEN 0 ELSE number - 1 END LOOP
            EXIT WHEN NOT strata_worker.is_not_after(uppers[i], cutoff, rule.type);
            value := leaves[i]::text;
            RETURN NEXT;
        END LOOP;
    END LOOP;
END
$$;
REVOKE ALL ON FUNCTION strata_worker.period_work(regclass, text) FROM PUBLIC;
COMMENT ON FUNCTION strata_worker.period_work(regclass, text) IS
    'periods of a table that are to be made, filled from the default partition, or dropped';

CREATE FUNCTION strata_worker.is_not_after(value text, cutoff text, type text) RETURNS boolean
    LANGUAGE plpgsql STABLE
    SET search_path = pg_catalog, pg_temp
    SET timezone = 'UTC'
AS $$
BEGIN
    RETURN CASE WHEN type IN ('integer', 'bigint') THEN value::bigint <= cutoff::bigint
                ELSE value::timestamptz <= cutoff::timestamptz END;
END
$$;
COMMENT ON FUNCTION strata_worker.is_not_after(text, text, text) IS
    'compares two values of a control column';

-- Begin of the period that is so many periods after the one of a value; NULL beyond what the type can hold.
CREATE FUNCTION strata_worker.later_period(
    value text, number integer, step text, unit text, type text, is_time boolean) RETURNS text
    LANGUAGE plpgsql STABLE
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    period record;
BEGIN
    SELECT * INTO period FROM strata_worker.period_of(value, step, unit, type, is_time);
    FOR i IN 1 .. number LOOP
        SELECT * INTO period FROM strata_worker.period_of(period.upper, step, unit, type, is_time);
    END LOOP;
    IF type = 'integer' AND period.upper::bigint > 2147483647 THEN
        RETURN NULL;
    END IF;
    RETURN period.lower;
EXCEPTION WHEN numeric_value_out_of_range OR datetime_field_overflow THEN
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION strata_worker.later_period(text, integer, text, text, text, boolean) IS
    'begin of the period so many periods after the one that a value belongs to';

CREATE FUNCTION strata_worker.leaf_list(
    OUT schema_name name, OUT table_name name, OUT remainder integer, OUT leaf_name name,
    OUT lower text, OUT upper text, OUT bytes bigint)
    RETURNS SETOF record
    LANGUAGE sql STABLE
    SET search_path = pg_catalog, pg_temp
    SET lock_timeout = '500ms'
AS $$
    SELECT n.nspname, root.relname,
           (regexp_match(pg_get_expr(shard.relpartbound, shard.oid), 'remainder ([0-9]+)'))[1]::integer,
           leaf.relname, l.lower, l.upper, pg_total_relation_size(leaf.oid)
      FROM pg_partitioned_table AS h
      JOIN pg_class AS root ON root.oid = h.partrelid
      JOIN pg_inherits AS i ON i.inhparent = root.oid
      JOIN pg_class AS shard ON shard.oid = i.inhrelid AND shard.relkind = 'p'
     CROSS JOIN LATERAL strata_worker.period_leaves(shard.oid) AS l
      JOIN pg_class AS leaf ON leaf.oid = l.leaf
      JOIN pg_namespace AS n ON n.oid = root.relnamespace
     WHERE h.partstrat = 'h' AND NOT root.relispartition
$$;
COMMENT ON FUNCTION strata_worker.leaf_list() IS
    'the leaves on this worker of shards with periods: bounds and sizes';
