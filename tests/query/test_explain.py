"""EXPLAIN tells what runs where, and plans push down what they promise to."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest

from tests import shop
from tests.cluster import Cluster
from tests.installation import server_major
from tests.pair import Pair, is_gather, open_pair, walk, workers_of


@pytest.fixture(scope="module")
def pair(cluster: Cluster) -> Iterator[Pair]:
    with open_pair(cluster, "test_explain") as made:
        shop.create(made)
        yield made


def node_types(pair: Pair, query: str) -> list[str]:
    return ["Gather" if is_gather(n) else n["Node Type"] for n in pair.nodes(query)]


def pushed_whole(pair: Pair, query: str) -> str:
    """The plan is one distributed node and nothing else; returns its remote SQL."""
    assert node_types(pair, query) == ["Gather"], pair.explain(query)
    return pair.remote_sql(query)


# ---- what EXPLAIN shows ------------------------------------------------------------------------------


def test_text_names_the_node_its_workers_and_its_sql(pair: Pair) -> None:
    text = pair.explain("SELECT name FROM users WHERE age > 30")
    assert "Custom Scan (Strata Gather)" in text
    assert "Workers: 2 of 2" in text
    assert "Remote SQL: SELECT" in text
    assert "test_explain.users" in text


def test_analyze_counts_rows_and_bytes_received(pair: Pair) -> None:
    (gather,) = pair.gathers("SELECT event_id FROM events", "ANALYZE, COSTS OFF, TIMING OFF")
    assert int(gather["Rows Received"]) == shop.EVENTS
    assert shop.EVENTS * 8 <= int(gather["Bytes Received"]) <= shop.EVENTS * 40
    text = pair.explain(
        "SELECT event_id FROM events", "ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF"
    )
    assert f"Rows Received: {shop.EVENTS}" in text
    (gather,) = pair.gathers("SELECT count(*) FROM events", "ANALYZE, COSTS OFF")
    assert int(gather["Rows Received"]) == 2, "one partial result of each worker"


def test_analyze_tells_what_came_from_each_worker(pair: Pair) -> None:
    """Who is slow, and who has more than others, is seen at once."""
    (gather,) = pair.gathers("SELECT event_id FROM events", "ANALYZE, COSTS OFF")
    assert sorted(part["Worker"] for part in gather["Received"]) == ["worker1", "worker2"]
    for total, each in (("Rows Received", "Rows"), ("Bytes Received", "Bytes")):
        assert sum(part[each] for part in gather["Received"]) == gather[total]
    for part in gather["Received"]:
        assert 0 < part["First Row"] <= part["End"]
    text = pair.explain("SELECT event_id FROM events", "ANALYZE, COSTS OFF, SUMMARY OFF")
    assert (
        len(re.findall(r'From "worker[12]": rows=\d+ bytes=\d+ time=[\d.]+\.\.[\d.]+\n?', text))
        == 2
    )
    text = pair.explain("SELECT event_id FROM events", "ANALYZE, COSTS OFF, TIMING OFF")
    assert 'From "worker1"' in text
    assert "time=" not in text
    # over all rescans, and of a scan that ends early
    pair.execute("SET enable_material = off; SET enable_hashjoin = off; SET enable_mergejoin = off")
    (gather, *_) = pair.gathers("SELECT event_id FROM events LIMIT 1", "ANALYZE, COSTS OFF")
    assert all(part["First Row"] <= part["End"] for part in gather["Received"])
    pair.execute("RESET enable_material; RESET enable_hashjoin; RESET enable_mergejoin")


def test_the_plans_of_all_workers(pair: Pair) -> None:
    query = "SELECT count(*) FROM events WHERE event_id < 100"
    pair.ours.execute("SET strata.explain_all_workers = on")
    for options in ("COSTS OFF", "ANALYZE, VERBOSE, COSTS OFF, TIMING OFF, SUMMARY OFF"):
        text = pair.explain(query, options)
        for name in ("worker1", "worker2"):
            assert f'Remote Plan of "{name}":' in text
        (gather,) = pair.gathers(query, options)
        assert [part["Worker"] for part in gather["Remote Plans"]] == ["worker1", "worker2"]
        assert all("Aggregate" in part["Remote Plan"] for part in gather["Remote Plans"])
    assert pair.explain("SELECT * FROM users WHERE user_id = 7").count("Remote Plan of") == 1
    pair.ours.execute("RESET strata.explain_all_workers")
    assert "Remote Plan" not in pair.explain(query)
    if server_major() >= 18:
        text = pair.explain(query, "STRATA, COSTS OFF")
        assert 'Remote Plan of "worker2":' in text
        assert "Remote Plan" not in pair.explain(query, "STRATA off, COSTS OFF")


def test_without_analyze_nothing_is_received(pair: Pair) -> None:
    (gather,) = pair.gathers("SELECT event_id FROM events")
    assert "Rows Received" not in gather


def test_verbose_shows_the_plan_of_one_worker(pair: Pair) -> None:
    text = pair.explain("SELECT name FROM users WHERE user_id = 17", "VERBOSE, COSTS OFF")
    assert "Remote Plan" in text
    assert "users_s" in text, "the worker's own partition"
    (gather,) = pair.gathers("SELECT count(*) FROM events", "VERBOSE, COSTS OFF")
    assert "events_s" in json.dumps(gather["Remote Plan"])


def test_verbose_names_window_functions_that_workers_compute(pair: Pair) -> None:
    query = (
        "SELECT row_number() OVER w, 1 + sum(event_id) FILTER (WHERE event_id > 5) OVER w,"
        " lag(event_id, 2) OVER (PARTITION BY user_id ORDER BY event_id DESC) FROM events"
        " WINDOW w AS (PARTITION BY user_id ORDER BY event_id)"
    )
    pushed_whole(pair, query)
    text = pair.explain(query, "VERBOSE, COSTS OFF")
    (output,) = re.findall(r"(?m)^  Output: (.*)", text.split("Remote")[0])
    for part in ("row_number()", "FILTER (WHERE (", "lag("):
        assert part in output
    above = f"SELECT DISTINCT n + 1, count(*) OVER () FROM ({query}) AS r (n, s, l)"
    assert "Remote Plan" in pair.explain(above, "VERBOSE, COSTS OFF")


@pytest.mark.parametrize("explain_format", ["JSON", "YAML", "XML"])
@pytest.mark.parametrize("options", ["COSTS OFF", "VERBOSE", "ANALYZE, VERBOSE, BUFFERS"])
def test_every_format_is_well_formed(pair: Pair, explain_format: str, options: str) -> None:
    query = "SELECT u.name, count(*) FROM users u JOIN events e USING (user_id) GROUP BY u.name"
    ((text,),) = pair.rows(f"EXPLAIN ({options}, FORMAT {explain_format}) {query}")
    assert "Strata Gather" in json.dumps(text) if explain_format == "JSON" else text
    if explain_format == "XML":
        pair.rows("SELECT %s::xml", (text,))


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO notes VALUES ('explained', 1, 'x')",
        "UPDATE users SET age = age + 1 WHERE user_id = 5",
        "UPDATE users SET age = age + 1",
        "DELETE FROM events WHERE user_id = 5",
        "INSERT INTO users (user_id, name) VALUES (5, 'x') ON CONFLICT (user_id)"
        " DO UPDATE SET age = users.age + 1",
        "UPDATE countries SET name = name || '!'",
    ],
)
@pytest.mark.parametrize("options", ["ANALYZE", "ANALYZE, VERBOSE, FORMAT JSON"])
def test_analyze_of_dml_runs_it_once(pair: Pair, statement: str, options: str) -> None:
    state = [
        "SELECT count(*), sum(age) FROM users",
        "SELECT count(*) FROM events",
        "SELECT count(*) FROM notes",
        "SELECT sum(length(name)) FROM countries",
    ]
    with pair.transaction():
        pair.theirs.execute(statement)
        pair.ours.execute(f"EXPLAIN ({options}) {statement}")
        pair.all_same(state)
    with pair.transaction():
        pair.ours.execute(f"EXPLAIN (VERBOSE) {statement}")
        pair.all_same(state)


def test_dml_shows_the_statement_that_is_shipped(pair: Pair) -> None:
    text = pair.explain("UPDATE users SET age = 1 WHERE user_id = 5")
    assert "UPDATE" in text.split("Remote SQL:")[1]
    assert "Workers: 1 of 2" in text
    text = pair.explain("DELETE FROM events")
    assert "DELETE" in text.split("Remote SQL:")[1]
    assert "Workers: 2 of 2" in text


# ---- routing -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM users WHERE user_id = 17",
        "SELECT * FROM users WHERE user_id = 17::bigint",
        "SELECT * FROM users WHERE 17 = user_id AND age > 3",
        "SELECT count(*), sum(amount) FROM events WHERE user_id = 17",
        "SELECT * FROM users JOIN events USING (user_id) WHERE user_id = 17",
        "SELECT * FROM users u JOIN events e ON e.user_id = u.user_id WHERE e.user_id = 17",
        "SELECT kind_id, count(*) FROM events WHERE user_id = 17 GROUP BY kind_id ORDER BY 2, 1 LIMIT 3",
        "SELECT name FROM users WHERE user_id = 17 AND EXISTS (SELECT FROM events e WHERE"
        " e.user_id = users.user_id)",
        "SELECT * FROM notes WHERE topic = 'topic 3'",
        "SELECT * FROM visits WHERE visit_id = 1000003",
        "SELECT * FROM users JOIN countries ON code = country WHERE user_id = 17",
    ],
)
def test_a_query_of_one_key_asks_one_worker(pair: Pair, query: str) -> None:
    (gather,) = pair.gathers(query)
    assert workers_of(gather) == 1, pair.explain(query)
    assert pair.explain(query).count("Workers: 1 of 2") == 1
    pair.same(query)


def test_a_prepared_statement_is_routed_by_its_parameter(pair: Pair) -> None:
    for mode in ("force_custom_plan", "force_generic_plan"):
        pair.ours.execute(f"SET plan_cache_mode = {mode}")
        pair.ours.execute("PREPARE one (int) AS SELECT * FROM users WHERE user_id = $1")
        for key in (1, 2, 3, 17):
            nodes = pair.nodes(f"EXECUTE one ({key})", "ANALYZE, COSTS OFF")
            (gather,) = [node for node in nodes if is_gather(node)]
            assert workers_of(gather) == 1, (mode, gather)
        pair.ours.execute("DEALLOCATE one; RESET plan_cache_mode")


def test_a_query_of_several_keys_asks_only_their_workers(pair: Pair) -> None:
    keys = pair.on_workers(
        "SELECT array_agg(user_id) FROM (SELECT user_id FROM users LIMIT 3) AS u"
    )
    for of_one_worker in keys:
        listed = ", ".join(map(str, of_one_worker))
        (gather,) = pair.gathers(f"SELECT * FROM users WHERE user_id IN ({listed})")
        assert workers_of(gather) == 1
    listed = ", ".join(str(key) for (key, *_) in keys)
    (gather,) = pair.gathers(f"SELECT * FROM users WHERE user_id IN ({listed})")
    assert workers_of(gather) == 2


def test_a_contradiction_asks_nobody(pair: Pair) -> None:
    assert pair.gathers("SELECT * FROM users WHERE user_id = 1 AND false") == []
    assert pair.same("SELECT * FROM users WHERE user_id = NULL") == []


# ---- what is pushed down -----------------------------------------------------------------------------


def test_filters_and_columns_are_pushed(pair: Pair) -> None:
    sql = pushed_whole(pair, "SELECT name FROM users WHERE age > 30 AND upper(country) = 'AT'")
    assert "age > 30" in sql
    assert "upper" in sql
    assert "balance" not in sql


def test_volatile_expressions_stay_on_the_coordinator(pair: Pair) -> None:
    query = "SELECT name FROM users WHERE random() < 2 AND age > 30"
    sql = pair.remote_sql(query)
    assert "random" not in sql
    assert "age > 30" in sql


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM users JOIN events USING (user_id)",
        "SELECT u.name, e.event_id FROM users u LEFT JOIN events e ON e.user_id = u.user_id AND e.ok",
        "SELECT u.name, e.event_id FROM users u RIGHT JOIN events e USING (user_id)",
        "SELECT u.name, e.event_id FROM users u FULL JOIN events e USING (user_id)",
        "SELECT name FROM users u WHERE EXISTS (SELECT FROM events e WHERE e.user_id = u.user_id)",
        "SELECT name FROM users u WHERE NOT EXISTS (SELECT FROM events e WHERE e.user_id = u.user_id)",
        "SELECT name FROM users WHERE user_id IN (SELECT user_id FROM events WHERE amount > 50)",
        "SELECT u.name, k.kind FROM users u JOIN events e USING (user_id) JOIN kinds k USING (kind_id)",
        "SELECT u.name, c.name FROM users u LEFT JOIN countries c ON c.code = u.country",
    ],
    ids=["inner", "left", "right", "full", "semi", "anti", "in", "three tables", "reference left"],
)
def test_a_colocated_join_is_one_remote_sql(pair: Pair, query: str) -> None:
    sql = pushed_whole(pair, query)
    assert "test_explain.users" in sql
    pair.same(query)


def test_a_join_of_tables_hashed_otherwise_is_gathered(pair: Pair) -> None:
    query = "SELECT count(*) FROM users JOIN visits USING (user_id)"
    assert len(pair.gathers(query)) == 2
    pair.same(query)


def test_a_join_with_a_local_table_gathers_only_the_distributed_side(pair: Pair) -> None:
    query = "SELECT u.name, p.plan FROM users u JOIN plans p USING (plan_id) WHERE u.age > 50"
    assert "age > 50" in pair.remote_sql(query)


def test_a_reference_table_alone_is_read_from_the_coordinators_copy(pair: Pair) -> None:
    assert pair.gathers("SELECT * FROM countries JOIN kinds ON true") == []


@pytest.mark.parametrize(
    "query",
    [
        "SELECT user_id, count(*) FROM events GROUP BY user_id",
        "SELECT user_id, kind_id, sum(amount), avg(score) FROM events GROUP BY user_id, kind_id",
        "SELECT user_id, count(DISTINCT kind_id) FROM events GROUP BY user_id",
        "SELECT user_id, array_agg(event_id ORDER BY event_id) FROM events GROUP BY user_id",
        "SELECT user_id, count(*) FROM events GROUP BY user_id HAVING count(*) > 9",
        "SELECT u.user_id, u.name, sum(amount) FROM users u JOIN events e USING (user_id)"
        " GROUP BY u.user_id",
    ],
    ids=["count", "two columns", "distinct", "ordered", "having", "join"],
)
def test_an_aggregate_by_the_key_is_pushed_whole(pair: Pair, query: str) -> None:
    sql = pushed_whole(pair, query)
    assert "GROUP BY" in sql
    assert "strata_partial" not in sql
    pair.same(query)


@pytest.mark.parametrize(
    "query",
    [
        "SELECT count(*) FROM events",
        "SELECT kind_id, count(*), sum(amount), avg(amount), min(at) FROM events GROUP BY kind_id",
        "SELECT country, stddev(balance) FROM users GROUP BY country HAVING count(*) > 5",
        "SELECT k.kind, sum(amount) FROM events JOIN kinds k USING (kind_id) GROUP BY k.kind",
        "SELECT count(*) FILTER (WHERE ok) FROM events",
        "SELECT u.country, count(*) FROM users u JOIN events e USING (user_id) GROUP BY u.country",
    ],
    ids=["no group", "by a column", "having", "reference join", "filter", "colocated join"],
)
def test_another_aggregate_is_split_into_partial_and_final(pair: Pair, query: str) -> None:
    assert "strata_partial" in pair.remote_sql(query)
    modes = [n.get("Partial Mode") for n in pair.nodes(query) if n["Node Type"] == "Aggregate"]
    assert modes == ["Finalize"], pair.explain(query)
    assert "Finalize" in pair.explain(query)
    pair.same(query)


def test_an_aggregate_without_a_combine_function_gathers_rows(pair: Pair) -> None:
    query = "SELECT string_agg(name, ',' ORDER BY user_id) FROM users WHERE age > 50"
    sql = pair.remote_sql(query)
    assert "strata_partial" not in sql
    assert "age > 50" in sql
    pair.same(query)


def test_having_by_the_key_is_pushed(pair: Pair) -> None:
    sql = pushed_whole(pair, "SELECT user_id FROM events GROUP BY user_id HAVING sum(amount) > 400")
    assert "HAVING" in sql


def test_order_and_limit_are_pushed(pair: Pair) -> None:
    query = "SELECT event_id, amount FROM events ORDER BY amount DESC, event_id LIMIT 5"
    sql = pair.remote_sql(query)
    assert "ORDER BY" in sql
    assert "LIMIT" in sql
    (gather,) = pair.gathers(query, "ANALYZE, COSTS OFF")
    assert int(gather["Rows Received"]) <= 10
    pair.same(query)


def test_limit_with_offset_asks_each_worker_for_their_sum(pair: Pair) -> None:
    query = "SELECT event_id FROM events ORDER BY event_id LIMIT 5 OFFSET 100"
    (gather,) = pair.gathers(query, "ANALYZE, COSTS OFF")
    assert int(gather["Rows Received"]) <= 2 * 105
    pair.same(query)


def test_limit_of_an_aggregate_by_the_key_is_pushed(pair: Pair) -> None:
    query = "SELECT user_id, sum(amount) FROM events GROUP BY user_id ORDER BY 2 DESC, 1 LIMIT 3"
    (gather,) = pair.gathers(query, "ANALYZE, COSTS OFF")
    assert int(gather["Rows Received"]) <= 6
    pair.same(query)


def test_distinct_is_pushed(pair: Pair) -> None:
    sql = pushed_whole(pair, "SELECT DISTINCT user_id FROM events")
    assert "DISTINCT" in sql or "GROUP BY" in sql
    (gather,) = pair.gathers("SELECT DISTINCT kind_id FROM events", "ANALYZE, COSTS OFF")
    assert int(gather["Rows Received"]) <= 16
    pair.same("SELECT DISTINCT kind_id FROM events")


def test_a_scalar_subquery_becomes_a_parameter_of_the_remote_sql(pair: Pair) -> None:
    query = "SELECT event_id FROM events WHERE amount = (SELECT max(amount) FROM events)"
    gathers = pair.gathers(query, "ANALYZE, COSTS OFF")
    assert len(gathers) == 2
    ((matching,),) = pair.rows(f"SELECT count(*) FROM ({query}) AS q")
    assert sorted(int(g["Rows Received"]) for g in gathers) == sorted([2, matching])
    pair.same(query)


def test_settings_switch_push_down_off_and_answers_stay(pair: Pair) -> None:
    query = (
        "SELECT u.country, count(*) FROM users u JOIN events e USING (user_id) GROUP BY u.country"
    )
    pair.ours.execute("SET strata.enable_aggregate_pushdown = off")
    assert "strata_partial" not in pair.explain(query)
    pair.same(query)
    pair.ours.execute("SET strata.enable_join_pushdown = off")
    assert len(pair.gathers(query)) == 2
    pair.same(query)
    pair.ours.execute("RESET strata.enable_aggregate_pushdown; RESET strata.enable_join_pushdown")


def test_estimates_come_from_the_statistics_of_the_shell(pair: Pair) -> None:
    plan = pair.plan("SELECT * FROM events", "COSTS")
    assert shop.EVENTS * 0.9 < plan["Plan Rows"] < shop.EVENTS * 1.1
    plan = pair.plan("SELECT * FROM events WHERE kind_id = 3", "COSTS")
    assert shop.EVENTS / 8 * 0.6 < plan["Plan Rows"] < shop.EVENTS / 8 * 1.6


# ---- what costs decide -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def large(pair: Pair) -> Pair:
    """Two tables hashed otherwise, whose scans cost much more than what is done with their few rows."""
    for table in ("large_a", "large_b"):
        pair.execute(f"CREATE TABLE {table} (id integer, g integer, h integer, v integer)")
        pair.distribute(table, "id")
        pair.execute(
            f"INSERT INTO {table} SELECT i, i % 500, i % 500, i FROM generate_series(1, 20000) AS i;"
            f"ANALYZE {table}"
        )
    return pair


@pytest.mark.parametrize("where", ["a.g = 5 AND a.h = 5 AND b.g = 5", "a.g = 5 AND b.g = 5"])
@pytest.mark.parametrize("join", ["JOIN", "LEFT JOIN"])
def test_no_gathered_set_is_searched_per_row_for_an_early_first_row(
    large: Pair, join: str, where: str
) -> None:
    """One row is estimated, 40 come: add_path() took a loop, which is dearer by less than 1 %."""
    query = f"SELECT count(*) FROM large_a AS a {join} large_b AS b USING (v) WHERE {where}"
    assert "Nested Loop" not in node_types(large, query), large.explain(query)
    large.same(query)


def test_a_limit_without_an_order_is_pushed_too(large: Pair) -> None:
    """The workers read no more than they have to."""
    for query in ("SELECT v FROM large_a LIMIT 10", "SELECT v FROM large_a WHERE v > 9 LIMIT 10"):
        (gather,) = large.gathers(query, "COSTS ON")
        assert "LIMIT" in gather["Remote SQL"]
        assert gather["Total Cost"] < 50


def test_nested_gathers_are_all_shown(pair: Pair) -> None:
    plan = pair.plan(
        "SELECT * FROM users u JOIN visits v USING (user_id) JOIN notes n ON n.stars = u.age"
    )
    assert sum(is_gather(node) for node in walk(plan)) == 3
