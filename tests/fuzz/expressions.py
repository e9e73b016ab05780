"""Random expressions over columns that a level of a query can see: the part of generator.py below SELECT."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from .schema import SCHEMA

INT, BIG, NUM, FLOAT, TEXT, DATE, BOOL = (
    "integer",
    "bigint",
    "numeric",
    "double precision",
    "text",
    "date",
    "boolean",
)


@dataclass
class Source:
    """Something in FROM: alias and typed columns."""

    alias: str
    columns: dict[str, str]
    table: str | None = None

    def refs(self, type_: str | None = None) -> list[str]:
        return [f"{self.alias}.{c}" for c, t in self.columns.items() if type_ is None or t == type_]


@dataclass
class Scope:
    """What a level of the query can see: its own sources and the scope around it."""

    sources: list[Source] = field(default_factory=list)
    outer: Scope | None = None

    def refs(self, type_: str | None = None) -> list[str]:
        return [ref for source in self.sources for ref in source.refs(type_)]


class Expressions:
    """Choices, and the expressions that need no query of their own."""

    def __init__(self, seed: int | str):
        self.rng = random.Random(f"query {seed}")
        self.aliases = 0
        self.param_types: list[str] = []
        self.param_values: list[str] = []
        self.features: set[str] = set()
        self.with_params = self.chance(0.25)

    # ---------------------------------------------------------------- choices

    def chance(self, probability: float) -> bool:
        return self.rng.random() < probability

    def alias(self, prefix: str) -> str:
        self.aliases += 1
        return f"{prefix}{self.aliases}"

    def use(self, feature: str) -> None:
        self.features.add(feature)

    # ------------------------------------------------------------ expressions

    def literal(self, type_: str) -> str:
        rng = self.rng
        return {
            INT: lambda: str(rng.choice([rng.randrange(-2, 12), rng.randrange(0, 60)])),
            BIG: lambda: str(rng.randrange(-2, 40)) + "::bigint",
            NUM: lambda: f"{rng.randrange(-300, 300) / 10:.2f}",
            FLOAT: lambda: f"{rng.randrange(-40, 40) / 4}::float8",
            TEXT: lambda: "'" + rng.choice(["", "a", "b", "ab", "zz", "a1", "c3", "f2"]) + "'",
            DATE: lambda: f"DATE '2024-{rng.randrange(1, 13):02d}-15'",
            BOOL: lambda: rng.choice(["true", "false"]),
        }[type_]()

    def constant(self, type_: str) -> str:
        """A literal, or in a parametrised query sometimes a parameter."""
        value = self.literal(type_)
        if type_ == TEXT:
            value += "::text"
        if not (self.with_params and self.chance(0.5)):
            return value
        self.use("parameter")
        self.param_types.append(type_)
        self.param_values.append(value if self.chance(0.95) else "NULL")
        return f"${len(self.param_types)}"

    def column(self, scope: Scope, type_: str) -> str | None:
        """A column of the type; rarely one of the query around (correlation)."""
        if scope.outer and self.chance(0.25):
            refs = scope.outer.refs(type_)
            if refs:
                self.use("correlated")
                return self.rng.choice(refs)
        refs = scope.refs(type_)
        return self.rng.choice(refs) if refs else None

    def expr(self, scope: Scope, type_: str, depth: int = 2) -> str:
        column = self.column(scope, type_)
        if depth <= 0 or self.chance(0.45):
            return column if column and self.chance(0.85) else self.constant(type_)
        choice = self.rng.random()
        if choice < 0.08:
            return f"coalesce({self.expr(scope, type_, depth - 1)}, {self.constant(type_)})"
        if choice < 0.14:
            self.use("case")
            return (
                f"CASE WHEN {self.predicate(scope, depth - 1)} THEN {self.expr(scope, type_, depth - 1)}"
                f" ELSE {self.expr(scope, type_, depth - 1)} END"
            )
        if choice < 0.17:
            return f"nullif({self.expr(scope, type_, depth - 1)}, {self.constant(type_)})"
        if choice < 0.24 and type_ in (NUM, TEXT, INT):
            self.use("cast")
            return self.cast(scope, type_, depth - 1)
        return self.compound(scope, type_, depth)

    def cast(self, scope: Scope, type_: str, depth: int) -> str:
        """A cast around a cast: by a domain, a modifier, or a function that is inlined."""

        def sub(t: str) -> str:
            return self.expr(scope, t, depth)

        return self.rng.choice(
            {
                NUM: [
                    lambda: f"({sub(NUM)})::{SCHEMA}.whole",
                    lambda: f"({sub(NUM)})::numeric(20, 1)::numeric",
                    lambda: f"{SCHEMA}.rounded({sub(NUM)})",
                    lambda: f"({sub(FLOAT)})::real::numeric",
                ],
                TEXT: [
                    lambda: f"({sub(TEXT)})::{SCHEMA}.two_letters::text",
                    lambda: f"({sub(TEXT)})::char(3)::text",
                    lambda: f"{SCHEMA}.first_two({sub(TEXT)})",
                    lambda: f"{SCHEMA}.as_text(({sub(FLOAT)})::real / 3)",
                    lambda: f"{SCHEMA}.as_text({sub(INT)})",
                    lambda: f"(({sub(NUM)})::{SCHEMA}.whole)::text",
                ],
                INT: [
                    lambda: f"length(({sub(TEXT)})::varchar(2)::char(2) || 'x')",
                    lambda: f"(to_jsonb(row({sub(INT)}, 1))->>'f1')::numeric::integer",
                ],
            }[type_]
        )()

    def compound(self, scope: Scope, type_: str, depth: int) -> str:
        """An operator or function that yields the type."""

        def sub(t: str) -> str:
            return self.expr(scope, t, depth - 1)

        rng = self.rng
        if type_ == INT:
            return rng.choice(
                [
                    lambda: f"({sub(INT)} + {sub(INT)})",
                    lambda: f"({sub(INT)} - {self.constant(INT)})",
                    lambda: f"({self.column(scope, INT) or '7'} * {rng.randrange(2, 5)})",
                    lambda: f"({sub(INT)} % nullif({self.constant(INT)}, 0))",
                    lambda: f"length({sub(TEXT)})",
                    lambda: f"abs({sub(INT)})",
                    lambda: f"extract(month FROM {sub(DATE)})::integer",
                    lambda: f"greatest({sub(INT)}, {sub(INT)})",
                ]
            )()
        if type_ == BIG:
            return f"({sub(BIG)} + {sub(INT)})"
        if type_ == NUM:
            return rng.choice(
                [
                    lambda: f"({sub(NUM)} + {sub(INT)})",
                    lambda: f"round({sub(NUM)} * 1.5, 2)",
                    lambda: f"round({sub(NUM)} / nullif({self.constant(NUM)}, 0), 2)",
                    lambda: f"least({sub(NUM)}, {sub(NUM)})",
                ]
            )()
        if type_ == FLOAT:
            return rng.choice(
                [
                    lambda: f"({sub(FLOAT)} + {sub(INT)})",
                    lambda: f"({sub(FLOAT)} * 2)",
                    lambda: f"abs({sub(FLOAT)})",
                ]
            )()
        if type_ == TEXT:
            return rng.choice(
                [
                    lambda: f"({sub(TEXT)} || {sub(TEXT)})",
                    lambda: f"upper({sub(TEXT)})",
                    lambda: f"substr({sub(TEXT)}, 1, 1)",
                    lambda: f"({sub(INT)})::text",
                    lambda: f"to_char({sub(DATE)}, 'MM')",
                ]
            )()
        if type_ == DATE:
            return f"({sub(DATE)} + {self.rng.randrange(-40, 40)})"
        return f"({self.predicate(scope, depth - 1)})"

    def predicate(self, scope: Scope, depth: int = 2) -> str:
        rng = self.rng
        if depth > 0 and self.chance(0.3):
            left, right = self.predicate(scope, depth - 1), self.predicate(scope, depth - 1)
            return f"({left} {rng.choice(['AND', 'OR'])} {right})"
        if depth > 0 and self.chance(0.07):
            return f"NOT ({self.predicate(scope, depth - 1)})"
        types = [t for t in (INT, INT, BIG, NUM, FLOAT, TEXT, TEXT, DATE) if scope.refs(t)]
        type_ = rng.choice(types or [INT])
        left = self.column(scope, type_) or self.constant(type_)
        choice = rng.random()
        if choice < 0.12:
            return f"{left} IS {rng.choice(['', 'NOT '])}NULL"
        if choice < 0.2:
            return (
                f"{left} IN ({', '.join(self.constant(type_) for _ in range(rng.randrange(1, 4)))})"
            )
        if choice < 0.26:
            return f"{left} BETWEEN {self.constant(type_)} AND {self.constant(type_)}"
        if choice < 0.31 and type_ == TEXT:
            return f"{left} LIKE '{rng.choice(['a%', '%b', '_', '%', 'z_'])}'"
        if choice < 0.35:
            return f"{left} IS {rng.choice(['', 'NOT '])}DISTINCT FROM {self.expr(scope, type_, depth - 1)}"
        if choice < 0.39:
            return f"{left} = ANY (ARRAY[{self.constant(type_)}, {self.constant(type_)}])"
        operator = rng.choice(["=", "<", ">", "<=", ">=", "<>", ">", "<="])
        right = self.expr(scope, type_, depth - 1)
        return f"{left} {operator} {right if right != left else self.constant(type_)}"
