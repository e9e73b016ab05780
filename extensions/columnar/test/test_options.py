"""Options of tables: set, shown, obeyed, dumped and restored, inherited by partitions, refused."""

from __future__ import annotations

import psycopg
import pytest

from extensions.columnar.test.servers import client_arguments, run_program
from extensions.columnar.test.twins import Side, Twins
from tests.cluster import Node

ALL = "compression => 'zstd', compression_level => 7, row_group_rows => 2048, order_by => 'k DESC, \"odd Name\"', bloom => '{k}'"
SHOWN = "SELECT compression, compression_level, row_group_rows, order_by, bloom FROM strata_columnar.options WHERE relation = 't'::regclass"
EXPECTED = [("zstd", 7, 2048, 'k DESC, "odd Name"', ["k"])]


@pytest.fixture
def table(twins: Twins) -> Side:
    side = twins.columnar
    side.execute('CREATE TABLE t (id integer, k integer, "odd Name" text)')
    return side


def fill(side: Side, rows: int = 10_000) -> None:
    side.execute(
        f"INSERT INTO t SELECT g, (g * 7919) % 1000, repeat('text ' || g, 4) FROM generate_series(1, {rows}) AS g"
    )


def group_rows(side: Side | Node) -> list[int]:
    query = side.query if isinstance(side, Node) else side.execute
    return [rows for (rows,) in query("SELECT rows FROM strata_columnar.columnar_row_groups('t')")]


def codecs(side: Side | Node) -> set[str]:
    query = side.query if isinstance(side, Node) else side.execute
    return {
        codec
        for (codec,) in query(
            "SELECT DISTINCT codec FROM strata_columnar.columnar_chunks('t') WHERE column_name <> 'id'"
        )
    }


def test_options_are_set_shown_and_reset(table: Side) -> None:
    table.execute(f"SELECT strata_columnar.alter_columnar_table_set('t', {ALL})")
    assert table.execute(SHOWN) == EXPECTED
    table.execute("SELECT strata_columnar.alter_columnar_table_set('t', compression => 'none')")
    assert table.execute(SHOWN) == [("none", *EXPECTED[0][1:])]
    table.execute(
        "SELECT strata_columnar.alter_columnar_table_reset('t', order_by => true, bloom => true, row_group_rows => true)"
    )
    assert table.execute(SHOWN) == [("none", 7, 131072, None, None)]


def test_options_follow_renamed_and_dropped_columns_and_roll_back(table: Side) -> None:
    table.execute("BEGIN")
    table.execute(f"SELECT strata_columnar.alter_columnar_table_set('t', {ALL})")
    table.execute("ROLLBACK")
    assert table.execute(SHOWN) == [("hot", 3, 131072, None, None)]
    table.execute(f"SELECT strata_columnar.alter_columnar_table_set('t', {ALL})")
    table.execute('ALTER TABLE t RENAME k TO kk; ALTER TABLE t DROP COLUMN "odd Name"')
    ((*_, order_by, bloom),) = table.execute(SHOWN)
    assert (order_by, bloom) == ("kk DESC", ["kk"])


def test_row_groups_have_the_size_and_the_codec_that_the_options_say(table: Side) -> None:
    fill(table)
    assert group_rows(table) == [10_000]
    table.execute(
        "SELECT strata_columnar.alter_columnar_table_set('t', row_group_rows => 4096, compression => 'none')"
    )
    table.execute("SELECT strata_columnar.columnar_compact('t', everything => true)")
    assert codecs(table) == {"none"}
    table.execute("TRUNCATE t")
    fill(table)
    assert group_rows(table) == [4096, 4096, 1808]
    for rule, codec in (("lz4", "lz4"), ("zstd", "zstd"), ("cold", "zstd")):
        table.execute(
            f"SELECT strata_columnar.alter_columnar_table_set('t', compression => '{rule}')"
        )
        table.execute("SELECT strata_columnar.columnar_compact('t', everything => true)")
        assert codec in codecs(table)


def test_order_by_sorts_what_is_written_and_recluster_all(twins: Twins) -> None:
    twins.execute('CREATE TABLE t (id integer PRIMARY KEY, k integer, "odd Name" text)')
    side = twins.columnar
    side.execute(
        "SELECT strata_columnar.alter_columnar_table_set('t', order_by => 'k', row_group_rows => 4096)"
    )
    for half in (0, 1):
        twins.execute(
            "INSERT INTO t SELECT g, (g * 7919) % 1000, 'x' || g"
            f" FROM generate_series(1 + {half} * 8000, 8000 + {half} * 8000) AS g"
        )
    in_order = "SELECT count(*) FROM (SELECT k < lag(k) OVER () AS back FROM t) AS s WHERE back"
    assert side.execute(in_order)[0][0] <= 4  # once between two row groups
    twins.execute("DELETE FROM t WHERE id % 10 = 0")
    assert side.execute("SELECT strata_columnar.columnar_recluster('t')") == [(14_400,)]
    assert side.execute(in_order) == [(0,)]
    twins.same("SELECT * FROM t")
    twins.execute("SET enable_seqscan = off; SET strata_columnar.enable_custom_scan = off")
    twins.same("SELECT * FROM t WHERE id BETWEEN 7000 AND 9000")
    twins.fails("INSERT INTO t VALUES (77, 0, '')", "23505")
    twins.execute("VACUUM t")
    twins.same("SELECT * FROM t WHERE id BETWEEN 7000 AND 9000")


def test_a_dump_restores_the_options_before_the_data(make_server) -> None:
    node = make_server()
    node.execute('CREATE TABLE t (id integer, k integer, "odd Name" text) USING columnar')
    node.execute(f"SELECT strata_columnar.alter_columnar_table_set('t', {ALL})")
    node.execute(
        "INSERT INTO t SELECT g, (g * 7919) % 1000, repeat('text ' || g, 4) FROM generate_series(1, 10000) AS g"
    )
    expected = node.query("SELECT * FROM t ORDER BY id")
    archive = node.root / "dump.custom"
    dump = run_program(
        node, "pg_dump", *client_arguments(node), "--format=custom", "--file", archive
    )
    assert dump == ""
    for jobs in ("1", "4"):
        node.execute("DROP DATABASE IF EXISTS restored")
        node.execute("CREATE DATABASE restored")
        run_program(
            node, "pg_restore", *client_arguments(node, "restored"), "--jobs", jobs, archive
        )
        with node.connect(dbname="restored") as connection:
            assert connection.execute(SHOWN).fetchall() == EXPECTED
            rows = connection.execute(
                "SELECT rows FROM strata_columnar.columnar_row_groups('t')"
            ).fetchall()
            assert rows == [(2048,)] * 4 + [(1808,)]
            chunks = connection.execute(
                "SELECT DISTINCT codec, bloom FROM strata_columnar.columnar_chunks('t') WHERE column_name = 'odd Name'"
            ).fetchall()
            assert chunks == [("zstd", False)]
            assert connection.execute(
                "SELECT bool_and(bloom) FROM strata_columnar.columnar_chunks('t') WHERE column_name = 'k'"
            ).fetchall() == [(True,)]
            assert connection.execute("SELECT * FROM t ORDER BY id").fetchall() == expected


def test_partitions_have_their_parents_options_unless_they_have_their_own(twins: Twins) -> None:
    side = twins.columnar
    side.execute(
        "CREATE TABLE p (id integer, k integer) PARTITION BY LIST (k);"
        "CREATE TABLE p1 PARTITION OF p FOR VALUES IN (1); CREATE TABLE p2 PARTITION OF p FOR VALUES IN (2)"
    )
    side.execute("SELECT strata_columnar.alter_columnar_table_set('p', compression => 'cold')")
    side.execute("SELECT strata_columnar.alter_columnar_table_set('p2', compression => 'none')")
    shown = "SELECT relation::text, compression FROM strata_columnar.options WHERE relation IN ('p1'::regclass, 'p2'::regclass) ORDER BY 1"
    assert side.execute(shown) == [("p1", "cold"), ("p2", "none")]
    side.execute("ALTER TABLE p DETACH PARTITION p1")
    assert side.execute(shown) == [("p1", "hot"), ("p2", "none")]


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ("compression => 'brotli'", "brotli"),
        ("compression_level => 99", "99"),
        ("row_group_rows => 5", "5"),
        ("row_group_rows => 1000000", "1000000"),
        ("order_by => 'nowhere'", "nowhere"),
        ("bloom => '{nowhere}'", "nowhere"),
        ("order_by => 'k k'", "k"),
    ],
)
def test_what_makes_no_sense_is_refused_by_name(table: Side, arguments: str, word: str) -> None:
    with pytest.raises(psycopg.Error) as error:
        table.execute(f"SELECT strata_columnar.alter_columnar_table_set('t', {arguments})")
    assert error.value.sqlstate in ("22023", "42703"), error.value
    assert word in str(error.value)


def test_only_the_owner_changes_options_and_compacts(twins: Twins) -> None:
    side = twins.columnar
    side.execute("CREATE TABLE t (id integer)")
    side.execute("DROP ROLE IF EXISTS columnar_stranger; CREATE ROLE columnar_stranger")
    try:
        side.execute(
            "GRANT USAGE ON SCHEMA {schema} TO columnar_stranger; SET ROLE columnar_stranger"
        )
        for call in (
            "alter_columnar_table_set('t', compression => 'none')",
            "columnar_compact('t')",
            "columnar_recluster('t')",
            "columnar_chunks('t')",
            "columnar_row_groups('t')",
            "columnar_stats('t')",
            "columnar_verify('t')",
        ):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                side.execute(f"SELECT * FROM strata_columnar.{call}")
    finally:
        side.execute(
            "RESET ROLE; REVOKE USAGE ON SCHEMA {schema} FROM columnar_stranger; DROP ROLE columnar_stranger"
        )
