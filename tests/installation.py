"""The PostgreSQL under test: its programs, and the account that runs its servers."""

from __future__ import annotations

import os
import pwd
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path

SUPERUSER = "postgres"


class ClusterError(Exception):
    """A server could not be made, started or stopped; the message holds the end of its log."""


def find_directory(which: str) -> Path:
    """A directory that pg_config knows, of the version that PG_CONFIG belongs to."""
    candidates = [os.environ.get("PG_CONFIG")]
    candidates += [f"/usr/lib/postgresql/{major}/bin/pg_config" for major in (15, 17, 16, 18)]
    candidates.append("pg_config")
    for candidate in candidates:
        if candidate and (program := shutil.which(candidate)):
            answer = subprocess.run(
                [program, f"--{which}"], capture_output=True, text=True, check=True
            )
            return Path(answer.stdout.strip())
    raise ClusterError("no pg_config found: run `make build`, or set PG_CONFIG")


@cache
def server_major() -> int:
    """The major version of the PostgreSQL under test."""
    answer = subprocess.run(
        [find_binaries() / "postgres", "--version"], capture_output=True, text=True, check=True
    )
    return int(re.search(r"\) (\d+)", answer.stdout)[1])


@cache
def older_pg_config() -> Path | None:
    """The pg_config of the newest older PostgreSQL here that has Strata, from which to upgrade."""
    installed = Path("/usr/lib/postgresql")
    majors = sorted(int(path.name) for path in installed.glob("[0-9]*"))
    for major in reversed(majors):
        if major < server_major() and (installed / str(major) / "lib" / "strata.so").exists():
            return installed / str(major) / "bin" / "pg_config"
    return None


def force_parallel_setting() -> str:
    """The setting that has every plan run in a parallel worker, by its name in this version."""
    return "debug_parallel_query" if server_major() >= 16 else "force_parallel_mode"


def find_binaries() -> Path:
    """The directory of initdb, pg_ctl and postgres."""
    return find_directory("bindir")


def server_account() -> pwd.struct_passwd:
    """The account that runs the servers."""
    if os.geteuid() == 0:
        return pwd.getpwnam("postgres")
    return pwd.getpwuid(os.geteuid())


def run_as_server(arguments: list[str | Path], **options) -> subprocess.CompletedProcess:
    """Run a program as the account of the servers, in a directory which that may enter."""
    account = server_account()
    if os.geteuid() == 0:
        options |= {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}
    environment = {
        "PATH": os.environ.get("PATH", "/usr/bin:/bin"),
        "HOME": account.pw_dir,
        "LC_ALL": "C.UTF-8",
    }
    return subprocess.run(
        [str(argument) for argument in arguments],
        cwd="/",
        env=environment,
        text=True,
        stdin=subprocess.DEVNULL,
        **options,
    )


def make_directory(path: Path, mode: int = 0o700) -> None:
    """Make a directory that belongs to the account of the servers."""
    path.mkdir(parents=True, exist_ok=True)
    give_to_server(path, mode)


def give_to_server(path: Path, mode: int) -> None:
    path.chmod(mode)
    if os.geteuid() == 0:
        account = server_account()
        os.chown(path, account.pw_uid, account.pw_gid)


def server_can_reach(path: Path) -> bool:
    """May the account of the servers enter this directory?  (Not, for one, below /root.)"""
    while not path.exists():
        path = path.parent
    return run_as_server(["test", "-x", path]).returncode == 0
