"""Random plays of two sessions: what each gets and when it waits is on columnar as on heap.

Statements touch rows in the order of their keys, so that no plan decides whom a session meets first; a
third session compacts and vacuums the columnar table meanwhile, which nobody may notice.
"""

from __future__ import annotations

import random

import pytest

from extensions.columnar.test.interleave import Step, play
from extensions.columnar.test.twins import Twins

PLAYS = 60

SETUP = """
DROP TABLE IF EXISTS c, t;
CREATE TABLE t (id integer PRIMARY KEY, v integer, s text);
CREATE TABLE c (id integer, t integer REFERENCES t ON DELETE CASCADE);
CREATE FUNCTION tidy() RETURNS void LANGUAGE plpgsql AS $$ BEGIN
    IF '{am}' = 'columnar' THEN PERFORM strata_columnar.columnar_compact('{schema}.t'); END IF;
END $$;
"""
RESET = """
TRUNCATE c, t;
INSERT INTO t SELECT g, g * 10, 's' FROM generate_series(1, 1100) AS g;
INSERT INTO t VALUES (2001, 0, 'inline');
INSERT INTO t VALUES (2002, 0, 'inline');
"""
FINAL = "SELECT (SELECT md5(string_agg(t::text, '|' ORDER BY id)) FROM t), (SELECT md5(string_agg(c::text, '|' ORDER BY id, t)) FROM c)"

ROWS = (1, 2, 3, 1100, 2001, 2002)
NEW = (3001, 3002, 3003)


class Playwright:
    def __init__(self, seed: int):
        self.rng = random.Random(f"play {seed}")
        self.open = {"a": 0, "b": 0}  # 0: no transaction, 1: one, more: savepoints
        self.repeatable = {"a": False, "b": False}

    def write(self) -> list[Step]:
        steps: list[Step] = [
            (name, "SET enable_seqscan = off; SET enable_bitmapscan = off") for name in "ab"
        ]
        for _ in range(self.rng.randrange(8, 26)):
            name = self.rng.choice("ab")
            steps.append((name, self.line(name)))
            if self.rng.random() < 0.06:
                steps.append(("m", self.rng.choice(("SELECT tidy()", "SELECT tidy()", "VACUUM t"))))
        for name in "ab":
            if self.open[name]:
                steps.append((name, self.rng.choice(("COMMIT", "ROLLBACK"))))
        return steps

    def line(self, name: str) -> str:
        rng = self.rng
        choice = rng.random()
        if self.open[name] == 0:
            if choice < 0.6:
                self.open[name] = 1
                self.repeatable[name] = rng.random() < 0.33
                return "BEGIN ISOLATION LEVEL REPEATABLE READ" if self.repeatable[name] else "BEGIN"
        elif choice < 0.16:
            self.open[name] = 0
            self.repeatable[name] = False
            return "COMMIT" if rng.random() < 0.7 else "ROLLBACK"
        elif choice < 0.24:
            self.open[name] += 1
            return f"SAVEPOINT s{self.open[name]}"
        elif choice < 0.34 and self.open[name] > 1:
            number = rng.randrange(2, self.open[name] + 1)
            self.open[name] = number
            if rng.random() < 0.3:
                self.open[name] = number - 1
                return f"RELEASE s{number}"
            return f"ROLLBACK TO s{number}"
        return self.statement(self.repeatable[name])

    def statement(self, repeatable: bool) -> str:
        rng = self.rng
        row = rng.choice(ROWS + NEW)
        strength = rng.choice(("UPDATE", "NO KEY UPDATE", "SHARE", "KEY SHARE"))
        way = rng.choice(("", "", "", " NOWAIT", " SKIP LOCKED"))
        # On heap an update that keeps the key, of a row that its session has locked FOR UPDATE before, counts as
        # one of the key: a REPEATABLE READ transaction cannot refer to such a row.  Columnar lets it.
        refer = "SELECT count(*) FROM c" if repeatable else f"INSERT INTO c VALUES (1, {row})"
        return rng.choice(
            (
                f"UPDATE t SET v = v + 1 WHERE id = {row} RETURNING v",
                f"UPDATE t SET v = v * 2 WHERE id = {row} AND v % 20 = 0 RETURNING v",
                f"UPDATE t SET s = s || 'x' WHERE id = {row} RETURNING s",
                f"UPDATE t SET id = {rng.choice(NEW)} WHERE id = {row} RETURNING id",
                f"DELETE FROM t WHERE id = {row} RETURNING v",
                f"INSERT INTO t VALUES ({row}, 1, 'new')",
                f"INSERT INTO t VALUES ({row}, 1, 'up') ON CONFLICT (id) DO UPDATE SET v = t.v + 100 RETURNING v",
                f"INSERT INTO t VALUES ({row}, 1, 'no') ON CONFLICT DO NOTHING RETURNING v",
                f"MERGE INTO t USING (SELECT {row} AS id) AS n ON t.id = n.id WHEN MATCHED THEN UPDATE SET v = v + 7 WHEN NOT MATCHED THEN INSERT VALUES (n.id, 7, 'merge')",
                f"SELECT id, v, s FROM t WHERE id = {row} FOR {strength}{way}",
                "UPDATE t SET v = v + 1 WHERE id < 4 RETURNING id, v",
                f"UPDATE t SET v = v + 3 WHERE id IN (2, 3, {row}) AND v % 20 = 0 RETURNING id, v",
                "DELETE FROM t WHERE id > 2000 AND v < 100 RETURNING id",
                f"INSERT INTO t SELECT g, 2, 'batch' FROM generate_series(3001, 3003) AS g ON CONFLICT (id) DO UPDATE SET v = t.v + {row}",
                f"SELECT id, v FROM t WHERE id < 4 OR id > 2000 ORDER BY id LIMIT 4 FOR {strength}{way}",
                f"SELECT id, v, s FROM t WHERE id = {row}",
                "SELECT count(*), sum(v) FROM t",
                refer,
                f"DELETE FROM c WHERE t = {row}",
            )
        )


def perform(twins: Twins, seed: int) -> None:
    try:
        play(twins, RESET, Playwright(seed).write(), FINAL)
    except AssertionError as error:
        raise AssertionError(f"play {seed}\n{error}") from None


def test_random_plays_of_two_sessions(twins: Twins) -> None:
    twins.execute(SETUP)
    for seed in range(PLAYS):
        perform(twins, seed)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_thousands_of_random_plays(twins: Twins) -> None:
    twins.execute(SETUP)
    for seed in range(10_000, 15_000):
        perform(twins, seed)
