"""Who has no privileges on a table neither locks it nor waits for its locks, where PostgreSQL does not let him."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from tests.cluster import Cluster
from tests.pair import Pair, open_pair
from tests.twin import Twin

STATEMENTS = [
    "VACUUM t",
    "VACUUM (FULL) t",
    "VACUUM (ANALYZE) t",
    "ANALYZE t",
    "ANALYZE t (v)",
    "CLUSTER t USING t_pkey",
    "CLUSTER t",
    "REINDEX TABLE t",
    "REINDEX INDEX t_pkey",
    "REINDEX TABLE CONCURRENTLY t",
    "LOCK TABLE t",
    "LOCK TABLE t IN ACCESS SHARE MODE NOWAIT",
    "TRUNCATE t",
    "TRUNCATE t CASCADE",
    "DROP TABLE t",
    "DROP INDEX t_v",
    "DROP INDEX CONCURRENTLY t_v",
    "ALTER TABLE t ADD COLUMN w integer",
    "ALTER TABLE t DROP COLUMN v",
    "ALTER TABLE t ALTER v TYPE bigint",
    "ALTER TABLE t ADD CHECK (v > 0)",
    "ALTER TABLE t RENAME TO u",
    "ALTER TABLE t RENAME v TO w",
    "ALTER TABLE t SET SCHEMA public",
    "ALTER TABLE t OWNER TO CURRENT_USER",
    "ALTER TABLE t SET (fillfactor = 50)",
    "ALTER TABLE t ENABLE ROW LEVEL SECURITY",
    "ALTER TABLE t REPLICA IDENTITY FULL",
    "ALTER TABLE t DISABLE TRIGGER ALL",
    "ALTER INDEX t_v RENAME TO t_w",
    "ALTER INDEX t_v SET (fillfactor = 50)",
    "CREATE INDEX ON t (v)",
    "CREATE INDEX CONCURRENTLY ON t (v)",
    "CREATE STATISTICS t_s ON k, v FROM t",
    "CREATE TRIGGER x BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION suppress_redundant_updates_trigger()",
    "CREATE POLICY x ON t",
    "CREATE RULE x AS ON INSERT TO t DO NOTHING",
    "COMMENT ON TABLE t IS 'x'",
    "COMMENT ON COLUMN t.v IS 'x'",
    "GRANT SELECT ON t TO PUBLIC",
    "CREATE TABLE mine (k integer REFERENCES t)",
    "CREATE TABLE mine (LIKE t)",
    "SELECT * FROM t",
    "INSERT INTO t VALUES (1, 1)",
    "UPDATE t SET v = 1",
    "DELETE FROM t",
    "COPY t TO STDOUT",
    "SELECT * FROM t FOR UPDATE",
]

# What only a cluster has.
FUNCTIONS = [
    "create_distributed_table('t', 'k')",
    "create_reference_table('t')",
    "undistribute_table('t')",
    "alter_distributed_table('t', shard_count => 2)",
    "alter_columnar_table_set('t', compression_level => 1)",
    "set_tier_policy('t', 'age', '1 day')",
]


@pytest.fixture(params=["distributed", "reference"])
def pair(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[Pair]:
    with open_pair(cluster, "test_strangers_locks") as made:
        made.execute(
            "CREATE TABLE t (k integer PRIMARY KEY, v integer); CREATE INDEX t_v ON t (v);"
            "INSERT INTO t SELECT g, g FROM generate_series(1, 9) AS g"
        )
        if request.param == "reference":
            made.reference("t")
        else:
            made.distribute("t", "k", storage="heap")
        yield made


@pytest.fixture
def stranger(pair: Pair, as_role) -> Twin:
    pair.cluster.create_role("stranger")
    pair.execute(f"GRANT ALL ON SCHEMA {pair.schema} TO stranger")
    twin = as_role("stranger")
    twin.execute("SET lock_timeout = '300ms'")
    return twin


@pytest.mark.sample(4)
@pytest.mark.parametrize("statement", STATEMENTS)
def test_a_stranger_waits_only_where_postgresql_lets_him_wait(
    pair: Pair, stranger: Twin, statement: str
) -> None:
    with pair.transaction():
        pair.execute("LOCK TABLE t IN ACCESS EXCLUSIVE MODE")
        stranger.same(statement)


@pytest.mark.parametrize("call", FUNCTIONS)
def test_a_stranger_who_calls_our_functions_waits_for_nobody(
    pair: Pair, stranger: Twin, call: str
) -> None:
    with pair.transaction():
        pair.execute("LOCK TABLE t IN ACCESS EXCLUSIVE MODE")
        refused = (psycopg.errors.InsufficientPrivilege, psycopg.errors.WrongObjectType)
        with pytest.raises(refused):
            stranger.ours.execute(f"SELECT strata.{call}")
