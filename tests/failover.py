"""What failover tests share: standbys, servers that stand still, and wires that lose every packet."""

from __future__ import annotations

import contextlib
import os
import selectors
import shutil
import signal
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest

from tests.cluster import Cluster, Node, free_port
from tests.installation import find_binaries, give_to_server, run_as_server
from tests.waiting import wait_until


def backends_of(node: Node) -> list[int]:
    """Those that serve the cluster's sessions now."""
    titles = {}
    for pid in node.processes()[1:]:
        with contextlib.suppress(FileNotFoundError):  # it has ended
            titles[pid] = Path(f"/proc/{pid}/cmdline").read_bytes()
    return [pid for pid, title in titles.items() if b" strata 127.0.0.1(" in title]


def heartbeat(node: Node) -> list[int]:
    """The coordinator's process that watches the workers; none for a moment when it is replaced."""
    query = "SELECT pid FROM pg_stat_activity WHERE backend_type = 'strata heartbeat'"
    return [pid for (pid,) in node.query(query)]


def lose(cluster: Cluster, *workers: Node) -> None:
    """They are gone, and the heartbeat has noticed."""
    for worker in workers:
        worker.kill()
        worker.forgive_crash()
        for _ in wait_until("the heartbeat notices"):
            if cluster.coordinator.query(
                "SELECT status FROM strata.workers WHERE name = %s", (worker.name,)
            ) == [("down",)]:
                break


def set_replica(node: Node, name: str) -> None:
    """Let commits on a node wait for a replica of this name; '' for none."""
    node.execute(f"ALTER SYSTEM SET synchronous_standby_names = '{name}'")
    node.execute("SELECT pg_reload_conf()")
    for _ in wait_until("the setting is known"):
        if node.value("SELECT current_setting('synchronous_standby_names')") == name:
            break
    if name:
        wait_until_commits_wait(node)


def wait_until_commits_wait(node: Node) -> None:
    """The checkpointer has read the setting, too: before that no commit heeds it."""
    waits = "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE pid = %s AND wait_event = 'SyncRep'"
    with node.connect() as probe, ThreadPoolExecutor(1) as pool:
        for _ in wait_until("commits wait for the replica"):
            commit = pool.submit(probe.execute, "SELECT pg_logical_emit_message(true, '', '')")
            while not commit.done():
                if node.query(waits, (probe.info.backend_pid,)):
                    commit.result()
                    return


@contextlib.contextmanager
def frozen(node: Node, choose: Callable[[Node], list[int]] = Node.processes) -> Iterator[None]:
    """Every process of a server (or some) stands still: connections stay open, nobody answers."""
    processes = choose(node)
    for pid in processes:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in processes:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


def allow_passwords(passfile: Path, port: int, other: int) -> None:
    """Those for a server on one port are for another one's, too."""
    passwords = passfile.read_text()
    for line in passwords.splitlines():
        if line.startswith(f"127.0.0.1:{port}:*:"):
            passwords += line.replace(f":{port}:", f":{other}:", 1) + "\n"
    passfile.write_text(passwords)
    give_to_server(passfile, 0o600)


def make_standby(cluster: Cluster, primary: Node, name: str) -> Node:
    """A running standby of a worker, which the coordinator knows nothing of."""
    standby = cluster._make_node(name, free_port({node.port for node in cluster.nodes}))
    allow_passwords(primary.passfile, primary.port, standby.port)
    command = [find_binaries() / "pg_basebackup", "-d", primary.conninfo(), "-D", standby.data]
    command += ["-X", "stream", "-c", "fast", *primary.tablespace_mapping(name)]
    result = run_as_server(command, capture_output=True)
    assert result.returncode == 0, result.stderr
    become_standby(standby, primary)
    standby.start()
    return standby


def become_standby(node: Node, primary: Node) -> None:
    """The stopped server follows `primary` when it is started."""
    conninfo = primary.conninfo("postgres").replace("'", "''")
    node.settings["primary_conninfo"] = f"'{conninfo}'"
    (node.data / "standby.signal").touch()
    give_to_server(node.data / "standby.signal", 0o600)


def wait_for_replay(primary: Node, standby: Node) -> None:
    """Of all that is on the primary's disk now."""
    ((end,),) = primary.query("SELECT pg_current_wal_flush_lsn()")
    for _ in wait_until("the standby has replayed all"):
        if standby.query("SELECT pg_last_wal_replay_lsn() >= %s::pg_lsn", (end,))[0][0]:
            break


def pause_replay(standby: Node) -> None:
    standby.execute("SELECT pg_wal_replay_pause()")
    for _ in wait_until("replay is paused"):
        if standby.query("SELECT pg_get_wal_replay_pause_state()") == [("paused",)]:
            break


def resume_replay(standby: Node) -> None:
    """What is replayed at once may cancel the statement itself."""
    with contextlib.suppress(psycopg.errors.SerializationFailure):
        standby.execute("SELECT pg_wal_replay_resume()")


def copy_coordinator(cluster: Cluster, name: str, *options: str) -> Node:
    """A base backup of the coordinator, not started."""
    primary = cluster.coordinator
    taken = {node.port for node in cluster.nodes}
    settings = dict(primary.settings)
    copy = Node(name, cluster.root, free_port(taken), cluster.sockets, settings)
    arguments = [find_binaries() / "pg_basebackup", "-d", primary.conninfo(), "-D", copy.data]
    arguments += [*options, "-X", "stream", "-c", "fast", "--no-sync"]
    result = run_as_server(arguments, capture_output=True)
    assert result.returncode == 0, result.stderr
    give_to_server(copy.data, 0o700)
    return copy


def standby_mark(standby: Node) -> Path:
    """The file by which a server knows that its primary has fed it."""
    return standby.data / "pg_stat_tmp" / "strata_coordinator.0"


class Failover:
    """A synchronous replica of the coordinator, which can take its place."""

    def __init__(self, cluster: Cluster):
        self.cluster = cluster
        self.number = 0
        self.standby = self._make()

    def _make(self) -> Node:
        """Copy the coordinator, make it wait for the copy, and see that this knows what it is.

        Its process looks for a wire to the primary; before that only what the primary has sent counts.
        """
        primary = self.cluster.coordinator
        self.number += 1
        standby = copy_coordinator(self.cluster, f"replica{self.number}", "-R")
        standby.start()
        with primary.connect() as connection:
            connection.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
            connection.execute("SELECT pg_reload_conf()")
            for _ in wait_until("the replica is synchronous"):
                state = "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'"
                if connection.execute(state).fetchone() == (1,):
                    break
        for _ in wait_until("the replica is marked"):
            if standby_mark(standby).exists():
                return standby
        raise AssertionError("unreachable")

    def promote(self) -> None:
        """The replica is the cluster's coordinator from now on, whatever the old one does."""
        arguments = [find_binaries() / "pg_ctl", "-D", self.standby.data, "-w", "promote"]
        result = run_as_server(arguments, capture_output=True)
        assert result.returncode == 0, result.stdout + result.stderr
        self.cluster.coordinator = self.standby

    def take_over(self) -> None:
        """The coordinator dies, its replica goes on, and gets a replica of its own."""
        old = self.cluster.coordinator
        old.kill()
        self.promote()
        self.standby.forgive_crash()
        shutil.rmtree(old.data)
        self.standby = self._make()


def promote(node: Node) -> None:
    node.execute("SELECT pg_promote()")


def conninfo_of(*nodes: Node) -> str:
    """A connection string that names several servers."""
    hosts = ",".join("127.0.0.1" for _ in nodes)
    ports = ",".join(str(node.port) for node in nodes)
    return f"host={hosts} port={ports} dbname=strata passfile='{nodes[0].passfile}'"


def set_conninfo(cluster: Cluster, name: str, conninfo: str) -> None:
    cluster.coordinator.execute(
        "UPDATE strata.worker SET conninfo = %s WHERE name = %s", (conninfo, name)
    )


def wait_for_status(cluster: Cluster, name: str, status: str, timeout: float = 10) -> None:
    for _ in wait_until(f"{name} is {status}", timeout):
        if status_of(cluster, name)[0] == status:
            return


def status_of(cluster: Cluster, name: str) -> tuple:
    ((*row,),) = cluster.coordinator.query(
        "SELECT status, since, reason FROM strata.workers WHERE name = %s", (name,)
    )
    return tuple(row)


def why_no_packets_dropped() -> str:
    """Why packets_dropped() cannot work here; nothing if it can."""
    program = shutil.which("iptables")
    if os.geteuid() != 0 or program is None:
        return "dropping packets needs root and iptables"
    result = subprocess.run([program, "-w", "10", "-S", "INPUT"], capture_output=True, text=True)
    return f"packets cannot be dropped here: {result.stderr.strip()}" if result.returncode else ""


# Of tests with packets_dropped(): asked before they begin, because nobody can leave them half-way.
drops_packets = pytest.mark.skipif(bool(why_no_packets_dropped()), reason=why_no_packets_dropped())


@contextlib.contextmanager
def packets_dropped(node: Node) -> Iterator[None]:
    """The kernel drops every TCP packet to and from a server: no reset, no end, as a dead switch does."""
    match = ["-i", "lo", "-p", "tcp", "-m", "multiport", "--ports", str(node.port), "-j", "DROP"]

    def run(action: str) -> None:
        subprocess.run(["iptables", "-w", "10", action, "INPUT", *match], check=True)

    run("-I")
    try:
        yield
    finally:
        run("-D")


class Proxy:
    """A TCP proxy in front of a server, that can lose all packets, as a dead switch does.

    While it is `dead` nothing is forwarded or closed; new connections are accepted by the kernel
    (its queue), but hear nothing.  forget() is what a firewall does that was restarted: the
    connections that there are hear nothing any more, and no end either; new ones work.
    """

    def __init__(self, port: int):
        self.target = port
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port = self.listener.getsockname()[1]
        self.dead = threading.Event()
        self._stop = threading.Event()
        self._forget = threading.Event()
        self._forgotten: list[socket.socket] = []
        self._peers: dict[socket.socket, socket.socket] = {}
        self._selector = selectors.DefaultSelector()
        self._selector.register(self.listener, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.is_set():
            if self.dead.is_set():
                self._stop.wait(0.02)
                continue
            if self._forget.is_set():
                for end in self._peers:
                    self._selector.unregister(end)
                self._forgotten += self._peers
                self._peers.clear()
                self._forget.clear()
            for key, _ in self._selector.select(0.02):
                if self.dead.is_set() or self._forget.is_set():
                    break
                if key.fileobj is self.listener:
                    self._accept()
                else:
                    self._forward(key.fileobj)

    def _accept(self) -> None:
        client, _ = self.listener.accept()
        try:
            server = socket.create_connection(("127.0.0.1", self.target))
        except OSError:
            client.close()
            return
        self._peers |= {client: server, server: client}
        for end in (client, server):
            self._selector.register(end, selectors.EVENT_READ)

    def _forward(self, end: socket.socket) -> None:
        if end not in self._peers:
            return
        peer = self._peers[end]
        try:
            data = end.recv(65536)
            if data:
                peer.sendall(data)
                return
        except OSError:
            pass
        for one in (end, peer):
            self._selector.unregister(one)
            del self._peers[one]
            one.close()

    def forget(self) -> None:
        """Also if it was dead: it is not any more."""
        self._forget.set()
        self.dead.clear()
        for _ in wait_until("the proxy has forgotten its connections"):
            if not self._forget.is_set():
                return

    def close(self) -> None:
        self._stop.set()
        self._thread.join()
        for end in [self.listener, *self._peers, *self._forgotten]:
            end.close()


@contextlib.contextmanager
def behind_proxy(cluster: Cluster, worker: Node) -> Iterator[Proxy]:
    """The coordinator reaches the worker through a proxy."""
    proxy = Proxy(worker.port)
    direct = worker.conninfo(user=None)
    passfile = cluster.passfile.read_text()
    line = next(x for x in passfile.splitlines() if x.startswith(f"127.0.0.1:{proxy.target}:"))
    cluster.passfile.write_text(
        passfile + line.replace(f":{proxy.target}:", f":{proxy.port}:") + "\n"
    )
    set_conninfo(cluster, worker.name, direct.replace(f"port={proxy.target}", f"port={proxy.port}"))
    try:
        wait_for_status(cluster, worker.name, "up")
        yield proxy
    finally:
        proxy.close()
        set_conninfo(cluster, worker.name, direct)
        cluster.passfile.write_text(passfile)
