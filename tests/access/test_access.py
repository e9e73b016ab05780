"""Who may use what of Strata itself: every function and relation of it has to be classified here.

A new one fails the test until somebody has decided who may call or read it.
"""

from __future__ import annotations

import psycopg
import pytest

from tests.cluster import Cluster, Node
from tests.waiting import wait_until

SCHEMA = "test_access"
MONITOR = "strata_monitor"

# Everybody: what checks the caller's rights on its argument itself, or tells nothing secret.
EVERYBODY = {
    "coordinator": """
        strata.as_text strata.checked_value strata.owns strata.alter_columnar_table_reset strata.alter_columnar_table_set strata.calling_role
        strata.conninfo_address strata.may_see
        strata.create_distributed_table strata.create_reference_table strata.distributed_handler
        strata.flatten_obstacle strata.flatten_partitioned_table strata.heat strata.heat_statistics
        strata.leaf_statistics strata.list_in_doubt strata.object_classes
        strata.partman_forget strata.partman_rule strata.period_bound strata.period_start
        strata.role_attributes strata.shard_statistics
        strata.set_tier_policy strata.statement_classes strata.table_checksum
        strata.tier_move_statistics strata.tier_plan strata.tier_statistics strata.type_of
        strata.undistribute_table strata.used_periods strata.worker_status
        strata.define_table strata.distribute_anew strata.alter_distributed_table strata.set_columnar_options strata.table_definition
        strata_partial.create_partials strata_partial.follow_aggregates
    """,
    # the coordinator's sessions call these as the roles of the users
    "worker": """
        strata.as_text strata.checked_value strata.owns strata.period_bound strata.period_start strata.role_attributes strata.table_checksum
        strata.type_of strata.used_periods strata_columnar.alter_columnar_table_reset
        strata_columnar.alter_columnar_table_set strata_columnar.columnar_chunks
        strata_columnar.columnar_compact strata_columnar.columnar_handler
        strata_columnar.columnar_options strata_columnar.columnar_recluster
        strata_columnar.columnar_row_groups strata_columnar.columnar_stats
        strata_columnar.columnar_verify strata_partial.create_partials
        strata_partial.follow_aggregates
        strata_worker.alter_role_in_database strata_worker.attach_index
        strata_worker.check_coordinator strata_worker.check_after_read strata_worker.check_session strata_worker.check_schema_version strata_worker.check_before_read strata_worker.cluster_table
        strata_worker.create_partials strata_worker.create_periods strata_worker.create_role
        strata_worker.create_schema strata_worker.drop_index_parts strata_worker.execute_patiently
        strata_worker.forget_periods strata_worker.index_list strata_worker.index_parts
        strata_worker.is_not_after strata_worker.later_period strata_worker.leaf_list
        strata_worker.lend_create strata_worker.mark_inherited strata_worker.measure_table strata_worker.newest_change strata_worker.next_index_command strata_worker.own_database
        strata_worker.own_leaves strata_worker.own_schema strata_worker.period_leaf_name
        strata_worker.period_leaves strata_worker.period_of strata_worker.pin_snapshot
        strata_worker.place_objects
        strata_worker.record_schema_version strata_worker.register_session
        strata_worker.rename_periods strata_worker.rename_schema strata_worker.rows strata_worker.set_index_options strata_worker.set_statistics strata_worker.shard_list
        strata_worker.table_list strata_worker.take_row strata_worker.trust_constraints strata_worker.use_snapshot
    """,
}
MONITORS = {
    "coordinator": "strata.all_lock_waits strata.check_health strata.find_collation_faults strata.find_heavy_keys strata.move_progress strata.node_health strata.versions",
    "worker": "",
}
SUPERUSERS = {
    "coordinator": """
        strata.add_worker strata.adopt_shards strata.aggregate_definition strata.begin_move strata.finish_move strata.note_move_error strata.plan_moves
        strata.rebalance_plan strata.rebalance_start strata.rebalance_stop strata.rebalance_wait strata.changed_privileges
        strata.claim_server strata.hold_worker strata.release_worker strata.take_over
        strata.collation_definition strata.create_restore_point strata.detect_deadlocks
        strata.extension_definition strata.extension_privileges
        strata.find_table_faults strata.is_local_extension strata.object_is_everywhere
        strata.lock_edges strata.lock_modes_conflict strata.move_back strata.move_shard strata.next_cutoff
        strata.node_lock_waits strata.object_definition strata.object_owner strata.place_command
        strata.placed_object
        strata.recreate_lost_shards strata.release_kept_shards strata.remove_worker strata.role_commands
        strata.role_setting strata.role_state strata.run_command_on_workers strata.run_on_worker
        strata.schema_commands strata.schema_definition strata.session_wires strata.sync_roles
        strata.split_shard strata.store_definition strata.tier_policies strata.tier_policy_target strata.check_tier_age
        strata.find_missing_tier strata.type_definition
        strata.invalidate_metadata strata.replicate_reference_row strata.truncate_reference_table
        strata_partial.adopt strata_partial.definition strata_partial.notice_aggregates
        strata_partial.partial_name
    """,
    "worker": """
        strata.lock_modes_conflict strata.node_lock_waits strata.role_state
        strata_partial.adopt strata_partial.definition strata_partial.notice_aggregates
        strata_partial.partial_name
        strata_worker.accept_replay strata_worker.adopt_leaf strata_worker.attach_coordinator strata_worker.attach_filled
        strata_worker.check_own_statement strata_worker.check_place strata_worker.check_schema_owner
        strata_worker.check_shard_owner strata_worker.find_object strata_worker.is_born_here
        strata_worker.is_superuser strata_worker.object_owner strata_worker.replace_owner
        strata_worker.replace_privileges
        strata_worker.copy_rows strata_worker.create_period strata_worker.detach_coordinator strata_worker.drop_kept_shard strata_worker.empty_leaf
        strata_worker.end_older_sessions strata_worker.end_sessions strata_worker.execute_as_owner
        strata_worker.execute_keeping_settings strata_worker.execute_with_users_settings strata_worker.follow_index
        strata_worker.free_space
        strata_worker.follow_indexes strata_worker.guard_functions strata_worker.heap_rows
        strata_worker.keep_shard strata_worker.leave_cluster strata_worker.use_kept_shard
        strata_worker.mark_session strata_worker.marked_sessions strata_worker.session_has_mark
        strata_worker.partman_create_parent strata_worker.partman_schema
        strata_worker.period_rule strata_worker.period_work strata_worker.prepare_attach strata_worker.registered_sessions
        strata_worker.set_column_statistics strata_worker.spread_statistics
        strata_worker.unknown_periods
        strata_columnar.begin_move strata_columnar.columnar_move_files
        strata_columnar.columnar_move_forget strata_columnar.columnar_move_run
        strata_columnar.finish_move strata_columnar.forget_moves
        strata_columnar.move_columnar_table strata_columnar.row_number
        strata_columnar.row_tid strata_columnar.row_tids strata_columnar.visible_rows
        strata_tiering.add_heat strata_tiering.begin_loading strata_tiering.begin_round
        strata_tiering.disk strata_tiering.forget_heat strata_tiering.hot_room
        strata_tiering.keep_heat strata_tiering.leaf_heat strata_tiering.leaf_list
        strata_tiering.leaf_states strata_tiering.leaves strata_tiering.leaves_of_shard
        strata_tiering.may_move strata_tiering.move_list strata_tiering.move_rate
        strata_tiering.plan strata_tiering.replica_lag strata_tiering.row_group_heat
        strata_tiering.set_policies strata_tiering.start strata_tiering.table_heat
    """,
}

# SECURITY DEFINER: what runs as a superuser for whoever calls it.
DEFINERS = {
    "coordinator": "strata.all_lock_waits strata.extension_privileges strata.find_collation_faults strata.find_heavy_keys strata.heat_statistics strata.leaf_statistics strata.node_health strata.versions"
    " strata.partman_forget strata.partman_rule strata.place_command strata.release_kept_shards strata.set_tier_policy strata.shard_statistics"
    " strata.tier_move_statistics strata.tier_statistics"
    " strata_partial.create_partials strata_partial.follow_aggregates",
    "worker": "strata_worker.check_coordinator strata_worker.check_session strata_worker.check_schema_version strata_worker.check_before_read"
    " strata_worker.cluster_table strata_worker.set_index_options"
    " strata_worker.create_periods strata_worker.create_schema strata_worker.forget_periods"
    " strata_worker.lend_create strata_worker.mark_inherited strata_worker.own_database strata_worker.own_leaves"
    " strata_worker.own_schema strata_worker.place_objects"
    " strata_worker.record_schema_version strata_worker.rename_periods strata_worker.rename_schema"
    " strata_worker.set_statistics strata_worker.trust_constraints"
    " strata_partial.create_partials strata_partial.follow_aggregates",
}

# SQL and PL/pgSQL that follow the caller's search_path, and why that is no danger.
UNPINNED = {
    "strata.alter_distributed_table",  # finds the table that the caller names; every name is qualified
    "strata.run_command_on_workers",  # the command shall see it, too; superusers only
    "strata_columnar.move_columnar_table",  # commits, so it cannot; every name is qualified
    "strata_partial.notice_aggregates",  # looks at it; every name is qualified
    "strata_worker.execute_patiently",  # runs the caller's own command as the caller
}

RELATIONS = {
    "strata.cluster": "",
    "strata.colocation": "",
    "strata.colocation_id_seq": "",
    "strata.distributed_table": "",
    "strata.distributed_transaction": "",
    "strata.in_doubt": "public: SELECT",
    "strata.kept_shard": "",
    "strata.kept_shards": "pg_monitor: SELECT",
    "strata.lock_waits": "pg_monitor: SELECT",
    "strata.partitions": "public: SELECT",
    "strata.rebalance_status": "pg_monitor: SELECT",
    "strata.shard": "",
    "strata.shard_move": "",
    "strata.shard_move_move_id_seq": "",
    "strata.shards": "public: SELECT",
    "strata.tables": "public: SELECT",
    "strata.tier_moves": "public: SELECT",
    "strata.tier_policy": "",
    "strata.worker": "",
    "strata.worker_id_seq": "",
    "strata.workers": "public: SELECT",
    "strata_columnar.options": "public: SELECT",
    "strata_columnar.table_move": "",
    "strata_partial.candidates": "",
    "strata_tiering.heat": "",
    "strata_tiering.move": "",
    "strata_tiering.move_id_seq": "",
    "strata_tiering.policy": "",
    "strata_tiering.setting": "",
    "strata_worker.cluster": "",
    "strata_worker.period_template": "",
    "strata_worker.schema_version": "",
}

FUNCTIONS = """
SELECT n.nspname || '.' || p.proname, p.prosecdef,
       CASE WHEN p.prosqlbody IS NULL THEN l.lanname ELSE 'parsed' END,
       coalesce(array_to_string(p.proconfig, ';'), ''),
       CASE WHEN EXISTS (SELECT FROM aclexplode(coalesce(p.proacl, acldefault('f', p.proowner)))
                          WHERE grantee = 0) THEN 'everybody'
            WHEN has_function_privilege('pg_monitor', p.oid, 'EXECUTE') THEN 'monitors'
            ELSE 'superusers' END
  FROM pg_proc AS p
  JOIN pg_namespace AS n ON n.oid = p.pronamespace
  JOIN pg_language AS l ON l.oid = p.prolang
 WHERE (n.nspname ~ '^strata'
        OR EXISTS (SELECT FROM pg_depend AS d JOIN pg_extension AS e ON e.oid = d.refobjid
                    WHERE (d.classid, d.objid, d.refclassid, d.deptype)
                          = ('pg_proc'::regclass, p.oid, 'pg_extension'::regclass, 'e')
                      AND e.extname ~ '^strata'))
   AND p.prokind <> 'a' AND p.proname !~ '^hll_' -- functions of values
"""


def nodes(cluster: Cluster) -> dict[str, Node]:
    return {"coordinator": cluster.coordinator, "worker": cluster.workers[0]}


@pytest.mark.parametrize("kind", ["coordinator", "worker"])
def test_every_function_is_for_whom_this_file_says(cluster: Cluster, kind: str) -> None:
    found: dict[str, set[str]] = {"everybody": set(), "monitors": set(), "superusers": set()}
    for name, _, _, _, who in nodes(cluster)[kind].query(FUNCTIONS):
        found[who].add(name)
    assert found["everybody"] == set(EVERYBODY[kind].split())
    assert found["monitors"] == set(MONITORS[kind].split())
    assert found["superusers"] == set(SUPERUSERS[kind].split())


@pytest.mark.parametrize("kind", ["coordinator", "worker"])
def test_nothing_of_ours_follows_a_callers_search_path(cluster: Cluster, kind: str) -> None:
    definers = set()
    for name, definer, language, settings, _ in nodes(cluster)[kind].query(FUNCTIONS):
        pinned = "search_path=pg_catalog, pg_temp" in settings.split(";")
        if definer:
            definers.add(name)
            assert pinned, name
        if language in ("sql", "plpgsql"):
            assert pinned or name in UNPINNED, name
    assert definers == set(DEFINERS[kind].split())


def test_every_relation_is_for_whom_this_file_says(cluster: Cluster) -> None:
    found = {}
    for node in nodes(cluster).values():
        for name, privileges in node.query(
            "SELECT n.nspname || '.' || c.relname,"
            " (SELECT coalesce(string_agg(format('%s: %s', CASE grantee WHEN 0 THEN 'public'"
            "                  ELSE grantee::regrole::text END, privilege_type), ', '), '')"
            "    FROM aclexplode(c.relacl) WHERE grantee <> c.relowner)"
            " FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace"
            " WHERE n.nspname ~ '^strata'"
            " AND c.relkind IN ('r', 'p', 'v', 'm', 'S', 'f')"
        ):
            found[name] = privileges
    assert found == RELATIONS


# ---- trigger functions -----------------------------------------------------------------------------------

TRIGGERS = [
    f"{when} ON {{table}} FOR EACH {level} EXECUTE FUNCTION strata.{function}()"
    for function in (
        "invalidate_metadata",
        "replicate_reference_row",
        "truncate_reference_table",
    )
    for when, level in (
        ("BEFORE INSERT OR UPDATE OR DELETE", "ROW"),
        ("AFTER INSERT OR UPDATE OR DELETE", "ROW"),
        ("BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE", "STATEMENT"),
        ("AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE", "STATEMENT"),
    )
]
TABLES = {
    # what the metadata's trigger would take for a relation's OID is a pointer, or nothing
    "temporary": "CREATE TEMP TABLE x (a text)",
    "wide": "CREATE TEMP TABLE x (a text, b text, c xml, d numeric, relation text)",
    "empty": "CREATE TEMP TABLE x ()",
    "reference": "CREATE TABLE x (a text PRIMARY KEY); SELECT strata.create_reference_table('x')",
}
ROWS = dict.fromkeys(TABLES, "INSERT INTO x VALUES ('a')") | {
    "empty": "INSERT INTO x DEFAULT VALUES"
}


@pytest.mark.parametrize("table", TABLES)
def test_trigger_functions_refuse_the_tables_of_others(cluster: Cluster, table: str) -> None:
    cluster.create_role(MONITOR)
    try:
        with cluster.coordinator.connect() as connection:
            connection.execute(
                f"CREATE SCHEMA {SCHEMA}; GRANT ALL ON SCHEMA {SCHEMA} TO {MONITOR};"
                f"SET search_path = {SCHEMA}, pg_temp"
            )
            connection.execute(f"SET ROLE {MONITOR}; {TABLES[table]}; RESET ROLE")
            for trigger in TRIGGERS:
                create = f"CREATE TRIGGER tr {trigger.format(table='x')}"
                with pytest.raises(psycopg.errors.InsufficientPrivilege):
                    connection.execute(f"SET ROLE {MONITOR}; {create}")
                connection.execute(f"RESET ROLE; {create}")
                with pytest.raises(psycopg.Error) as caught:
                    connection.execute(ROWS[table])
                assert caught.value.sqlstate in ("42809", "39P01"), create
                connection.execute("DROP TRIGGER tr ON x")
    finally:
        cluster.coordinator.execute(
            f"DROP SCHEMA IF EXISTS {SCHEMA} CASCADE; DROP OWNED BY {MONITOR}; DROP ROLE {MONITOR}"
        )


def test_a_monitoring_role_sees_the_state_of_the_cluster_without_secrets(cluster: Cluster) -> None:
    coordinator = cluster.coordinator
    cluster.create_role(MONITOR)
    coordinator.execute(f"GRANT pg_monitor TO {MONITOR}")
    coordinator.execute(f"CREATE SCHEMA {SCHEMA}; CREATE TABLE {SCHEMA}.t (k integer)")
    coordinator.execute(f"SELECT strata.create_distributed_table('{SCHEMA}.t', 'k')")
    try:
        with coordinator.connect(user=MONITOR) as connection:
            for view in (
                *("workers", "tables", "shards", "in_doubt", "lock_waits", "partitions"),
                *(
                    "tier_moves",
                    "check_health()",
                    "tier_plan()",
                    "heat((SELECT relation FROM strata.shards LIMIT 1))",
                ),
            ):
                text = str(connection.execute(f"SELECT * FROM strata.{view}").fetchall())
                assert "passfile" not in text
            # of tables that it may not read, too
            for relation in ("shards", "shard_statistics()"):
                assert connection.execute(
                    f"SELECT count(bytes) > 0 FROM strata.{relation}"
                ).fetchone() == (True,)
            assert connection.execute(
                "SELECT bool_and(ok) FROM strata.check_health()"
            ).fetchone() == (True,)
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute("SELECT * FROM strata.worker")
    finally:
        coordinator.execute(f"DROP SCHEMA {SCHEMA} CASCADE; DROP ROLE {MONITOR}")


SEEN = "seen by; X"


def test_sizes_are_those_of_tables_that_one_may_see(cluster: Cluster) -> None:
    coordinator = cluster.coordinator
    cluster.create_role(MONITOR)
    coordinator.execute(
        f"CREATE SCHEMA {SCHEMA}; SET search_path = {SCHEMA}, strata;"
        'CREATE TABLE "seen by; X" (k integer, v integer, at timestamptz NOT NULL);'
        "CREATE TABLE closed (k integer, v integer, at timestamptz NOT NULL)"
    )
    for table in (SEEN, "closed"):
        coordinator.query(
            "SELECT strata.create_distributed_table(format('%%I', %s::text)::regclass, 'k', 2,"
            " partition_by => 'at', partition_interval => '1 day')",
            (table,),
        )
    queries = (
        "SELECT count(*) > 0 FROM strata.shards WHERE relation::text ~ '{}'",
        "SELECT count(*) > 0 FROM strata.partitions WHERE relation::text ~ '{}'",
        "SELECT count(*) > 0 FROM strata.shard_statistics() WHERE table_name ~ '{}'",
        "SELECT count(*) > 0 FROM strata.leaf_statistics() WHERE table_name ~ '{}'",
        "SELECT count(*) > 0 FROM strata.tier_statistics() WHERE relation::text ~ '{}'",
    )

    def seen(connection: psycopg.Connection, name: str) -> list[bool]:
        return [connection.execute(query.format(name)).fetchone()[0] for query in queries]

    grants = (
        'GRANT SELECT ON "seen by; X" TO {role}',
        'GRANT UPDATE (v) ON "seen by; X" TO {role}',
        'GRANT TRIGGER ON "seen by; X" TO PUBLIC',
        'ALTER TABLE "seen by; X" OWNER TO {role}',
    )
    try:
        with coordinator.connect(user=MONITOR) as connection:
            assert seen(connection, "seen") == [False] * len(queries)
            for grant in grants:
                coordinator.execute(grant.format(role=MONITOR))
                assert seen(connection, "seen") == [True] * len(queries), grant
                assert seen(connection, "closed") == [False] * len(queries), grant
                coordinator.execute(
                    'ALTER TABLE "seen by; X" OWNER TO CURRENT_USER;'
                    f'REVOKE ALL ON "seen by; X" FROM {MONITOR}, PUBLIC;'
                    f'REVOKE ALL (v) ON "seen by; X" FROM {MONITOR}'
                )
                assert seen(connection, "seen") == [False] * len(queries), grant
            coordinator.execute(f"GRANT pg_read_all_stats TO {MONITOR}")
            assert seen(connection, "closed") == [True] * len(queries)
        # a superuser who acts as another role sees what that one sees
        coordinator.execute(f"REVOKE pg_read_all_stats FROM {MONITOR}")
        with coordinator.connect() as connection:
            assert seen(connection, "closed") == [True] * len(queries)
            connection.execute(f"SET ROLE {MONITOR}")
            assert seen(connection, "closed") == [False] * len(queries)
    finally:
        coordinator.execute(
            f"DROP SCHEMA {SCHEMA} CASCADE; DROP OWNED BY {MONITOR}; DROP ROLE {MONITOR}"
        )


def test_adding_workers_can_be_granted(cluster: Cluster) -> None:
    """The right to try: the login on the new server is the role's own, and ends the attempt."""
    cluster.create_role(MONITOR)
    cluster.coordinator.execute(f"GRANT EXECUTE ON FUNCTION strata.add_worker TO {MONITOR}")
    try:
        with (
            cluster.coordinator.connect(user=MONITOR) as connection,
            pytest.raises(psycopg.Error) as caught,
        ):
            connection.execute("SELECT strata.add_worker('mine', 'host=127.0.0.1 port=1')")
        assert caught.value.sqlstate == "08001"
    finally:
        cluster.coordinator.execute(f"DROP OWNED BY {MONITOR}; DROP ROLE {MONITOR}")


# ---- objects of others under the names of the system's -----------------------------------------------

TRAPS = [
    "CREATE FUNCTION {s}.to_jsonb (pg_database) RETURNS jsonb {sprung}",
    "CREATE FUNCTION {s}.format (text, text, name) RETURNS text {sprung}",
    "CREATE FUNCTION {s}.format (text, name, text) RETURNS text {sprung}",
    "CREATE FUNCTION {s}.quote_ident (name) RETURNS text {sprung}",
    "CREATE FUNCTION {s}.concat_ws (text, text, text) RETURNS text {sprung}",
    "CREATE FUNCTION {s}.json_agg (record) RETURNS json {sprung}",
    "CREATE FUNCTION {s}.same (name, text) RETURNS boolean {sprung}",
    "CREATE OPERATOR {s}.= (FUNCTION = {s}.same, LEFTARG = name, RIGHTARG = text)",
    "CREATE FUNCTION {s}.glue (text, name) RETURNS text {sprung}",
    "CREATE OPERATOR {s}.|| (FUNCTION = {s}.glue, LEFTARG = text, RIGHTARG = name)",
    "CREATE FUNCTION {s}.sum (numeric) RETURNS numeric {sprung}",
]


def test_objects_in_a_users_schema_do_not_stand_in_for_the_systems(cluster: Cluster) -> None:
    """Even an administrator whose search_path is poisoned calls only what is meant."""
    coordinator = cluster.coordinator
    schema = "test_access_traps"
    sprung = (
        "LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION ''sprung by %%'', current_user"
        " USING ERRCODE = ''TRAP1''; END'"
    ).replace("%%", "%")
    with coordinator.connect() as connection:
        connection.execute(f"CREATE SCHEMA {schema}")
        try:
            for trap in TRAPS:
                connection.execute(trap.format(s=schema, sprung=sprung))
            connection.execute(
                f"CREATE TABLE {schema}.item (id integer PRIMARY KEY, v text);"
                f"CREATE TABLE {schema}.code (id integer PRIMARY KEY, v text)"
            )
            connection.execute(f"SET search_path = {schema}, pg_catalog")
            for statement in (
                "SELECT strata.create_distributed_table('item', 'id', shard_count => 4)",
                "SELECT strata.create_reference_table('code')",
                "INSERT INTO item SELECT g, 'v' FROM pg_catalog.generate_series(1, 9) AS g",
                "INSERT INTO code VALUES (1, 'one')",
                "SELECT * FROM strata.check_health() WHERE NOT ok",
                "SELECT * FROM strata.sync_roles()",
                "SELECT * FROM strata.schema_commands()",
                "SELECT * FROM strata.shards",
                "SELECT * FROM strata.run_command_on_workers('SELECT 1')",
                "SELECT count(*) FROM item JOIN code USING (id)",
                "ALTER TABLE item ADD COLUMN w integer",
                "CREATE ROLE strata_trapped; ALTER ROLE strata_trapped SET jit = on; DROP ROLE strata_trapped",
                "CREATE AGGREGATE adder (integer) (SFUNC = int4pl, STYPE = integer)",
                "SELECT strata.undistribute_table('item')",
            ):
                connection.execute(statement)
            node = cluster.new_node("trapped")
            try:
                connection.execute(
                    "SELECT strata.add_worker('trapped', %s)", (node.conninfo(user=None),)
                )
                for _ in wait_until("the worker is searched for transactions in doubt"):
                    try:
                        connection.execute("SELECT strata.remove_worker('trapped')")
                        break
                    except psycopg.errors.ObjectInUse:
                        continue
            finally:
                node.stop("immediate")
        finally:
            connection.execute(f"RESET search_path; DROP SCHEMA {schema} CASCADE")
