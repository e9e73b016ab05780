"""Are trees of reference tables the same on all nodes: rows of each table alone, and the shape of the trees?"""

from __future__ import annotations

import psycopg

from tests.cluster import Node

TABLES = """
SELECT quote_ident(c.relname), c.relkind::text FROM pg_class AS c
 WHERE c.relnamespace = '{schema}'::regnamespace AND c.relkind IN ('r', 'p') AND {ours} ORDER BY 1
"""
SHAPES = [
    """SELECT c.oid::regclass::text, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull, a.attislocal,
              a.attinhcount, row_number() OVER (PARTITION BY c.oid ORDER BY a.attnum)
         FROM pg_class AS c JOIN pg_attribute AS a ON a.attrelid = c.oid
        WHERE c.relnamespace = '{schema}'::regnamespace AND c.relkind IN ('r', 'p')
          AND a.attnum > 0 AND NOT a.attisdropped ORDER BY 1, 7""",
    """SELECT i.inhrelid::regclass::text, i.inhparent::regclass::text, i.inhseqno,
              pg_get_expr(c.relpartbound, c.oid)
         FROM pg_inherits AS i JOIN pg_class AS c ON c.oid = i.inhrelid
        WHERE c.relnamespace = '{schema}'::regnamespace ORDER BY 1, 2""",
    """SELECT c.conrelid::regclass::text, c.conname, c.contype::text, c.conislocal, c.coninhcount,
              c.contype = 'c' AND c.connoinherit, c.convalidated, pg_get_constraintdef(c.oid)
         FROM pg_constraint AS c JOIN pg_class AS t ON t.oid = c.conrelid
        WHERE t.relnamespace = '{schema}'::regnamespace AND NOT EXISTS (
              SELECT FROM pg_constraint AS p WHERE p.oid = c.conparentid AND p.conrelid = c.conrelid)
        ORDER BY 1, 2""",
    """SELECT i.indrelid::regclass::text, i.indexrelid::regclass::text, i.indisvalid, i.indisunique,
              pg_get_indexdef(i.indexrelid)
         FROM pg_index AS i JOIN pg_class AS t ON t.oid = i.indrelid
        WHERE t.relnamespace = '{schema}'::regnamespace ORDER BY 1, 2""",
]


def nodes_alike(
    coordinator: psycopg.Connection, workers: list[Node], schema: str = "trees"
) -> None:
    """All nodes have the same reference tables, with the same rows."""
    ours = "EXISTS (SELECT FROM strata.distributed_table WHERE relation = c.oid AND kind = 'r')"
    tables = coordinator.execute(TABLES.format(schema=schema, ours=ours)).fetchall()
    local = coordinator.execute(TABLES.format(schema=schema, ours=f"NOT {ours}")).fetchall()
    names = {name for name, _ in local}
    for worker in workers:
        connection = worker.connection
        assert connection.execute(TABLES.format(schema=schema, ours="true")).fetchall() == tables
        for table, kind in tables:
            if kind == "r":
                query = f"SELECT t::text FROM ONLY {schema}.{table} AS t ORDER BY 1"
                assert (
                    connection.execute(query).fetchall() == coordinator.execute(query).fetchall()
                ), table
        for shape in SHAPES:
            query = shape.format(schema=schema)
            with coordinator.transaction():
                coordinator.execute("SET LOCAL search_path = pg_catalog")
                expected = [
                    row
                    for row in coordinator.execute(query).fetchall()
                    if row[0].removeprefix(f"{schema}.") not in names
                ]
            with connection.transaction():
                connection.execute("SET LOCAL search_path = pg_catalog")
                found = connection.execute(query).fetchall()
            differences = [row for row in found + expected if (row in found) != (row in expected)]
            assert found == expected, differences
