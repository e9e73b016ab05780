"""Queries as other roles: policies, column privileges, and views that read as their owner.

The tables are those of schema.py, whose superuser sees all.  The tenant may read everything, but
policies choose his rows; the clerk may not read some columns; views of the keeper, who has policies
of his own, stand beside the tables under the same names.
"""

from __future__ import annotations

import random
import re

from .schema import SCHEMA, TABLES

VIEWS = "fuzz_view"
TENANT, CLERK, KEEPER = "fuzz_tenant", "fuzz_clerk", "fuzz_keeper"
ROLES = (TENANT, CLERK, KEEPER)

VISIBLE = {
    CLERK: {
        "d1": "id, k, a, b, t",
        "d3": "id, k, a, b, n",
        "r1": "id, k, t, a",
    }
}

POLICIES = f"""
CREATE POLICY tenant ON {SCHEMA}.d1 TO {TENANT} USING (a % 2 = 0 OR t = 'a');
CREATE POLICY tenant ON {SCHEMA}.d2 TO {TENANT}
    USING (EXISTS (SELECT FROM {SCHEMA}.d1 AS m WHERE m.k = d2.k AND m.b < 40));
CREATE POLICY tenant ON {SCHEMA}.d3 TO {TENANT} USING (true);
CREATE POLICY narrow ON {SCHEMA}.d3 AS RESTRICTIVE TO {TENANT} USING (b < 45 AND length(current_user) > 3);
CREATE POLICY tenant ON {SCHEMA}.d4 TO {TENANT} USING (t IN (SELECT r.t FROM {SCHEMA}.r1 AS r));
CREATE POLICY tenant ON {SCHEMA}.r1 TO {TENANT} USING (a IS DISTINCT FROM 3);
CREATE POLICY tenant ON {SCHEMA}.r2 TO {TENANT} USING (id > (SELECT min(l.id) FROM {SCHEMA}.l1 AS l));
CREATE POLICY tenant ON {SCHEMA}.l1 TO {TENANT} USING (b <> 7);
CREATE POLICY clerk ON {SCHEMA}.d2 TO {CLERK} USING (k IS NOT NULL);
CREATE POLICY keeper ON {SCHEMA}.d1 TO {KEEPER} USING (b < 50);
CREATE POLICY keeper ON {SCHEMA}.r1 TO {KEEPER} USING (id <> 4)
"""

TABLE_NAME = re.compile(rf"\b{SCHEMA}\.({'|'.join(table.name for table in TABLES)})\b")


def view_sql(number: int, table: str) -> str:
    """Ordinary views, security barriers and views that read as their reader, in turn."""
    options = ("", " WITH (security_barrier)", " WITH (security_invoker)")[number % 3]
    condition = (
        "WHERE b IS NULL OR b < 55",
        "WHERE a <> 5 OR a IS NULL",
        "",
    )[(number // 2) % 3]
    return f"CREATE VIEW {VIEWS}.{table}{options} AS SELECT * FROM {SCHEMA}.{table} {condition}"


def create_sql(distributed: bool) -> list[str]:
    """What is added to schema.py's tables; the roles exist."""
    everybody = ", ".join(ROLES)
    statements = [
        f"DROP SCHEMA IF EXISTS {VIEWS} CASCADE",
        f"CREATE SCHEMA {VIEWS}",
        f"GRANT USAGE ON SCHEMA {SCHEMA}, {VIEWS} TO {everybody}",
        f"GRANT SELECT, UPDATE ON ALL TABLES IN SCHEMA {SCHEMA} TO {TENANT}, {KEEPER}",
    ]
    for number, table in enumerate(TABLES):
        name = f"{SCHEMA}.{table.name}"
        columns = VISIBLE[CLERK].get(table.name)
        statements += [
            f"GRANT SELECT{f' ({columns})' if columns else ''} ON {name} TO {CLERK}",
            view_sql(number, table.name),
            f"ALTER VIEW {VIEWS}.{table.name} OWNER TO {KEEPER}",
        ]
    statements += [statement.strip() for statement in POLICIES.split(";\n")]
    protected = dict.fromkeys(re.findall(r" ON (\S+)(?: AS RESTRICTIVE)? TO ", POLICIES))
    statements += [f"ALTER TABLE {name} ENABLE ROW LEVEL SECURITY" for name in protected]
    for name in protected:  # whom no policy names shall see something all the same
        statements.append(
            f"CREATE POLICY others ON {name} TO {KEEPER}, {CLERK} USING (id % 11 > 0)"
        )
    statements.append(f"GRANT SELECT ON ALL TABLES IN SCHEMA {VIEWS} TO {TENANT}, {CLERK}")
    return statements


def drop_sql() -> list[str]:
    return [
        f"DROP SCHEMA IF EXISTS {VIEWS} CASCADE",
        *(f"DROP OWNED BY {role}" for role in ROLES),
    ]


def choose(seed: int | str, statements: list[str]) -> tuple[str, list[str]]:
    """A role, and the statements with views in the place of some tables."""
    rng = random.Random(f"roles {seed}")
    role = rng.choices(ROLES, (6, 2, 1))[0]
    share = rng.choice((0, 0, 0.3, 0.7))

    def place(match: re.Match) -> str:
        return f"{VIEWS}.{match[1]}" if rng.random() < share else match[0]

    return role, [TABLE_NAME.sub(place, statement) for statement in statements]
