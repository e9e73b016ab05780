-- ---------------------------------------------------------------------------
-- approx_count_distinct(x) and its parts.  They stand in schema strata on every
-- node, so that SQL written by the coordinator means the same everywhere.
-- Functions of postgresql-hll are bound by OID (SQL-standard bodies) where the
-- argument types allow it, hence they may live in any schema.
-- ---------------------------------------------------------------------------

CREATE FUNCTION strata.hll_hash(value boolean) RETURNS hll_hashval
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE RETURN hll_hash_boolean(value);
CREATE FUNCTION strata.hll_hash(value smallint) RETURNS hll_hashval
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE RETURN hll_hash_smallint(value);
CREATE FUNCTION strata.hll_hash(value integer) RETURNS hll_hashval
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE RETURN hll_hash_integer(value);
CREATE FUNCTION strata.hll_hash(value bigint) RETURNS hll_hashval
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE RETURN hll_hash_bigint(value);
CREATE FUNCTION strata.hll_hash(value oid) RETURNS hll_hashval
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE RETURN hll_hash_bigint(value::bigint);
CREATE FUNCTION strata.hll_hash(value bytea) RETURNS hll_hashval
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE RETURN hll_hash_bytea(value);
CREATE FUNCTION strata.hll_hash(value text) RETURNS hll_hashval
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE RETURN hll_hash_text(value);
CREATE FUNCTION strata.hll_hash(value "char") RETURNS hll_hashval
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE RETURN hll_hash_text(value::text);

CREATE FUNCTION strata.hll_from_bits(value bigint) RETURNS hll_hashval
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE RETURN value::hll_hashval;

-- pg_typeof(), but immutable: the type of an expression never changes.  And an OID: what names
-- objects of a node, as regtype does, is not sent to workers.
CREATE FUNCTION strata.type_of(value "any") RETURNS oid
    LANGUAGE internal IMMUTABLE PARALLEL SAFE AS 'pg_typeof';

-- Values of user-defined types.  PostgreSQL hashes the OID of an enum's label, which
-- differs between nodes: enums, and types that may contain them, are hashed as text.
CREATE FUNCTION strata.hll_hash_user_type(value anyelement) RETURNS hll_hashval
    LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF EXISTS (WITH RECURSIVE part (oid) AS (
                   SELECT strata.type_of(value)
                   UNION
                   SELECT CASE WHEN t.typtype = 'd' THEN t.typbasetype ELSE t.typelem END
                     FROM part JOIN pg_type AS t USING (oid))
               SELECT FROM part JOIN pg_type AS t USING (oid)
                WHERE t.typtype IN ('e', 'c', 'r', 'm')) THEN
        RETURN strata.hll_hash(value::text);
    END IF;
    RETURN strata.hll_from_bits(hash_array_extended(ARRAY[value], 0::bigint));
END
$$;

-- Every type without a function of its own: PostgreSQL's extended hash, reached
-- through a one-element array, so that what is equal (1.0 and 1.00) is counted once.
-- OIDs below 16384 are those of built-in types.  Inlined by the planner; therefore no
-- SET clause and not STRICT.
CREATE FUNCTION strata.hll_hash(value anyelement) RETURNS hll_hashval
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$ SELECT CASE
              WHEN value IS NOT DISTINCT FROM NULL THEN NULL
              WHEN strata.type_of(value) OPERATOR(pg_catalog.<) '16384'::pg_catalog.oid
              THEN strata.hll_from_bits(pg_catalog.hash_array_extended(ARRAY[value], 0::bigint))
              ELSE strata.hll_hash_user_type(value) END $$;

COMMENT ON FUNCTION strata.hll_hash(boolean) IS 'hash of a value for HyperLogLog, as hll_hash_boolean()';
COMMENT ON FUNCTION strata.hll_hash(smallint) IS 'hash of a value for HyperLogLog, as hll_hash_smallint()';
COMMENT ON FUNCTION strata.hll_hash(integer) IS 'hash of a value for HyperLogLog, as hll_hash_integer()';
COMMENT ON FUNCTION strata.hll_hash(bigint) IS 'hash of a value for HyperLogLog, as hll_hash_bigint()';
COMMENT ON FUNCTION strata.hll_hash(oid) IS 'hash of a value for HyperLogLog, as hll_hash_bigint()';
COMMENT ON FUNCTION strata.hll_hash(bytea) IS 'hash of a value for HyperLogLog, as hll_hash_bytea()';
COMMENT ON FUNCTION strata.hll_hash(text) IS 'hash of a value for HyperLogLog, as hll_hash_text()';
COMMENT ON FUNCTION strata.hll_hash("char") IS 'hash of a value for HyperLogLog, as hll_hash_text()';
COMMENT ON FUNCTION strata.hll_hash(anyelement) IS
    'hash of a value for HyperLogLog, by the type''s extended hash function';
COMMENT ON FUNCTION strata.hll_hash_user_type(anyelement) IS
    'hash of a value of a user-defined type for HyperLogLog, the same on every node';
COMMENT ON FUNCTION strata.type_of("any") IS 'OID of an expression''s type';
COMMENT ON FUNCTION strata.hll_from_bits(bigint) IS 'a 64-bit hash as HyperLogLog hash value';

-- NULL (no rows) counts as 0, as count() does.
CREATE FUNCTION strata.hll_estimate(sketch hll) RETURNS bigint
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN COALESCE(round(hll_cardinality(sketch))::bigint, 0);
COMMENT ON FUNCTION strata.hll_estimate(hll) IS
    'estimated number of distinct values, rounded; 0 for NULL';

CREATE FUNCTION strata.hll_combine(one hll, other hll) RETURNS hll
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE RETURN hll_union(one, other);
COMMENT ON FUNCTION strata.hll_combine(hll, hll) IS
    'combine function of approx_count_distinct(), as hll_union()';

CREATE FUNCTION strata.hll_put(sketch hll, hash hll_hashval) RETURNS hll
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE RETURN hll_add(sketch, hash);
COMMENT ON FUNCTION strata.hll_put(hll, hll_hashval) IS
    'adds a hash value to a sketch, as hll_add()';

CREATE FUNCTION strata.hll_accumulate(sketch hll, value anyelement) RETURNS hll
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
    AS $$ SELECT strata.hll_put(sketch, strata.hll_hash(value)) $$;
COMMENT ON FUNCTION strata.hll_accumulate(hll, anyelement) IS
    'transition function of approx_count_distinct()';

-- The initial state is the text of hll_empty() with postgresql-hll's default
-- parameters (log2m 11: a standard error of 2.3 %).  The planner replaces the
-- aggregate by strata.hll_estimate(hll_add_agg(strata.hll_hash(x))), which gives
-- the same number faster: hll_add_agg() keeps its sketch unpacked.
DO $do$
BEGIN
    EXECUTE format('CREATE AGGREGATE strata.approx_count_distinct(value anyelement) (
                        SFUNC = strata.hll_accumulate, STYPE = %s, INITCOND = %L,
                        COMBINEFUNC = strata.hll_combine, FINALFUNC = strata.hll_estimate,
                        PARALLEL = SAFE)',
                   pg_catalog.pg_typeof(hll_empty()), hll_empty());
END
$do$;
COMMENT ON AGGREGATE strata.approx_count_distinct(anyelement) IS
    'number of distinct values, estimated with HyperLogLog (standard error 2.3 %)';
