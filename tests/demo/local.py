"""The local cluster of `make demo`: where it is, whether it still fits, how others connect."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
from pathlib import Path

from tests.cluster import DATABASE, SUPERUSER, Cluster
from tests.installation import find_binaries, server_account, server_can_reach

CHECKOUT = Path(__file__).resolve().parents[2]
LINK = CHECKOUT / ".strata"


def cluster_root() -> Path:
    """`.strata` of the checkout, or what `.strata` is to point to.

    Root's servers run as `postgres`, who cannot enter a checkout below /root, say: then the
    cluster lives in that account's home, and `.strata` is a symbolic link.
    """
    if LINK.is_symlink():
        return LINK.resolve()
    if server_can_reach(CHECKOUT):
        return LINK
    digest = hashlib.sha256(os.fsencode(CHECKOUT)).hexdigest()[:12]
    return Path("/var/lib/postgresql") / f"strata-{digest}"


def link_to(root: Path) -> None:
    """Make `.strata` lead to the cluster."""
    if root != LINK and not LINK.is_symlink():
        LINK.symlink_to(root)


def remove(cluster: Cluster) -> None:
    cluster.destroy()
    if LINK.is_symlink():
        LINK.unlink()


def other_owner(root: Path) -> str | None:
    """The account to which an existing cluster belongs, if it is not that of our servers."""
    if not root.exists() or root.stat().st_uid == server_account().pw_uid:
        return None
    return root.owner()


def write_environment(cluster: Cluster) -> None:
    """`. .strata/env` makes psql and every libpq program connect to the coordinator."""
    lines = [
        "# . .strata/env && psql",
        "export PGHOST=127.0.0.1",
        f"export PGPORT={cluster.coordinator.port}",
        f"export PGUSER={SUPERUSER}",
        f"export PGDATABASE={DATABASE}",
        f"export PGPASSFILE='{cluster.passfile}'",
        "export PGSSLMODE=verify-full",
        f"export PGSSLROOTCERT='{cluster.authority('servers').certificate}'",
    ]
    (cluster.root / "env").write_text("\n".join(lines) + "\n")


def fingerprint() -> str:
    """Changes when other extension files are installed than before."""
    digest = hashlib.sha256()
    for option, pattern in (("--pkglibdir", "strata*.so"), ("--sharedir", "extension/strata*")):
        directory = subprocess.run(
            [find_binaries() / "pg_config", option], capture_output=True, text=True, check=True
        ).stdout.strip()
        for path in sorted(Path(directory).glob(pattern)):
            digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


class State:
    """What the demo knows of its cluster, in demo.json: it survives a demo that was stopped."""

    def __init__(self, root: Path):
        self._file = root / "demo.json"
        self._values = json.loads(self._file.read_text()) if self._file.exists() else {}

    def get(self, name: str):
        return self._values.get(name)

    def set(self, name: str, value) -> None:
        self._values[name] = value
        new = self._file.with_suffix(".new")
        new.write_text(json.dumps(self._values, indent=2) + "\n")
        new.replace(self._file)


def disk_usage(root: Path) -> int:
    """Bytes below the cluster's root."""
    return sum(path.stat().st_size for path in root.rglob("*") if path.is_file())


def free_space(root: Path) -> int:
    while not root.exists():
        root = root.parent
    return shutil.disk_usage(root).free
