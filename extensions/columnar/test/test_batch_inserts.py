"""INSERT ... SELECT, CREATE TABLE AS and REFRESH by batches write what they write into heap tables.

What core does for each row (constraints, triggers, indexes, routing) must happen as ever: where it
is needed rows come one by one, and EXPLAIN says which way was taken.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from extensions.columnar.test.every_type import EVERY_TYPE, SETUP, EveryType
from extensions.columnar.test.twins import Side, Twins

ROWS = 5000  # several batches, the last of them short

COLUMNS = """
    id integer NOT NULL, small smallint, big bigint, price numeric(10, 2), free numeric,
    wide numeric(30, 5), single real, real double precision, day date, moment timestamptz,
    word text, long text, padded char(8), flag boolean, id16 uuid, span interval, list integer[]
"""

VALUES = """
    i, (i % 7)::smallint, i::bigint * 1000003, i / 4.0,
    CASE i % 50 WHEN 7 THEN 'NaN' ELSE round(i / 8.0, i % 4) END, i * 123456789012345678901.00001,
    i / 3.0, CASE i % 50 WHEN 3 THEN 'NaN' WHEN 5 THEN '-0' ELSE i / 3.0 END,
    date '2000-01-01' + i, timestamptz '2020-01-01 00:00+00' + i * interval '7 min',
    'word ' || i % 40, md5(i::text) || repeat('x', i % 90), 'p' || i % 9, i % 3 = 0,
    md5(i::text)::uuid, (i % 400) * interval '11 h', ARRAY[i, NULL, i % 5]
"""

NAMES = [
    line.split()[0] for line in COLUMNS.split(",") if line.strip() and line.strip()[0].isalpha()
]


@pytest.fixture
def source(twins: Twins) -> Twins:
    """Twins with a table s of ROWS rows, some values of which are NULL, and a small table d."""
    nullable = ", ".join(
        f"CASE WHEN id % {9 + n} <> 4 THEN {name} END" if name != "id" else name
        for n, name in enumerate(NAMES)
    )
    twins.execute(
        "SET max_parallel_workers_per_gather = 0",
        f"CREATE TABLE raw ({COLUMNS})",
        f"INSERT INTO raw SELECT {VALUES} FROM generate_series(1, {ROWS}) i",
        f"CREATE TABLE s ({COLUMNS})",
        f"INSERT INTO s SELECT {nullable} FROM raw",
        "CREATE TABLE d (k smallint, name text NOT NULL)",
        "INSERT INTO d SELECT i, 'd' || i FROM generate_series(0, 5) i",
        "ANALYZE s",
        "ANALYZE d",
    )
    return twins


def taken(twins: Twins, statement: str) -> int | None:
    """Runs the statement under EXPLAIN; rows that came by batches, None if none were offered."""
    plan = twins.plan(statement, "ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF")
    twins.heap.execute(statement)
    found = re.search(r"Rows Taken: (\d+)", plan)
    assert (found is not None) == ("Offers Batches" in plan)
    return int(found[1]) if found else None


def same_tables(twins: Twins, *tables: str) -> None:
    for table in tables:
        twins.same(f"SELECT x::text FROM {table} x")
        # what a batch says of a column does not differ from what rows say of it
        twins.same(f"SELECT count(*), min(x::text), max(x::text) FROM {table} x")


# ---- which way rows take -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM s",
        "SELECT * FROM s WHERE small = 3",
        "SELECT id, word FROM s WHERE word LIKE '%7' OR price IS NULL",
        "SELECT id + 1 AS a, price * 2 AS b, price + big AS c, upper(word) AS w, 7 AS k,"
        " NULL::text AS n, coalesce(long, 'none') AS l, CASE WHEN flag THEN real END AS r FROM s",
        "SELECT s.*, d.name FROM s JOIN d ON d.k = s.small",
        "SELECT s.id, d.name, s.price - d.k AS p FROM s LEFT JOIN d ON d.k = s.small",
        "SELECT big, big AS again, id FROM s WHERE id > (SELECT max(id) - 3000 FROM s)",
        "SELECT id FROM s WHERE false OR id < 0",
    ],
)
def test_queries_are_written_by_batches(source: Twins, query: str) -> None:
    source.same(f"CREATE TABLE made AS {query}")
    source.same("SELECT count(*) FROM made")
    same_tables(source, "made")
    rows = source.heap.execute("SELECT count(*) FROM made")[0][0]

    source.execute("CREATE TABLE filled (LIKE made)")
    source.same(f"INSERT INTO filled {query}")
    same_tables(source, "filled")
    batches = taken(source, f"INSERT INTO filled {query}")
    # the first row of each batch goes through core
    assert batches is not None
    assert rows - rows // 100 - 1 <= batches <= rows
    same_tables(source, "filled")

    source.same(f"CREATE MATERIALIZED VIEW seen AS {query}")
    source.same("UPDATE s SET small = small + 1 WHERE id % 11 = 0")
    source.same("REFRESH MATERIALIZED VIEW seen")
    same_tables(source, "seen")


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM s ORDER BY id LIMIT 2000",
        "SELECT id, random() < 2 AS r FROM s",
        "SELECT s.*, tableoid <> 0 AS t FROM s",
        "SELECT id, s AS whole FROM s",
        "SELECT small, count(*) AS n FROM s GROUP BY small",
        "SELECT id, (SELECT name FROM d WHERE d.k = s.small) AS n FROM s",
        "SELECT id FROM s UNION ALL SELECT k FROM d",
        "SELECT g FROM generate_series(1, 3000) g",
    ],
)
def test_other_queries_are_written_row_by_row(source: Twins, query: str) -> None:
    for side in source.sides:
        side.execute(f"CREATE TABLE made AS {query}")
        side.execute(f"INSERT INTO made {query}")
    if "whole" not in query:
        same_tables(source, "made")
    assert taken(source, f"INSERT INTO made {query}") is None


@pytest.mark.parametrize(
    "condition",
    [
        "id < 3000 AND filled() < 10",
        "id < 3000 AND filled() % 2 = 0",
        "small IN (SELECT k + filled() * 0 FROM d WHERE d.k = s.small AND filled() < 30 OFFSET 0)",
        "EXISTS (SELECT FROM d WHERE d.k = s.small AND filled() < 30 OFFSET 0)",
    ],
)
def test_conditions_see_the_rows_before(source: Twins, condition: str) -> None:
    """A volatile function that looks at the table into which the rows go."""
    source.execute(
        "CREATE TABLE t (id integer)",
        "CREATE FUNCTION filled() RETURNS bigint LANGUAGE plpgsql AS"
        " 'DECLARE n bigint; BEGIN SELECT count(*) INTO n FROM t; RETURN n; END'",
    )
    source.same(f"INSERT INTO t SELECT id FROM s WHERE {condition}")
    same_tables(source, "t")
    assert taken(source, f"INSERT INTO t SELECT id FROM s WHERE {condition}") is None


def test_sub_selects_read_once_leave_batches(source: Twins) -> None:
    source.execute("CREATE TABLE t (id integer)")
    query = "INSERT INTO t SELECT id FROM s WHERE id NOT IN (SELECT k FROM d)"
    source.same(query)
    assert taken(source, query)
    same_tables(source, "t")


def test_it_can_be_turned_off(source: Twins) -> None:
    source.execute("CREATE TABLE t (LIKE s)")
    source.columnar.execute("SET strata_columnar.enable_vector = off")
    assert taken(source, "INSERT INTO t SELECT * FROM s") is None
    same_tables(source, "t")
    source.columnar.execute("RESET strata_columnar.enable_vector")
    assert taken(source, "INSERT INTO t SELECT * FROM s") is not None
    same_tables(source, "t")


def test_a_heap_table_gets_every_row(source: Twins) -> None:
    for side in source.sides:
        side.execute("CREATE TABLE h USING heap AS SELECT *, id + 1 AS next FROM s")
        side.execute("INSERT INTO h SELECT *, id + 2 FROM s WHERE id % 2 = 0")
    same_tables(source, "h")


# ---- what is written -----------------------------------------------------------------------------


@pytest.mark.sample(4)
@pytest.mark.parametrize("type_", EVERY_TYPE, ids=lambda t: t.name)
def test_every_type(twins: Twins, type_: EveryType) -> None:
    """Values, sizes, and what the store keeps of a column are those of rows that came one by one."""
    twins.execute(SETUP)
    values = [type_.literal(value) for value in type_.values]
    if type_.spread:
        values.append(type_.literal(type_.spread))
    choices = " ".join(f"WHEN {n} THEN {value}" for n, value in enumerate(values))
    cut = len(values) + 1
    twins.execute(
        f"CREATE TABLE s AS SELECT g AS id, CASE g % {cut} {choices} END AS v"
        " FROM generate_series(1, 2500) g",
        "CREATE TABLE t (id integer, v " + type_.name + ")",
        "INSERT INTO t SELECT * FROM s",
        "INSERT INTO t SELECT id, v FROM s WHERE id % 3 = 1",
        "CREATE TABLE made AS SELECT v, id FROM s",
    )
    for table in ("t", "made"):
        twins.same(f"SELECT id, v::text, v IS NULL FROM {table}")
    side = twins.columnar
    side.execute("CREATE TABLE by_row (LIKE t); SET strata_columnar.enable_vector = off")
    side.execute("INSERT INTO by_row SELECT * FROM s")
    side.execute("INSERT INTO by_row SELECT id, v FROM s WHERE id % 3 = 1")
    side.execute("RESET strata_columnar.enable_vector")
    sizes = "SELECT sum(pg_column_size(v)), max(pg_column_size(v)) FROM "
    assert side.execute(sizes + "t") == side.execute(sizes + "by_row")
    chunks = "SELECT * FROM strata_columnar.columnar_chunks('{}') ORDER BY 1, 2"
    assert side.execute(chunks.format("t")) == side.execute(chunks.format("by_row"))


def test_numerics_of_many_scales(twins: Twins) -> None:
    """Mantissas of one scale become bytes with the first value of another, wherever that is."""
    odd = ("'NaN'", "1.234", "'Infinity'", "1e30", "0", "-0.5", "12345678901234567.89", "NULL")
    twins.execute("CREATE TABLE s (id integer, v numeric)")
    for place in (1, 700, 1024, 1025, 2999):
        for value in odd:
            twins.execute(
                "TRUNCATE s",
                f"INSERT INTO s SELECT g, CASE g WHEN {place} THEN {value}"
                " ELSE round(g / 7.0, 2) END FROM generate_series(1, 3000) g",
                "CREATE TABLE t AS SELECT v, id FROM s",
            )
            twins.same("SELECT id, v::text FROM t")
            twins.same("SELECT sum(v), min(v), max(v), count(v) FROM t")
            twins.same(f"SELECT id FROM t WHERE v = {value} OR v < 0.3")
            twins.verify()
            twins.execute("DROP TABLE t")


def test_row_groups_end_where_rows_would_end_them(source: Twins) -> None:
    """Many, by number of rows and by bytes; values that pass the session's memory."""
    side = source.columnar
    side.execute("SET strata_columnar.row_group_rows = 1500")
    for vector in ("on", "off"):
        side.execute(f"SET strata_columnar.enable_vector = {vector}")
        side.execute(f"CREATE TABLE small_{vector} AS SELECT * FROM s")
        side.execute(f"INSERT INTO small_{vector} SELECT * FROM s WHERE id < 2000")
    groups = "SELECT rows, bytes, raw_bytes FROM strata_columnar.columnar_row_groups('small_{}')"
    assert side.execute(groups.format("on")) == side.execute(groups.format("off"))

    side.execute("RESET strata_columnar.row_group_rows; RESET strata_columnar.enable_vector")
    side.execute("SET strata_columnar.write_memory = '1MB'")
    side.execute("CREATE TABLE wide AS SELECT id, repeat(long, 200) AS w FROM s WHERE id <= 2000")
    source.heap.execute(
        "CREATE TABLE wide AS SELECT id, repeat(long, 200) AS w FROM s WHERE id <= 2000"
    )
    source.execute("CREATE TABLE again AS SELECT w, id FROM wide")
    same_tables(source, "wide", "again")
    assert side.execute("SELECT count(*) > 5 FROM strata_columnar.columnar_row_groups('again')")[0][
        0
    ]


def peak_memory(side: Side) -> int:
    """The most megabytes that the session's process had."""
    status = Path(f"/proc/{side.connection.info.backend_pid}/status").read_text()
    return int(re.search(r"VmHWM:\s+(\d+) kB", status)[1]) // 1024


def test_long_computed_values_are_not_made_for_a_batch_at_once(source: Twins) -> None:
    """A batch of them would take 400 MB."""
    side = source.open_side("columnar")
    try:
        side.execute("SET strata_columnar.write_memory = '1MB'; SET max_parallel_workers_per_gather = 0")  # fmt: skip
        side.execute("CREATE TABLE long AS SELECT id, repeat(id % 10 || '.', 200000) AS w FROM raw WHERE id <= 1100")  # fmt: skip
        assert peak_memory(side) < 250
    finally:
        side.connection.close()
    assert side.schema == source.columnar.schema
    source.heap.execute("CREATE TABLE long AS SELECT id, repeat(id % 10 || '.', 200000) AS w FROM raw WHERE id <= 1100")  # fmt: skip
    source.same("SELECT id, length(w), left(w, 4) FROM long")


def test_computed_values_of_changing_length(source: Twins) -> None:
    """As many rows as are computed together change with the lengths; each is written once."""
    query = (
        "SELECT id, repeat(word, CASE WHEN id BETWEEN 2000 AND 2060 THEN 9000 ELSE id % 5 END) AS w,"
        " price * 2 AS p, word || id AS l, ARRAY[id, small] AS a FROM s"
    )
    for where in ("", " WHERE id % 3 = 0", " WHERE id > 1990"):
        source.same(f"CREATE TABLE made AS {query}{where}")
        same_tables(source, "made")
        source.execute("DROP TABLE made")


def test_columns_order_subset_and_defaults(source: Twins) -> None:
    source.execute(
        "CREATE SEQUENCE seq",
        "CREATE TABLE t (a text DEFAULT 'none', gone integer, b bigint, c numeric(6, 1),"
        " d integer DEFAULT 7, e varchar(3), f timestamptz DEFAULT '2001-01-01 00:00+00')",
        "ALTER TABLE t DROP COLUMN gone",
    )
    source.same("INSERT INTO t (c, b) SELECT price, id FROM s")
    source.same("INSERT INTO t (b, a, e) SELECT small, word, substr(long, 1, 3) FROM s")
    assert taken(source, "INSERT INTO t (d, c) SELECT id, free FROM s WHERE free < 600")
    same_tables(source, "t")
    source.execute(
        "ALTER TABLE t ALTER d SET DEFAULT nextval('seq'), ADD COLUMN g integer DEFAULT 5"
    )
    assert taken(source, "INSERT INTO t (a) SELECT 'same' FROM s") is None
    assert taken(source, "INSERT INTO t (a, d) SELECT word, id FROM s") is not None
    same_tables(source, "t")
    source.fails("INSERT INTO t (e) SELECT long FROM s", "22001")
    source.fails("INSERT INTO t (c, d) SELECT price * 1000, id FROM s", "22003")
    same_tables(source, "t")


# ---- constraints ---------------------------------------------------------------------------------


@pytest.mark.parametrize("lacking", [1, 2, 1023, 1024, 1025, 1026, 3000, ROWS])
def test_not_null_is_refused_in_the_same_words(source: Twins, lacking: int) -> None:
    source.execute(
        f"CREATE TABLE n AS SELECT id, nullif(id, {lacking}) AS v, word FROM raw",
        "CREATE TABLE t (id integer NOT NULL, v integer NOT NULL, word text NOT NULL)",
    )
    source.fails("INSERT INTO t SELECT * FROM n", "23502")
    source.same("SELECT count(*) FROM t")
    source.same(f"INSERT INTO t SELECT * FROM n WHERE id <> {lacking}")
    same_tables(source, "t")


def test_a_value_is_missing_in_two_columns(source: Twins) -> None:
    source.execute(
        "CREATE TABLE n AS SELECT nullif(id, 2100) AS a, nullif(id, 2050) AS b FROM raw",
        "CREATE TABLE t (a integer NOT NULL, b integer NOT NULL)",
    )
    source.fails("INSERT INTO t SELECT * FROM n", "23502")
    source.fails("INSERT INTO t SELECT b, a FROM n", "23502")


@pytest.mark.parametrize(
    "change",
    [
        "ALTER TABLE t ADD CHECK (id <> 3500)",
        "CREATE UNIQUE INDEX ON t (id)",
        "CREATE INDEX ON t (small)",
        "ALTER TABLE t ADD COLUMN twice integer GENERATED ALWAYS AS (id * 2) STORED",
        "ALTER TABLE t ADD PRIMARY KEY (id)",
        "CREATE TABLE keys AS SELECT generate_series(0, 6) AS k; ALTER TABLE keys ADD PRIMARY KEY (k);"
        " ALTER TABLE t ADD FOREIGN KEY (small) REFERENCES keys",
        "CREATE FUNCTION cut() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
        " IF NEW.id % 3 = 0 THEN RETURN NULL; END IF; NEW.word = 'cut'; RETURN NEW; END $$;"
        " CREATE TRIGGER cut BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION cut()",
        "CREATE TABLE log (n integer);"
        " CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
        " INSERT INTO log VALUES (NEW.id); RETURN NULL; END $$;"
        " CREATE TRIGGER note AFTER INSERT ON t FOR EACH ROW EXECUTE FUNCTION note()",
        "CREATE TABLE log (n integer);"
        " CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
        " INSERT INTO log SELECT id FROM fresh; RETURN NULL; END $$;"
        " CREATE TRIGGER note AFTER INSERT ON t REFERENCING NEW TABLE AS fresh"
        " FOR EACH STATEMENT EXECUTE FUNCTION note()",
    ],
)  # fmt: skip
def test_what_is_done_for_each_row_is_done(source: Twins, change: str) -> None:
    source.execute(f"CREATE TABLE t ({COLUMNS})")
    source.same(f"INSERT INTO t ({', '.join(NAMES)}) SELECT * FROM s WHERE id < 100")
    source.execute(change)
    names = ", ".join(NAMES)
    source.same(f"INSERT INTO t ({names}) SELECT * FROM s")
    source.same(
        f"INSERT INTO t ({names}) SELECT * FROM s WHERE id BETWEEN 4000 AND 4500 AND small < 4"
    )
    assert taken(source, f"INSERT INTO t ({names}) SELECT * FROM s WHERE id < 0") is None
    same_tables(source, "t")
    if "log" in change:
        same_tables(source, "log")


def test_statement_triggers_see_the_rows(source: Twins) -> None:
    source.execute(
        f"CREATE TABLE t ({COLUMNS})",
        "CREATE TABLE log (place text, n bigint)",
        "CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
        " INSERT INTO log SELECT TG_WHEN, count(*) FROM t; RETURN NULL; END $$",
        "CREATE TRIGGER before BEFORE INSERT ON t EXECUTE FUNCTION note()",
        "CREATE TRIGGER after AFTER INSERT ON t EXECUTE FUNCTION note()",
    )
    assert taken(source, "INSERT INTO t SELECT * FROM s") is not None
    source.same("INSERT INTO t SELECT * FROM s WHERE id < 3000")
    same_tables(source, "t", "log")


def test_returning_conflicts_and_routing(source: Twins) -> None:
    source.execute(
        f"CREATE TABLE t ({COLUMNS})",
        f"CREATE TABLE p ({COLUMNS}) PARTITION BY RANGE (id)",
        "CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (1) TO (1700)",
        "CREATE TABLE p2 PARTITION OF p FOR VALUES FROM (1700) TO (6000)",
    )
    source.same("INSERT INTO t SELECT * FROM s RETURNING id, word")
    source.same("INSERT INTO t SELECT * FROM s ON CONFLICT DO NOTHING")
    source.same("INSERT INTO p SELECT * FROM s")
    source.same("INSERT INTO p1 SELECT * FROM s WHERE id < 1500")
    source.fails("INSERT INTO p1 SELECT * FROM s WHERE id <= 1700", "23514")
    source.same(
        "WITH moved AS (INSERT INTO t SELECT * FROM s WHERE id < 1200 RETURNING id)"
        " INSERT INTO p SELECT r.* FROM raw r JOIN moved USING (id)"
    )
    same_tables(source, "t", "p", "p1", "p2")


# ---- transactions --------------------------------------------------------------------------------


def test_a_table_is_inserted_into_itself(source: Twins) -> None:
    source.execute("CREATE TABLE t AS SELECT * FROM s")
    for _ in range(3):
        source.same("INSERT INTO t SELECT * FROM t")
    source.same("INSERT INTO t SELECT a.* FROM t a JOIN d ON d.k = a.small WHERE a.id < 40")
    same_tables(source, "t")
    with source.transaction("ROLLBACK"):
        source.same("INSERT INTO t SELECT * FROM s WHERE id < 10")
        source.same("INSERT INTO t SELECT * FROM t WHERE id < 1000")
        source.same("SELECT count(*), sum(id) FROM t")
    same_tables(source, "t")


def test_savepoints(source: Twins) -> None:
    source.execute("CREATE TABLE t (LIKE s)")
    with source.transaction():
        source.same("INSERT INTO t SELECT * FROM s WHERE id <= 3000")
        source.execute("SAVEPOINT a")
        source.same("INSERT INTO t SELECT * FROM s WHERE id > 3000")
        source.same("SELECT count(*), sum(id) FROM t")
        source.execute("ROLLBACK TO a")
        source.same("INSERT INTO t SELECT * FROM s WHERE id > 4000")
        source.execute("SAVEPOINT b")
        source.same("INSERT INTO t VALUES (1), (2)")
        source.same("INSERT INTO t SELECT * FROM s WHERE id % 2 = 0")
        source.execute("RELEASE b")
        source.same("DELETE FROM t WHERE id % 5 = 0")
        source.same("SELECT count(*), sum(id) FROM t")
    same_tables(source, "t")
    with source.transaction("ROLLBACK"):
        source.same("CREATE TABLE gone AS SELECT * FROM s")
        source.same("INSERT INTO t SELECT * FROM gone")
    same_tables(source, "t")


def test_a_cursor_does_not_see_rows_of_later_commands(source: Twins) -> None:
    source.execute("CREATE TABLE t AS SELECT id FROM s WHERE id <= 1500")
    with source.transaction():
        source.execute("DECLARE c CURSOR FOR SELECT id FROM t")
        source.same("INSERT INTO t SELECT id + 10000 FROM s")
        source.execute("DECLARE e CURSOR FOR SELECT id FROM t")
        source.same("INSERT INTO t SELECT id + 20000 FROM t")
        source.same("FETCH ALL FROM c")
        source.same("FETCH ALL FROM e")
    same_tables(source, "t")


def test_where_statements_come_from(source: Twins) -> None:
    """PL/pgSQL, SQL functions, prepared statements; temporary and unlogged tables."""
    source.execute(
        "CREATE TABLE t (LIKE s)",
        "CREATE FUNCTION fill(bound integer) RETURNS bigint LANGUAGE plpgsql AS $$"
        " DECLARE n bigint; BEGIN INSERT INTO t SELECT * FROM s WHERE id < bound;"
        " GET DIAGNOSTICS n = ROW_COUNT;"
        " CREATE TEMP TABLE kept ON COMMIT DROP AS SELECT * FROM t; RETURN n; END $$",
        "CREATE FUNCTION fill_more(bound integer) RETURNS void LANGUAGE sql AS"
        " 'INSERT INTO t SELECT * FROM s WHERE id > bound'",
        "PREPARE more AS INSERT INTO t SELECT * FROM s WHERE id > $1",
        "PREPARE chosen AS SELECT * FROM s WHERE id < $1",
        "CREATE TEMP TABLE brief (LIKE s)",
        "CREATE UNLOGGED TABLE unlogged (LIKE s)",
    )
    source.same("SELECT fill(3000)")
    source.same("SELECT fill_more(4000)")
    source.same("EXECUTE more (100)")
    source.same("CREATE TABLE chosen AS EXECUTE chosen (2500)")
    source.same("INSERT INTO brief SELECT * FROM s")
    source.same("INSERT INTO unlogged SELECT * FROM brief")
    source.same("SELECT * INTO into_table FROM unlogged WHERE id < 2000")
    same_tables(source, "t", "chosen", "brief", "unlogged", "into_table")


def test_row_security_of_the_target(source: Twins) -> None:
    role = f"writer_{source.name[:30]}"
    source.heap.execute(f"DROP ROLE IF EXISTS {role}; CREATE ROLE {role}")
    try:
        source.execute(
            "CREATE TABLE t (LIKE s)",
            "ALTER TABLE t ENABLE ROW LEVEL SECURITY",
            "CREATE POLICY few ON t WITH CHECK (id < 4000)",
            f"GRANT USAGE ON SCHEMA {{schema}} TO {role}",
            f"GRANT ALL ON t, s TO {role}",
            f"SET ROLE {role}",
        )
        source.same("INSERT INTO t SELECT * FROM s WHERE id < 3500")
        source.fails("INSERT INTO t SELECT * FROM s", "42501")
        source.execute("RESET ROLE")
        same_tables(source, "t")
    finally:
        source.reset()
        source.execute("RESET ROLE", f"REVOKE ALL ON SCHEMA {{schema}} FROM {role}", "DROP TABLE t")
        source.execute(f"REVOKE ALL ON s FROM {role}")
        source.heap.execute(f"DROP ROLE {role}")


def test_statistics_count_every_row(source: Twins) -> None:
    source.execute("CREATE TABLE t (LIKE s)")
    source.same("INSERT INTO t SELECT * FROM s")
    source.execute("SELECT pg_stat_force_next_flush()")
    source.same("SELECT n_tup_ins, n_live_tup FROM pg_stat_user_tables WHERE relid = 't'::regclass")


def test_deleted_rows_of_the_source_are_left_out(source: Twins) -> None:
    source.same("DELETE FROM s WHERE id % 3 = 0")
    source.same("UPDATE s SET word = 'changed' WHERE id % 4 = 0")
    source.same("CREATE TABLE t AS SELECT * FROM s")
    source.same("INSERT INTO t SELECT * FROM s")
    same_tables(source, "t")
