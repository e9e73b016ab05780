"""ALTER EXTENSION strata UPDATE brings the cluster to another version: coordinator and workers, at once or not at all."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from tests.cluster import Cluster
from tests.installation import find_directory
from tests.pair import Pair, open_pair

# Of released versions: users have them, so what is different now belongs into a script that updates.
RELEASED = {
    "strata--0.1": "9652b16e30829a4ae2c0f46649b53ede4a64e34044664d1c79a42e0d81b22fcc",
    "strata_columnar--0.1": "13e209ce3f8010275b2cae1df9eab3fbc2de78fbd3c1a1006877c9cb076b0a1d",
    "strata_tiering--0.1": "75ba004aefafdce6eba6a2708eb2b5bca668c73110459322ca83a8172bd886d3",
    "strata_worker--0.1": "ae0e35648a35775a95777dd54deba967c8d8b8f74ce78626991b7a73390671b1",
}
PARTS = ("strata_worker", "strata_columnar", "strata_tiering")
VERSION = "SELECT extversion FROM pg_extension WHERE extname = %s"


def scripts() -> Path:
    return find_directory("sharedir") / "extension"


def default_version(extension: str) -> str:
    lines = (scripts() / f"{extension}.control").read_text().splitlines()
    (version,) = [line.split("'")[1] for line in lines if line.startswith("default_version")]
    return version


def installed_versions(cluster: Cluster) -> set[str]:
    workers = {worker.value(VERSION, (part,)) for worker in cluster.workers for part in PARTS}
    return workers | {cluster.coordinator.value(VERSION, ("strata",))}


@pytest.mark.parametrize("script", RELEASED)
def test_released_scripts_do_not_change(script: str) -> None:
    text = (scripts() / f"{script}.sql").read_bytes()
    assert hashlib.sha256(text).hexdigest() == RELEASED[script]


def test_all_parts_have_one_version() -> None:
    assert len({default_version(extension) for extension in ("strata", *PARTS)}) == 1


@pytest.fixture
def cluster(make_cluster: Callable[..., Cluster]) -> Cluster:
    """Made by the first version's SQL, with the library of today."""
    return make_cluster(workers=2, plain=True, assertions=True, version="0.1")


@pytest.fixture
def pair(cluster: Cluster) -> Iterator[Pair]:
    with open_pair(cluster, "updated") as made:
        made.execute(
            "CREATE TABLE item (k bigint PRIMARY KEY, v integer, n text); CREATE TABLE kind (n text PRIMARY KEY, f float8)"
        )
        made.distribute("item", "k", "none")
        made.reference("kind", "columnar")
        made.execute(
            "INSERT INTO item SELECT i, i % 7, 'n' || i % 5 FROM generate_series(1, 2000) AS i;"
            "INSERT INTO kind SELECT 'n' || i, i / 2.0 FROM generate_series(0, 4) AS i"
        )
        yield made


def work(pair: Pair) -> None:
    """Statements of all kinds, which the libraries answer with old SQL and with new."""
    for query in (
        "SELECT count(*), sum(v), min(n) FROM item",
        "SELECT n, f, count(*), avg(v) FROM item JOIN kind USING (n) GROUP BY n, f",
        "SELECT count(DISTINCT v), max(f) FROM item, kind WHERE item.n <> kind.n",
        "SELECT k FROM item WHERE v > ALL (SELECT 5 FROM kind) ORDER BY k LIMIT 5",
    ):
        pair.same(query)
    with pair.transaction("COMMIT"):
        pair.same("UPDATE item SET v = v + 1 WHERE k % 3 = 0")
        pair.same("DELETE FROM item WHERE k % 11 = 0 RETURNING k")
        pair.same("INSERT INTO item SELECT max(k) + 1, 1, 'n1' FROM item")
    pair.execute("ALTER TABLE item ADD COLUMN w integer DEFAULT 4; CREATE INDEX ON item (w)")
    pair.same("SELECT count(*), sum(w) FROM item WHERE w = 4")
    pair.execute("ALTER TABLE item DROP COLUMN w")
    pair.ours.execute("ANALYZE item")
    pair.ours.execute("VACUUM item")
    remainder, target = pair.ours.execute(
        "SELECT s.remainder, w.name FROM strata.shard AS s JOIN strata.worker AS w ON w.worker_id <> s.worker_id LIMIT 1"
    ).fetchone()
    pair.ours.execute("SELECT move_shard('item', %s, %s)", (remainder, target))
    pair.same("SELECT count(*), sum(v) FROM item")
    assert pair.ours.execute("SELECT * FROM check_health() WHERE NOT ok").fetchall() == []


def test_from_the_first_version_to_this(cluster: Cluster, pair: Pair) -> None:
    assert installed_versions(cluster) == {"0.1"}
    work(pair)
    added = cluster.add_worker()  # which gets the version of the others
    assert installed_versions(cluster) == {"0.1"}
    pair.ours.execute("BEGIN; ALTER EXTENSION strata UPDATE; ROLLBACK")
    assert installed_versions(cluster) == {"0.1"}
    pair.ours.execute(
        "CREATE TABLE heap (k integer); SELECT create_distributed_table('heap', 'k', 1, 'none', storage => 'heap')"
    )
    move = "SELECT move_shard('heap', 0, name) FROM strata.workers"
    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="too old to move heaps"):
        pair.ours.execute(move)
    pair.ours.execute("DROP TABLE heap")
    pair.ours.execute("ALTER EXTENSION strata UPDATE")
    assert installed_versions(cluster) == {default_version("strata")}
    work(pair)
    cluster.remove_worker(added)
    work(pair)


def test_versions_are_told(cluster: Cluster, pair: Pair) -> None:
    pair.ours.execute("ALTER EXTENSION strata UPDATE TO '0.2'")
    nodes = [node.name for node in (cluster.coordinator, *cluster.workers)]
    rows = pair.ours.execute("SELECT * FROM strata.versions()").fetchall()
    server = cluster.coordinator.value("SHOW server_version")
    assert rows == [
        (node, server, default_version("strata"), "0.2", default_version("strata"))
        for node in nodes
    ]
    cluster.workers[1].stop()
    notices: list[str] = []
    pair.ours.add_notice_handler(lambda notice: notices.append(notice.message_primary))
    rows = pair.ours.execute("SELECT * FROM strata.versions()").fetchall()
    assert rows[2] == (nodes[2], None, None, None, None)
    assert 'worker "worker2" could not be asked for its versions' in notices
    cluster.workers[1].start()


def test_all_or_none(cluster: Cluster, pair: Pair) -> None:
    """A worker that is down, one that cannot be updated, one that is ahead, a user who may not."""
    first, last = cluster.workers
    last.stop()
    with pytest.raises(psycopg.OperationalError, match='could not connect to worker "worker2"'):
        pair.ours.execute("ALTER EXTENSION strata UPDATE")
    last.start()
    assert installed_versions(cluster) == {"0.1"}
    change = "UPDATE pg_extension SET extversion = %s WHERE extname = 'strata_columnar'"
    last.execute(change, ("9",))
    with pytest.raises(psycopg.Error, match='no update path from version "9"') as caught:
        pair.ours.execute("ALTER EXTENSION strata UPDATE")
    assert 'worker "worker2"' in str(caught.value)
    last.execute(change, ("0.1",))
    assert installed_versions(cluster) == {"0.1"}
    first.execute("ALTER EXTENSION strata_columnar UPDATE")
    pair.ours.execute("ALTER EXTENSION strata UPDATE")
    assert installed_versions(cluster) == {default_version("strata")}
    cluster.create_role("somebody")
    with (
        cluster.coordinator.connect(user="somebody") as session,
        pytest.raises(psycopg.errors.InsufficientPrivilege),
    ):
        session.execute("ALTER EXTENSION strata UPDATE TO '0.1'")


def test_partials_that_a_new_major_brings(cluster: Cluster, pair: Pair) -> None:
    """They become members of the extension, as if it had been created with them."""
    pair.ours.execute("ALTER EXTENSION strata UPDATE")
    made_again = "ALTER EXTENSION {0} DROP AGGREGATE strata_partial.avg(interval); DROP AGGREGATE strata_partial.avg(interval)"
    members = (
        "SELECT count(*) FROM pg_depend AS d JOIN pg_proc AS p ON p.oid = d.objid WHERE d.deptype = 'e'"
        " AND d.classid = 'pg_proc'::regclass AND p.pronamespace = 'strata_partial'::regnamespace"
    )
    for node, extension in [(cluster.coordinator, "strata")] + [
        (worker, "strata_worker") for worker in cluster.workers
    ]:
        before = node.value(members)
        node.execute(made_again.format(extension))
        assert node.value("SELECT strata_partial.create_partials()") == 1
        assert node.value(members) == before
    pair.same("SELECT avg(v * interval '1 day') FROM item")
    pair.execute(
        "CREATE AGGREGATE own_sum(integer) (SFUNC = int4_sum, STYPE = bigint, COMBINEFUNC = int8pl)"
    )
    pair.same("SELECT own_sum(v), n FROM item GROUP BY n")
    assert cluster.coordinator.value(members) == before
