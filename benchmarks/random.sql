-- Random numbers for generators of rows, by DuckDB: the same key and use always give the same number.
--
-- A key is the number of a row or of what the row is about; a use is a number below 64 that sets this
-- use of the key apart from others.

-- in [0, 1)
CREATE MACRO uniform(key, use) AS (hash(key * 64 + use) >> 11) / 9007199254740992.0;

-- in [0, n), small ones more often: 1 would be uniform
CREATE MACRO skewed(key, use, n, skew) AS floor(n * pow(uniform(key, use), skew))::bigint;

CREATE MACRO number_of(key, use) AS (hash(key * 64 + use) >> 1)::bigint;
