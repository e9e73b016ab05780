"""UPDATE, DELETE and MERGE whose rows the workers cannot bring together: core does, over rows that they have locked."""

from __future__ import annotations

import psycopg
import pytest

from tests.installation import server_major
from tests.pair import Pair, open_pair

SETUP = """
CREATE TABLE item (id int PRIMARY KEY, dropped int, v int, note text, twice int GENERATED ALWAYS AS (v * 2) STORED);
ALTER TABLE item DROP COLUMN dropped;
CREATE TABLE sale (sale int, item int, amount numeric(10, 2));
CREATE TABLE staging (id int, v int, note text);
INSERT INTO item SELECT g, g % 50, repeat('n', g % 5) FROM generate_series(1, 300) g;
INSERT INTO sale SELECT g, (g * 7) % 400, g * 1.5 FROM generate_series(1, 200) g;
INSERT INTO staging SELECT g * 5, g, 'staged' FROM generate_series(1, 80) g;
CREATE FUNCTION doubled(int) RETURNS int LANGUAGE plpgsql VOLATILE AS 'BEGIN RETURN $1 * 2; END';
CREATE FUNCTION greatest_v() RETURNS int LANGUAGE sql VOLATILE AS 'SELECT max(v) FROM item';
CREATE SEQUENCE numbers;
"""

STATEMENTS = {
    "a volatile new value": "UPDATE item SET v = doubled(v) WHERE id < 9 RETURNING *",
    "numbers of a sequence": "UPDATE item SET v = nextval('numbers') WHERE id = 7 RETURNING v",
    "a value that reads what was changed before": "UPDATE item SET v = greatest_v() + 1 WHERE id = 105",
    "a volatile condition": "DELETE FROM item WHERE doubled(id) BETWEEN 20 AND 80",
    "a volatile RETURNING": "DELETE FROM item WHERE id < 9 RETURNING doubled(v), note",
    "a local table": "UPDATE item SET v = s.v, note = s.note FROM staging s WHERE s.id = item.id RETURNING item.*, s",
    "a local table, not by the key": "DELETE FROM item USING staging s WHERE s.v = item.v AND s.id < 100",
    "a table by another column": "UPDATE item SET v = s.item FROM sale s WHERE s.item = item.id RETURNING id, s.sale",
    "an outer join": "UPDATE item SET note = 'sold' FROM staging s LEFT JOIN sale t ON t.item = s.v"
    " WHERE s.id = item.id AND t.sale IS NULL",
    "a semi-join with a local table": "DELETE FROM item WHERE v IN (SELECT v FROM staging WHERE id % 3 = 0)",
    "an anti-join": "DELETE FROM item WHERE NOT EXISTS (SELECT FROM staging s WHERE s.v = item.v)",
    "a correlated value": "UPDATE item SET v = (SELECT count(*) FROM staging s WHERE s.v < item.v) WHERE id < 40",
    "a row of values": "UPDATE item SET (v, note) = (SELECT max(s.sale), 'q' FROM sale s WHERE s.item > item.v)"
    " WHERE id % 7 = 0",
    "its own rows": "UPDATE item a SET v = b.v + 1 FROM item b, staging s WHERE a.id = b.v AND b.id = s.id",
    "a nested loop": "UPDATE item SET v = 0 FROM staging s WHERE s.v < item.id AND item.id <= 5",
    "a key that moves": "UPDATE item SET id = doubled(item.id) + 1000 WHERE id BETWEEN 50 AND 60",
    "a key from a local table": "UPDATE item SET id = item.id + 5000, note = s.note FROM staging s WHERE s.id = item.id",
    "a view": "UPDATE few SET v = few.v + s.v FROM staging s WHERE s.id = few.id",
    "no row": "DELETE FROM item USING staging s WHERE s.v = item.v AND false",
    "WITH": "WITH gone AS (DELETE FROM item USING staging s WHERE s.id = item.id RETURNING item.id, s.v)"
    " SELECT count(*), sum(v) FROM gone",
    "MERGE with a table by another column": "MERGE INTO item i USING (SELECT DISTINCT item FROM sale) s ON i.id = s.item"
    " WHEN MATCHED AND i.id % 3 = 0 THEN DELETE WHEN MATCHED THEN UPDATE SET v = -i.v"
    " WHEN NOT MATCHED THEN INSERT (id, v) VALUES (s.item, s.item)",
    "MERGE with a local table": "MERGE INTO item i USING staging s ON i.id = s.id"
    " WHEN MATCHED AND s.v < 30 THEN UPDATE SET note = s.note WHEN MATCHED THEN DO NOTHING"
    " WHEN NOT MATCHED THEN INSERT (id, v, note) VALUES (s.id, doubled(s.v), s.note)",
    "MERGE that changes keys": "MERGE INTO item i USING staging s ON i.v = s.v AND i.id < 50"
    " WHEN MATCHED THEN UPDATE SET id = i.id + 2000 WHEN NOT MATCHED THEN INSERT (id) VALUES (-s.id)",
}


@pytest.fixture(params=["heap", "columnar"])
def pair(cluster, request):
    with open_pair(cluster, "test_changed_here") as made:
        made.execute(SETUP)
        made.distribute("item", "id", storage=request.param)
        made.distribute("sale", "sale")
        made.execute("CREATE VIEW few AS SELECT id, v FROM item WHERE v < 100 WITH CHECK OPTION")
        yield made


def item_is_same(pair: Pair) -> None:
    pair.same("SELECT * FROM item")


@pytest.mark.parametrize("joins", ["hashjoin", "mergejoin", "nestloop"])
def test_statements(pair, joins):
    for name in {"hashjoin", "mergejoin", "nestloop"} - {joins}:
        pair.execute(f"SET enable_{name} = off")
    for statement in STATEMENTS.values():
        with pair.transaction():
            pair.same(statement)
            item_is_same(pair)


def test_statements_one_after_the_other(pair):
    for statement in STATEMENTS.values():
        pair.same(statement)
        item_is_same(pair)


def test_triggers_see_what_merge_does(pair):
    pair.execute(
        "CREATE TABLE log (what text); CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$"
        "BEGIN INSERT INTO log SELECT tg_when || ' ' || tg_op || coalesce(old::text, '') || coalesce(new::text, '');"
        " RETURN coalesce(new, old); END $$;"
        "CREATE TRIGGER early BEFORE INSERT OR UPDATE OR DELETE ON item FOR EACH ROW EXECUTE FUNCTION note();"
        "CREATE TRIGGER late AFTER INSERT OR UPDATE OR DELETE ON item FOR EACH ROW EXECUTE FUNCTION note()"
    )
    for name, statement in STATEMENTS.items():
        if name.startswith("MERGE"):
            pair.same(statement)
            item_is_same(pair)
            pair.same("SELECT * FROM log")


def test_a_row_is_merged_once(pair):
    pair.same(
        "MERGE INTO item i USING staging s ON i.v = s.v AND i.id = 7 OR i.id = 7"
        " WHEN MATCHED THEN UPDATE SET v = s.v"
    )
    item_is_same(pair)


def test_many_rows(pair):
    """More than are kept in memory, and than are sent at once."""
    pair.execute("SET work_mem = '64kB'")
    pair.execute(
        "INSERT INTO item SELECT g, g % 50, repeat('long', 50) FROM generate_series(1000, 21000) g"
    )
    pair.same("UPDATE item SET note = note || s.note FROM staging s WHERE s.v = item.v")
    item_is_same(pair)
    pair.same("DELETE FROM item USING staging s WHERE s.v = item.v AND s.v % 2 = 0")
    item_is_same(pair)


def test_prepared_and_in_functions(pair):
    pair.execute(
        "SET plan_cache_mode = force_generic_plan;"
        "PREPARE change(int) AS UPDATE item SET v = s.v + $1 FROM staging s WHERE s.id = item.id AND item.id < $1;"
        "CREATE FUNCTION change(n int) RETURNS bigint LANGUAGE plpgsql AS $$"
        "DECLARE changed bigint; BEGIN DELETE FROM item USING staging s WHERE s.id = item.id AND s.v = n;"
        " GET DIAGNOSTICS changed = ROW_COUNT; RETURN changed; END $$"
    )
    for value in (50, 100, 1):
        pair.same(f"EXECUTE change({value})")
        pair.same(f"SELECT change({value})")
        item_is_same(pair)


ASKS_FOR_KEYS = {
    "UPDATE item SET v = 0 FROM staging s WHERE s.id = item.id AND s.v < 5": 4,
    "DELETE FROM item USING staging s WHERE item.v = s.id AND s.note = 'staged'": 54,
    "DELETE FROM item USING (SELECT max(id) AS id FROM staging) s WHERE item.id = s.id + 0": 0,
    "MERGE INTO item USING staging s ON item.id = s.id AND s.v < 5 WHEN MATCHED THEN UPDATE SET v = 0"
    " WHEN NOT MATCHED THEN DO NOTHING": 4,
    "UPDATE item SET v = 0 FROM staging s WHERE lower(item.note) = s.note || 'n'": 0,
}  # fmt: skip


@pytest.mark.parametrize("statement", ASKS_FOR_KEYS)
def test_rows_without_a_local_partner_are_not_asked_for(pair, statement):
    """Nor locked: another session changes them meanwhile."""
    plan = "\n".join(row for (row,) in pair.ours.execute(f"EXPLAIN (VERBOSE) {statement}"))
    assert "= ANY" in plan[plan.index("Remote SQL") :].split("\n")[0]
    with pair.transaction():
        pair.same(statement)
        with pair.cluster.coordinator.connect() as other:
            other.execute("SET lock_timeout = '5s'; SET search_path = test_changed_here")
            free = other.execute("SELECT id FROM item FOR UPDATE SKIP LOCKED").fetchall()
        assert len(free) == 300 - ASKS_FOR_KEYS[statement]
        item_is_same(pair)


def test_keys_that_are_equal_in_another_way(pair):
    """Values that DISTINCT takes for one, and the condition does not."""
    pair.execute(
        "CREATE COLLATION ci (provider = icu, locale = 'und-u-ks-level2', deterministic = false);"
        "CREATE TABLE names (name text COLLATE ci, n numeric); INSERT INTO names VALUES ('N', 1.0), ('n', 1.00), (NULL, 2);"
    )
    for statement in (
        'UPDATE item SET v = 77 FROM names s WHERE item.note COLLATE "C" = s.name',
        'UPDATE item SET v = 78 FROM names s WHERE item.note = s.name COLLATE "C"',
        "UPDATE item SET v = 79 FROM names s WHERE item.note COLLATE ci = s.name",
        "DELETE FROM item USING names s WHERE s.n = item.v",
        "DELETE FROM item USING names s WHERE ROW(s.n) *= ROW(item.v::numeric(10, 2))",
    ):
        pair.same(statement)
        item_is_same(pair)


def test_what_a_role_may_not_see_of_local_rows(pair):
    """The keys are read with the statement's privileges and policies."""
    pair.execute(
        "DROP ROLE IF EXISTS changed_keys; CREATE ROLE changed_keys; GRANT USAGE ON SCHEMA test_changed_here TO changed_keys;"
        "GRANT ALL ON item TO changed_keys; GRANT SELECT (id) ON staging TO changed_keys;"
        "CREATE POLICY few ON staging USING (id < 20); ALTER TABLE staging ENABLE ROW LEVEL SECURITY;"
        "CREATE VIEW all_staged AS SELECT id, v FROM staging; GRANT SELECT ON all_staged TO changed_keys;"
        "SET ROLE changed_keys"
    )
    try:
        for statement in (
            "UPDATE item SET v = -1 FROM staging s WHERE s.id = item.id",
            "UPDATE item SET v = -2 FROM staging s WHERE s.v = item.id",
            "UPDATE item SET v = -3 FROM all_staged s WHERE s.id = item.id AND s.v > 50",
        ):
            pair.same(statement)
            item_is_same(pair)
    finally:
        pair.execute("RESET ROLE")
    pair.execute("DROP OWNED BY changed_keys; DROP ROLE changed_keys")


def test_policies_and_check_options(pair):
    pair.same("UPDATE few SET v = s.v * 10 FROM staging s WHERE s.id = few.id")
    item_is_same(pair)
    pair.execute(
        "DROP ROLE IF EXISTS changed_here; CREATE ROLE changed_here;"
        "GRANT USAGE ON SCHEMA test_changed_here TO changed_here;"
        "GRANT ALL ON ALL TABLES IN SCHEMA test_changed_here TO changed_here;"
        "CREATE FUNCTION seen(int) RETURNS boolean LANGUAGE plpgsql VOLATILE AS 'BEGIN RETURN $1 % 2 = 0; END';"
        "CREATE POLICY even ON item USING (seen(id)) WITH CHECK (seen(v));"
        "ALTER TABLE item ENABLE ROW LEVEL SECURITY; SET ROLE changed_here"
    )
    try:
        for statement in (
            "UPDATE item SET v = 2 WHERE id < 20 RETURNING id",
            "UPDATE item SET v = 3 WHERE id < 20",
            "UPDATE item SET v = s.v * 2 FROM staging s WHERE s.id = item.id",
            "DELETE FROM item USING staging s WHERE s.id = item.id AND s.id < 30 RETURNING item.id",
            "MERGE INTO item i USING staging s ON i.id = s.id WHEN MATCHED THEN UPDATE SET v = s.v * 4"
            " WHEN NOT MATCHED THEN INSERT (id, v) VALUES (s.id, 2)",
        ):
            pair.same(statement)
    finally:
        pair.execute("RESET ROLE")
    item_is_same(pair)
    pair.execute("DROP OWNED BY changed_here; DROP ROLE changed_here")


def test_what_matched_rows_of_the_target_do_without_a_source(pair):
    statement = (
        "MERGE INTO item i USING staging s ON i.id = s.id WHEN NOT MATCHED BY SOURCE AND i.v > 10 THEN DELETE"
        " WHEN NOT MATCHED BY SOURCE THEN UPDATE SET note = 'alone' WHEN NOT MATCHED BY TARGET THEN"
        " INSERT (id, v) VALUES (s.id, s.v) RETURNING merge_action(), i.*"
    )
    if server_major() < 17:
        with pytest.raises(psycopg.errors.SyntaxError):
            pair.ours.execute(statement)
    else:
        pair.same(statement)
        item_is_same(pair)


def test_a_place_is_still_nobodys_business(pair):
    with pytest.raises(psycopg.errors.FeatureNotSupported, match="cannot use ctid"):
        pair.ours.execute(
            "UPDATE item SET v = 1 FROM staging s WHERE item.ctid = '(0,1)' AND s.id = item.id"
        )
