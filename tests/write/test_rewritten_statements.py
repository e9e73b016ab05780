"""DML that PostgreSQL has rewritten before it is sent: generated columns, rules, views, ON CONFLICT."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cluster import Cluster
from tests.pair import Pair, open_pair

TABLES = """
CREATE TABLE d (k integer PRIMARY KEY, a integer, b integer,
    g integer GENERATED ALWAYS AS (a + 1) STORED, h integer GENERATED ALWAYS AS (a * 2) STORED);
CREATE TABLE r (k integer PRIMARY KEY, a integer, b integer,
    g integer GENERATED ALWAYS AS (a + 1) STORED, h integer GENERATED ALWAYS AS (a * 2) STORED);
CREATE TABLE e (k integer PRIMARY KEY, c integer);
"""

VIEWS = """
CREATE VIEW plain_{0} AS SELECT k, b, a AS other FROM {0};
CREATE VIEW nested_{0} AS SELECT other, k AS id, b FROM plain_{0};
CREATE VIEW ruled_{0} AS SELECT k, b FROM {0};
CREATE RULE u AS ON UPDATE TO ruled_{0} DO INSTEAD
    UPDATE {0} SET b = NEW.b, a = OLD.b WHERE k = OLD.k RETURNING NEW.*;
CREATE RULE d AS ON DELETE TO ruled_{0} DO INSTEAD
    DELETE FROM {0} WHERE k = OLD.k RETURNING OLD.k, OLD.b + 1;
CREATE RULE i AS ON INSERT TO ruled_{0} DO INSTEAD INSERT INTO {0} (k, b) VALUES (NEW.k, NEW.b);
CREATE VIEW joined_{0} AS SELECT {0}.k, b, c FROM {0} JOIN e USING (k);
CREATE RULE u AS ON UPDATE TO joined_{0} WHERE NEW.b > 3 DO INSTEAD
    (UPDATE {0} SET b = NEW.b WHERE k = OLD.k; UPDATE e SET c = NEW.c WHERE k = OLD.k);
CREATE RULE n AS ON UPDATE TO joined_{0} DO INSTEAD NOTHING;
CREATE VIEW also_{0} AS SELECT * FROM {0};
CREATE RULE u AS ON UPDATE TO also_{0} DO ALSO
    UPDATE {0} AS x SET a = s.k * 10 FROM (SELECT k FROM {0} WHERE k = OLD.k) AS s WHERE x.k = s.k;
CREATE VIEW fired_{0} AS SELECT k, b FROM {0};
CREATE FUNCTION fire_{0} () RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'DELETE' THEN
        DELETE FROM {0} WHERE k = OLD.k;
        RETURN OLD;
    END IF;
    UPDATE {0} SET b = NEW.b WHERE k = OLD.k;
    RETURN NEW;
END $$;
CREATE TRIGGER t INSTEAD OF UPDATE OR DELETE ON fired_{0} FOR EACH ROW EXECUTE FUNCTION fire_{0} ();
"""


@pytest.fixture(scope="module")
def made(cluster: Cluster) -> Iterator[Pair]:
    with open_pair(cluster, "test_rewritten_statements") as pair:
        pair.execute(TABLES)
        pair.distribute("d", "k", shards=4)
        pair.reference("r")
        pair.distribute("e", "k", colocate_with="d")
        for table in ("d", "r"):
            pair.execute(VIEWS.format(table))
            pair.execute(f"INSERT INTO {table} SELECT g, g, g % 5 FROM generate_series(1, 40) AS g")
        pair.execute("INSERT INTO e SELECT g, g * 10 FROM generate_series(1, 30) AS g")
        yield pair


STATEMENTS = [
    # a generated column is given its default, and nothing else
    "UPDATE {t} SET g = DEFAULT WHERE k = 1",
    "UPDATE {t} SET g = DEFAULT",
    "UPDATE {t} SET h = DEFAULT, g = DEFAULT WHERE b = 2 RETURNING k, g, h",
    "UPDATE {t} SET g = DEFAULT FROM e WHERE e.k = {t}.k AND e.c > 100 RETURNING {t}.*",
    "UPDATE {t} SET a = a + 1, g = DEFAULT WHERE k = 4",
    "INSERT INTO {t} (k, a) VALUES (1, 2), (77, 3) ON CONFLICT (k) DO UPDATE SET g = DEFAULT RETURNING *",
    "INSERT INTO {t} (k, a) SELECT k, c FROM e ON CONFLICT (k) DO UPDATE SET h = DEFAULT",
    "MERGE INTO {t} USING e ON {t}.k = e.k WHEN MATCHED THEN UPDATE SET g = DEFAULT",
    # rules
    "UPDATE ruled_{t} SET b = 7 WHERE k = 3",
    "UPDATE ruled_{t} SET b = b + 1",
    "UPDATE ruled_{t} SET b = 7 WHERE k = 3 RETURNING *",
    "UPDATE ruled_{t} SET b = b + 1 RETURNING k, b + k",
    "UPDATE ruled_{t} AS x SET b = e.c FROM e WHERE e.k = x.k RETURNING x.b, e.*",
    "DELETE FROM ruled_{t} WHERE b > 3 RETURNING k, b",
    "UPDATE ruled_{t} AS x SET b = e.c FROM e WHERE e.k = x.k",
    "DELETE FROM ruled_{t} WHERE b > 3",
    "DELETE FROM ruled_{t}",
    "INSERT INTO ruled_{t} VALUES (90, 1), (91, 2)",
    "UPDATE joined_{t} SET b = b + 2, c = 0",
    "UPDATE joined_{t} SET b = b + 2, c = 0 WHERE k = 4",
    "UPDATE also_{t} SET b = b + 2 WHERE k > 20",
    # triggers of views
    "UPDATE fired_{t} SET b = 8 WHERE k = 3",
    "UPDATE fired_{t} SET b = b + 1 WHERE k < 20",
    "DELETE FROM fired_{t} WHERE k < 20",
    # ON CONFLICT through views: "excluded" is the view's row
    "INSERT INTO plain_{t} (k, b) VALUES (1, 100), (50, 1) ON CONFLICT (k) DO UPDATE SET b = excluded.b",
    "INSERT INTO plain_{t} AS p (k, other) VALUES (1, 100), (2, 1)"
    " ON CONFLICT (k) DO UPDATE SET b = excluded.other + p.other WHERE excluded.other > p.other RETURNING *",
    "INSERT INTO nested_{t} (id, b) VALUES (1, 100), (60, 1)"
    " ON CONFLICT (id) DO UPDATE SET b = nested_{t}.b + excluded.b RETURNING other, id, b",
    "INSERT INTO plain_{t} (k, b) SELECT k, c FROM e ON CONFLICT (k) DO UPDATE SET b = excluded.b",
    "INSERT INTO plain_{t} (k, b) SELECT k, c FROM e AS excluded ON CONFLICT (k) DO NOTHING",
    # FROM items that have columns in common
    "UPDATE {t} SET b = e.c FROM e FULL JOIN (SELECT k, c AS cc FROM e) AS o USING (k) WHERE {t}.k = k",
    "UPDATE {t} SET b = j.k FROM (e LEFT JOIN (SELECT k, c AS cc FROM e WHERE c > 90) AS o USING (k)) AS j"
    " WHERE {t}.k = j.k RETURNING {t}.k, j.cc",
]


@pytest.mark.parametrize("table", ["d", "r"])
@pytest.mark.parametrize("statement", STATEMENTS)
def test_a_rewritten_statement(made: Pair, table: str, statement: str) -> None:
    with made.transaction():
        made.same(statement.format(t=table))
        made.all_same(["SELECT * FROM d", "SELECT * FROM r", "SELECT * FROM e"])


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM e LEFT JOIN LATERAL (SELECT e.c AS cc, d.k AS dk FROM d WHERE d.k = e.k) AS s ON true",
        "SELECT * FROM e LEFT JOIN LATERAL (SELECT e.c AS cc, d.k AS dk FROM d WHERE d.b = e.c / 100) AS s ON true",
        "SELECT e.k, s.x FROM r AS e LEFT JOIN LATERAL (SELECT e.b AS x FROM d WHERE d.k > e.k + 30) AS s ON true",
        "SELECT count(s.x), sum(s.y) FROM e LEFT JOIN LATERAL"
        " (SELECT e.c AS x, e.k + 1 AS y, d.* FROM d JOIN r USING (k) WHERE d.k = e.k) AS s ON s.b > 1",
        "SELECT * FROM e LEFT JOIN LATERAL (SELECT e.c AS x, o.k FROM d RIGHT JOIN e AS o ON d.k = e.k AND o.k = d.k"
        " WHERE o.k < 4) AS s ON true",
    ],
)
def test_a_lateral_sub_select_gives_a_column_of_the_outer_row(made: Pair, query: str) -> None:
    made.same(query)
