"""Rules of distributed and reference tables rewrite statements as on one server."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cluster import Cluster
from tests.ddl.test_ddl import check_copies
from tests.pair import Pair, open_pair

ROLE = "strata rule user"

TABLES = """
CREATE TABLE {0} (k integer PRIMARY KEY, a integer, b text);
CREATE TABLE {0}_log (k integer, what text, a integer);
CREATE TABLE {0}_old (k integer PRIMARY KEY, a integer, b text);
CREATE TABLE {0}_other (k integer, a integer, b text);
"""


@pytest.fixture(params=["distributed", "reference", "periods"])
def pair(cluster: Cluster, request) -> Iterator[Pair]:
    """Table t of each kind, with others beside it."""
    cluster.create_role(ROLE)
    with open_pair(cluster, "test_rules") as made:
        made.execute(TABLES.format("t"))
        if request.param == "reference":
            for table in ("t", "t_old", "t_other"):
                made.reference(table)
        elif request.param == "distributed":
            made.distribute("t", "k")
            made.distribute("t_old", "k", colocate_with="t")
        else:
            made.ours.execute(
                "SELECT create_distributed_table('t', 'k', partition_by => 'k', partition_interval => '10')"
            )
            made.distribute("t_old", "k", colocate_with="t")
        if request.param != "reference":
            made.distribute("t_other", "k", colocate_with="t")
        made.execute(
            "INSERT INTO t_other SELECT g + 600, g % 3, 'o' FROM generate_series(1, 40) AS g"
        )
        made.execute("INSERT INTO t SELECT g, g % 7, 'b' || g FROM generate_series(1, 40) AS g")
        yield made
        made.reset()


def check(pair: Pair) -> None:
    for table in ("t", "t_log", "t_old"):
        pair.same(f"SELECT * FROM {table}")
    if pair.rows("SELECT kind FROM strata.distributed_table WHERE relation = 't'::regclass") == [
        ("r",)
    ]:
        check_copies(pair, "t")
        check_copies(pair, "t_old")


STATEMENTS = [
    "INSERT INTO t SELECT k + 400, k % 3, b FROM t_old UNION ALL SELECT k + 400, a % 3, b FROM t",
    "INSERT INTO t SELECT k, a, b || '!' FROM t_other WHERE k > 5",
    "INSERT INTO t VALUES (100, 1, 'x'), (101, 2, 'y')",
    "INSERT INTO t SELECT k + 200, a, b FROM t WHERE a = 3",
    "UPDATE t SET a = a + 1 WHERE k BETWEEN 5 AND 9",
    "UPDATE t SET a = 0 WHERE b = 'b12'",
    "DELETE FROM t WHERE a = 2 AND k < 20",
    "DELETE FROM t WHERE k = 6 RETURNING k",
]


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    "rules",
    [
        "CREATE RULE i AS ON INSERT TO t DO ALSO INSERT INTO t_log VALUES (NEW.k, 'insert', NEW.a);"
        "CREATE RULE u AS ON UPDATE TO t DO ALSO INSERT INTO t_log VALUES (OLD.k, 'update', NEW.a - OLD.a);"
        "CREATE RULE d AS ON DELETE TO t DO ALSO INSERT INTO t_log VALUES (OLD.k, 'delete', OLD.a)",
        "CREATE RULE i AS ON INSERT TO t WHERE NEW.a = 1 DO INSTEAD INSERT INTO t_old VALUES (NEW.*);"
        "CREATE RULE u AS ON UPDATE TO t WHERE OLD.k = 7 DO INSTEAD NOTHING;"
        "CREATE RULE d AS ON DELETE TO t WHERE OLD.k % 2 = 0 DO INSTEAD UPDATE t SET b = 'gone' WHERE k = OLD.k",
        "CREATE RULE i AS ON INSERT TO t DO INSTEAD INSERT INTO t_old VALUES (NEW.k, NEW.a, NEW.b);"
        "CREATE RULE u AS ON UPDATE TO t DO ALSO DELETE FROM t_old WHERE k = OLD.k;"
        "CREATE RULE d AS ON DELETE TO t DO ALSO INSERT INTO t_old VALUES (OLD.k, OLD.a, OLD.b)"
        " ON CONFLICT (k) DO UPDATE SET b = 'again'",
        "CREATE RULE i AS ON INSERT TO t DO ALSO NOTIFY strata_rules;"
        "CREATE RULE d AS ON DELETE TO t DO INSTEAD SELECT count(*) FROM t WHERE k = OLD.k",
        'CREATE RULE "odd ""name" AS ON UPDATE TO t DO INSTEAD'
        " UPDATE t_old SET a = NEW.a WHERE t_old.k = OLD.k RETURNING t_old.*",
    ],
    ids=["also", "where", "instead", "notify", "returning"],
)
def test_rules(pair: Pair, rules: str) -> None:
    pair.execute(rules)
    for statement in STATEMENTS:
        with pair.transaction("COMMIT"):
            pair.same(statement)
        check(pair)
    pair.execute("ALTER TABLE t DISABLE RULE i" if "RULE i " in rules else "SELECT 1")
    pair.same("INSERT INTO t VALUES (300, 1, 'z')")
    pair.ours.execute("SELECT undistribute_table('t')")
    pair.same("DELETE FROM t WHERE k > 35")
    pair.same("SELECT * FROM t")


def test_made_before_the_table_is_distributed(pair: Pair) -> None:
    pair.execute(
        """
        CREATE TABLE n (k integer PRIMARY KEY, a integer);
        CREATE RULE d AS ON DELETE TO n DO INSTEAD UPDATE n SET a = -1 WHERE k = OLD.k;
        INSERT INTO n SELECT g, g FROM generate_series(1, 9) AS g;
        """
    )
    pair.distribute("n", "k")
    pair.same("DELETE FROM n WHERE a > 5")
    pair.same("SELECT * FROM n")
    pair.copy("COPY n FROM STDIN", "10\t10\n")
    pair.same("SELECT * FROM n")


def test_rules_act_as_the_tables_owner(pair: Pair) -> None:
    """The caller needs no rights on what a rule's action names, and has none."""
    pair.execute(
        f"""
        CREATE RULE i AS ON INSERT TO t DO ALSO INSERT INTO t_log VALUES (NEW.k, current_user, NEW.a);
        CREATE RULE d AS ON DELETE TO t DO ALSO DELETE FROM t_old WHERE k = OLD.k;
        GRANT USAGE ON SCHEMA test_rules TO "{ROLE}";
        GRANT SELECT, INSERT, DELETE ON t TO "{ROLE}";
        SET SESSION AUTHORIZATION "{ROLE}";
        """
    )
    for statement in (
        "INSERT INTO t VALUES (500, 1, 'x')",
        "DELETE FROM t WHERE k < 4",
        "SELECT * FROM t_log",
        "DELETE FROM t_old",
        "CREATE RULE x AS ON INSERT TO t DO ALSO NOTHING",
    ):
        pair.same(statement)
    pair.execute("RESET SESSION AUTHORIZATION")
    check(pair)
