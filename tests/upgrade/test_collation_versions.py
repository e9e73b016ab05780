"""Rows that lie where another version of their key's collation put them are not looked for by the new one."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from tests.cluster import Cluster
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
