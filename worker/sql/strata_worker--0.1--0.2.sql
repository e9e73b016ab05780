CREATE FUNCTION strata_worker.accept_replay() RETURNS void
    LANGUAGE c
    AS 'MODULE_PATHNAME', 'strata_worker_accept_replay';
REVOKE ALL ON FUNCTION strata_worker.accept_replay() FROM PUBLIC;
COMMENT ON FUNCTION strata_worker.accept_replay() IS
    'on a standby: the session''s caches know of all that its snapshots show';

-- Versions that count as much as this one, or more, are those of a coordinator that has been replaced by one that did not know of
-- them: nobody may take them for newer ones.
CREATE OR REPLACE FUNCTION strata_worker.record_schema_version(version bigint) RETURNS void
    LANGUAGE plpgsql STRICT SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    PERFORM strata_worker.check_own_statement('record_schema_version');
    INSERT INTO strata_worker.schema_version VALUES (version) ON CONFLICT DO NOTHING;
    IF current_setting('transaction_isolation') = 'read committed' THEN
        DELETE FROM strata_worker.schema_version AS v
         WHERE v.version IN (SELECT o.version FROM strata_worker.schema_version AS o
                              WHERE (o.version >> 32 < (record_schema_version.version >> 32) - 100
                                     OR o.version >> 32 >= record_schema_version.version >> 32)
                                AND o.version <> record_schema_version.version
                                FOR UPDATE SKIP LOCKED);
    END IF;
END
$$;

-- A standby of the coordinator has read something.
CREATE FUNCTION strata_worker.check_after_read(version bigint) RETURNS void
    LANGUAGE c STRICT
    AS 'MODULE_PATHNAME', 'strata_worker_check_after_read';
COMMENT ON FUNCTION strata_worker.check_after_read(bigint) IS
    'error if this worker has DDL that a standby of the coordinator has not';

-- A coordinator that logs in asks it: it must know all of them.
CREATE FUNCTION strata_worker.newest_change() RETURNS bigint
    LANGUAGE c
    AS 'MODULE_PATHNAME', 'strata_worker_newest_change';
COMMENT ON FUNCTION strata_worker.newest_change() IS
    'the number of the last DDL of the coordinator that this worker has committed';

-- The coordinator reads a standby of this worker, or one of its standbys reads any, and asks before each statement.  What a
-- standby lacks it lacks for a moment: it replays on, also what makes a new worker one.  It must have replayed so much, from a
-- primary on this timeline (0: any will do).  One that was promoted meanwhile has all there is.  A primary may be about to commit
-- what the coordinator's standby has replayed already.
CREATE FUNCTION strata_worker.check_before_read(id uuid, version bigint, "position" pg_lsn, timeline integer) RETURNS void
    LANGUAGE plpgsql STRICT SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    replayed CONSTANT pg_lsn := pg_last_wal_replay_lsn();
BEGIN
    PERFORM strata_worker.check_session(id);
    IF NOT EXISTS (SELECT FROM strata_worker.schema_version AS v WHERE v.version = check_before_read.version) THEN
        IF NOT pg_is_in_recovery() THEN
            RAISE EXCEPTION 'the worker does not have the schema yet that the coordinator''s standby has'
                USING ERRCODE = 'serialization_failure',
                      DETAIL = format('It lacks change number %s of the schema.', version >> 32),
                      HINT = 'The transaction might succeed if retried.';
        END IF;
        RAISE EXCEPTION 'the standby has not replayed the schema that the cluster has'
            USING ERRCODE = 'object_not_in_prerequisite_state',
                  DETAIL = format('It lacks change number %s of the schema, the coordinator''s last one.', version >> 32),
                  HINT = 'Wait until it has replayed more, or let strata.read_from be ''any''.';
    END IF;
    PERFORM strata_worker.accept_replay();
    IF timeline = 0 OR NOT pg_is_in_recovery() THEN
        RETURN;
    ELSIF replayed < "position" THEN
        RAISE EXCEPTION 'the standby is too far behind'
            USING ERRCODE = 'object_not_in_prerequisite_state',
                  DETAIL = format('It has replayed up to %s, and its primary was at %s strata.max_staleness ago.',
                                  replayed, "position"),
                  HINT = 'Let strata.max_staleness be longer, or strata.read_from be ''any''.';
    ELSIF NOT EXISTS (SELECT FROM pg_stat_wal_receiver AS r WHERE r.received_tli = timeline) THEN
        RAISE EXCEPTION 'the standby does not receive WAL of the worker''s primary'
            USING ERRCODE = 'object_not_in_prerequisite_state',
                  DETAIL = format('The primary is on timeline %s. A standby that reads an archive cannot tell how old it is.', timeline),
                  HINT = 'Let strata.max_staleness be -1, or strata.read_from be ''any''.';
    END IF;
END
$$;
COMMENT ON FUNCTION strata_worker.check_before_read(uuid, bigint, pg_lsn, integer) IS
    'error unless this server shows the schema that the coordinator has, and has replayed so much of its primary''s WAL';

-- What is attached is a part, whatever it is called: PostgreSQL has named what CREATE INDEX makes.  The rest is known by the end of
-- its name, which is made from what no renaming changes: a repeated command finds it, and no other index of the same name does.
CREATE OR REPLACE FUNCTION strata_worker.index_parts(
    table_name text, index_name text,
    OUT part regclass, OUT parent regclass, OUT leaf boolean, OUT level integer,
    OUT schema_name name, OUT part_index name, OUT index_oid oid)
    RETURNS SETOF record
    LANGUAGE sql STABLE
    SET search_path = pg_catalog, pg_temp
AS $$
    WITH RECURSIVE part AS (
        SELECT c.oid::regclass AS relid, p.parentrelid, coalesce(p.isleaf, true) AS isleaf, coalesce(p.level, 0) AS level,
               n.nspname
          FROM to_regclass(table_name) AS t LEFT JOIN pg_partition_tree(t) AS p ON true
          JOIN pg_class AS c ON c.oid = coalesce(p.relid, t)
          JOIN pg_namespace AS n ON n.oid = c.relnamespace
    ), named AS (
        SELECT p.*, index_name::name COLLATE "C" AS part_index, own.oid AS index_oid, own.oid AS root
          FROM part AS p
          LEFT JOIN (pg_class AS own JOIN pg_index AS x ON x.indexrelid = own.oid)
                 ON x.indrelid = p.relid AND own.relname = index_name
         WHERE p.level = 0
        UNION ALL
        SELECT p.*, coalesce(own.relname, (start || suffix)::name), own.oid, above.root
          FROM named AS above
          JOIN part AS p ON p.parentrelid = above.relid
         CROSS JOIN concat('_', left(md5(above.root || '/' || p.relid::oid), 8)) AS suffix
         CROSS JOIN left(index_name, CASE WHEN octet_length(index_name) <= 54 THEN 54 ELSE 13 END) AS start
          LEFT JOIN LATERAL (
                    SELECT c.oid, c.relname
                      FROM pg_index AS x JOIN pg_class AS c ON c.oid = x.indexrelid
                      LEFT JOIN pg_inherits AS i ON i.inhrelid = c.oid AND i.inhparent = above.index_oid
                     WHERE x.indrelid = p.relid AND (i.inhrelid IS NOT NULL OR right(c.relname, 9) = suffix)
                     ORDER BY i.inhrelid LIMIT 1) AS own ON true
    )
    SELECT n.relid, n.parentrelid, n.isleaf, n.level, n.nspname, n.part_index, n.index_oid
      FROM named AS n
$$;
COMMENT ON FUNCTION strata_worker.index_parts(text, text) IS
    'the table and its partitions with their parts of an index, or the names for those that do not exist';

-- While a shard moves.  VACUUM must not run since the first look.
CREATE FUNCTION strata_worker.heap_rows(
    relation regclass, since bigint, before bigint, OUT first_row bigint, OUT count bigint, OUT is_new boolean)
    RETURNS SETOF record
    LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE
    AS 'MODULE_PATHNAME', 'strata_worker_heap_rows';
REVOKE ALL ON FUNCTION strata_worker.heap_rows(regclass, bigint, bigint) FROM PUBLIC;
COMMENT ON FUNCTION strata_worker.heap_rows(regclass, bigint, bigint) IS
    'ranges of the numbers of a heap''s rows, and whether a snapshot that was pinned before did not see them';

-- A shard of a table with foreign keys arrives as a table apart, for attaching an empty one would lock until the end what the keys
-- point to.  The name of the condition is that of no other constraint.
CREATE FUNCTION strata_worker.prepare_attach(shard regclass, parent regclass, modulus integer, remainder integer)
    RETURNS void
    LANGUAGE plpgsql STRICT
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    EXECUTE format('ALTER TABLE %s ADD CONSTRAINT %I CHECK (satisfies_hash_partition(%s::oid, %s, %s, %I))', shard,
                   'strata_shard_' || pg_current_xact_id(), parent::oid, modulus, remainder,
                   (SELECT a.attname FROM pg_partitioned_table AS p
                      JOIN pg_attribute AS a ON a.attrelid = p.partrelid AND a.attnum = p.partattrs[0]
                     WHERE p.partrelid = parent));
END
$$;
REVOKE ALL ON FUNCTION strata_worker.prepare_attach(regclass, regclass, integer, integer) FROM PUBLIC;
COMMENT ON FUNCTION strata_worker.prepare_attach(regclass, regclass, integer, integer) IS
    'has a table take only rows of a shard, so that PostgreSQL need not read them when it becomes a partition in the same transaction';

-- Its rows satisfied the foreign keys where they come from, and what these point to moves along or is everywhere: they need
-- not be compared again.
CREATE FUNCTION strata_worker.attach_filled(shard regclass, parent regclass, modulus integer, remainder integer)
    RETURNS void
    LANGUAGE plpgsql STRICT
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    foreign_key record;
BEGIN
    FOR foreign_key IN
        SELECT c.conname, pg_get_constraintdef(c.oid) AS definition FROM pg_constraint AS c
         WHERE c.conrelid = parent AND c.contype = 'f' AND c.conparentid = 0 AND c.convalidated LOOP
        EXECUTE format('ALTER TABLE %s ADD CONSTRAINT %I %s NOT VALID', shard, foreign_key.conname, foreign_key.definition);
    END LOOP;
    UPDATE pg_constraint AS c SET convalidated = true
     WHERE c.conrelid = shard AND c.contype = 'f' AND NOT c.convalidated;
    EXECUTE format('ALTER TABLE %s ATTACH PARTITION %s FOR VALUES WITH (MODULUS %s, REMAINDER %s)',
                   parent, shard, modulus, remainder);
    EXECUTE format('ALTER TABLE %s DROP CONSTRAINT %I', shard, 'strata_shard_' || pg_current_xact_id());
    PERFORM strata_worker.follow_indexes(shard);
END
$$;
REVOKE ALL ON FUNCTION strata_worker.attach_filled(regclass, regclass, integer, integer) FROM PUBLIC;
COMMENT ON FUNCTION strata_worker.attach_filled(regclass, regclass, integer, integer) IS
    'makes a table with rows, for which prepare_attach() was called, a partition of one with foreign keys';

CREATE FUNCTION strata_worker.empty_leaf(leaf regclass) RETURNS void
    LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE
    AS 'MODULE_PATHNAME', 'strata_worker_empty_leaf';
REVOKE ALL ON FUNCTION strata_worker.empty_leaf(regclass) FROM PUBLIC;
COMMENT ON FUNCTION strata_worker.empty_leaf(regclass) IS
    'takes all rows from a partition, also if foreign keys point to them: they are on another worker now';

-- A shard leaves its table and stays here for a while, in a schema of its own (coordinator/src/stream/kept_shard.c).
-- Foreign keys would go on to be checked.
CREATE FUNCTION strata_worker.keep_shard(shard regclass, schema name) RETURNS void
    LANGUAGE plpgsql STRICT
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    parent CONSTANT regclass := (SELECT i.inhparent FROM pg_inherits AS i WHERE i.inhrelid = shard);
    place record;
    part regclass;
    foreign_key name;
BEGIN
    SELECT n.nspname AS schema, c.relname AS name, c.relkind = 'p' AS is_divided INTO place
      FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace WHERE c.oid = shard;
    EXECUTE format('CREATE SCHEMA %I', schema);
    FOR part IN SELECT p.relid FROM pg_partition_tree(shard) AS p LOOP
        EXECUTE format('ALTER TABLE %s SET SCHEMA %I', part, schema);
    END LOOP;
    IF place.is_divided THEN
        PERFORM strata_worker.rename_periods(shard, place.schema, place.name);
    END IF;
    EXECUTE format('ALTER TABLE %s DETACH PARTITION %s', parent, shard);
    FOR foreign_key IN SELECT c.conname FROM pg_constraint AS c
                        WHERE c.conrelid = shard AND c.contype = 'f' AND c.conparentid = 0 LOOP
        EXECUTE format('ALTER TABLE %s DROP CONSTRAINT %I', shard, foreign_key);
    END LOOP;
END
$$;
REVOKE ALL ON FUNCTION strata_worker.keep_shard(regclass, name) FROM PUBLIC;
COMMENT ON FUNCTION strata_worker.keep_shard(regclass, name) IS
    'takes a shard out of its table, into a new schema';

-- Its rows are compared with the foreign keys, for what these point to may have changed.
CREATE FUNCTION strata_worker.use_kept_shard(schema name, parent regclass, shard_name name, modulus integer, remainder integer)
    RETURNS void
    LANGUAGE plpgsql STRICT
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    new_schema CONSTANT name := (SELECT n.nspname FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
                                  WHERE c.oid = parent);
    kept record;
    part regclass;
BEGIN
    SELECT c.oid::regclass AS shard, c.relname AS name, c.relkind = 'p' AS is_divided INTO kept
      FROM pg_class AS c
     WHERE c.relnamespace = schema::text::regnamespace AND c.relkind IN ('r', 'p') AND NOT c.relispartition;
    FOR part IN SELECT c.oid FROM pg_class AS c
                 WHERE c.relnamespace = schema::text::regnamespace AND c.relkind IN ('r', 'p') LOOP
        EXECUTE format('ALTER TABLE %s SET SCHEMA %I', part, new_schema);
    END LOOP;
    IF kept.name <> shard_name THEN
        EXECUTE format('ALTER TABLE %s RENAME TO %I', kept.shard, shard_name);
    END IF;
    EXECUTE format('ALTER TABLE %s ATTACH PARTITION %s FOR VALUES WITH (MODULUS %s, REMAINDER %s)',
                   parent, kept.shard, modulus, remainder);
    IF kept.is_divided THEN
        PERFORM strata_worker.rename_periods(kept.shard, schema, kept.name);
    END IF;
    FOR part IN SELECT p.relid FROM pg_partition_tree(kept.shard) AS p WHERE p.isleaf LOOP
        PERFORM strata_worker.follow_indexes(part);
    END LOOP;
    EXECUTE format('DROP SCHEMA %I', schema);
END
$$;
REVOKE ALL ON FUNCTION strata_worker.use_kept_shard(name, regclass, name, integer, integer) FROM PUBLIC;
COMMENT ON FUNCTION strata_worker.use_kept_shard(name, regclass, name, integer, integer) IS
    'makes what keep_shard() has put into a schema a partition again';

CREATE FUNCTION strata_worker.drop_kept_shard(name text) RETURNS void
    LANGUAGE plpgsql STRICT
    SET search_path = pg_catalog, pg_temp
    SET client_min_messages = warning
AS $$
DECLARE
    schema name;
BEGIN
    FOR schema IN SELECT n.nspname FROM pg_namespace AS n WHERE starts_with(n.nspname, name || '_') LOOP
        EXECUTE format('DROP SCHEMA %I CASCADE', schema);
    END LOOP;
    PERFORM strata_worker.forget_periods();
END
$$;
REVOKE ALL ON FUNCTION strata_worker.drop_kept_shard(text) FROM PUBLIC;
COMMENT ON FUNCTION strata_worker.drop_kept_shard(text) IS
    'drops the tables of a shard that keep_shard() has kept';

-- Before a shard comes.
CREATE FUNCTION strata_worker.free_space(
    OUT place text, OUT is_wal boolean, OUT device bigint, OUT free_bytes bigint)
    RETURNS SETOF record
    LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE
    AS 'MODULE_PATHNAME', 'strata_worker_free_space';
REVOKE ALL ON FUNCTION strata_worker.free_space() FROM PUBLIC;
COMMENT ON FUNCTION strata_worker.free_space() IS
    'where new tables and WAL are written, the number of the file system, and how many bytes are free there';
