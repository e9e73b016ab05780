"""The columnar store against heap: size, COPY, counting, projection, look-ups, single rows.

One PostgreSQL server of its own, fsync off, so that ratios compare code and not disks; only the
rates of single-row INSERT transactions are also taken with fsync on, as a user has it.  What is
compared runs in turns.  The tables are TPC-H's lineitem at scale factor 1, as heap and columnar.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg

from benchmarks.measure import (
    Result,
    execute_seconds,
    interleave,
    median_milliseconds,
    median_milliseconds_of,
    process_cpu,
    seconds_of,
)
from tests.cluster import Cluster, Node
from tests.installation import find_binaries, give_to_server, run_as_server
from tests.tpch import data

ROUNDS = 3
COUNTED_ROWS = 25_000_000
LOOKUPS = 2_000
UPDATES = 1_000
INSERTS = 4_000  # transactions of one run of pgbench
INSERT_ROUNDS = 9

# Bytes of a page that are a row group's.
PAGE_BYTES = 8168

SETTINGS = {
    "shared_buffers": "1GB",
    "max_wal_size": "8GB",
    "autovacuum": "off",
    "shared_preload_libraries": "'strata_columnar'",
}

# A row whose key nobody has; pgbench fills in :key.
NEW_LINEITEM = (
    "(:key, 155190, 7706, 1, 17, 21168.23, 0.04, 0.02, 'N', 'O', '1996-03-13', '1996-02-12',"
    " '1996-03-22', 'DELIVER IN PERSON', 'TRUCK', 'egular courts above the')"
)
NEW_NARROW = "(:key, 5, 'text of a row')"


# ---- the server ----------------------------------------------------------------------------------


@contextmanager
def columnar_server(root: Path, **settings: str) -> Iterator[Node]:
    """A server with the extension, removed afterwards."""
    cluster = Cluster(root, workers=0, extension=False)
    cluster.coordinator.settings |= SETTINGS | settings
    with cluster:
        cluster.coordinator.execute("CREATE EXTENSION strata_columnar")
        yield cluster.coordinator


def measure_columnar(cluster: Cluster) -> list[Result]:
    with columnar_server(cluster.root / "columnar") as node:
        results = measure_load(node)
        results += measure_projection(node)
        results += measure_scans(node)
        results += measure_index_build(node)
        results += measure_count(node)
        results += measure_points(node)
        results += measure_inserts(node)
        results += measure_mass_changes(node)
        return results


# ---- size and COPY -------------------------------------------------------------------------------


def lineitem_columns() -> str:
    """The columns of lineitem, without its key."""
    text = (data.HERE / "tables.sql").read_text()
    match = re.search(r"CREATE TABLE lineitem \((.*?),\n\tPRIMARY KEY", text, re.DOTALL)
    if match is None:
        raise RuntimeError("tables.sql has no lineitem with a primary key")
    return match.group(1)


def generate_lineitem(directory: Path) -> Path:
    """lineitem.csv, readable by the server."""
    directory.mkdir()
    data.generate(directory, 1)
    give_to_server(directory, 0o700)
    file = directory / "lineitem.csv"
    give_to_server(file, 0o600)
    return file


def measure_load(node: Node) -> list[Result]:
    """Load lineitem as heap, hot and cold columnar; the tables stay."""
    file = generate_lineitem(node.root / "tpch")
    for name, method in (("heap", "heap"), ("hot", "columnar"), ("cold", "columnar")):
        node.execute(f"CREATE TABLE lineitem_{name} ({lineitem_columns()}) USING {method}")
    node.execute(
        "SELECT strata_columnar.alter_columnar_table_set('lineitem_cold', compression => 'cold')"
    )
    cpu: dict[str, float] = {}  # of the last run
    actions = {
        name: lambda name=name: load_seconds(node, name, file, cpu)
        for name in ("heap", "hot", "cold")
    }
    seconds = interleave(actions, ROUNDS)
    file.unlink()
    for name in actions:
        node.execute(f"ANALYZE lineitem_{name}")
    sizes = {
        name: node.value("SELECT pg_table_size(%s::regclass)", (f"lineitem_{name}",))
        for name in actions
    }
    return [
        size_result("size of lineitem SF1, hot rule, against heap", sizes, "hot", 0.22),
        size_result("size of lineitem SF1, cold rule, against heap", sizes, "cold", 0.16),
        time_result("COPY of lineitem SF1, hot rule, against heap", seconds, "hot", 1.5, cpu),
        time_result("COPY of lineitem SF1, cold rule, against heap", seconds, "cold", None, cpu),
    ]


def load_seconds(node: Node, name: str, file: Path, cpu: dict[str, float]) -> float:
    node.execute(f"TRUNCATE lineitem_{name}")
    node.execute("CHECKPOINT")
    pid = node.connection.info.backend_pid
    begin = process_cpu(pid)
    command = f"COPY lineitem_{name} FROM '{file}' (FORMAT csv, HEADER)"
    seconds = seconds_of(lambda: node.execute(command))
    cpu[name] = process_cpu(pid) - begin
    return seconds


def size_result(title: str, sizes: dict[str, int], name: str, budget: float) -> Result:
    detail = f"{sizes[name] / 1e6:.0f} MB, heap {sizes['heap'] / 1e6:.0f} MB"
    return Result(title, sizes[name] / sizes["heap"], "x", budget, "less", detail)


def time_result(
    title: str,
    seconds: dict[str, float],
    name: str,
    budget: float | None = None,
    cpu: dict[str, float] | None = None,
) -> Result:
    """A time as a multiple of heap's; the detail has CPU times, which others cannot stretch."""
    detail = f"{show_seconds(seconds[name])}, heap {show_seconds(seconds['heap'])}"
    if cpu is not None:
        detail += f" (CPU {cpu[name]:.1f} s, heap {cpu['heap']:.1f} s)"
    return Result(title, seconds[name] / seconds["heap"], "x", budget, "less", detail)


def show_seconds(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 1 else f"{seconds * 1000:.1f} ms"


# ---- scans ---------------------------------------------------------------------------------------


def measure_projection(node: Node) -> list[Result]:
    """Pages that a scan of one column reads, against the pages on which the column lies."""
    ratios = []
    for column, pages in column_pages(node, "lineitem_hot").items():
        count = pages_read(node, f"SELECT {column} FROM lineitem_hot")
        ratios.append((count / pages, f"worst, {column}: {count} pages, it lies on {pages}"))
    worst, detail = max(ratios)
    return [Result("pages read by a scan of 1 of 16 columns", worst, "x", 1.2, "less", detail)]


def column_pages(node: Node, table: str) -> dict[str, int]:
    """On how many pages each column lies: chunks follow each other, aligned to 8 bytes."""
    return dict(
        node.query(
            f"""
            SELECT column_name, sum(("end" - 1) / {PAGE_BYTES} - start / {PAGE_BYTES} + 1)::int
            FROM (
                SELECT c.column_name::text, "end" - c.bytes AS start, "end"
                FROM (
                    SELECT *, coalesce(
                        sum((bytes + 7) / 8 * 8) OVER chunks_before, 0)::bigint + bytes AS "end"
                    FROM strata_columnar.columnar_chunks(%(table)s)
                    JOIN pg_attribute ON attrelid = %(table)s::regclass AND attname = column_name
                    WINDOW chunks_before AS (
                        PARTITION BY group_id ORDER BY attnum
                        ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
                    )
                ) AS c
            ) AS placed
            GROUP BY column_name
            """,
            {"table": table},
        )
    )


def pages_read(node: Node, query: str) -> int:
    ((plan,),) = node.query(f"EXPLAIN (ANALYZE, TIMING OFF, FORMAT JSON) {query}")
    return sum_of_property(plan[0]["Plan"], "Pages Read")


def sum_of_property(plan: dict, name: str) -> int:
    below = sum(sum_of_property(child, name) for child in plan.get("Plans", []))
    return plan.get(name, 0) + below


def measure_scans(node: Node) -> list[Result]:
    """How fast rows come out of a warm table, without parallel query."""
    results = []
    queries = {
        # the bare columns' sums are stored
        "sum of a numeric column": "SELECT sum(-l_extendedprice) FROM lineitem_{}",
        "sum of an int column": "SELECT sum(l_partkey % 1000) FROM lineitem_{}",
        "longest text": "SELECT max(length(l_comment)) FROM lineitem_{}",
        "TPC-H Q6": (
            "SELECT sum(l_extendedprice * l_discount) FROM lineitem_{} WHERE"
            " l_shipdate >= '1994-01-01' AND l_shipdate < '1995-01-01' AND"
            " l_discount BETWEEN 0.05 AND 0.07 AND l_quantity < 24"
        ),
        "all columns": "SELECT count(l) FROM lineitem_{} AS l",
    }
    rows = node.value("SELECT count(*) FROM lineitem_heap")
    with node.connect() as connection:
        connection.execute("SET max_parallel_workers_per_gather = 0")
        for title, query in queries.items():
            actions = {
                name: lambda name=name, query=query: execute_seconds(connection, query.format(name))
                for name in ("heap", "hot", "cold")
            }
            seconds = interleave(actions, ROUNDS)
            per_row = {name: value / rows * 1e9 for name, value in seconds.items()}
            detail = f"heap {per_row['heap']:.0f} ns, cold {per_row['cold']:.0f} ns"
            results.append(Result(f"scan, {title}", per_row["hot"], "ns/row", detail=detail))
    return results


def measure_index_build(node: Node) -> list[Result]:
    actions = {
        name: lambda name=name: seconds_of(
            lambda: node.execute(f"CREATE INDEX ON lineitem_{name} (l_partkey)")
        )
        for name in ("heap", "hot")
    }
    seconds = interleave(actions, ROUNDS)
    for name in actions:
        node.execute(f"ALTER TABLE lineitem_{name} ADD PRIMARY KEY (l_orderkey, l_linenumber)")
        for (index,) in node.query(
            "SELECT indexrelid::regclass::text FROM pg_index WHERE indrelid = %s::regclass"
            " AND NOT indisprimary",
            (f"lineitem_{name}",),
        ):
            node.execute(f"DROP INDEX {index}")
    return [time_result("CREATE INDEX on an int column, against heap", seconds, "hot")]


def measure_count(node: Node) -> list[Result]:
    node.execute("CREATE TABLE counted (a integer, b integer, c integer, d integer) USING columnar")
    node.execute(
        f"INSERT INTO counted SELECT g, g, g, g FROM generate_series(1, {COUNTED_ROWS}) AS g"
    )
    node.execute("ANALYZE counted")
    if node.value("SELECT count(*) FROM counted") != COUNTED_ROWS:
        raise RuntimeError("the count is wrong")
    with node.connect() as connection:
        count = median_milliseconds(connection, "SELECT count(*) FROM counted", 200)
    node.execute("DROP TABLE counted")
    return [Result("count(*) of 25 M rows", count, "ms", 5)]


# ---- single rows ---------------------------------------------------------------------------------


def choose_keys(node: Node, count: int) -> list[tuple[int, int]]:
    """Keys of lineitem rows, in random order."""
    keys = node.query(
        "SELECT l_orderkey, l_linenumber FROM lineitem_heap TABLESAMPLE bernoulli (1)"
        " REPEATABLE (1)"
    )
    return random.Random(1).sample(keys, count)


def measure_points(node: Node) -> list[Result]:
    keys = choose_keys(node, LOOKUPS + UPDATES)
    where = "WHERE l_orderkey = {} AND l_linenumber = {}"
    results = []
    for title, statement, budget, chosen in (
        ("look-up of a row by key", "SELECT * FROM lineitem_{} ", 1.0, keys[:LOOKUPS]),
        (
            "look-up of one column by key",
            "SELECT l_quantity FROM lineitem_{} ",
            None,
            keys[:LOOKUPS],
        ),
        (
            "UPDATE of a row by key",
            "UPDATE lineitem_{} SET l_quantity = l_quantity + 1 ",
            2.0,
            keys[LOOKUPS:],
        ),
    ):
        times = {}
        cpu = {}
        for name in ("heap", "hot"):
            queries = [statement.format(name) + where.format(*key) for key in chosen]
            with node.connect() as connection:
                begin = process_cpu(connection.info.backend_pid)
                times[name] = median_milliseconds_of(connection, queries, len(queries) * 9 // 10)
                spent = process_cpu(connection.info.backend_pid) - begin
            cpu[name] = spent / len(queries) * 1000
        detail = f"CPU {cpu['hot']:.2f} ms; heap {times['heap']:.3f} ms, CPU {cpu['heap']:.2f} ms"
        results.append(Result(title, times["hot"], "ms", budget, "less", detail))
    return results


def measure_inserts(node: Node) -> list[Result]:
    """Transactions of a single INSERT per second, against heap: lineitem, and a narrow table."""
    for name, method in (("heap", "heap"), ("hot", "columnar")):
        node.execute(
            f"CREATE TABLE narrow_{name} (k bigint PRIMARY KEY, a integer, t text) USING {method}"
        )
    results = []
    for fsync in ("off", "on"):
        for setting in ("fsync", "full_page_writes"):
            node.execute(f"ALTER SYSTEM SET {setting} = {fsync}")
        node.execute("SELECT pg_reload_conf()")
        node.execute("CHECKPOINT")
        for table, row in (("lineitem", NEW_LINEITEM), ("narrow", NEW_NARROW)):
            for clients in (1, 4):
                rates = insert_rates(node, table, row, clients, 1 if fsync == "off" else 8)
                who = "1 client" if clients == 1 else f"{clients} clients"
                detail = f"{rates['hot']:,.0f}/s, heap {rates['heap']:,.0f}/s"
                title = f"single-row INSERTs into {table}, {who}, fsync {fsync}"
                ratio = rates["hot"] / rates["heap"]
                results.append(Result(title, ratio, "x", 0.5, "more", detail))
    node.execute("ALTER SYSTEM RESET ALL")
    node.execute("SELECT pg_reload_conf()")
    return results


def insert_rates(node: Node, table: str, row: str, clients: int, divisor: int) -> dict[str, float]:
    actions: dict[str, Callable[[], float]] = {}
    for name in ("heap", "hot"):
        script = node.root / f"insert_{table}_{name}.sql"
        script.write_text(
            f"\\set key random(1000000000, 9000000000000000000)\n"
            f"INSERT INTO {table}_{name} VALUES {row};\n"
        )
        give_to_server(script, 0o600)
        actions[name] = lambda script=script: pgbench_rate(
            node, script, clients, INSERTS // clients // divisor
        )
    return interleave(actions, INSERT_ROUNDS)


def pgbench_rate(node: Node, script: Path, clients: int, transactions: int) -> float:
    """Transactions per second, over the unix socket."""
    command: list[str | Path] = [find_binaries() / "pgbench", "--no-vacuum", "--file", script]
    command += ["--host", node.sockets, "--port", str(node.port), "--username", "postgres"]
    command += ["--client", str(clients), "--transactions", str(transactions), "strata"]
    result = run_as_server(command, capture_output=True)
    match = re.search(r"tps = ([0-9.]+)", result.stdout)
    if result.returncode != 0 or match is None:
        raise RuntimeError(f"pgbench failed: {result.stdout}{result.stderr}")
    return float(match.group(1))


# ---- many rows -----------------------------------------------------------------------------------


def measure_mass_changes(node: Node) -> list[Result]:
    """DELETE and UPDATE of a tenth of the rows, the scan afterwards, compaction."""
    tenth = "WHERE l_partkey % 10 = {}"
    results = []
    with node.connect() as connection:
        for title, statement in (
            ("UPDATE", "UPDATE lineitem_{} SET l_quantity = l_quantity + 1 " + tenth.format(3)),
            ("DELETE", "DELETE FROM lineitem_{} " + tenth.format(7)),
        ):
            seconds = {
                name: execute_seconds(connection, statement.format(name))
                for name in ("heap", "hot")
            }
            results.append(
                time_result(f"{title} of 10 % of lineitem, against heap", seconds, "hot")
            )
        results.append(scan_after_changes(connection))
        rows = node.value("SELECT count(*) FROM lineitem_hot")
        begin = node.value("SELECT pg_table_size('lineitem_hot')")
        seconds = execute_seconds(
            connection, "SELECT strata_columnar.columnar_compact('lineitem_hot', true)"
        )
        connection.execute("VACUUM lineitem_hot")
        end = node.value("SELECT pg_table_size('lineitem_hot')")
    detail = f"{rows:,} rows in {seconds:.1f} s, {begin / 1e6:.0f} -> {end / 1e6:.0f} MB"
    results.append(Result("compaction", rows / seconds / 1e6, "M rows/s", detail=detail))
    return results


def scan_after_changes(connection: psycopg.Connection) -> Result:
    query = "SELECT sum(-l_extendedprice) FROM lineitem_{}"
    seconds = interleave(
        {
            name: lambda name=name: execute_seconds(connection, query.format(name))
            for name in ("heap", "hot")
        },
        ROUNDS,
    )
    return time_result("sum of a column after that, against heap", seconds, "hot")
