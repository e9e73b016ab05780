"""The first rows of groups: windows with a limit, DISTINCT ON, LATERAL ... LIMIT, where the rows are."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cluster import Cluster
from tests.pair import Pair, open_pair

TABLES = """
CREATE TABLE reading (id integer, host integer, kind integer, v numeric, note text);
CREATE TABLE nothing (id integer, host integer, kind integer, v numeric, note text);
CREATE TABLE host (host integer, name text);
CREATE TABLE kind (kind integer, title text);
"""
ROWS = """
INSERT INTO reading SELECT i, i % 41, nullif(i % 7, 3), nullif(i * 7919 % 101, 50), 'n' || i % 5
  FROM generate_series(1, 1500) AS i;
INSERT INTO reading SELECT id, host, kind, v, note FROM reading WHERE id <= 40;
INSERT INTO reading VALUES (5000, NULL, NULL, NULL, NULL), (5001, NULL, 1, 3, 'x');
INSERT INTO host SELECT i, 'h' || i % 10 FROM generate_series(0, 50) AS i;
INSERT INTO kind SELECT i, 'k' || i FROM generate_series(0, 9) AS i;
ANALYZE reading, nothing, host, kind;
"""


@pytest.fixture(scope="module", params=["columnar", "heap"])
def pair(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[Pair]:
    with open_pair(cluster, f"test_first_rows_{request.param}") as made:
        made.execute(TABLES)
        made.reference("kind")
        for table, colocated in (("reading", "none"), ("nothing", "reading"), ("host", "reading")):
            made.distribute(table, "host", colocated, storage=request.param)
        made.execute(ROWS)
        yield made


def ranked(
    function: str, window: str, limit: str, columns: str = "*", table: str = "reading"
) -> str:
    return f"SELECT {columns} FROM (SELECT *, {function}() OVER ({window}) AS n FROM {table}) AS r WHERE {limit}"


BY_KEY = "PARTITION BY host ORDER BY v, id"
BY_OTHER = "PARTITION BY kind ORDER BY v DESC, id, host"


@pytest.mark.parametrize(
    "query",
    [
        # whole on the workers
        ranked("row_number", BY_KEY, "n <= 2"),
        ranked("row_number", BY_KEY, "n = 1"),
        ranked("rank", "PARTITION BY host ORDER BY v", "3 > n"),
        ranked("row_number", BY_KEY, "n <= 3 AND v > 10", "host, count(*), sum(v)")
        + " GROUP BY host",
        ranked("row_number", BY_KEY, "n <= 3", "note, count(*), avg(v)") + " GROUP BY note",
        ranked("row_number", BY_KEY, "n <= 2", "host, v, n") + " ORDER BY v DESC, host, n LIMIT 7",
        ranked("row_number", BY_KEY, "n <= 1", "r.host, name, v").replace(
            "AS r", "AS r JOIN host USING (host)"
        ),
        ranked("row_number", BY_KEY, "n < 0"),
        ranked("row_number", BY_KEY, "n <= (SELECT count(*) FROM kind WHERE kind < 2)"),
        ranked("row_number", "PARTITION BY host, kind ORDER BY v, id", "n <= 1"),
        "SELECT * FROM (SELECT host, sum(v) AS s, rank() OVER (PARTITION BY host ORDER BY sum(v)) AS n"
        " FROM reading GROUP BY host, kind) AS r WHERE n = 1",
        "SELECT * FROM (SELECT host, v, count(*) OVER (PARTITION BY host ORDER BY v) AS n FROM reading)"
        " AS r WHERE n <= 3",
        "SELECT * FROM (SELECT host, id, row_number() OVER w AS n, sum(v) OVER w AS s, rank() OVER"
        " (PARTITION BY host ORDER BY note) AS m FROM reading WINDOW w AS (PARTITION BY host ORDER BY v,"
        " id)) AS r WHERE n <= 3 AND m <= 5",
        "SELECT name, (SELECT max(n) FROM (SELECT row_number() OVER (ORDER BY v, id) AS n FROM reading AS g"
        " WHERE g.host = h.host) AS r WHERE n <= 4) FROM host AS h",
        # the first of each worker, then of all
        ranked("row_number", BY_OTHER, "n <= 2"),
        ranked("row_number", BY_OTHER, "n = 1", "kind, v, id"),
        ranked("rank", "PARTITION BY kind ORDER BY v DESC", "n <= 3", "kind, v, n"),
        ranked(
            "dense_rank", "PARTITION BY kind ORDER BY note NULLS FIRST", "n <= 2", "kind, note, n"
        ),
        ranked("row_number", "ORDER BY v NULLS FIRST, id, kind", "n <= 10", "id, v, n"),
        ranked("rank", "PARTITION BY kind", "n <= 1", "kind, n"),
        ranked("row_number", BY_OTHER, "n <= 2 AND id % 2 = 0", "kind, id"),
        ranked(
            "row_number", "PARTITION BY kind % 3, note ORDER BY v, id, host", "n <= 2", "v, note"
        ),
        ranked("row_number", BY_OTHER, "n <= 2", "title, v").replace(
            "AS r", "AS r JOIN kind USING (kind)"
        ),
        "SELECT * FROM (SELECT host, sum(v) AS s, rank() OVER (ORDER BY sum(v) DESC) AS n FROM reading"
        " GROUP BY host) AS r WHERE n <= 3",
        "SELECT kind, v, n, m FROM (SELECT kind, v, rank() OVER w AS n, dense_rank() OVER w AS m FROM reading"
        " WINDOW w AS (PARTITION BY kind ORDER BY v)) AS r WHERE n <= 4 AND m <= 2",
    ],
)
def test_ranks_with_a_limit(pair: Pair, query: str) -> None:
    pair.same(query)
    assert "filtered" in pair.every_remote_sql(query)
    pair.same(query.replace("reading", "nothing"))


@pytest.mark.parametrize(
    "query",
    [
        # other functions see all rows of their window, and several windows see several orders
        "SELECT kind, v, n FROM (SELECT kind, v, count(*) OVER (PARTITION BY kind ORDER BY v) AS n"
        " FROM reading) AS r WHERE n <= 8",
        "SELECT * FROM (SELECT kind, v, id, row_number() OVER w AS n, lead(id) OVER w AS l FROM reading"
        " WINDOW w AS (PARTITION BY kind ORDER BY v, id, host)) AS r WHERE n <= 2",
        "SELECT * FROM (SELECT kind, v, id, row_number() OVER (PARTITION BY kind ORDER BY v, id, host) AS n,"
        " row_number() OVER (PARTITION BY note ORDER BY v DESC, id, host) AS m FROM reading) AS r"
        " WHERE n <= 2 AND m <= 50",
        # not a first value, and an order that only PostgreSQL's sub-select gives
        ranked("row_number", BY_OTHER, "n >= 40", "kind, v, n"),
        "SELECT * FROM (SELECT v, row_number() OVER () AS n FROM (SELECT v FROM reading ORDER BY v, id,"
        " host) AS s) AS r WHERE n <= 5",
        ranked("row_number", BY_OTHER, "n <= 2", table="(SELECT * FROM reading LIMIT 2000) AS few"),
    ],
)
def test_what_needs_all_rows(pair: Pair, query: str) -> None:
    pair.same(query)


@pytest.mark.parametrize(
    "query",
    [
        "SELECT DISTINCT ON (host) host, v, id FROM reading ORDER BY host, v DESC, id",
        "SELECT DISTINCT ON (host) id, note FROM reading ORDER BY host DESC NULLS LAST, v NULLS FIRST, id",
        "SELECT DISTINCT ON (host, kind) host, kind, v FROM reading ORDER BY kind, host, v, id",
        "SELECT DISTINCT ON (kind) kind, v, id FROM reading ORDER BY kind, v DESC, id",
        "SELECT DISTINCT ON (kind) v, id FROM reading ORDER BY kind NULLS FIRST, v, id, host",
        "SELECT DISTINCT ON (kind, note) note FROM reading ORDER BY note",
        "SELECT DISTINCT ON (kind) kind FROM reading",
        "SELECT DISTINCT ON (lower(note)) lower(note), v FROM reading ORDER BY lower(note), v, id",
        "SELECT DISTINCT ON (host) host, v FROM reading ORDER BY host, v LIMIT 5 OFFSET 2",
        "SELECT DISTINCT ON (kind) kind, v FROM reading WHERE v > 20 ORDER BY kind, v LIMIT 3",
        "SELECT name, v FROM (SELECT DISTINCT ON (host) host, v FROM reading ORDER BY host, v DESC, id)"
        " AS d JOIN host USING (host)",
        "SELECT count(*), sum(id) FROM (SELECT DISTINCT ON (host) host, id FROM reading ORDER BY host, v,"
        " id) AS d",
        "SELECT sum(id) FROM (SELECT DISTINCT ON (kind) id FROM reading ORDER BY kind, v, id) AS d",
        "SELECT string_agg(v::text, ',') FROM (SELECT DISTINCT ON (host) v FROM reading ORDER BY host, v"
        " DESC) AS d",
        "SELECT DISTINCT ON (h.name) h.name, r.v FROM reading AS r JOIN host AS h USING (host) ORDER BY"
        " h.name, r.v DESC NULLS LAST",
        "SELECT DISTINCT ON (host) host, v FROM reading WHERE host = 7 ORDER BY host, v",
        "SELECT DISTINCT ON (1) id FROM reading ORDER BY 1, v",
    ],
)
def test_distinct_on(pair: Pair, query: str) -> None:
    pair.same(query)
    pair.same(query.replace("reading", "nothing"))
    if "ON (1)" not in query:
        assert "filtered" in pair.every_remote_sql(query)


LATERAL = [
    "SELECT h.name, l.id, l.v FROM host AS h, LATERAL (SELECT id, v FROM reading AS r WHERE r.host = h.host"
    " ORDER BY id DESC LIMIT 1) AS l",
    "SELECT h.name, l.id FROM host AS h LEFT JOIN LATERAL (SELECT id FROM reading AS r WHERE r.host = h.host"
    " AND v > 95 ORDER BY id DESC LIMIT 1) AS l ON true",
    "SELECT h.name, l.m FROM host AS h, LATERAL (SELECT max(v) AS m FROM reading AS r WHERE r.host = h.host) AS l",
    "SELECT h.name, l.id, m.id FROM host AS h, LATERAL (SELECT id FROM reading AS r WHERE r.host = h.host"
    " ORDER BY id DESC LIMIT 1) AS l LEFT JOIN LATERAL (SELECT id FROM reading AS r WHERE r.host = h.host AND"
    " r.id < l.id ORDER BY id LIMIT 1) AS m ON m.id > 10",
    "SELECT h.name, l.c FROM host AS h, LATERAL (SELECT count(*) AS c FROM (SELECT v FROM reading AS r WHERE"
    " r.host = h.host ORDER BY v LIMIT 5) AS s WHERE s.v > length(h.name)) AS l",
    "SELECT name, (SELECT max(l.id) FROM host AS o, LATERAL (SELECT id FROM reading AS r WHERE r.host = o.host"
    " AND length(h.name) < r.id ORDER BY id LIMIT 1) AS l WHERE o.host = h.host) FROM host AS h",
    # each worker has all outer rows, and finds something for its own
    "SELECT k.title, l.id FROM kind AS k, LATERAL (SELECT id FROM reading AS r WHERE r.host = k.kind ORDER BY"
    " id DESC LIMIT 2) AS l",
    "SELECT k.title, sum(l.v) FROM kind AS k, LATERAL (SELECT v FROM reading AS r WHERE r.host = k.kind ORDER BY"
    " id DESC LIMIT 2) AS l GROUP BY k.title",
    "SELECT k.title, l.* FROM kind AS k, LATERAL (SELECT note, max(v) FROM reading AS r WHERE r.host = k.kind"
    " GROUP BY note) AS l",
    "SELECT k.title, l.* FROM kind AS k, LATERAL (SELECT DISTINCT ON (note) note, id FROM reading AS r WHERE"
    " r.host = k.kind ORDER BY note, id) AS l",
    "SELECT k.title, l.* FROM kind AS k, LATERAL (SELECT host, count(*) FROM reading AS r WHERE r.v > k.kind * 9"
    " GROUP BY host) AS l",
    "SELECT k.title, l.id FROM kind AS k, LATERAL (SELECT id FROM reading AS r WHERE r.host = 5 AND"
    " r.kind = k.kind ORDER BY id LIMIT 1) AS l",
    "SELECT k.title, l.id FROM kind AS k JOIN LATERAL (SELECT id FROM reading AS r WHERE r.host = k.kind ORDER"
    " BY id LIMIT 1) AS l ON l.id > k.kind WHERE k.kind > 2 ORDER BY k.title LIMIT 3",
]
LATERAL_HERE = [
    # a group of nothing, and rows that an outer join keeps, would come from every worker
    "SELECT k.title, l.m FROM kind AS k, LATERAL (SELECT max(v) AS m FROM reading AS r WHERE r.host = k.kind) AS l",
    "SELECT k.title, l.c FROM kind AS k, LATERAL (SELECT count(*) AS c FROM (SELECT max(id) AS i FROM reading AS"
    " r WHERE r.host = k.kind) AS s) AS l",
    "SELECT k.title, l.id FROM kind AS k LEFT JOIN LATERAL (SELECT id FROM reading AS r WHERE r.host = k.kind"
    " ORDER BY id LIMIT 1) AS l ON true",
    "SELECT k.title, l.* FROM kind AS k, LATERAL (SELECT o.kind, r.id FROM kind AS o LEFT JOIN reading AS r ON"
    " r.host = k.kind AND r.kind = o.kind ORDER BY 1, 2 LIMIT 3) AS l",
    # the rows of one outer row are elsewhere, or on several workers
    "SELECT h.name, l.id FROM host AS h, LATERAL (SELECT id FROM reading AS r WHERE r.host = length(h.name)"
    " ORDER BY id LIMIT 1) AS l",
    "SELECT h.name, l.id FROM host AS h, LATERAL (SELECT id, v FROM reading AS r WHERE r.v > h.host ORDER BY v,"
    " id, r.host LIMIT 1) AS l",
    "SELECT h.name, l.title FROM host AS h, LATERAL (SELECT title FROM kind AS k WHERE k.kind <> h.host ORDER BY"
    " title LIMIT 1) AS l",
]


@pytest.mark.parametrize("query", LATERAL)
def test_lateral(pair: Pair, query: str) -> None:
    pair.same(query)
    assert "LATERAL" in pair.every_remote_sql(query)
    pair.same(query.replace("reading", "nothing"))


@pytest.mark.parametrize("query", LATERAL_HERE)
def test_lateral_here(pair: Pair, query: str) -> None:
    pair.same(query)
    pair.same(query.replace("reading", "nothing"))


def test_distinct_on_here(pair: Pair) -> None:
    """Of groups that are finished here, of windows, of copies, of rows whose order is asked for."""
    pair.same(
        "SELECT DISTINCT ON (host) host, rank() OVER (PARTITION BY host ORDER BY v) FROM reading ORDER BY host, 2 DESC"
    )
    pair.same(
        "SELECT DISTINCT ON (kind) kind, count(*) FROM reading GROUP BY kind, note ORDER BY kind, 2 DESC"
    )
    pair.same("SELECT DISTINCT ON (kind % 2) title FROM kind ORDER BY kind % 2, kind")
    pair.same(
        "SELECT DISTINCT ON (kind) kind, v FROM (SELECT * FROM reading ORDER BY v, id, host) AS s"
        " ORDER BY kind, v"
    )
    pair.same("SELECT count(*) FROM (SELECT DISTINCT ON (kind) kind, random() FROM reading) AS d")


@pytest.mark.parametrize("mode", ["force_custom_plan", "force_generic_plan"])
def test_parameters(pair: Pair, mode: str) -> None:
    pair.execute(f"SET plan_cache_mode = {mode}")
    for name, query in {
        "by_key": ranked("row_number", BY_KEY, "n <= $1", "host, v, id"),
        "by_other": ranked("row_number", BY_OTHER, "n < $1", "kind, v, id"),
        "of_host": "SELECT h.name, l.id FROM host AS h, LATERAL (SELECT id FROM reading AS r WHERE r.host ="
        " h.host AND v > $1 ORDER BY id LIMIT $1) AS l",
        "on_key": "SELECT DISTINCT ON (host) host, v FROM reading WHERE v > $1 ORDER BY host, v",
    }.items():
        pair.execute(f"PREPARE {name}(integer) AS {query}")
        for value in ("1", "3", "0", "NULL", "2000000000"):
            pair.same(f"EXECUTE {name}({value})")
    pair.execute("DEALLOCATE ALL; RESET plan_cache_mode")


def test_own_writes_and_cursors(pair: Pair) -> None:
    queries = [
        ranked("row_number", BY_KEY, "n <= 2", "host, v, id"),
        ranked("row_number", BY_OTHER, "n <= 2", "kind, v, id"),
        "SELECT DISTINCT ON (kind) kind, v, id FROM reading ORDER BY kind, v DESC, id",
    ]
    with pair.transaction():
        pair.same("UPDATE reading SET v = 1000 WHERE id % 10 = 0")
        pair.same("DELETE FROM reading WHERE v IS NULL OR kind = 2")
        pair.same("INSERT INTO reading VALUES (9000, 3, 3, 5000, 'new'), (9001, 4, 3, 6000, 'new')")
        pair.all_same(queries)
        for number, query in enumerate(queries):
            pair.same(f"DECLARE c{number} CURSOR FOR {query}")
        pair.same("DELETE FROM reading WHERE v >= 1000")
        for number in range(len(queries)):
            pair.same(f"FETCH ALL FROM c{number}", ordered=False)


def test_row_security(pair: Pair) -> None:
    """What policies hide has no rank."""
    with pair.under_policy("reading", "id % 2 = 1 AND v < 60"):
        pair.same(ranked("row_number", BY_KEY, "n <= 2", "host, v, id"))
        pair.same(ranked("row_number", BY_OTHER, "n <= 2", "kind, v, id"))
        pair.same("SELECT DISTINCT ON (kind) kind, v, id FROM reading ORDER BY kind, v DESC, id")
