"""Partition trees that are scanned as one relation give what their partitions give one by one.

The tree `t` has what makes that hard: partitions by range whose columns stand in another order, were
dropped, or were added later; sub-partitions by list; one for NULLs, a default, and an empty one.
"""

from __future__ import annotations

from contextlib import closing

import psycopg
import pytest

from extensions.columnar.test.twins import Twins

SCAN = "ColumnarScan) on t"


@pytest.fixture
def tree(twins: Twins) -> Twins:
    """t: days of 2020, 30 000 rows; `d`: a small table."""
    twins.execute(
        "SET strata_columnar.tree_scan_leaves = 1",
        "SET max_parallel_workers_per_gather = 0",
        "CREATE TABLE t (gone integer, day date, id bigint, kind text, v numeric(12, 2), note text)"
        " PARTITION BY RANGE (day)",
        "ALTER TABLE t DROP COLUMN gone",
        "CREATE TABLE t_01 PARTITION OF t FOR VALUES FROM ('2020-01-01') TO ('2020-02-01')",
        "CREATE TABLE t_02 (note text, v numeric(12, 2), x text, kind text, id bigint, day date)",
        "ALTER TABLE t_02 DROP COLUMN x",
        "ALTER TABLE t ATTACH PARTITION t_02 FOR VALUES FROM ('2020-02-01') TO ('2020-03-01')",
        "CREATE TABLE t_03 (kind text, day date, id bigint, v numeric(12, 2), note text)"
        " PARTITION BY LIST (kind)",
        "CREATE TABLE t_03_a PARTITION OF t_03 FOR VALUES IN ('a', NULL)",
        "CREATE TABLE t_03_b (id bigint, day date, kind text, v numeric(12, 2), note text)",
        "ALTER TABLE t_03 ATTACH PARTITION t_03_b FOR VALUES IN ('b', 'c')",
        "CREATE TABLE t_03_rest PARTITION OF t_03 DEFAULT",
        "ALTER TABLE t ATTACH PARTITION t_03 FOR VALUES FROM ('2020-03-01') TO ('2020-04-01')",
        *(
            f"CREATE TABLE t_{month:02} PARTITION OF t"
            f" FOR VALUES FROM ('2020-{month:02}-01') TO ('2020-{month + 1:02}-01')"
            for month in range(4, 12)
        ),
        "CREATE TABLE t_rest PARTITION OF t DEFAULT",
        "INSERT INTO t SELECT CASE WHEN g % 500 = 7 THEN NULL ELSE date '2020-01-01' + g % 330 END, g,"
        " nullif(chr(97 + g % 5), 'e'), (g * 37 % 1000) / 7.0, CASE WHEN g % 9 > 0 THEN 'n' || g % 50 END"
        " FROM generate_series(1, 20000) AS g",
        "ALTER TABLE t ADD COLUMN late integer DEFAULT 42",
        "INSERT INTO t SELECT date '2020-01-01' + g % 330, g, chr(97 + g % 5), g, 'n', g % 10"
        " FROM generate_series(20001, 30000) AS g",
        "DELETE FROM t WHERE id % 17 = 3",
        "UPDATE t SET note = 'changed' WHERE id % 29 = 5",
        "CREATE TABLE d (day date, name text)",
        "INSERT INTO d SELECT date '2020-01-01' + g * 20, 'd' || g FROM generate_series(0, 15) AS g",
        "ANALYZE t, d",
    )
    return twins


QUERIES = [
    "SELECT count(*), count(day), count(note), sum(v), min(id), max(kind), sum(late) FROM t",
    "SELECT count(*) FROM t",
    "SELECT count(*) FROM t WHERE false",
    "SELECT kind, count(*), sum(v), avg(id) FROM t GROUP BY kind ORDER BY kind",
    "SELECT day, kind, count(*), max(note) FROM t WHERE id > 500 GROUP BY day, kind",
    "SELECT DISTINCT kind, late FROM t",
    "SELECT count(DISTINCT note), count(DISTINCT day) FROM t",
    "SELECT * FROM t WHERE day = '2020-02-14'",
    "SELECT * FROM t WHERE day >= '2020-02-20' AND day < '2020-03-10'",
    "SELECT * FROM t WHERE day BETWEEN '2020-03-05' AND '2020-03-06' AND kind = 'b'",
    "SELECT * FROM t WHERE day IN ('2020-01-05', '2020-03-05', '2020-11-05') AND kind IS NULL",
    "SELECT id, late FROM t WHERE day IS NULL ORDER BY id",
    "SELECT * FROM t WHERE kind = 'c' AND (day < '2020-01-03' OR day > '2020-11-20')",
    "SELECT count(*), sum(v) FROM t WHERE note LIKE 'n1%' AND kind <> 'a'",
    "SELECT sum(v) FROM t WHERE kind || note = 'an11'",
    "SELECT count(*) FROM t WHERE day > '2030-01-01' AND day < '2020-01-01'",
    "SELECT t FROM t WHERE id BETWEEN 100 AND 140",
    "SELECT tableoid::regclass, count(*), sum(v) FROM t GROUP BY 1",
    "SELECT tableoid::regclass, id FROM t WHERE tableoid = 't_02'::regclass AND id < 900",
    "SELECT * FROM t ORDER BY v DESC, id LIMIT 13",
    "SELECT id FROM t WHERE random() >= 0 AND id < 50 ORDER BY id",
    "SELECT t.kind, d.name, count(*), sum(t.v) FROM t JOIN d USING (day) GROUP BY 1, 2",
    "SELECT d.name, count(t.id) FROM d LEFT JOIN t ON t.day = d.day AND t.kind = 'b' GROUP BY 1",
    "SELECT name FROM d WHERE EXISTS (SELECT FROM t WHERE t.day = d.day AND t.v > 900)",
    "SELECT name FROM d WHERE day NOT IN (SELECT day FROM t WHERE day IS NOT NULL AND v < 900)",
    "SELECT name, (SELECT sum(v) FROM t WHERE t.day = d.day) FROM d",
    "SELECT name, (SELECT sum(v) FROM t WHERE t.day >= d.day OFFSET 0) FROM d",
    "SELECT d.name, x.* FROM d, LATERAL (SELECT id, v FROM t WHERE t.day = d.day ORDER BY id LIMIT 2) AS x",
    "SELECT count(*) FROM t AS a JOIN t AS b ON a.id = b.id AND a.day = b.day",
    "SELECT kind, sum(v) FROM t WHERE day < '2020-02-10' GROUP BY kind"
    " UNION ALL SELECT kind, sum(v) FROM t WHERE day > '2020-10-10' GROUP BY kind",
    "SELECT id, day FROM t WHERE id < 300 UNION ALL SELECT id, day FROM t WHERE id < 200",
    "WITH x AS MATERIALIZED (SELECT day, sum(v) AS s FROM t GROUP BY day) SELECT max(s) FROM x",
    "SELECT id, sum(v) OVER (PARTITION BY kind ORDER BY id) FROM t WHERE id < 400",
    "SELECT kind, late, count(*) FROM t GROUP BY GROUPING SETS ((kind), (late), ())",
    "SELECT min(day), max(day) FROM t WHERE day > (SELECT min(day) + 60 FROM d)",
    "SELECT * FROM ONLY t",
    "SELECT count(*) FROM t WHERE (tableoid, ctid) IN (SELECT tableoid, ctid FROM t)",
    "SELECT count(*) FROM t WHERE xmin IS NULL",
    "SELECT count(*), sum(v) FROM t TABLESAMPLE BERNOULLI (100)",
    "SELECT * FROM t_03 WHERE kind = 'd' AND day > '2020-03-20'",
]


@pytest.mark.parametrize("vector", ["on", "off"])
def test_queries(tree: Twins, vector: str) -> None:
    """All kinds of queries, with and without batches."""
    tree.execute(f"SET strata_columnar.enable_vector = {vector}")
    tree.all_same(QUERIES)


@pytest.mark.parametrize("leader", ["on", "off"])
def test_queries_in_parallel(tree: Twins, leader: str) -> None:
    """Processes take leaves in turns; with few leaves they share them."""
    tree.execute(
        "SET max_parallel_workers_per_gather = 3",
        "SET parallel_setup_cost = 0",
        "SET parallel_tuple_cost = 0",
        "SET min_parallel_table_scan_size = 0",
        f"SET parallel_leader_participation = {leader}",
    )
    plan = tree.plan("SELECT sum(v), max(note) FROM t")
    assert f"Parallel Custom Scan ({SCAN}" in plan, plan
    tree.all_same(QUERIES)
    tree.execute("SET enable_hashjoin = off", "SET enable_mergejoin = off")
    tree.all_same(query for query in QUERIES if "t AS b" not in query)


def test_it_is_one_scan(tree: Twins) -> None:
    """The plan has one node for all leaves, and says how many; else there is one for each."""
    plan = tree.plan("SELECT sum(v) FROM t")
    assert "Append" not in plan, plan
    assert plan.count(SCAN) == 1
    assert "Leaves: 14" in plan
    plan = tree.plan("SELECT sum(v) FROM t WHERE day >= '2020-01-01' AND day < '2020-03-01'")
    assert "Leaves: 2" in plan, plan
    plan = tree.plan(
        "SELECT sum(v) FROM t WHERE day > '2020-03-15' AND day < '2020-03-20' AND kind = 'a'"
    )
    assert "Leaves: 1" in plan, plan
    tree.execute("SET strata_columnar.tree_scan_leaves = 3")
    assert "Leaves" not in tree.plan("SELECT sum(v) FROM t WHERE day = '2020-02-01'")
    tree.execute("SET strata_columnar.enable_tree_scan = off")
    assert "Leaves" not in tree.plan("SELECT sum(v) FROM t")


@pytest.mark.parametrize("leader", ["on", "off"])
def test_leaves_of_many_row_groups(twins: Twins, leader: str) -> None:
    """Fewer leaves than processes: those without one of their own join the others, also when scanned again."""
    twins.execute(
        "SET strata_columnar.tree_scan_leaves = 1",
        "SET strata_columnar.row_group_rows = 1024",
        "SET max_parallel_workers_per_gather = 3",
        "SET parallel_setup_cost = 0",
        "SET parallel_tuple_cost = 0",
        "SET min_parallel_table_scan_size = 0",
        f"SET parallel_leader_participation = {leader}",
        "CREATE TABLE t (a integer, k text, x bigint) PARTITION BY RANGE (a)",
        "CREATE TABLE t_1 PARTITION OF t FOR VALUES FROM (0) TO (30000)",
        "CREATE TABLE t_2 (x bigint, k text, a integer)",
        "ALTER TABLE t ATTACH PARTITION t_2 FOR VALUES FROM (30000) TO (100000)",
        "INSERT INTO t SELECT g, 'k' || g % 7, g::bigint * g FROM generate_series(0, 69999) AS g",
        "CREATE TABLE d AS SELECT g * 9000 AS low FROM generate_series(0, 7) AS g",
        "ANALYZE t, d",
    )
    assert f"Parallel Custom Scan ({SCAN}" in twins.plan("SELECT sum(x) FROM t")
    for _ in range(5):
        twins.same("SELECT k, count(*), sum(x), min(a), max(a) FROM t GROUP BY k")
    twins.same("SELECT count(*), sum(x) FROM (SELECT * FROM t WHERE random() >= 0 OFFSET 0) AS q")
    twins.same("SELECT low, (SELECT sum(x) FROM t WHERE a > low AND a < low + 9999) FROM d")
    twins.execute(
        "SET enable_hashjoin = off", "SET enable_mergejoin = off", "SET enable_material = off"
    )
    twins.same("SELECT low, count(*), sum(x) FROM d LEFT JOIN t ON a = low GROUP BY low")
    twins.same("SELECT a, k FROM t ORDER BY a LIMIT 5")
    twins.same("SELECT count(*) FROM (SELECT 1 FROM t LIMIT 4000) AS q")


def locked(tree: Twins) -> set[str]:
    """Leaves that the columnar session holds a lock on."""
    rows = tree.columnar.execute(
        "SELECT relation::regclass::text FROM pg_locks JOIN pg_class ON pg_class.oid = relation"
        " WHERE pid = pg_backend_pid() AND relname LIKE 't%' AND relkind = 'r'"
    )
    return {name for (name,) in rows}


def test_locks(tree: Twins) -> None:
    """Leaves outside of the period are not locked, with constants, parameters and stable functions."""
    tree.execute(
        "SET plan_cache_mode = force_generic_plan",
        "PREPARE of_period (date, date) AS SELECT count(note), sum(v) FROM t WHERE day >= $1 AND day < $2",
    )
    tree.same("EXECUTE of_period ('2020-01-01', '2020-12-01')")
    for query in (
        "SELECT count(note), sum(v) FROM t WHERE day >= '2020-01-10' AND day < '2020-02-10'",
        "EXECUTE of_period ('2020-01-10', '2020-02-10')",
        "SELECT count(note), sum(v) FROM t"
        " WHERE day >= current_date - (current_date - date '2020-01-10')"
        " AND day < current_date - (current_date - date '2020-02-10')",
        "SELECT count(note), sum(v) FROM t"
        " WHERE day >= (SELECT min(day) + 9 FROM d) AND day < (SELECT min(day) + 40 FROM d)",
    ):
        with tree.transaction():
            tree.same(query)
            assert locked(tree) == {"t_01", "t_02"}, query
    plan = tree.plan("EXECUTE of_period ('2020-01-10', '2020-02-10')")
    assert "Leaves: 2" in plan, plan
    assert "Leaves Removed: 12" in plan, plan


def test_values_of_parameters(tree: Twins) -> None:
    """Generic plans: each execution prunes by its own values, NULL among them."""
    tree.execute(
        "SET plan_cache_mode = force_generic_plan",
        "PREPARE of_days (date[]) AS SELECT count(*), sum(v) FROM t WHERE day = ANY ($1)",
        "PREPARE of_kind (text, date) AS SELECT count(*), sum(v) FROM t WHERE kind = $1 AND day = $2 OR day = $2 + 40",
        "PREPARE of_nothing (date) AS SELECT count(*) FROM t WHERE day IS NOT DISTINCT FROM $1",
        "PREPARE of_timestamp (timestamptz) AS SELECT count(*) FROM t WHERE day < $1",
    )
    tree.all_same(
        [
            "EXECUTE of_days ('{2020-01-05,2020-03-05,NULL}')",
            "EXECUTE of_days ('{}')",
            "EXECUTE of_days (NULL)",
            "EXECUTE of_kind ('b', '2020-03-05')",
            "EXECUTE of_kind (NULL, '2020-03-05')",
            "EXECUTE of_kind ('zzz', NULL)",
            "EXECUTE of_nothing (NULL)",
            "EXECUTE of_nothing ('2020-02-02')",
            "EXECUTE of_timestamp ('2020-02-02 12:00')",
        ]
    )


def test_changes_of_the_tree(tree: Twins) -> None:
    """Plans that are kept follow partitions that come, go, or change."""
    query = "EXECUTE everything"
    tree.execute(
        "SET plan_cache_mode = force_generic_plan",
        "PREPARE everything AS SELECT tableoid::regclass, count(*), sum(v), max(note) FROM t GROUP BY 1",
    )
    for change in (
        "CREATE TABLE t_13 PARTITION OF t FOR VALUES FROM ('2021-01-01') TO ('2021-02-01')",
        "INSERT INTO t VALUES ('2021-01-05', 1, 'a', 1, 'new')",
        "ALTER TABLE t DETACH PARTITION t_02",
        "DROP TABLE t_05",
        "ALTER TABLE t_03 DETACH PARTITION t_03_b",
        "ALTER TABLE t_03 ATTACH PARTITION t_03_b FOR VALUES IN ('b', 'c')",
        "ALTER TABLE t ATTACH PARTITION t_02 FOR VALUES FROM ('2020-02-01') TO ('2020-03-01')",
        "TRUNCATE t_04",
        "ALTER TABLE t DETACH PARTITION t_06 CONCURRENTLY",
        "ALTER TABLE t ALTER COLUMN v TYPE numeric(14, 3)",
        "ALTER TABLE t ADD COLUMN more text DEFAULT 'x'",
        "ALTER TABLE t DROP COLUMN late",
        "UPDATE t SET v = v + 1 WHERE id < 100",
        "DELETE FROM t_01",
    ):
        tree.same(change) if "CONCURRENTLY" not in change else detach_concurrently(tree, change)
        tree.same(query)
        tree.same("SELECT kind, count(*), sum(v) FROM t GROUP BY kind")


def detach_concurrently(tree: Twins, change: str) -> None:
    """It cannot run beside the default partition."""
    tree.execute("ALTER TABLE t DETACH PARTITION t_rest", change)


def test_other_access_methods(tree: Twins) -> None:
    """A tree with a leaf of another kind is left to core, at once, also where a plan was kept."""
    tree.execute(
        "SET plan_cache_mode = force_generic_plan",
        "PREPARE total AS SELECT count(*), sum(v) FROM t",
    )
    tree.same("EXECUTE total")
    with closing(tree.open_side("columnar").connection) as other:
        other.execute("ALTER TABLE t_07 SET ACCESS METHOD heap")
    tree.same("EXECUTE total")
    assert "Append" in tree.plan("SELECT sum(v) FROM t")
    tree.columnar.execute("ALTER TABLE t_07 SET ACCESS METHOD columnar")
    tree.same("EXECUTE total")
    assert "Append" not in tree.plan("SELECT sum(v) FROM t")
    tree.execute(
        "CREATE TABLE t_12 PARTITION OF t FOR VALUES FROM ('2020-12-01') TO ('2021-01-01') USING heap"
    )
    tree.execute("INSERT INTO t VALUES ('2020-12-05', 1, 'a', 1, 'new')")
    tree.same("EXECUTE total")


def test_own_writes(tree: Twins) -> None:
    """Rows of this transaction are read, also by several processes, and by cursors that are older not."""
    for workers in (0, 2):
        tree.execute(
            f"SET max_parallel_workers_per_gather = {workers}",
            "SET parallel_setup_cost = 0",
            "SET min_parallel_table_scan_size = 0",
        )
        with tree.transaction("ROLLBACK"):
            tree.execute("DECLARE c CURSOR FOR SELECT id, v FROM t WHERE day < '2020-01-10'")
            tree.execute(
                "INSERT INTO t SELECT date '2020-01-01' + g, g, 'a', 1, 'own' FROM generate_series(1, 300) AS g"
            )
            tree.same("SELECT count(*), sum(v), count(*) FILTER (WHERE note = 'own') FROM t")
            tree.execute("DELETE FROM t WHERE day > '2020-06-01' AND id % 2 = 0")
            tree.same("SELECT count(*), sum(v), count(*) FILTER (WHERE note = 'own') FROM t")
            tree.same("SELECT count(*) FROM t")
            tree.same("FETCH ALL FROM c", ordered=False)


def test_data_modification(tree: Twins) -> None:
    """UPDATE, DELETE and locks go the way of core; what they read besides may be one scan."""
    tree.all_same(
        [
            "UPDATE t SET v = v + 1 WHERE day = '2020-02-03'",
            "UPDATE d SET name = (SELECT max(note) FROM t WHERE t.day = d.day)",
            "DELETE FROM t USING d WHERE d.day = t.day AND t.kind = 'a'",
            "UPDATE d SET name = kind FROM t WHERE t.day = d.day AND t.id = 21",
            "SELECT id FROM t WHERE day = '2020-03-03' FOR UPDATE",
            "INSERT INTO t SELECT day + 1, id, kind, v, note, late FROM t WHERE day < '2020-11-10' AND id < 500",
            "SELECT count(*), sum(v) FROM t",
            "SELECT * FROM d",
        ]
    )


def test_leaves_of_an_open_cursor_are_in_use(tree: Twins) -> None:
    """Those whose turn has not come, too; as soon as the cursor is closed, or has failed, they are free."""
    query = "SELECT id FROM t WHERE day >= '2020-02-01'"
    for command in ("TRUNCATE t_11", "DROP TABLE t_11", "DROP TABLE t"):
        with tree.transaction():
            tree.execute(f"DECLARE c CURSOR FOR {query}", "FETCH 3 FROM c")
            tree.same(command)
    with tree.transaction("ROLLBACK"):
        tree.execute(f"DECLARE c CURSOR FOR {query}", "FETCH 3 FROM c", "CLOSE c")
        tree.same("TRUNCATE t_11")
        tree.same("SELECT count(*) FROM t")
    with tree.transaction("ROLLBACK"):
        tree.execute("SAVEPOINT a", f"DECLARE c CURSOR FOR {query}", "FETCH 3 FROM c")
        tree.execute("ROLLBACK TO a", "DROP TABLE t_11")
        tree.same("SELECT count(*) FROM t")


def test_cursors(tree: Twins) -> None:
    """A cursor that goes back and forth."""
    with tree.transaction():
        tree.execute("DECLARE c SCROLL CURSOR FOR SELECT id FROM t WHERE id < 900 ORDER BY id")
        for fetch in (
            "FETCH 40 FROM c",
            "FETCH BACKWARD 15 FROM c",
            "FETCH LAST FROM c",
            "FETCH ABSOLUTE 3 FROM c",
        ):
            tree.same(fetch, ordered=True)
        tree.execute(
            "DECLARE u SCROLL CURSOR FOR SELECT count(*) OVER (), kind IS NULL FROM t WHERE v = 7"
        )
        for fetch in (
            "FETCH 3 FROM u",
            "FETCH PRIOR FROM u",
            "MOVE FORWARD ALL FROM u",
            "FETCH FIRST FROM u",
        ):
            tree.execute(fetch)


def test_indexes(tree: Twins) -> None:
    """Where an index could serve the query, each leaf has its own scans."""
    tree.execute("CREATE INDEX ON t (id)", "CREATE INDEX ON t (day, id)", "ANALYZE t")
    plan = tree.plan("SELECT v FROM t WHERE id = 77")
    assert "Append" in plan, plan
    assert "Append" not in tree.plan("SELECT sum(v) FROM t WHERE day > '2020-02-02'")
    assert "Append" not in tree.plan("SELECT kind, sum(v) FROM t GROUP BY kind")
    assert "Append" in tree.plan("SELECT * FROM t ORDER BY id LIMIT 5")
    tree.all_same(QUERIES)


def test_an_index_of_one_leaf(tree: Twins) -> None:
    """Nobody knows what it is good for."""
    tree.execute("CREATE INDEX ON t_02 (kind)")
    assert "Append" in tree.plan("SELECT v FROM t WHERE kind = 'zz'")
    assert "Append" not in tree.plan("SELECT sum(v) FROM t")


def test_privileges(tree: Twins) -> None:
    """The table at the top alone is asked for them; its policies hold for all leaves."""
    role = f"{tree.name}_reader"[:60]
    tree.columnar.execute(f"DROP ROLE IF EXISTS {role}")
    tree.columnar.execute(f"CREATE ROLE {role}")
    try:
        tree.execute(
            f"GRANT USAGE ON SCHEMA {{schema}} TO {role}",
            f"GRANT SELECT (day, id, kind) ON t TO {role}",
            f"SET ROLE {role}",
        )
        tree.same("SELECT kind, count(*), max(id) FROM t WHERE day > '2020-03-20' GROUP BY kind")
        tree.fails("SELECT sum(v) FROM t", "42501")
        tree.fails("SELECT count(*) FROM t_01", "42501")
        tree.execute(
            "RESET ROLE",
            "ALTER TABLE t ENABLE ROW LEVEL SECURITY",
            f"CREATE POLICY p ON t TO {role} USING (kind = 'b' OR day < '2020-01-05')",
            "CREATE FUNCTION loud(x bigint) RETURNS boolean LANGUAGE plpgsql COST 0.0001"
            " AS $$ BEGIN RAISE EXCEPTION 'saw %', x; END $$",
            f"SET ROLE {role}",
        )
        tree.same("SELECT kind, count(*), max(id) FROM t GROUP BY kind")
        tree.same("SELECT count(*) FROM t")
        tree.same("SELECT count(*) FROM t WHERE day = '2020-09-09' AND kind = 'a'")
        tree.same("SELECT count(*) FROM t WHERE kind = 'a' AND day > '2020-01-05' AND loud(id)")
    finally:
        tree.reset()
        tree.execute(
            "RESET ROLE",
            f"REVOKE ALL ON t FROM {role}",
            "DROP POLICY IF EXISTS p ON t",
            f"REVOKE ALL ON SCHEMA {{schema}} FROM {role}",
        )
        tree.columnar.execute(f"DROP ROLE {role}")


def test_snapshots(tree: Twins) -> None:
    """An old snapshot does not see what others have done to rows; partitions it knows are read."""
    with tree.transaction(begin="BEGIN ISOLATION LEVEL REPEATABLE READ"):
        before = tree.same("SELECT count(*), sum(v) FROM t")
        for method in ("heap", "columnar"):
            with closing(tree.open_side(method).connection) as other:
                other.execute("DELETE FROM t WHERE kind = 'b'")
                other.execute("INSERT INTO t VALUES ('2020-05-05', 1, 'a', 1, 'other')")
        assert tree.same("SELECT count(*), sum(v) FROM t") == before
    assert tree.same("SELECT count(*), sum(v) FROM t") != before


def test_a_leaf_that_is_rewritten_meanwhile(tree: Twins) -> None:
    """Leaves are locked when it is their turn: one that looks empty to the snapshot must not pass for empty."""
    side = tree.columnar
    total = side.execute("SELECT count(*) FROM t")
    side.execute("BEGIN")
    side.execute("DECLARE c NO SCROLL CURSOR FOR SELECT id FROM t")
    side.execute("FETCH 1 FROM c")
    with closing(tree.open_side("columnar").connection) as other:
        other.execute("VACUUM t_09")
        other.execute("GRANT SELECT ON t_10 TO public")
        other.execute("SET lock_timeout = '5s'")
        other.execute("ALTER TABLE t_11 SET UNLOGGED")
    with pytest.raises(psycopg.errors.SerializationFailure, match="t_11"):
        side.execute("FETCH ALL FROM c")
    side.execute("ROLLBACK")
    assert side.execute("SELECT count(*) FROM t") == total
    tree.same("SELECT count(*), sum(v) FROM t")


def test_members_of_other_trees(tree: Twins) -> None:
    """Trees that are unlogged or temporary, partitioned by expressions or by hash, or empty."""
    tree.execute(
        "CREATE TABLE e (a integer, b text) PARTITION BY RANGE ((a % 10))",
        *(f"CREATE TABLE e{n} PARTITION OF e FOR VALUES FROM ({n}) TO ({n + 5})" for n in (0, 5)),
        "INSERT INTO e SELECT g, 'e' || g FROM generate_series(1, 100) AS g",
        "CREATE TABLE h (a integer, b text) PARTITION BY HASH (a, b)",
        *(
            f"CREATE UNLOGGED TABLE h{n} PARTITION OF h FOR VALUES WITH (MODULUS 4, REMAINDER {n})"
            for n in range(4)
        ),
        "INSERT INTO h SELECT g, 'h' || g % 7 FROM generate_series(1, 100) AS g",
        "CREATE TEMP TABLE m (a integer, b text) PARTITION BY LIST (b)",
        "CREATE TEMP TABLE m1 PARTITION OF m FOR VALUES IN ('x')",
        "CREATE TEMP TABLE m2 PARTITION OF m DEFAULT",
        "INSERT INTO m SELECT g, CASE WHEN g % 2 = 0 THEN 'x' END FROM generate_series(1, 100) AS g",
        "CREATE TABLE nothing (a integer) PARTITION BY RANGE (a)",
    )
    tree.all_same(
        [
            "SELECT count(*), sum(a), max(b) FROM e",
            "SELECT * FROM e WHERE a % 10 = 3",
            "SELECT * FROM h WHERE a = 33 AND b = 'h5'",
            "SELECT b, count(*), sum(a) FROM h GROUP BY b",
            "SELECT b, count(*), sum(a) FROM m GROUP BY b",
            "SELECT * FROM m WHERE b = 'x' AND a < 9",
            "SELECT count(*), sum(a) FROM nothing",
            "SELECT count(*) FROM e JOIN h USING (a) JOIN m USING (a)",
            "SELECT count(*) FROM e, h WHERE e.a = h.a AND h.b IN ('h1', 'h2') AND e.a % 10 IN (1, 2)",
        ]
    )
    tree.execute("SET enable_partitionwise_join = on", "SET enable_partitionwise_aggregate = on")
    tree.all_same(QUERIES)


def test_planning_of_many_leaves(twins: Twins) -> None:
    """The time of planning does not grow with the number of leaves, nor does what is locked."""
    side = twins.columnar
    side.execute("CREATE TABLE t (a integer, v bigint) PARTITION BY RANGE (a)")
    side.execute(
        "DO $$ BEGIN FOR i IN 0..999 LOOP EXECUTE"
        " format('CREATE TABLE t_%s PARTITION OF t FOR VALUES FROM (%s) TO (%s)', i, i, i + 1);"
        " IF i % 50 = 49 THEN COMMIT; END IF; END LOOP; END $$"
    )
    side.execute("INSERT INTO t SELECT g % 1000, g FROM generate_series(1, 5000) AS g")
    side.execute("ANALYZE t")
    for query in (
        "SELECT sum(v) FROM t",
        "SELECT sum(v) FROM t WHERE a >= 100",
        "SELECT sum(v) FROM t WHERE a >= extract(year FROM now())::integer - 2000",
    ):
        times = []
        for _ in range(6):
            lines = twins.plan(query, "COSTS OFF, SUMMARY ON").splitlines()
            times.append(float(lines[-1].split(": ")[1].removesuffix(" ms")))
        assert min(times) < 10, f"{query}: {times}"
    side.execute("BEGIN")
    assert side.execute("SELECT sum(v) FROM t WHERE a >= 990 AND a < 992") == [(29905,)]
    assert locked(twins) == {"t_990", "t_991"}
    side.execute("COMMIT")
    assert side.execute("SELECT count(*), sum(v) FROM t") == [(5000, 12502500)]


def test_errors_keep_their_place(tree: Twins) -> None:
    """A query that fails inside a leaf leaves nothing open; the next one is right."""
    tree.fails("SELECT sum(1 / (id - 21)) FROM t", "22012")
    tree.execute(
        "SET max_parallel_workers_per_gather = 2",
        "SET parallel_setup_cost = 0",
        "SET min_parallel_table_scan_size = 0",
    )
    with pytest.raises(psycopg.errors.DivisionByZero):
        tree.columnar.execute("SELECT sum(1 / (id - 21)) FROM t")
    tree.same("SELECT count(*), sum(v) FROM t")
    tree.same("SELECT id > 0 FROM t LIMIT 1")


def test_types_of_a_tree_of_more_leaves_stay(twins: Twins) -> None:
    """What the session knows of the columns of each leaf, scan after scan."""
    side = twins.columnar
    side.execute("CREATE TABLE t (a integer, v integer) PARTITION BY RANGE (a)")
    side.execute(
        "DO $$ BEGIN FOR n IN 0 .. 1049 LOOP"
        " EXECUTE format('CREATE TABLE t_%s PARTITION OF t FOR VALUES FROM (%s) TO (%s)', n, n, n + 1);"
        " END LOOP; END $$"
    )
    side.execute("INSERT INTO t SELECT g, g FROM generate_series(0, 1049) AS g")
    side.execute("ANALYZE t")
    for _ in range(2):
        assert side.execute("SELECT sum(v) FROM t WHERE v >= 0") == [(550725,)]
        ((known,),) = side.execute(
            "SELECT count(*) FROM pg_backend_memory_contexts WHERE name = 'columnar types'"
        )
        assert known >= 1050
