-- ---------------------------------------------------------------------------
-- Content of a table in two numbers, to compare the copies of reference tables.
-- ---------------------------------------------------------------------------

-- The sum of row hashes does not depend on the rows' order; the settings that
-- shape text output are fixed, so equal copies give equal sums on every node.
-- record_out() and not a cast: the table's owner may have defined one, and this
-- runs as a superuser; nor can a column's name hide it.
CREATE FUNCTION strata.table_checksum(relation regclass, OUT row_count bigint, OUT checksum numeric)
    LANGUAGE plpgsql STABLE STRICT
    SET search_path = pg_catalog, pg_temp
    SET datestyle = 'ISO, YMD'
    SET intervalstyle = 'postgres'
    SET timezone = 'UTC'
    SET bytea_output = 'hex'
    SET extra_float_digits = 1
AS $$
DECLARE
    -- the rows of children are theirs
    is_parent boolean := (SELECT c.relhassubclass AND c.relkind = 'r' FROM pg_class AS c WHERE c.oid = relation);
BEGIN
    EXECUTE format('SELECT count(*), COALESCE(sum(hashtextextended(textin(record_out(t.*)), 0)::numeric), 0)
                      FROM %s%s AS t',
                   CASE WHEN is_parent THEN 'ONLY ' ELSE '' END, relation)
       INTO row_count, checksum;
END
$$;
COMMENT ON FUNCTION strata.table_checksum(regclass) IS
    'number of rows and an order-independent checksum of a table, equal on every node';
