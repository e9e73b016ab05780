"""pg_upgrade brings a coordinator along: its shells, what it knows of its tables, its workers.

From a major version to itself, which is as from one to the next: catalogs are made anew, files are copied.
Workers have tablespaces, with which pg_upgrade does not do that; so a whole cluster comes from an older version.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psycopg
import pytest

from tests.cluster import Cluster
from tests.installation import find_binaries, older_pg_config, server_major
from tests.pair import Pair, open_pair
from tests.pg_upgrade import old_data, pg_upgrade

# in the new server other OIDs than here: collations, which are made after dropped ones
TABLES = """
CREATE COLLATION first_one (provider = icu, locale = 'de');
CREATE COLLATION no_case (provider = icu, locale = 'und-u-ks-level2', deterministic = false);
CREATE COLLATION other_case (provider = icu, locale = 'und-u-ks-level1', deterministic = false);
DROP COLLATION first_one;
CREATE TYPE mood AS ENUM ('low', 'high');
CREATE TABLE item (k bigint PRIMARY KEY, gone integer, v text, m mood, n text COLLATE no_case, CHECK (k > 0));
CREATE TABLE name (n text COLLATE no_case PRIMARY KEY, v integer);
CREATE TABLE "od""d" (n text COLLATE other_case, v integer);
CREATE TABLE kind (m mood PRIMARY KEY, v integer);
CREATE TABLE event (k bigint, at timestamp NOT NULL, v integer);
"""
ROWS = """
INSERT INTO item SELECT i, i, 'v' || i, (ARRAY['low', 'high'])[1 + i % 2]::mood, 'Name' || i % 500 FROM generate_series(1, 3000) AS i;
INSERT INTO name SELECT 'NAME' || i, i FROM generate_series(1, 1000) AS i;
INSERT INTO "od""d" SELECT 'Name' || i, i FROM generate_series(1, 300) AS i;
INSERT INTO kind VALUES ('low', 1), ('high', 2);
INSERT INTO event SELECT i, timestamp '2025-01-01' + i * interval '1 hour', i FROM generate_series(1, 3000) AS i;
CREATE INDEX ON item (v);
ALTER TABLE item DROP COLUMN gone;
ALTER TABLE item ADD COLUMN later integer DEFAULT 7;
CREATE VIEW both_of AS SELECT item.k, name.v FROM item JOIN name USING (n);
"""
QUERIES = [
    "SELECT count(*), sum(k), min(v), max(m), sum(later) FROM item",
    "SELECT v FROM name WHERE n = 'name77'",
    "SELECT count(*), sum(v) FROM both_of",
    "SELECT m, kind.v, count(*) FROM item JOIN kind USING (m) GROUP BY 1, 2",
    'SELECT a.v, b.v FROM "od""d" AS a JOIN "od""d" AS b USING (n) WHERE a.n < \'name2\'',
    "SELECT count(*), max(v) FROM event WHERE at < '2025-03-01'",
    "SELECT k, v FROM item WHERE k IN (7, 900) ORDER BY k",
]
# which read no table by a key under a collation of ICU
OTHERS = [query for query in QUERIES if not re.search('name|od""d|both_of', query)]
METADATA = [
    "TABLE strata.worker",
    "TABLE strata.shard ORDER BY 1, 3",
    "TABLE strata.distributed_table ORDER BY 1",
    "SELECT id, ddl_version FROM strata.cluster",
    "SELECT objname, provider, label FROM pg_seclabels ORDER BY 1",
]

# of shells and of workers' parents; pg_upgrade keeps it since 18
STATISTICS = [
    "SELECT tablename, attname, inherited, null_frac, n_distinct, most_common_vals::text, histogram_bounds::text"
    " FROM pg_stats WHERE schemaname = 'upgraded' ORDER BY 1, 2, 3",
    "SELECT relname, reltuples, relpages FROM pg_class WHERE relnamespace = 'upgraded'::regnamespace"
    " AND relkind IN ('r', 'p') ORDER BY 1",
]


def statistics(cluster: Cluster) -> list[list[tuple]]:
    known = [[node.query(query) for query in STATISTICS] for node in cluster.nodes]
    assert all(len(columns) > 10 for columns, _ in known)
    return known


@contextmanager
def filled_pair(cluster: Cluster) -> Iterator[Pair]:
    with open_pair(cluster, "upgraded") as made:
        made.execute(TABLES)
        made.distribute("item", "k", "none")
        made.distribute("name", "n", "none")
        made.distribute('"od""d"', "n", "none")
        made.reference("kind", "columnar")
        made.ours.execute(
            "SELECT create_distributed_table('event', 'k', partition_by => 'at', partition_interval => '1 month')"
        )
        made.execute(ROWS)
        made.execute('ANALYZE item, name, "od""d", kind, event')
        made.all_same(QUERIES)
        yield made


def group_collations(pair: Pair) -> list[tuple]:
    return pair.ours.execute(
        "SELECT g.key_collation, c.oid FROM strata.colocation AS g"
        " JOIN strata.distributed_table AS t USING (colocation_id)"
        " JOIN pg_attribute AS a ON a.attrelid = t.relation AND a.attnum = t.key_attribute"
        " JOIN pg_collation AS c ON c.oid = a.attcollation WHERE NOT c.collisdeterministic"
    ).fetchall()


def place_anew(pair: Pair) -> None:
    """Another release of Debian has another ICU: equal keys may have other hashes there."""
    for table, collation in (("name", "no_case"), ('"od""d"', "other_case")):
        for statement in (
            f"SELECT * FROM {table} WHERE n = 'name77'",
            f"SELECT count(*) FROM {table}",
            f"INSERT INTO {table} VALUES ('new', 1)",
            f"UPDATE {table} SET v = 1",
            f"ALTER COLLATION {collation} REFRESH VERSION",
        ):
            with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="has put them"):
                pair.ours.execute(statement)
        pair.ours.execute("SELECT undistribute_table(%s)", (table,))
        pair.ours.execute(f"ALTER COLLATION {collation} REFRESH VERSION")
        pair.theirs.execute(f"ALTER COLLATION {collation} REFRESH VERSION; REINDEX TABLE {table}")
        pair.distribute(table, "n", "none")


def life_goes_on(pair: Pair) -> None:
    coordinator = pair.cluster.coordinator
    pair.execute(
        "INSERT INTO item VALUES (5000, 'new', 'low', 'NAME5'); UPDATE name SET v = v + 1 WHERE n = 'Name5';"
        "DELETE FROM item WHERE k % 7 = 0; ALTER TABLE item ADD COLUMN more integer DEFAULT 3;"
        "INSERT INTO event VALUES (1, '2030-01-01', 1); CREATE TABLE fresh (k bigint PRIMARY KEY, v integer)"
    )
    pair.distribute("fresh", "k", "item")
    pair.execute("INSERT INTO fresh SELECT k, 1 FROM item")
    pair.all_same([*QUERIES, "SELECT count(*), sum(more) FROM item JOIN fresh USING (k)"])
    shard, target = coordinator.query(
        "SELECT s.remainder, w.name FROM strata.distributed_table AS t JOIN strata.shard AS s USING (colocation_id)"
        " JOIN strata.worker AS w ON w.worker_id <> s.worker_id WHERE t.relation = 'upgraded.item'::regclass LIMIT 1"
    )[0]
    coordinator.query("SELECT strata.move_shard('upgraded.item', %s, %s)", (shard, target))
    pair.all_same(QUERIES)
    assert coordinator.query("SELECT * FROM strata.check_health() WHERE NOT ok") == []


def test_the_coordinator(make_cluster: Callable[..., Cluster]) -> None:
    # pg_upgrade loads what is installed
    cluster = make_cluster(workers=2, plain=True)
    with filled_pair(cluster) as pair:
        coordinator = cluster.coordinator
        before = [coordinator.query(query) for query in METADATA]
        known = statistics(cluster)
        pair.ours.close()
        coordinator.stop()
        pg_upgrade(coordinator)
        coordinator.start()
        assert server_major() < 18 or statistics(cluster) == known

        # what may be a copy of a coordinator must be told that it is one
        with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="does not have the"):
            pair.ours.execute(QUERIES[0])
        assert any(stored != real for stored, real in group_collations(pair))
        assert coordinator.value("SELECT strata.take_over()") == 2
        assert all(stored == real for stored, real in group_collations(pair))
        assert [coordinator.query(query) for query in METADATA] == before
        pair.all_same(QUERIES)
        life_goes_on(pair)
        pair.ours.close()
        coordinator.stop()

        # the old server, started again, is not heard
        new = coordinator.data.rename(coordinator.data.with_name("coordinator.new"))
        old_data(coordinator).rename(coordinator.data)
        coordinator.start()
        for statement in (QUERIES[0], "INSERT INTO item VALUES (6000, 'lost', 'low', 'x')"):
            with pytest.raises(psycopg.Error, match="the coordinator is outdated"):
                pair.ours.execute(statement)
        pair.ours.close()
        coordinator.stop()
        coordinator.data.rename(old_data(coordinator))
        new.rename(coordinator.data)
        coordinator.start()
        pair.all_same(QUERIES)


@pytest.mark.upgrade
def test_a_cluster_of_an_older_version(
    make_cluster: Callable[..., Cluster], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setenv("PG_CONFIG", str(older_pg_config()))
        older_binaries = find_binaries()
        cluster = make_cluster(workers=2, plain=True)
        with filled_pair(cluster) as pair:
            coordinator = cluster.coordinator
            coordinator.execute(
                "SELECT strata.set_tier_policy('upgraded.event', 'age', '30 days');"
                "CREATE ROLE reader LOGIN; GRANT USAGE ON SCHEMA upgraded TO reader;"
                "GRANT SELECT ON ALL TABLES IN SCHEMA upgraded TO reader"
            )
            before = [coordinator.query(query) for query in METADATA]
            known = statistics(cluster)
            pair.close()
            cluster.stop()
            patch.undo()
            for node in cluster.nodes:
                pg_upgrade(node, older_binaries)
            cluster.start()
            assert coordinator.value("SHOW server_version_num") >= "170000"
            assert server_major() < 18 or statistics(cluster) == known
            assert coordinator.value("SELECT strata.take_over()") == 2
            assert [coordinator.query(query) for query in METADATA] == before
            for node in cluster.nodes:
                for (extension,) in node.query("SELECT extname FROM pg_extension"):
                    node.execute(f'ALTER EXTENSION "{extension}" UPDATE')
            pair.connect()
            pair.all_same(OTHERS)
            place_anew(pair)
            pair.all_same(QUERIES)
            coordinator.execute("ANALYZE")
            pair.all_same(QUERIES)
            life_goes_on(pair)
            with coordinator.connect() as session:
                session.execute("SET ROLE reader")
                assert session.execute("SELECT count(*) > 0 FROM upgraded.item").fetchone() == (
                    True,
                )
                with pytest.raises(psycopg.errors.InsufficientPrivilege):
                    session.execute("DELETE FROM upgraded.item")
            added = cluster.add_worker()
            coordinator.query("SELECT strata.rebalance_start()")
            coordinator.query("SELECT strata.rebalance_wait()")
            pair.all_same(QUERIES)
            assert added.value("SELECT count(*) FROM pg_class WHERE relname ~ '^item'") > 0
            cluster.remove_worker(added)
            pair.all_same(QUERIES)
