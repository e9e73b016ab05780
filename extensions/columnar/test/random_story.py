"""Stories of the differential generator: random statements about random tables.

A seed is a story: all choices come from one random.Random, and what a story asks the heap table
(values to compare with) depends on nothing else.  Every statement has one right answer: ids are
unique, ORDER BY ends with id, sums of floats that round are not asked for, and what a vague column
shows of equal values is never selected without its row.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from extensions.columnar.test.random_columns import Column, random_column

ROWS = (0, 1, 7, 300, 1023, 1024, 1025, 2048, 2500, 4000)
ROW_WEIGHTS = (3, 4, 6, 20, 6, 8, 6, 6, 25, 16)

SCANS = ("seqscan", "indexscan", "indexonlyscan", "bitmapscan", "tidscan")
JOINS = (
    "hashjoin",
    "mergejoin",
    "nestloop",
    "memoize",
    "material",
    "sort",
    "hashagg",
    "incremental_sort",
)
PARALLEL = (
    "SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0; SET min_parallel_table_scan_size = 0;"
    " SET min_parallel_index_scan_size = 0; SET max_parallel_workers_per_gather = 2"
)


@dataclass
class Step:
    """A statement and where it runs: on both sides compared, or on one only."""

    sql: str
    side: str = (
        "both"  # or "columnar"; "elder": on both sides, in the session with the older snapshot
    )
    compare: bool = True
    copy_from: str = ""  # COPY: the query, on heap, whose rows are copied in on both sides


@dataclass
class Table:
    """What the story knows of t."""

    columns: list[Column]
    has_key: bool
    next_id: int = 1
    next_shift: int = 1
    indexes: list[str] = field(default_factory=list)
    names: int = 0


Ask = Callable[[str], list[tuple]]


class Story:
    def __init__(self, seed: int | str, ask: Ask):
        self.seed = seed
        self.rng = random.Random(f"columnar {seed}")
        self.ask = ask
        self.table: Table
        self.saved: list[tuple[str, Table]] = []  # at BEGIN and at each savepoint
        self.cursor = False
        self.prepared = 0
        self.has_elders = False
        self.elder = False  # does another session hold an older snapshot?

    def chance(self, probability: float) -> bool:
        return self.rng.random() < probability

    @property
    def in_transaction(self) -> bool:
        return bool(self.saved)

    # ---- beginning and end ------------------------------------------------------------------------

    def begin(self) -> Iterator[Step]:
        rng = self.rng
        columns = [
            random_column(rng, f"c{n}") for n in range(1, 1 + rng.choice((1, 2, 3, 4, 4, 6)))
        ]
        self.table = Table(columns, self.chance(0.5), names=len(columns))
        yield from self.settings()
        definitions = ", ".join(f"{c.name} {c.kind.type}" for c in columns)
        key = "PRIMARY KEY" if self.table.has_key else ""
        sort = rng.choices(("", "UNLOGGED", "TEMPORARY"), (90, 6, 4))[0]
        yield Step(
            f"CREATE {sort} TABLE t (id bigint {key}, {definitions}) WITH (autovacuum_enabled = off)"
        )
        if self.chance(0.35):
            yield self.options()
        for _ in range(rng.choice((1, 1, 2, 3))):
            yield self.load(rng.choices(ROWS, ROW_WEIGHTS)[0])
        for _ in range(rng.choice((0, 0, 1, 1, 2))):
            yield self.create_index()
        if self.chance(0.5):
            yield Step("ANALYZE t")
        self.has_elders = sort != "TEMPORARY" and self.chance(0.4)

    def end(self) -> Iterator[Step]:
        if self.in_transaction:
            yield self.finish(self.rng.choice(("COMMIT", "ROLLBACK")))
        if self.elder:
            yield from self.look_back()
            yield self.end_elder()
        yield Step("SELECT * FROM t ORDER BY id")
        yield Step("SELECT count(*), sum(id) FROM t")
        if self.table.has_key:
            yield Step("SET enable_seqscan = off; SET enable_bitmapscan = off", compare=False)
            yield Step("SELECT * FROM t ORDER BY id")

    def settings(self) -> Iterator[Step]:
        rng = self.rng
        disabled = [name for name in SCANS if self.chance(0.2)] + [
            name for name in JOINS if self.chance(0.15)
        ]
        for name in disabled:
            yield Step(f"SET enable_{name} = off", compare=False)
        # a nested loop over a Gather would start its workers once for each row, for minutes
        can_join_once = "hashjoin" not in disabled or "mergejoin" not in disabled
        if self.chance(0.3) and can_join_once:
            yield Step(PARALLEL, compare=False)
            if self.chance(0.5):
                yield Step("SET parallel_leader_participation = off", compare=False)
        if self.chance(0.15):
            yield Step("SET work_mem = '64kB'", compare=False)
        if self.chance(0.2):
            yield Step("SET plan_cache_mode = force_generic_plan", compare=False)
        own = []
        if self.chance(0.3):
            own.append("enable_custom_scan = off")
        if self.chance(0.2):
            own.append("enable_pruning = off")
        if self.chance(0.5):
            own.append(f"row_group_rows = {rng.choice((1024, 1024, 2048, 3000))}")
        if self.chance(0.4):
            own.append(f"compression = {rng.choice(('hot', 'cold', 'none', 'lz4', 'zstd'))}")
        if self.chance(0.2):
            own.append("write_memory = '1MB'")
        for setting in own:
            yield Step(f"SET strata_columnar.{setting}", "columnar", compare=False)

    # ---- the next statements ------------------------------------------------------------------------

    def next(self, failed: bool) -> Iterator[Step]:
        """Some statements; `failed`: the transaction is aborted."""
        if failed:
            yield self.recover()
            return
        if self.in_transaction and self.chance(0.18):
            yield self.finish("COMMIT" if self.chance(0.6) else "ROLLBACK")
            return
        if not self.in_transaction and self.chance(0.12):
            yield self.open(
                "BEGIN" if self.chance(0.8) else "BEGIN ISOLATION LEVEL REPEATABLE READ", ""
            )
            return
        choice = self.rng.random()
        if choice < 0.55:
            yield from self.query()
        elif choice < 0.8:
            yield from self.change()
        elif choice < 0.88 and self.in_transaction:
            yield from self.savepoint()
        elif choice < 0.93:
            yield from self.define()
        else:
            yield from self.maintain()

    # ---- transactions ----------------------------------------------------------------------------------

    def open(self, statement: str, name: str) -> Step:
        self.saved.append((name, copy.deepcopy(self.table)))
        return Step(statement)

    def finish(self, statement: str) -> Step:
        if statement == "ROLLBACK":
            self.restore(0)
        self.saved.clear()
        self.cursor = False
        return Step(statement)

    def restore(self, number: int) -> None:
        """As the table was then; but ids and names once used are not used again."""
        now = self.table
        self.table = copy.deepcopy(self.saved[number][1])
        self.table.next_id, self.table.next_shift, self.table.names = (
            now.next_id,
            now.next_shift,
            now.names,
        )

    def recover(self) -> Step:
        savepoints = len(self.saved) - 1
        if savepoints > 0 and self.chance(0.7):
            return self.roll_back_to(self.rng.randrange(1, savepoints + 1))
        return self.finish("ROLLBACK")

    def roll_back_to(self, number: int) -> Step:
        self.restore(number)
        name = self.saved[number][0]
        del self.saved[number + 1 :]
        return Step(f"ROLLBACK TO {name}")

    def savepoint(self) -> Iterator[Step]:
        savepoints = len(self.saved) - 1
        choice = self.rng.random()
        if savepoints == 0 or choice < 0.5:
            name = f"s{len(self.saved)}"
            yield self.open(f"SAVEPOINT {name}", name)
        elif choice < 0.8:
            yield self.roll_back_to(self.rng.randrange(1, savepoints + 1))
        else:
            number = self.rng.randrange(1, savepoints + 1)
            name = self.saved[number][0]
            del self.saved[number:]
            yield Step(f"RELEASE {name}")

    # ---- writing ------------------------------------------------------------------------------------------

    def ids(self, rows: int) -> tuple[int, int]:
        first = self.table.next_id
        self.table.next_id += rows
        return first, first + rows - 1

    def names(self) -> str:
        return ", ".join(["id", *(c.name for c in self.table.columns)])

    def values(self, number: str, salt: int = 0) -> str:
        """A row's values as SQL of g, which is computed from `number`."""
        return ", ".join([number, *(c.value(salt) for c in self.table.columns)])

    def load(self, rows: int) -> Step:
        first, last = self.ids(rows)
        query = f"SELECT {self.values('g')} FROM generate_series({first}, {last}) AS g"
        if self.chance(0.3):
            form = self.rng.choice(("", "(FORMAT binary)", "(FORMAT csv)"))
            return Step(
                f"COPY t ({self.names()}) FROM STDIN {form}",
                copy_from=f"COPY ({query}) TO STDOUT {form}",
            )
        return Step(f"INSERT INTO t ({self.names()}) {query}")

    def change(self) -> Iterator[Step]:
        rng = self.rng
        table = self.table
        choice = rng.random()
        if choice < 0.2:
            yield self.load(rng.choice((1, 1, 2, 5, 40, 300, 1200)))
        elif choice < 0.3:
            for _ in range(rng.randrange(1, 6)):
                first, last = self.ids(1)
                yield Step(
                    f"INSERT INTO t ({self.names()}) SELECT {self.values('g', 7)} FROM generate_series({first}, {last}) AS g RETURNING *"
                )
        elif choice < 0.36:
            shift = 1_000_000_000 * table.next_shift
            table.next_shift += 1
            columns = ", ".join(c.name for c in table.columns)
            yield Step(
                f"INSERT INTO t ({self.names()}) SELECT id + {shift}, {columns} FROM t WHERE {self.predicate()} AND id < 1000000000"
            )
        elif choice < 0.44 and table.has_key:
            first, last = self.ids(rng.randrange(1, 30))
            low = max(1, first - rng.randrange(1, 60))
            conflict = rng.choice(("", "ON CONFLICT DO NOTHING", self.upsert(), self.upsert()))
            yield Step(
                f"INSERT INTO t ({self.names()}) SELECT {self.values('g', 3)} FROM generate_series({low}, {last}) AS g {conflict} RETURNING id"
            )
        elif choice < 0.68:
            yield Step(f"UPDATE t SET {self.assignments()} WHERE {self.few()}{self.returning()}")
        elif choice < 0.72:
            shift = 1_000_000_000 * table.next_shift
            table.next_shift += 1
            yield Step(f"UPDATE t SET id = id + {shift} WHERE {self.few()} AND id < 1000000000")
        elif choice < 0.76:
            yield Step(
                f"UPDATE t SET {self.assignments()} FROM t AS u WHERE u.id = t.id + 1 AND t.id % 5 = {rng.randrange(5)}"
            )
        elif choice < 0.97:
            yield Step(f"DELETE FROM t WHERE {self.few()}{self.returning()}")
        else:
            yield Step("TRUNCATE t")

    def upsert(self) -> str:
        column = self.rng.choice(self.table.columns)
        return f"ON CONFLICT (id) DO UPDATE SET {column.name} = excluded.{column.name} WHERE t.id % 3 <> 0"

    def assignments(self) -> str:
        columns = self.rng.sample(
            self.table.columns, self.rng.randrange(1, min(3, len(self.table.columns)) + 1)
        )
        parts = []
        for column in columns:
            salt = self.rng.randrange(50)
            value = (
                f"(SELECT {column.value(salt)} FROM (SELECT (t.id % 100000)::integer AS g) AS s)"
            )
            parts.append(f"{column.name} = {'NULL' if self.chance(0.08) else value}")
        return ", ".join(parts)

    def few(self) -> str:
        """A condition for part of the rows."""
        rng = self.rng
        choice = rng.random()
        if choice < 0.35:
            low = rng.randrange(0, self.table.next_id + 1)
            return f"id BETWEEN {low} AND {low + rng.choice((0, 0, 1, 20, 400))}"
        if choice < 0.6:
            modulus = rng.choice((2, 7, 30, 500))
            return f"id % {modulus} = {rng.randrange(modulus)}"
        return f"{self.predicate()} AND id % 3 <> {rng.randrange(3)}"

    def returning(self) -> str:
        return self.rng.choice(("", "", " RETURNING id", " RETURNING *"))

    # ---- reading --------------------------------------------------------------------------------------------

    def literal(self, column: Column) -> str:
        """Mostly a value that the column has."""
        type_ = column.kind.type
        if self.chance(0.7):
            salt = self.rng.randrange(1000)
            rows = self.ask(
                f"SELECT quote_literal({column.name}::text) FROM t WHERE {column.name} IS NOT NULL"
                f" ORDER BY hashint8extended(id, {salt}), id LIMIT 1"
            )
            if rows:
                return f"({rows[0][0]}::{type_})"
        return f"({self.rng.choice(column.kind.edges)}::{type_})"

    def predicate(self, alias: str = "", depth: int = 2) -> str:
        rng = self.rng
        if depth and self.chance(0.35):
            left, right = self.predicate(alias, depth - 1), self.predicate(alias, depth - 1)
            return f"({left} {rng.choice(('AND', 'AND', 'OR'))} {right})"
        if depth and self.chance(0.06):
            return f"NOT ({self.predicate(alias, depth - 1)})"
        if self.chance(0.1):
            return f"{alias}id {rng.choice(('<', '>', '>=', '='))} {rng.randrange(0, self.table.next_id + 5)}"
        column = rng.choice(self.table.columns)
        name = alias + column.name
        choice = rng.random()
        if choice < 0.1:
            return f"{name} IS {rng.choice(('', 'NOT '))}NULL"
        if choice < 0.22:
            values = [self.literal(column) for _ in range(rng.randrange(1, 5))]
            if self.chance(0.1):
                values.append(f"NULL::{column.kind.type}")
            if self.chance(0.3):
                return f"{name} = ANY (ARRAY[{', '.join(values)}])"
            return f"{name} {rng.choice(('', '', 'NOT '))}IN ({', '.join(values)})"
        if choice < 0.32:
            return f"{name} BETWEEN {rng.choice(('', 'SYMMETRIC '))}{self.literal(column)} AND {self.literal(column)}"
        if choice < 0.38:
            return f"{name} IS {rng.choice(('', 'NOT '))}DISTINCT FROM {self.literal(column)}"
        if column.kind.text and choice < 0.55:
            return self.text_predicate(name, column)
        if column.kind.number and choice < 0.45:
            return f"{name} + 0 {rng.choice(('<', '>='))} {self.literal(column)}"
        if column.kind.type == "boolean" and choice < 0.6:
            return rng.choice((name, f"NOT {name}", f"{name} IS TRUE", f"{name} IS NOT FALSE"))
        if choice < 0.5 and len(self.table.columns) > 1:
            others = [c for c in self.table.columns if c is not column and c.kind is column.kind]
            if others:
                return f"{name} {rng.choice(('=', '<', '<>'))} {alias}{rng.choice(others).name}"
        operator = rng.choice(("=", "=", "<", "<=", ">", ">=", "<>"))
        if self.chance(0.3):
            return f"{self.literal(column)} {operator} {name}"
        return f"{name} {operator} {self.literal(column)}"

    def text_predicate(self, name: str, column: Column) -> str:
        rng = self.rng
        pattern = rng.choice(
            ("a%", "%1%", "_", "https://%", "name 1%", "c7%", "", "%", "gr__n", "The%30")
        )
        return rng.choice(
            (
                f"{name} LIKE '{pattern}'",
                f"{name} NOT LIKE '{pattern}'",
                f"{name} ILIKE '{pattern.upper()}'",
                f"{name} ~ '^[a-f0-9]+$'",
                f"left({name}::text, 3) = left(({self.literal(column)})::text, 3)",
                f"length({name}) > {rng.randrange(40)}",
            )
        )

    def aggregates(self) -> str:
        items = ["count(*)"]
        for column in self.rng.sample(self.table.columns, min(3, len(self.table.columns))):
            name, kind = column.name, column.kind
            choices = [
                f"count({name})",
                f"sum(length({name}::text))",
                f"count(*) FILTER (WHERE {name} IS NULL)",
            ]
            if kind.number and column.series.summable and not column.vague:
                choices += [
                    f"sum({name})",
                    f"avg({name})",
                    f"sum({name}) FILTER (WHERE id % 2 = 0)",
                ]
            if kind.extremes and not column.vague:
                choices += [f"min({name})", f"max({name})"] * 2
            if not column.vague:
                choices.append(f"count(DISTINCT {name})")
            choices.append(f"md5(string_agg({name}::text, ',' ORDER BY id))")
            items.append(self.rng.choice(choices))
        return ", ".join(items)

    def order(self) -> str:
        parts = []
        for column in self.rng.sample(
            self.table.columns, self.rng.randrange(0, min(2, len(self.table.columns)) + 1)
        ):
            parts.append(
                f"{column.name}{self.rng.choice(('', ' DESC', ' NULLS FIRST', ' DESC NULLS LAST'))}"
            )
        return ", ".join([*parts, self.rng.choice(("id", "id DESC"))])

    def where(self) -> str:
        return f" WHERE {self.predicate()}" if self.chance(0.85) else ""

    def shown(self) -> str:
        """Some of the columns, in some order."""
        names = [c.name for c in self.table.columns]
        return ", ".join(["id", *self.rng.sample(names, self.rng.randrange(0, len(names) + 1))])

    def query(self) -> Iterator[Step]:
        rng = self.rng
        clear = [c for c in self.table.columns if not c.vague]
        shapes = (
            [self.rows_query] * 4
            + [self.aggregate_query] * 5
            + [self.join_query] * 2
            + [
                self.subquery,
                self.window_query,
                self.tid_query,
                self.lateral_query,
                self.locking_query,
            ]
        )
        if clear:
            shapes += [self.group_query] * 3 + [self.distinct_query]
        if not self.in_transaction or self.chance(0.3):
            shapes.append(self.prepared_query)
        if self.cursor or len(self.saved) == 1:
            shapes += [self.cursor_query] * 2
        result = rng.choice(shapes)()
        if isinstance(result, str):
            yield Step(result)
        else:
            yield from result

    def rows_query(self) -> str:
        if self.chance(0.4):
            return f"SELECT {self.shown()} FROM t{self.where()}"
        limit = self.rng.choice(
            (
                "",
                "",
                f" LIMIT {self.rng.randrange(0, 30)}",
                f" LIMIT 7 OFFSET {self.rng.randrange(50)}",
            )
        )
        return f"SELECT {self.shown()} FROM t{self.where()} ORDER BY {self.order()}{limit}"

    def aggregate_query(self) -> str:
        return f"SELECT {self.aggregates()} FROM t{self.where()}"

    def group_query(self) -> str:
        clear = [c for c in self.table.columns if not c.vague]
        keys = ", ".join(
            c.name for c in self.rng.sample(clear, self.rng.randrange(1, min(2, len(clear)) + 1))
        )
        having = self.rng.choice(("", " HAVING count(*) > 1"))
        return f"SELECT {keys}, {self.aggregates()} FROM t{self.where()} GROUP BY {keys}{having}"

    def distinct_query(self) -> str:
        column = self.rng.choice([c for c in self.table.columns if not c.vague])
        return f"SELECT DISTINCT {column.name} FROM t{self.where()} ORDER BY 1"

    def join_query(self) -> str:
        rng = self.rng
        sort = rng.choice(("JOIN", "LEFT JOIN", "FULL JOIN"))
        shift = rng.choice((0, 1, 100))
        on = f"a.id = b.id + {shift}"
        if sort != "FULL JOIN" and self.chance(0.5):
            on += f" AND {self.predicate('b.', 1)}"
        column = rng.choice(self.table.columns).name
        return (
            f"SELECT count(*), sum(a.id), count(b.{column}), sum(length(a.{column}::text)) FROM t AS a {sort} t AS b ON {on}"
            f" WHERE {self.predicate('a.', 1)}"
        )

    def subquery(self) -> str:
        rng = self.rng
        column = rng.choice(self.table.columns)
        inner = self.predicate("u.", 1)
        return rng.choice(
            (
                f"SELECT count(*), sum(id) FROM t WHERE {column.name} IN (SELECT u.{column.name} FROM t AS u WHERE {inner})",
                f"SELECT count(*), sum(id) FROM t WHERE id NOT IN (SELECT u.id FROM t AS u WHERE {inner})",
                f"SELECT count(*), sum(id) FROM t WHERE EXISTS (SELECT FROM t AS u WHERE u.id = t.id + 3 AND {inner})",
                f"SELECT count(*), sum(id) FROM t WHERE id >= (SELECT max(u.id) / 2 FROM t AS u WHERE {inner})",
                f"SELECT id, (SELECT count(*) FROM t AS u WHERE u.id < t.id AND u.id > t.id - 5 AND {inner}) FROM t WHERE id % 50 = 1 ORDER BY id",
            )
        )

    def window_query(self) -> str:
        column = self.rng.choice(self.table.columns).name
        return f"SELECT id, lag({column}) OVER (ORDER BY id), count({column}) OVER (ORDER BY id ROWS 3 PRECEDING) FROM t{self.where()} ORDER BY id LIMIT 50"

    def tid_query(self) -> str:
        inner = f"SELECT u.ctid FROM t AS u WHERE {self.predicate('u.', 1)}"
        return self.rng.choice(
            (
                f"SELECT count(*), sum(id) FROM t WHERE ctid = ANY (ARRAY({inner}))",
                f"SELECT count(*), sum(t.id) FROM t JOIN ({inner}) AS s (c) ON t.ctid = s.c",
                f"SELECT count(*) FROM t WHERE ctid IS NOT NULL AND tableoid = 't'::regclass AND {self.predicate()}",
            )
        )

    def lateral_query(self) -> str:
        column = self.rng.choice(self.table.columns)
        values = ", ".join(f"({self.literal(column)})" for _ in range(4))
        operator = self.rng.choice(("=", "<", ">="))
        return f"SELECT n, l.* FROM (VALUES {values}) AS v (x), LATERAL (SELECT count(*), sum(id) FROM t WHERE {column.name} {operator} v.x) AS l, LATERAL (SELECT md5(v.x::text)) AS h (n) ORDER BY 1, 2"

    def locking_query(self) -> str:
        strength = self.rng.choice(("UPDATE", "NO KEY UPDATE", "SHARE", "KEY SHARE"))
        return f"SELECT {self.shown()} FROM t WHERE {self.few()} ORDER BY id FOR {strength}"

    def prepared_query(self) -> Iterator[Step]:
        self.prepared += 1
        column = self.rng.choice(self.table.columns)
        operator = self.rng.choice(("=", "<", ">=", "<>"))
        yield Step(
            f"PREPARE p{self.prepared} ({column.kind.type.split(' COLLATE')[0]}) AS SELECT count(*), sum(id) FROM t WHERE {column.name} {operator} $1 AND {self.predicate(depth=0)}"
        )
        for _ in range(2):
            yield Step(f"EXECUTE p{self.prepared} ({self.literal(column)})")

    def cursor_query(self) -> Iterator[Step]:
        if self.cursor:
            yield Step(
                self.rng.choice(
                    (
                        "FETCH 20 FROM c",
                        "FETCH ALL FROM c",
                        "FETCH BACKWARD 5 FROM c",
                        "CLOSE c",
                        "MOVE FIRST FROM c",
                    )
                )
            )
            if self.chance(0.1):
                self.cursor = False
                yield Step("CLOSE ALL")
        else:
            self.cursor = True
            yield Step(
                f"DECLARE c SCROLL CURSOR FOR SELECT {self.shown()} FROM t{self.where()} ORDER BY {self.order()}"
            )

    # ---- definitions and maintenance -----------------------------------------------------------------------------

    def create_index(self) -> Step:
        rng = self.rng
        self.table.names += 1
        name = f"i{self.table.names}"
        column = rng.choice(self.table.columns)
        self.table.indexes.append(name)
        method = rng.choice(("btree", "btree", "btree", "hash"))
        if column.series.name == "long" or column.kind.type in ("text[]", "jsonb"):
            method = "hash"
        target = column.name
        if method == "btree" and self.chance(0.3):
            target += ", id"
        where = f" WHERE {self.predicate(depth=0)}" if self.chance(0.2) else ""
        return Step(f"CREATE INDEX {name} ON t USING {method} ({target}){where}")

    def define(self) -> Iterator[Step]:
        rng = self.rng
        table = self.table
        choice = rng.random()
        if choice < 0.4:
            table.names += 1
            column = random_column(rng, f"c{table.names}")
            default = f" DEFAULT {rng.choice(column.kind.edges)}" if self.chance(0.6) else ""
            yield Step(f"ALTER TABLE t ADD COLUMN {column.name} {column.kind.type}{default}")
            table.columns.append(column)
            if default and column.kind.number:
                column.series = copy.copy(column.series)
                object.__setattr__(column.series, "vague", True)
        elif choice < 0.6 and len(table.columns) > 1:
            column = rng.choice(table.columns)
            table.columns.remove(column)
            yield Step(f"ALTER TABLE t DROP COLUMN {column.name}")
        elif choice < 0.8:
            yield self.create_index()
        elif choice < 0.9 and table.indexes:
            name = rng.choice(table.indexes)
            yield Step(f"DROP INDEX IF EXISTS {name}")
        else:
            column = rng.choice(table.columns)
            if column.kind.type in ("integer", "smallint"):
                yield Step(f"ALTER TABLE t ALTER COLUMN {column.name} TYPE bigint")
            elif column.kind.type == "varchar(20)":
                yield Step(f"ALTER TABLE t ALTER COLUMN {column.name} TYPE varchar(50)")
            else:
                yield Step("ALTER TABLE t ALTER COLUMN id SET NOT NULL")

    def options(self) -> Step:
        rng = self.rng
        hashed = [c.name for c in self.table.columns if c.kind.hashed]
        ordered = [c.name for c in self.table.columns if c.kind.ordered]
        options = []
        if self.chance(0.5):
            options.append(f"compression => '{rng.choice(('hot', 'cold', 'none', 'lz4', 'zstd'))}'")
        if self.chance(0.5):
            options.append(f"row_group_rows => {rng.choice((1024, 1500, 2048))}")
        if ordered and self.chance(0.5):
            options.append(
                f"order_by => '{rng.choice(ordered)}{rng.choice(('', ' DESC', ', id'))}'"
            )
        if hashed and self.chance(0.5):
            options.append(f"bloom => ARRAY['{rng.choice(hashed)}']")
        arguments = ", ".join(["'t'", *(options or ["compression => 'cold'"])])
        return Step(
            f"SELECT strata_columnar.alter_columnar_table_set({arguments})",
            "columnar",
            compare=False,
        )

    # ---- older snapshots -----------------------------------------------------------------------------

    def begin_elder(self) -> Iterator[Step]:
        """A snapshot that is held beside, without a lock of the table."""
        self.elder = True
        yield Step("BEGIN ISOLATION LEVEL REPEATABLE READ", "elder")
        yield Step("SELECT 1", "elder")

    def end_elder(self) -> Step:
        self.elder = False
        return Step("COMMIT", "elder")

    def look_back(self) -> Iterator[Step]:
        """What the older snapshot sees, by each way to read; then it lets go of the table's lock."""
        column = self.rng.choice(self.table.columns)
        lookup = f"{column.name} = {self.literal(column)}"
        low = self.rng.randrange(self.table.next_id + 1)
        yield Step("SAVEPOINT look", "elder")
        for way in ("seqscan", "indexscan", "bitmapscan"):
            for name in ("seqscan", "indexscan", "bitmapscan"):
                yield Step(f"SET LOCAL enable_{name} = {'on' if name == way else 'off'}", "elder")
            for condition in ("id > 0", f"id IN ({low}, {low + 1}, {low + 700})", lookup):
                yield Step(
                    f"SELECT count(*), md5(string_agg(t::text, '|' ORDER BY id)) FROM t WHERE {condition}",
                    "elder",
                )
        yield Step("ROLLBACK TO look", "elder")

    def maintain(self) -> Iterator[Step]:
        if self.in_transaction or not self.has_elders:
            yield from self.maintain_table()
            return
        if not self.elder:
            yield from self.begin_elder()
            yield from self.change()
        yield from self.maintain_table()
        if self.elder:
            yield from self.look_back()
            if self.chance(0.25):
                yield self.end_elder()

    def maintain_table(self) -> Iterator[Step]:
        rng = self.rng
        own = (
            "SELECT strata_columnar.columnar_compact('t')",
            "SELECT strata_columnar.columnar_compact('t', everything => true)",
        )
        if self.in_transaction:
            steps = [Step("ANALYZE t"), Step(own[0], "columnar", compare=False)]
            if not self.cursor:  # whether that uses an index is the planner's choice
                steps.append(Step("REINDEX TABLE t"))
            yield rng.choice(steps)
            return
        both = ("VACUUM t", "VACUUM (FREEZE) t", "VACUUM FULL t", "ANALYZE t", "REINDEX TABLE t")
        choice = rng.random()
        if choice < 0.4:
            yield Step(rng.choice(both))
        elif choice < 0.7:
            yield Step(rng.choice(own), "columnar", compare=False)
        elif choice < 0.8:
            yield self.options()
        elif choice < 0.85:
            if self.elder:  # only one side would be rewritten
                yield self.end_elder()
            yield Step("ALTER TABLE t SET ACCESS METHOD heap", "columnar", compare=False)
            yield from self.query()
            yield Step("ALTER TABLE t SET ACCESS METHOD columnar", "columnar", compare=False)
        elif choice < 0.9 and self.table.has_key:
            yield Step("CLUSTER t USING t_pkey")
        else:
            yield from self.settings()
