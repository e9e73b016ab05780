"""Trees of reference tables come whole to a new worker, and by a dump to another cluster."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.cluster import Cluster
from tests.ddl.test_dump import run
from tests.same_trees import SHAPES, nodes_alike

EVERYTHING = """
CREATE SCHEMA trees; SET search_path = trees, strata;
CREATE TABLE f (id integer PRIMARY KEY);
INSERT INTO f SELECT generate_series(0, 9);
CREATE TABLE p (a integer, b integer CONSTRAINT b_of_f REFERENCES f, g integer GENERATED ALWAYS AS (a + 1) STORED,
    PRIMARY KEY (a)) PARTITION BY RANGE (a);
CREATE INDEX p_b ON p (b);
CREATE TABLE "Q'1" (b integer CONSTRAINT "other ""name" REFERENCES f, gone integer, a integer NOT NULL,
    g integer GENERATED ALWAYS AS (a + 1) STORED);
ALTER TABLE "Q'1" DROP COLUMN gone;
CREATE TABLE r PARTITION OF p FOR VALUES FROM (100) TO (200) PARTITION BY HASH (a);
CREATE TABLE r1 PARTITION OF r FOR VALUES WITH (MODULUS 1, REMAINDER 0) PARTITION BY RANGE (a);
CREATE TABLE r11 PARTITION OF r1 DEFAULT;
SELECT create_reference_table('p') FROM (SELECT create_reference_table('f')) AS f;
ALTER TABLE p ATTACH PARTITION "Q'1" FOR VALUES FROM (0) TO (100);
ALTER TABLE p ALTER b TYPE bigint;
ALTER INDEX p_pkey RENAME TO odd_key;
CREATE TABLE self (id integer PRIMARY KEY, above integer REFERENCES p) PARTITION BY LIST (id);
CREATE TABLE self_all PARTITION OF self DEFAULT;
SELECT create_reference_table('self');
CREATE TABLE one (x integer CONSTRAINT positive CHECK (x > 0), only_one integer CHECK (only_one > 0) NO INHERIT);
CREATE TABLE two (y text, x integer);
SELECT create_reference_table('one'), create_reference_table('two');
CREATE TABLE "both" (z integer, own integer) INHERITS (one, two);
CREATE TABLE below () INHERITS ("both", two);
ALTER TABLE one ADD COLUMN late date DEFAULT '2020-02-02';
ALTER TABLE two ADD COLUMN own integer;
CREATE TABLE dist (k integer PRIMARY KEY, a integer);
SELECT create_distributed_table('dist', 'k', shard_count => 4);
ALTER TABLE dist SET SCHEMA public;
ALTER TABLE public.dist ADD FOREIGN KEY (a) REFERENCES p ON UPDATE CASCADE;
INSERT INTO p (a, b) SELECT g, g % 10 FROM generate_series(1, 199) AS g;
INSERT INTO self SELECT g, g FROM generate_series(1, 50) AS g;
INSERT INTO "both" (x, y) VALUES (1, 'y'); INSERT INTO below (x) VALUES (2); INSERT INTO one VALUES (3);
INSERT INTO public.dist SELECT g, g FROM generate_series(1, 100) AS g
"""
TOTALS = """
SELECT (SELECT count(*) FROM trees.p JOIN dist USING (a)), (SELECT sum(a) FROM trees."Q'1"),
       (SELECT count(*) FROM trees.one), (SELECT count(*) FROM ONLY trees.two), (SELECT count(*) FROM trees.self)
"""


def test_new_worker_and_dump(make_cluster: Callable[..., Cluster], tmp_path: Path) -> None:
    """A new worker gets the trees, and so does another cluster from a dump."""
    cluster = make_cluster(workers=1, assertions=True)
    coordinator = cluster.coordinator
    connection = coordinator.connect()
    connection.execute(EVERYTHING)
    nodes_alike(connection, cluster.workers)
    cluster.add_worker()
    assert coordinator.query("SELECT * FROM strata.check_health() WHERE NOT ok") == []
    nodes_alike(connection, cluster.workers)
    connection.execute("DELETE FROM p WHERE a > 150; ALTER TABLE one DROP CONSTRAINT positive")
    nodes_alike(connection, cluster.workers)
    dump = tmp_path / "dump"
    totals = coordinator.query(TOTALS)

    done = run("pg_dump", "-Fc", "-d", coordinator.conninfo(), "-f", dump, node=coordinator)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    other = make_cluster(workers=2, assertions=True)
    theirs = other.coordinator
    # one job: of trees with foreign keys several deadlock now and then, into plain PostgreSQL, too
    done = run("pg_restore", "-d", theirs.conninfo(), dump, node=theirs)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    assert theirs.query(TOTALS) == totals
    with theirs.connect() as restored:
        nodes_alike(restored, other.workers)
        kinds = "SELECT relation::text, kind FROM strata.tables ORDER BY 1"
        assert restored.execute(kinds).fetchall() == coordinator.query(kinds)
        for shape in SHAPES[1:]:  # pg_dump has children's columns in another order
            query = shape.format(schema="trees")
            assert restored.execute(query).fetchall() == coordinator.query(query)
    assert theirs.query("SELECT * FROM strata.check_health() WHERE NOT ok") == []
    worker = cluster.workers[1]
    worker.execute(
        "UPDATE trees.r11 SET b = 5 WHERE a = 101; DROP INDEX trees.p_b; ALTER TABLE trees.r DETACH PARTITION trees.r1;"
        "DELETE FROM ONLY trees.one"
    )
    details = "\n".join(
        f"{name} {detail}"
        for name, detail in coordinator.query(
            "SELECT check_name, detail FROM strata.check_health() WHERE NOT ok"
        )
    )
    assert "copy of trees.r11" in details
    assert "copy of trees.one" in details
    assert "p_b" in details
