"""What becomes of each new table, by variant."""

from __future__ import annotations

import re
from dataclasses import dataclass

from psycopg import pq

from tests.compat.session import Session

MAKES_TABLES = re.compile(r"CREATE (TABLE|SCHEMA)|SELECT \d+")

NEW_TABLES = """
SELECT c.oid, array(SELECT quote_literal(attname) FROM pg_catalog.pg_attribute
                    WHERE attrelid = c.oid AND attnum > 0 AND NOT attisdropped ORDER BY attnum)
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE {condition} AND c.relpersistence = 'p' AND NOT c.relispartition AND c.oid > {last}
  AND n.nspname NOT IN ('pg_catalog', 'information_schema', 'strata')
  AND NOT EXISTS (SELECT FROM strata.distributed_table AS t WHERE t.relation = c.oid)
ORDER BY c.oid
"""


@dataclass(frozen=True)
class Variant:
    """How tables are distributed: `{table}` and `{column}` are filled in; nothing if there is no command."""

    name: str
    command: str = ""
    last_column_first: bool = False
    condition: str = (
        "c.relkind = 'r' AND c.relam = (SELECT oid FROM pg_catalog.pg_am WHERE amname = 'heap')"
    )

    @property
    def exact(self) -> bool:
        return not self.command


VARIANTS = {
    variant.name: variant
    for variant in (
        Variant("local"),
        Variant(
            "reference",
            "SELECT strata.create_reference_table({table}::pg_catalog.oid)",
            # children have come along with their parents
            condition="c.relkind IN ('r', 'p') AND c.relam IN"
            " (0, (SELECT oid FROM pg_catalog.pg_am WHERE amname = 'heap'))",
        ),
        Variant(
            "key",
            "SELECT strata.create_distributed_table({table}::pg_catalog.oid, {column}, shard_count => 4)",
        ),
        Variant(
            "last",
            "SELECT strata.create_distributed_table({table}::pg_catalog.oid, {column}, shard_count => 4,"
            " storage => 'heap')",
            last_column_first=True,
        ),
    )
}


class Distributor:
    """Distributes the tables that statements have made."""

    def __init__(self, variant: Variant, session: Session):
        self.variant = variant
        self.session = session
        self.last = 0
        self.count = 0
        self.refused = 0
        self.reasons: list[str] = []

    def follow(self, tags: list[str]) -> None:
        """After a statement with these command tags."""
        if not self.variant.command or not any(map(MAKES_TABLES.match, tags)):
            return
        if self.session.state == pq.TransactionStatus.INERROR:
            return
        found = self.session.one(
            NEW_TABLES.format(last=self.last, condition=self.variant.condition)
        )
        for oid, columns in found.rows:
            self.last = max(self.last, int(oid))
            self.distribute(oid, parse_names(columns))

    def distribute(self, table: str, columns: list[str]) -> None:
        if "{column}" not in self.variant.command:
            columns = [""]
        elif self.variant.last_column_first:
            columns = columns[::-1]
        reason = "no columns"
        for column in columns:
            reason = self.attempt(self.variant.command.format(table=table, column=column))
            if not reason:
                self.count += 1
                return
        self.refused += 1
        self.reasons.append(reason)

    def attempt(self, command: str) -> str:
        """Empty, or why not."""
        amid = self.session.state == pq.TransactionStatus.INTRANS
        if amid:
            self.session.run("SAVEPOINT compat")
        result = self.session.one(command)
        if amid:
            back = "ROLLBACK TO SAVEPOINT compat; " if result.failed else ""
            self.session.run(f"{back}RELEASE SAVEPOINT compat")
        return f"{result.sqlstate} {result.message}" if result.failed else ""


def parse_names(array: str) -> list[str]:
    """Quoted literals out of the text of an array."""
    return [
        part.replace("\\\\", "\\").replace('\\"', '"')
        for quoted, plain in re.findall(r'"((?:[^"\\]|\\.)*)"|([^,{}]+)', array)
        if (part := quoted or plain)
    ]
