"""Options of indexes: the leaves' have what the coordinator's has, those that come later, too."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from tests.cluster import Cluster
from tests.ddl.test_ddl import check_structure, everywhere
from tests.pair import Pair, open_pair
from tests.period.test_period_ddl import make_leaf

# of every index of the schema, on a worker also of each part: storage parameters and targets of columns
OPTIONS = """
SELECT c.relname::text, coalesce((SELECT string_agg(o, ',' ORDER BY o) FROM unnest(c.reloptions) AS o), ''),
       (SELECT string_agg(coalesce(nullif(a.attstattarget, -1)::text, '-'), ',' ORDER BY a.attnum)
          FROM pg_attribute AS a WHERE a.attrelid = c.oid)
  FROM pg_class AS c WHERE c.relnamespace = 'test_options'::regnamespace AND c.relkind IN ('i', 'I')
"""
# the index that a part belongs to, at whatever depth
WHOLE = """
WITH RECURSIVE up AS (
    SELECT c.oid AS part, c.oid AS whole FROM pg_class AS c WHERE c.relnamespace = 'test_options'::regnamespace
    UNION ALL
    SELECT up.part, i.inhparent FROM up JOIN pg_inherits AS i ON i.inhrelid = up.whole)
SELECT part::regclass::text, whole::regclass::text FROM up AS u
 WHERE NOT EXISTS (SELECT FROM pg_inherits AS i WHERE i.inhrelid = u.whole)
"""


@pytest.fixture(scope="module")
def data(cluster: Cluster) -> Iterator[Pair]:
    with open_pair(cluster, "test_options") as made:
        yield made


@pytest.fixture
def pair(data: Pair) -> Iterator[Pair]:
    data.execute(
        "CREATE TABLE t (k integer, v integer, w text, a integer[], p point, PRIMARY KEY (k) WITH (fillfactor = 80));"
        "CREATE TABLE r (id integer PRIMARY KEY, w text)"
    )
    yield data
    data.reset()
    data.execute("RESET ROLE")
    data.execute("DROP SCHEMA test_options CASCADE; CREATE SCHEMA test_options")


def options(connection: psycopg.Connection) -> dict[str, tuple]:
    return {name: rest for name, *rest in connection.execute(OPTIONS).fetchall()}


def check(pair: Pair) -> None:
    """Plain has the coordinator's options; and each index on a worker, those of the one that it is a part of."""
    wanted = options(pair.ours)
    assert wanted == options(pair.theirs)
    for worker in pair.cluster.workers:
        with worker.connect() as connection:
            connection.execute("SET search_path = test_options")
            whole = dict(connection.execute(WHOLE).fetchall())
            for name, found in options(connection).items():
                quoted = connection.execute("SELECT quote_ident(%s)", (name,)).fetchone()[0]
                top = connection.execute(
                    "SELECT (parse_ident(%s))[1]", (whole[quoted],)
                ).fetchone()[0]
                assert found == wanted[top], (worker, name)


INDEXES = (
    "CREATE INDEX b ON t (v, (k + 1), (lower(w))) WITH (fillfactor = 70)",
    "CREATE INDEX h ON t USING hash (v)",
    "CREATE INDEX g ON t USING gin (a)",
    "CREATE INDEX s ON t USING gist (p)",
    "CREATE INDEX q ON t USING spgist (p)",
    'CREATE INDEX "i""x; DROP" ON t (w)',
    "CREATE INDEX rb ON r ((lower(w)))",
)
CHANGES = (
    "ALTER INDEX b SET (fillfactor = 50, deduplicate_items = off)",
    "ALTER INDEX b RESET (fillfactor)",
    "ALTER INDEX b ALTER COLUMN 2 SET STATISTICS 500",
    "ALTER INDEX b ALTER 2 SET STATISTICS 7, ALTER 3 SET STATISTICS 0, SET (fillfactor = 60)",
    "ALTER INDEX b ALTER COLUMN 2 SET STATISTICS -1",
    "ALTER TABLE b SET (fillfactor = 61)",
    "ALTER INDEX t_pkey SET (fillfactor = 90)",
    "ALTER INDEX IF EXISTS h SET (fillfactor = 40)",
    "ALTER INDEX g SET (fastupdate = off, gin_pending_list_limit = 128)",
    "ALTER INDEX g RESET (fastupdate, gin_pending_list_limit)",
    "ALTER INDEX s SET (buffering = on)",
    "ALTER INDEX q SET (fillfactor = 30)",
    'ALTER INDEX test_options."i""x; DROP" SET (fillfactor = 33)',
    "ALTER INDEX rb SET (fillfactor = 44)",
    "ALTER INDEX rb ALTER COLUMN 1 SET STATISTICS 44",
    "ALTER TABLE t ALTER v TYPE bigint",
)
ERRORS = (
    "ALTER INDEX b SET (fillfactor = 5)",
    "ALTER INDEX b SET (nonsense = 5)",
    "ALTER INDEX b SET (pages_per_range = 5)",
    "ALTER INDEX b ALTER COLUMN 1 SET STATISTICS 10",
    "ALTER INDEX b ALTER COLUMN 9 SET STATISTICS 10",
    "ALTER INDEX b ALTER COLUMN v SET STATISTICS 10",
    "ALTER INDEX b ALTER COLUMN expr SET (n_distinct = 3)",
    "ALTER INDEX b ATTACH PARTITION h",
    "ALTER INDEX b CLUSTER ON b",
    "ALTER INDEX b SET LOGGED",
    "ALTER INDEX none SET (fillfactor = 50)",
    "ALTER INDEX IF EXISTS none SET (fillfactor = 50)",
    "ALTER INDEX b RESET (fillfactor, fillfactor)",
)


@pytest.mark.parametrize("storage", ["heap", "columnar"])
def test_options_reach_every_leaf_as_postgresql_sets_them(pair: Pair, storage: str) -> None:
    """Before and after the table is distributed, and when it is local again."""
    for index in INDEXES:
        pair.execute(index)
    pair.execute("ALTER INDEX b ALTER COLUMN 2 SET STATISTICS 77")
    pair.distribute("t", "k", shards=4, storage=storage)
    pair.reference("r", storage)
    check(pair)
    for change in (*CHANGES, *ERRORS):
        pair.same(change)
        check(pair)
    for table in ("t", "r"):
        check_structure(pair, table)
    pair.execute("INSERT INTO t SELECT g, g % 7, 'w' || g FROM generate_series(1, 300) AS g")
    pair.same("SELECT count(*) FROM t WHERE v = 3 AND k + 1 = 11")
    with pair.transaction():
        pair.same("ALTER INDEX b SET (fillfactor = 99)")
        pair.execute("SAVEPOINT s; ALTER INDEX h SET (fillfactor = 98); ROLLBACK TO s")
        assert options(pair.ours) == options(pair.theirs)
    check(pair)
    pair.ours.execute("SELECT strata.undistribute_table('t')")
    assert options(pair.ours) == options(pair.theirs)


def test_a_tablespace_is_refused(pair: Pair) -> None:
    pair.distribute("t", "k")
    with pytest.raises(psycopg.errors.FeatureNotSupported, match="SET TABLESPACE"):
        pair.ours.execute("ALTER INDEX t_pkey SET (fillfactor = 50), SET TABLESPACE pg_default")
    check(pair)


def test_the_tablespace_of_an_index_stays_here(pair: Pair) -> None:
    """Workers have their own; a text in the constraint that looks like one is another matter."""
    for session in (pair.ours, pair.theirs):
        session.execute("SET allow_in_place_tablespaces = on")
        session.execute("CREATE TABLESPACE options_space LOCATION ''")
    try:
        pair.execute(
            "CREATE TABLE s (id integer PRIMARY KEY USING INDEX TABLESPACE options_space DEFERRABLE, w text,"
            " UNIQUE (w) USING INDEX TABLESPACE options_space DEFERRABLE INITIALLY DEFERRED,"
            " EXCLUDE USING btree (w WITH =) USING INDEX TABLESPACE options_space"
            " WHERE (w <> ' USING INDEX TABLESPACE options_space'))"
        )
        pair.reference("s")
        check_structure(pair, "s")
    finally:
        pair.execute("DROP TABLE IF EXISTS s")
        for session in (pair.ours, pair.theirs):
            session.execute("DROP TABLESPACE options_space")


def test_only_the_owner_changes_options(pair: Pair) -> None:
    pair.distribute("t", "k")
    pair.cluster.create_role("options_user")
    pair.execute(
        "GRANT USAGE ON SCHEMA test_options TO options_user; GRANT ALL ON t TO options_user"
    )
    pair.execute("SET ROLE options_user")
    try:
        pair.same("ALTER INDEX t_pkey SET (fillfactor = 50)")
        pair.execute("RESET ROLE; GRANT CREATE ON SCHEMA test_options TO options_user")
        pair.execute("ALTER TABLE t OWNER TO options_user; SET ROLE options_user")
        pair.same("ALTER INDEX t_pkey SET (fillfactor = 50)")
        check(pair)
    finally:
        pair.execute("RESET ROLE; REASSIGN OWNED BY options_user TO CURRENT_USER")
        pair.execute("DROP OWNED BY options_user; DROP ROLE options_user")


@pytest.mark.parametrize(
    "repeat", ["CREATE INDEX CONCURRENTLY o ON t ((k + 2))", "REINDEX INDEX o"]
)
def test_an_index_that_is_completed_later_has_the_options_of_then(pair: Pair, repeat: str) -> None:
    pair.distribute("t", "k")
    worker = pair.cluster.workers[1]
    worker.execute("CREATE TABLE test_options.o ()")
    create = "CREATE INDEX CONCURRENTLY o ON t ((k + 2))"
    with pytest.raises(psycopg.errors.DuplicateTable):
        pair.ours.execute(create)
    pair.theirs.execute(create)
    pair.execute("ALTER INDEX o ALTER 1 SET STATISTICS 9")
    worker.execute("DROP TABLE test_options.o")
    pair.ours.execute(repeat)
    check(pair)


@pytest.mark.parametrize("storage", ["heap", "columnar"])
def test_new_periods_have_the_options(pair: Pair, storage: str) -> None:
    pair.execute(
        "CREATE TABLE p (k integer, at timestamptz NOT NULL, v integer);"
        "CREATE INDEX b ON p ((v + 1)) WITH (fillfactor = 70); INSERT INTO p VALUES (1, '2026-03-24', 1)"
    )
    pair.ours.execute(
        "SELECT strata.create_distributed_table('p', 'k', storage => %s, partition_by => 'at',"
        " partition_interval => '1 week')",
        (storage,),
    )
    pair.execute(
        "ALTER INDEX b SET (fillfactor = 40); ALTER INDEX b ALTER COLUMN 1 SET STATISTICS 12"
    )
    check(pair)
    make_leaf(pair.cluster, "test_options", "2029-01-01", "p")
    check(pair)
    pair.execute("ALTER INDEX b RESET (fillfactor)")
    check(pair)


@pytest.mark.parametrize("periods", ["", ", partition_by => 'at', partition_interval => '1 week'"])
def test_moved_shards_and_new_workers_have_the_options(pair: Pair, periods: str) -> None:
    pair.execute(
        "CREATE TABLE p (k integer, at timestamptz NOT NULL, v integer);"
        "CREATE INDEX b ON p ((v + 1)); INSERT INTO p SELECT g, '2026-03-24', g FROM generate_series(1, 50) AS g"
    )
    pair.ours.execute(f"SELECT strata.create_distributed_table('p', 'k', 2{periods})")
    pair.execute(
        "ALTER INDEX b SET (fillfactor = 40); ALTER INDEX b ALTER COLUMN 1 SET STATISTICS 12"
    )
    first, second = (worker.name for worker in pair.cluster.workers)
    for worker in (first, second):
        pair.ours.execute("SELECT strata.move_shard('p', 0, %s)", (worker,))
        check(pair)
    pair.reference("r")
    pair.execute(
        "CREATE INDEX rb ON r ((lower(w))); ALTER INDEX rb ALTER COLUMN 1 SET STATISTICS 3"
    )
    added = pair.cluster.add_worker()
    try:
        check(pair)
        pair.ours.execute("SELECT strata.move_shard('p', 0, %s)", (added.name,))
        check(pair)
        pair.ours.execute("SELECT strata.move_shard('p', 0, %s)", (first,))
    finally:
        pair.cluster.remove_worker(added)


def test_summaries_of_blocks_have_the_options(pair: Pair) -> None:
    pair.execute("CREATE INDEX n ON t USING brin (v) WITH (pages_per_range = 4)")
    pair.distribute("t", "k", storage="heap")
    pair.execute("ALTER INDEX n SET (autosummarize, pages_per_range = 8)")
    check(pair)


def test_health_and_structure_agree(pair: Pair) -> None:
    pair.distribute("t", "k")
    pair.execute("ALTER INDEX t_pkey SET (fillfactor = 42)")
    everywhere(
        pair, "SELECT reloptions::text FROM pg_class WHERE oid = 'test_options.t_pkey'::regclass"
    )
    assert pair.rows("SELECT detail FROM strata.check_health() WHERE NOT ok") == []
