"""pg_upgrade of one node, as an administrator runs it: a new data directory beside the old one."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.cluster import Node, free_port
from tests.data_directory import make_data_directory
from tests.installation import ClusterError, find_binaries, make_directory, run_as_server


def old_data(node: Node) -> Path:
    """Where the data directory of before is afterwards."""
    return node.data.with_name(f"{node.name}.old")


def pg_upgrade(node: Node, old_binaries: Path | None = None, settings: dict | None = None) -> None:
    """Bring a stopped node to the PostgreSQL under test, from an older one or from the same.

    Files are copied, so the old server can be started again.  The node is not started.
    """
    work = node.root / f"{node.name}.pg_upgrade"
    node.data.rename(old_data(node))
    make_data_directory(node.data)
    node.settings |= settings or {}
    node.write_configuration()
    make_directory(work)
    new_binaries = find_binaries()
    arguments = [new_binaries / "pg_upgrade", "-U", "postgres", "-s", node.sockets]
    arguments += ["-b", old_binaries or new_binaries, "-B", new_binaries]
    arguments += ["-d", old_data(node), "-D", node.data]
    arguments += ["-p", node.port, "-P", free_port({node.port})]
    result = run_as_server(["env", "-C", work, *arguments], capture_output=True)
    if result.returncode != 0:
        output = node.data / "pg_upgrade_output.d"
        logs = sorted([*output.rglob("*.log"), *output.rglob("*.txt")])
        ends = [f"{log.name}:\n{log.read_text()[-3000:]}" for log in logs]
        errors = [line for log in logs for line in log.read_text().splitlines() if "ERROR" in line]
        raise ClusterError("\n".join([result.stdout[-2000:], result.stderr, *ends, *errors]))
    shutil.rmtree(work)
