"""What the files need: the files, a library with their C functions, servers that let in every role."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from tests.cluster import PASSWORD_RULES, Cluster
from tests.installation import find_directory, give_to_server, server_major

REPOSITORY = Path(__file__).parent.parent.parent
RULES = PASSWORD_RULES.replace("scram-sha-256", "trust").replace("peer map=owner", "trust")

# of one server; the rest is that of tests/local.conf
SERVER_SETTINGS = {
    "autovacuum": "off",  # plans depend on statistics, and those on when it comes
    "max_parallel_workers_per_gather": "2",
    "work_mem": "4MB",
    "lc_messages": "'C'",
}

# as pg_regress sets them, and what a cluster's database has of its own
DATABASE_SETTINGS = """
ALTER DATABASE strata RESET search_path;
ALTER DATABASE strata SET lc_monetary TO 'C';
ALTER DATABASE strata SET lc_numeric TO 'C';
ALTER DATABASE strata SET lc_time TO 'C';
ALTER DATABASE strata SET bytea_output TO 'hex';
ALTER DATABASE strata SET timezone_abbreviations TO 'Default';
"""


def tests_directory() -> Path:
    """PostgreSQL's tests, of the major version in use; taken from Debian the first time."""
    directory = REPOSITORY / ".cache" / "compat" / str(server_major())
    script = REPOSITORY / "scripts" / "fetch_postgresql_tests.sh"
    subprocess.run([script, str(server_major()), directory], check=True)
    return directory


def schedule(directory: Path) -> list[str]:
    """The regression files in the order of PostgreSQL's schedule, one after the other."""
    lines = (directory / "regress" / "parallel_schedule").read_text().splitlines()
    return [name for line in lines if line.startswith("test:") for name in line.split()[1:]]


def isolation_schedule(directory: Path) -> list[str]:
    lines = (directory / "isolation" / "isolation_schedule").read_text().splitlines()
    return [line.split()[1] for line in lines if line.startswith("test:")]


def new_cluster(root: Path) -> Cluster:
    cluster = Cluster(root, workers=2, plain=True)
    for node in cluster.nodes:
        node.rules = RULES
        node.settings |= SERVER_SETTINGS
    del cluster.plain.settings["shared_preload_libraries"]
    return cluster


def prepare(cluster: Cluster, directory: Path) -> dict[str, str]:
    """Put where the servers can read it what scripts refer to; the variables that name it."""
    for node in (cluster.coordinator, cluster.plain):
        for command in DATABASE_SETTINGS.split(";"):
            if command.strip():
                node.execute(command)
        node.disconnect()
    place = cluster.root / "compat"
    shutil.copytree(directory / "regress" / "data", place / "data")
    for name in ("results", "lib"):
        (place / name).mkdir()
    build_library(directory / "regress" / "regress.c", place / "lib" / "regress.so")
    for name in ("refint.so", "autoinc.so"):
        shutil.copy(find_directory("pkglibdir") / name, place / "lib")
    for path in (place, *place.rglob("*")):
        give_to_server(path, 0o755 if path.is_dir() else 0o644)
    return {
        "PG_ABS_SRCDIR": str(place),
        "PG_ABS_BUILDDIR": str(place),
        "PG_LIBDIR": str(place / "lib"),
        "PG_DLSUFFIX": ".so",
        "DBNAME": "strata",
        "USER": "postgres",
        "HOST": str(cluster.sockets),
        "ENCODING": "UTF8",
    }


def build_library(source: Path, target: Path) -> None:
    compiler = os.environ.get("CC", "cc")
    include = [f"-I{find_directory(which)}" for which in ("includedir-server", "includedir")]
    arguments = [compiler, "-shared", "-fPIC", "-O1", "-w", "-D_GNU_SOURCE", *include]
    subprocess.run([*arguments, "-o", target, source], check=True)
