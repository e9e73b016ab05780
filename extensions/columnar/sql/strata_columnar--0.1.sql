-- Extension strata_columnar 0.1: the table access method `columnar` and what to ask of it.
\echo Use "CREATE EXTENSION strata_columnar" to load this file. \quit

DO $$
DECLARE
	other text;
BEGIN
	SELECT coalesce(e.extname, 'another installation')
	INTO other
	FROM pg_catalog.pg_am a
	LEFT JOIN pg_catalog.pg_depend d
		ON d.classid = 'pg_catalog.pg_am'::pg_catalog.regclass AND d.objid = a.oid AND d.deptype = 'e'
	LEFT JOIN pg_catalog.pg_extension e ON e.oid = d.refobjid
	WHERE a.amname = 'columnar';

	IF FOUND THEN
		RAISE EXCEPTION USING
			ERRCODE = 'duplicate_object',
			MESSAGE = 'access method "columnar" already exists in this database',
			DETAIL = format('It belongs to %s.', other),
			HINT = 'Convert its tables to heap and drop that extension first, or use another database.';
	END IF;
END
$$;

CREATE FUNCTION strata_columnar.columnar_handler(internal)
RETURNS table_am_handler
LANGUAGE C STRICT
AS 'MODULE_PATHNAME', 'columnar_handler';

COMMENT ON FUNCTION strata_columnar.columnar_handler(internal)
IS 'handler of the table access method columnar';

CREATE ACCESS METHOD columnar TYPE TABLE HANDLER strata_columnar.columnar_handler;

COMMENT ON ACCESS METHOD columnar IS 'compressed columns in row groups (Strata)';

-- ---- what a table consists of ----------------------------------------------------------------------

CREATE FUNCTION strata_columnar.columnar_row_groups(relation regclass)
RETURNS TABLE (
	group_id bigint,
	state text,
	first_row bigint,
	row_span bigint,
	rows bigint,
	deleted_rows bigint,
	bytes bigint,
	raw_bytes bigint,
	pages bigint,
	first_block bigint
)
LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED
AS 'MODULE_PATHNAME', 'columnar_row_groups';

COMMENT ON FUNCTION strata_columnar.columnar_row_groups(regclass)
IS 'the row groups of a columnar table: rows, those deleted, bytes, place in the file';

CREATE FUNCTION strata_columnar.columnar_chunks(relation regclass)
RETURNS TABLE (
	group_id bigint,
	column_name name,
	encodings text[],
	codec text,
	bytes bigint,
	raw_bytes bigint,
	nulls bigint,
	distinct_values bigint,
	bloom boolean,
	min text,
	max text,
	sum numeric
)
LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED
AS 'MODULE_PATHNAME', 'columnar_chunks';

COMMENT ON FUNCTION strata_columnar.columnar_chunks(regclass)
IS 'the column chunks of a columnar table: encodings, codec, bytes, NULLs, bounds (cut ones of text)';

CREATE FUNCTION strata_columnar.columnar_stats(
	relation regclass,
	OUT row_groups bigint,
	OUT inline_groups bigint,
	OUT rows bigint,
	OUT deleted_rows bigint,
	OUT bytes bigint,
	OUT raw_bytes bigint,
	OUT pages bigint,
	OUT file_pages bigint,
	OUT free_pages bigint
)
LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED
AS 'MODULE_PATHNAME', 'columnar_stats';

COMMENT ON FUNCTION strata_columnar.columnar_stats(regclass)
IS 'a columnar table in one row: row groups, rows, encoded bytes, pages used and free';

CREATE FUNCTION strata_columnar.columnar_verify(relation regclass)
RETURNS TABLE (group_id bigint, problem text)
LANGUAGE C STRICT VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'columnar_verify';

COMMENT ON FUNCTION strata_columnar.columnar_verify(regclass)
IS 'reads everything of a columnar table and returns what is damaged (no group_id: the metapage or the catalog); no row means intact';

-- ---- row numbers: what a copy needs that is made while the table is written --------------------------
-- Not for users: numbers tell of rows that policies hide.

CREATE FUNCTION strata_columnar.row_number(row_tid tid) RETURNS bigint
LANGUAGE C STRICT IMMUTABLE PARALLEL SAFE
AS 'MODULE_PATHNAME', 'columnar_row_number';
REVOKE ALL ON FUNCTION strata_columnar.row_number(tid) FROM PUBLIC;
COMMENT ON FUNCTION strata_columnar.row_number(tid)
IS 'the number of the row of a columnar table that has this ctid: its identity until the table is rewritten';

CREATE FUNCTION strata_columnar.row_tid(row_number bigint) RETURNS tid
LANGUAGE C STRICT IMMUTABLE PARALLEL SAFE
AS 'MODULE_PATHNAME', 'columnar_row_tid';
REVOKE ALL ON FUNCTION strata_columnar.row_tid(bigint) FROM PUBLIC;
COMMENT ON FUNCTION strata_columnar.row_tid(bigint) IS 'the ctid of the row with this number';

CREATE FUNCTION strata_columnar.row_tids(first_rows bigint[], counts bigint[]) RETURNS tid[]
LANGUAGE C STRICT IMMUTABLE PARALLEL SAFE
AS 'MODULE_PATHNAME', 'columnar_row_tids';
REVOKE ALL ON FUNCTION strata_columnar.row_tids(bigint[], bigint[]) FROM PUBLIC;
COMMENT ON FUNCTION strata_columnar.row_tids(bigint[], bigint[])
IS 'the ctids of ranges of row numbers';

CREATE FUNCTION strata_columnar.visible_rows(
	relation regclass, since bigint DEFAULT 0, OUT first_row bigint, OUT count bigint)
RETURNS SETOF record
LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED
AS 'MODULE_PATHNAME', 'columnar_visible_rows';
REVOKE ALL ON FUNCTION strata_columnar.visible_rows(regclass, bigint) FROM PUBLIC;
COMMENT ON FUNCTION strata_columnar.visible_rows(regclass, bigint)
IS 'ranges of the numbers, from `since` on, of the rows of a columnar table that the statement sees';

-- ---- maintenance -----------------------------------------------------------------------------------

CREATE FUNCTION strata_columnar.columnar_compact(
	relation regclass,
	everything boolean DEFAULT false,
	OUT groups_read bigint,
	OUT groups_written bigint,
	OUT rows_removed bigint
)
LANGUAGE C STRICT VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'columnar_compact';

COMMENT ON FUNCTION strata_columnar.columnar_compact(regclass, boolean)
IS 'merges small row groups and drops dead rows, beside readers and writers; everything => true writes all row groups again, by the options of today';

CREATE FUNCTION strata_columnar.columnar_recluster(relation regclass)
RETURNS bigint
LANGUAGE C STRICT VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'columnar_recluster';

COMMENT ON FUNCTION strata_columnar.columnar_recluster(regclass)
IS 'sorts all rows of a columnar table by its order_by option; readers go on, writers wait; returns the number of rows';

-- ---- options: security labels of provider strata_columnar, dumped and dropped with their table ------

CREATE FUNCTION strata_columnar.alter_columnar_table_set(
    relation regclass,
    compression text DEFAULT NULL,
    compression_level integer DEFAULT NULL,
    row_group_rows integer DEFAULT NULL,
    order_by text DEFAULT NULL,
    bloom text[] DEFAULT NULL
) RETURNS void
    LANGUAGE C VOLATILE CALLED ON NULL INPUT
AS 'MODULE_PATHNAME', 'alter_columnar_table_set';
COMMENT ON FUNCTION strata_columnar.alter_columnar_table_set(
    regclass, text, integer, integer, text, text[]
) IS 'sets options for row groups written from now on; those that are not named stay as they are';

CREATE FUNCTION strata_columnar.alter_columnar_table_reset(
    relation regclass,
    compression boolean DEFAULT false,
    compression_level boolean DEFAULT false,
    row_group_rows boolean DEFAULT false,
    order_by boolean DEFAULT false,
    bloom boolean DEFAULT false
) RETURNS void
    LANGUAGE C VOLATILE CALLED ON NULL INPUT
AS 'MODULE_PATHNAME', 'alter_columnar_table_reset';
COMMENT ON FUNCTION strata_columnar.alter_columnar_table_reset(
    regclass, boolean, boolean, boolean, boolean, boolean
) IS 'gives the named options back their defaults';

CREATE FUNCTION strata_columnar.columnar_options(
    relation regclass,
    OUT compression text,
    OUT compression_level integer,
    OUT row_group_rows integer,
    OUT order_by text,
    OUT bloom text[]
)
    LANGUAGE C STABLE STRICT
AS 'MODULE_PATHNAME', 'columnar_options';
COMMENT ON FUNCTION strata_columnar.columnar_options(regclass)
    IS 'the options in effect for a table: its own, those of its nearest ancestor, or the defaults';

CREATE VIEW strata_columnar.options AS
SELECT c.oid::pg_catalog.regclass AS relation,
       o.compression,
       o.compression_level,
       o.row_group_rows,
       o.order_by,
       o.bloom
FROM pg_catalog.pg_class c
JOIN pg_catalog.pg_am a ON a.oid = c.relam
CROSS JOIN LATERAL strata_columnar.columnar_options(c.oid::pg_catalog.regclass) o
WHERE a.amname = 'columnar' AND c.relkind IN ('r', 'm');
COMMENT ON VIEW strata_columnar.options
    IS 'the options in effect for every columnar table; order_by and bloom are null when there are none';
COMMENT ON COLUMN strata_columnar.options.relation IS 'the table or materialized view';
COMMENT ON COLUMN strata_columnar.options.compression IS 'rule: hot, cold, none, lz4 or zstd';
COMMENT ON COLUMN strata_columnar.options.compression_level IS 'level of zstd, where the rule uses it';
COMMENT ON COLUMN strata_columnar.options.row_group_rows IS 'rows of a row group at most';
COMMENT ON COLUMN strata_columnar.options.order_by IS 'rows are clustered by these columns when they are written';
COMMENT ON COLUMN strata_columnar.options.bloom IS 'columns with a Bloom filter in every row group';
GRANT SELECT ON strata_columnar.options TO PUBLIC;

GRANT USAGE ON SCHEMA strata_columnar TO PUBLIC;

-- ---- tables that move to another tablespace -------------------------------------------------------

CREATE TABLE strata_columnar.table_move (
    relation oid PRIMARY KEY,
    tablespace oid NOT NULL,
    files oid[] NOT NULL,
    started timestamptz NOT NULL DEFAULT pg_catalog.now()
);
REVOKE ALL ON strata_columnar.table_move FROM PUBLIC;
COMMENT ON TABLE strata_columnar.table_move
IS 'moves that have begun, with the numbers of their new files: what a crash leaves of these is removed';

CREATE FUNCTION strata_columnar.columnar_move_files(relation regclass, tablespace name, with_indexes boolean) RETURNS oid[]
LANGUAGE C STRICT VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'columnar_move_files';
REVOKE ALL ON FUNCTION strata_columnar.columnar_move_files(regclass, name, boolean) FROM PUBLIC;
COMMENT ON FUNCTION strata_columnar.columnar_move_files(regclass, name, boolean)
IS 'numbers for the files that a move of the table will make';

CREATE FUNCTION strata_columnar.columnar_move_run(
    relation regclass, tablespace name, files oid[], recompress boolean, bytes_per_second bigint,
    patience bigint, with_indexes boolean
) RETURNS bigint
LANGUAGE C VOLATILE PARALLEL UNSAFE CALLED ON NULL INPUT
AS 'MODULE_PATHNAME', 'columnar_move_run';
REVOKE ALL ON FUNCTION strata_columnar.columnar_move_run(regclass, name, oid[], boolean, bigint, bigint, boolean)
FROM PUBLIC;
COMMENT ON FUNCTION strata_columnar.columnar_move_run(regclass, name, oid[], boolean, bigint, bigint, boolean)
IS 'the second half of move_columnar_table()';

CREATE FUNCTION strata_columnar.columnar_move_forget(tablespace oid, files oid[]) RETURNS integer
LANGUAGE C STRICT VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'columnar_move_forget';
REVOKE ALL ON FUNCTION strata_columnar.columnar_move_forget(oid, oid[]) FROM PUBLIC;
COMMENT ON FUNCTION strata_columnar.columnar_move_forget(oid, oid[])
IS 'removes those of the files that no relation uses; returns how many';

-- A row that a move in progress has locked is left alone.
CREATE FUNCTION strata_columnar.forget_moves(only_of oid DEFAULT NULL) RETURNS integer
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    begun record;
    removed integer := 0;
BEGIN
    FOR begun IN
        SELECT m.* FROM strata_columnar.table_move AS m
         WHERE only_of IS NULL OR m.relation = only_of
           FOR UPDATE SKIP LOCKED
    LOOP
        removed := removed + strata_columnar.columnar_move_forget(begun.tablespace, begun.files);
        DELETE FROM strata_columnar.table_move AS m WHERE m.relation = begun.relation;
    END LOOP;
    RETURN removed;
END
$$;
REVOKE ALL ON FUNCTION strata_columnar.forget_moves(oid) FROM PUBLIC;
COMMENT ON FUNCTION strata_columnar.forget_moves(oid)
IS 'removes the files of moves that a crash has ended; returns how many';

-- A move is two transactions: what the first commits outlives a crash of the second.
CREATE FUNCTION strata_columnar.begin_move(relation regclass, tablespace name, with_indexes boolean) RETURNS oid[]
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    numbers oid[];
BEGIN
    PERFORM strata_columnar.forget_moves(relation);
    numbers := strata_columnar.columnar_move_files(relation, tablespace, with_indexes);
    INSERT INTO strata_columnar.table_move (relation, tablespace, files)
    SELECT begin_move.relation, t.oid, numbers
      FROM pg_tablespace AS t WHERE t.spcname = begin_move.tablespace;
    RETURN numbers;
END
$$;
REVOKE ALL ON FUNCTION strata_columnar.begin_move(regclass, name, boolean) FROM PUBLIC;
COMMENT ON FUNCTION strata_columnar.begin_move(regclass, name, boolean)
IS 'the first transaction of a move: remembers the numbers of the files that it will make, and returns them';

CREATE FUNCTION strata_columnar.finish_move(
    relation regclass, tablespace name, files oid[], recompress boolean, bytes_per_second bigint, patience bigint,
    with_indexes boolean
) RETURNS bigint
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    DELETE FROM strata_columnar.table_move AS m
     WHERE m.relation = finish_move.relation AND m.files = finish_move.files;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'another session took over the move of "%"', relation
            USING ERRCODE = 'lock_not_available';
    END IF;
    RETURN strata_columnar.columnar_move_run(
        relation, tablespace, files, recompress, bytes_per_second, patience, with_indexes);
END
$$;
REVOKE ALL ON FUNCTION strata_columnar.finish_move(regclass, name, oid[], boolean, bigint, bigint, boolean) FROM PUBLIC;
COMMENT ON FUNCTION strata_columnar.finish_move(regclass, name, oid[], boolean, bigint, bigint, boolean)
IS 'the second transaction of a move; patience in ms; returns the bytes written, without WAL';

CREATE PROCEDURE strata_columnar.move_columnar_table(
    relation regclass, tablespace name, recompress boolean DEFAULT true,
    bytes_per_second bigint DEFAULT NULL, patience interval DEFAULT '1 minute',
    with_indexes boolean DEFAULT false
)
LANGUAGE plpgsql
AS $$
DECLARE
    numbers pg_catalog.oid[] := strata_columnar.begin_move(relation, tablespace, with_indexes);
BEGIN
    COMMIT;
    -- whoever commits on the new files waits for the replicas to have them
    PERFORM pg_catalog.set_config('synchronous_commit', 'local', true);
    PERFORM strata_columnar.finish_move(
        relation, tablespace, numbers, recompress, bytes_per_second,
        (pg_catalog.date_part('epoch', patience) OPERATOR(pg_catalog.*) 1000)::bigint, with_indexes);
    COMMIT;
END
$$;
REVOKE ALL ON PROCEDURE strata_columnar.move_columnar_table(regclass, name, boolean, bigint, interval, boolean)
FROM PUBLIC;
COMMENT ON PROCEDURE strata_columnar.move_columnar_table(regclass, name, boolean, bigint, interval, boolean)
IS 'moves a columnar table, and on request those of its indexes that are with it, to another tablespace while it is in use';
