"""PostgreSQL servers on this machine: one Node, or a Cluster of a coordinator and its workers.

The demo, the tests and the benchmarks all use these two classes.  Everything of a cluster is
below one root directory (data directories, logs, password file, cluster.json with the ports),
so a later process finds the cluster again by its root, and removing the root removes it.

Who runs the servers: PostgreSQL refuses to run as root, so root starts them as the user
`postgres`; anybody else starts them as himself.  Who gets in: the superuser role is always
`postgres`.  The unix sockets are in a directory of mode 0700 and accept the owner (and root) as
`postgres`; TCP listens on loopback only and wants a password, which stands in a password file of
mode 0600 that connection strings name, so that no password is ever on a command line.

With `tls=True` TCP is as a real cluster should have it: all of it is encrypted, clients verify the
coordinator, which verifies the workers, and these let in whoever shows a certificate of the
coordinators' authority, as any role and without passwords.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import random
import re
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
import weakref
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import psycopg.sql
from psycopg.conninfo import make_conninfo

from tests.certificates import Authority
from tests.data_directory import make_data_directory
from tests.installation import (
    SUPERUSER,
    ClusterError,
    find_binaries,
    find_directory,
    give_to_server,
    make_directory,
    run_as_server,
    server_account,
    server_major,
)
from tests.waiting import wait_until, wait_until_ended

DATABASE = "strata"
SETTINGS_FILE = Path(__file__).with_name("local.conf")
ASSERTION_LIBRARIES = Path(__file__).parent.parent / ".cache" / "assert" / "lib"

# Rules of a pg_hba.conf.  The owner of the servers, and root, are the superuser.
LOCAL_RULES = f"""\
local all,replication {SUPERUSER}         peer map=owner
local all         all                    scram-sha-256
local replication all                    scram-sha-256
"""
PASSWORD_RULES = f"""\
{LOCAL_RULES}\
host  all         all       127.0.0.1/32 scram-sha-256
host  replication all       127.0.0.1/32 scram-sha-256
"""
TLS_COORDINATOR_RULES = f"""\
{LOCAL_RULES}\
hostssl all       all       127.0.0.1/32 scram-sha-256
"""
TLS_WORKER_RULES = f"""\
{LOCAL_RULES}\
hostssl {DATABASE} all      127.0.0.1/32 trust clientcert=verify-ca
"""

# Where free ports are looked for: below the range from which the kernel gives ports to clients.
PORTS = range(20000, 32000)

# A path of a unix socket has at most 107 bytes, of which PostgreSQL adds "/.s.PGSQL.12345".
LONGEST_SOCKET_DIRECTORY = 107 - len("/.s.PGSQL.12345")

# What a healthy server never writes.
CRASH = re.compile(
    r"was terminated by signal|PANIC: |server process .* exited with|TRAP: |AddressSanitizer"
)

# Nodes that were started by this process; the fixtures look for crashes in their logs.
started_nodes: weakref.WeakSet[Node] = weakref.WeakSet()

# What crashed() said of clusters that have been destroyed since; the fixtures empty this list.
crashes_of_destroyed: list[str] = []


def parallel_workers(workers: int, cores: int | None = None) -> int:
    """Parallel workers of one query on one of so many workers, whose own processes count, too.

    A query runs on all workers at once: more processes than the machine has cores only wait.
    """
    cores = cores or len(os.sched_getaffinity(0))
    return max(cores // max(workers, 1) - 1, 0)


def own_ports() -> Iterator[int]:
    """Ports that no other process of this test run takes, round and round.

    Each comes once a round, for a server that is down leaves its port free to all who look.
    """
    process = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    own = PORTS[process :: int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))]
    begin = random.randrange(len(own))
    return itertools.cycle([*own[begin:], *own[:begin]])


ports = own_ports()


def free_port(taken: set[int]) -> int:
    """A loopback port that nobody listens on now and that is not in `taken`."""
    for port in itertools.islice(ports, 1000):
        if port in taken:
            continue
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise ClusterError("no free port found")


def fetch_rows(cursor: psycopg.Cursor) -> list[tuple]:
    """The rows of a statement; [] for one that returns none.  psycopg drops rows that have no columns."""
    if cursor.description:
        return cursor.fetchall()
    returns_rows = cursor.pgresult.status == psycopg.pq.ExecStatus.TUPLES_OK
    return [()] * cursor.rowcount if returns_rows else []


class Node:
    """One PostgreSQL server: its data directory, its log, and how to connect to it.

    `initdb()` makes the data directory, `start()` and `stop()` may be called in any state.
    `query()` and `execute()` share one connection, which is made again after a restart.
    """

    def __init__(
        self,
        name: str,
        root: Path,
        port: int,
        sockets: Path,
        settings: dict[str, str] | None = None,
    ):
        self.name = name
        self.root = root
        self.port = port
        self.sockets = sockets
        self.settings = settings or {}
        self.rules = PASSWORD_RULES
        self.host: str | None = None  # the name in this server's certificate; None without TLS
        self.data = root / name
        self.log = root / f"{name}.log"
        self.passfile = root / "passwords"
        self._connection: psycopg.Connection | None = None
        self._forgiven = 0  # crashed() looks at the log from here on

    def __repr__(self) -> str:
        return f"<Node {self.name} port {self.port}>"

    # ---- life -----------------------------------------------------------------------------

    def initdb(self) -> None:
        """Make the data directory."""
        shutil.rmtree(self.data, ignore_errors=True)
        make_data_directory(self.data)

    def write_configuration(self) -> None:
        """Write what start() wants to be true: settings, who may connect from where."""
        settings = {
            "port": str(self.port),
            "unix_socket_directories": f"'{self.sockets}'",
        } | self.settings
        lines = [f"{name} = {value}" for name, value in settings.items()]
        owner = server_account().pw_name
        self._write("local.conf", SETTINGS_FILE.read_text())
        self._write("postgresql.conf", "\n".join(["include 'local.conf'", *lines, ""]))
        self._write("pg_hba.conf", self.rules)
        accounts = sorted({owner, "root"})
        self._write("pg_ident.conf", "".join(f"owner {a} {SUPERUSER}\n" for a in accounts))

    def _write(self, name: str, text: str) -> None:
        path = self.data / name
        path.write_text(text)
        give_to_server(path, 0o600)

    def start(self, timeout: int = 60) -> None:
        """Start the server and wait until it answers; nothing happens when it runs already."""
        started_nodes.add(self)
        if self.running():
            return
        self.write_configuration()
        arguments = [find_binaries() / "pg_ctl", "-D", self.data, "-l", self.log]
        arguments += ["-w", "-s", "-t", str(timeout), "start"]
        # After kill() the last children of the old server may still hold its shared memory.
        for attempt in range(20):
            begin = self.log_size()
            result = run_as_server(arguments, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            if result.returncode == 0:
                return
            if "shared memory block" not in self.log_text(begin) or attempt == 19:
                break
            time.sleep(0.2)
        raise ClusterError(f"{self.name} does not start:\n{self.log_tail()}")

    def stop(self, mode: str = "fast", timeout: int = 60) -> None:
        """Stop the server (mode smart, fast or immediate) and wait until it is gone."""
        self.disconnect()
        if not self.running():
            return
        arguments = [find_binaries() / "pg_ctl", "-D", self.data, "-m", mode]
        arguments += ["-w", "-s", "-t", str(timeout), "stop"]
        result = run_as_server(arguments, capture_output=True)
        if result.returncode != 0 and self.running():
            raise ClusterError(f"{self.name} does not stop: {result.stderr}\n{self.log_tail()}")

    def restart(self, mode: str = "fast") -> None:
        self.stop(mode)
        self.start()

    def reload(self) -> None:
        """Let the server read its configuration and certificates again; new sessions follow it."""
        begin = self.log_size()
        os.kill(self.pid(), signal.SIGHUP)
        for _ in wait_until(f"{self.name} has read its configuration"):
            if "received SIGHUP" in self.log_text(begin):
                return

    def kill(self) -> None:
        """End the server as a power failure would: SIGKILL, no shutdown, no warning."""
        self.disconnect()
        pid = self.pid()
        if pid is None:
            return
        os.kill(pid, signal.SIGKILL)
        for _ in wait_until(f"{self.name} is gone", interval=0.01):
            if not Path(f"/proc/{pid}").exists():
                return

    def kill_process(self, pid: int) -> None:
        """kill -9 of one of its processes; the postmaster has noticed it afterwards.

        The client of a killed process may know before the postmaster, which then still lets sessions
        begin that it ends at once.
        """
        with self.connect() as witness:
            os.kill(pid, signal.SIGKILL)
            wait_until_ended(witness)
        self.disconnect()

    def wait_until_back(self) -> None:
        """Until it accepts sessions again, after a crash or a start that recovers."""
        self.disconnect()
        for _ in wait_until(f"{self.name} is back"):
            try:
                self.connect().close()
                return
            except psycopg.OperationalError:
                continue

    def pid(self) -> int | None:
        """The process id of the running server, or None."""
        try:
            pid = int((self.data / "postmaster.pid").read_text().split("\n", 1)[0])
        except (OSError, ValueError):
            return None
        return pid if is_postgres(pid) else None

    def running(self) -> bool:
        return self.pid() is not None

    def processes(self) -> list[int]:
        """The process ids of the running server: the postmaster's, then those of all its children."""
        postmaster = self.pid()
        if postmaster is None:
            raise ClusterError(f"{self.name} does not run")
        children = Path(f"/proc/{postmaster}/task/{postmaster}/children").read_text().split()
        return [postmaster, *map(int, children)]

    def tablespaces(self) -> dict[str, Path]:
        """The two tiers of a worker, here two directories, by the names of their tablespaces."""
        return {name: self.root / "tablespaces" / self.name / name for name in ("hot", "cold")}

    def tablespace_mapping(self, copy: str) -> list[str]:
        """Arguments of pg_basebackup that give a copy of that name tablespaces of its own."""
        arguments = []
        for name, place in self.tablespaces().items():
            if place.exists():
                target = self.root / "tablespaces" / copy / name
                arguments += ["-T", f"{place}={target}"]
        return arguments

    # ---- connections ------------------------------------------------------------------------

    def conninfo(self, dbname: str = DATABASE, user: str | None = SUPERUSER) -> str:
        """A libpq connection string; without a user when `user` is None.

        The superuser sits at the server: the unix socket needs no password, which costs both sides
        more than all else of a connection.  Others come over TCP; with TLS a worker's string shows
        the coordinator's certificate.
        """
        who = f" {make_conninfo(user=user)}" if user else ""
        if user == SUPERUSER:
            return f"host={self.sockets} port={self.port} dbname={dbname}{who}"
        place = f"host=127.0.0.1 port={self.port} dbname={dbname}{who}"
        if self.host is None:
            return f"{place} passfile='{self.passfile}'"
        authority = self.root / "tls" / "servers.crt"
        tls = f" sslmode=verify-full sslrootcert='{authority}'"
        if self.rules is TLS_COORDINATOR_RULES:
            return f"{place}{tls} passfile='{self.passfile}'"
        certificate = self.root / "tls" / "coordinator-client"
        place = place.replace("host=", f"host={self.host} hostaddr=", 1)
        return f"{place}{tls} sslcert='{certificate}.crt' sslkey='{certificate}.key'"

    def connect(
        self,
        dbname: str = DATABASE,
        user: str = SUPERUSER,
        autocommit: bool = True,
        **options,
    ) -> psycopg.Connection:
        """A connection of its own; the caller closes it."""
        return psycopg.connect(self.conninfo(dbname, user), autocommit=autocommit, **options)

    @property
    def connection(self) -> psycopg.Connection:
        """The connection that query() and execute() use."""
        if self._connection is None or self._connection.closed or self._connection.broken:
            self._connection = self.connect()
        return self._connection

    def disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def query(self, sql: str, params=None) -> list[tuple]:
        """The rows of a statement; [] for one that returns none."""
        cursor = self.connection.execute(sql, params)
        return fetch_rows(cursor)

    def value(self, sql: str, params=None):
        """The single value of a statement that returns one row of one column."""
        ((value,),) = self.query(sql, params)
        return value

    def execute(self, sql: str, params=None) -> None:
        """Run one statement, or several separated by semicolons when there are no parameters."""
        self.connection.execute(sql, params)

    def set_password(self, role: str, password: str) -> None:
        """Set a role's password, as a verifier: the password itself reaches no log."""
        with self.connect("postgres") as connection:
            verifier = connection.pgconn.encrypt_password(
                password.encode(), role.encode(), b"scram-sha-256"
            )
            connection.execute(
                psycopg.sql.SQL("ALTER ROLE {} PASSWORD {}").format(
                    psycopg.sql.Identifier(role), psycopg.sql.Literal(verifier.decode())
                )
            )

    # ---- log ----------------------------------------------------------------------------------

    def log_text(self, offset: int = 0) -> str:
        """The server's log, from a byte offset (see log_size) on."""
        try:
            with self.log.open("rb") as file:
                file.seek(offset)
                return file.read().decode(errors="replace")
        except FileNotFoundError:
            return ""

    def log_size(self) -> int:
        return self.log.stat().st_size if self.log.exists() else 0

    def log_tail(self, lines: int = 40) -> str:
        return "\n".join(self.log_text().splitlines()[-lines:])

    def crashed(self) -> list[str]:
        """The lines of the log that tell of a crash since the last forgive_crash()."""
        text = self.log_text(self._forgiven)
        return [line for line in text.splitlines() if CRASH.search(line)]

    def forgive_crash(self) -> None:
        """For tests that crash a server on purpose: what the log says until now is fine."""
        self._forgiven = self.log_size()


def process_exists(pid: int) -> bool:
    """Is there such a process that is not a zombie?"""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


def is_postgres(pid: int) -> bool:
    """Does the process run PostgreSQL?  (The pid in a left-over postmaster.pid may be reused.)"""
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip() == "postgres" and process_exists(pid)
    except OSError:
        return False


class Cluster:
    """A coordinator and its workers, and on request one plain PostgreSQL to compare with.

    The state of a cluster is in its root directory; `Cluster(root)` of an existing root is that
    cluster again.  `create()` is idempotent: a complete cluster is only started, a half-made one
    is removed and made anew.  With `extension=False` the servers know nothing of Strata; `version` is that
    of the extension's SQL, if not the newest.  With `assertions=True` they load the libraries of
    scripts/build_assertions.sh.
    """

    def __init__(
        self,
        root: Path | str,
        workers: int = 2,
        plain: bool = False,
        extension: bool = True,
        durable: bool = False,
        tls: bool = False,
        assertions: bool = False,
        version: str = "",
    ):
        self.root = Path(root)
        self.extension = extension
        self.durable = durable
        self.tls = tls
        self.assertions = assertions
        self.version = version
        self._passfile_lock = threading.Lock()
        self.workers: list[Node] = []
        self.complete = False
        self._state_file = self.root / "cluster.json"
        self.sockets = socket_directory(self.root)
        if self._state_file.exists():
            self._load()
        else:
            ports = self._choose_ports(1 + workers + plain)
            self.coordinator = self._make_node("coordinator", ports.pop())
            names = [f"worker{number + 1}" for number in range(workers)]
            self.workers = [self._make_node(name, ports.pop(), workers) for name in names]
            self.plain = self._make_node("plain", ports.pop()) if plain else None

    # ---- state --------------------------------------------------------------------------------

    @property
    def nodes(self) -> list[Node]:
        return [self.coordinator, *self.workers, *([self.plain] if self.plain else [])]

    @property
    def passfile(self) -> Path:
        return self.coordinator.passfile

    def _choose_ports(self, count: int) -> list[int]:
        taken: set[int] = set()
        while len(taken) < count:
            taken.add(free_port(taken))
        return sorted(taken, reverse=True)

    def _make_node(self, name: str, port: int, workers: int = 0) -> Node:
        """A node; a worker shares the machine's cores with the others, `workers` in all."""
        settings = {}
        if workers:
            settings["max_parallel_workers_per_gather"] = str(parallel_workers(workers))
        if name == "coordinator" and self.extension:
            settings["shared_preload_libraries"] = "'strata'"
        elif self.extension:
            ours = "" if name == "plain" else ", strata_worker"
            settings["shared_preload_libraries"] = f"'strata_columnar, strata_tiering{ours}'"
        if self.assertions:
            settings |= self._assertion_settings()
            if name == "coordinator":
                settings["strata.shard_count"] = "4"
        if not self.durable:
            settings |= {"fsync": "off", "full_page_writes": "off", "synchronous_commit": "on"}
        node = Node(name, self.root, port, self.sockets, settings)
        if self.tls and name != "plain":
            self._use_certificates(node)
        return node

    # ---- TLS ------------------------------------------------------------------------------------

    def authority(self, name: str) -> Authority:
        return Authority(self.root / "tls", name)

    def _use_certificates(self, node: Node) -> None:
        """Configure a node for the certificates that _create_certificates() makes for it."""
        directory = self.root / "tls"
        node.host = f"{node.name}.strata.test"
        node.settings |= {
            "ssl": "on",
            "ssl_cert_file": f"'{directory / node.name}.crt'",
            "ssl_key_file": f"'{directory / node.name}.key'",
        }
        if node.name == "coordinator":
            node.rules = TLS_COORDINATOR_RULES
        else:
            node.rules = TLS_WORKER_RULES
            node.settings["ssl_ca_file"] = f"'{directory / 'coordinators'}.crt'"

    def _create_authorities(self) -> None:
        make_directory(self.root / "tls")
        for name in ("servers", "coordinators"):
            self.authority(name).create()
            give_to_server(self.authority(name).certificate, 0o644)
        for path in self.authority("coordinators").issue_client("coordinator-client"):
            give_to_server(path, 0o600)

    def create_certificate(self, node: Node) -> None:
        """The certificate by which others know this server."""
        hosts = [f"DNS:{node.host}", "IP:127.0.0.1"]
        for path in self.authority("servers").issue_server(node.name, hosts):
            give_to_server(path, 0o600)

    # ---- assertions -----------------------------------------------------------------------------

    def _assertion_settings(self) -> dict[str, str]:
        """Settings that find libraries in the cluster's root first, by name and below $libdir.

        Names below $libdir are looked for by the path, too, since 18; before, Debian's own setting does it.
        """
        pkglibdir = find_directory("pkglibdir")
        libraries = self.root / "assert" / pkglibdir.relative_to("/")
        settings = {"dynamic_library_path": f"'{libraries}:$libdir'"}
        if server_major() < 18:
            settings["extension_destdir"] = f"'{self.root / 'assert'}'"
        return settings

    def _copy_assertion_libraries(self) -> None:
        """Into the root: the account of the servers may not be able to read the repository."""
        target = self.root / "assert" / find_directory("pkglibdir").relative_to("/")
        target.mkdir(parents=True)
        # PostgreSQL looks there for versions of extensions, too, and wants the directory to exist
        scripts = find_directory("sharedir").relative_to("/") / "extension"
        (self.root / "assert" / scripts).mkdir(parents=True)
        libraries = list(ASSERTION_LIBRARIES.glob("*.so"))
        if not libraries:
            raise ClusterError("no libraries with assertions: run `make install`")
        for library in libraries:
            shutil.copy(library, target)

    # ---- the state file -------------------------------------------------------------------------

    def _load(self) -> None:
        state = json.loads(self._state_file.read_text())
        self.complete = state["complete"]
        self.extension = state["extension"]
        self.durable = state["durable"]
        self.tls = state["tls"]
        self.assertions = state.get("assertions", False)
        ports = dict(state["ports"])
        self.coordinator = self._make_node("coordinator", ports.pop("coordinator"))
        plain = ports.pop("plain", None)
        self.plain = self._make_node("plain", plain) if plain else None
        self.workers = [self._make_node(*item, len(ports)) for item in ports.items()]

    def _save(self) -> None:
        state = {
            "complete": self.complete,
            "extension": self.extension,
            "durable": self.durable,
            "tls": self.tls,
            "assertions": self.assertions,
            "ports": {node.name: node.port for node in self.nodes},
        }
        new = self._state_file.with_suffix(".new")
        new.write_text(json.dumps(state, indent=2) + "\n")
        new.replace(self._state_file)

    # ---- life -----------------------------------------------------------------------------------

    def create(self) -> None:
        """Make the cluster and start it, or only start it when it was made before."""
        if self.complete:
            self.start()
            return
        self.destroy()
        try:
            self._build()
        except BaseException:
            self.stop("immediate")  # the root stays, with the logs, for whoever asks why
            raise

    def _build(self) -> None:
        make_directory(self.root)
        make_directory(self.sockets)
        if self.assertions:
            self._copy_assertion_libraries()
        self.passfile.touch()
        give_to_server(self.passfile, 0o600)
        self._save()
        if self.tls:
            self._create_authorities()
        with ThreadPoolExecutor() as pool:
            list(pool.map(self._prepare_node, self.nodes))
        if self.extension:
            self._create_extension()
        self.complete = True
        self._save()

    def _prepare_node(self, node: Node) -> None:
        """Make and start a node, with the superuser's password and an empty database."""
        if node.host is not None:
            self.create_certificate(node)
        node.initdb()
        node.start()
        if node.rules is not TLS_WORKER_RULES:
            self._give_password(node, SUPERUSER)
        with node.connect("postgres") as connection:
            home = "pg_default"
            if self.extension and node.name not in ("coordinator", "plain"):
                home = "hot"
                for name, place in node.tablespaces().items():
                    shutil.rmtree(place, ignore_errors=True)
                    make_directory(place.parent.parent)
                    make_directory(place.parent)
                    make_directory(place)
                    connection.execute(f"CREATE TABLESPACE {name} LOCATION '{place}'")
            connection.execute(f"CREATE DATABASE {DATABASE} TABLESPACE {home}")

    def _give_password(self, node: Node, role: str) -> None:
        password = secrets.token_urlsafe(24)
        node.set_password(role, password)
        self._remember_password(node, role, password)

    def _remember_password(self, node: Node, role: str, password: str) -> None:
        name = role.replace("\\", r"\\").replace(":", r"\:")
        entry = f"127.0.0.1:{node.port}:*:{name}:"
        with self._passfile_lock:  # nodes are prepared in parallel
            lines = self.passfile.read_text().splitlines(keepends=True)
            kept = [line for line in lines if not line.startswith(entry)]
            self.passfile.write_text("".join([*kept, f"{entry}{password}\n"]))

    def _create_extension(self) -> None:
        version = f"VERSION '{self.version}'" if self.version else ""
        self.coordinator.execute("CREATE EXTENSION IF NOT EXISTS hll")
        self.coordinator.execute(f"CREATE EXTENSION strata {version}")
        self.coordinator.execute(
            f'ALTER DATABASE {DATABASE} SET search_path = "$user", public, strata'
        )
        self.coordinator.disconnect()
        if self.plain:
            self.plain.execute("CREATE EXTENSION IF NOT EXISTS hll")
        for worker in self.workers:
            self._register_worker(worker)

    def _register_worker(self, worker: Node) -> None:
        self.coordinator.query(
            "SELECT strata.add_worker(%s, %s)", (worker.name, worker.conninfo(user=None))
        )

    def new_node(self, name: str) -> Node:
        """One more server, running, that the coordinator knows nothing of yet."""
        port = free_port({other.port for other in self.nodes})
        node = self._make_node(name, port, len(self.workers) + 1)
        self._prepare_node(node)
        return node

    def add_worker(self, node: Node | None = None) -> Node:
        """Add a worker: a running node, or a new one."""
        node = node or self.new_node(f"worker{len(self.workers) + 1}")
        if self.extension:
            self._register_worker(node)
        self.workers.append(node)
        self._save()
        return node

    def remove_worker(self, node: Node) -> None:
        """Move a worker's shards to the others, and remove it with its data."""
        self.coordinator.execute("SELECT strata.remove_worker(%s, drain => true)", (node.name,))
        node.disconnect()
        node.stop()
        self.workers.remove(node)
        self._save()
        for place in (node.data, *node.tablespaces().values()):
            shutil.rmtree(place)

    def create_role(self, role: str, attributes: str = "LOGIN") -> None:
        """Make a role on every node, with a password that is added to the password file.

        Roles reach the workers by a login of their own, so they need one there, too, unless the
        coordinator's certificate is enough.
        """
        nodes = [self.coordinator, self.plain] if self.tls else self.nodes
        for node in filter(None, nodes):
            name = psycopg.sql.Identifier(role)
            with node.connect() as connection:
                known = connection.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", (role,))
                if known.fetchone() is None:
                    connection.execute(
                        psycopg.sql.SQL("CREATE ROLE {} ").format(name)
                        + psycopg.sql.SQL(attributes)
                    )
            self._give_password(node, role)

    def start(self) -> None:
        with ThreadPoolExecutor() as pool:
            list(pool.map(lambda node: node.start(), self.nodes))

    def stop(self, mode: str = "fast") -> None:
        """Stop all nodes, the coordinator first: it holds connections to the workers."""
        self.coordinator.stop(mode)
        with ThreadPoolExecutor() as pool:
            list(pool.map(lambda node: node.stop(mode), self.nodes))

    def destroy(self) -> None:
        """Stop everything and remove the root directory with all data."""
        if self.root.exists():
            for node in self.nodes:
                crashes_of_destroyed.extend(f"{node.name}: {line}" for line in node.crashed())
            self.stop("immediate")
            for pid_file in self.root.glob("*/postmaster.pid"):  # nodes we were not told about
                Node(pid_file.parent.name, self.root, 0, self.sockets).stop("immediate")
            shutil.rmtree(self.root)
        if not self.sockets.is_relative_to(self.root):
            shutil.rmtree(self.sockets, ignore_errors=True)
        self.complete = False

    def __enter__(self) -> Cluster:
        try:
            self.create()
        except BaseException:
            self.destroy()
            raise
        return self

    def __exit__(self, *_) -> None:
        self.destroy()


def socket_directory(root: Path) -> Path:
    """Where a cluster's unix sockets are: in its root, elsewhere if the path is too long."""
    inside = root / "sockets"
    if len(os.fsencode(inside)) <= LONGEST_SOCKET_DIRECTORY:
        return inside
    digest = hashlib.sha256(os.fsencode(root)).hexdigest()[:12]
    return Path(tempfile.gettempdir()) / f"strata-{os.geteuid()}-{digest}"
