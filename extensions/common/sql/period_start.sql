
-- ---------------------------------------------------------------------------
-- Periods: the same boundaries on every node, whatever its sessions' time zone is
-- ---------------------------------------------------------------------------

-- Months are counted from January 2000, all else from Monday, 1 January 2001, both in UTC, where
-- days have 24 hours.
CREATE FUNCTION strata.period_start(value timestamptz, step interval) RETURNS timestamptz
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
    SET search_path = pg_catalog, pg_temp
    SET timezone = 'UTC'
AS $$
    SELECT CASE WHEN months > 0
                THEN timestamptz '2000-01-01 00:00:00+00' + make_interval(months =>
                         (floor((extract(year FROM value) * 12 + extract(month FROM value) - 1 - 24000)
                                / months) * months)::integer)
                ELSE date_bin(step, value, timestamptz '2001-01-01 00:00:00+00') END
      FROM (SELECT (extract(year FROM step) * 12 + extract(month FROM step))::integer) AS s (months)
$$;
COMMENT ON FUNCTION strata.period_start(timestamptz, interval) IS
    'begin of the period of this length, in UTC, that a time belongs to';

CREATE FUNCTION strata.period_start(value bigint, step bigint) RETURNS bigint
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
    SET search_path = pg_catalog, pg_temp
AS $$
    SELECT value - ((value % step) + step) % step
$$;
COMMENT ON FUNCTION strata.period_start(bigint, bigint) IS
    'begin of the period of this length that a number belongs to';

-- A control column's value as text is the bound of a leaf.  unit: of numbers that are times ('seconds',
-- 'milliseconds', 'nanoseconds' since 1970), else 'none'.
CREATE FUNCTION strata.period_bound(value timestamptz, type text, unit text) RETURNS text
    LANGUAGE sql STABLE STRICT PARALLEL SAFE
    SET search_path = pg_catalog, pg_temp
    SET timezone = 'UTC'
    SET datestyle = 'ISO, YMD'
AS $$
    SELECT CASE WHEN unit <> 'none'
                THEN (extract(epoch FROM value)::numeric * CASE unit WHEN 'seconds' THEN 1
                          WHEN 'milliseconds' THEN 1000 ELSE 1000000000 END)::bigint::text
                WHEN type = 'date' THEN value::date::text
                WHEN type = 'timestamp without time zone' THEN value::timestamp::text
                ELSE value::text END
$$;
COMMENT ON FUNCTION strata.period_bound(timestamptz, text, text) IS
    'a time as a value of a control column of this type';

-- Runs as its caller, who may read the table.  What lies beyond all sense (infinity, too) is left to the
-- default partition.
CREATE FUNCTION strata.used_periods(relation regclass, control text, step text, unit text)
    RETURNS SETOF text
    LANGUAGE plpgsql STABLE STRICT
    SET search_path = pg_catalog, pg_temp
    SET timezone = 'UTC'
AS $$
DECLARE
    type text;
    value text;
BEGIN
    SELECT format_type(a.atttypid, NULL) INTO STRICT type
      FROM pg_attribute AS a WHERE a.attrelid = relation AND a.attname = control;
    IF unit = 'none' AND type IN ('integer', 'bigint') THEN
        RETURN QUERY EXECUTE format(
            'SELECT s::text FROM (SELECT DISTINCT strata.period_start(%1$I::bigint, %2$L::bigint) AS s FROM %3$s '
            'WHERE %1$I BETWEEN -8000000000000000000 AND 8000000000000000000) AS p ORDER BY p.s', control, step, relation);
        RETURN;
    END IF;
    value := CASE unit WHEN 'none' THEN format('%I::timestamptz', control)
                 ELSE format('(timestamptz ''epoch'' + (%I / %s::numeric)::float8 * interval ''1 second'')',
                             control, CASE unit WHEN 'seconds' THEN 1 WHEN 'milliseconds' THEN 1000
                                                ELSE 1000000000 END) END;
    RETURN QUERY EXECUTE format(
        'SELECT strata.period_bound(s, %2$L, %3$L) FROM (SELECT DISTINCT strata.period_start(%1$s, %4$L) AS s '
        'FROM %5$s WHERE %6$s) AS p ORDER BY p.s', value, type, unit, step, relation,
        CASE unit WHEN 'none' THEN format('%I BETWEEN ''4000-01-01 BC'' AND ''200000-01-01''', control)
                  ELSE format('%I / %s::numeric BETWEEN -60e9 AND 60e11', control,
                              CASE unit WHEN 'seconds' THEN 1 WHEN 'milliseconds' THEN 1000
                                        ELSE 1000000000 END) END);
END
$$;
COMMENT ON FUNCTION strata.used_periods(regclass, text, text, text) IS
    'begins of the periods that a table has rows of';
