"""Random SELECT statements over the schema of schema.py.

The grammar is written as methods that return SQL text; every random choice comes from one random.Random, so a seed
is a query.  A generated query has exactly one right answer:

- ORDER BY, LIMIT, DISTINCT ON, windows and ordered aggregates sort by all columns in view, so that rows that tie are
  equal in everything that can be seen;
- numerics have two digits, so that equal ones have the same text;
- divisors are wrapped in nullif() and products stay small: no error depends on the order of evaluation;
- the few queries that must fail (error_query) fail on every row.
"""

from __future__ import annotations

from dataclasses import dataclass

from .expressions import BIG, BOOL, DATE, FLOAT, INT, NUM, TEXT, Expressions, Scope, Source
from .schema import SCHEMA, TABLES

AVERAGE = "numeric with many digits"


@dataclass
class Query:
    sql: str
    ordered: bool  # compare the rows in their order
    param_types: list[str]
    param_values: list[str]  # SQL literals
    features: set[str]

    def statements(self, name: str = "q") -> list[str]:
        """As one statement, or as PREPARE and EXECUTE when it has parameters."""
        if not self.param_types:
            return [self.sql]
        return [
            f"PREPARE {name} ({', '.join(self.param_types)}) AS {self.sql}",
            f"EXECUTE {name} ({', '.join(self.param_values)})",
        ]


class Generator(Expressions):
    def __init__(self, seed: int | str):
        super().__init__(seed)
        self.ctes: list[Source] = []

    def sublink(self, scope: Scope, depth: int) -> str:
        """EXISTS, IN, ANY, ALL or a scalar subquery in WHERE, possibly correlated."""
        self.use("sublink")
        rng = self.rng
        source, from_sql = self.table_source()
        inner = Scope([source], scope)
        where = [self.predicate(inner, 1)] if self.chance(0.6) else ["true"]
        type_ = rng.choice([INT, INT, BIG, NUM, TEXT, DATE])
        mine, theirs = self.column(Scope([source]), type_), self.column(Scope(scope.sources), type_)
        if mine and theirs and self.chance(0.6):
            self.use("correlated")
            where.append(f"{mine} = {theirs}")
        elif self.chance(0.4) and source.columns.get("k"):
            outer_keys = [s for s in scope.sources if s.columns.get("k") == source.columns["k"]]
            if outer_keys:
                self.use("correlated")
                where.append(f"{source.alias}.k = {rng.choice(outer_keys).alias}.k")
        condition = " AND ".join(where)
        kind = rng.random()
        if kind < 0.35:
            return f"{rng.choice(['', 'NOT '])}EXISTS (SELECT 1 FROM {from_sql} WHERE {condition})"
        value = mine or self.constant(type_)
        left = theirs or self.constant(type_)
        if kind < 0.65:
            negation = rng.choice(["", "", "NOT "])
            return f"{left} {negation}IN (SELECT {value} FROM {from_sql} WHERE {condition})"
        if kind < 0.75:
            operator = rng.choice(["< ALL", ">= ANY", "<> ALL", "= SOME"])
            return f"{left} {operator} (SELECT {value} FROM {from_sql} WHERE {condition})"
        aggregate = rng.choice(["min", "max"])
        return f"{left} {rng.choice(['<', '>=', '='])} (SELECT {aggregate}({value}) FROM {from_sql} WHERE {condition})"

    # ------------------------------------------------------------------- FROM

    def table_source(self) -> tuple[Source, str]:
        """A base table or a CTE in view."""
        if self.ctes and self.chance(0.35):
            self.use("cte")
            cte = self.rng.choice(self.ctes)
            alias = self.alias("w")
            return Source(alias, cte.columns), f"{cte.alias} AS {alias}"
        table = self.rng.choice(TABLES)
        alias = self.alias("t")
        columns = {
            "id": INT,
            "k": table.key_type,
            "a": INT,
            "b": INT,
            "t": TEXT,
            "n": NUM,
            "f": FLOAT,
            "d": DATE,
        }
        sample = ""
        if self.chance(0.03):
            self.use("tablesample")
            sample = f" TABLESAMPLE {self.rng.choice(['BERNOULLI', 'SYSTEM'])} (100)"
        return Source(alias, columns, table.name), f"{SCHEMA}.{table.name} AS {alias}{sample}"

    def from_source(self, depth: int, outer: Scope | None) -> tuple[Source, str]:
        """A table, a derived table, VALUES or a set-returning function."""
        choice = self.rng.random()
        if depth > 0 and choice < 0.18:
            self.use("derived")
            alias = self.alias("q")
            sql, types = self.select(depth - 1, None)
            return self.named_source(
                alias, types
            ), f"({sql}) AS {alias} ({self.column_names(types)})"
        if choice > 0.93:
            return self.combined_source()
        if choice < 0.22:
            self.use("values")
            alias = self.alias("v")
            rows = ", ".join(f"({self.literal(INT)}, {self.literal(TEXT)}::text)" for _ in range(3))
            return Source(alias, {"c1": INT, "c2": TEXT}), f"(VALUES {rows}) AS {alias} (c1, c2)"
        if choice < 0.25:
            self.use("function")
            alias = self.alias("g")
            return Source(
                alias, {"c1": INT}
            ), f"generate_series(1, {self.rng.randrange(2, 7)}) AS {alias} (c1)"
        return self.table_source()

    def combined_source(self) -> tuple[Source, str]:
        """A set operation of tables, of which most have one distribution key."""
        self.use("combined tables")
        rng = self.rng
        type_ = rng.choice([INT, INT, INT, BIG, TEXT])
        tables = [table for table in TABLES if table.key_type == type_]
        if type_ == INT and self.chance(0.8):
            tables = [
                table for table in tables if table.colocate_with == "d1" or table.name == "d1"
            ]
        kept = rng.sample(["a", "b", "t", "n", "d"], rng.randrange(1, 4))
        if self.chance(0.85):
            kept.append("k")
        types = {"k": type_, "a": INT, "b": INT, "t": TEXT, "n": NUM, "d": DATE}
        operation = rng.choice(["UNION ALL"] * 6 + ["UNION", "UNION", "INTERSECT", "EXCEPT"])
        if operation in ("INTERSECT", "EXCEPT") and self.chance(0.4):
            operation += " ALL"
        branches = []
        for _ in range(rng.choice([2, 2, 3])):
            table = rng.choice(tables)
            columns = [
                rng.choice("ab") if column in "ab" and self.chance(0.2) else column
                for column in kept
            ]
            branch = f"SELECT {', '.join(columns)} FROM {SCHEMA}.{table.name}"
            if self.chance(0.4):
                only = {column: types[column] for column in types} | {"id": INT, "f": FLOAT}
                branch += f" AS s WHERE {self.predicate(Scope([Source('s', only)]), 1)}"
            branches.append(f"({branch})")
        alias = self.alias("u")
        columns = {f"{column}": types[column] for column in kept}
        sql = f"({f' {operation} '.join(branches)}) AS {alias} ({', '.join(kept)})"
        return Source(alias, columns), sql

    @staticmethod
    def column_names(types: list[str]) -> str:
        return ", ".join(f"c{i + 1}" for i in range(len(types)))

    @staticmethod
    def named_source(alias: str, types: list[str]) -> Source:
        return Source(alias, {f"c{i + 1}": t for i, t in enumerate(types)})

    def join_condition(self, left: list[Source], right: Source, full: bool) -> str:
        """An equality between the sides where types allow, plus sometimes another condition."""
        pairs = []
        for source in left:
            for mine, type_ in source.columns.items():
                for theirs, other in right.columns.items():
                    same_number = {type_, other} <= {INT, BIG}
                    if (type_ == other or same_number) and type_ != BOOL:
                        weight = 20 if mine == theirs == "k" else 4 if mine == theirs else 1
                        pairs += [f"{source.alias}.{mine} = {right.alias}.{theirs}"] * weight
        if not pairs:
            return "true" if not full else f"{self.literal(INT)} = 1"
        condition = self.rng.choice(pairs)
        if self.chance(0.07):
            condition += f" AND {self.rng.choice(pairs)}"
        if not full and self.chance(0.12):
            condition += f" AND {self.predicate(Scope([*left, right]), 1)}"
        return condition

    def from_clause(self, depth: int, outer: Scope | None) -> tuple[str, Scope]:
        count = (
            self.rng.choice([1, 1, 1, 2, 2, 2, 3, 3, 4, 5])
            if depth > 1
            else self.rng.choice([1, 1, 2])
        )
        source, sql = self.from_source(depth, outer)
        scope = Scope([source], outer)
        for _ in range(count - 1):
            self.use("join")
            kind = self.rng.choice(
                ["JOIN", "JOIN", "JOIN", "LEFT JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"]
            )
            if self.chance(0.14) and depth > 0:
                self.use("lateral")
                source, item = self.lateral(scope)
                kind = self.rng.choice(["CROSS JOIN", "LEFT JOIN"])
                sql += f"\n\t{kind} {item}" + (" ON true" if kind == "LEFT JOIN" else "")
            else:
                source, item = self.from_source(depth, outer)
                self.use(kind.lower())
                sql += f"\n\t{kind} {item} ON {self.join_condition(scope.sources, source, kind == 'FULL JOIN')}"
            scope.sources.append(source)
        return sql, scope

    def lateral(self, scope: Scope) -> tuple[Source, str]:
        """LATERAL with a total order and a LIMIT, or an aggregate over matching rows."""
        source, from_sql = self.table_source()
        inner = Scope([source], Scope(scope.sources))
        where = self.predicate(inner, 1)
        type_ = self.rng.choice([INT, TEXT, DATE])
        mine, theirs = self.column(Scope([source]), type_), self.column(Scope(scope.sources), type_)
        keyed = [s for s in scope.sources if "k" in s.columns]
        if "k" in source.columns and keyed and self.chance(0.5):
            other = self.rng.choice(keyed)
            if other.columns["k"] == source.columns["k"]:
                mine, theirs = f"{source.alias}.k", f"{other.alias}.k"
        if mine and theirs:
            where = f"{mine} = {theirs} AND {where}"
        alias = self.alias("x")
        if self.chance(0.5):
            value = self.column(Scope([source]), INT) or "1"
            sql = f"SELECT count(*), max({value}) FROM {from_sql} WHERE {where}"
            group = self.column(Scope([source]), self.rng.choice([INT, TEXT]))
            if group and self.chance(0.3):
                sql += f" GROUP BY {group}"
            return Source(alias, {"c1": BIG, "c2": INT}), f"LATERAL ({sql}) AS {alias} (c1, c2)"
        columns = list(source.columns)[:3]
        items = ", ".join(f"{source.alias}.{c}" for c in columns)
        order = ", ".join(source.refs())
        sql = f"SELECT {items} FROM {from_sql} WHERE {where} ORDER BY {order} LIMIT {self.rng.randrange(1, 4)}"
        types = [source.columns[c] for c in columns]
        return self.named_source(
            alias, types
        ), f"LATERAL ({sql}) AS {alias} ({self.column_names(types)})"

    # ------------------------------------------------------------- aggregates

    def aggregate(self, scope: Scope) -> tuple[str, str]:
        """An aggregate call and its result type."""
        rng = self.rng
        total_order = ", ".join(scope.refs())

        def arg(type_: str) -> str:
            return self.expr(Scope(scope.sources), type_, 1)

        sql, type_ = rng.choice(
            [
                lambda: ("count(*)", BIG),
                lambda: (f"count({arg(rng.choice([INT, TEXT, DATE]))})", BIG),
                lambda: (f"count(DISTINCT {arg(rng.choice([INT, TEXT]))})", BIG),
                lambda: (f"sum({arg(INT)})", BIG),
                lambda: (f"sum({arg(NUM)})", NUM),
                lambda: (f"sum({arg(FLOAT)})", FLOAT),
                lambda: (f"sum(DISTINCT {arg(INT)})", BIG),
                lambda: (f"avg({arg(INT)})", AVERAGE),
                lambda: (f"avg({arg(NUM)})", AVERAGE),
                lambda: (f"avg({arg(FLOAT)})", FLOAT),
                lambda: (f"stddev_pop({arg(INT)})", AVERAGE),
                lambda: (f"min({arg(TEXT)})", TEXT),
                lambda: (f"max({arg(DATE)})", DATE),
                lambda: (f"min({arg(INT)})", INT),
                lambda: (f"max({arg(NUM)})", NUM),
                lambda: (f"bool_or({self.predicate(Scope(scope.sources), 0)})", BOOL),
                lambda: (f"every({self.predicate(Scope(scope.sources), 0)})", BOOL),
                lambda: (f"bit_or({arg(INT)})", INT),
                lambda: (f"string_agg({arg(TEXT)}, ',' ORDER BY {total_order})", TEXT),
                lambda: (
                    f"array_to_string(array_agg({arg(INT)} ORDER BY {total_order}), ' ', '-')",
                    TEXT,
                ),
            ]
        )()
        if sql.endswith(")") and not sql.startswith("array_to_string") and self.chance(0.15):
            self.use("filter")
            sql += f" FILTER (WHERE {self.predicate(Scope(scope.sources), 0)})"
        if type_ == AVERAGE:
            return f"round({sql}, 2)", NUM
        return sql, type_

    def grouped(self, scope: Scope, depth: int) -> tuple[list[tuple[str, str]], str]:
        """The select list and the GROUP BY (and HAVING) clauses of a grouped query."""
        rng = self.rng
        self.use("group by")
        # expressions without parameters: each $n would be another expression to the parser
        with_params, self.with_params = self.with_params, False
        keys: list[tuple[str, str]] = []
        for _ in range(rng.choice([0, 1, 1, 1, 2, 2, 3])):
            type_ = rng.choice([INT, TEXT, DATE, BIG])
            column = self.column(Scope(scope.sources), type_)
            if column and self.chance(0.8):
                keys.append((column, type_))
            elif column:
                keys.append((self.compound(Scope(scope.sources), type_, 1), type_))
        own_keys = [s for s in scope.sources if s.columns.get("k")]
        if own_keys and self.chance(0.35):
            source = rng.choice(own_keys)
            keys.append((f"{source.alias}.k", source.columns["k"]))
        keyed = [s for s in scope.sources if s.columns.get("id")]
        if keyed and self.chance(0.25):
            self.use("dependent columns")
            source = rng.choice(keyed)
            for name in ("id", *rng.sample([*source.columns], min(3, len(source.columns)))):
                keys.append((f"{source.alias}.{name}", source.columns[name]))
        keys = list(dict(keys).items())
        self.with_params = with_params
        items = [key for key in keys if self.chance(0.85)]
        items += [self.aggregate(scope) for _ in range(rng.randrange(1, 4))]
        clause = ""
        names = [key for key, _ in keys]
        if names:
            if self.chance(0.75):
                clause = "\nGROUP BY " + ", ".join(names)
            else:
                clause = "\nGROUP BY " + self.grouping_sets(names)
                items.append((f"grouping({', '.join(names)})", INT))
        if self.chance(0.2):
            self.use("having")
            clause += f"\nHAVING count(*) {rng.choice(['>', '<=', '<>'])} {rng.randrange(0, 5)}"
        return items, clause

    def grouping_sets(self, names: list[str]) -> str:
        """What stands after GROUP BY and holds each of the expressions."""
        self.use("grouping sets")
        rng = self.rng
        total = ", ".join(names)
        some = ", ".join(rng.sample(names, rng.randrange(1, len(names) + 1)))
        return rng.choice(
            [
                f"ROLLUP ({total})",
                f"CUBE ({total})",
                f"GROUPING SETS (({total}), ({some}), ())",
                f"GROUPING SETS (({total}), ({some}))",
                f"GROUPING SETS (({some}), ({total}), ({some}), ())",
                f"GROUPING SETS ({total})",
                f"{names[-1]}, ROLLUP ({total})",
                f"DISTINCT ROLLUP ({total}), CUBE ({some})",
            ]
        )

    def window(self, scope: Scope) -> tuple[str, str]:
        self.use("window")
        rng = self.rng
        total = ", ".join(scope.refs())
        partition = ""
        column = self.column(Scope(scope.sources), rng.choice([INT, TEXT]))
        if column and self.chance(0.6):
            partition = f"PARTITION BY {column} "
        over = f"OVER ({partition}ORDER BY {total})"
        value = self.column(Scope(scope.sources), INT) or "1"
        frame = f"OVER ({partition}ORDER BY {total} ROWS BETWEEN 2 PRECEDING AND 1 FOLLOWING)"
        return rng.choice(
            [
                (f"row_number() {over}", BIG),
                (f"rank() OVER ({partition}ORDER BY {value})", BIG),
                (f"dense_rank() OVER ({partition}ORDER BY {value} DESC NULLS LAST)", BIG),
                (f"lag({value}, 1) {over}", INT),
                (f"lead({value}, 2, -1) {over}", INT),
                (f"sum({value}) {frame}", BIG),
                (f"count(*) OVER ({partition})", BIG),
                (f"sum({value}) OVER ({partition}ORDER BY {value})", BIG),
                (f"first_value({value}) {over}", INT),
                (f"ntile(3) {over}", INT),
            ]
        )

    def ranking(self, scope: Scope) -> tuple[str, str]:
        """A window function whose first values are asked for."""
        total = ", ".join(scope.refs())
        value = self.column(Scope(scope.sources), INT) or "1"
        column = self.column(Scope(scope.sources), self.rng.choice([INT, INT, TEXT]))
        partition = f"PARTITION BY {column} " if column and self.chance(0.8) else ""
        function, order = self.rng.choice(
            [
                ("row_number", total),
                ("rank", value),
                ("dense_rank", f"{value} DESC"),
                ("rank", total),
            ]
        )
        return f"{function}() OVER ({partition}ORDER BY {order})", BIG

    def distinct_on(self, scope: Scope) -> tuple[str, str]:
        """DISTINCT ON, and the ORDER BY that says which rows it takes."""
        key = self.column(Scope(scope.sources), self.rng.choice([INT, INT, TEXT, DATE]))
        if key is None:
            return "", ""
        self.use("distinct on")
        direction = self.rng.choice(["", " DESC", " NULLS FIRST"])
        return f"DISTINCT ON ({key}) ", f"\nORDER BY {key}{direction}, {', '.join(scope.refs())}"

    # ---------------------------------------------------------------- queries

    def select(self, depth: int, outer: Scope | None) -> tuple[str, list[str]]:
        """One SELECT, or a set operation of two; returns the SQL and the column types."""
        if depth > 0 and self.chance(0.1):
            return self.set_operation(depth)
        from_sql, scope = self.from_clause(depth, outer)
        where = []
        if self.chance(0.45):
            where.append(self.predicate(scope, self.rng.choice([1, 1, 2])))
        if depth > 0 and self.chance(0.25):
            where.append(self.sublink(scope, depth))
        if self.chance(0.12):
            where.extend(self.routing_quals(scope))
        group_sql = ""
        distinct = ""
        distinct_order = ""
        first_rows = False
        if self.chance(0.42):
            items, group_sql = self.grouped(scope, depth)
        else:
            items = []
            for _ in range(self.rng.randrange(1, 5)):
                type_ = self.rng.choice([INT, INT, BIG, NUM, FLOAT, TEXT, DATE, BOOL])
                items.append((self.expr(scope, type_, 2), type_))
            if depth > 0 and self.chance(0.12):
                items.append(self.window(scope))
            if self.chance(0.1):
                items.append(self.scalar_subquery(scope))
            if self.chance(0.13):
                self.use("distinct")
                distinct = "DISTINCT "
            elif self.chance(0.07):
                distinct, distinct_order = self.distinct_on(scope)
            elif self.chance(0.07):
                self.use("first rows")
                first_rows = True
                items.append(self.ranking(scope))
        # a parameter's type, and that of an untyped NULL, is stated once and for all here
        columns = [(sql if "$" not in sql else f"({sql})::{type_}", type_) for sql, type_ in items]
        sql = f"SELECT {distinct}{', '.join(c for c, _ in columns)}\nFROM {from_sql}"
        if where:
            sql += "\nWHERE " + " AND ".join(where)
        sql += group_sql + distinct_order
        types = [type_ for _, type_ in columns]
        if first_rows:
            names = ", ".join(f"c{n}" for n in range(1, len(types) + 1))
            limit = self.rng.choice(["< 3", "<= 2", "= 1", "<= 4", "> 1"])
            sql = f"SELECT *\nFROM ({sql}) AS r({names})\nWHERE c{len(types)} {limit}"
        if distinct_order == "" and depth > 0 and outer is None and self.chance(0.12):
            sql += self.order_and_limit(types)
        return sql, types

    def routing_quals(self, scope: Scope) -> list[str]:
        keyed = [s for s in scope.sources if s.columns.get("k")]
        if not keyed:
            return []
        self.use("routed")
        source = self.rng.choice(keyed)
        return [f"{source.alias}.k = {self.constant(source.columns['k'])}"]

    def scalar_subquery(self, scope: Scope) -> tuple[str, str]:
        self.use("scalar subquery")
        source, from_sql = self.table_source()
        inner = Scope([source], Scope(scope.sources))
        aggregate, type_ = self.rng.choice(
            [
                ("count(*)", BIG),
                (f"max({self.column(Scope([source]), INT) or '1'})", INT),
                (
                    f"min({self.column(Scope([source]), TEXT) or self.literal(TEXT) + '::text'})",
                    TEXT,
                ),
            ]
        )
        return f"(SELECT {aggregate} FROM {from_sql} WHERE {self.predicate(inner, 1)})", type_

    def order_and_limit(self, types: list[str]) -> str:
        """A total order over the output and a LIMIT."""
        self.use("limit")
        positions = list(range(1, len(types) + 1))
        self.rng.shuffle(positions)
        order = ", ".join(
            f"{p}{self.rng.choice(['', ' DESC', ' NULLS FIRST', ' DESC NULLS LAST'])}"
            for p in positions
        )
        limit = f"\nORDER BY {order}"
        if self.chance(0.1):
            self.use("with ties")
            return limit + f" FETCH FIRST {self.rng.randrange(1, 9)} ROWS WITH TIES"
        if self.chance(0.1):
            self.use("subquery in limit")
            limit += (
                f" LIMIT (SELECT count(*) FROM {SCHEMA}.d1 WHERE a = {self.rng.randrange(0, 9)})"
            )
        elif self.chance(0.85):
            limit += f" LIMIT {self.rng.randrange(0, 30)}"
        if self.chance(0.25):
            limit += f" OFFSET {self.rng.randrange(0, 6)}"
        return limit

    def typed_select(self, depth: int, types: list[str]) -> str:
        """A SELECT with the given column types, for set operations."""
        from_sql, scope = self.from_clause(min(depth, 1), None)
        items = ", ".join(f"({self.expr(scope, t, 1)})::{t}" for t in types)
        where = f"\nWHERE {self.predicate(scope, 1)}" if self.chance(0.7) else ""
        return f"SELECT {items}\nFROM {from_sql}{where}"

    def set_operation(self, depth: int) -> tuple[str, list[str]]:
        self.use("set operation")
        types = [
            self.rng.choice([INT, TEXT, DATE, NUM, BIG]) for _ in range(self.rng.randrange(1, 4))
        ]
        sql = f"({self.typed_select(depth, types)})"
        for _ in range(self.rng.choice([1, 1, 2])):
            operator = self.rng.choice(
                ["UNION", "UNION ALL", "UNION ALL", "INTERSECT", "EXCEPT", "EXCEPT ALL"]
            )
            sql = f"({sql}\n{operator}\n({self.typed_select(depth, types)}))"
        # a bare parenthesised set operation may not be followed by ORDER BY in every position: wrap it
        return f"SELECT * FROM {sql} AS {self.alias('u')}", types

    def with_clause(self, depth: int) -> str:
        """Up to two common table expressions, visible in all that follows."""
        parts = []
        for _ in range(self.rng.choice([1, 1, 2])):
            sql, types = self.select(min(depth, 1), None)
            cte = self.named_source(self.alias("cte"), types)
            materialized = self.rng.choice(["", "", "MATERIALIZED ", "NOT MATERIALIZED "])
            parts.append(f"{cte.alias} ({self.column_names(types)}) AS {materialized}({sql})")
            self.ctes.append(cte)
        return "WITH " + ",\n".join(parts) + "\n"

    def recursive_query(self) -> str:
        """A walk along b -> id with a bound on its depth."""
        self.use("recursive")
        start, step = self.rng.choice(TABLES), self.rng.choice(TABLES)
        union = self.rng.choice(["UNION", "UNION ALL"])
        return (
            f"WITH RECURSIVE walk (id, level) AS (\n"
            f"\tSELECT id, 1 FROM {SCHEMA}.{start.name} WHERE id < {self.rng.randrange(3, 12)}\n"
            f"\t{union}\n"
            f"\tSELECT s.b % 40, level + 1 FROM walk JOIN {SCHEMA}.{step.name} AS s ON s.id = walk.id WHERE level < 6\n"
            f")\nSELECT id, level, count(*) FROM walk GROUP BY id, level"
        )

    def error_query(self) -> str:
        """Fails on its first row, on every node alike."""
        self.use("error")
        table = self.rng.choice(TABLES).name
        return self.rng.choice(
            [
                f"SELECT 1 / (id - id) FROM {SCHEMA}.{table}",
                f"SELECT (t || 'x')::integer FROM {SCHEMA}.{table} WHERE t IS NOT NULL",
                f"SELECT sum((2147483647 + id)::integer) FROM {SCHEMA}.{table}",
                f"SELECT (SELECT u.id FROM {SCHEMA}.{table} AS u) FROM {SCHEMA}.d1",
                f"SELECT missing FROM {SCHEMA}.{table}",
                f"SELECT k, count(*) FROM {SCHEMA}.{table}",
            ]
        )

    def locking_query(self) -> str:
        self.use("for update")
        source, from_sql = self.table_source()
        clause = self.rng.choice(
            ["FOR UPDATE", "FOR SHARE", "FOR UPDATE SKIP LOCKED", "FOR NO KEY UPDATE NOWAIT"]
        )
        columns = ", ".join(source.refs()[:3])
        return (
            f"SELECT {columns} FROM {from_sql} WHERE {self.predicate(Scope([source]), 1)} {clause}"
        )

    def query(self) -> Query:
        choice = self.rng.random()
        if choice < 0.02:
            return self.finish(self.recursive_query(), False)
        if choice < 0.035:
            return self.finish(self.error_query(), False)
        if choice < 0.055:
            return self.finish(self.locking_query(), False)
        with_sql = self.with_clause(1) if self.chance(0.15) else ""
        sql, types = self.select(2, None)
        ordered = False
        if "ORDER BY" not in sql.rsplit("\n", 1)[-1] and self.chance(0.45):
            sql = f"SELECT * FROM ({sql}) AS result" if sql.startswith("(") else sql
            sql += self.order_and_limit(types)
            ordered = "WITH TIES" not in sql
        return self.finish(with_sql + sql, ordered)

    def finish(self, sql: str, ordered: bool) -> Query:
        return Query(sql, ordered, self.param_types, self.param_values, self.features)


def generate(seed: int | str) -> Query:
    return Generator(seed).query()
