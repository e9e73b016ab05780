"""Rows that lie where another version of their key's collation put them are not looked for by the new one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psycopg
import pytest

from tests.cluster import Cluster, Node
from tests.pair import Pair, open_pair

QUERIES = [
    "SELECT v FROM name WHERE n = 'NAME77'",
    "SELECT count(*), sum(v) FROM name",
    "SELECT a.v, b.v FROM name AS a JOIN name AS b USING (n) WHERE a.v < 5",
]


@pytest.fixture
def pair(cluster: Cluster) -> Iterator[Pair]:
    with open_pair(cluster, "test_collation_versions") as made:
        made.execute(
            "CREATE COLLATION no_case (provider = icu, locale = 'und-u-ks-level2', deterministic = false);"
            "CREATE TABLE name (n text COLLATE no_case PRIMARY KEY, v integer);"
            "CREATE TABLE item (k integer PRIMARY KEY, n text COLLATE no_case)"
        )
        made.distribute("name", "n", "none")
        made.distribute("item", "k", "none")
        made.execute(
            "INSERT INTO name SELECT 'Name' || i, i FROM generate_series(1, 500) AS i;"
            "INSERT INTO item SELECT i, 'Name' || i FROM generate_series(1, 500) AS i"
        )
        made.execute("PREPARE by_key AS SELECT v FROM name WHERE n = $1")
        yield made


def refused(pair: Pair, statement: str) -> None:
    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState) as caught:
        pair.ours.execute(statement)
    assert caught.value.diag.message_primary == (
        'rows of table "name" lie where version 1.0 of collation "no_case" has put them'
    )
    assert "undistribute_table()" in caught.value.diag.message_hint


def test_another_version(pair: Pair) -> None:
    pair.all_same([*QUERIES, "EXECUTE by_key('NAME9')"])
    pair.ours.execute("UPDATE pg_collation SET collversion = '1.0' WHERE collname = 'no_case'")
    for statement in (
        *QUERIES,
        "EXECUTE by_key('NAME9')",
        "INSERT INTO name VALUES ('new', 1)",
        "INSERT INTO name SELECT 'other' || k, k FROM item",
        "COPY name FROM PROGRAM 'echo new,1' (FORMAT csv)",
        "UPDATE name SET v = 1 WHERE n = 'name7'",
        "DELETE FROM name",
        "MERGE INTO name USING item ON name.n = item.n WHEN MATCHED THEN DELETE",
        "ALTER COLLATION no_case REFRESH VERSION",
    ):
        refused(pair, statement)
    # its groups are not by the key
    pair.same("SELECT count(*) FROM item WHERE n = 'NAME5'")
    pair.ours.execute("SELECT undistribute_table('name')")
    pair.all_same(QUERIES)
    pair.ours.execute("ALTER COLLATION no_case REFRESH VERSION")
    pair.distribute("name", "n", "none")
    pair.all_same(QUERIES)
    pair.same("INSERT INTO name VALUES ('NEW', 1)")
    pair.same("SELECT * FROM name WHERE n = 'new'")


@contextmanager
def other_icu(node: Node) -> Iterator[None]:
    """As if the server had ICU in version 1.0."""
    function = "pg_catalog.pg_collation_actual_version"
    with node.connect() as session:
        session.execute("SET allow_system_table_mods = on")
        session.execute(f"ALTER FUNCTION {function}(oid) RENAME TO real_version")
        session.execute(
            f"CREATE FUNCTION {function}(oid) RETURNS text LANGUAGE sql AS $$ SELECT '1.0' $$"
        )
        try:
            yield
        finally:
            session.execute(f"DROP FUNCTION {function}(oid)")
            session.execute(
                f"ALTER FUNCTION pg_catalog.real_version(oid) RENAME TO {function.split('.')[1]}"
            )


def test_nodes_have_other_versions(
    pair: Pair, cluster: Cluster, make_cluster: Callable[..., Cluster]
) -> None:
    health = "SELECT worker_name, check_name, detail FROM strata.check_health() WHERE NOT ok"
    ((real,),) = pair.rows("SELECT collversion FROM pg_collation WHERE collname = 'und-x-icu'")
    with other_icu(cluster.workers[1]):
        ((worker, check, detail),) = pair.rows(health)
        assert (worker, check) == (cluster.workers[1].name, "collation versions")
        assert f'collation pg_catalog."und-x-icu" has version 1.0 there, {real} here' in detail
        assert "collation test_collation_versions.no_case has version 1.0 there" in detail
    assert pair.rows(health) == []
    other = make_cluster(workers=1)
    with other_icu(other.coordinator):
        with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState) as caught:
            other.add_worker()
        assert "differs from the coordinator in its ICU version" in str(caught.value)
