"""Which row groups queries read: counted, weighed, cooled, kept over restarts, forgotten."""

from __future__ import annotations

import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from extensions.columnar.test.servers import make_standby, wait_for_replay
from tests.cluster import Cluster, Node
from tests.fixtures import new_root
from tests.pair import walk

GROUP = 10_000  # rows


@pytest.fixture(scope="module")
def server() -> Iterator[Node]:
    with Cluster(new_root(), workers=0, extension=False) as made:
        node = made.coordinator
        node.settings["shared_preload_libraries"] = (
            "'strata_columnar, strata_tiering, strata_worker'"
        )
        node.settings["autovacuum"] = "off"
        node.restart()
        node.execute("CREATE EXTENSION strata_columnar; CREATE EXTENSION strata_tiering")
        yield node


@pytest.fixture
def node(server: Node) -> Iterator[Node]:
    """Nothing has been read, nothing is kept."""
    for (table,) in server.query("SELECT tablename FROM pg_tables WHERE schemaname = 'public'"):
        server.execute(f"DROP TABLE IF EXISTS {table} CASCADE")
    server.execute(
        "SELECT strata_tiering.keep_heat(); DELETE FROM strata_tiering.heat;"
        "SELECT strata_tiering.forget_heat(leaf) FROM strata_tiering.row_group_heat()"
    )
    yield server
    server.disconnect()


def fill(node: Node, table: str, groups: int = 1) -> None:
    node.execute(
        f"CREATE TABLE {table} (id integer, v integer, s text) USING columnar;"
        f"SELECT strata_columnar.alter_columnar_table_set('{table}', row_group_rows => {GROUP});"
        f"INSERT INTO {table} SELECT g, hashint4(g), md5(g::text)"
        f"  FROM generate_series(1, {groups * GROUP}) AS g"
    )


def heat(node: Node, table: str) -> dict[int, float]:
    """By row group."""
    return dict(
        node.query(
            "SELECT row_group, heat FROM strata_tiering.row_group_heat() WHERE leaf = %s::regclass",
            (table,),
        )
    )


def leaf_heat(node: Node) -> dict[str, float]:
    return dict(node.query("SELECT leaf::text, heat FROM strata_tiering.leaf_heat()"))


# ---- what counts -------------------------------------------------------------------------------------


def test_only_what_is_read_becomes_hot(node: Node) -> None:
    fill(node, "t", 4)
    fill(node, "u")
    assert heat(node, "t") == {}
    node.query(f"SELECT max(v % 1000) FROM t WHERE id BETWEEN {GROUP + 5} AND {GROUP + 500}")
    (group,) = heat(node, "t")
    few = heat(node, "t")[group]
    assert few > 0
    node.query("SELECT sum(v), count(DISTINCT s) FROM t")
    assert len(heat(node, "t")) == 4
    assert min(heat(node, "t").values()) > 2 * few, "texts are more bytes than numbers"
    assert heat(node, "u") == {}


def test_the_number_of_bytes_is_that_of_explain(node: Node) -> None:
    fill(node, "t", 3)
    node.query("SELECT max(v % 1000) FROM t")  # footers, which do not count, are in memory now
    node.execute("SELECT strata_tiering.forget_heat('t'::regclass)")
    ((plan,),) = node.query("EXPLAIN (ANALYZE, FORMAT JSON) SELECT max(v % 1000) FROM t")
    (bytes_read,) = (node["Bytes Read"] for node in walk(plan[0]["Plan"]) if "Bytes Read" in node)
    ((counted, warm),) = node.query("SELECT bytes_read, heat FROM strata_tiering.leaf_heat()")
    assert counted == bytes_read
    assert 0.99 * bytes_read < warm <= bytes_read


def test_rows_fetched_by_an_index_count(node: Node) -> None:
    fill(node, "t", 3)
    node.execute("CREATE INDEX ON t (id)")
    node.execute("SELECT strata_tiering.forget_heat('t'::regclass)")
    with node.connect() as connection:
        connection.execute("SET enable_seqscan = off; SET strata_columnar.enable_custom_scan = off")
        assert connection.execute(f"SELECT v FROM t WHERE id = {2 * GROUP}").fetchone()
        once = heat(node, "t")
        assert len(once) == 1
        connection.execute(f"SELECT v FROM t WHERE id = {2 * GROUP}")
    assert heat(node, "t").keys() == once.keys()


def test_parallel_workers_count(node: Node) -> None:
    fill(node, "t", 8)
    with node.connect() as connection:
        connection.execute(
            "SET max_parallel_workers_per_gather = 2; SET parallel_setup_cost = 0;"
            "SET parallel_tuple_cost = 0; SET min_parallel_table_scan_size = 0"
        )
        query = "SELECT max(v % 1000) FROM t"
        plan = connection.execute(f"EXPLAIN (COSTS OFF) {query}").fetchall()
        assert "Gather" in plan[0][0] or "Gather" in plan[1][0]
        connection.execute(query)
    assert len(heat(node, "t")) == 8


def test_a_statement_that_fails_and_maintenance_do_not_count(node: Node) -> None:
    fill(node, "t", 2)
    with pytest.raises(psycopg.errors.DivisionByZero):
        node.query("SELECT sum(1 / (id - id)) FROM t")
    node.execute("VACUUM t")
    assert heat(node, "t") == {}
    node.execute("SET strata_tiering.track_heat = off")
    node.query("SELECT max(v % 1000) FROM t")
    node.execute("RESET strata_tiering.track_heat")
    assert heat(node, "t") == {}


def test_what_functions_and_cursors_read_counts(node: Node) -> None:
    fill(node, "t")
    fill(node, "u")
    node.execute(
        "CREATE OR REPLACE FUNCTION f() RETURNS bigint LANGUAGE plpgsql"
        " AS 'BEGIN RETURN (SELECT max(v % 1000) FROM t); END'"
    )
    node.query("SELECT f()")
    assert heat(node, "t")
    with node.connect() as connection:
        connection.execute("BEGIN; DECLARE c CURSOR FOR SELECT v FROM u; FETCH ALL FROM c; COMMIT")
    assert heat(node, "u")
    node.execute("DROP FUNCTION f()")


def test_groups_that_were_pruned_stay_cold(node: Node) -> None:
    fill(node, "t", 10)
    with node.connect() as connection:  # which has no footer in memory
        connection.execute(
            f"SELECT max(v % 1000) FROM t WHERE id BETWEEN {GROUP * 3 + 1} AND {GROUP * 4}"
        )
    assert len(heat(node, "t")) == 1


# ---- weights -------------------------------------------------------------------------------------------


def test_whoever_reads_everything_heats_little(node: Node) -> None:
    node.execute("CREATE TABLE p (id integer, v integer, s text) PARTITION BY RANGE (id)")
    for number in range(16):
        fill(node, f"p{number}")
        node.execute(
            f"ALTER TABLE p ATTACH PARTITION p{number}"
            f" FOR VALUES FROM ({number * 10_000_000}) TO ({(number + 1) * 10_000_000})"
            if number == 0
            else f"UPDATE p{number} SET id = id + {number * 10_000_000};"
            f"ALTER TABLE p ATTACH PARTITION p{number}"
            f" FOR VALUES FROM ({number * 10_000_000}) TO ({(number + 1) * 10_000_000})"
        )
    node.execute("SELECT strata_tiering.forget_heat(leaf) FROM strata_tiering.row_group_heat()")
    node.query("SELECT max(v % 1000) FROM p WHERE id < 10000000")
    one = leaf_heat(node)["p0"]
    node.execute("SELECT strata_tiering.forget_heat('p0'::regclass)")
    with node.connect() as connection:
        connection.execute("SET max_parallel_workers_per_gather = 0")
        connection.execute("SELECT max(v % 1000) FROM p")
    everything = leaf_heat(node)
    assert len(everything) == 16
    assert everything["p0"] == pytest.approx(one / 4, rel=0.01)


def test_heat_cools(node: Node) -> None:
    fill(node, "t")
    node.execute(
        "SELECT strata_tiering.add_heat('t'::regclass, 1, 1024, now() - interval '10 hours', 0)"
    )
    assert heat(node, "t")[1] == pytest.approx(256, rel=0.01)
    node.execute("ALTER SYSTEM SET strata_tiering.half_life = '1h'")
    node.reload()
    node.disconnect()
    assert heat(node, "t")[1] == pytest.approx(1, rel=0.01)
    node.execute("ALTER SYSTEM RESET strata_tiering.half_life")
    node.reload()


def test_the_ranking_is_that_of_the_readers(node: Node) -> None:
    """Zipf's law over ten leaves, and a dump of everything in between."""
    dice = random.Random(3)
    for number in range(10):
        fill(node, f"leaf{number}")
    for turn, number in enumerate(
        dice.choices(range(10), weights=[1 / (rank + 1) ** 1.5 for rank in range(10)], k=400)
    ):
        node.query(f"SELECT max(v % 1000) FROM leaf{number}")
        if turn % 100 == 50:
            node.query(
                " UNION ALL ".join(f"SELECT max(s || id) FROM leaf{other}" for other in range(10))
            )
    found = leaf_heat(node)
    ranked = sorted(found, key=lambda leaf: -found[leaf])
    assert ranked[:3] == ["leaf0", "leaf1", "leaf2"]


# ---- limits ----------------------------------------------------------------------------------------------


def test_the_coldest_make_room(node: Node) -> None:
    fill(node, "t")
    node.settings["strata_tiering.heat_entries"] = "200"
    node.restart()
    try:
        node.execute(
            "SELECT strata_tiering.add_heat('t'::regclass, g, g, now(), 0)"
            " FROM generate_series(1, 1000) AS g"
        )
        found = heat(node, "t")
        assert 150 <= len(found) <= 200
        assert max(found) == 1000
        assert min(found) > 700
    finally:
        del node.settings["strata_tiering.heat_entries"]
        node.restart()


def test_many_sessions_add_up(node: Node) -> None:
    fill(node, "t", 2)
    node.query("SELECT max(v % 1000) FROM t")
    ((once,),) = node.query("SELECT bytes_read FROM strata_tiering.leaf_heat()")

    def read(_: int) -> None:
        with node.connect() as connection:
            for _ in range(20):
                connection.execute("SELECT max(v % 1000) FROM t")

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(read, range(16)))
    assert node.query("SELECT bytes_read FROM strata_tiering.leaf_heat()") == [(once * 321,)]


def test_bad_heat_is_refused(node: Node) -> None:
    for value in ("'NaN'", "'Infinity'", "-1"):
        with pytest.raises(psycopg.errors.InvalidParameterValue):
            node.execute(f"SELECT strata_tiering.add_heat(1, 1, {value}, now(), 0)")


def test_others_than_the_owner_see_nothing(node: Node) -> None:
    node.execute("CREATE ROLE somebody")
    try:
        with node.connect() as connection:
            connection.execute("SET ROLE somebody")
            for call in ("row_group_heat()", "leaf_heat()", "keep_heat()", "begin_loading()"):
                with pytest.raises(psycopg.errors.InsufficientPrivilege):
                    connection.execute(f"SELECT * FROM strata_tiering.{call}")
    finally:
        node.execute("DROP ROLE somebody")


# ---- what outlives the server ------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["fast", "immediate"])
def test_kept_heat_is_there_after_a_restart(node: Node, mode: str) -> None:
    fill(node, "t", 3)
    node.query("SELECT max(v % 1000) FROM t")
    before = heat(node, "t")
    assert node.value("SELECT strata_tiering.keep_heat()") == 3
    assert node.value("SELECT strata_tiering.keep_heat()") == 0, "nothing was read since"
    node.stop(mode)
    node.start()
    node.forgive_crash()
    assert heat(node, "t") == {}
    node.query("SELECT max(v % 1000) FROM t")
    assert node.value("SELECT strata_tiering.keep_heat()") == 3
    after = heat(node, "t")
    for group, value in before.items():
        assert after[group] == pytest.approx(2 * value, rel=0.01)
    node.query("SELECT strata_tiering.keep_heat()")
    assert heat(node, "t") == pytest.approx(after, rel=0.01), "loaded once"


def test_a_promoted_replica_knows_the_heat(node: Node) -> None:
    fill(node, "t", 2)
    node.query("SELECT max(v % 1000) FROM t")
    node.query("SELECT strata_tiering.keep_heat()")
    before = heat(node, "t")
    standby = make_standby(node, "heir")
    try:
        wait_for_replay(node, standby)
        standby.query("SELECT max(v % 1000) FROM t")
        own = heat(standby, "t")
        standby.query("SELECT pg_promote()")
        standby.query("SELECT strata_tiering.keep_heat()")
        after = heat(standby, "t")
        for group, value in before.items():
            assert after[group] == pytest.approx(value + own[group], rel=0.01)
    finally:
        standby.stop("immediate")


def test_dropped_tables_are_forgotten(node: Node) -> None:
    fill(node, "t")
    fill(node, "u")
    node.query("SELECT max(v % 1000) FROM t; SELECT max(v % 1000) FROM u")
    node.query("SELECT strata_tiering.keep_heat()")
    node.execute("DROP TABLE t")
    node.query("SELECT strata_tiering.keep_heat()")
    assert leaf_heat(node).keys() == {"u"}
    assert node.value("SELECT count(DISTINCT leaf) FROM strata_tiering.row_group_heat()") == 1
    assert node.value("SELECT count(DISTINCT leaf) FROM strata_tiering.heat") == 1
