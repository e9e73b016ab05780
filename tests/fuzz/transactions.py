"""Random transactions: writes, savepoints, rollbacks and reads, run alike on the cluster and on a plain server.

A script is a list of statements.  After every one the driver compares what came back: rows, row counts, SQLSTATE.
Statements may fail (duplicate keys, violated checks, division by zero): the transaction is then aborted on both
sides until a ROLLBACK TO or the end of the script's transaction.
"""

from __future__ import annotations

import random

from .schema import split_sql

SCHEMA = "fuzz_tx"

# m1 and m2 are colocated, m3 is hashed by a text key, mt has triggers, mr is a reference table, ml is local; so are mc and md,
# which refer to mp.
TABLES = {
    "m1": "id integer, k integer, v integer CHECK (v < 1000), t text, PRIMARY KEY (k, id)",
    "m2": "id integer, k integer, v integer, t text, PRIMARY KEY (k, id)",
    "m3": "id integer, k text, v integer NOT NULL, t text DEFAULT 'none', PRIMARY KEY (k, id)",
    "mt": "id integer, k integer, v integer, t text, PRIMARY KEY (k, id)",
    "mr": "id integer PRIMARY KEY, k integer, v integer, t text",
    "ml": "id integer PRIMARY KEY, k integer, v integer, t text",
    "mp": "id integer PRIMARY KEY, k integer, v integer, t text",
    "mc": f"id integer PRIMARY KEY, k integer REFERENCES {SCHEMA}.mp ON DELETE CASCADE ON UPDATE CASCADE, v integer, t text",
    "md": f"id integer PRIMARY KEY, k integer REFERENCES {SCHEMA}.mp DEFERRABLE INITIALLY DEFERRED, v integer, t text",
}

DISTRIBUTE = (
    f"SELECT strata.create_distributed_table('{SCHEMA}.m1', 'k', shard_count => 8, colocate_with => 'none')",
    f"SELECT strata.create_distributed_table('{SCHEMA}.m2', 'k', colocate_with => '{SCHEMA}.m1')",
    f"SELECT strata.create_distributed_table('{SCHEMA}.m3', 'k', shard_count => 8, colocate_with => 'none')",
    f"SELECT strata.create_distributed_table('{SCHEMA}.mt', 'k', colocate_with => '{SCHEMA}.m1')",
    f"SELECT strata.create_distributed_table('{SCHEMA}.mp', 'id', shard_count => 8, colocate_with => 'none')",
    f"SELECT strata.create_reference_table('{SCHEMA}.mr', storage => 'columnar')",
)

# A volatile function, and triggers that change rows, leave rows as they are, and write elsewhere.
CODE = (
    f"CREATE FUNCTION {SCHEMA}.same(integer) RETURNS integer LANGUAGE plpgsql AS 'BEGIN RETURN $1; END'",
    f"""CREATE FUNCTION {SCHEMA}.before() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            IF OLD.id % 5 = 0 THEN RETURN NULL; END IF;
            IF TG_OP = 'DELETE' THEN RETURN OLD; END IF;
            NEW.t := OLD.t || 'b';
            RETURN NEW;
        END $$""",
    f"""CREATE FUNCTION {SCHEMA}.after() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            UPDATE {SCHEMA}.ml SET v = v + 1 WHERE id = OLD.id;
            RETURN NULL;
        END $$""",
    f"CREATE TRIGGER a BEFORE UPDATE OR DELETE ON {SCHEMA}.mt FOR EACH ROW EXECUTE FUNCTION {SCHEMA}.before()",
    f"CREATE TRIGGER b AFTER UPDATE OR DELETE ON {SCHEMA}.mt FOR EACH ROW EXECUTE FUNCTION {SCHEMA}.after()",
)


def create_sql(distributed: bool) -> list[str]:
    statements = [f"DROP SCHEMA IF EXISTS {SCHEMA} CASCADE", f"CREATE SCHEMA {SCHEMA}"]
    statements += [f"CREATE TABLE {SCHEMA}.{name} ({columns})" for name, columns in TABLES.items()]
    if distributed:
        statements += [*DISTRIBUTE, *split_sql(f"{SCHEMA}.m1"), *split_sql(f"{SCHEMA}.mp")]
    return [*statements, *CODE]


def reset_sql() -> list[str]:
    """Bring the tables to the state in which every script starts."""
    statements = [f"TRUNCATE {', '.join(f'{SCHEMA}.{name}' for name in TABLES)}"]
    for name in TABLES:
        key = {"m3": "'k' || g % 7", "mc": "1 + g % 7", "md": "g % 7 + 8"}.get(name, "g % 7")
        statements.append(
            f"INSERT INTO {SCHEMA}.{name} SELECT g, {key}, g * 3 % 50, 't' || g % 4 FROM generate_series(1, 30) AS g"
        )
    return statements


def state_sql() -> list[str]:
    """Queries that together show every row."""
    return [f"SELECT * FROM {SCHEMA}.{name} ORDER BY id, k" for name in TABLES]


class TransactionGenerator:
    def __init__(self, seed: int | str):
        self.rng = random.Random(f"transaction {seed}")
        self.savepoints: list[str] = []
        self.keys_end = 1000  # all numbers that are keys are below
        self.cursors: dict[str, int] = {}  # open ones: in how many savepoints each was declared
        self.scrolls: set[str] = set()
        self.held: set[str] = set()
        self.next_id = 100

    def table(self) -> str:
        return self.rng.choice(["m1", "m1", "m2", "m2", "m3", "mt", "mr", "ml"])

    def key(self, table: str) -> str:
        number = self.rng.randrange(0, 9)
        return f"'k{number}'" if table == "m3" else str(number)

    def new_id(self) -> int:
        """An id that nobody has yet, or (one in eight) one that may exist."""
        if self.rng.random() < 0.12:
            return self.rng.randrange(1, 31)
        return self.fresh_id()

    def fresh_id(self) -> int:
        self.next_id += 1
        return self.next_id

    def value(self) -> str:
        return self.rng.choices(
            [str(self.rng.randrange(0, 100)), "NULL", "5000"], weights=[90, 6, 4]
        )[0]

    def condition(self, table: str, alias: str = "") -> str:
        prefix = f"{alias}." if alias else ""
        return self.rng.choice(
            [
                f"{prefix}k = {self.key(table)}",
                f"{prefix}k = {self.key(table)} AND {prefix}id = {self.rng.randrange(1, 31)}",
                f"{prefix}v < {self.rng.randrange(0, 40)}",
                f"{prefix}id BETWEEN {self.rng.randrange(1, 15)} AND {self.rng.randrange(15, 40)}",
                f"{prefix}t IN ('t1', 't3')",
                f"{prefix}v IS NULL",
            ]
        )

    # ------------------------------------------------------------- statements

    def insert(self) -> str:
        table = self.table()
        count = self.rng.choice([1, 1, 1, 2, 5])
        # one statement fails in one way only: which row is met first is not defined
        id_ = self.new_id if count == 1 else self.fresh_id
        rows = ", ".join(f"({id_()}, {self.key(table)}, {self.value()}, 'n')" for _ in range(count))
        returning = self.rng.choice(["", "", " RETURNING id, k, v, t"])
        return f"INSERT INTO {SCHEMA}.{table} VALUES {rows}{returning}"

    def insert_select(self) -> str:
        source, target = self.rng.choice(
            [
                ("m1", "m2"),
                ("m2", "m1"),
                ("ml", "m1"),
                ("mr", "m2"),
                ("m1", "ml"),
                ("m3", "ml"),
                ("m2", "mr"),
            ]
        )
        key = "length(k)" if source == "m3" else "k"
        offset = self.next_id
        self.next_id += 100
        return (
            f"INSERT INTO {SCHEMA}.{target} SELECT id + {offset}, {key}, v, t FROM {SCHEMA}.{source}"
            f" WHERE id < 31 AND {self.condition(source)}"
        )

    def upsert(self) -> str:
        table = self.rng.choice(["m1", "m2", "m3", "ml"])
        target = "(id)" if table == "ml" else "(k, id)"
        action = self.rng.choice(
            [
                "DO NOTHING",
                f"{target} DO NOTHING",
                f"{target} DO UPDATE SET v = excluded.v, t = 'upserted'",
            ]
        )
        row = f"{self.rng.randrange(1, 40)}, {self.key(table)}, {self.rng.randrange(0, 100)}, 'u'"
        return f"INSERT INTO {SCHEMA}.{table} VALUES ({row}) ON CONFLICT {action}"

    def update(self) -> str:
        table = self.table()
        change = self.rng.choice(
            [
                "v = v + 1",
                "t = t || 'x'",
                f"v = {self.value()}",
                "v = 100 / nullif(v, 0), t = 'div'",
            ]
        )
        return f"UPDATE {SCHEMA}.{table} SET {change} WHERE {self.condition(table)}"

    def update_key(self) -> str:
        """To one key for all, or to keys that no row has had: else it depends on the order whether some collide."""
        table = self.table()
        change = self.key(table)
        if self.rng.random() < 0.5 and self.keys_end < 2**29:
            change = f"'x{self.keys_end}' || k" if table == "m3" else f"k + {self.keys_end}"
            self.keys_end *= 2
        also = self.rng.choice(["", ", v = v + 1", ", t = t || 'm'"])
        returning = self.rng.choice(["", "", " RETURNING id, k, v, t"])
        return f"UPDATE {SCHEMA}.{table} SET k = {change}{also} WHERE {self.condition(table)}{returning}"

    def update_join(self) -> str:
        target, other = self.rng.choice([("m1", "m2"), ("m2", "m1"), ("m1", "mr")])
        match = "o.id = m.id" if other == "mr" else "o.k = m.k AND o.id = m.id"
        return (
            f"UPDATE {SCHEMA}.{target} AS m SET v = m.v + 1, t = o.t FROM {SCHEMA}.{other} AS o"
            f" WHERE {match} AND {self.condition(target, 'm')}"
        )

    def delete(self) -> str:
        table = self.table()
        return f"DELETE FROM {SCHEMA}.{table} WHERE {self.condition(table)}"

    def delete_exists(self) -> str:
        return (
            f"DELETE FROM {SCHEMA}.m1 AS m WHERE EXISTS (SELECT FROM {SCHEMA}.m2 AS o"
            f" WHERE o.k = m.k AND o.id = m.id AND o.v > m.v) AND {self.condition('m1', 'm')}"
        )

    # ------------------------------------------------------------- changes that the coordinator computes

    def source(self) -> str:
        """A set of at most one row for each id, called s: of any table, or of none."""
        table = self.rng.choice(["m1", "m3", "mt", "mr", "ml", ""])
        if not table:
            low = self.rng.randrange(1, 25)
            return f"(SELECT g AS id, g % 9 AS k, g * 2 AS v FROM generate_series({low}, {low + 10}) AS g) AS s"
        key = "max(length(k))" if table == "m3" else "max(k)"
        return (
            f"(SELECT id, {key} AS k, max(v) AS v FROM {SCHEMA}.{table}"
            f" WHERE {self.condition(table)} GROUP BY id) AS s"
        )

    def change_here(self) -> str:
        """UPDATE or DELETE by what workers do not have."""
        table = self.table()
        other = self.rng.choice(["m1", "m3", "mr", "ml"])
        matches = f"{SCHEMA}.{other} AS o WHERE o.id = m.id AND o.v < {self.rng.randrange(60)}"
        where = self.condition(table, "m")
        using, condition = self.rng.choice(
            [
                (self.source(), f"s.id = m.id AND {where}"),
                (self.source(), f"s.v = m.id AND s.k < 7 AND {where}"),
                ("", f"{SCHEMA}.same(m.v) < {self.rng.randrange(60)} AND {where}"),
                ("", f"random() < 2 AND {where}"),
                ("", f"EXISTS (SELECT FROM {matches}) AND {where}"),
                ("", f"NOT EXISTS (SELECT FROM {matches}) AND {where}"),
                ("", f"m.id IN (SELECT id FROM {SCHEMA}.{other} WHERE {self.condition(other)})"),
            ]
        )
        returning = self.rng.choice(["", "", " RETURNING m.id, m.k, m.v, m.t", " RETURNING *"])
        if self.rng.random() < 0.4:
            using = f" USING {using}" if using else ""
            return f"DELETE FROM {SCHEMA}.{table} AS m{using} WHERE {condition}{returning}"
        changes = ["v = m.v + 1", f"v = {SCHEMA}.same(m.v) + 1, t = m.t || 'h'"]
        changes += [f"v = (SELECT max(o.v) FROM {matches}) + 1", "t = 'changed here'"]
        if using:
            changes += ["v = s.v", "v = m.v + s.k, t = m.t || s.id"]
        using = f" FROM {using}" if using else ""
        return f"UPDATE {SCHEMA}.{table} AS m SET {self.rng.choice(changes)}{using} WHERE {condition}{returning}"

    def merge(self) -> str:
        table = self.rng.choice(["m1", "m2", "m3", "mt", "ml"])
        on = "s.id = m.id"
        if table != "m3" and self.rng.random() < 0.5:
            on += " AND s.k = m.k"
        also = self.rng.choice(["", f" AND m.v < {self.rng.randrange(60)}", " AND s.v > m.v"])
        matched = self.rng.choice(
            ["UPDATE SET v = m.v + s.v", "UPDATE SET t = m.t || 'g'", "DELETE", "DO NOTHING"]
        )
        actions = f" WHEN MATCHED{also} THEN {matched}"
        if self.rng.random() < 0.3:
            actions += " WHEN MATCHED THEN UPDATE SET t = 'second'"
        if self.rng.random() < 0.6:
            offset = self.next_id
            self.next_id += 200
            key = "'k' || s.k" if table == "m3" else "s.k"
            actions += (
                f" WHEN NOT MATCHED THEN INSERT VALUES (s.id + {offset}, {key}, s.v, 'merged')"
            )
        return f"MERGE INTO {SCHEMA}.{table} AS m USING {self.source()} ON {on}{actions}"

    def change_in_with(self) -> str:
        """One part of a statement changes a table, another one reads it or changes another."""
        table = self.rng.choice(["m1", "m2", "mt", "mr", "ml"])
        other = self.rng.choice([name for name in ("m1", "m2", "mt", "mr", "ml") if name != table])
        change = self.rng.choice(
            [f"DELETE FROM {SCHEMA}.{table}", f"UPDATE {SCHEMA}.{table} SET v = v + 1"]
        )
        offset = self.next_id
        self.next_id += 2000
        reader = self.rng.choice(
            [
                f"INSERT INTO {SCHEMA}.{other} SELECT id + {offset}, k, v, t FROM c WHERE id < 1000",
                f"SELECT count(*), sum(c.v), sum(m.v) FROM c JOIN {SCHEMA}.{other} AS m USING (k, id)",
                f"SELECT count(*), sum(c.v), sum(m.v) FROM c JOIN {SCHEMA}.{table} AS m USING (k, id)",
                f"INSERT INTO {SCHEMA}.{other} SELECT id + {offset}, k, v, t FROM {SCHEMA}.{table} WHERE id < 1000",
                f"UPDATE {SCHEMA}.{other} AS m SET v = (SELECT sum(o.v) FROM {SCHEMA}.{table} AS o WHERE o.k = m.k)",
                f"UPDATE {SCHEMA}.{other} AS m SET v = c.v FROM c WHERE c.k = m.k AND c.id = m.id",
                f"DELETE FROM {SCHEMA}.{other} AS m USING c WHERE c.k = m.k AND c.id = m.id RETURNING c.*",
            ]
        )
        return f"WITH c AS ({change} WHERE {self.condition(table)} RETURNING *) {reader}"

    def change_family(self) -> str:
        """Rows that foreign keys of local tables hold together with those of a distributed one."""
        child = self.rng.choice(["mc", "md"])
        parent = self.rng.randrange(1, 34)
        where = f"id BETWEEN {parent} AND {parent + self.rng.choice([0, 0, 3])}"
        self.next_id += 100
        return self.rng.choice(
            [
                f"INSERT INTO {SCHEMA}.{child} VALUES ({self.fresh_id()}, {parent}, {self.value()}, 'c')",
                f"INSERT INTO {SCHEMA}.{child} SELECT id + {self.next_id}, id, v, t FROM {SCHEMA}.mp WHERE {where}",
                f"UPDATE {SCHEMA}.{child} SET k = {parent} WHERE v < {self.rng.randrange(50)}",
                f"DELETE FROM {SCHEMA}.{child} WHERE k IN ({parent}, {parent + 1}) RETURNING id",
                f"INSERT INTO {SCHEMA}.mp VALUES ({parent}, 1, {self.value()}, 'p')",
                f"INSERT INTO {SCHEMA}.mp VALUES ({parent}, 1, 7, 'p') ON CONFLICT (id) DO UPDATE SET v = 7, t = 'u'",
                f"DELETE FROM {SCHEMA}.mp WHERE {where} RETURNING id",
                f"DELETE FROM {SCHEMA}.mp AS m WHERE NOT EXISTS (SELECT FROM {SCHEMA}.{child} AS c WHERE c.k = m.id)",
                f"UPDATE {SCHEMA}.mp SET v = v + 1 WHERE {where}",
                f"UPDATE {SCHEMA}.mp SET id = id + {self.next_id} WHERE {where} RETURNING id",
                f"SET CONSTRAINTS ALL {self.rng.choice(['IMMEDIATE', 'DEFERRED'])}",
                f"SELECT c.id, c.k, m.v FROM {SCHEMA}.{child} AS c LEFT JOIN {SCHEMA}.mp AS m ON c.k = m.id ORDER BY 1",
            ]
        )

    # ------------------------------------------------------------- reads

    def read(self) -> str:
        table = self.table()
        return self.rng.choice(
            [
                f"SELECT count(*), sum(v), min(t) FROM {SCHEMA}.{table}",
                f"SELECT * FROM {SCHEMA}.{table} WHERE {self.condition(table)} ORDER BY id, k",
                f"SELECT id FROM {SCHEMA}.{table} ORDER BY id, k LIMIT 2",
                f"SELECT count(*) FROM {SCHEMA}.m1 JOIN {SCHEMA}.m2 USING (k)",
                f"SELECT t, count(*) FROM {SCHEMA}.{table} GROUP BY t ORDER BY t",
                f"SELECT count(*) FROM {SCHEMA}.{table} WHERE id IN (SELECT id FROM {SCHEMA}.m3 WHERE v < 20)",
                f"SELECT id FROM {SCHEMA}.{table} WHERE {self.condition(table)} ORDER BY id, k FOR UPDATE",
            ]
        )

    def failure(self) -> str:
        return self.rng.choice(
            [
                "SELECT 1 / 0",
                f"SELECT 1 / (id - id) FROM {SCHEMA}.m1",
                f"INSERT INTO {SCHEMA}.m1 VALUES (1, 1, 5, 'twice'), (1, 1, 5, 'twice')",
                f"INSERT INTO {SCHEMA}.m3 VALUES (1, 'z', NULL, 'no value')",
                f"UPDATE {SCHEMA}.m1 SET v = 100000",
                "SELECT FROM does_not_exist",
            ]
        )

    def savepoint(self) -> str:
        choice = self.rng.random()
        if not self.savepoints or choice < 0.5:
            name = f"s{len(self.savepoints) + 1}"
            self.savepoints.append(name)
            return f"SAVEPOINT {name}"
        position = self.rng.randrange(len(self.savepoints))
        name = self.savepoints[position]
        if choice < 0.8:
            del self.savepoints[position + 1 :]
            self.cursors = {c: depth for c, depth in self.cursors.items() if depth <= position}
            return f"ROLLBACK TO SAVEPOINT {name}"
        del self.savepoints[position:]
        self.cursors = {c: min(depth, position) for c, depth in self.cursors.items()}
        return f"RELEASE SAVEPOINT {name}"

    def declare(self) -> str:
        """Every query has one order, so that a part of the rows is the same on both sides."""
        name = self.rng.choice([f"c{n}" for n in range(1, 5)])
        if name in self.cursors and self.rng.random() < 0.9:
            return self.fetch()
        table = self.table()
        query = self.rng.choice(
            [
                f"SELECT * FROM {SCHEMA}.{table} ORDER BY id, k",
                f"SELECT id, v FROM {SCHEMA}.{table} WHERE {self.condition(table)} ORDER BY id, k",
                f"SELECT t, count(*), sum(v) FROM {SCHEMA}.{table} GROUP BY t ORDER BY t",
                f"SELECT a.id, b.id, a.k FROM {SCHEMA}.m1 AS a JOIN {SCHEMA}.m2 AS b USING (k) ORDER BY 1, 2, 3",
                f"SELECT a.id, b.id, b.k FROM {SCHEMA}.ml AS a JOIN {SCHEMA}.m3 AS b ON a.v = b.v ORDER BY 1, 2, 3",
            ]
        )
        scroll, hold = self.rng.random() < 0.3, self.rng.random() < 0.15
        self.cursors[name] = len(self.savepoints)
        self.scrolls.discard(name)
        if scroll:
            self.scrolls.add(name)
        if hold:
            self.held.add(name)
        return f"DECLARE {name} {'SCROLL ' if scroll else ''}CURSOR {'WITH HOLD ' if hold else ''}FOR {query}"

    def fetch(self) -> str:
        if not self.cursors:
            return self.declare()
        name = self.rng.choice(sorted(self.cursors))
        moves = ["FETCH", "FETCH 3 FROM", "FETCH 7 FROM", "MOVE 2 IN", "FETCH ALL FROM", "CLOSE"]
        if name in self.scrolls:
            moves += [
                "FETCH PRIOR FROM",
                "FETCH BACKWARD 4 FROM",
                "FETCH FIRST FROM",
                "FETCH ABSOLUTE 5 FROM",
            ]
        move = self.rng.choices(moves, weights=[5, 6, 3, 3, 2, 1, *[3] * (len(moves) - 6)])[0]
        if move == "CLOSE":
            del self.cursors[name]
        return f"{move} {name}"

    def statement(self) -> str:
        return self.rng.choices(
            [
                self.insert,
                self.insert_select,
                self.upsert,
                self.update,
                self.update_join,
                self.update_key,
                self.delete,
                self.delete_exists,
                self.change_here,
                self.merge,
                self.change_in_with,
                self.change_family,
                self.read,
                self.failure,
                self.declare,
                self.fetch,
            ],
            weights=[24, 7, 8, 12, 6, 8, 6, 4, 12, 8, 6, 14, 24, 3, 7, 16],
        )[0]()

    def script(self) -> list[str]:
        """One to three transactions; some statements outside of any."""
        statements = []
        for _ in range(self.rng.randrange(1, 4)):
            self.savepoints = []
            self.cursors = {name: 0 for name in sorted(self.cursors) if name in self.held}
            if self.rng.random() < 0.15:
                statements.append(self.statement())
                continue
            isolation = self.rng.choice(["", "", "", " ISOLATION LEVEL REPEATABLE READ"])
            statements.append(f"BEGIN{isolation}")
            for _ in range(self.rng.randrange(2, 12)):
                statements.append(
                    self.savepoint() if self.rng.random() < 0.25 else self.statement()
                )
            statements.append(self.rng.choice(["COMMIT", "COMMIT", "COMMIT", "ROLLBACK"]))
        return [*statements, "CLOSE ALL"]


def generate(seed: int | str) -> list[str]:
    return TransactionGenerator(seed).script()
