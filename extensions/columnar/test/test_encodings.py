"""Each encoding of the format is chosen for the data it is for, and gives the rows back."""

from __future__ import annotations

import pytest

from extensions.columnar.test.twins import Twins

ROWS = 20_000

# encoding -> type and value of row g
MADE_FOR = {
    "constant": ("integer", "42"),
    "rle": ("integer", "g / 300"),
    "for": ("integer", "(g * 7919) % 1000"),
    "pfor": ("bigint", "CASE g % 100 WHEN 0 THEN g * 1000000007::bigint ELSE (g * 31) % 16 END"),
    "delta": ("bigint", "g * 1000::bigint + (g * 7919) % 7"),
    "scale": ("integer", "((g * 7919) % 50) * 100000"),
    "dictionary": ("text", "(ARRAY['red', 'green', 'blue'])[1 + (g * 7919) % 3]"),
    "bitmap": ("boolean", "(g * 7919) % 3 = 0"),
    "raw": ("uuid", "md5(g::text)::uuid"),
    "alp": ("double precision", "((g * 7919) % 100000) / 100.0"),
    "fsst": (
        "text",
        "'https://example.com/products/' || md5((g % 5000)::text) || '/reviews?page=' || g",
    ),
    "numeric64": ("numeric(12,2)", "(g * 7919) % 100000 / 100.0"),
    "numeric128": ("numeric(38,2)", "12345678901234567890123456789.01 * (1 + g % 1000)"),
}


@pytest.mark.parametrize("encoding", MADE_FOR)
def test_the_encoding_is_chosen_for_its_data(twins: Twins, encoding: str) -> None:
    type_, value = MADE_FOR[encoding]
    twins.execute(
        f"CREATE TABLE t (id integer, v {type_}, n {type_})",
        f"INSERT INTO t SELECT g, {value}, CASE WHEN g % 7 > 0 THEN {value} END"
        f" FROM generate_series(1, {ROWS}) AS g",
    )
    for column in "vn":
        ((chosen,),) = twins.columnar.execute(
            "SELECT array_agg(DISTINCT e) FROM strata_columnar.columnar_chunks('t') AS c,"
            f" unnest(c.encodings) AS e WHERE c.column_name = '{column}'"
        )
        assert encoding in chosen
    twins.same("SELECT * FROM t")
    twins.same("SELECT v, n FROM t WHERE id IN (1, 1023, 1024, 1025, 20000)")


def test_bounds_nulls_and_sums_of_the_chunks_are_the_columns_own(twins: Twins) -> None:
    side = twins.columnar
    side.execute("CREATE TABLE t (i integer, n numeric(10,2), f float8, s text, d date)")
    side.execute(
        "INSERT INTO t SELECT g - 500, g / 4.0, g / 8.0, 'word ' || g % 100, DATE '2000-01-01' + g"
        " FROM generate_series(1, 3000) AS g; INSERT INTO t DEFAULT VALUES"
    )
    side.execute("SELECT strata_columnar.columnar_compact('t')")
    chunks = side.execute(
        "SELECT column_name, nulls, min, max, sum::text FROM strata_columnar.columnar_chunks('t')"
    )
    assert chunks == [
        ("i", 1, "-499", "2500", "3001500"),
        ("n", 1, "0.25", "750.00", "1125375.00"),
        ("f", 1, "0.125", "375", None),
        ("s", 1, "word 0", "word 99", None),
        ("d", 1, "2000-01-02", "2008-03-19", None),
    ]
