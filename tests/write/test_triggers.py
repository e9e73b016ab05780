"""Triggers of distributed tables: they fire on the coordinator, for what is written through it."""

from __future__ import annotations

import psycopg
import pytest

from tests.pair import Pair

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
def pair(cluster, schema):
    pair = Pair(cluster, schema)
    yield pair
    pair.close()


@pytest.fixture(params=["heap", "columnar"])
def storage(request) -> str:
    return request.param


def fire_on(events: str, timing: str, level: str = "ROW", name: str | None = None) -> str:
    name = name or f"{timing}_{level}".lower()
    return f"CREATE TRIGGER {name} {timing} {events} ON item FOR EACH {level} EXECUTE FUNCTION note()"


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
