"""ON DELETE and ON UPDATE SET DEFAULT: workers change those rows, so they know these defaults."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cluster import Cluster
from tests.ddl.test_ddl import refused
from tests.pair import Pair, open_pair

COLUMNS = """
SELECT string_agg(a.attname || ' ' || pg_get_expr(d.adbin, d.adrelid), ', ' ORDER BY a.attnum)
  FROM pg_attribute AS a JOIN pg_attrdef AS d ON (adrelid, adnum) = (attrelid, attnum)
 WHERE a.attrelid = 'test_fk_defaults.{}'::regclass AND a.attgenerated = ''
"""


@pytest.fixture(scope="module")
def data(cluster: Cluster) -> Iterator[Pair]:
    with open_pair(cluster, "test_fk_defaults") as made:
        yield made


@pytest.fixture
def pair(data: Pair) -> Iterator[Pair]:
    """A reference table r that both columns of t refer to, by default to 1 and to 2."""
    data.execute(
        "CREATE DOMAIN three AS integer DEFAULT 3;"
        "CREATE FUNCTION two() RETURNS integer IMMUTABLE LANGUAGE sql AS 'SELECT 2';"
        "CREATE TABLE r (a integer, b integer, PRIMARY KEY (a, b), UNIQUE (a), UNIQUE (b));"
        "CREATE TABLE t (k integer, x integer DEFAULT 1, y integer DEFAULT two(), z three, w text DEFAULT 'w')"
    )
    data.distribute("t", "k", shards=4)
    data.reference("r")
    data.execute(
        "INSERT INTO r SELECT g, g FROM generate_series(1, 60) AS g;"
        "INSERT INTO t SELECT g, g, g, g FROM generate_series(1, 60) AS g"
    )
    yield data
    data.reset()
    data.execute("DROP SCHEMA test_fk_defaults CASCADE; CREATE SCHEMA test_fk_defaults")


def defaults(pair: Pair, table: str = "t") -> str | None:
    first, second = pair.on_workers(COLUMNS.format(table))
    assert first == second
    return first


@pytest.mark.parametrize(
    ("key", "known"),
    [
        ("(x) REFERENCES r (a) ON DELETE SET DEFAULT", "x 1"),
        ("(x) REFERENCES r (a) ON UPDATE SET DEFAULT ON DELETE CASCADE", "x 1"),
        ("(x) REFERENCES r (a) ON DELETE SET DEFAULT DEFERRABLE INITIALLY DEFERRED", "x 1"),
        ("(y) REFERENCES r (b) ON DELETE SET DEFAULT ON UPDATE SET NULL", "y two()"),
        ("(z) REFERENCES r (b) ON DELETE SET DEFAULT ON UPDATE CASCADE", None),
        ("(x, y) REFERENCES r ON DELETE SET NULL (y)", None),
        ("(x, y) REFERENCES r ON DELETE SET NULL ON UPDATE SET DEFAULT", "x 1, y two()"),
        ("(x, y) REFERENCES r ON DELETE SET DEFAULT (y) ON UPDATE CASCADE", "y two()"),
        ("(k) REFERENCES r (a) ON DELETE CASCADE", None),
    ],
)  # fmt: skip
def test_rows_get_their_defaults(pair: Pair, key: str, known: str | None) -> None:
    pair.execute(f"ALTER TABLE t ADD CONSTRAINT f FOREIGN KEY {key}")
    assert defaults(pair) == known
    pair.same("SELECT * FROM t ORDER BY k")
    for statement in (
        "DELETE FROM r WHERE a = 7",
        "UPDATE r SET b = 70 WHERE a = 8",
        "UPDATE r SET a = 90 WHERE a = 9",
        "DELETE FROM r WHERE a = 3",  # the domain's default
        "DELETE FROM r WHERE a BETWEEN 40 AND 50",
    ):
        pair.same(statement)
        pair.same("SELECT * FROM t ORDER BY k")
    with pair.transaction():
        pair.same("DELETE FROM r WHERE a = 10")
        pair.same("SELECT * FROM t ORDER BY k")
    pair.execute("ALTER TABLE t DROP CONSTRAINT f")
    assert defaults(pair) is None
    pair.same("INSERT INTO t (k) VALUES (100) RETURNING *")


def test_the_default_that_counts_is_the_last(pair: Pair) -> None:
    pair.execute(
        "ALTER TABLE t ADD CONSTRAINT f FOREIGN KEY (x) REFERENCES r (a) ON DELETE SET DEFAULT"
    )
    for number, (statement, known) in enumerate(
        [
            ("ALTER TABLE t ALTER x SET DEFAULT 4", "x 4"),
            ("ALTER TABLE t ALTER x DROP DEFAULT", None),
            ("ALTER TABLE t ALTER x SET DEFAULT 4 + 1", "x (4 + 1)"),
            ("ALTER TABLE t ALTER x TYPE bigint", "x (4 + 1)"),
            ("ALTER TABLE t RENAME x TO xx", "xx (4 + 1)"),
            (
                "ALTER TABLE t ALTER xx DROP DEFAULT, ALTER xx TYPE integer USING xx::integer, ALTER xx SET DEFAULT 6",
                "xx 6",
            ),
            ("ALTER TABLE t RENAME xx TO x", "x 6"),
            ("BEGIN; ALTER TABLE t ALTER x SET DEFAULT 8; ROLLBACK", "x 6"),
            (
                "ALTER TABLE t ADD COLUMN u integer DEFAULT 5 REFERENCES r (a) ON DELETE SET DEFAULT",
                "x 6, u 5",
            ),
            ("ALTER TABLE t DROP COLUMN x", "u 5"),
            ("ALTER TABLE t ADD COLUMN x integer", "u 5"),
        ]
    ):
        pair.execute(statement)
        assert defaults(pair) == known, statement
        pair.same(f"DELETE FROM r WHERE a = {20 + number}")
        pair.same("SELECT k, x, y FROM t ORDER BY k")
    pair.same("DELETE FROM r WHERE a = 5")  # which rows refer to by default
    pair.same("SELECT * FROM t ORDER BY k")


VOLATILE = ["nextval('s')", "(random() * 10)::integer", "extract(year FROM now())::integer"]


@pytest.mark.parametrize("default", VOLATILE)
def test_a_default_that_workers_cannot_compute_is_refused(pair: Pair, default: str) -> None:
    key = "FOREIGN KEY (x) REFERENCES r (a) ON DELETE SET DEFAULT"
    pair.execute("CREATE SEQUENCE s")
    pair.execute(f"ALTER TABLE t ALTER x SET DEFAULT {default}")
    refused(pair, f"ALTER TABLE t ADD {key}", names="immutable SET NULL")
    pair.execute(f"CREATE TABLE c (k integer, x integer DEFAULT {default}, {key})")
    refused(pair, "SELECT strata.create_distributed_table('c', 'k')", names="immutable")
    refused(
        pair,
        f"ALTER TABLE t ADD COLUMN u integer DEFAULT {default} REFERENCES r (a) ON UPDATE SET DEFAULT",
        names="immutable",
    )
    pair.execute(f"ALTER TABLE t ALTER x SET DEFAULT 1, ADD CONSTRAINT f {key}")
    refused(pair, f"ALTER TABLE t ALTER x SET DEFAULT {default}", names="immutable")
    refused(
        pair,
        "ALTER TABLE t ALTER x DROP DEFAULT, ALTER x SET NOT NULL, ALTER x ADD GENERATED ALWAYS AS IDENTITY",
        names="immutable",
    )
    assert defaults(pair) == "x 1"
    pair.same("DELETE FROM r WHERE a = 7")
    pair.same("SELECT * FROM t ORDER BY k")


def test_tables_that_become_distributed_and_local_again_keep_the_action(pair: Pair) -> None:
    pair.execute(
        "CREATE TABLE c (k integer PRIMARY KEY, x integer DEFAULT 1 REFERENCES r (a) ON DELETE SET DEFAULT);"
        "INSERT INTO c SELECT g, g FROM generate_series(1, 60) AS g;"
        "CREATE TABLE d (k integer, v integer DEFAULT 4,"
        " w integer DEFAULT 5 REFERENCES r (a) ON UPDATE SET DEFAULT)"
    )
    pair.distribute("c", "k")
    pair.distribute("d", "k", colocate_with="c")
    pair.execute("ALTER TABLE d ADD FOREIGN KEY (k) REFERENCES c ON DELETE CASCADE")
    assert defaults(pair, "c") == "x 1"
    assert defaults(pair, "d") == "w 5"
    pair.execute("INSERT INTO d SELECT g, g, g FROM generate_series(1, 60) AS g")
    pair.same("DELETE FROM r WHERE a BETWEEN 7 AND 9")
    pair.same("SELECT * FROM c ORDER BY k")
    pair.same("UPDATE r SET a = 100 WHERE a = 12")
    pair.same("SELECT * FROM d ORDER BY k, v")
    pair.execute("ALTER TABLE d DROP CONSTRAINT d_k_fkey")
    pair.ours.execute("SELECT strata.undistribute_table('d')")
    pair.ours.execute("SELECT strata.undistribute_table('c')")
    pair.same("DELETE FROM r WHERE a = 20")
    pair.same("SELECT * FROM c ORDER BY k")


def test_a_default_that_is_left_behind_is_never_taken(pair: Pair) -> None:
    """The foreign key goes with the table it leads to; then the default changes here."""
    pair.execute(
        "ALTER TABLE t ADD FOREIGN KEY (x) REFERENCES r (a) ON DELETE SET DEFAULT;"
        "DROP TABLE r CASCADE; ALTER TABLE t ALTER x DROP DEFAULT;"
        "CREATE TABLE feed (k integer, x integer); CREATE UNIQUE INDEX ON t (k)"
    )
    pair.distribute("feed", "k", colocate_with="t")
    pair.execute("INSERT INTO feed VALUES (200, 1), (201, 1)")
    pair.same("INSERT INTO t (k) VALUES (100) RETURNING *")
    pair.same("INSERT INTO t (k, w) SELECT k + 1000, 'i' FROM t WHERE k < 5 RETURNING *")
    pair.same(
        "MERGE INTO t USING feed ON t.k = feed.k WHEN NOT MATCHED THEN INSERT (k) VALUES (feed.k)"
    )
    pair.same("INSERT INTO t (k) VALUES (400) ON CONFLICT (k) DO NOTHING")
    pair.same(
        "INSERT INTO t (k) VALUES (400) ON CONFLICT (k) DO UPDATE SET x = DEFAULT RETURNING *"
    )
    pair.copy("COPY t (k) FROM STDIN", "300\n")
    pair.same("SELECT * FROM t WHERE x IS NULL ORDER BY k")
    pair.same("UPDATE t SET x = DEFAULT WHERE k = 5 RETURNING *")


def test_a_new_worker_knows_the_defaults(make_cluster) -> None:
    cluster = make_cluster(workers=1)
    cluster.coordinator.execute(
        "CREATE SCHEMA test_fk_defaults; SET search_path = test_fk_defaults, strata;"
        "CREATE TABLE r (a integer PRIMARY KEY); SELECT create_reference_table('r');"
        "CREATE TABLE t (k integer, x integer DEFAULT 5 REFERENCES r ON DELETE SET DEFAULT);"
        "SELECT create_distributed_table('t', 'k')"
    )
    worker = cluster.add_worker()
    assert worker.query(COLUMNS.format("t")) == [("x 5",)]
