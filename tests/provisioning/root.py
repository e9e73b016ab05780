"""The root file systems that the hosts of the lab, and the package builds, start from.

Each is made once with mmdebstrap from the Debian mirror that this machine is configured for, and
kept below .cache/lab/roots under a name that tells its suite and what is in it: another list of
packages is another root.  It is the lower layer of overlays and never changed after it is made.

Ansible installs packages on six hosts at once, so a host's root has what makes that cheap and leaves
it true: the libraries are there already, the packages themselves wait in a repository on the host's
own disk, whose index alone apt has to read until somebody runs apt-get update, and dpkg syncs nothing.
"""

from __future__ import annotations

import email
import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.provisioning.commands import LabError, run

CACHE = Path(__file__).parents[2] / ".cache" / "lab"


def read_majors() -> dict[str, int]:
    """The PostgreSQL of each Debian release."""
    lines = (Path(__file__).parents[2] / "scripts" / "releases").read_text().splitlines()
    rows = [line.split() for line in lines if line and not line.startswith("#")]
    return {suite: int(major) for major, suite, _ in rows}


MAJORS = read_majors()

# Another number is another root: raise it when bootstrap() makes something else of a recipe.
FORMAT = 2

# What a host has before Ansible comes: an ordinary minimal server that one can ssh into.
SERVER = (
    "systemd systemd-sysv dbus libpam-systemd udev python3 python3-apt openssh-server iproute2"
    " iputils-ping ca-certificates sudo procps iptables gnupg netbase curl"
)

# What Ansible installs; downloaded with the root, so that six hosts need no network for it.  Of what
# these depend on, the libraries are installed with the root.
LIBRARY = re.compile(r"lib|python3-|perl|tzdata$|sysstat$")
PREFETCHED = {
    "": (
        "postgresql-{major} postgresql-{major}-hll postgresql-{major}-partman postgresql-client-{major}"
        " etcd-server etcd-client pgbackrest prometheus-node-exporter prometheus-postgres-exporter"
        " nftables openssl e2fsprogs xfsprogs logrotate locales python3-psycopg2 chrony"
    ),
    "testing": "patroni python3-etcd",
    "trixie": "patroni python3-etcd",
    "bookworm": (
        "python3-venv python3-setuptools python3-cdiff python3-click python3-dateutil python3-etcd"
        " python3-prettytable python3-psutil python3-urllib3 python3-yaml"
    ),
}

# What building the packages and running the tests needs.
BUILDING = (
    "build-essential debhelper fakeroot lintian postgresql-server-dev-{major} postgresql-{major}"
    " postgresql-{major}-hll postgresql-{major}-partman libpq-dev libicu-dev libkrb5-dev libssl-dev"
    " liblz4-dev libzstd-dev"
    " python3 python3-venv ca-certificates locales iptables openssl procps"
)


# What pg_upgrade comes from stands beside the release's own server, as after a dist-upgrade.
OLDER = "postgresql-{major} postgresql-{major}-hll postgresql-{major}-partman"


@dataclass(frozen=True)
class Recipe:
    """What a root is made of; `packages` are installed, `prefetched` only downloaded.

    Some of them may come from an older suite.
    """

    suite: str
    packages: tuple[str, ...]
    prefetched: tuple[str, ...] = ()
    older_suite: str = ""

    def name(self) -> str:
        content = json.dumps(
            [FORMAT, self.suite, self.packages, self.prefetched]
            + ([self.older_suite] if self.older_suite else [])
        )
        return f"{self.suite}-{hashlib.sha256(content.encode()).hexdigest()[:12]}"


def server_recipe(suite: str, upgraded: bool = False) -> Recipe:
    """A host's; `upgraded`, one that was of the oldest release, and can install its PostgreSQL."""
    prefetched = packages_of(f"{PREFETCHED['']} {PREFETCHED[suite]}", suite)
    older = older_suite(suite) if upgraded else ""
    if older:
        prefetched += packages_of(f"{OLDER} postgresql-client-{{major}}", older)
    return Recipe(suite, packages_of(SERVER, suite), prefetched, older)


def machine_recipe(suite: str) -> Recipe:
    """A server with a kernel of its own."""
    server = server_recipe(suite)
    kernel = ("linux-image-cloud-amd64", "initramfs-tools")
    return Recipe(suite, server.packages + kernel, server.prefetched)


def build_recipe(suite: str) -> Recipe:
    return Recipe(suite, packages_of(BUILDING, suite))


def older_suite(suite: str) -> str:
    """The oldest release, whose PostgreSQL a cluster is upgraded from; empty for itself.

    Not the one before: PostgreSQL 17.12 notes options of columns that 18.6 does not know, so pg_upgrade
    between these two fails, with any table.
    """
    oldest = min(MAJORS, key=MAJORS.__getitem__)
    return "" if suite == oldest else oldest


def check_recipe(suite: str) -> Recipe:
    """Where packages are built, with the oldest server beside it; for benchmarks, and for signed sources of tests."""
    older = older_suite(suite)
    packages = packages_of(BUILDING, suite) + (packages_of(OLDER, older) if older else ())
    more = ("e2fsprogs", "debian-keyring", "gpgv")
    return Recipe(suite, packages + more, older_suite=older)


def packages_of(names: str, suite: str) -> tuple[str, ...]:
    return tuple(names.format(major=MAJORS[suite]).split())


def debian_mirror() -> str:
    """The URI of the Debian mirror that this machine's apt is configured for."""
    lines = run(
        ["apt-get", "indextargets", "--format", "$(REPO_URI) $(RELEASE)"]
        + ["Created-By: Packages", "Component: main", "Origin: Debian", "Label: Debian"]
    ).stdout.splitlines()
    for line in lines:
        uri, release = line.rsplit(" ", 1)
        if "-" not in release:
            return uri.rstrip("/")
    raise LabError("apt knows no Debian mirror: run apt-get update once")


def age_of_indexes() -> list[str]:
    """What this machine's apt was told of indexes that are past their date, as those of a snapshot are."""
    options = run(["apt-config", "dump", "Acquire::Check-Valid-Until"]).stdout
    return [option.rstrip(";") for option in options.splitlines()]


def make_root(recipe: Recipe) -> Path:
    """The directory of the root, made now if it is not there yet."""
    root = CACHE / "roots" / recipe.name()
    root.parent.mkdir(parents=True, exist_ok=True)
    with (root.parent / f"{recipe.name()}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if root.exists():
            return root
        unfinished = root.with_name(f"{root.name}.unfinished")
        shutil.rmtree(unfinished, ignore_errors=True)
        print(f"Making a root file system of Debian {recipe.suite} ...", flush=True)
        bootstrap(recipe, unfinished)
        unfinished.rename(root)
    return root


def bootstrap(recipe: Recipe, root: Path) -> None:
    hooks = []
    if any(package.startswith("postgresql") for package in recipe.packages):
        # the package would make a database cluster, which nobody asked for
        configuration = "$1/etc/postgresql-common"
        hooks = [
            f"--essential-hook=mkdir -p {configuration}",
            f"--essential-hook=echo create_main_cluster = false >{configuration}/createcluster.conf",
        ]
    run(
        ["mmdebstrap", "--quiet", "--variant=minbase", "--dpkgopt=force-confold", *hooks]
        + [f"--aptopt={option}" for option in age_of_indexes()]
        + [f"--include={','.join(recipe.packages)}"]
        + [recipe.suite, root]
        + [f"deb {debian_mirror()} {s} main" for s in (recipe.suite, recipe.older_suite) if s]
    )
    if recipe.prefetched:
        (root / "etc/dpkg/dpkg.cfg.d/lab").write_text("force-unsafe-io\n")
        prefetch(root, recipe.prefetched)
    (root / "etc/resolv.conf").unlink(missing_ok=True)
    (root / "etc/resolv.conf").touch()
    (root / "etc/machine-id").write_text("")
    # journals are read after a power loss, too
    (root / "var/log/journal").mkdir(parents=True, exist_ok=True)


def prefetch(root: Path, packages: tuple[str, ...]) -> None:
    """Install the libraries that the packages need, and make a repository of all the rest."""
    apt = ["apt-get", "-qq", "--yes", "--no-install-recommends"]
    archives = root / "var/cache/apt/archives"
    shutil.copy("/etc/resolv.conf", root / "etc/resolv.conf")
    run_inside(root, [*apt, "-o", "Acquire::Languages=none", "update"])
    plan = run_inside(root, [*apt, "--simulate", "install", *packages]).stdout
    needed = set(re.findall(r"^Inst (\S+)", plan, re.M)) - set(packages)
    run_inside(root, [*apt, "install", *sorted(filter(LIBRARY.match, needed))])
    run_inside(root, ["apt-get", "clean"])
    run_inside(root, [*apt, "--download-only", "install", *packages])
    (archives / "Packages").write_text(index_of(root, archives))
    (root / "etc/apt/sources.list.d/prefetched.list").write_text(
        "deb [trusted=yes] file:/var/cache/apt/archives ./\n"
    )
    # which forgets the index of all of Debian
    run_inside(root, [*apt, "-o", "Dir::Etc::SourceList=/dev/null", "update"])


def index_of(root: Path, archives: Path) -> str:
    """What Debian's index says of the packages in a directory, as the index of that directory."""
    files = {file.name for file in archives.glob("*.deb")}
    names = {name.partition("_")[0] for name in files}
    entries = []
    for index in (root / "var/lib/apt/lists").glob("*_Packages"):
        for entry in index.read_text().strip().split("\n\n"):
            if re.match(r"Package: (.*)", entry)[1] not in names:
                continue
            fields = email.message_from_string(entry)
            version = fields["Version"].replace(":", "%3a")
            file = f"{fields['Package']}_{version}_{fields['Architecture']}.deb"
            if file in files:
                entries.append(re.sub(r"(?m)^Filename: .*", f"Filename: ./{file}", entry))
    if len(entries) != len(files):
        raise LabError(f"Debian's index describes {len(entries)} of {len(files)} packages")
    return "\n\n".join(entries) + "\n"


# Of programs that run inside of a root.
ENVIRONMENT = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME": "/root",
    "LC_ALL": "C.UTF-8",
    "DEBIAN_FRONTEND": "noninteractive",
}


def run_inside(root: Path, arguments: list[str], **options) -> subprocess.CompletedProcess:
    """Run a program with the directory as its root; its own environment, this machine's network."""
    return run(["chroot", root, *arguments], env=ENVIRONMENT, **options)


@contextmanager
def overlay(root: Path, directory: Path) -> Iterator[Path]:
    """A writable copy of a root in `directory`.

    One user at a time; so what is mounted there before is what a killed one left.
    """
    for name in ("upper", "work", "root"):
        (directory / name).mkdir(parents=True, exist_ok=True)
    merged = directory / "root"
    options = f"lowerdir={root},upperdir={directory}/upper,workdir={directory}/work"
    with (directory / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        while merged.is_mount():
            run(["umount", "--lazy", "--recursive", merged])
        run(["mount", "-t", "overlay", "overlay", "-o", options, merged])
        try:
            yield merged
        finally:
            run(["umount", "--lazy", "--recursive", merged], check=False)


@contextmanager
def layer(root: Path, directory: Path) -> Iterator[Path]:
    """An overlay with this machine's network, /dev, /proc and /sys, to run programs in."""
    with overlay(root, directory) as merged:
        for name in ("dev", "proc", "sys"):
            run(["mount", "--rbind", "--make-rslave", f"/{name}", merged / name])
        shutil.copy("/etc/resolv.conf", merged / "etc/resolv.conf")
        yield merged


def is_root() -> bool:
    return os.geteuid() == 0
