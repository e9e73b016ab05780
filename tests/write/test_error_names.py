"""A violated constraint is reported in the table's names, as from one PostgreSQL, not a shard's."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from tests.cluster import Cluster
from tests.pair import Pair, open_pair


@pytest.fixture(scope="module")
def pair(cluster: Cluster) -> Iterator[Pair]:
    with open_pair(cluster, "test_error_names") as made:
        made.execute(
            "CREATE TABLE person (id integer PRIMARY KEY, name text NOT NULL, mail text,"
            "  age integer CONSTRAINT grown CHECK (age >= 18),"
            "  CONSTRAINT one_mail UNIQUE (mail, id));"
            'CREATE UNIQUE INDEX "Lower ""name""" ON person (id, lower(name));'
            "CREATE TABLE city (id integer PRIMARY KEY);"
            "CREATE TABLE visit (id integer, n integer, city integer REFERENCES city,"
            "  PRIMARY KEY (id, n));"
            "CREATE TABLE late (id integer UNIQUE DEFERRABLE INITIALLY DEFERRED);"
            "CREATE TABLE person_s0 (id integer PRIMARY KEY);"
            "CREATE TABLE pass (id integer PRIMARY KEY, mail text, UNIQUE (mail, id));"
            "CREATE TABLE stamp (id integer, day date, PRIMARY KEY (id, day));"
            "CREATE TABLE mark (id integer, day date, n integer, PRIMARY KEY (id, day))"
        )
        made.distribute("person", "id", shards=4)
        made.reference("city")
        made.distribute("visit", "id", colocate_with="person")
        made.distribute("late", "id", shards=4)
        made.distribute("pass", "id", colocate_with="person")
        for table in ("stamp", "mark"):
            made.ours.execute(
                "SELECT create_distributed_table(%s, 'id', colocate_with => 'person',"
                " partition_by => 'day', partition_interval => '1 month')",
                (table,),
            )
        made.execute(
            "ALTER TABLE visit ADD CONSTRAINT visitor FOREIGN KEY (id) REFERENCES person;"
            "INSERT INTO person SELECT g, 'n', 'm', 20 FROM generate_series(1, 20) g;"
            "INSERT INTO visit (id, n) SELECT g, 1 FROM generate_series(1, 20) g;"
            "INSERT INTO late VALUES (1)"
        )
        yield made


def fields_of(error: psycopg.Error) -> dict[str, str | None]:
    fields = ["sqlstate", "message_primary", "message_detail"]
    fields += ["schema_name", "table_name", "column_name", "constraint_name"]
    return {field: getattr(error.diag, field) for field in fields}


def failure(connection: psycopg.Connection, statement: str) -> dict[str, str | None]:
    with pytest.raises(psycopg.Error) as caught:
        with connection.transaction():
            connection.execute(statement)
    return fields_of(caught.value)


def outcome(connection: psycopg.Connection, statement: str) -> dict[str, str | None] | None:
    """The failure, or None; nothing is left behind."""
    try:
        with connection.transaction(force_rollback=True):
            connection.execute(statement)
    except psycopg.Error as error:
        return fields_of(error)
    return None


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO person VALUES (3, 'n', 'm', 20)",
        "INSERT INTO person SELECT g, 'n', 'm', 20 FROM generate_series(7, 7) g",
        "INSERT INTO person VALUES (30, NULL)",
        "INSERT INTO person VALUES (30, 'n', 'm', 3)",
        "UPDATE person SET age = 3 WHERE id = 8",
        "INSERT INTO visit (id, n) VALUES (99, 1)",
        "INSERT INTO visit (id, n) VALUES (5, 1)",
        "INSERT INTO visit (id, n, city) VALUES (5, 2, 7)",
        "DELETE FROM person WHERE id = 4",
        "INSERT INTO late VALUES (1)",
        "INSERT INTO late VALUES (2), (2)",
        "INSERT INTO person_s0 VALUES (1), (1)",
    ],
)
def test_a_violation_names_what_the_user_knows(pair: Pair, statement: str) -> None:
    assert failure(pair.ours, statement) == failure(pair.theirs, statement)


@pytest.mark.parametrize(
    ("dropped", "constraint", "statement"),
    [
        ("person_pkey CASCADE", "one_mail", "INSERT INTO person VALUES (3, 'x', 'm', 20)"),
        (
            "person_pkey CASCADE, DROP CONSTRAINT one_mail",
            'Lower "name"',
            "INSERT INTO person VALUES (3, 'N', 'm', 20)",
        ),
    ],
)
def test_each_unique_index_is_told_by_its_columns(
    pair: Pair, dropped: str, constraint: str, statement: str
) -> None:
    with pair.transaction():
        pair.execute(f"ALTER TABLE person DROP CONSTRAINT {dropped}")
        expected = failure(pair.theirs, statement)
        assert expected["constraint_name"] == constraint
        assert failure(pair.ours, statement) == expected


def test_renamed_names_are_used(pair: Pair) -> None:
    with pair.transaction():
        pair.execute(
            "ALTER TABLE person RENAME COLUMN id TO number;"
            "ALTER INDEX person_pkey RENAME TO numbers;"
            "ALTER TABLE person RENAME TO people"
        )
        statement = "INSERT INTO people VALUES (3, 'x', 'y', 20)"
        expected = failure(pair.theirs, statement)
        assert expected["constraint_name"] == "numbers"
        assert failure(pair.ours, statement) == expected


def test_an_exception_block_can_tell_which_constraint_it_was(pair: Pair) -> None:
    pair.execute(
        "CREATE FUNCTION which(n integer) RETURNS text LANGUAGE plpgsql AS $$"
        " DECLARE name text; BEGIN INSERT INTO person VALUES (n, 'n', 'm', 20); RETURN 'none';"
        " EXCEPTION WHEN unique_violation THEN"
        " GET STACKED DIAGNOSTICS name = CONSTRAINT_NAME; RETURN name; END $$"
    )
    assert pair.same("SELECT which(11)") == [("person_pkey",)]


def test_indexes_of_the_same_columns_are_told_apart(pair: Pair) -> None:
    with pair.transaction():
        pair.execute(
            "CREATE UNIQUE INDEX again ON late (id) WHERE id > 10;"
            "ALTER TABLE person ADD CONSTRAINT same UNIQUE (id), ADD CONSTRAINT third UNIQUE (id);"
            "ALTER TABLE person DROP CONSTRAINT person_pkey CASCADE"
        )
        for statement in (
            "INSERT INTO late VALUES (11), (11)",
            "INSERT INTO late VALUES (3), (3); SET CONSTRAINTS ALL IMMEDIATE",
            "INSERT INTO person VALUES (3, 'o', 'o', 20)",
            "UPDATE person SET id = 4 WHERE id = 4 AND false; INSERT INTO person VALUES (4)",
        ):
            assert failure(pair.ours, statement) == failure(pair.theirs, statement)


FOREIGN = (
    "INSERT INTO pass VALUES (99)",
    "UPDATE pass SET mail = 'other' WHERE id = 40",
    "UPDATE person SET mail = 'other' WHERE id = 40",
    "DELETE FROM person WHERE id = 40",
    "DELETE FROM person; SET CONSTRAINTS ALL IMMEDIATE",
    "DELETE FROM person WHERE mail = 'only'",
    "DELETE FROM pass WHERE id = 40",
    "INSERT INTO mark VALUES (40, '2026-02-03')",
    "INSERT INTO mark VALUES (40, '2031-02-03')",
    "DELETE FROM stamp WHERE id = 40",
    "DELETE FROM stamp; SET CONSTRAINTS ALL IMMEDIATE",
)


@pytest.mark.parametrize(
    "keys",
    [
        ["pass ADD CONSTRAINT whose FOREIGN KEY (id) REFERENCES person"],
        [
            "pass ADD CONSTRAINT whose FOREIGN KEY (id) REFERENCES person ON DELETE RESTRICT",
            "pass ADD CONSTRAINT again FOREIGN KEY (id) REFERENCES person ON DELETE CASCADE",
        ],
        [
            'pass ADD CONSTRAINT "Last ""one""" FOREIGN KEY (id) REFERENCES person',
            'pass ADD CONSTRAINT "Again" FOREIGN KEY (id) REFERENCES person',
        ],
        [
            "pass ADD CONSTRAINT whose FOREIGN KEY (id) REFERENCES person ON DELETE CASCADE",
            "pass ADD CONSTRAINT mail FOREIGN KEY (mail, id) REFERENCES person (mail, id)",
        ],
        [
            "pass ADD CONSTRAINT whose FOREIGN KEY (id) REFERENCES person DEFERRABLE INITIALLY DEFERRED",
            "visit ADD CONSTRAINT with_pass FOREIGN KEY (id) REFERENCES pass",
            "mark ADD CONSTRAINT on_pass FOREIGN KEY (id) REFERENCES pass",
        ],
        [
            "mark ADD CONSTRAINT of_stamp FOREIGN KEY (id, day) REFERENCES stamp",
            "mark ADD CONSTRAINT again FOREIGN KEY (id, day) REFERENCES stamp ON DELETE CASCADE",
        ],
        [
            "mark ADD CONSTRAINT of_stamp FOREIGN KEY (id, day) REFERENCES stamp",
            "stamp ADD CONSTRAINT of_person FOREIGN KEY (id) REFERENCES person",
        ],
    ],
)  # fmt: skip
def test_a_foreign_key_is_told_from_each_side(pair: Pair, keys: list[str]) -> None:
    """Also where a unique index, or another foreign key, has the same columns."""
    with pair.transaction():
        pair.execute(
            "INSERT INTO person VALUES (40, 'n', 'only', 20); INSERT INTO pass VALUES (40, 'only');"
            "DELETE FROM visit; INSERT INTO visit VALUES (40, 1); INSERT INTO stamp VALUES (40, '2026-01-03');"
            "INSERT INTO mark VALUES (40, '2026-01-03');"
            "ALTER TABLE visit DROP CONSTRAINT visitor"
        )
        for key in keys:
            pair.execute(f"ALTER TABLE {key}")
        failed = 0
        for statement in FOREIGN:
            ours, theirs = outcome(pair.ours, statement), outcome(pair.theirs, statement)
            assert ours == theirs
            failed += theirs is not None
        assert failed > 1


def test_workers_that_log_no_errors_leave_the_names_to_the_columns(pair: Pair) -> None:
    """A worker finds the names when it logs the error."""
    workers = pair.cluster.workers
    for worker in workers:
        worker.execute("ALTER DATABASE strata SET log_min_messages = fatal")
    try:
        with pair.cluster.coordinator.connect() as ours, pair.transaction():
            pair.theirs.execute(
                "ALTER TABLE pass ADD CONSTRAINT whose FOREIGN KEY (id) REFERENCES person"
            )
            ours.execute("SET search_path = test_error_names; BEGIN")
            ours.execute("ALTER TABLE pass ADD CONSTRAINT whose FOREIGN KEY (id) REFERENCES person")
            for connection in (ours, pair.theirs):
                connection.execute("DELETE FROM visit; INSERT INTO pass VALUES (3)")
            for statement in ("DELETE FROM person WHERE id = 3", "INSERT INTO pass VALUES (3)"):
                assert outcome(ours, statement) == outcome(pair.theirs, statement) is not None
            ours.execute("ROLLBACK")
    finally:
        for worker in workers:
            worker.execute("ALTER DATABASE strata RESET log_min_messages")


def test_users_who_own_nothing_get_the_table_s_names(pair: Pair) -> None:
    """A worker, where nothing is granted to them, shows them no key; the name does not depend on it."""
    pair.execute("CREATE ROLE name_reader")
    try:
        with pair.transaction():
            pair.execute(
                "GRANT USAGE ON SCHEMA test_error_names TO name_reader;"
                "GRANT SELECT, INSERT, UPDATE ON person, visit, late TO name_reader;"
                "CREATE UNIQUE INDEX again ON late (id) WHERE id > 10; SET ROLE name_reader"
            )
            for statement in (
                "INSERT INTO person VALUES (3, 'o', 'o', 20)",
                "INSERT INTO person SELECT g, 'o', 'o', 20 FROM generate_series(100, 1, -1) AS g",
                "UPDATE visit SET n = 1 WHERE id = 3 RETURNING n / 0",
                "INSERT INTO visit VALUES (5, 1)",
                "INSERT INTO late VALUES (11), (11)",
                "INSERT INTO late VALUES (3), (3); SET CONSTRAINTS ALL IMMEDIATE",
                "DO $$BEGIN RAISE unique_violation USING SCHEMA = 'test_error_names',"
                " CONSTRAINT = 'person_pkey', MESSAGE = 'mine'; END$$",
            ):
                ours = failure(pair.ours, statement)
                theirs = failure(pair.theirs, statement)
                ours["message_detail"] = theirs["message_detail"] = None
                assert ours == theirs
    finally:
        pair.execute("DROP ROLE name_reader")
