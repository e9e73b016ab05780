"""Values of hundreds of megabytes, up to where PostgreSQL itself has its limit of 1 GB."""

from __future__ import annotations

import psycopg
import pytest

from extensions.columnar.test.twins import Twins

MEGABYTES_300 = 300 * 1000 * 1000

# by PostgreSQL's minor version
TOO_BIG = "tuple is too big|invalid memory alloc request size"

ROW = f"""
INSERT INTO t SELECT 2, repeat('0123456789', {MEGABYTES_300 // 10}), convert_to(repeat('abcdefghijkl', {MEGABYTES_300 // 12}), 'UTF8')
"""
DIGEST = "SELECT id, length(s), md5(s), length(b), md5(b) FROM t ORDER BY id"


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_values_of_300_megabytes(twins: Twins) -> None:
    twins.execute(
        "CREATE TABLE t (id integer PRIMARY KEY, s text, b bytea)",
        "INSERT INTO t VALUES (1, 'small', 'small')",
    )
    twins.same(ROW)
    twins.execute(
        "INSERT INTO t SELECT g, 'small ' || g, 'small' FROM generate_series(3, 2000) AS g"
    )
    twins.same(DIGEST)
    twins.same("SELECT id, right(s, 12), substr(b, 299999990) FROM t WHERE id = 2")
    twins.same("SELECT id, s, b FROM t WHERE length(s) < 100")
    twins.execute("UPDATE t SET id = 100002 WHERE id = 2")
    twins.same(DIGEST)
    twins.columnar.execute("SELECT strata_columnar.columnar_compact('t', everything => true)")
    twins.same(DIGEST)
    twins.execute("VACUUM FULL t")
    twins.same(DIGEST)
    twins.verify()


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_value_over_1_gigabyte_is_postgresqls_own_error(twins: Twins) -> None:
    twins.execute(
        "CREATE TABLE t (id integer, s text)", "INSERT INTO t SELECT 1, repeat('x', 600000000)"
    )
    twins.fails("INSERT INTO t SELECT 2, repeat('x', 1100000000)", "54000")
    twins.fails("UPDATE t SET s = s || s", "XX000")  # invalid memory alloc request size
    twins.same("SELECT id, length(s) FROM t")


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_row_over_1_gigabyte_is_a_clear_error(twins: Twins) -> None:
    """A heap has it in pieces; ours is a tuple on its way through the executor."""
    side = twins.columnar
    side.execute("CREATE TABLE t (id integer, s text, more text)")
    side.execute("INSERT INTO t SELECT 1, repeat('x', 600000000)")
    with pytest.raises(psycopg.Error, match=TOO_BIG):
        side.execute("UPDATE t SET more = s")
    with pytest.raises(psycopg.Error, match=TOO_BIG):
        side.execute("INSERT INTO t SELECT 2, s, s FROM t")
    assert side.execute("SELECT id, length(s), more FROM t") == [(1, 600000000, None)]
