"""Random expressions of the fuzzer of vectors: type-correct SQL over the columns of a table.

An expression is a tree, so that the fuzzer can shorten it: any node may be replaced by a part of its
own type.  Most of what is made cannot fail, because a query that ends with an error compares little:
integers carry a bound of their bits, divisors are wrapped in nullif(), lengths are literals.  With
`Maker.daring` the rules are dropped now and then, and errors are what is compared.

Numerics carry their scale when all rows have the same; where SQL may show any of several equal values
(see Expr.shown) only those without one scale are neutralised.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

# how a literal of each family of types is written
TYPES = {
    "int2": "smallint",
    "int4": "integer",
    "int8": "bigint",
    "oid": "oid",
    "numeric": "numeric",
    "float4": "real",
    "float8": "double precision",
    "date": "date",
    "timestamp": "timestamp",
    "timestamptz": "timestamptz",
    "time": "time",
    "interval": "interval",
    "bool": "boolean",
    "text": "text",
    "textc": "text",  # the same under COLLATE "C"
    "texti": "text",  # and under that of ICU
    "varchar": "varchar",
    "bpchar": "bpchar",
    "uuid": "uuid",
    "bytea": "bytea",
    "enum": "mood",
    "jsonb": "jsonb",
    "ints": "integer[]",
    "texts": "text[]",
}
INTS = {"int2": 15, "int4": 31, "int8": 63}
FLOATS = ("float4", "float8")
NUMBERS = (*INTS, "numeric", *FLOATS)
MOMENTS = ("date", "timestamp", "timestamptz")
TEXTS = ("text", "textc", "texti")
STRINGS = (*TEXTS, "varchar", "bpchar")
WITHOUT_EXTREMES = ("bool", "uuid", "bytea", "jsonb")
COLLATIONS = {"textc": '"C"', "texti": '"und-x-icu"'}
NO_SCALE = -1  # of a numeric: rows differ, or nobody knows
FIELDS = (
    "year", "month", "day", "quarter", "week", "dow", "isodow", "doy", "isoyear", "decade", "century", "epoch", "hour",
    "minute", "second", "milliseconds",
)  # fmt: skip
UNITS = (
    "second", "minute", "hour", "day", "week", "month", "quarter", "year", "decade", "century",
)  # fmt: skip
PATTERNS = (
    "a%", "%1%", "_", "https://%", "name 1%", "c7%", "", "%", "gr__n", "The%30", "%e%e%", "r_d%", "%ä%", "group _", r"\%%",
)  # fmt: skip
ORDERS = ("=", "<>", "<", "<=", ">", ">=")


@dataclass(frozen=True)
class Expr:
    """`template` with {0}, {1}, … for the arguments; a leaf is not formatted."""

    template: str
    type: str
    args: tuple[Expr, ...] = ()
    bits: int = 63  # of an integer: -2^bits <= value < 2^bits
    scale: int = NO_SCALE  # of a numeric
    tolerances: tuple[str, ...] = ("exact",)  # of an item: one for each column that it makes

    @property
    def sql(self) -> str:
        if not self.args:
            return self.template
        return self.template.format(*(argument.sql for argument in self.args))

    @property
    def shown(self) -> str:
        """The value, so that equal values look equal: for what is any one value of a group."""
        if self.type == "numeric" and self.scale == NO_SCALE:
            return f"trim_scale({self.sql})"
        if self.type in FLOATS:  # -0 = 0
            return f"({self.sql} + 0::{TYPES[self.type]})"
        if self.type == "interval":  # 1 mon = 30 days = 720 h
            return f"justify_interval({self.sql})"
        if self.type == "bpchar":
            return f"rtrim({self.sql})"
        return self.sql

    def simpler(self) -> Iterator[Expr]:
        """The same with one part replaced by a smaller one."""
        for argument in self.args:
            if argument.type == self.type and self.tolerances == argument.tolerances:
                yield argument
        for number, argument in enumerate(self.args):
            smaller_ones = argument.simpler()
            if argument.type == "bool" and argument.args:
                smaller_ones = (Expr("true", "bool"), *smaller_ones)
            for smaller in smaller_ones:
                yield replace(self, args=(*self.args[:number], smaller, *self.args[number + 1 :]))


@dataclass
class Known:
    """A column as the expressions see it: with values of it, as quoted text."""

    name: str
    type: str
    values: list[str] = field(default_factory=list)
    bits: int = 63
    scale: int = NO_SCALE
    tame: bool = False  # floats whose sums do not round


class Maker:
    """Makes expressions over columns; all choices come from `rng`."""

    def __init__(self, rng: random.Random, columns: Sequence[Known]):
        self.rng = rng
        self.columns = columns
        self.by_type: dict[str, list[Known]] = {}
        for column in columns:
            self.by_type.setdefault(column.type, []).append(column)
        self.daring = False  # may make what fails
        self.made: list[Expr] = []  # of this query: what occurs twice is computed once
        self.outer: str = ""  # alias of a row outside, whose columns may stand for literals
        self.parameters: list[tuple[str, list[str]]] | None = None  # type and values of $1, …

    def chance(self, probability: float) -> bool:
        return self.rng.random() < probability

    def dares(self) -> bool:
        return self.daring and self.chance(0.3)

    def any_type(self) -> str:
        """Of the table's columns, mostly."""
        if self.chance(0.95):
            return self.rng.choice(self.columns).type
        return self.rng.choice(list(TYPES))

    # ---- leaves ---------------------------------------------------------------------------------

    def quoted(self, type_: str) -> str:
        """A value of the type, mostly one that the table has."""
        pool = [value for column in self.by_type.get(type_, ()) for value in column.values]
        if pool and self.chance(0.8):
            return self.rng.choice(pool)
        return self.rng.choice(EDGES[type_])

    def literal(self, type_: str, value: str | None = None) -> Expr:
        """A constant, or what is one for each scan: a parameter, a column of the row outside."""
        title = TYPES[type_]
        if value is None and self.outer and self.chance(0.5) and type_ in self.by_type:
            column = self.rng.choice(self.by_type[type_])
            return Expr(f"{self.outer}.{column.name}", type_, bits=column.bits, scale=column.scale)
        if value is None and self.parameters is not None and self.chance(0.6):
            values = [self.quoted(type_) for _ in range(3)]
            if self.chance(0.2):
                values[1] = "NULL"
            self.parameters.append((title, values))
            return Expr(f"${len(self.parameters)}", type_, bits=self.bits_of(type_, values))
        value = value or self.quoted(type_)
        sql = f"{value}::{title}"
        if type_ in COLLATIONS:
            sql = f"({sql} COLLATE {COLLATIONS[type_]})"
        return Expr(sql, type_, bits=self.bits_of(type_, [value]), scale=scale_of(value))

    def bits_of(self, type_: str, values: list[str]) -> int:
        if type_ not in INTS:
            return 63
        return max(int(v.strip("'")).bit_length() if v != "NULL" else 0 for v in values)

    def leaf(self, type_: str) -> Expr:
        columns = self.by_type.get(type_)
        if columns and self.chance(0.9):
            column = self.rng.choice(columns)
            return Expr(column.name, type_, bits=column.bits, scale=column.scale)
        if self.chance(0.05):
            return self.null(type_)
        return self.literal(type_)

    def null(self, type_: str) -> Expr:
        sql = f"NULL::{TYPES[type_]}"
        if type_ in COLLATIONS:
            sql = f"({sql} COLLATE {COLLATIONS[type_]})"
        return Expr(sql, type_, bits=0, scale=0)

    # ---- values ---------------------------------------------------------------------------------

    def value(self, type_: str, depth: int = 2) -> Expr:
        again = [expression for expression in self.made if expression.type == type_]
        if again and self.chance(0.12):
            return self.rng.choice(again)
        expression = self.new_value(type_, depth)
        if expression.args:
            self.made.append(expression)
        return expression

    def new_value(self, type_: str, depth: int) -> Expr:
        if type_ == "bool":
            return self.condition(depth)
        if depth <= 0 or self.chance(0.2):
            return self.leaf(type_)
        if self.chance(0.22):
            return self.choice(type_, depth - 1)
        if type_ in INTS:
            return self.integer(type_, depth - 1)
        maker = {
            "numeric": self.numeric,
            "float4": self.float,
            "float8": self.float,
            "date": self.moment,
            "timestamp": self.moment,
            "timestamptz": self.moment,
            "interval": self.interval,
            "text": self.text,
            "textc": self.text,
            "texti": self.text,
        }.get(type_, self.other)
        return maker(type_, depth - 1)

    def choice(self, type_: str, depth: int) -> Expr:
        """CASE, COALESCE, NULLIF, GREATEST, LEAST."""
        first, second = self.value(type_, depth), self.value(type_, depth - 1)
        choice = self.rng.random()
        if choice < 0.3:
            template, args = (
                "CASE WHEN {0} THEN {1} ELSE {2} END",
                (self.condition(depth), first, second),
            )
        elif choice < 0.4:
            conditions = self.condition(depth), self.condition(0)
            template, args = (
                "CASE WHEN {0} THEN {1} WHEN {2} THEN {3} END",
                (conditions[0], first, conditions[1], second),
            )
        elif choice < 0.5:
            switch = self.any_type()
            when = self.literal(switch), self.literal(switch)
            template, args = (
                "CASE {0} WHEN {1} THEN {2} WHEN {3} THEN {4} ELSE {5} END",
                (self.value(switch, depth - 1), when[0], first, when[1], second, self.leaf(type_)),
            )
        elif choice < 0.7:
            template, args = "COALESCE({0}, {1})", (first, second)
        elif choice < 0.85 or type_ in WITHOUT_EXTREMES:
            template, args = "NULLIF({0}, {1})", (first, second)
        else:
            name = self.rng.choice(("GREATEST", "LEAST"))
            template, args = f"{name}({{0}}, {{1}})", (first, second)
        values = [a for a in args if a.type == type_]
        if template.startswith("NULLIF"):
            values = [first]
        return Expr(
            f"({template})",
            type_,
            args,
            bits=max(v.bits for v in values),
            scale=common_scale(values),
        )

    def integer(self, type_: str, depth: int) -> Expr:
        most = INTS[type_]
        choice = self.rng.random()
        if choice < 0.5:
            return self.integer_arithmetic(type_, depth)
        if choice < 0.6:
            operand = self.value(type_, depth)
            template = self.rng.choice(("(- {0})", "abs({0})"))
            if operand.bits >= most and not self.dares():
                operand = self.remainder(operand)
            return Expr(template, type_, (operand,), bits=operand.bits)
        if choice < 0.78:
            source = self.rng.choice([t for t in INTS if t != type_])
            return self.cast_integer(self.value(source, depth), type_)
        if choice < 0.84 and type_ == "int4":
            string = self.value(self.rng.choice((*STRINGS, "bytea")), depth)
            name = self.rng.choice(("length", "octet_length"))
            return Expr(f"{name}({{0}})", type_, (string,), bits=13)
        if choice < 0.88 and type_ == "int4":
            return Expr("({0})::integer", type_, (self.condition(depth),), bits=1)
        if choice < 0.92 and type_ == "int4" and "date" in self.by_type:
            days = [Expr(self.rng.choice(self.by_type["date"]).name, "date") for _ in range(2)]
            if self.dares():
                return Expr("({0} - {1})", type_, tuple(days), bits=24)
            finite = "isfinite({0}) AND isfinite({1})"
            return Expr(f"CASE WHEN {finite} THEN {{0}} - {{1}} END", type_, tuple(days), bits=24)
        if choice < 0.95 and type_ == "int8":
            return Expr("({0})::bigint", type_, (self.leaf("oid"),), bits=33)
        if choice < 0.98 and type_ == "int4" and "ints" in self.by_type:
            return Expr(
                "({0})[{1}]", type_, (self.leaf("ints"), self.literal("int4", "1")), bits=31
            )
        operator = self.rng.choice(("&", "|", "#"))
        left, right = self.value(type_, depth), self.leaf(type_)
        return Expr(
            f"({{0}} {operator} {{1}})", type_, (left, right), bits=max(left.bits, right.bits)
        )

    def integer_arithmetic(self, type_: str, depth: int) -> Expr:
        most = INTS[type_]
        others = {"int2": ("int2",), "int4": ("int2", "int4"), "int8": ("int2", "int4", "int8")}
        left = self.value(type_, depth)
        right = self.value(self.rng.choice(others[type_]), depth - 1)
        if self.chance(0.5):
            left, right = right, left
        operator = self.rng.choice("++--**/%")
        if operator in "/%":
            divisor = self.rng.choice(("{1}", "NULLIF({1}, 0)"))
            if divisor == "{1}" and not self.dares():
                right = self.literal(right.type, self.rng.choice(("7", "2", "-3", "100")))
            if left.bits >= most and not self.dares():
                left = self.remainder(left)
            return Expr(f"({{0}} {operator} {divisor})", type_, (left, right), bits=left.bits)
        for _ in range(2):
            bits = left.bits + right.bits if operator == "*" else max(left.bits, right.bits) + 1
            if bits <= most or self.dares():
                break
            if left.bits >= right.bits:
                left = self.remainder(left)
            else:
                right = self.remainder(right)
        else:
            return left if left.type == type_ else self.cast_integer(left, type_)
        return Expr(f"({{0}} {operator} {{1}})", type_, (left, right), bits=min(bits, most))

    def remainder(self, operand: Expr) -> Expr:
        modulus, bits = self.rng.choice(((100, 7), (9, 4), (1000, 10)))
        if operand.type == "int2":
            modulus, bits = 10, 4
        divisor = self.literal(operand.type, str(modulus))
        return Expr("({0} % {1})", operand.type, (operand, divisor), bits=bits)

    def cast_integer(self, operand: Expr, type_: str) -> Expr:
        if operand.bits > INTS[type_] and not self.dares():
            operand = self.remainder(operand)
        return Expr(
            f"({{0}})::{TYPES[type_]}", type_, (operand,), bits=min(operand.bits, INTS[type_])
        )

    def numeric(self, type_: str, depth: int) -> Expr:
        choice = self.rng.random()
        if choice < 0.45:
            operator = self.rng.choice("+-*")
            left = self.value("numeric", depth)
            right = self.value(
                self.rng.choice(("numeric", "numeric", "int4", "int8", "int2")), depth - 1
            )
            scales = [0 if e.type in INTS else e.scale for e in (left, right)]
            if self.chance(0.3):
                left, right = right, left
            if min(scales) == NO_SCALE:
                scale = NO_SCALE
            else:
                scale = sum(scales) if operator == "*" else max(scales)
            return Expr(f"({{0}} {operator} {{1}})", type_, (left, right), scale=scale)
        if choice < 0.53:
            operand = self.value("numeric", depth)
            return Expr(
                self.rng.choice(("(- {0})", "abs({0})")), type_, (operand,), scale=operand.scale
            )
        if choice < 0.63:
            digits = self.rng.choice((0, 1, 2, 4, 9, -1))
            places = self.literal("int4", str(digits))
            return Expr(
                "round({0}, {1})",
                type_,
                (self.value("numeric", depth), places),
                scale=max(digits, 0),
            )
        if choice < 0.7:
            title, scale = self.rng.choice(
                (("numeric(60, 2)", 2), ("numeric(50, 0)", 0), ("numeric(70, 6)", 6))
            )
            if self.dares():
                title, scale = "numeric(9, 3)", 3
            elif not self.chance(0.5):
                return Expr(f"(({{0}})::bigint)::{title}", type_, (self.leaf("int4"),), scale=scale)
            # infinite values have no numeric(p, s), nor have such beyond 10^44
            tame = "CASE WHEN abs({0}) < 1e40 THEN {0} END" if not self.daring else "{0}"
            return Expr(f"({tame})::{title}", type_, (self.value("numeric", depth),), scale=scale)
        if choice < 0.82:
            return Expr(
                "({0})::numeric", type_, (self.value(self.rng.choice(list(INTS)), depth),), scale=0
            )
        if choice < 0.95:
            moment = self.value(self.rng.choice(MOMENTS), depth)
            fields = FIELDS[:12] if moment.type == "date" else FIELDS
            name = self.rng.choice(fields)
            return Expr(f"extract({name} FROM {{0}})", type_, (moment,))
        divisor = self.literal("numeric", self.rng.choice(("3", "0.7", "-11.00")))
        return Expr(
            self.rng.choice(("({0} / {1})", "({0} % {1})")), type_, (self.leaf("numeric"), divisor)
        )

    def float(self, type_: str, depth: int) -> Expr:
        title = TYPES[type_]
        choice = self.rng.random()
        if choice < 0.5:
            operator = self.rng.choice("++--**/")
            left, right = self.leaf(type_), self.value(type_, depth)
            if type_ == "float8" and self.chance(0.25):
                right = self.value("float4", depth)
            if operator == "*" and not self.daring:
                right = self.literal(type_, self.rng.choice(("'2'", "'0.5'", "'-1.1'", "'1e3'")))
            if operator == "/" and not self.dares():
                return Expr(
                    "({0} / {1})",
                    type_,
                    (left, self.literal(type_, self.rng.choice(("'3'", "'0.7'", "'-16'")))),
                )
            if self.chance(0.5) and operator != "/":
                left, right = right, left
            return Expr(f"({{0}} {operator} {{1}})", type_, (left, right))
        if choice < 0.65:
            return Expr(
                self.rng.choice(("(- {0})", "abs({0})")), type_, (self.value(type_, depth),)
            )
        if choice < 0.9 or type_ == "float4":
            source = self.rng.choice((*INTS, "float4" if type_ == "float8" else "int4"))
            return Expr(f"({{0}})::{title}", type_, (self.value(source, depth),))
        if self.chance(0.5):
            return Expr("({0})::double precision", type_, (self.numeric_of_table(),))
        name = self.rng.choice(("year", "month", "hour", "epoch"))
        moment = self.value(self.rng.choice(MOMENTS[1:]), depth)
        return Expr(f"date_part('{name}', {{0}})", type_, (moment,))

    def numeric_of_table(self) -> Expr:
        """One that has a float8: 1e500 has none."""
        columns = [c for c in self.by_type.get("numeric", ()) if c.scale != NO_SCALE]
        if not columns:
            return Expr("({0})::numeric", "numeric", (self.leaf("int4"),), scale=0)
        column = self.rng.choice(columns)
        return Expr(column.name, "numeric", scale=column.scale)

    def moment(self, type_: str, depth: int) -> Expr:
        title = TYPES[type_]
        choice = self.rng.random()
        if choice < 0.35:
            source = self.rng.choice([t for t in MOMENTS if t != type_])
            return Expr(f"({{0}})::{title}", type_, (self.value(source, depth),))
        if type_ == "date":
            days = self.value(self.rng.choice(("int2", "int4")), depth)
            if days.bits > 16 and not self.dares():
                days = self.remainder(days)
            sign = self.rng.choice("+-")
            if days.type == "int2":
                days = Expr("({0})::integer", "int4", (days,), bits=days.bits)
            return Expr(f"({{0}} {sign} {{1}})", type_, (self.leaf("date"), days))
        if choice < 0.6:
            source = type_ if type_ == "timestamptz" or self.chance(0.6) else "date"
            step = self.literal("interval") if self.chance(0.8) else self.leaf("interval")
            sign = self.rng.choice("+-")
            return Expr(f"({{0}} {sign} {{1}})", type_, (self.leaf(source), step))
        if choice < 0.9:
            unit = self.rng.choice(UNITS)
            return Expr(f"date_trunc('{unit}', {{0}})", type_, (self.value(type_, depth),))
        if type_ == "timestamptz" and self.chance(0.5):
            return Expr("date_trunc('month', {0})", type_, (self.leaf("date"),))
        zone = Expr("'Asia/Kolkata'::text", "text")
        source = "timestamp" if type_ == "timestamptz" else "timestamptz"
        return Expr("({0} AT TIME ZONE {1})", type_, (self.leaf(source), zone))

    def interval(self, type_: str, depth: int) -> Expr:
        choice = self.rng.random()
        if choice < 0.5:
            sign = self.rng.choice("+-")
            return Expr(f"({{0}} {sign} {{1}})", type_, (self.leaf(type_), self.literal(type_)))
        if choice < 0.7:
            small = self.literal("int4", self.rng.choice(("2", "-1", "0")))
            return Expr("({0} * {1})", type_, (self.leaf(type_), small))
        moments = tuple(self.leaf("timestamp") for _ in range(2))
        if self.dares():
            return Expr("({0} - {1})", type_, moments)
        finite = "isfinite({0}) AND isfinite({1})"
        return Expr(f"CASE WHEN {finite} THEN {{0}} - {{1}} END", type_, moments)

    def text(self, type_: str, depth: int) -> Expr:
        operand = self.value(type_, depth)
        choice = self.rng.random()
        start = self.literal("int4", self.rng.choice(("1", "2", "5", "-1", "0")))
        length = self.literal("int4", self.rng.choice(("0", "1", "2", "3", "9")))
        if self.dares():
            length = self.leaf("int4")
        elif self.chance(0.2):
            length = Expr("({0} % {1})", "int4", (self.leaf("int4"), self.literal("int4", "5")))
            length = Expr("abs({0})", "int4", (length,), bits=3)
        if choice < 0.2:
            return Expr("substring({0} FROM {1} FOR {2})", type_, (operand, start, length))
        if choice < 0.28:
            return Expr("substring({0}, {1})", type_, (operand, start))
        if choice < 0.4:
            return Expr("left({0}, {1})", type_, (operand, length))
        if choice < 0.5:
            return Expr(
                self.rng.choice(("upper({0})", "lower({0})", "trim({0})", "md5({0})")),
                type_,
                (operand,),
            )
        if choice < 0.62:
            return Expr(
                "({0} || {1})",
                type_,
                (operand, self.literal(type_, self.rng.choice(("'x'", "''", "' é'")))),
            )
        if choice < 0.8:
            source = self.rng.choice(("varchar", "bpchar"))
            return self.collate(Expr("({0})::text", "text", (self.value(source, depth),)), type_)
        if choice < 0.9:
            source = self.rng.choice(
                ("int4", "int8", "numeric", "date", "bool", "uuid", "enum", "timestamp")
            )
            return self.collate(Expr("({0})::text", "text", (self.leaf(source),)), type_)
        if type_ == "text":
            return Expr("({0} ->> 'k')", type_, (self.leaf("jsonb"),))
        return self.collate(self.value("text", depth), type_)

    def collate(self, operand: Expr, type_: str) -> Expr:
        if type_ not in COLLATIONS:
            return operand
        return Expr(f"({{0}} COLLATE {COLLATIONS[type_]})", type_, (operand,))

    def other(self, type_: str, depth: int) -> Expr:
        templates = {
            "varchar": ("({0})::varchar(20)", "text"),
            "bpchar": ("({0})::char(8)", "text"),
            "bytea": ("({0} || {0})", "bytea"),
            "ints": ("({0} || 5)", "ints"),
            "texts": ("({0} || 'z'::text)", "texts"),
            "time": ("({0})::time", "timestamp"),
            "oid": ("({0})::oid", "oid"),
            "jsonb": ("({0} -> 'k')", "jsonb"),
        }
        if type_ not in templates or self.chance(0.4):
            return self.leaf(type_)
        template, source = templates[type_]
        return Expr(template, type_, (self.value(source, depth),))

    # ---- conditions -----------------------------------------------------------------------------

    def condition(self, depth: int = 2) -> Expr:
        choice = self.rng.random()
        if depth > 0 and choice < 0.28:
            word = self.rng.choice((" AND ", " OR "))
            parts = [self.condition(depth - 1) for _ in range(self.rng.choice((2, 2, 3)))]
            return boolean("(" + word.join(f"{{{n}}}" for n in range(len(parts))) + ")", *parts)
        if depth > 0 and choice < 0.34:
            return boolean("(NOT {0})", self.condition(depth - 1))
        if depth > 0 and choice < 0.42:
            test = self.rng.choice(
                ("TRUE", "FALSE", "UNKNOWN", "NOT TRUE", "NOT FALSE", "NOT UNKNOWN")
            )
            return boolean(f"({{0}} IS {test})", self.condition(depth - 1))
        if depth > 0 and choice < 0.48:
            return self.choice("bool", depth - 1)
        if choice < 0.5:
            return boolean("({0} IS NULL)", self.value(self.any_type(), depth))
        if choice < 0.53:
            return boolean("({0} IS NOT NULL)", self.value(self.any_type(), depth))
        if choice < 0.56:
            return self.leaf("bool")
        if choice < 0.64:
            return self.member(depth)
        if choice < 0.7:
            return self.between(depth)
        if choice < 0.74:
            type_ = self.any_type()
            word = self.rng.choice(("DISTINCT", "NOT DISTINCT"))
            return boolean(
                f"({{0}} IS {word} FROM {{1}})", self.value(type_, depth), self.leaf(type_)
            )
        if choice < 0.82:
            return self.pattern(depth)
        if choice < 0.84:
            return self.structured()
        return self.comparison(depth)

    def comparison(self, depth: int) -> Expr:
        operator = self.rng.choice(ORDERS)
        type_ = self.any_type()
        left = self.value(type_, depth)
        if self.chance(0.6):
            right = self.literal(type_)
        elif self.chance(0.3):
            right = self.value(self.comparable(type_), depth - 1)
        else:
            right = self.value(type_, depth - 1)
        if self.chance(0.25):
            left, right = right, left
        return boolean(f"({{0}} {operator} {{1}})", left, right)

    def comparable(self, type_: str) -> str:
        """A type that the type can be compared with."""
        for family in (NUMBERS, MOMENTS):
            if type_ in family:
                return self.rng.choice(family)
        return {"varchar": "text", "bpchar": "bpchar"}.get(type_, type_)

    def member(self, depth: int) -> Expr:
        type_ = self.any_type()
        count = self.rng.choice((1, 2, 3, 5, 9, 12, 30))
        values = [self.literal(type_) for _ in range(count)]
        if self.chance(0.15):
            values[self.rng.randrange(count)] = self.null(type_)
        operand = self.value(type_, depth)
        names = ", ".join(f"{{{n + 1}}}" for n in range(count))
        form = self.rng.choice(
            (
                "IN ({})",
                "NOT IN ({})",
                "= ANY (ARRAY[{}])",
                "<> ALL (ARRAY[{}])",
                "< ANY (ARRAY[{}])",
            )
        )
        if type_ in ("ints", "texts", "jsonb"):
            form = "IN ({})"
        return boolean(f"({{0}} {form.format(names)})", operand, *values)

    def between(self, depth: int) -> Expr:
        type_ = self.any_type()
        word = self.rng.choice(("BETWEEN", "BETWEEN", "NOT BETWEEN", "BETWEEN SYMMETRIC"))
        return boolean(
            f"({{0}} {word} {{1}} AND {{2}})",
            self.value(type_, depth),
            self.literal(type_),
            self.literal(type_),
        )

    def pattern(self, depth: int) -> Expr:
        strings = [t for t in STRINGS if t in self.by_type]
        if not strings:
            return self.comparison(depth)
        type_ = self.rng.choice(strings)
        operand = self.value(type_, depth)
        choice = self.rng.random()
        if choice < 0.75:
            word = self.rng.choice(("LIKE", "LIKE", "NOT LIKE", "ILIKE"))
            # literals of char(n) are such without blanks, as patterns have to be
            pattern = self.literal("text", f"'{self.rng.choice(PATTERNS)}'")
            return boolean(f"({{0}} {word} {{1}})", operand, pattern)
        if choice < 0.9 and type_ in TEXTS:
            return boolean("starts_with({0}, {1})", operand, self.literal(type_))
        return boolean("({0} ~ {1})", operand, self.literal("text", "'^[a-f0-9]+'"))

    def structured(self) -> Expr:
        choices = []
        if "jsonb" in self.by_type:
            choices.append(
                boolean("({0} @> {1})", self.leaf("jsonb"), self.literal("jsonb", """'{"k": 1}'"""))
            )
        if "ints" in self.by_type:
            choices.append(boolean("({0} = ANY ({1}))", self.leaf("int4"), self.leaf("ints")))
        left, right = self.any_type(), self.any_type()
        choices.append(
            boolean(
                "(({0}, {1}) <= ({2}, {3}))",
                self.leaf(left),
                self.leaf(right),
                self.literal(left),
                self.literal(right),
            )
        )
        return self.rng.choice(choices)


def boolean(template: str, *args: Expr) -> Expr:
    return Expr(template, "bool", args)


def common_scale(values: Sequence[Expr]) -> int:
    scales = {value.scale for value in values}
    return scales.pop() if len(scales) == 1 else NO_SCALE


def scale_of(value: str) -> int:
    """Of a literal; scientific and special ones have none."""
    digits = value.strip("'").lstrip("-")
    whole, _, fraction = digits.partition(".")
    return len(fraction) if (whole + fraction).isdigit() else NO_SCALE


# literals beside the table's own values
EDGES: dict[str, tuple[str, ...]] = {
    "int2": ("'0'", "'3'", "'-32768'", "'32767'"),
    "int4": ("'0'", "'42'", "'-1'", "'2147483647'", "'-2147483648'"),
    "int8": ("'0'", "'42'", "'-1'", "'9223372036854775807'", "'-9223372036854775808'", "'3000000000'"),
    "oid": ("'0'", "'4294967295'", "'2147483648'", "'1259'"),
    "numeric": ("'0'", "'0.00'", "'9.99'", "'-1.5'", "'9999999999.99'", "'NaN'", "'Infinity'", "'-Infinity'", "'1e40'", "'123456789012345678901234567890.5'", "'0.0000000001'"),
    "float4": ("'0'", "'-0'", "'NaN'", "'0.1'", "'25.25'", "'-Infinity'"),
    "float8": ("'0'", "'-0'", "'NaN'", "'2.5'", "'Infinity'", "'12.34'", "'1e300'"),
    "date": ("'2020-06-01'", "'infinity'", "'-infinity'", "'1970-01-01'", "'2024-02-29'"),
    "timestamp": ("'2024-01-01 00:20'", "'-infinity'", "'infinity'", "'2020-03-29 02:30'", "'1969-12-31 23:59:59.999999'"),
    "timestamptz": ("'2024-01-01 00:20+00'", "'1990-01-01 00:00+00'", "'infinity'", "'2020-03-29 01:30+00'"),
    "time": ("'12:00'", "'00:00'", "'24:00'", "'23:59:59.999999'"),
    "interval": ("'5 h'", "'0'", "'30 days'", "'1 mon'", "'-1 day 2 h'", "'1 year 3 days 00:00:01.5'"),
    "bool": ("true", "false"),
    "text": ("''", "'red'", "'m'", "'Z'", "'group 2'", "'ä'"),
    "textc": ("''", "'b'", "'B'", "'ä'", "'8'"),
    "texti": ("''", "'b'", "'B'", "'ä'", "'a-b'"),
    "varchar": ("''", "'name 7'", "'name 7 '"),
    "bpchar": ("''", "'c7'", "'c7  '", "'x'"),
    "uuid": ("'c4ca4238-a0b9-2382-0dcc-509a6f75849b'", "'00000000-0000-0000-0000-000000000000'"),
    "bytea": (r"'\x00'", "''", r"'\xff00'"),
    "enum": ("'sad'", "'ok'", "'happy'"),
    "jsonb": ("""'{"k": 1}'""", "'1'", "'null'"),
    "ints": ("'{1,2}'", "'{}'", "'{NULL}'"),
    "texts": ("'{t1}'", "'{}'"),
}  # fmt: skip
