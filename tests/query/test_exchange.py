"""What nodes send each other is written and read alike, whatever the user's settings are."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cluster import Cluster
from tests.pair import Pair, open_pair

STYLES = {
    "array_nulls": "SET array_nulls = off",
    "document": "SET xmloption = document",
    "rounded": "SET extra_float_digits = -8",
    "zones": "SET DateStyle = 'SQL, DMY'; SET timezone = 'Asia/Kolkata'",
    "german": "SET DateStyle = German; SET IntervalStyle = sql_standard; SET bytea_output = escape",
    "verbose": "SET DateStyle = 'Postgres, MDY'; SET IntervalStyle = postgres_verbose",
    "names": "SET quote_all_identifiers = on; SET standard_conforming_strings = off;"
    "SET transform_null_equals = on; SET xmlbinary = hex; SET lc_monetary = 'C'; SET escape_string_warning = off",
}
ROW = (
    "ARRAY[NULL, {0}], ARRAY['calm', NULL]::mood[], ARRAY['NULL', NULL, E'a\\\\\\\\b'], 'loose <a/>',"
    " ROW(0.1::float8 + 0.2, timestamptz '2024-11-24 04:30:00+00', interval '1 day' - interval '2 hours',"
    " 'x<a/>', ARRAY[{0}, NULL], decode('00ff41', 'hex'), 12.5::numeric::money, date '0099-02-01')::all_of_it,"
    " interval '-1 year' + interval '1 hour', 'pg_class'"
)


@pytest.fixture(scope="module")
def data(cluster: Cluster) -> Iterator[Pair]:
    with open_pair(cluster, "test_exchange") as made:
        made.execute(
            "CREATE TYPE mood AS ENUM ('calm', 'null');"
            "CREATE TYPE all_of_it AS (f float8, at timestamptz, i interval, x xml, n integer[], b bytea,"
            " m money, d date);"
            "CREATE TABLE t (k integer, n integer[], m mood[], s text[], x xml, c all_of_it, i interval,"
            " r regclass);"
            "CREATE TABLE texts (k integer, x text)"
        )
        made.distribute("t", "k")
        made.distribute("texts", "k")
        made.execute("INSERT INTO texts VALUES (1, '<a/>'), (2, 'loose')")
        yield made


@pytest.fixture(params=STYLES.values(), ids=STYLES)
def pair(data: Pair, request: pytest.FixtureRequest) -> Iterator[Pair]:
    data.execute(f"TRUNCATE t; {request.param}")
    yield data
    data.reset()
    data.execute("RESET ALL; DEALLOCATE ALL; SET search_path = test_exchange, public, strata")


def test_values_mean_the_same_on_all_nodes(pair: Pair):
    style = pair.ours.execute("SHOW xmloption").fetchone()[0]
    pair.execute("SET xmloption = content")
    for values in (
        f"SELECT g, {ROW.format('g')} FROM generate_series(1, 150) AS g",  # by COPY
        f"VALUES (201, {ROW.format('201')}), (202, {ROW.format('202')})",  # by INSERT
    ):
        pair.execute(f"INSERT INTO t {values}")
    pair.execute(f"SET xmloption = {style}")

    for query in (
        "SELECT * FROM t WHERE k IN (3, 4, 201)",
        "SELECT k FROM t WHERE n = ARRAY[NULL, 7]",
        "SELECT k FROM t WHERE n = ARRAY[NULL, 201] AND k = 201",
        "SELECT k FROM t WHERE m = ARRAY['calm', NULL]::mood[] AND k < 4",
        "SELECT s, s = ARRAY['NULL', NULL, E'a\\\\b'] FROM t WHERE k = 5",
        "SELECT k, ('{' || s[1] || '}')::text[] = ARRAY['NULL'] FROM t WHERE k < 5",
        # values that come here before something is done with them
        "SELECT (c).f = 0.1::float8 + 0.2, (c).at = timestamptz '2024-11-24 04:30:00+00', (c).i, c"
        " FROM (SELECT c FROM t ORDER BY k LIMIT 2) s",
        "SELECT min(f) = 0.1::float8 + 0.2 FROM (SELECT (c).f, random() FROM t OFFSET 0) s",
        "SELECT DISTINCT c::text, i::text FROM t WHERE k IN (1, 2)",
        "SELECT count(*) FROM t WHERE i < interval '-11 months'",
        "UPDATE t SET n = ARRAY[NULL, NULL, k] WHERE k = 6 RETURNING n, m, x, c",
        "SELECT count(*) FROM t WHERE r::oid = 'pg_class'::regclass",
        "SELECT k FROM texts WHERE x::xml IS NOT NULL",
        "SELECT k, x::xml IS DOCUMENT FROM texts",
    ):
        pair.same(query)


def test_kept_statements_follow_the_settings(pair: Pair):
    pair.execute(f"SET xmloption = content; INSERT INTO t VALUES (1, {ROW.format('1')})")
    pair.execute("SET plan_cache_mode = force_generic_plan")
    pair.execute("PREPARE q (integer[], interval) AS SELECT k, x, c FROM t WHERE n = $1 AND i < $2")
    for setting in ("array_nulls = on", "array_nulls = off", "array_nulls = on"):
        pair.execute(f"SET {setting}")
        pair.same("EXECUTE q (ARRAY[NULL, 1], interval '1 day')")
