"""What PostgreSQL 18 brought to INSERT, UPDATE, DELETE, MERGE and COPY does the same on distributed tables."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from tests import shop
from tests.cluster import Cluster
from tests.pair import Pair, open_pair

pytestmark = pytest.mark.since(18)


@pytest.fixture(scope="module")
def pair(cluster: Cluster) -> Iterator[Pair]:
    with open_pair(cluster, "test_18_writes") as made:
        shop.create(made)
        yield made


# ---- RETURNING old and new ---------------------------------------------------------------------------

RETURNING = {
    "UPDATE": "UPDATE users SET age = age + 1 WHERE user_id < 30 RETURNING user_id, old.age, new.age",
    "UPDATE of one row": "UPDATE users SET age = 99 WHERE user_id = 7 RETURNING old.age, new.age, new.age - old.age",
    "UPDATE that says all of both": "UPDATE users SET name = 'n' WHERE user_id < 9 RETURNING old.*, new.*",
    "UPDATE with whole rows": "UPDATE users SET name = 'n' WHERE user_id < 9 RETURNING old, new",
    "UPDATE with other names": "UPDATE users SET age = 5 WHERE user_id < 9 RETURNING WITH (OLD AS o, NEW AS n) o.age, n.age, o.user_id = n.user_id",
    "UPDATE with a join": "UPDATE users u SET age = e.n FROM (SELECT user_id, count(*)::integer AS n FROM events GROUP BY user_id) e"
    " WHERE e.user_id = u.user_id RETURNING u.user_id, old.age, new.age, e.n",
    "UPDATE with an alias": "UPDATE users AS x SET balance = balance * 2 WHERE country = 'AT' RETURNING x.balance, old.balance, new.balance",
    "UPDATE of a reference table": "UPDATE kinds SET weight = weight + 1 RETURNING kind_id, old.weight, new.weight",
    "DELETE": "DELETE FROM users WHERE user_id < 30 RETURNING old.user_id, new.user_id, old.name",
    "DELETE of one row": "DELETE FROM users WHERE user_id = 7 RETURNING old.*, new.*",
    "DELETE with USING": "DELETE FROM users u USING countries c WHERE c.code = u.country AND c.continent = 'Asia' RETURNING old.user_id, new.user_id IS NULL, c.name",
    "DELETE of a reference table": "DELETE FROM kinds WHERE kind_id > 4 RETURNING old.kind, new.kind",
    "INSERT": "INSERT INTO users (user_id, name) VALUES (1001, 'a'), (1002, 'b') RETURNING old.user_id, new.user_id, new.name",
    "INSERT of whole rows": "INSERT INTO users (user_id, name) VALUES (1001, 'a') RETURNING old, new",
    "INSERT of a SELECT": "INSERT INTO users (user_id, name) SELECT user_id + 2000, name FROM users WHERE user_id < 20 RETURNING old.user_id, new.user_id",
    "INSERT into a reference table": "INSERT INTO kinds VALUES (77, 'k', 1) RETURNING old.kind, new.kind",
    "INSERT that updates": "INSERT INTO users (user_id, name) VALUES (7, 'seven'), (1007, 'other')"
    " ON CONFLICT (user_id) DO UPDATE SET name = excluded.name, age = users.age + 1 RETURNING old.name, new.name, old.age, new.age, user_id",
    "INSERT that does nothing": "INSERT INTO users (user_id, name) VALUES (7, 'seven'), (1007, 'other')"
    " ON CONFLICT DO NOTHING RETURNING old.name, new.name",
    "INSERT that tells what it did": "INSERT INTO users (user_id, name) VALUES (7, 'seven'), (1007, 'other')"
    " ON CONFLICT (user_id) DO UPDATE SET name = excluded.name RETURNING old.user_id IS NULL AS inserted, new.*",
    "upsert of a reference table": "INSERT INTO kinds VALUES (1, 'first', 1), (99, 'new', 2) ON CONFLICT (kind_id) DO UPDATE"
    " SET weight = excluded.weight RETURNING old.weight, new.weight",
    "MERGE": """MERGE INTO users u USING (SELECT user_id, count(*)::integer AS n FROM events GROUP BY user_id) e ON u.user_id = e.user_id
        WHEN MATCHED AND n > 9 THEN UPDATE SET age = n
        WHEN MATCHED THEN DELETE
        RETURNING merge_action(), old.age, new.age, old.user_id""",
    "MERGE that inserts": """MERGE INTO users u USING (SELECT DISTINCT user_id FROM events) e ON u.user_id = e.user_id
        WHEN NOT MATCHED THEN INSERT (user_id, name) VALUES (e.user_id, 'new')
        WHEN MATCHED THEN UPDATE SET name = 'old'
        RETURNING merge_action(), old.name, new.name, new.user_id""",
    "MERGE of one key": """MERGE INTO users u USING (VALUES (7, 99), (7000, 1)) AS s (id, a) ON u.user_id = s.id
        WHEN MATCHED THEN UPDATE SET age = s.a RETURNING old, new""",
    "in a WITH": "WITH changed AS (UPDATE users SET age = age * 2 WHERE user_id < 20 RETURNING user_id, old.age AS before, new.age AS after)"
    " SELECT sum(after - before), count(*) FROM changed",
    "an expression of both": "UPDATE users SET country = 'AT' WHERE user_id < 50 RETURNING coalesce(old.country, '-') || '>' || new.country",
    "a sub-select": "UPDATE users SET country = 'AT' WHERE user_id < 50 RETURNING user_id, (SELECT name FROM countries WHERE code = old.country)",
    "system columns": "UPDATE users SET age = 3 WHERE user_id = 9 RETURNING old.tableoid = new.tableoid",
}  # fmt: skip


@pytest.mark.parametrize("statement", RETURNING.values(), ids=RETURNING)
def test_returning_tells_rows_before_and_after(pair: Pair, statement: str) -> None:
    with pair.transaction():
        pair.same(statement)
        pair.same("SELECT * FROM users")
        pair.same("SELECT * FROM kinds")


VIEWS = [
    "UPDATE doubled SET age = 3 WHERE user_id < 9 RETURNING old.twice, new.twice, old.one",
    "INSERT INTO doubled (user_id, name, age) VALUES (3001, 'v', 4) RETURNING old.twice, old.one, new.twice, new.one",
    "INSERT INTO doubled (user_id, name, age) VALUES (7, 'v', 4), (3002, 'w', 5) ON CONFLICT (user_id) DO UPDATE SET age = 1"
    " RETURNING old.twice, old.one, new.twice, new.one",
    "DELETE FROM doubled WHERE user_id < 5 RETURNING old.twice, new.twice, new.one",
    """MERGE INTO doubled d USING (VALUES (7), (8)) AS s (id) ON d.user_id = s.id
        WHEN MATCHED AND s.id = 7 THEN UPDATE SET age = 1 WHEN MATCHED THEN DELETE
        RETURNING merge_action(), old.twice, new.twice, new.one""",
]  # fmt: skip


@pytest.mark.parametrize("statement", VIEWS)
def test_returning_of_a_view_means_its_expressions(pair: Pair, statement: str) -> None:
    pair.execute(
        "CREATE OR REPLACE VIEW doubled AS SELECT user_id, name, age, age * 2 AS twice, 1 AS one FROM users"
    )
    with pair.transaction():
        pair.same(statement)
        pair.same("SELECT * FROM users")


def test_triggers_are_seen_in_the_new_row(pair: Pair) -> None:
    pair.execute(
        "CREATE TABLE watched (id integer PRIMARY KEY, v integer);"
        "CREATE FUNCTION more() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN NEW.v := NEW.v + 100; RETURN NEW; END $$"
    )
    pair.distribute("watched", "id")
    pair.execute(
        "CREATE TRIGGER more BEFORE INSERT ON watched FOR EACH ROW EXECUTE FUNCTION more()"
    )
    pair.same("INSERT INTO watched VALUES (1, 1), (2, 2) RETURNING old.v, new.v")


# ---- COPY ---------------------------------------------------------------------------------------------


def test_copy_gives_up_after_so_many_bad_rows(pair: Pair) -> None:
    pair.execute("CREATE TABLE loaded (id integer, v integer)")
    pair.distribute("loaded", "id")
    command = (
        "COPY loaded FROM STDIN (FORMAT csv, ON_ERROR ignore, REJECT_LIMIT 2, LOG_VERBOSITY silent)"
    )
    pair.copy(command, "1,10\nx,20\n3,y\n4,40\n")
    pair.same("SELECT * FROM loaded")
    for connection in (pair.theirs, pair.ours):
        with pytest.raises(
            psycopg.errors.InvalidTextRepresentation, match="more than REJECT_LIMIT"
        ):
            with connection.cursor().copy(command) as copy:
                copy.write("x,1\ny,1\nz,1\n5,5\n")
    pair.same("SELECT * FROM loaded")


def test_copy_writes_what_a_view_shows(pair: Pair) -> None:
    pair.execute("CREATE MATERIALIZED VIEW grown AS SELECT user_id, age FROM users WHERE age > 60")
    copied = []
    for connection in (pair.theirs, pair.ours):
        with connection.cursor().copy("COPY grown TO STDOUT") as copy:
            copied.append(sorted(bytes(row) for row in copy))
    assert copied[0] == copied[1]
    assert copied[0]


def test_a_csv_line_of_a_backslash_and_a_dot_is_data(pair: Pair) -> None:
    pair.execute("CREATE TABLE dots (id integer, v text)")
    pair.distribute("dots", "id")
    pair.copy("COPY dots FROM STDIN (FORMAT csv)", '1,a\n2,\\.\n3,"\n\\.\n"\n')
    pair.same("SELECT * FROM dots")
