"""Damaged files: what is asked of a table is answered rightly or with an error, never by a crash.

One server without data checksums, so that the store's own checks decide.  Every kind of damage has
a table of its own, all made alike; their files are changed while the server is stopped.  Then each
table is read, written and maintained in every way: what an undamaged table answers is right, and
otherwise an ERROR data_corrupted or index_corrupted that names the table.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psycopg
import pytest

from extensions.columnar.test.damage import (
    DAMAGES,
    FORGERIES,
    PAGE,
    Damage,
    Victim,
    random_damage,
)
from extensions.columnar.test.servers import make_node
from extensions.columnar.test.twins import connect_soon
from tests.cluster import Cluster, Node
from tests.fixtures import new_root
from tests.installation import find_binaries, run_as_server

DEFINITION = """
CREATE TABLE {t} (id integer PRIMARY KEY, n bigint, word text, code text, x float8) USING columnar;
SELECT strata_columnar.alter_columnar_table_set('{t}', row_group_rows => 1100);
"""
STORY = """
INSERT INTO {t} SELECT g, g * 7919::bigint % 10007, 'word ' || g % 50, md5(g::text) || md5((-g)::text), nullif(g % 7, 0) / 4.0
    FROM generate_series(1, 3300) AS g;
DELETE FROM {t} WHERE id % 25 = 0;
SELECT strata_columnar.columnar_compact('{t}', everything => true);
INSERT INTO {t} SELECT g, g, 'stored', md5(g::text) || md5((-g)::text), g FROM generate_series(4001, 5100) AS g;
INSERT INTO {t} SELECT g, g, 'inline', md5(g::text) || md5((-g)::text), NULL FROM generate_series(6001, 6080) AS g;
INSERT INTO {t} VALUES (7001, 1, 'alone', 'x', 0.5);
DELETE FROM {t} WHERE id % 50 = 1;
UPDATE {t} SET n = n + 1 WHERE id IN (7, 77, 1502, 3101, 4100, 6002);
VACUUM (FREEZE) {t};
"""

# ---- what is asked ------------------------------------------------------------------------------

PLANS = ("seqscan", "indexscan", "indexonlyscan", "bitmapscan")


def only(*plans: str) -> str:
    """Let the planner use these ways to scan; "custom" is the columnar scan."""
    settings = [f"SET enable_{plan} = {'on' if plan in plans else 'off'}" for plan in PLANS]
    # the columnar scan takes the place of sequential ones, and is not offered where these are off
    if "custom" in plans:
        settings[0] = "SET enable_seqscan = on"
    settings.append(
        f"SET strata_columnar.enable_custom_scan = {'on' if 'custom' in plans else 'off'}"
    )
    return "; ".join(settings)


KEYS = (7, 999, 1502, 2203, 4002, 6080, 7001)
IN_KEYS = ", ".join(str(key) for key in KEYS)

# name: ways to scan, statement; the rows are compared
READS = {
    "all rows": (only("seqscan"), "SELECT * FROM {t} ORDER BY id"),
    "columns": (only("custom"), "SELECT id, word, n FROM {t} WHERE n < 5000 ORDER BY id"),
    "pruned": (
        only("custom"),
        "SELECT code, x FROM {t} WHERE id BETWEEN 1490 AND 1510 ORDER BY id",
    ),
    "sums": (only("custom"), "SELECT sum(n), min(code), max(x), count(x) FROM {t}"),
    "count": (only("custom"), "SELECT count(*), count(id) FROM {t}"),
    "count by a scan": (only("seqscan"), "SELECT count(*) FROM {t}"),
    **{f"key {key}": (only("indexscan"), f"SELECT * FROM {{t}} WHERE id = {key}") for key in KEYS},
    "index range": (only("indexscan"), "SELECT id, code FROM {t} WHERE id > 1400 ORDER BY id"),
    "index only": (
        only("indexonlyscan"),
        "SELECT id FROM {t} WHERE id BETWEEN 950 AND 1100 ORDER BY id",
    ),
    "bitmap": (
        only("bitmapscan"),
        f"SELECT id, word FROM {{t}} WHERE id IN ({IN_KEYS}) ORDER BY id",
    ),
    "sample": (
        only("custom"),
        "SELECT id FROM {t} TABLESAMPLE BERNOULLI (30) REPEATABLE (1) ORDER BY id",
    ),
    "join": (
        only("custom"),
        "SELECT count(*), sum(i.n) FROM intact AS i JOIN {t} AS t USING (id, code)",
    ),
    "row groups": ("", "SELECT * FROM strata_columnar.columnar_row_groups('{t}') ORDER BY 1"),
    "chunks": ("", "SELECT * FROM strata_columnar.columnar_chunks('{t}') ORDER BY 1, 2"),
    "stats": (
        "",
        "SELECT row_groups, rows, deleted_rows, bytes, pages FROM strata_columnar.columnar_stats('{t}')",
    ),
}
PARALLEL = (
    only("custom")
    + "; SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0; SET min_parallel_table_scan_size = 0"
    + "; SET max_parallel_workers_per_gather = 2",
    "SELECT sum(n), sum(length(code)), count(*) FROM {t} WHERE n >= 0",
)

# What merging and rewriting leave as it was.
ROWS = ("all rows", "count", "index range", "key 1502")

# In a transaction each, which is rolled back; the rows of the last statement are compared.
WRITES = {
    "update": ["UPDATE {t} SET word = word || '!' WHERE id = 1502 RETURNING *"],
    "update many": [
        "UPDATE {t} SET n = n + 1 WHERE id % 7 = 0",
        "SELECT id, n FROM {t} ORDER BY id",
    ],
    "delete": [
        "WITH gone AS (DELETE FROM {t} WHERE id % 3 = 0 RETURNING id) SELECT * FROM gone ORDER BY id"
    ],
    "insert": [
        "INSERT INTO {t} SELECT g, g, 'new', 'new', 1 FROM generate_series(8001, 8100) AS g",
        "SELECT id, n, code FROM {t} ORDER BY id",
    ],
    "insert by key": [
        "INSERT INTO {t} VALUES (8001, 1, 'new', 'new', 1)",
        "SELECT * FROM {t} WHERE id = 8001",
    ],
    "insert what is there": [
        f"INSERT INTO {{t}} SELECT unnest(ARRAY[{IN_KEYS}]), 1, 'twice' ON CONFLICT DO NOTHING RETURNING id"
    ],
    "lock": [f"SELECT id, n FROM {{t}} WHERE id IN ({IN_KEYS}) ORDER BY id FOR UPDATE"],
    "create index": [
        "CREATE INDEX ON {t} (n)",
        only("indexscan"),
        "SELECT id FROM {t} WHERE n < 900 ORDER BY n, id",
    ],
}

MAINTENANCE = (
    "ANALYZE {t}",
    "VACUUM {t}",
    "SELECT strata_columnar.columnar_compact('{t}')",
    "REINDEX TABLE {t}",
    "SELECT strata_columnar.columnar_compact('{t}', everything => true)",
    "VACUUM FULL {t}",
)

VERIFY = "SELECT group_id, problem FROM strata_columnar.columnar_verify('{t}') ORDER BY 1, 2"


class Asker:
    """Asks one table everything; what was wrong with the answers is in `complaints`."""

    def __init__(
        self,
        connection: psycopg.Connection,
        table: str,
        expected: dict[str, list] | None,
        blamed: frozenset[int | None] = frozenset({None}),
        maintenance: tuple[str, ...] = MAINTENANCE,
    ):
        self.connection = connection
        self.maintenance = maintenance
        self.table = table
        self.expected = expected
        self.blamed = blamed  # row groups of which an error must name one; None: it need not
        self.answers: dict[str, list] = {}
        self.errors: dict[str, psycopg.Error] = {}
        self.complaints: list[str] = []

    def run(self, statement: str) -> list[tuple]:
        cursor = self.connection.execute(statement.format(t=self.table))
        return cursor.fetchall() if cursor.description else []

    def ask(self, name: str, statements: list[str], compare: bool = True) -> bool:
        """Keep the last statement's rows, or the error; in a transaction if there are several."""
        try:
            for statement in statements:
                rows = self.run(statement) if statement else []
        except psycopg.Error as error:
            if error.sqlstate is None:
                raise AssertionError(f"{name}: the connection was lost: {error}") from error
            self.errors[name] = error
            self.judge_error(name, error)
            return False
        self.answers[name] = rows
        if compare and self.expected is not None and rows != self.expected[name]:
            self.complaints.append(f"{name}: {difference(rows, self.expected[name])}")
        return True

    def judge_error(self, name: str, error: psycopg.Error) -> None:
        text = f"{error.diag.message_primary} {error.diag.context}"
        named = self.table in text and (
            None in self.blamed or any(f"row group {group}" in text for group in self.blamed)
        )
        if name == "REINDEX TABLE {t}" and self.is_twin_in_catalog(error):
            return
        if self.expected is None or error.sqlstate not in ("XX001", "XX002") or not named:
            self.complaints.append(f"{name}: {error.sqlstate} {error} {error.diag.context}")

    def is_twin_in_catalog(self, error: psycopg.Error) -> bool:
        """Does core tell of two tuples with one key in the table's catalog, where there may be any?

        PostgreSQL 17 reindexes the TOAST relation before the table's own indexes, whose scan would
        have found the damage; 15 after them.
        """
        catalog = "SELECT reltoastrelid::regclass::text FROM pg_class WHERE oid = '{t}'::regclass"
        return (
            None in self.blamed
            and error.sqlstate == "23505"
            and [(f"{error.diag.schema_name}.{error.diag.table_name}",)] == self.run(catalog)
        )

    def read(self, names: tuple[str, ...] = tuple(READS)) -> None:
        for name in names:
            self.ask(name, list(READS[name]))

    def copy(self) -> None:
        try:
            with self.connection.cursor().copy(f"COPY {self.table} TO STDOUT") as copy:
                rows = sorted(bytes(piece) for piece in copy)
        except psycopg.Error as error:
            self.errors["copy"] = error
            self.judge_error("copy", error)
            return
        self.answers["copy"] = rows
        if self.expected is not None and rows != self.expected["copy"]:
            self.complaints.append(f"copy: {difference(rows, self.expected['copy'])}")

    def write(self) -> None:
        for name, statements in WRITES.items():
            self.connection.execute("BEGIN")
            self.ask(name, [only(*PLANS, "custom"), *statements])
            self.connection.execute("ROLLBACK")

    def maintain(self) -> None:
        """Merge and rewrite; what succeeds has lost nothing."""
        for statement in self.maintenance:
            if self.ask(statement, [only(*PLANS, "custom"), statement], compare=False):
                self.read(ROWS)

    def everything(self) -> None:
        self.read()
        self.copy()
        self.write()
        if self.expected is None:
            self.ask("parallel", list(PARALLEL))
        else:
            self.maintain()


def difference(rows: list, expected: list) -> str:
    surplus = [row for row in rows if row not in expected]
    missing = [row for row in expected if row not in rows]
    return (
        f"{len(rows)} rows instead of {len(expected)}, surplus {surplus[:3]}, missing {missing[:3]}"
    )


# ---- the servers --------------------------------------------------------------------------------


@dataclass
class Tables:
    """A server with a table, `intact`, and others with the same files, damaged."""

    node: Node
    expected: dict[str, list] = field(default_factory=dict)
    groups: list[dict] = field(default_factory=list)

    def make_intact(self, story: str = STORY) -> None:
        """The table whose files the others get, frozen, so that these may be younger; what it answers is right."""
        with connect_soon(self.node) as connection:
            connection.execute("SET strata_columnar.enable_merge = off")
            connection.execute(DEFINITION.format(t="intact"))
            for statement in story.format(t="intact").strip().split(";\n"):
                connection.execute(statement)
            connection.execute("CHECKPOINT")
            asker = Asker(connection, "intact", None)
            asker.everything()
            assert not asker.complaints, asker.complaints
            self.expected = asker.answers
            cursor = connection.execute(READS["row groups"][1].format(t="intact"))
            columns = [column.name for column in cursor.description]
            self.groups = sorted(
                (dict(zip(columns, row, strict=True)) for row in cursor),
                key=lambda group: group["first_row"],
            )
            assert connection.execute(VERIFY.format(t="intact")).fetchall() == []

    def damage(self, damages: dict[str, Callable[[Victim], object]]) -> None:
        """Make tables with the files of `intact`, changed while the server is stopped."""
        with connect_soon(self.node) as connection:
            for name in damages:
                connection.execute(DEFINITION.format(t=name))
        main, catalog, *indexes = self.files("intact")
        files = {name: self.files(name) for name in damages}
        self.node.stop()
        for name, do in damages.items():
            victim = Victim(
                bytearray(main.read_bytes()), bytearray(catalog.read_bytes()), self.groups
            )
            do(victim)
            files[name][0].write_bytes(victim.main)
            files[name][1].write_bytes(victim.catalog)
            for source, target in zip(indexes, files[name][2:], strict=True):
                shutil.copyfile(source, target)
        self.node.start()

    def files(self, name: str) -> list[Path]:
        """The files of a table, its catalog, its primary key and the catalog's index."""
        paths = self.node.query(
            """
            SELECT pg_relation_filepath(f) FROM pg_class AS c, unnest(ARRAY[
                c.oid, c.reltoastrelid, (SELECT indexrelid FROM pg_index WHERE indrelid = c.oid),
                (SELECT indexrelid FROM pg_index WHERE indrelid = c.reltoastrelid)]) WITH ORDINALITY AS u (f, n)
            WHERE c.oid = %s::regclass ORDER BY n
            """,
            (name,),
        )
        return [self.node.data / path for (path,) in paths]

    def blamed(self, damage: Damage) -> frozenset[int | None]:
        """The row groups that columnar_verify() should name; None is the table."""
        found: set[int | None] = {None} if damage.table else set()
        for state in ("stored", "inline"):
            groups = [group["group_id"] for group in self.groups if group["state"] == state]
            found |= {groups[number] for number in getattr(damage, state)}
        return frozenset(found)


def disable_checksums(node: Node) -> None:
    run_as_server(
        [find_binaries() / "pg_checksums", "--disable", "-D", node.data],
        check=True,
        capture_output=True,
    )


@contextmanager
def unchecked_tables(story: str = STORY) -> Iterator[Tables]:
    """A server without data checksums, with the intact table."""
    cluster = Cluster(new_root(), workers=0, extension=False, durable=True)
    try:
        cluster.coordinator.settings |= {"fsync": "off", "autovacuum": "off"}
        cluster.create()
        node = make_node(cluster)
        node.stop()
        disable_checksums(node)
        node.start()
        assert node.value("SHOW data_checksums") == "off"
        tables = Tables(node)
        tables.make_intact(story)
        yield tables
    finally:
        cluster.destroy()


@pytest.fixture(scope="module")
def damaged() -> Iterator[Tables]:
    """A table for each of DAMAGES and FORGERIES."""
    with unchecked_tables() as tables:
        tables.damage({name: damage.do for name, damage in DAMAGES.items()} | FORGERIES)
        yield tables


# ---- each kind of damage ------------------------------------------------------------------------


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", DAMAGES)
def test_damage_is_an_error_and_never_a_wrong_row(damaged: Tables, name: str) -> None:
    damage = DAMAGES[name]
    with connect_soon(damaged.node) as connection:
        problems = connection.execute(VERIFY.format(t=name)).fetchall()
        assert {group for group, _ in problems} == damaged.blamed(damage), problems
        asker = Asker(connection, name, damaged.expected, damaged.blamed(damage))
        asker.everything()
        assert not asker.complaints, "\n".join(asker.complaints)
        assert bool(asker.errors) != damage.harmless, "nothing noticed"
        connection.execute(f"DROP TABLE {name}")


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", FORGERIES)
def test_records_that_lie_with_a_right_checksum_crash_nothing(damaged: Tables, name: str) -> None:
    with connect_soon(damaged.node) as connection:
        connection.execute("SET statement_timeout = '20s'")
        connection.execute(VERIFY.format(t=name))
        asker = Asker(connection, name, damaged.expected)
        asker.everything()
        codes = {error.sqlstate for error in asker.errors.values()}
        assert not codes & {"XX000", "53200", "57014"}, [
            f"{name}: {error}"
            for name, error in asker.errors.items()
            if error.sqlstate in ("XX000", "53200", "57014")
        ]
        connection.execute(f"DROP TABLE {name}")


def test_pages_exchanged_between_equal_row_groups_are_noticed(
    make_server: Callable[..., Node],
) -> None:
    """Whole chunks with right checksums and lengths, but of another row group."""
    node = make_server(autovacuum="off")
    columns = ", ".join(f"c{number} integer" for number in range(8))
    # the same bounds everywhere, hence the same number of bits
    value = "CASE g % 1024 WHEN 1 THEN 0 WHEN 2 THEN 1023 ELSE hashint4(g + {}) & 1023 END"
    values = ", ".join(value.format(number) for number in range(8))
    node.execute(f"CREATE TABLE alike ({columns}) USING columnar")
    node.execute("SELECT strata_columnar.alter_columnar_table_set('alike', row_group_rows => 1024)")
    node.execute(f"INSERT INTO alike SELECT {values} FROM generate_series(1, 2048) AS g")
    (first, pages), (second, _) = node.query(
        "SELECT first_block, pages FROM strata_columnar.columnar_row_groups('alike') ORDER BY first_row"
    )
    assert pages > 1  # the footers stay where they belong
    file = node.data / node.value("SELECT pg_relation_filepath('alike')")
    node.stop()
    disable_checksums(node)
    victim = Victim(bytearray(file.read_bytes()), bytearray(), [])
    victim.swap(first * PAGE, second * PAGE)
    file.write_bytes(victim.main)
    node.start()
    for number in range(2):
        with pytest.raises(psycopg.errors.DataCorrupted, match='"alike" is damaged in row group'):
            node.execute(f"SELECT count(DISTINCT c{number}) FROM alike")
    assert len(node.query("SELECT * FROM strata_columnar.columnar_verify('alike')")) == 2


def test_data_checksums_tell_of_damage_first_and_the_error_says_where(
    make_server: Callable[..., Node],
) -> None:
    tables = Tables(make_server(autovacuum="off"))
    assert tables.node.value("SHOW data_checksums") == "on"
    tables.make_intact()
    chosen = (
        "metapage_next_row_lower",
        "page_lsn",
        "middle_page_byte",
        "two_groups_hit",
        "truncated_within_an_extent",
    )
    tables.damage({name: DAMAGES[name].do for name in chosen})
    with connect_soon(tables.node) as connection:
        for name in chosen:
            # even where the store's own bytes are intact
            harmless = DAMAGES[name].harmless
            damage = Damage(DAMAGES[name].do, stored=(1,)) if harmless else DAMAGES[name]
            problems = connection.execute(VERIFY.format(t=name)).fetchall()
            assert {group for group, _ in problems} == tables.blamed(damage), problems
            asker = Asker(connection, name, tables.expected, tables.blamed(damage))
            asker.everything()
            assert not asker.complaints, "\n".join(asker.complaints)
            assert asker.errors


# ---- any damage ---------------------------------------------------------------------------------

RANDOM_SECONDS = 600
RANDOM_TABLES = 50


@pytest.mark.slow
@pytest.mark.timeout(3 * RANDOM_SECONDS)
def test_random_damage_is_an_error_and_never_a_wrong_row() -> None:
    start = int.from_bytes(os.urandom(4))
    end = time.monotonic() + RANDOM_SECONDS
    with unchecked_tables() as tables:
        while time.monotonic() < end:
            seeds = {
                f"r{start + number}": random_damage(f"{start + number}")
                for number in range(RANDOM_TABLES)
            }
            start += RANDOM_TABLES
            tables.damage(seeds)
            for name in seeds:
                ask_random(tables, name)


def ask_random(tables: Tables, name: str) -> None:
    with connect_soon(tables.node) as connection:
        problems = connection.execute(VERIFY.format(t=name)).fetchall()
        asker = Asker(connection, name, tables.expected)
        asker.everything()
        asker.ask("parallel", list(PARALLEL))
        assert not asker.complaints, f"seed {name}: {problems}\n" + "\n".join(asker.complaints)
        assert problems or not asker.errors, (
            f"seed {name}: columnar_verify() overlooked {asker.errors}"
        )
        connection.execute(f"DROP TABLE {name}")
