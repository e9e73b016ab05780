"""Triggers of distributed tables: they fire on the coordinator, for what is written through it."""

from __future__ import annotations

import psycopg
import pytest

from tests.pair import Pair, open_pair

LOG = """
CREATE TABLE log (n serial, what text);
CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO log (what) VALUES (format('%s %s %s %s %s', tg_name, tg_when, tg_op,
        CASE WHEN tg_op <> 'INSERT' AND tg_level = 'ROW' THEN old::text END,
        CASE WHEN tg_op <> 'DELETE' AND tg_level = 'ROW' THEN new::text END));
    IF tg_when = 'BEFORE' AND tg_level = 'ROW' AND tg_op <> 'DELETE' THEN
        new.note := coalesce(new.note, '') || '+';
    END IF;
    RETURN CASE WHEN tg_op = 'DELETE' THEN old ELSE new END;
END $$;
"""


def make_table(pair: Pair, storage: str, columns: str = "", constraints: str = "") -> None:
    pair.execute(LOG)
    pair.execute(
        f"CREATE TABLE item (id int, dropped int, v int, note text, amount numeric(10, 2){columns}"
        f"{constraints}); ALTER TABLE item DROP COLUMN dropped"
    )
    pair.distribute("item", "id", storage=storage)


def everything(pair: Pair) -> None:
    pair.same("SELECT * FROM item")
    pair.same("SELECT what FROM log")


@pytest.fixture
def pair(cluster):
    with open_pair(cluster, "test_triggers") as made:
        yield made


@pytest.fixture(params=["heap", "columnar"])
def storage(request) -> str:
    return request.param


def fire_on(events: str, timing: str, level: str = "ROW", name: str | None = None) -> str:
    name = name or f"{timing}_{level}".lower()
    return (
        f"CREATE TRIGGER {name} {timing} {events} ON item FOR EACH {level} EXECUTE FUNCTION note()"
    )


STATEMENTS = [
    "INSERT INTO item SELECT g, g % 7, NULL, g * 1.5 FROM generate_series(1, 40) g",
    "UPDATE item SET v = v + 1, note = 'u' || note WHERE id % 3 = 0",
    "UPDATE item SET amount = amount / 3 WHERE id = 5 RETURNING *",
    "UPDATE item SET v = o.v FROM (VALUES (1, 100), (2, 200)) o (id, v) WHERE item.id = o.id"
    " RETURNING item.id, item.v, item.note, o.v",
    "UPDATE item SET v = v WHERE id = 6",
    "DELETE FROM item WHERE id IN (3, 4) RETURNING id, note",
    "DELETE FROM item WHERE v > 4 AND id < 20",
    "INSERT INTO item VALUES (50, 1, 'x', 1), (NULL, NULL, NULL, NULL) RETURNING *",
    "UPDATE item SET note = 'null key' WHERE id IS NULL",
    "UPDATE item SET v = (SELECT max(v) FROM item) WHERE id = 50",
    "UPDATE item SET (v, note) = (SELECT count(*), min(x.note) FROM item x WHERE x.id = item.id)"
    " WHERE id BETWEEN 20 AND 25",
    "UPDATE item SET v = floor(random() * 0)::int WHERE id = 30",
    "WITH gone AS (DELETE FROM item WHERE id = 31 RETURNING *) SELECT id, v, note FROM gone",
    "DELETE FROM item WHERE id = -1",
    "UPDATE item SET note = 'none' WHERE false",
]


@pytest.mark.parametrize("level", ["ROW", "STATEMENT"])
@pytest.mark.parametrize("timing", ["BEFORE", "AFTER"])
def test_each_timing(pair, storage, timing, level):
    make_table(pair, storage)
    pair.execute(fire_on("INSERT OR UPDATE OR DELETE", timing, level))
    for statement in STATEMENTS:
        pair.same(statement)
    everything(pair)


def test_triggers_made_before_the_table_is_distributed(pair, storage):
    """Its rows that exist are moved without firing them, also when it becomes local again."""
    pair.execute(LOG)
    pair.execute(
        "CREATE TABLE item (id int, v int, note text, amount numeric(10, 2));"
        "INSERT INTO item SELECT g, g FROM generate_series(1, 30) g"
    )
    pair.execute(fire_on("INSERT OR UPDATE OR DELETE", "AFTER"))
    pair.execute(fire_on("INSERT OR UPDATE OR DELETE", "BEFORE"))
    pair.distribute("item", "id", storage=storage)
    everything(pair)
    for statement in STATEMENTS:
        pair.same(statement)
    everything(pair)
    pair.ours.execute("SELECT strata.undistribute_table('item')")
    everything(pair)
    pair.same("UPDATE item SET v = 1 WHERE id = 2")
    everything(pair)


def test_transition_tables(pair, storage):
    make_table(pair, storage)
    pair.execute("""
        CREATE FUNCTION sums() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            IF tg_op = 'UPDATE' THEN
                INSERT INTO log (what) SELECT format('%s: %s %s', tg_op, sum(o.v), sum(n.v))
                    FROM old o FULL JOIN new n USING (id);
            ELSIF tg_op = 'DELETE' THEN
                INSERT INTO log (what) SELECT tg_op || string_agg(o::text, ' ' ORDER BY id) FROM old o;
            ELSE
                INSERT INTO log (what) SELECT tg_op || string_agg(n::text, ' ' ORDER BY id) FROM new n;
            END IF;
            RETURN NULL;
        END $$;
        CREATE TRIGGER i AFTER INSERT ON item REFERENCING NEW TABLE AS new EXECUTE FUNCTION sums();
        CREATE TRIGGER u AFTER UPDATE ON item REFERENCING OLD TABLE AS old NEW TABLE AS new
            EXECUTE FUNCTION sums();
        CREATE TRIGGER d AFTER DELETE ON item REFERENCING OLD TABLE AS old EXECUTE FUNCTION sums();
    """)
    for statement in STATEMENTS:
        pair.same(statement)
    everything(pair)


def test_conditions_and_columns(pair, storage):
    """WHEN, UPDATE OF, a trigger that leaves rows out, several in the order of their names."""
    make_table(pair, storage)
    pair.execute("""
        CREATE FUNCTION leave_out() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
        CREATE TRIGGER a BEFORE UPDATE ON item FOR EACH ROW WHEN (old.v = 3)
            EXECUTE FUNCTION leave_out();
        CREATE TRIGGER b BEFORE DELETE ON item FOR EACH ROW WHEN (old.id % 5 = 0)
            EXECUTE FUNCTION leave_out();
        CREATE TRIGGER c AFTER UPDATE OF note ON item FOR EACH ROW EXECUTE FUNCTION note();
        CREATE TRIGGER d AFTER UPDATE ON item FOR EACH ROW
            WHEN (old.amount IS DISTINCT FROM new.amount) EXECUTE FUNCTION note();
        CREATE TRIGGER e BEFORE UPDATE ON item FOR EACH ROW EXECUTE FUNCTION note();
        CREATE TRIGGER f AFTER DELETE ON item FOR EACH ROW EXECUTE FUNCTION note();
    """)
    for statement in STATEMENTS:
        pair.same(statement)
    everything(pair)
    pair.execute("ALTER TABLE item DISABLE TRIGGER e")
    for statement in STATEMENTS:
        pair.same(statement)
    everything(pair)


def test_copy_fires_after_row_triggers(pair, storage):
    make_table(pair, storage, ", twice int GENERATED ALWAYS AS (v * 2) STORED")
    pair.execute(fire_on("INSERT", "AFTER"))
    pair.copy(
        "COPY item (id, v, note) FROM STDIN",
        "".join(f"{i}\t{i * 3}\tx{i}\n" for i in range(300)),
    )
    everything(pair)


def test_rows_move(pair, storage):
    """By SET, and because a trigger gives rows another key."""
    make_table(pair, storage)
    pair.execute("""
        CREATE FUNCTION change_key() RETURNS trigger LANGUAGE plpgsql
            AS 'BEGIN new.id := new.id + 1000; RETURN new; END';
    """)
    pair.execute(fire_on("UPDATE OR DELETE", "AFTER"))
    pair.same(STATEMENTS[0])
    pair.same("UPDATE item SET id = id + 100 WHERE id < 10 RETURNING *")
    everything(pair)
    pair.execute(
        "CREATE TRIGGER k BEFORE UPDATE ON item FOR EACH ROW EXECUTE FUNCTION change_key()"
    )
    pair.same("UPDATE item SET v = 5 WHERE id BETWEEN 30 AND 40 RETURNING *")
    everything(pair)
    pair.same("DELETE FROM item WHERE id > 1000 RETURNING id")
    everything(pair)


def test_deferred_constraint_triggers(pair, storage):
    """They see the rows of their statements at the end of the transaction."""
    make_table(pair, storage)
    pair.execute("""
        CREATE CONSTRAINT TRIGGER late AFTER INSERT OR UPDATE OR DELETE ON item
            DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION note()
    """)
    with pair.transaction():
        for statement in STATEMENTS:
            pair.same(statement)
        pair.same("SAVEPOINT s")
        pair.same("UPDATE item SET v = -1")
        pair.same("ROLLBACK TO s")
        pair.same("SAVEPOINT t")
        pair.same("UPDATE item SET v = -2 WHERE id > 35")
        pair.same("RELEASE t")
        pair.same("SELECT count(*) FROM log")
        pair.same("SET CONSTRAINTS ALL IMMEDIATE")
        pair.same("SELECT what FROM log")
        pair.same("UPDATE item SET v = -3 WHERE id > 38")
    everything(pair)


def test_many_rows_go_to_a_file(pair):
    make_table(pair, "heap")
    pair.execute(fire_on("INSERT OR UPDATE", "AFTER") + "; SET work_mem = '64kB'")
    pair.same("INSERT INTO item SELECT g, g, repeat('x', g % 100) FROM generate_series(1, 5000) g")
    pair.same("UPDATE item SET v = v + 1, note = note || 'y'")
    pair.same("SELECT sum(v), count(DISTINCT note) FROM item")
    pair.same(
        "SELECT count(*), count(DISTINCT what), md5(string_agg(what, ' ' ORDER BY what)) FROM log"
    )


TREE = """
CREATE FUNCTION touch() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF tg_op = 'DELETE' THEN RETURN old; END IF;
    new.note := 'touched'; RETURN new;
END $$;
CREATE TRIGGER t BEFORE UPDATE OR DELETE ON item FOR EACH ROW EXECUTE FUNCTION touch();
"""


def test_checks_at_the_end_of_a_statement(pair, storage):
    """A foreign key to itself, a deferrable unique constraint: other rows of the statement count."""
    make_table(pair, storage, ", above int, UNIQUE (id, v) DEFERRABLE")
    pair.execute("ALTER TABLE item ADD PRIMARY KEY (id)")
    pair.execute("ALTER TABLE item ADD FOREIGN KEY (id) REFERENCES item DEFERRABLE")
    pair.execute(TREE)
    pair.execute("INSERT INTO item SELECT g, g FROM generate_series(1, 3000) g")
    pair.same("UPDATE item SET v = v + 1")
    pair.same("DELETE FROM item WHERE id > 10")
    pair.same("SELECT * FROM item")


def test_errors_are_those_of_postgresql(pair, storage):
    make_table(pair, storage, ", CHECK (v < 1000), PRIMARY KEY (id)")
    pair.execute(TREE)
    pair.execute("""
        CREATE TABLE part (id int, n int);
        CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql
            AS $$ BEGIN IF new.v = 7 THEN RAISE 'seven'; END IF; RETURN new; END $$;
        CREATE TRIGGER a AFTER UPDATE ON item FOR EACH ROW EXECUTE FUNCTION fail();
    """)
    pair.ours.execute(
        "SELECT strata.create_distributed_table('part', 'id', colocate_with => 'item')"
    )
    pair.execute(
        "ALTER TABLE part ADD CONSTRAINT part_id_fkey FOREIGN KEY (id) REFERENCES item (id)"
    )
    pair.execute(
        "INSERT INTO item SELECT g, g FROM generate_series(1, 20) g; INSERT INTO part VALUES (3, 1)"
    )
    for statement in (
        "UPDATE item SET v = 5000 WHERE id = 2",
        "DELETE FROM item WHERE id = 3",
        "DELETE FROM item",
        "UPDATE item SET v = 7 WHERE id > 10",
        "UPDATE item SET v = v / (v - 4)",
    ):
        pair.same(statement)
    pair.same("SELECT * FROM item")


def test_a_before_trigger_changes_the_row_itself(pair, storage):
    make_table(pair, storage)
    pair.execute("""
        CREATE FUNCTION meddle() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            IF pg_trigger_depth() = 1 THEN
                UPDATE item SET note = 'meddled' WHERE id = old.id;
            END IF;
            RETURN CASE WHEN tg_op = 'DELETE' THEN old ELSE new END;
        END $$;
    """)
    pair.execute("INSERT INTO item SELECT g, g FROM generate_series(1, 9) g")
    pair.execute(
        "CREATE TRIGGER m BEFORE UPDATE OR DELETE ON item FOR EACH ROW EXECUTE FUNCTION meddle()"
    )
    pair.same("UPDATE item SET v = 0 WHERE id = 4")
    pair.same("DELETE FROM item WHERE id = 4")
    pair.execute("DROP TRIGGER m ON item")
    pair.execute("CREATE TRIGGER m AFTER UPDATE ON item FOR EACH ROW EXECUTE FUNCTION meddle()")
    pair.same("UPDATE item SET v = 0 WHERE id < 6")
    pair.same("SELECT * FROM item")


def test_triggers_read_what_the_statement_has_done(pair, storage):
    make_table(pair, storage)
    pair.execute("""
        CREATE FUNCTION look() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            INSERT INTO log (what) SELECT format('%s %s %s', tg_when, count(*), sum(v)) FROM item;
            RETURN NULL;
        END $$;
        CREATE TRIGGER l AFTER INSERT OR UPDATE OR DELETE ON item EXECUTE FUNCTION look();
        CREATE TRIGGER r AFTER INSERT OR UPDATE OR DELETE ON item FOR EACH ROW EXECUTE FUNCTION look();
    """)
    for statement in STATEMENTS:
        pair.same(statement)
    everything(pair)


def test_actions_of_foreign_keys_are_refused(pair):
    """The workers do them, where no trigger is fired."""
    make_table(pair, "heap", ", UNIQUE (id)")
    pair.ours.execute("CREATE TABLE part (id int, n int)")
    pair.ours.execute(
        "SELECT strata.create_distributed_table('part', 'id', colocate_with => 'item')"
    )
    pair.ours.execute(
        "ALTER TABLE part ADD CONSTRAINT f FOREIGN KEY (id) REFERENCES item (id) ON DELETE CASCADE"
    )
    with pytest.raises(psycopg.errors.FeatureNotSupported, match='foreign key "f"'):
        pair.ours.execute("CREATE TRIGGER t AFTER DELETE ON part EXECUTE FUNCTION note()")
    pair.ours.execute("CREATE TRIGGER t AFTER UPDATE ON part EXECUTE FUNCTION note()")
    pair.ours.execute("ALTER TABLE part DROP CONSTRAINT f")
    with pytest.raises(psycopg.errors.FeatureNotSupported, match="is not fired"):
        pair.ours.execute(
            "CREATE TABLE known (n int PRIMARY KEY); SELECT strata.create_reference_table('known');"
            "ALTER TABLE part ADD FOREIGN KEY (n) REFERENCES known ON UPDATE CASCADE"
        )
    # a key to which a foreign key refers does not change
    pair.ours.execute(
        "ALTER TABLE part ADD FOREIGN KEY (id) REFERENCES item (id) ON DELETE CASCADE ON UPDATE CASCADE"
    )
    with pytest.raises(psycopg.errors.FeatureNotSupported, match="distribution key"):
        pair.ours.execute("UPDATE item SET id = id + 1")


def test_policies_and_views(pair, storage):
    """New rows are checked as triggers leave them; RETURNING shows those."""
    make_table(pair, storage)
    pair.execute(fire_on("INSERT OR UPDATE OR DELETE", "BEFORE"))
    pair.same(STATEMENTS[0])
    pair.execute("""
        CREATE VIEW small AS SELECT * FROM item WHERE v < 4 WITH CHECK OPTION;
        CREATE VIEW plus AS SELECT * FROM item WHERE note IS NULL OR note NOT LIKE '%++' WITH CHECK OPTION;
    """)
    pair.same("UPDATE small SET v = v + 1 WHERE id < 3 RETURNING *")
    pair.same("UPDATE small SET v = 9 WHERE id < 3")
    pair.same("UPDATE plus SET v = 1 WHERE id = 7")
    pair.same("DELETE FROM small WHERE id = 1 RETURNING id, note")
    everything(pair)
