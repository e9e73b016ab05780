"""Single servers with the columnar extension, copies of them, and physical standbys."""

from __future__ import annotations

from pathlib import Path

import psycopg

from tests.cluster import DATABASE, SUPERUSER, Cluster, Node, free_port
from tests.installation import ClusterError, find_binaries, give_to_server, run_as_server
from tests.waiting import wait_until


def make_node(cluster: Cluster) -> Node:
    """The one server of a cluster without workers, with what the tests need in its database."""
    node = cluster.coordinator
    node.execute("CREATE EXTENSION strata_columnar; CREATE EXTENSION hll")
    return node


def run_program(node: Node, program: str, *arguments: str | Path) -> str:
    """Run a client program, in the node's root directory with its password file; its output."""
    command = [
        "env",
        "-C",
        node.root,
        f"PGPASSFILE={node.passfile}",
        find_binaries() / program,
        *arguments,
    ]
    result = run_as_server(command, capture_output=True)
    if result.returncode != 0:
        raise ClusterError(f"{program} failed: {result.stdout}{result.stderr}")
    return result.stdout


def client_arguments(node: Node, database: str | None = DATABASE) -> list[str]:
    arguments = ["-h", "127.0.0.1", "-p", str(node.port), "-U", SUPERUSER, "-w"]
    return arguments + (["-d", database] if database else [])


def sibling(node: Node, name: str, **settings: str) -> Node:
    """A server without data directory yet, below the same root, with the same password."""
    other = Node(name, node.root, free_port({node.port}), node.sockets, node.settings | settings)
    entries = node.passfile.read_text().splitlines()
    mine = f"127.0.0.1:{node.port}:"
    entries += [
        entry.replace(mine, f"127.0.0.1:{other.port}:")
        for entry in entries
        if entry.startswith(mine)
    ]
    node.passfile.write_text("\n".join([*entries, ""]))
    return other


def take_base_backup(node: Node, name: str, **settings: str) -> Node:
    """A server from pg_basebackup, not started."""
    copy = sibling(node, name, **settings)
    run_program(
        node,
        "pg_basebackup",
        *client_arguments(node, None),
        "-D",
        copy.data,
        "-X",
        "stream",
        "-c",
        "fast",
        *node.tablespace_mapping(name),
    )
    return copy


def make_standby(node: Node, name: str = "standby", **settings: str) -> Node:
    """A running hot standby that streams from the node."""
    source = f"host=127.0.0.1 port={node.port} user={SUPERUSER} passfile=''{node.passfile}''"
    standby = take_base_backup(
        node, name, primary_conninfo=f"'{source}'", hot_standby="on", **settings
    )
    signal = standby.data / "standby.signal"
    signal.touch()
    give_to_server(signal, 0o600)
    standby.start()
    for _ in wait_until("the standby answers"):
        try:
            standby.value("SELECT 1")
        except psycopg.OperationalError:
            continue
        return standby
    raise AssertionError  # wait_until() raises before


def wait_for_replay(node: Node, standby: Node, timeout: float = 60) -> None:
    """Wait until the standby has replayed what the node has written until now."""
    target = node.value("SELECT pg_current_wal_flush_lsn()")
    for _ in wait_until("the standby has replayed", timeout):
        if standby.value("SELECT pg_last_wal_replay_lsn() >= %s::pg_lsn", (target,)):
            return


# ---- tables ----------------------------------------------------------------------------------------

CHECKSUM = (
    "SELECT count(*), sum(id), sum(v), md5(string_agg(t::text, '|' ORDER BY id)) FROM {table} AS t"
)


def fill(node: Node, table: str, rows: int) -> None:
    """A columnar table of a key, a number and a text."""
    node.execute(f"CREATE TABLE {table} (id integer PRIMARY KEY, v integer, s text) USING columnar")
    node.execute(
        f"INSERT INTO {table} SELECT g, g % 100, 'row ' || g % 77 FROM generate_series(1, {rows}) AS g"
    )


def checksum(node: Node, table: str = "t") -> tuple:
    """Rows, sums and a digest of all values of a table with columns id and v."""
    return node.query(CHECKSUM.format(table=table))[0]


def check_indexes(connection: psycopg.Connection, table: str) -> None:
    """Every row of the table has its entry in each B-tree (amcheck raises an error otherwise)."""
    if connection.execute("SELECT pg_is_in_recovery()").fetchone() == (False,):
        connection.execute("CREATE EXTENSION IF NOT EXISTS amcheck")
        connection.execute(
            "SELECT bt_index_check(c.oid, true) FROM pg_index JOIN pg_class AS c ON c.oid = indexrelid JOIN pg_am ON pg_am.oid = relam"
            " WHERE indrelid = %s::regclass AND amname = 'btree' AND indisready AND indisvalid",
            (table,),
        )


def verify(node: Node, *tables: str) -> None:
    """The tables are sound, and their B-trees name all their rows."""
    for table in tables:
        assert node.query(f"SELECT * FROM strata_columnar.columnar_verify('{table}')") == [], table
        check_indexes(node.connection, table)
