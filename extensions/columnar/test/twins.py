"""Twins: one server, two sessions, two schemas; in one every table is heap, in the other columnar.

The oracle of the columnar store is the heap of the same server.  What is done to twins is done in
both schemas, and `twins.same(statement)` wants the same rows (text for text, no tolerance), column
names, types, command tag and error.  `default_table_access_method` is all that differs, so the
statements are ordinary SQL without USING; `{am}` in a statement stands for the side's method.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import psycopg
from psycopg import sql

from tests.assert_same import Outcome, Row, has_top_level_order, run
from tests.cluster import Node
from tests.installation import server_major
from tests.waiting import wait_until

SIDES = ("heap", "columnar")


def tables_with_a_child_that_may_be_null(parent: str, child: str) -> list[str]:
    """A column `a` that the parent's own rows alone must have: since 18 it says so itself."""
    if server_major() >= 18:
        return [
            f"CREATE TABLE {parent} (a integer NOT NULL NO INHERIT)",
            f"CREATE TABLE {child} () INHERITS ({parent})",
        ]
    return [
        f"CREATE TABLE {parent} (a integer NOT NULL)",
        f"CREATE TABLE {child} () INHERITS ({parent})",
        f"ALTER TABLE {child} ALTER a DROP NOT NULL",
    ]


@dataclass
class Side:
    """A session whose tables have one access method."""

    method: str
    schema: str
    connection: psycopg.Connection

    def fit(self, statement: str) -> str:
        return statement.replace("{am}", self.method).replace("{schema}", self.schema)

    def run(self, statement: str, params=None) -> Outcome:
        outcome = run(self.connection, self.fit(statement), params)
        outcome.message = self.neutral(outcome.message)
        return outcome

    def neutral(self, message: str) -> str:
        """An error without what may differ: the schema's name, and where it happened."""
        for context in ("\nCONTEXT:", "\nLINE "):
            message = message.split(context)[0]
        return message.replace(f"{self.schema}.", "").replace(self.schema, "")

    def execute(self, statement: str, params=None) -> list[tuple]:
        cursor = self.connection.execute(self.fit(statement), params)
        return cursor.fetchall() if cursor.description else []

    def copy_out(self, command: str) -> bytes:
        with self.connection.cursor().copy(self.fit(command)) as copy:
            return b"".join(bytes(piece) for piece in copy)

    def copy_in(self, command: str, data: str | bytes) -> Outcome:
        try:
            cursor = self.connection.cursor()
            with cursor.copy(self.fit(command)) as copy:
                copy.write(data)
            return Outcome(tag=cursor.statusmessage or "")
        except psycopg.Error as error:
            if error.sqlstate is None:
                raise
            return Outcome(sqlstate=error.sqlstate, message=self.neutral(str(error)))


class Twins:
    def __init__(self, node: Node, name: str):
        self.node = node
        self.name = name
        self.stack = ExitStack()  # what ends with the twins
        self.stages: dict = {}  # see interleave.py
        self.heap, self.columnar = (self.make_side(method) for method in SIDES)

    def make_side(self, method: str) -> Side:
        """A new schema and a session that makes its tables of that access method there."""
        schema = f"{self.name}_{method}"
        with connect_soon(self.node) as connection:
            connection.execute(
                sql.SQL("DROP SCHEMA IF EXISTS {0} CASCADE; CREATE SCHEMA {0}").format(
                    sql.Identifier(schema)
                )
            )
        return self.open_side(method)

    def open_side(self, method: str) -> Side:
        """One more session on that side."""
        schema = f"{self.name}_{method}"
        connection = self.node.connect()
        connection.execute(
            sql.SQL("SET search_path = {}, public; SET default_table_access_method = {}").format(
                sql.Identifier(schema), sql.Identifier(method)
            )
        )
        connection.prepare_threshold = None
        return Side(method, schema, connection)

    @property
    def sides(self) -> tuple[Side, Side]:
        return self.heap, self.columnar

    def close(self) -> None:
        self.stack.close()
        for side in self.sides:
            side.connection.close()

    def drop(self) -> None:
        self.close()
        for method in SIDES:
            with connect_soon(self.node) as connection:
                connection.execute(
                    sql.SQL("DROP SCHEMA IF EXISTS {} CASCADE").format(
                        sql.Identifier(f"{self.name}_{method}")
                    )
                )

    # ---- both ----

    def execute(self, *statements: str) -> None:
        """Statements that must succeed and whose results do not matter."""
        for statement in statements:
            for side in self.sides:
                side.execute(statement)

    def same(self, statement: str, params=None, ordered: bool | None = None) -> list[Row]:
        """The statement does the same on both sides; its rows, as text."""
        expected = self.heap.run(statement, params)
        actual = self.columnar.run(statement, params)
        if ordered is None:
            ordered = has_top_level_order(statement)
        difference = outcome_difference(actual, expected, ordered)
        if difference:
            raise AssertionError(f"{difference}\n{statement}")
        return actual.rows

    def all_same(self, statements: Iterable[str]) -> None:
        for statement in statements:
            self.same(statement)

    def fails(self, statement: str, sqlstate: str) -> None:
        """Both sides fail in the same words, with this SQLSTATE."""
        actual = self.columnar.run(statement)
        expected = self.heap.run(statement)
        assert expected.sqlstate == sqlstate, f"heap: {expected}\n{statement}"
        assert (actual.sqlstate, actual.message) == (expected.sqlstate, expected.message), (
            f"columnar: {actual}\nheap: {expected}\n{statement}"
        )

    def copy_in(self, command: str, data: str | bytes) -> None:
        """COPY ... FROM STDIN of the same bytes."""
        expected, actual = (side.copy_in(command, data) for side in self.sides)
        difference = outcome_difference(actual, expected, False)
        assert not difference, f"{difference}\n{command}"

    def copy_out_same(self, command: str) -> bytes:
        """COPY ... TO STDOUT gives the same bytes."""
        expected, actual = (side.copy_out(command) for side in self.sides)
        assert actual == expected, (
            f"{command}: {len(actual)} bytes from columnar, {len(expected)} from heap,"
            f" different from byte {first_difference(actual, expected)} on"
        )
        return actual

    @contextmanager
    def transaction(self, end: str = "COMMIT", begin: str = "BEGIN") -> Iterator[None]:
        """A transaction on both sides; rolled back when the test fails inside it."""
        self.execute(begin)
        try:
            yield
            self.same(end)
        finally:
            self.reset()

    def reset(self) -> None:
        """End a transaction that was left open."""
        for side in self.sides:
            if side.connection.info.transaction_status != psycopg.pq.TransactionStatus.IDLE:
                side.connection.execute("ROLLBACK")

    # ---- the columnar side ----

    def columnar_tables(self) -> list[str]:
        return [
            name
            for (name,) in self.columnar.execute(
                "SELECT c.oid::regclass::text FROM pg_class c JOIN pg_am a ON a.oid = c.relam"
                " WHERE a.amname = 'columnar' AND c.relnamespace = '{schema}'::regnamespace"
                " ORDER BY 1"
            )
        ]

    def verify(self) -> None:
        """Every columnar table of the schema is sound, by columnar_verify()."""
        for table in self.columnar_tables():
            problems = self.columnar.execute(
                "SELECT * FROM strata_columnar.columnar_verify(%s)", (table,)
            )
            assert not problems, f"{table}: {problems}"

    def plan(self, query: str, options: str = "COSTS OFF") -> str:
        rows = self.columnar.execute(f"EXPLAIN ({options}) {query}")
        return "\n".join(line for (line,) in rows)


@contextmanager
def open_twins(node: Node, name: str) -> Iterator[Twins]:
    """Twins; in the end their columnar tables are verified, and all is dropped."""
    made = Twins(node, name)
    yield made
    made.reset()
    made.verify()
    made.drop()


def connect_soon(node: Node) -> psycopg.Connection:
    """A connection; waits while the server recovers from the crash of the test before."""
    for _ in wait_until("the server accepts connections"):
        try:
            return node.connect()
        except psycopg.OperationalError as error:
            if not any(
                word in str(error)
                for word in (
                    "not yet accepting",
                    "recovery",
                    "starting up",
                    "closed the connection",
                )
            ):
                raise
    raise AssertionError  # wait_until() raises before


def first_difference(a: bytes, b: bytes) -> int:
    return next(
        (n for n, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b))
    )


def outcome_difference(actual: Outcome, expected: Outcome, ordered: bool) -> str:
    """Empty when both statements did the same."""
    head = (actual.sqlstate, actual.tag, actual.columns)
    if head != (expected.sqlstate, expected.tag, expected.columns):
        return f"columnar: {actual}\nheap:     {expected}"
    if actual.message != expected.message:
        return f"columnar: {actual.message}\nheap:     {expected.message}"
    return rows_difference(actual.rows, expected.rows, ordered)


def rows_difference(actual: list[Row], expected: list[Row], ordered: bool) -> str:
    if actual == expected:
        return ""
    if ordered:
        for number, (a, b) in enumerate(zip(actual, expected, strict=False), 1):
            if a != b:
                return f"row {number}\ncolumnar: {a}\nheap:     {b}"
        if len(actual) != len(expected):
            return f"columnar returns {len(actual)} rows, heap {len(expected)}"
        return ""
    a, b = Counter(actual), Counter(expected)
    surplus, missing = list((a - b).elements()), list((b - a).elements())
    if not surplus and not missing:
        return ""
    return (
        f"columnar returns {len(actual)} rows, heap {len(expected)}\n"
        f"only columnar ({len(surplus)}): {surplus[:5]}\nonly heap ({len(missing)}): {missing[:5]}"
    )
