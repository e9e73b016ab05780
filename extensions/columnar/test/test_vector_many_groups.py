"""Groups that do not fit into memory, or are shared out among processes, are those that heap makes.

With little memory rows of further groups are put aside and aggregated later; in a parallel query each
process reads all rows for its share of the groups.  Both deal rows out by a hash of their keys.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from extensions.columnar.test.test_vector_groups import DIGEST, shows_first
from extensions.columnar.test.test_vector_joins import KEYS as JOIN_KEYS
from extensions.columnar.test.twins import Twins, open_twins
from tests.cluster import Node

ROWS = 33_000
GROUPS = 11_003

# type, value by a number n
KEYS = JOIN_KEYS | {"extreme": ("bigint", "(n - 5000)::bigint * 1200000000000000")}
COLUMNS = ", ".join(f"{name} {type_}" for name, (type_, _) in KEYS.items())
VALUES = ", ".join(
    f"CASE WHEN i % 13 <> 5 THEN ({value})::{type_} END" for type_, value in KEYS.values()
)

PLAIN = {
    "max_parallel_workers_per_gather": "0",
    "work_mem": "'64MB'",
    "hash_mem_multiplier": "1",
    "max_parallel_workers": "8",
    "parallel_leader_participation": "on",
    "enable_hashjoin": "on",
    "enable_mergejoin": "on",
    "enable_material": "on",
}

# Of the columnar side alone: heap has memory for all groups, and adds floats in the order of the rows.
PUT_ASIDE = {"work_mem": "'64kB'"}
SHARED = {
    "max_parallel_workers_per_gather": "2",
    "min_parallel_table_scan_size": "0",
    "parallel_setup_cost": "0",
    "parallel_tuple_cost": "0",
}
MODES = {"aside": PUT_ASIDE, "shared": SHARED, "both": {**SHARED, **PUT_ASIDE}}


@pytest.fixture(scope="module")
def sides(node: Node) -> Iterator[Twins]:
    """t: keys of every family, most values three times, far from each other; NULLs; 3 row groups."""
    with open_twins(node, "test_vector_many_groups") as made:
        made.execute(
            f"CREATE TABLE t (id integer, ratio double precision, amount numeric(12, 3), note text, {COLUMNS})"
        )
        for part in range(3):
            made.execute(
                "INSERT INTO t SELECT i, sqrt(i) * power(10, i % 9), i % 977 / 8.0, 'note ' || i % 313,"
                f" {VALUES} FROM (SELECT i, i * 7919 % {GROUPS} AS n FROM"
                f" generate_series({part * ROWS // 3 + 1}, {(part + 1) * ROWS // 3}) AS i) AS s"
            )
        made.execute("ANALYZE t")
        yield made


@pytest.fixture
def many(sides: Twins) -> Iterator[Twins]:
    """The same with the settings that tests change set back."""
    sides.reset()
    for name, value in PLAIN.items():
        sides.execute(f"SET {name} = {value}")
    sides.execute("SET enable_sort = off")
    yield sides
    sides.execute("RESET ALL")
    for side in sides.sides:
        side.execute(
            f"SET search_path = {side.schema}, public;"
            f" SET default_table_access_method = {side.method}"
        )


def configure(twins: Twins, settings: dict[str, str]) -> None:
    for name, value in settings.items():
        twins.columnar.execute(f"SET {name} = {value}")


def is_shared(twins: Twins, query: str) -> bool:
    return "Parallel Custom Scan (ColumnarAggregate)" in twins.plan(query)


def is_put_aside(twins: Twins, query: str) -> bool:
    return "Times Memory Was Full" in twins.plan(query, "ANALYZE, COSTS OFF, TIMING OFF")


def expect_mode(twins: Twins, mode: str, query: str) -> None:
    assert is_shared(twins, query) == (mode != "aside"), twins.plan(query)
    if mode == "aside":
        assert is_put_aside(twins, query), twins.plan(query)


# ---- keys ------------------------------------------------------------------------------------------

# these have few values
FEW = {"word", "flag"}

AGGREGATES = (
    "count(*), sum(id), min(id), avg(amount), max(note), count(DISTINCT id % 5), sum(id) FILTER"
    " (WHERE id % 3 = 1)"
)


@pytest.mark.sample(4)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("key", [key for key in KEYS if key not in FEW])
def test_keys_of_every_kind(many: Twins, key: str, mode: str) -> None:
    configure(many, MODES[mode])
    query = f"SELECT {AGGREGATES} FROM t GROUP BY {key}"
    if key not in ("span", "small"):
        expect_mode(many, mode, query)
    many.same(DIGEST.format(query))
    shows_first(many, key)


@pytest.mark.sample(4)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    "keys",
    [
        "plain, long", "word, free", "real, padded", "single, flag, note", "day, price, raw", "name, id16, list",
        "plain % 4000, sparse", "upper(name)", "price + 0.50", "moment::date, id / 5", "free * 1.00, id % 3",
        "extract(epoch FROM moment)", "coalesce(long, note)", "real / 2, single::numeric",
        "CASE WHEN id % 7 < 3 THEN price WHEN id % 7 < 5 THEN plain * 1.0 ELSE free END",
    ],
)  # fmt: skip
def test_several_keys(many: Twins, keys: str, mode: str) -> None:
    configure(many, MODES[mode])
    query = f"SELECT {AGGREGATES} FROM t GROUP BY {keys}"
    expect_mode(many, mode, query)
    many.same(DIGEST.format(query))
    many.same(DIGEST.format(query.replace(" GROUP", " WHERE id % 11 < 8 GROUP")))


NUMERICS = {
    "spellings": "round(i % 5003 / 8.0, 3 + i / 7000)",
    "scales": "round(i % 5003 / 8.0, i % 6)",
    "around 2^53": "9007199254740992::numeric + i % 5003 - 4000 + round(0.0, i % 3)",
    "around 2^63": "9223372036854775807::numeric + i % 5003 - 4000 + round(0.0, i % 3)",
    "around 2^127": "170141183460469231731687303715884105727::numeric + i % 5003 - 4000 + round(0.0, i % 2)",
    "many zeroes": "(i % 5003 || '.' || repeat('0', 20 * (i % 4)))::numeric",
    "small": "(i % 5003 || 'e-30')::numeric + round(0.0, 30 + i % 5)",
    "specials": "CASE i % 7 WHEN 0 THEN 'NaN' WHEN 1 THEN 'Infinity' WHEN 2 THEN '-Infinity' ELSE (i % 5003)::text END",
}


@pytest.mark.sample(4)
@pytest.mark.parametrize("mode", ["aside", "shared"])
@pytest.mark.parametrize("series", NUMERICS)
def test_numerics_written_differently(many: Twins, series: str, mode: str) -> None:
    """Equal numerics meet in one part, whatever the form in which they are stored and computed."""
    many.execute(
        "DROP TABLE IF EXISTS n; CREATE TABLE n (id integer, v numeric, w numeric(40, 10))"
    )
    for part in range(3):
        many.execute(
            f"INSERT INTO n SELECT i, ({NUMERICS[series]})::numeric, i % 6000 / 64.0"
            f" FROM generate_series({part * 7000}, {part * 7000 + 6999}) AS i"
        )
    many.execute("ANALYZE n")
    configure(many, MODES[mode])
    for keys in (
        "v",
        "v, w",
        "w",
        "v + 0.00",
        "CASE WHEN id % 2 = 0 THEN v ELSE trim_scale(v) END",
    ):
        query = f"SELECT count(*), sum(id), min(id), count(DISTINCT id % 3) FROM n GROUP BY {keys}"
        assert "ColumnarAggregate" in many.plan(query)
        many.same(DIGEST.format(query))


# ---- aggregates ------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
def test_floats_are_added_in_the_order_of_the_rows(many: Twins, mode: str) -> None:
    configure(many, MODES[mode])
    for keys in ("plain", "long", "plain % 9000, flag"):
        query = f"SELECT {keys}, sum(ratio), avg(ratio), stddev(ratio), sum(real) FROM t GROUP BY {keys}"
        expect_mode(many, mode, query)
        many.same(DIGEST.format(query))


@pytest.mark.parametrize("mode", MODES)
def test_aggregates_of_few_rows(many: Twins, mode: str) -> None:
    """FILTER and DISTINCT; arguments are computed for no row that is not asked for."""
    configure(many, MODES[mode])
    for list_ in (
        "sum(100 / (id % 5)) FILTER (WHERE id % 5 <> 0), count(*), count(DISTINCT note)",
        "count(DISTINCT amount), sum(DISTINCT amount), avg(DISTINCT id % 4), min(long)",
        'count(DISTINCT word) FILTER (WHERE id % 2 = 0), max(note COLLATE "C"), bool_and(flag)',
        "count(DISTINCT real), count(DISTINCT free), count(DISTINCT padded)",
    ):
        query = f"SELECT sparse, {list_} FROM t GROUP BY sparse"
        expect_mode(many, mode, query)
        many.same(DIGEST.format(query))


@pytest.mark.parametrize("mode", MODES)
def test_errors_are_raised(many: Twins, mode: str) -> None:
    configure(many, MODES[mode])
    many.fails("SELECT plain, sum(1 / (id - 29000)) FROM t GROUP BY plain", "22012")
    many.fails("SELECT plain / (id - 15000), count(*) FROM t GROUP BY 1", "22012")


@pytest.mark.parametrize("mode", MODES)
def test_having_order_and_limit(many: Twins, mode: str) -> None:
    configure(many, MODES[mode])
    many.execute("SET enable_sort = on")
    for query in (
        "SELECT long, count(*) FROM t GROUP BY long HAVING count(*) > 2 AND sum(id) % 7 = 3 ORDER BY long LIMIT 50",
        "SELECT plain, sum(id) AS s FROM t GROUP BY plain ORDER BY s DESC, plain LIMIT 20 OFFSET 7",
        "SELECT count(*), sum(c), sum(s) FROM (SELECT count(*) AS c, sum(id) AS s FROM t GROUP BY name) AS q",
        "SELECT plain, count(DISTINCT id) FROM t GROUP BY plain HAVING count(DISTINCT id) = 2 ORDER BY 1",
        "SELECT DISTINCT long, flag FROM t ORDER BY long, flag LIMIT 30",
        "SELECT c, count(*) FROM (SELECT count(*) AS c FROM t GROUP BY free) AS q GROUP BY c",
    ):
        assert "ColumnarAggregate" in many.plan(query)
        many.same(query)
    for query in (
        "SELECT plain, count(*) FROM t GROUP BY plain LIMIT 10",
        "SELECT DISTINCT long FROM t LIMIT 5",
    ):
        rows = many.columnar.execute(query)
        assert len(set(rows)) == len(rows) == int(query.split()[-1])


@pytest.mark.parametrize("mode", MODES)
def test_nothing_to_group(many: Twins, mode: str) -> None:
    configure(many, MODES[mode])
    many.same("SELECT plain, count(*) FROM t WHERE id < 0 GROUP BY plain")
    many.same("SELECT plain, count(*) FROM t WHERE plain IS NULL GROUP BY plain")


# ---- processes -------------------------------------------------------------------------------------

SHARED_QUERY = (
    "SELECT long, count(*) AS c, sum(id) AS s, count(DISTINCT note) AS d FROM t GROUP BY long"
)


@pytest.mark.parametrize(
    "settings",
    [
        {"max_parallel_workers": "0"},
        {"max_parallel_workers": "1"},
        {"parallel_leader_participation": "off"},
        {"parallel_leader_participation": "off", "max_parallel_workers": "0"},
        {"parallel_leader_participation": "off", "max_parallel_workers": "1", "work_mem": "'64kB'"},
    ],
    ids=str,
)
def test_processes_that_do_not_start(many: Twins, settings: dict[str, str]) -> None:
    configure(many, {**SHARED, **settings})
    assert is_shared(many, SHARED_QUERY), many.plan(SHARED_QUERY)
    many.same(DIGEST.format(SHARED_QUERY))
    many.same(f"SELECT * FROM ({SHARED_QUERY}) AS q ORDER BY s LIMIT 100")


@pytest.mark.parametrize("mode", MODES)
def test_groups_are_made_again(many: Twins, mode: str) -> None:
    """The inner side of a nested loop, each time with new files and new shares."""
    configure(many, MODES[mode])
    many.execute("SET enable_hashjoin = off; SET enable_mergejoin = off; SET enable_material = off")
    for inner in (
        SHARED_QUERY,
        f"{SHARED_QUERY} LIMIT 5000",
        "SELECT plain AS s, 1 AS c, 2 AS d FROM t GROUP BY plain",
    ):
        query = f"SELECT x, count(q.s) FROM generate_series(1, 3) AS x LEFT JOIN ({inner}) AS q ON q.c >= 0 AND q.d > x - 9 GROUP BY x"
        many.same(query)


@pytest.mark.parametrize("mode", ["aside", "both"])
def test_groups_of_every_outer_row(many: Twins, mode: str) -> None:
    configure(many, MODES[mode])
    many.same(
        "SELECT x, q.* FROM generate_series(0, 4) AS x, LATERAL (SELECT count(*), sum(c), sum(s), sum(f) FROM"
        " (SELECT count(*) AS c, sum(id) AS s, min(id) AS f FROM t WHERE id % 5 < x GROUP BY long) AS g) AS q"
    )


@pytest.mark.parametrize("mode", MODES)
def test_cursors_stop_early(many: Twins, mode: str) -> None:
    configure(many, MODES[mode])
    side = many.columnar
    told: list[str] = []  # files that are not closed
    side.connection.add_notice_handler(lambda notice: told.append(notice.message_primary))
    side.execute(f"{SHARED_QUERY} LIMIT 5")
    side.execute("BEGIN")
    side.execute(f"DECLARE c CURSOR FOR {SHARED_QUERY}")
    rows = side.execute("FETCH 100 FROM c") + side.execute("FETCH 5000 FROM c")
    assert len(rows) == len({key for key, *_ in rows}) == 5100
    side.execute("CLOSE c; COMMIT")
    assert told == []
    many.same(DIGEST.format(SHARED_QUERY))


@pytest.mark.parametrize("mode", MODES)
def test_tables_of_a_tree_and_joins(many: Twins, mode: str) -> None:
    many.execute(
        "DROP TABLE IF EXISTS tree, partner",
        "CREATE TABLE tree (id integer, k bigint, s text) PARTITION BY RANGE (id)",
        "CREATE TABLE tree1 PARTITION OF tree FOR VALUES FROM (0) TO (10000)",
        "CREATE TABLE tree2 PARTITION OF tree FOR VALUES FROM (10000) TO (33001)",
        "INSERT INTO tree SELECT id, sparse, long FROM t",
        "CREATE TABLE partner (k bigint, v integer)",
        "INSERT INTO partner SELECT g::bigint * 1000003, g % 77 FROM generate_series(0, 15000) AS g",
        "ANALYZE tree; ANALYZE partner",
    )
    configure(many, MODES[mode])
    for query in (
        "SELECT k, count(*), sum(id), count(DISTINCT s) FROM tree GROUP BY k",
        "SELECT s, k, count(*), min(id) FROM tree WHERE id > 3000 GROUP BY s, k",
        "SELECT s, v, count(*), sum(id) FROM tree JOIN partner USING (k) GROUP BY s, v",
        "SELECT k, v, count(DISTINCT s) FROM tree LEFT JOIN partner USING (k) GROUP BY k, v",
    ):
        assert "ColumnarAggregate" in many.plan(query)
        many.same(DIGEST.format(query))


@pytest.mark.sample(4)
@pytest.mark.parametrize("mode", [*MODES, "plain"])
@pytest.mark.parametrize(
    "keys",
    [
        "plain, plain - 1, plain % 7",
        "long, upper(long), plain, plain + small, small, length(long)",
        "padded, padded || 'x', length(padded)",
        "free, free::text",
        "real, 1 / nullif(real, 0), plain",
        "plain * 2, plain, flag, NOT flag",
        "name, left(name, 2), name || long",
        "day, day + 1, word, coalesce(word, day::text)",
    ],
)
def test_keys_that_others_determine(many: Twins, keys: str, mode: str) -> None:
    """They are not looked at, unless equal values may differ: 1.1 and 1.10, 0 and -0, blanks."""
    configure(many, MODES.get(mode, {}))
    query = f"SELECT {keys}, {AGGREGATES} FROM t GROUP BY {keys}"
    assert "ColumnarAggregate" in many.plan(query)
    many.same(DIGEST.format(query))
