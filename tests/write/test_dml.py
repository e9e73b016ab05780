"""INSERT, UPDATE, DELETE, MERGE, COPY and TRUNCATE do what they do on plain tables."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from tests import shop
from tests.cluster import Cluster
from tests.pair import Pair, open_pair

STATE = (
    "SELECT * FROM users",
    "SELECT * FROM events",
    "SELECT * FROM visits",
    "SELECT * FROM notes",
    "SELECT * FROM countries",
    "SELECT * FROM plans",
)


@pytest.fixture(scope="module")
def data(cluster: Cluster) -> Iterator[Pair]:
    with open_pair(cluster, "test_dml") as made:
        shop.create(made)
        yield made


@pytest.fixture
def pair(data: Pair) -> Iterator[Pair]:
    """Inside a transaction that is rolled back: every test starts from the same rows."""
    with data.transaction():
        yield data


def run_and_compare(pair: Pair, statements: tuple[str, ...]) -> None:
    """Each statement in a savepoint of its own, then the state of all tables."""
    for statement in statements:
        pair.execute("SAVEPOINT one")
        pair.same(statement)
        if pair.theirs.info.transaction_status == psycopg.pq.TransactionStatus.INERROR:
            pair.execute("ROLLBACK TO one")
    pair.all_same(STATE)


def cases(statements: dict[str, str | tuple[str, ...]]):
    values = [(v,) if isinstance(v, str) else v for v in statements.values()]
    return pytest.mark.parametrize("statements", values, ids=list(statements))


@cases(
    {
        "one row": "INSERT INTO users VALUES (1000, 'new', 'AT', 1, 33, 1.5, '2000-01-01')",
        "many rows": "INSERT INTO users (user_id, name) VALUES (1000, 'a'), (1001, 'b'), (1002, 'c')",
        "thousands of rows": "INSERT INTO visits SELECT g, g % 50, '/x', g FROM generate_series(1, 5000) AS g",
        "some columns in another order": "INSERT INTO users (name, user_id) VALUES ('b', 1000)",
        "expressions": "INSERT INTO users (user_id, name, age) VALUES (500 + 500, upper('x'),"
        " (SELECT max(age) FROM users))",
        "default values": "INSERT INTO notes DEFAULT VALUES",
        "NULL key": "INSERT INTO notes VALUES (NULL, 1, 'x'), (NULL, 2, 'y')",
        "NULL key of a primary key": "INSERT INTO users (user_id, name) VALUES (NULL, 'x')",
        "from the same table": "INSERT INTO users SELECT user_id + 1000, name FROM users WHERE age > 50",
        "from a colocated table": "INSERT INTO events (event_id, user_id, kind_id) SELECT 100000 + user_id,"
        " user_id, 3 FROM users",
        "from a table hashed otherwise": "INSERT INTO users (user_id, name) SELECT visit_id / 1000003 + 1000,"
        " page FROM visits",
        "from a local table": "INSERT INTO users (user_id, name) SELECT plan_id + 1000, plan FROM plans",
        "from a reference table": "INSERT INTO notes SELECT name, 1, code FROM countries",
        "from an aggregate": "INSERT INTO notes SELECT country, count(*), max(name) FROM users GROUP BY country",
        "from a join": "INSERT INTO notes SELECT u.name, k.kind_id, k.kind FROM users u JOIN events e"
        " USING (user_id) JOIN kinds k USING (kind_id) WHERE e.amount > 60",
        "into a local table": "INSERT INTO plans SELECT user_id + 100, name, balance FROM users",
        "into a reference table": "INSERT INTO countries SELECT 'u' || user_id, name FROM users WHERE age > 70",
        "from a limited query": "INSERT INTO notes SELECT name, age FROM users ORDER BY user_id LIMIT 5",
        "from a recursive query": "INSERT INTO notes WITH RECURSIVE r (n) AS (SELECT 1 UNION ALL SELECT n + 1"
        " FROM r WHERE n < 9) SELECT 'r' || n, n FROM r",
        "a duplicate key": "INSERT INTO users (user_id, name) VALUES (1000, 'a'), (7, 'twice')",
        "duplicates within": "INSERT INTO users (user_id, name) VALUES (1000, 'a'), (1000, 'b')",
        "a NULL where none may be": "INSERT INTO users (user_id) VALUES (1000)",
        "an expression that fails": "INSERT INTO users (user_id, name) SELECT 1000 + g, (1 / (g - 3))::text"
        " FROM generate_series(1, 5) AS g",
        "returning": "INSERT INTO users (user_id, name) VALUES (1000, 'a'), (1001, 'b')"
        " RETURNING *, user_id * 2 AS double",
        "returning with a subquery": "INSERT INTO users (user_id, name) VALUES (1000, 'a') RETURNING"
        " (SELECT count(*) FROM countries)",
        "returning an aggregate of a CTE": "WITH new AS (INSERT INTO users (user_id, name) SELECT g, 'n' FROM"
        " generate_series(1000, 1099) AS g RETURNING user_id) SELECT count(*), min(user_id) FROM new",
    }
)  # fmt: skip
def test_insert(pair: Pair, statements: tuple[str, ...]) -> None:
    run_and_compare(pair, statements)


@cases(
    {
        "by key": "UPDATE users SET age = age + 1, name = name || '!' WHERE user_id = 17",
        "all rows": "UPDATE users SET balance = 0",
        "by filter": "UPDATE events SET amount = amount * 2 WHERE kind_id = 3 AND ok",
        "no row": "UPDATE users SET age = 0 WHERE user_id = -5",
        "from a colocated table": "UPDATE users u SET balance = e.amount FROM events e WHERE e.user_id ="
        " u.user_id AND e.event_id = (SELECT min(event_id) FROM events x WHERE x.user_id = u.user_id)",
        "from a reference table": "UPDATE users u SET country = c.name FROM countries c WHERE c.code ="
        " u.country",
        "with a colocated subquery": "UPDATE users u SET balance = (SELECT sum(amount) FROM events e WHERE"
        " e.user_id = u.user_id)",
        "with a colocated exists": "UPDATE users u SET age = 0 WHERE EXISTS (SELECT FROM events e WHERE"
        " e.user_id = u.user_id AND amount > 90)",
        "with a reference subquery": "UPDATE users SET country = NULL WHERE country IN (SELECT code FROM"
        " countries WHERE continent = 'Asia')",
        "with an uncorrelated scalar": "UPDATE users SET age = (SELECT max(kind_id) FROM kinds) WHERE"
        " user_id < 9",
        "several columns from a row": "UPDATE users SET (age, name) = (SELECT 99, 'row') WHERE user_id = 4",
        "to default": "UPDATE users SET country = DEFAULT WHERE user_id = 4",
        "by NULL key": "UPDATE notes SET stars = 100 WHERE topic IS NULL",
        "an array element": "UPDATE events SET tags[1] = 'changed' WHERE event_id < 20",
        "a json field": "UPDATE events SET payload['n'] = '77' WHERE user_id = 14",
        "returning": "UPDATE users u SET age = age + 1 WHERE age > 70 RETURNING u.*, age * 2",
        "returning from a join": "UPDATE users u SET age = 1 FROM countries c WHERE c.code = u.country AND"
        " c.code = 'AT' RETURNING u.user_id, c.name",
        "in a CTE": "WITH x AS (UPDATE users SET age = 5 WHERE user_id < 20 RETURNING user_id, age)"
        " SELECT count(*), sum(age) FROM x",
        "a violated constraint": "UPDATE users SET name = NULL WHERE user_id = 3",
        "an expression that fails": "UPDATE users SET age = 1 / (user_id - 3)",
        "a reference table": "UPDATE countries SET name = upper(name) WHERE continent = 'Europe'",
        "a local table": "UPDATE plans SET price = (SELECT avg(balance) FROM users)",
        "now and current_user": "UPDATE users SET name = current_user WHERE born < now() - interval '50 years'"
        " AND born < '1970-01-01'",
    }
)  # fmt: skip
def test_update(pair: Pair, statements: tuple[str, ...]) -> None:
    run_and_compare(pair, statements)


@cases(
    {
        "by key": "DELETE FROM users WHERE user_id = 17",
        "all rows": "DELETE FROM events",
        "by filter": "DELETE FROM events WHERE NOT ok OR tags IS NULL",
        "using a colocated table": "DELETE FROM events e USING users u WHERE u.user_id = e.user_id AND"
        " u.age > 60",
        "using a reference table": "DELETE FROM users u USING countries c WHERE c.code = u.country AND"
        " c.continent = 'Asia'",
        "with a colocated exists": "DELETE FROM users u WHERE NOT EXISTS (SELECT FROM events e WHERE"
        " e.user_id = u.user_id AND e.ok)",
        "with in on the key": "DELETE FROM users WHERE user_id IN (SELECT user_id FROM events WHERE"
        " amount > 90)",
        "NULL keys": "DELETE FROM notes WHERE topic IS NULL",
        "returning": "DELETE FROM users WHERE age > 70 RETURNING *",
        "in a CTE": "WITH x AS (DELETE FROM events WHERE kind_id = 2 RETURNING amount) SELECT sum(amount)"
        " FROM x",
        "moved by a CTE": "WITH x AS (DELETE FROM users WHERE user_id < 10 RETURNING *)"
        " INSERT INTO notes SELECT name, age FROM x",
        "a reference table": "DELETE FROM countries WHERE continent IS NULL RETURNING code",
        "a local table": "DELETE FROM plans WHERE plan_id NOT IN (SELECT plan_id FROM users WHERE"
        " plan_id IS NOT NULL)",
    }
)
def test_delete(pair: Pair, statements: tuple[str, ...]) -> None:
    run_and_compare(pair, statements)


@cases(
    {
        "do nothing": (
            "INSERT INTO users (user_id, name) VALUES (7, 'x'), (1000, 'y') ON CONFLICT DO NOTHING",
            "INSERT INTO users (user_id, name) VALUES (7, 'x') ON CONFLICT (user_id) DO NOTHING RETURNING *",
        ),
        "do update": (
            "INSERT INTO users (user_id, name, age) VALUES (7, 'x', 1), (1000, 'y', 2) ON CONFLICT (user_id)"
            " DO UPDATE SET name = excluded.name, age = users.age + excluded.age RETURNING *"
        ),
        "do update by constraint": "INSERT INTO users (user_id, name) VALUES (7, 'x') ON CONFLICT ON"
        " CONSTRAINT users_pkey DO UPDATE SET name = 'changed'",
        "do update with a filter": "INSERT INTO users (user_id, name) VALUES (7, 'x'), (8, 'x') ON CONFLICT"
        " (user_id) DO UPDATE SET name = excluded.name WHERE users.user_id > 7 RETURNING user_id",
        "from a query": "INSERT INTO users SELECT * FROM users WHERE user_id < 50 ON CONFLICT (user_id) DO"
        " UPDATE SET age = excluded.age + 100",
        "from a colocated query": "INSERT INTO users (user_id, name) SELECT user_id, 'e' FROM events WHERE"
        " amount > 95 ON CONFLICT (user_id) DO NOTHING",
        "the same row twice": "INSERT INTO users (user_id, name) VALUES (7, 'x'), (7, 'y') ON CONFLICT"
        " (user_id) DO UPDATE SET name = excluded.name",
        "rows of sub-selects": (
            "INSERT INTO users (user_id, name) VALUES ((SELECT max(user_id) + 1 FROM users), 'x'), (7, (SELECT"
            " min(name) FROM countries)) ON CONFLICT (user_id) DO UPDATE SET name = excluded.name RETURNING *",
            "WITH w AS (SELECT avg(price) AS p FROM plans) INSERT INTO users (user_id, name, age) SELECT 7, 'x', p"
            " FROM w WHERE EXISTS (SELECT FROM events) ON CONFLICT DO NOTHING",
        ),
        "sub-selects in what it sets": (
            "INSERT INTO users (user_id, name) VALUES (7, 'x'), (1000, 'y') ON CONFLICT (user_id) DO UPDATE SET"
            " name = excluded.name || (SELECT max(name) FROM countries), age = (SELECT count(*) FROM events)"
            " + users.age RETURNING *",
            "INSERT INTO users (user_id, name) VALUES (7, 'x') ON CONFLICT (user_id) DO UPDATE SET (name, age) ="
            " (SELECT max(name), count(*) FROM plans, countries)",
            "WITH w AS (SELECT 7 AS a, 'w' AS b) INSERT INTO users (user_id, name) SELECT a, b FROM w ON CONFLICT"
            " (user_id) DO UPDATE SET name = (SELECT b || ' again' FROM w WHERE a = 7)",
            "WITH w AS (UPDATE events SET amount = 1 WHERE user_id = 3 RETURNING event_id) INSERT INTO users"
            " (user_id, name) VALUES (7, 'x') ON CONFLICT (user_id) DO UPDATE SET age = (SELECT count(*) FROM w)",
            "INSERT INTO users (user_id, name) VALUES (7, 'x') ON CONFLICT (user_id) DO UPDATE SET age ="
            " (SELECT 1 / (count(*) - count(*)) FROM plans)",
            "INSERT INTO users (user_id, name) VALUES (7, 'x') ON CONFLICT (user_id) DO UPDATE SET name ="
            " (SELECT name FROM countries)",
        ),
        "sub-selects in its filter and in RETURNING": (
            "INSERT INTO users (user_id, name) VALUES (7, 'x'), (8, 'y') ON CONFLICT (user_id) DO UPDATE SET name ="
            " 'z' WHERE users.user_id = (SELECT 7 FROM plans LIMIT 1) AND users.age < (SELECT max(age) + 1 FROM"
            " users) RETURNING user_id, name, (SELECT count(*) FROM events)",
            "INSERT INTO users (user_id, name) VALUES (7, 'x') ON CONFLICT (user_id) DO UPDATE SET name = 'z'"
            " WHERE EXISTS (SELECT FROM plans WHERE price > 1000000)",
        ),
        "prepared": (
            "PREPARE p (integer, text) AS INSERT INTO users (user_id, name) VALUES ($1, $2) ON CONFLICT (user_id)"
            " DO UPDATE SET name = $2 || (SELECT count(*) FROM users WHERE user_id < $1), age = $1",
            *["EXECUTE p (7, 'seven')"] * 7,
            "DEALLOCATE p",
        ),
        "no such constraint": "INSERT INTO users (user_id, name) VALUES (7, 'x') ON CONFLICT (name)"
        " DO NOTHING",
        "a reference table": "INSERT INTO countries VALUES ('AT', 'x'), ('FR', 'France') ON CONFLICT (code)"
        " DO UPDATE SET name = excluded.name RETURNING *",
    }
)  # fmt: skip
def test_on_conflict(pair: Pair, statements: tuple[str, ...]) -> None:
    run_and_compare(pair, statements)


@cases(
    {
        "colocated on the key": "MERGE INTO users u USING (SELECT user_id, sum(amount) AS s FROM events"
        " GROUP BY user_id) AS e ON e.user_id = u.user_id WHEN MATCHED AND s > 500 THEN UPDATE SET balance = s"
        " WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT (user_id, name, balance) VALUES (e.user_id,"
        " 'merged', s)",
        "a reference source": "MERGE INTO users u USING countries c ON c.code = u.country WHEN MATCHED AND"
        " c.continent = 'Asia' THEN UPDATE SET name = c.name WHEN MATCHED THEN DO NOTHING",
        "matched only": "MERGE INTO users u USING events e ON e.user_id = u.user_id AND e.event_id = 40"
        " WHEN MATCHED THEN UPDATE SET age = 0",
        "a reference target": "MERGE INTO countries c USING (VALUES ('AT', 'x'), ('FR', 'France')) AS v (a, b)"
        " ON v.a = c.code WHEN MATCHED THEN UPDATE SET name = b WHEN NOT MATCHED THEN INSERT VALUES (a, b)",
        "a local target": "MERGE INTO plans p USING plans q ON p.plan_id = q.plan_id WHEN MATCHED THEN UPDATE"
        " SET price = 1",
    }
)  # fmt: skip
def test_merge(pair: Pair, statements: tuple[str, ...]) -> None:
    run_and_compare(pair, statements)


@cases(
    {
        "insert and read another table": "WITH x AS (INSERT INTO users (user_id, name) VALUES (1000, 'n')"
        " RETURNING user_id) SELECT (SELECT count(*) FROM events), x.* FROM x",
        "update one, delete another": "WITH u AS (UPDATE users SET age = 1 WHERE user_id = 3 RETURNING user_id),"
        " d AS (DELETE FROM events WHERE user_id = 4 RETURNING event_id) SELECT (SELECT count(*) FROM u),"
        " (SELECT count(*) FROM d)",
        "unread": "WITH d AS (DELETE FROM notes WHERE stars = 1) SELECT 1",
        "archive into a local table": "WITH d AS (DELETE FROM users WHERE user_id < 6 RETURNING user_id, name)"
        " INSERT INTO plans SELECT user_id + 50, name FROM d",
    }
)
def test_modifying_ctes(pair: Pair, statements: tuple[str, ...]) -> None:
    run_and_compare(pair, statements)


def test_parts_of_a_statement_may_insert_into_one_table(pair: Pair) -> None:
    pair.same(
        "WITH a AS (INSERT INTO notes VALUES ('a', 1) RETURNING *), b AS (INSERT INTO notes SELECT"
        " name, 2 FROM users WHERE age > 60 RETURNING *) INSERT INTO notes SELECT topic, 3 FROM a"
        " UNION ALL SELECT topic, 4 FROM b"
    )
    pair.all_same(STATE)


def test_parts_of_a_statement_may_change_a_reference_table(pair: Pair) -> None:
    pair.same(
        "WITH i AS (INSERT INTO countries VALUES ('XX', 'x') RETURNING code), d AS (DELETE FROM"
        " countries WHERE code IN ('XX', 'AT') RETURNING code) SELECT (SELECT count(*) FROM i),"
        " (SELECT count(*) FROM d)"
    )
    pair.all_same(STATE)


def expect_error(pair: Pair, statement: str, sqlstate: str) -> psycopg.Error:
    """The coordinator refuses, with something to say to the user."""
    with pytest.raises(psycopg.Error) as caught, pair.ours.transaction():
        pair.ours.execute(statement)
    assert caught.value.sqlstate == sqlstate, caught.value
    return caught.value


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE users u SET age = 1 FROM visits v WHERE v.user_id = u.user_id",
        "DELETE FROM users u USING visits v WHERE v.user_id = u.user_id",
        "DELETE FROM events WHERE EXISTS (SELECT FROM users u WHERE u.age = events.kind_id)",
        "MERGE INTO users u USING visits v ON v.user_id = u.user_id WHEN MATCHED THEN DELETE",
    ],
    ids=["update", "delete", "delete exists", "merge"],
)
def test_rows_of_other_workers(pair: Pair, statement: str) -> None:
    pair.same(statement)
    pair.all_same(STATE[:2])


def test_an_on_conflict_without_the_key_in_its_target_cannot_exist(pair: Pair) -> None:
    """The arbiter has to contain the key, because every unique index of the table does."""
    with pytest.raises(psycopg.Error) as caught, pair.ours.transaction():
        pair.ours.execute("CREATE UNIQUE INDEX ON users (name)")
    assert caught.value.sqlstate in ("0A000", "42P16", "42611")
    assert "user_id" in str(caught.value)


# ---- columns that compute themselves -------------------------------------------------------------


def test_defaults_identity_serial_and_generated_columns(data: Pair) -> None:
    data.execute(
        "CREATE TABLE computed (id bigint GENERATED ALWAYS AS IDENTITY, n serial, k integer,"
        " twice integer GENERATED ALWAYS AS (k * 2) STORED, t text DEFAULT 'd' || 'ef',"
        " at date DEFAULT '2024-01-01', PRIMARY KEY (k, id))"
    )
    data.distribute("computed", "k")
    data.all_same(
        [
            "INSERT INTO computed (k) VALUES (1), (2), (3) RETURNING *",
            "INSERT INTO computed (k, t) SELECT g, NULL FROM generate_series(4, 50) AS g",
            "INSERT INTO computed (k, t, at) VALUES (60, DEFAULT, DEFAULT) RETURNING id, n, t, at, twice",
            "INSERT INTO computed (id, k) VALUES (1, 1)",
            "INSERT INTO computed (id, k) OVERRIDING SYSTEM VALUE VALUES (900, 1) RETURNING *",
            "INSERT INTO computed (k, twice) VALUES (1, 1)",
            "UPDATE computed SET t = 'changed' WHERE twice > 50 RETURNING twice",
            "UPDATE computed SET twice = 1",
            "SELECT * FROM computed",
            "SELECT count(DISTINCT id), count(DISTINCT n), max(n) FROM computed",
        ]
    )
    data.copy("COPY computed (k, t) FROM STDIN", "70\ta\n71\t\\N\n")
    data.same("SELECT * FROM computed WHERE k >= 60")
    data.execute("DROP TABLE computed")


def test_dropped_and_added_columns_do_not_shift_values(data: Pair) -> None:
    data.execute(
        "CREATE TABLE holed (gone text, k integer, also_gone integer, v text);"
        "ALTER TABLE holed DROP COLUMN gone, DROP COLUMN also_gone, ADD COLUMN w integer DEFAULT 7"
    )
    data.execute("INSERT INTO holed VALUES (1, 'before', 1), (2, 'before', 2)")
    data.distribute("holed", "k")
    data.all_same(
        [
            "INSERT INTO holed VALUES (3, 'a', 30), (4, 'b', DEFAULT) RETURNING *",
            "INSERT INTO holed SELECT g, 'g' FROM generate_series(10, 400) AS g",
            "UPDATE holed SET v = v || w WHERE k < 20 RETURNING *",
            "SELECT * FROM holed",
            "SELECT h FROM holed AS h WHERE k = 3",
        ]
    )
    data.copy("COPY holed FROM STDIN (FORMAT csv)", "500,x,1\n501,y,2\n")
    data.same("SELECT * FROM holed WHERE k >= 500")
    data.execute("DROP TABLE holed")


# ---- COPY ------------------------------------------------------------------------------------------


@pytest.fixture
def target(data: Pair) -> Iterator[str]:
    data.execute("CREATE TABLE target (k integer PRIMARY KEY, v integer CHECK (v > 0), t text)")
    data.distribute("target", "k")
    data.execute("INSERT INTO target VALUES (1, 1, 'first')")
    yield "target"
    data.reset()
    data.execute("DROP TABLE target")


def test_copy_loads_many_rows(data: Pair, target: str) -> None:
    lines = "".join(f"{n}\t{n % 100 + 1}\tline {n}\n" for n in range(2, 20_000))
    data.copy("COPY target FROM STDIN", lines)
    data.same("SELECT count(*), sum(v), min(t), max(k) FROM target")
    data.copy(
        "COPY target (t, k) FROM STDIN (FORMAT csv, HEADER, NULL 'null')",
        "t,k\na,30000\nnull,30001\n",
    )
    data.copy("COPY target FROM STDIN WHERE v < 5", "40000\t1\tyes\n40001\t9\tno\n")
    data.same("SELECT * FROM target WHERE k >= 30000")


@pytest.mark.parametrize(
    ("line", "sqlstate", "column"),
    [
        ("abc\t5\tx", "22P02", "k"),
        ("5\t99999999999\tx", "22003", "v"),
        ("5\t5", "22P04", None),
        ("5\t5\tx\ty", "22P04", None),
        ("5\t-1\tx", "23514", None),
        ("\\N\t5\tx", "23502", None),
        ("1\t5\tx", "23505", None),
        ("7\t5\ta\n7\t5\tb", "23505", None),
    ],
    ids=["bad key", "out of range", "too few", "too many", "check", "null", "duplicate", "twice"],
)
def test_a_bad_row_loads_nothing_and_is_named(
    data: Pair, target: str, line: str, sqlstate: str, column: str | None
) -> None:
    good = "".join(f"{n}\t1\tgood\n" for n in range(10, 300))
    errors = []
    for connection in (data.theirs, data.ours):
        cursor = connection.cursor()
        with pytest.raises(psycopg.Error) as caught, cursor.copy("COPY target FROM STDIN") as copy:
            copy.write(good + line + "\n" + "1000\t1\tafter\n")
        errors.append(caught.value)
    plain, ours = errors
    assert ours.sqlstate == plain.sqlstate == sqlstate
    if column or sqlstate == "22P04":  # what COPY itself finds, it reports as ever
        assert ours.diag.message_primary == plain.diag.message_primary
        assert ours.diag.context == plain.diag.context
        assert "line 291" in ours.diag.context
        assert column is None or f"column {column}" in ours.diag.context
    assert data.same("SELECT * FROM target") == [("1", "1", "first")]


def test_copy_inside_a_transaction_can_be_rolled_back(data: Pair, target: str) -> None:
    with data.transaction("COMMIT"):
        data.copy("COPY target FROM STDIN", "5\t5\tstays\n")
        data.execute("SAVEPOINT s")
        data.copy("COPY target FROM STDIN", "6\t6\tgoes\n7\t7\tgoes\n")
        data.same("SELECT * FROM target")
        data.execute("ROLLBACK TO s")
        data.same("SELECT * FROM target")
    data.same("SELECT * FROM target")


def test_copy_out_of_a_distributed_table_and_of_a_query(data: Pair, target: str) -> None:
    data.execute("INSERT INTO target SELECT g, g, 'r' FROM generate_series(2, 500) AS g")
    outputs = []
    for connection in (data.ours, data.theirs):
        lines: list[bytes] = []
        for command in (
            "COPY target TO STDOUT",
            "COPY target (t, k) TO STDOUT (FORMAT csv)",
            "COPY (SELECT v % 3, count(*) FROM target GROUP BY 1) TO STDOUT",
        ):
            with connection.cursor().copy(command) as copy:
                lines += b"".join(bytes(chunk) for chunk in copy).splitlines()
        outputs.append(sorted(lines))
    assert outputs[0] == outputs[1]


# ---- TRUNCATE, DROP --------------------------------------------------------------------------------


def test_truncate_empties_the_table_on_all_workers(data: Pair) -> None:
    with data.transaction():
        data.execute("TRUNCATE users, events")
        data.all_same(["SELECT count(*) FROM users", "SELECT count(*) FROM events"])
    data.same("SELECT count(*) FROM users")
    data.execute("CREATE TABLE short_lived (k integer, v serial)")
    data.distribute("short_lived", "k")
    data.execute("INSERT INTO short_lived SELECT g FROM generate_series(1, 100) AS g")
    data.execute("TRUNCATE short_lived RESTART IDENTITY")
    assert data.on_workers("SELECT count(*) FROM short_lived") == [0] * len(data.cluster.workers)
    data.same("INSERT INTO short_lived VALUES (1) RETURNING v")
    data.execute("DROP TABLE short_lived")


def test_drop_removes_the_table_everywhere(data: Pair) -> None:
    data.execute("CREATE TABLE dropped (k integer PRIMARY KEY)")
    data.distribute("dropped", "k")
    exists = "SELECT count(*) FROM pg_class WHERE relname ~ '^dropped' AND relkind IN ('r', 'p')"
    assert all(count > 0 for count in data.on_workers(exists))
    with data.transaction("ROLLBACK"):
        data.execute("DROP TABLE dropped")
    data.same("SELECT count(*) FROM dropped")
    data.execute("DROP TABLE dropped")
    assert data.on_workers(exists) == [0] * len(data.cluster.workers)
    assert data.rows("SELECT * FROM strata.tables WHERE relation::text LIKE '%dropped%'") == []
    data.execute("CREATE TABLE dropped (k integer PRIMARY KEY, again text)")
    data.distribute("dropped", "k")
    data.same("INSERT INTO dropped VALUES (1, 'x') RETURNING *")
    data.execute("DROP TABLE dropped")


def test_drop_schema_cascade_removes_distributed_tables_everywhere(data: Pair) -> None:
    data.execute("CREATE SCHEMA passing; CREATE TABLE passing.t (k integer)")
    data.ours.execute("SELECT strata.create_distributed_table('passing.t', 'k')")
    data.execute("INSERT INTO passing.t VALUES (1), (2); DROP SCHEMA passing CASCADE")
    assert data.on_workers("SELECT to_regclass('passing.t')::text") == [None] * len(
        data.cluster.workers
    )
    assert (
        data.rows("SELECT * FROM strata.distributed_table WHERE relation::text LIKE 'passing%'")
        == []
    )


# ---- reference tables ------------------------------------------------------------------------------


def test_every_copy_of_a_reference_table_is_equal_after_any_write(data: Pair) -> None:
    data.execute(
        "CREATE TABLE rates (id serial PRIMARY KEY, rate numeric, at timestamptz DEFAULT now())"
    )
    data.reference("rates")
    data.execute("INSERT INTO rates (rate) SELECT random() FROM generate_series(1, 200)")
    data.execute("INSERT INTO rates (rate) VALUES (1.5), (random())")
    data.copy("COPY rates (rate) FROM STDIN", "7\n8\n")
    data.execute("UPDATE rates SET rate = rate + 1, at = clock_timestamp() WHERE id % 3 = 0")
    data.execute("DELETE FROM rates WHERE id % 7 = 0")
    data.execute("INSERT INTO rates VALUES (1, 1) ON CONFLICT (id) DO UPDATE SET rate = 99")
    digest = "SELECT md5(string_agg(r::text, '|' ORDER BY id)) FROM rates AS r"
    ((ours,),) = data.rows(digest)
    assert data.on_workers(digest) == [ours] * len(data.cluster.workers)
    with data.ours.transaction(force_rollback=True):
        data.ours.execute("TRUNCATE rates")
        assert data.rows("SELECT count(*) FROM rates JOIN users ON id = user_id") == [(0,)]
    assert data.on_workers(digest) == [ours] * len(data.cluster.workers)
    data.execute("DROP TABLE rates")


def test_writes_to_a_reference_table_are_seen_by_joins_of_the_same_transaction(data: Pair) -> None:
    with data.transaction():
        data.execute("UPDATE countries SET name = 'changed' WHERE code = 'AT'")
        data.execute("INSERT INTO countries VALUES ('XX', 'nowhere')")
        data.same(
            "SELECT c.name, count(*) FROM users u JOIN countries c ON c.code = u.country GROUP BY 1"
        )
        data.execute("DELETE FROM countries")
        data.same("SELECT count(*) FROM users u JOIN countries c ON c.code = u.country")
    data.same(
        "SELECT c.name, count(*) FROM users u JOIN countries c ON c.code = u.country GROUP BY 1"
    )


# ---- constraints and triggers ----------------------------------------------------------------------


def test_foreign_keys_between_colocated_and_reference_tables_are_enforced(data: Pair) -> None:
    data.execute(
        "CREATE TABLE parents (k integer PRIMARY KEY);"
        "CREATE TABLE children (k integer, n integer, code text REFERENCES countries)"
    )
    data.distribute("parents", "k")
    data.distribute("children", "k", colocate_with="parents")
    data.execute(
        "ALTER TABLE children ADD CONSTRAINT of_parent FOREIGN KEY (k) REFERENCES parents"
        " ON DELETE CASCADE"
    )
    data.all_same(
        [
            "INSERT INTO parents SELECT generate_series(1, 20)",
            "INSERT INTO children SELECT g, g, 'AT' FROM generate_series(1, 20) AS g",
            "INSERT INTO children VALUES (99, 1, 'AT')",
            "INSERT INTO children VALUES (9, 1, '??')",
            "DELETE FROM parents WHERE k > 10",
            "SELECT * FROM children",
            "UPDATE children SET code = 'nope' WHERE k = 3",
        ]
    )
    data.execute("DROP TABLE children, parents")


def test_before_row_triggers_see_and_change_rows_on_insert(data: Pair) -> None:
    data.execute(
        "CREATE TABLE watched (k integer, t text);"
        "CREATE FUNCTION mark () RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN IF NEW.k = 13 THEN RETURN NULL; END IF; NEW.t := NEW.t || ' marked'; RETURN NEW; END $$"
    )
    data.distribute("watched", "k")
    data.execute(
        "CREATE TRIGGER mark BEFORE INSERT ON watched FOR EACH ROW EXECUTE FUNCTION mark()"
    )
    data.same("INSERT INTO watched SELECT g, 'row' FROM generate_series(10, 15) AS g RETURNING *")
    data.copy("COPY watched FROM STDIN", "13\tx\n14\ty\n")
    data.same("SELECT * FROM watched")
    data.execute("DROP TABLE watched; DROP FUNCTION mark")


@pytest.mark.parametrize(
    ("columns", "values"),
    [
        ("id, b, a", "id, b, a"),
        ("b, id", "b, id"),
        ("id, a, note", "id, 5, 'literal'"),
        ("note, id, a", "'literal', id, b"),
        ("id", "id"),
        ("id, b", "id, 90000"),
        ("b, a, id, note", "DISTINCT b::integer, a::smallint, id, note"),
    ],
)
@pytest.mark.parametrize("conflict", ["", "ON CONFLICT (id) DO UPDATE SET a = excluded.b"])
def test_insert_select_puts_each_value_into_its_column(
    data: Pair, columns: str, values: str, conflict: str
) -> None:
    """The SELECT is where the rows are, so the whole statement may run there as a text."""
    columns_sql = (
        "(id integer PRIMARY KEY, a integer DEFAULT 7, b bigint, note text DEFAULT 'none')"
    )
    data.execute(f"CREATE TABLE given {columns_sql}; CREATE TABLE taken {columns_sql}")
    try:
        data.distribute("given", "id")
        data.distribute("taken", "id")
        data.execute(
            "INSERT INTO given SELECT g, g + 100, g + 1000, 'x' FROM generate_series(1, 20) g"
        )
        if conflict:
            data.execute("INSERT INTO taken SELECT g FROM generate_series(1, 3) g")
        data.execute(f"INSERT INTO taken ({columns}) SELECT {values} FROM given {conflict}")
        assert data.same("SELECT * FROM taken")
    finally:
        data.execute("DROP TABLE given, taken")
