"""Values of megabytes: they arrive whole, cost little memory on the way, and none once they are through.

PostgreSQL itself needs two to four times a value's size to read or write it.  The coordinator may
need two more: what libpq receives or sends, and the value.  A changed row of a reference table goes
to each worker as a statement of its own, with one more for each.
"""

from __future__ import annotations

import re
from pathlib import Path

import psycopg
import pytest

from tests.assert_same import assert_same
from tests.cluster import Cluster, Node

MEGABYTES = 40  # more than malloc() ever takes from its heap, where holes would count


def memory(session: psycopg.Connection) -> tuple[int, int]:
    """Kilobytes of its own that the session's server process had at most, and has."""
    status = Path(f"/proc/{session.info.backend_pid}/status").read_text()
    peak, private, shared = (
        int(re.search(rf"{name}:\s+(\d+) kB", status)[1])
        for name in ("VmHWM", "RssAnon", "RssShmem")
    )
    return peak - shared, private


def large(megabytes: int) -> str:
    return "0123456789abcdef" * (megabytes * 65536)


def copy_in(session: psycopg.Connection, table: str, row: str) -> None:
    with session.cursor().copy(f"COPY {table} FROM STDIN") as copy:
        for start in range(0, len(row), 1 << 20):
            copy.write(row[start : start + (1 << 20)])


# what a client does with a large value
DOINGS = {
    "copy": lambda session, value: copy_in(session, "big", f"1\t{value}\n"),
    "insert": lambda session, value: session.execute("INSERT INTO big VALUES (1, %b)", (value,)),
    "upsert": lambda session, value: session.execute(
        "INSERT INTO big VALUES (1, %b) ON CONFLICT (id) DO UPDATE SET v = excluded.v", (value,)
    ),
    "update": lambda session, value: session.execute(
        "UPDATE big SET v = %b WHERE id = 0", (value,)
    ),
    "select": lambda session, value: session.execute("SELECT v FROM big").fetchall(),
}


def grown(node: Node, schema: str, doing: str) -> tuple[float, float]:
    """How much memory it took at most, and how much is left after DISCARD ALL, in sizes of the value."""
    with node.connect() as session:
        session.execute(f"SET search_path = {schema}, strata, public")
        session.execute("TRUNCATE big")
        session.execute("INSERT INTO big VALUES (0, 'small')")
        if doing == "select":
            DOINGS["insert"](session, large(MEGABYTES))
    with node.connect() as session:
        session.execute(f"SET search_path = {schema}, strata, public")
        session.execute("SELECT count(*) FROM big; SELECT v FROM big WHERE id = 0")
        _, before = memory(session)
        DOINGS[doing](session, large(MEGABYTES))
        peak, _ = memory(session)
        session.execute("DISCARD ALL")
        _, kept = memory(session)
    return (peak - before) / (MEGABYTES * 1024), (kept - before) / (MEGABYTES * 1024)


@pytest.mark.sample(3)
@pytest.mark.parametrize("doing", DOINGS)
@pytest.mark.parametrize("kind", ["heap", "columnar", "reference"])
def test_large_values_cost_little_memory(
    cluster: Cluster, schema: str, kind: str, doing: str
) -> None:
    for node in (cluster.coordinator, cluster.plain):
        node.execute("CREATE TABLE big (id int PRIMARY KEY, v text)")
    if kind == "reference":
        cluster.coordinator.execute("SELECT create_reference_table('big')")
    else:
        cluster.coordinator.execute(
            f"SELECT create_distributed_table('big', 'id', 4, storage => '{kind}')"
        )
    peak, kept = grown(cluster.coordinator, schema, doing)
    plain_peak, _ = grown(cluster.plain, schema, doing)
    more = len(cluster.workers) if (kind, doing) == ("reference", "update") else 0
    assert peak < plain_peak + 2.4 + more
    assert kept < 0.2


COLUMNS = "id int, a text, b bytea, c jsonb, d int[], e numeric, f pair[], g text"


@pytest.fixture(params=["heap", "columnar", "reference"])
def mixed(cluster: Cluster, schema: str, request: pytest.FixtureRequest) -> str:
    """Two tables of all formats in which values travel; the second one's rows travel as text."""
    for node in (cluster.coordinator, cluster.plain):
        node.execute("CREATE TYPE pair AS (x int, y text)")
        node.execute(f"CREATE TABLE as_text ({COLUMNS})")
        node.execute(f"CREATE TABLE as_binary ({COLUMNS.replace('f pair[]', 'f bool')})")
        node.execute("CREATE TABLE source (id int, v text)")
        node.execute(
            "INSERT INTO source SELECT i, string_agg(md5(i * 100000 + n || ''), '')"
            " FROM generate_series(1, 4) i, generate_series(1, 20000) n GROUP BY i"
        )
    for table in ("as_text", "as_binary"):
        cluster.coordinator.execute(
            f"SELECT create_reference_table('{table}')"
            if request.param == "reference"
            else f"SELECT create_distributed_table('{table}', 'id', 4, storage => '{request.param}')"
        )
    return request.param


def insert(table: str, filter_: str = "true") -> str:
    """Small rows between rows that are large in one column or in several."""
    pairs = "ARRAY[(id, v)::pair]" if table == "as_text" else "id > 3"
    return (
        f"INSERT INTO {table} SELECT id, NULL, NULL, '[1]', NULL, 1.5, NULL, 'small' FROM source"
        f" WHERE {filter_} UNION ALL "
        f"SELECT id, CASE WHEN id % 2 = 0 THEN v || v END, convert_to(v, 'UTF8'), to_jsonb(v),"
        f" ARRAY(SELECT generate_series(1, 150000 * (id % 2))), 10.0 ^ (100 * id), {pairs}, E'\\\\t' || v"
        f" FROM source WHERE {filter_}"
    )


CHECK = (
    "SELECT id, md5(a), md5(b), md5(c::text), md5(d::text), e, md5(f::text), md5(g) FROM {}"
    " ORDER BY id, g"
)


@pytest.mark.sample(2)
@pytest.mark.parametrize("encoding", ["UTF8", "LATIN1"])
def test_large_rows_of_all_formats_arrive_whole(
    cluster: Cluster, mixed: str, encoding: str
) -> None:
    for table in ("as_text", "as_binary"):
        for node in (cluster.coordinator, cluster.plain):
            node.execute(f"SET client_encoding = {encoding}")
            node.execute(insert(table))
        assert_same(cluster, CHECK.format(table))


def test_large_rows_that_fail_or_are_rolled_back_leave_nothing(
    cluster: Cluster, mixed: str
) -> None:
    for node in (cluster.coordinator, cluster.plain):
        node.execute("CREATE UNIQUE INDEX once ON as_binary (id, e)")
        with node.connection.transaction():
            node.execute(insert("as_binary", "id = 1"))
            for undone in (insert("as_binary", "id IN (2, 3)"), insert("as_binary", "id = 3")):
                with node.connection.transaction(force_rollback=True):
                    node.execute(undone)
            with pytest.raises(psycopg.errors.UniqueViolation), node.connection.transaction():
                node.execute(insert("as_binary", "id IN (1, 3)"))
            node.execute(insert("as_binary", "id = 4"))
    assert_same(cluster, CHECK.format("as_binary"))
