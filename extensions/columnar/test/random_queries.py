"""Random queries of the fuzzer of vectors: aggregates, groups, sub-selects and parameters over random expressions."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from extensions.columnar.test.random_expressions import (
    FLOATS,
    INTS,
    ORDERS,
    WITHOUT_EXTREMES,
    Expr,
    Known,
    Maker,
    boolean,
)
from extensions.columnar.test.random_tables import LARGE

INNER = ("scalar", "lateral", "exists", "member", "compare")  # shapes with sub-selects
JOINS = 0.3  # of the queries
OWN_COLUMN = re.compile(r"(?<![.\w])c\d")  # of a query with a row outside


class AggregateMaker(Maker):
    """Makes aggregate calls, too."""

    row_wise = False  # may make aggregates that are not computed by batches

    def aggregate(self, tolerant: bool = True) -> Expr:
        """An aggregate call with its FILTER; not `tolerant`: none whose last digits depend on the order."""
        call = self.call(tolerant)
        while self.outer and not OWN_COLUMN.search(call.sql.replace("count(*)", "c1")):
            call = self.call(tolerant)  # it would be an aggregate of the query outside
        if not self.chance(0.35):
            return replace(call, template=call.template.replace("!", ""))
        where = f" FILTER (WHERE {{{len(call.args)}}})"
        condition = self.condition(1)
        if self.outer and not OWN_COLUMN.search(condition.sql):
            condition = boolean("({0} AND (id > 0))", condition)
        return replace(
            call, template=call.template.replace("!", where), args=(*call.args, condition)
        )

    def call(self, tolerant: bool) -> Expr:
        """An aggregate call whose FILTER goes where the exclamation mark is."""
        type_ = self.any_type()
        operand = self.value(type_, 2)
        choice = self.rng.random()
        if choice < 0.06:
            return Expr("count(*)!", "int8")
        if choice < 0.14:
            return Expr("count({0})!", "int8", (operand,))
        if choice < 0.25 and self.row_wise:
            return Expr("count(DISTINCT {0})!", "int8", (operand,))
        if choice < 0.35 and self.row_wise:
            return Expr("md5(string_agg(({0})::text, ',' ORDER BY id)!)", "text", (operand,))
        if choice < 0.28 and tolerant and (spread := self.spread()):
            return spread
        if choice < 0.5 and type_ not in WITHOUT_EXTREMES and type_ != "texts":
            name = self.rng.choice(("min", "max"))
            return Expr(of_group(operand, name), type_, (operand,), scale=operand.scale)
        if type_ in FLOATS:
            return self.float_sum(operand) if tolerant else Expr("count({0})!", "int8", (operand,))
        if type_ in INTS or type_ == "numeric":
            names = ("sum",) * 4 + ("avg",) * 3 + ("var_pop", "var_samp", "stddev", "stddev_pop")
            if type_ in INTS:
                names += ("bit_and", "bit_or", "bit_xor")
            return Expr(f"{self.rng.choice(names)}({{0}})!", "numeric", (operand,))
        if type_ == "interval":
            return Expr(self.rng.choice(("sum({0})!", "avg({0})!")), type_, (self.leaf(type_),))
        if type_ == "bool":
            return Expr(
                self.rng.choice(("bool_and({0})!", "bool_or({0})!", "every({0})!")),
                type_,
                (operand,),
            )
        return Expr("count({0})!", "int8", (operand,))

    def float_sum(self, operand: Expr) -> Expr:
        """A sum, and that of the absolute values, which bounds what the order of rows may do."""
        name = self.rng.choice(("sum", "avg"))
        kind = "sum4" if (operand.type, name) == ("float4", "sum") else "sum8"
        template = f"{name}({{0}})!, {name}(abs({{0}}))!"
        return Expr(template, operand.type, (operand,), tolerances=(kind, "bound"))

    def spread(self) -> Expr | None:
        """Statistics of floats that add up exactly, so that only the last steps round."""
        tame = [c for c in self.columns if c.tame]
        if not tame:
            return None
        x, y = (Expr(self.rng.choice(tame).name, "float8") for _ in range(2))
        if self.chance(0.5):
            name = self.rng.choice(("var_pop", "var_samp", "stddev_pop", "stddev_samp"))
            return Expr(f"{name}({{0}}::float8)!", "float8", (x,), tolerances=("close",))
        name = self.rng.choice(
            (
                "corr",
                "covar_pop",
                "covar_samp",
                "regr_slope",
                "regr_intercept",
                "regr_r2",
                "regr_sxx",
                "regr_avgx",
                "regr_count",
            )
        )
        return Expr(f"{name}({{0}}::float8, {{1}}::float8)!", "float8", (x, y), tolerances=("fit",))

    def having(self) -> Expr:
        choice = self.rng.random()
        if choice < 0.4:
            return boolean(
                "(count(*) > {0})", self.literal("int8", self.rng.choice(("1", "2", "10")))
            )
        type_ = self.any_type()
        if type_ in WITHOUT_EXTREMES or type_ == "texts" or choice < 0.5:
            return boolean("(count({0}) < {1})", self.leaf(type_), self.literal("int8", "5"))
        name = self.rng.choice(("min", "max"))
        operator = self.rng.choice(ORDERS)
        return boolean(
            f"({name}({{0}}) {operator} {{1}})", self.value(type_, 1), self.literal(type_)
        )


def of_group(operand: Expr, name: str) -> str:
    """min() or max() as a template, neutralised as shown values are."""
    return replace(operand, template=f"{name}({{0}})!", args=()).shown


# ---- queries ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Query:
    """The parts of a query over t; which of them it has depends on the shape."""

    shape: str
    items: tuple[Expr, ...] = ()
    where: tuple[Expr, ...] = ()
    keys: tuple[Expr, ...] = ()
    having: tuple[Expr, ...] = ()
    operator: str = ""
    parameters: tuple[tuple[str, tuple[str, ...]], ...] = ()
    digest: bool = False
    source: str = "t"  # what rows are taken from, if there is no row outside

    @property
    def condition(self) -> str:
        return f" WHERE {' AND '.join(c.sql for c in self.where)}" if self.where else ""

    def select(self) -> str:
        items = ", ".join(item.sql for item in self.items)
        if self.shape == "rows":
            return f"SELECT id, {items} FROM {self.source}{self.condition}"
        if self.shape == "values":
            named = ", ".join(f"{item.sql} AS k{n}" for n, item in enumerate(self.items))
            names = ", ".join(f"k{n}" for n in range(len(self.items)))
            numbers = ", ".join(str(n + 1) for n in range(len(self.items) + 1))
            inner = f"SELECT id, {named}, count(*) FROM {self.source}{self.condition} GROUP BY {numbers}"
            return f"SELECT id, {names} FROM ({inner}) AS x"
        if self.shape == "groups":
            shown = ", ".join([*(key.shown for key in self.keys), *(i.sql for i in self.items)])
            keys = f" GROUP BY {', '.join(key.sql for key in self.keys)}" if self.keys else ""
            having = f" HAVING {' AND '.join(h.sql for h in self.having)}" if self.having else ""
            return f"SELECT {shown} FROM {self.source}{self.condition}{keys}{having}"
        if self.shape == "scalar":
            return f"SELECT o.id, (SELECT {items} FROM t{self.condition}) FROM u AS o"
        if self.shape == "lateral":
            return f"SELECT o.id, l.* FROM u AS o, LATERAL (SELECT {items} FROM t{self.condition}) AS l"
        if self.shape == "exists":
            return f"SELECT o.id FROM u AS o WHERE {self.operator} (SELECT FROM t{self.condition})"
        (key,) = self.keys  # member, compare
        return f"SELECT o.id FROM u AS o WHERE {key.sql} {self.operator} (SELECT {items} FROM t{self.condition})"

    def statements(self) -> list[str]:
        """To prepare if it has parameters, and to run and compare."""
        query = self.select()
        if self.digest:
            query = f"""SELECT count(*), md5(string_agg(r::text, '|' ORDER BY r::text COLLATE "C")) FROM ({query}) AS r"""
        if not self.parameters:
            return [query]
        types = ", ".join(type_ for type_, _ in self.parameters)
        runs = [", ".join(values[n] for _, values in self.parameters) for n in range(3)]
        return [f"PREPARE p ({types}) AS {query}", *(f"EXECUTE p ({values})" for values in runs)]

    def tolerances(self) -> list[str]:
        first = 1 if self.shape in ("rows", "values", "scalar", "lateral") else len(self.keys)
        if self.shape in ("exists", "member", "compare") or self.digest:
            return []
        return ["exact"] * first + [t for item in self.items for t in item.tolerances]

    def simpler(self) -> Iterator[Query]:
        """Shorter queries that may show the same."""
        if self.digest:
            yield replace(self, digest=False)
        if self.source != "t":
            yield replace(self, source="t")
        if " AND (" in self.source:
            yield replace(self, source=self.source.split(" AND (")[0])
        for name in ("items", "where", "having", "keys"):
            parts = getattr(self, name)
            least = 1 if name == "items" or self.shape in ("member", "compare") else 0
            if name == "keys" and self.shape == "groups":
                least = 0
            for number in range(len(parts)):
                if len(parts) > least:
                    yield replace(self, **{name: parts[:number] + parts[number + 1 :]})
        for name in ("items", "where", "having", "keys"):
            parts = getattr(self, name)
            for number, part in enumerate(parts):
                for smaller in part.simpler():
                    yield replace(self, **{name: (*parts[:number], smaller, *parts[number + 1 :])})
                if part.template.startswith("(") and " AND " in part.template:
                    yield replace(
                        self, **{name: (*parts[:number], *part.args, *parts[number + 1 :])}
                    )


class Asker:
    """Makes the queries of a seed."""

    def __init__(self, rng: random.Random, columns: Sequence[Known], rows: int):
        self.rng = rng
        self.columns = columns
        self.alone = AggregateMaker(rng, columns)
        joined = [replace(c, name=f"j{c.name}") for c in columns]
        self.joined = AggregateMaker(rng, [*columns, *joined])
        self.maker = self.alone
        self.rows = rows

    def query(self) -> Query:
        """Of the table, or of the table joined with another."""
        if self.rng.random() >= JOINS:
            self.maker = self.alone
            return self.make(("groups", "values", "rows", "inner"), (50, 22, 10, 18))
        self.maker = self.joined  # its rows have no number of their own: no "values"
        return replace(self.make(("groups", "rows"), (75, 25)), source=self.make_join())

    def make_join(self) -> str:
        """A join of t with few of its rows, by any column, or with all of them, by numbers."""
        rng = self.rng
        shown = ", ".join(f"{c.name} AS j{c.name}" for c in self.columns)
        kind = rng.choice(("", "", "LEFT ", "RIGHT ", "FULL "))
        if self.rows <= LARGE and rng.random() < 0.5:
            column = rng.choice(self.columns).name
            table, condition = f"(SELECT id AS jid, {shown} FROM u)", f"{column} = j{column}"
        else:
            number = rng.choice(("id", "id * 3", "id / 2", "id + 500"))
            table, condition = f"(SELECT {number} AS jid, {shown} FROM t)", "id = jid"
        if kind != "FULL " and rng.random() < 0.3:
            self.joined.daring = False
            self.joined.parameters = None
            condition += f" AND {self.joined.condition(1).sql}"
        return f"t {kind}JOIN {table} AS j ON {condition}"

    def make(self, shapes: Sequence[str], weights: Sequence[int]) -> Query:
        rng, maker = self.rng, self.maker
        maker.daring = rng.random() < 0.12
        maker.made = []
        maker.row_wise = maker is self.alone and rng.random() < 0.08
        maker.outer = ""
        maker.parameters = [] if rng.random() < 0.2 else None
        shape = rng.choices(shapes, weights)[0]
        query = getattr(self, f"make_{shape}")()
        if maker.parameters:
            parameters = tuple((type_, tuple(values)) for type_, values in maker.parameters)
            query = replace(query, parameters=parameters)
        return query

    def where(self) -> tuple[Expr, ...]:
        count = self.rng.choices((0, 1, 2, 3), (28, 44, 20, 8))[0]
        conditions = [self.filter(self.rng.choice((0, 1, 2, 3))) for _ in range(count)]
        if self.rng.random() < 0.15:
            modulus = self.rng.choice((3, 50, 400))
            conditions.append(boolean(f"(id % {modulus} = {self.rng.randrange(modulus)})"))
        self.rng.shuffle(conditions)
        return tuple(conditions)

    def filter(self, depth: int) -> Expr:
        """A condition; often such that some rows are left, as few random ones are true."""
        condition = self.maker.condition(depth)
        choice = self.rng.random()
        if choice < 0.25:
            return boolean("({0} IS NOT TRUE)", condition)
        if choice < 0.5:
            modulus = self.rng.choice((2, 3, 64))
            return boolean(f"({{0}} OR (id % {modulus} = 1))", condition)
        return condition

    def values(self) -> tuple[Expr, ...]:
        count = self.rng.choice((1, 1, 2, 3))
        return tuple(
            self.maker.value(self.maker.any_type(), self.rng.choice((1, 2, 3)))
            for _ in range(count)
        )

    def make_rows(self) -> Query:
        return Query("rows", self.values(), self.where(), digest=self.rows > LARGE)

    def make_values(self) -> Query:
        return Query("values", self.values(), self.where(), digest=self.rows > LARGE)

    def make_groups(self) -> Query:
        rng, maker = self.rng, self.maker
        count = rng.choices((0, 1, 2, 3, 4), (30, 35, 20, 10, 5))[0]
        large = self.rows > LARGE and count > 0
        keys = tuple(
            maker.leaf(maker.any_type()) if rng.random() < 0.6 else maker.value(maker.any_type(), 2)
            for _ in range(count)
        )
        # core plans no grouping by constants as one by batches: leave few of these
        keys = tuple(key for key in keys if "c" in key.sql or rng.random() < 0.1)
        items = tuple(
            maker.aggregate(tolerant=not large) for _ in range(rng.choice((1, 2, 3, 5, 8)))
        )
        having = (maker.having(),) if rng.random() < 0.2 else ()
        return Query("groups", items, self.where(), keys, having, digest=large)

    def make_inner(self) -> Query:
        """Sub-selects that refer to the row outside."""
        rng, maker = self.rng, self.maker
        maker.outer = "o"
        shape = rng.choice(("scalar", "lateral", "exists", "member", "compare"))
        column = rng.choice(maker.columns)
        where = list(self.where())
        if rng.random() < 0.75:
            where.append(boolean(f"({column.name} = o.{column.name})"))
        if shape == "lateral":
            return Query(
                shape,
                tuple(maker.aggregate(False) for _ in range(rng.choice((1, 2, 4)))),
                tuple(where),
            )
        if shape == "scalar":
            return Query(shape, (maker.aggregate(False),), tuple(where))
        if shape == "exists":
            return Query(shape, (), tuple(where), operator=rng.choice(("EXISTS", "NOT EXISTS")))
        if shape == "member":
            shown = rng.choice(maker.columns)
            return Query(
                shape, (Expr(shown.name, shown.type),), tuple(where), (Expr(f"o.{shown.name}", shown.type),),
                operator=rng.choice(("IN", "NOT IN", "= ANY", "<> ALL")),
            )  # fmt: skip
        name, operand = rng.choice((("count", column), ("min", column), ("max", column)))
        if operand.type in ("bool", "uuid", "bytea", "jsonb", "texts"):
            name = "count"
        key = Expr("o.id", "int8") if name == "count" else Expr(f"o.{operand.name}", operand.type)
        item = Expr(f"{name}({{0}})", key.type, (Expr(operand.name, operand.type),))
        return Query(
            shape, (item,), tuple(where), (key,), operator=rng.choice(("=", "<", ">=", "<>"))
        )
