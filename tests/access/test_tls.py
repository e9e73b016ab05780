"""Who reaches a worker: the coordinator by its certificate, and nobody else over the network.

The coordinator in turn talks only to the server whose certificate says that it is the worker.
"""

from __future__ import annotations

import contextlib
import re
import secrets
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from tests.certificates import Authority
from tests.cluster import Cluster, Node
from tests.fixtures import new_root
from tests.installation import give_to_server
from tests.waiting import wait_until

SETUP = """
CREATE ROLE keeper NOLOGIN;
CREATE ROLE limited LOGIN CONNECTION LIMIT 1;
CREATE SCHEMA app;
CREATE TABLE app.item (id integer PRIMARY KEY, owner text, v integer);
CREATE TABLE app.code (id integer PRIMARY KEY, name text);
SELECT strata.create_distributed_table('app.item', 'id', shard_count => 4);
SELECT strata.create_reference_table('app.code');
INSERT INTO app.item SELECT g, CASE g % 2 WHEN 0 THEN 'ann' ELSE 'bob' END, g FROM generate_series(1, 20) AS g;
INSERT INTO app.code SELECT g, 'code ' || g FROM generate_series(1, 3) AS g;
GRANT USAGE ON SCHEMA app TO keeper, limited, ann;
GRANT SELECT ON app.item TO keeper;
CREATE VIEW app.kept AS SELECT id, v FROM app.item WHERE v <= 10;
ALTER VIEW app.kept OWNER TO keeper;
GRANT SELECT ON app.kept TO ann;
GRANT SELECT ON app.item TO limited;
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(new_root(), workers=2, tls=True) as made:
        made.create_role("ann")
        made.coordinator.execute(SETUP)
        yield made


@pytest.fixture
def ann(cluster: Cluster) -> Iterator[psycopg.Connection]:
    with cluster.coordinator.connect(user="ann") as connection:
        yield connection


# ---- it works ---------------------------------------------------------------------------------------


def test_roles_need_no_passwords_on_workers(cluster: Cluster) -> None:
    for worker in cluster.workers:
        assert worker.value("SELECT count(*) FROM pg_authid WHERE rolpassword IS NOT NULL") == 0
        assert worker.query(
            "SELECT rolname FROM pg_roles WHERE rolname IN ('ann', 'keeper') ORDER BY 1"
        ) == [("ann",), ("keeper",)]


def test_every_session_of_the_coordinator_is_encrypted_and_shows_its_certificate(
    cluster: Cluster, ann: psycopg.Connection
) -> None:
    assert ann.execute("SELECT count(*) FROM app.kept").fetchone() == (10,)
    encrypted = "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()"
    assert ann.execute(encrypted).fetchone() == (True,)
    for worker in cluster.workers:
        sessions = worker.query(
            "SELECT s.ssl, s.client_dn FROM pg_stat_ssl AS s JOIN pg_stat_activity AS a USING (pid)"
            " WHERE a.application_name ~ '^strata' AND a.client_addr IS NOT NULL"
        )
        assert sessions
        assert set(sessions) == {(True, "/CN=coordinator-client")}


def test_a_view_of_a_role_without_login_is_read_with_its_rights(
    cluster: Cluster, ann: psycopg.Connection
) -> None:
    assert ann.execute("SELECT count(*), max(v) FROM app.kept").fetchone() == (10, 10)
    assert ann.execute("SELECT v FROM app.kept WHERE id = 7").fetchone() == (7,)
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        ann.execute("SELECT count(*) FROM app.item")


def test_set_role_to_a_role_without_login_reaches_the_workers(cluster: Cluster) -> None:
    with cluster.coordinator.connect() as connection:
        connection.execute("SET ROLE keeper")
        assert connection.execute("SELECT count(*) FROM app.item").fetchone() == (20,)


def test_a_connection_limit_counts_clients_not_sessions_on_workers(cluster: Cluster) -> None:
    cluster.create_role("limited")
    with (
        cluster.coordinator.connect(user="limited") as one,
        cluster.coordinator.connect() as administrator,
    ):
        assert one.execute("SELECT count(*) FROM app.item").fetchone() == (20,)
        administrator.execute("SET ROLE limited")
        assert administrator.execute("SELECT count(*) FROM app.item").fetchone() == (20,)
        with pytest.raises(psycopg.OperationalError, match="too many connections"):
            cluster.coordinator.connect(user="limited")


def test_a_new_role_uses_the_cluster_at_once(cluster: Cluster) -> None:
    coordinator = cluster.coordinator
    coordinator.execute("CREATE ROLE fresh; GRANT keeper TO fresh")
    try:
        with coordinator.connect() as connection:
            connection.execute("SET ROLE fresh")
            assert connection.execute("SELECT sum(v) FROM app.item").fetchone() == (210,)
            connection.execute("RESET ROLE; REVOKE keeper FROM fresh; SET ROLE fresh")
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute("SELECT sum(v) FROM app.item")
    finally:
        coordinator.execute("DROP ROLE fresh")


def test_writes_on_several_workers_and_new_workers_work(cluster: Cluster) -> None:
    with cluster.coordinator.connect(autocommit=False) as connection:
        connection.execute("UPDATE app.item SET v = v + 1")
        connection.execute("INSERT INTO app.code VALUES (9, 'nine')")
        connection.commit()
        connection.execute("UPDATE app.item SET v = v - 1")
        connection.execute("DELETE FROM app.code WHERE id = 9")
        connection.commit()
    assert cluster.coordinator.value("SELECT sum(v) FROM app.item") == 210
    node = cluster.add_worker()
    assert node.value("SELECT count(*) FROM app.code") == 3
    assert (
        cluster.coordinator.query(
            "SELECT worker_name, check_name, detail FROM strata.check_health() WHERE NOT ok"
        )
        == []
    )
    with cluster.coordinator.connect(user="ann") as connection:
        assert connection.execute("SELECT count(*) FROM app.kept").fetchone() == (10,)


# ---- who is kept out --------------------------------------------------------------------------------


def refused(parameters: str) -> str:
    with pytest.raises(psycopg.OperationalError) as caught:
        psycopg.connect(parameters).close()
    return str(caught.value)


def certificate(paths: tuple[Path, Path]) -> str:
    return f" sslcert='{paths[0]}' sslkey='{paths[1]}'"


@pytest.mark.parametrize("role", ["ann", "postgres", "nobody_knows"])
def test_nobody_reaches_a_worker_without_the_coordinators_certificate(
    cluster: Cluster, role: str
) -> None:
    tls = cluster.root / "tls"
    for worker in cluster.workers:
        place = f"host=127.0.0.1 port={worker.port} user={role} sslrootcert='{tls / 'servers.crt'}'"
        place += f" dbname=strata passfile='{cluster.passfile}'"
        assert "pg_hba.conf" in refused(f"{place} sslmode=disable")
        assert "certificate" in refused(f"{place} sslmode=verify-full sslcert=none")
        # a certificate of the other authority, or of the servers, opens nothing
        server = (tls / f"{worker.name}.crt", tls / f"{worker.name}.key")
        message = refused(f"{place} sslmode=verify-full{certificate(server)}")
        assert "certificate" in message or "unknown ca" in message
        # another database of the server is none of the coordinator's business
        client = (tls / "coordinator-client.crt", tls / "coordinator-client.key")
        other = place.replace("dbname=strata", "dbname=postgres")
        assert "pg_hba.conf" in refused(f"{other} sslmode=verify-full{certificate(client)}")


def test_an_expired_certificate_of_a_coordinator_is_refused(cluster: Cluster) -> None:
    authority = cluster.authority("coordinators")
    paths = authority.issue_client("expired-client", days=0)
    worker = cluster.workers[0]
    place = f"host={worker.host} hostaddr=127.0.0.1 port={worker.port} user=ann dbname=strata"
    place += f" sslmode=verify-full sslrootcert='{cluster.root / 'tls' / 'servers.crt'}'"
    message = refused(place + certificate(paths))
    assert "certificate" in message
    assert "expired" in message


# ---- whom the coordinator trusts --------------------------------------------------------------------


@contextlib.contextmanager
def other_certificate(
    cluster: Cluster, worker: Node, authority: Authority, host: str, days: int = 30
) -> Iterator[None]:
    """The worker shows another certificate than its own to new sessions."""
    directory = cluster.root / "tls"
    own = {kind: (directory / f"{worker.name}.{kind}").read_bytes() for kind in ("crt", "key")}
    made = authority.issue_server("other", [f"DNS:{host}"], days)
    try:
        for kind, path in zip(("crt", "key"), made, strict=True):
            (directory / f"{worker.name}.{kind}").write_bytes(path.read_bytes())
        worker.reload()
        yield
    finally:
        for kind, content in own.items():
            (directory / f"{worker.name}.{kind}").write_bytes(content)
            give_to_server(directory / f"{worker.name}.{kind}", 0o600)
        worker.reload()


def connection_error(cluster: Cluster) -> psycopg.Error:
    """What a new session that needs all workers gets."""
    for _ in wait_until("the worker shows the other certificate"):
        with cluster.coordinator.connect() as connection:
            try:
                connection.execute("SELECT count(*) FROM app.item")
            except psycopg.Error as error:
                return error
    raise AssertionError


def test_a_server_of_an_unknown_authority_is_refused(cluster: Cluster, tmp_path: Path) -> None:
    authority = Authority(tmp_path, "strangers")
    authority.create()
    worker = cluster.workers[1]
    with other_certificate(cluster, worker, authority, worker.host):
        error = connection_error(cluster)
    assert error.sqlstate == "08001"
    assert 'worker "worker2"' in str(error)
    assert "certificate verify failed" in error.diag.message_detail


def test_an_expired_server_certificate_is_refused(cluster: Cluster) -> None:
    worker = cluster.workers[1]
    with other_certificate(cluster, worker, cluster.authority("servers"), worker.host, days=0):
        error = connection_error(cluster)
    assert error.sqlstate == "08001"
    assert 'worker "worker2"' in str(error)
    assert re.search(
        "certificate (has )?expired|certificate verify failed", error.diag.message_detail
    )


def test_a_server_that_is_not_the_worker_is_refused(cluster: Cluster) -> None:
    """Its certificate is genuine, but says that it is another server."""
    worker = cluster.workers[1]
    authority = cluster.authority("servers")
    with other_certificate(cluster, worker, authority, "elsewhere.strata.test"):
        error = connection_error(cluster)
    assert error.sqlstate == "08001"
    assert 'worker "worker2"' in str(error)
    assert "elsewhere.strata.test" in error.diag.message_detail
    assert worker.host in error.diag.message_detail


def test_add_worker_verifies_the_server_too(cluster: Cluster) -> None:
    node = cluster.new_node("stranger")
    try:
        wrong = node.conninfo(user=None).replace(node.host, "coordinator.strata.test")
        for conninfo, reason in (
            (wrong, "does not match host name"),
            (node.conninfo(user=None).replace("servers.crt", "coordinators.crt"), "verify failed"),
            (f"host=127.0.0.1 port={node.port} sslmode=disable", "pg_hba.conf"),
        ):
            with pytest.raises(psycopg.OperationalError, match='worker "stranger"') as caught:
                cluster.coordinator.query("SELECT strata.add_worker('stranger', %s)", (conninfo,))
            assert reason in caught.value.diag.message_detail
    finally:
        node.stop("immediate")
    assert (
        cluster.coordinator.value("SELECT count(*) FROM strata.worker WHERE name = 'stranger'") == 0
    )


# ---- secrets ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("parameter", ["password", "sslpassword"])
def test_connection_strings_hold_no_secrets(cluster: Cluster, parameter: str) -> None:
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="password") as caught:
        cluster.coordinator.query(
            "SELECT strata.add_worker('mine', %s)", (f"host=127.0.0.1 {parameter}=sesame",)
        )
    assert "sesame" not in str(caught.value.diag.message_detail)


def command_lines() -> str:
    lines = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            lines.append(path.read_bytes().replace(b"\0", b" ").decode(errors="replace"))
    return "\n".join(lines)


def test_a_password_stays_where_it_was_set(cluster: Cluster) -> None:
    """Not on workers, not in our tables, not in logs, not in process lists; nor what is made of it."""
    coordinator = cluster.coordinator
    password = "sesame" + secrets.token_hex(8)
    for worker in cluster.workers:
        worker.execute("ALTER SYSTEM SET log_statement = 'all'")
        worker.reload()
    begin = {node.name: node.log_size() for node in cluster.nodes}
    with coordinator.connect() as administrator:
        administrator.execute(
            f"CREATE ROLE secretive LOGIN PASSWORD '{password}';"
            f"ALTER ROLE secretive PASSWORD '{password}' CREATEDB;"
            "ALTER ROLE secretive SET work_mem = '4MB'"
        )
        verifier = administrator.execute(
            "SELECT rolpassword FROM pg_authid WHERE rolname = 'secretive'"
        ).fetchone()[0]
    assert verifier.startswith("SCRAM-SHA-256")
    try:
        parts = (password, *re.split("[$:]", verifier)[3:])
        node = cluster.add_worker()
        coordinator.query("SELECT * FROM strata.sync_roles()")
        tables = coordinator.query(
            "SELECT oid::regclass::text FROM pg_class WHERE relnamespace = 'strata'::regnamespace"
            " AND relkind IN ('r', 'v')"
        )
        texts = {name: str(coordinator.query(f"SELECT * FROM {name}")) for (name,) in tables}
        texts["process list"] = command_lines()
        for other in cluster.nodes:
            texts[f"activity on {other.name}"] = str(other.query("SELECT * FROM pg_stat_activity"))
            texts[f"log of {other.name}"] = other.log_text(begin.get(other.name, 0))
        for worker in cluster.workers:
            texts[f"passwords on {worker.name}"] = str(worker.query("SELECT * FROM pg_authid"))
            assert "secretive" in texts[f"passwords on {worker.name}"]
        assert "secretive" in texts[f"log of {cluster.workers[0].name}"]
        for place, text in texts.items():
            for part in parts:
                assert part not in text, place
        assert node.value("SELECT rolcreatedb FROM pg_roles WHERE rolname = 'secretive'") is True
    finally:
        coordinator.execute("DROP ROLE secretive")


def test_keys_and_password_files_are_readable_by_their_owner_only(cluster: Cluster) -> None:
    secret = [cluster.passfile, *(cluster.root / "tls").glob("*.key")]
    assert len(secret) > len(cluster.nodes)
    for path in secret:
        assert path.stat().st_mode & 0o077 == 0, path
