"""Tablespaces hot and cold of a single server, and what lies in them."""

from __future__ import annotations

import shutil

import psycopg

from tests.cluster import Node
from tests.installation import make_directory

TIERS = ("hot", "cold")


def make_tablespaces(node: Node) -> None:
    for name in TIERS:
        place = node.tablespaces()[name]
        shutil.rmtree(place, ignore_errors=True)
        make_directory(place.parent.parent)
        make_directory(place.parent)
        make_directory(place)
        node.execute(f"CREATE TABLESPACE {name} LOCATION '{place}'")


def move(connection: psycopg.Connection, table: str, tier: str, **options: str) -> None:
    extra = "".join(f", {name} => {value}" for name, value in options.items())
    connection.execute(f"CALL strata_columnar.move_columnar_table('{table}', '{tier}'{extra})")


def tier_of(connection: psycopg.Connection, table: str) -> str | None:
    """The tablespace of the table, its TOAST relation and that one's index."""
    rows = connection.execute(
        "SELECT DISTINCT t.spcname FROM pg_class AS c"
        " JOIN pg_class AS r ON r.oid IN (c.oid, c.reltoastrelid)"
        " OR r.oid IN (SELECT indexrelid FROM pg_index WHERE indrelid = c.reltoastrelid)"
        " LEFT JOIN pg_tablespace AS t ON t.oid = r.reltablespace WHERE c.oid = %s::regclass",
        (table,),
    ).fetchall()
    assert len(rows) == 1, rows
    return rows[0][0]


def tier_files(node: Node, tier: str) -> set[str]:
    """The relation files of the test's database that are in a tablespace, without empty tombstones."""
    return {
        path.name
        for path in node.tablespaces()[tier].glob("PG_*/*/*")
        if path.name[0].isdigit() and path.stat().st_size > 0
    }


def known_files(node: Node, tier: str) -> set[str]:
    """Those that the catalogs know."""
    return {
        str(number)
        for (number,) in node.query(
            "SELECT relfilenode FROM pg_class JOIN pg_tablespace AS t ON t.oid = reltablespace WHERE spcname = %s",
            (tier,),
        )
    }


def no_stray_files(node: Node) -> None:
    """No tablespace has a file that belongs to no relation."""
    node.execute("CHECKPOINT")
    for tier in TIERS:
        stray = {name.split("_")[0].split(".")[0] for name in tier_files(node, tier)}
        assert stray <= known_files(node, tier), tier
