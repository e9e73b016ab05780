"""The PostgreSQL major versions that this machine does not have: building and testing there.

A root of the Debian release that has the version, with compiler and server, is entered with chroot;
nothing is installed on this machine.  The layer over that root is kept, so that the next run finds
its Python tools.

The tests start servers that outlive whoever started them.  So they run in a process namespace of
their own, whose first process dies with this one: however a run ends, nothing of it goes on.
"""

from __future__ import annotations

import fcntl
import filecmp
import hashlib
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.provisioning.commands import LabError, run
from tests.provisioning.root import (
    CACHE,
    ENVIRONMENT,
    MAJORS,
    build_recipe,
    check_recipe,
    layer,
    make_root,
    older_suite,
    run_inside,
)

TREE = Path(__file__).parents[2]
# what a package is made of
PACKAGED = ("coordinator", "worker", "extensions", "debian", "scripts/build_deb.sh")


def suite_of(major: int) -> str:
    for suite, its_major in MAJORS.items():
        if its_major == major:
            return suite
    raise LabError(f"no Debian release that we know has PostgreSQL {major}")


def copy_tree(target: Path) -> None:
    """Our files as they are in the working tree, without what was built; those of an earlier copy go."""
    listed = run(["git", "-C", TREE, "ls-files", "--cached", "--others", "--exclude-standard"])
    names = {name for name in listed.stdout.splitlines() if (TREE / name).is_file()}
    copied = target / "copied"  # what is ours there: the rest was built
    if not copied.exists():
        shutil.rmtree(target / "src", ignore_errors=True)
    else:
        for name in set(copied.read_text().splitlines()) - names:
            (target / "src" / name).unlink(missing_ok=True)
    for name in names:
        copy = target / "src" / name
        # make goes by times: what changed is as new as its copy
        if not copy.is_file() or not filecmp.cmp(TREE / name, copy, shallow=False):
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(TREE / name, copy)
    copied.write_text("".join(f"{name}\n" for name in sorted(names)))


# The first process of the namespace; it waits for whatever the tests leave behind without a parent.
CONFINED = """
mount -t proc proc "$0/proc" && mount -t tmpfs tmpfs "$0/dev/shm" || exit
chroot "$0" sh -c 'cd /src && exec "$@"' sh "$@"
exit $?
"""


def show(root: Path, arguments: list[str]) -> int:
    """Run a program in the root, in the copy of the tree, with our standard output.

    What it leaves running is killed when it ends, and when this process does.
    """
    command = ["setpriv", "--pdeathsig", "KILL"]
    command += ["unshare", "--mount", "--pid", "--ipc", "--fork", "--kill-child=KILL"]
    command += ["sh", "-c", CONFINED, root, *arguments]
    return run(command, env=ENVIRONMENT, check=False, stdout=None, stderr=None).returncode


def build_deb(major: int, output: Path) -> None:
    """The package for a major version, built in its release's root."""
    suite = suite_of(major)
    lower = make_root(build_recipe(suite))
    with layer(lower, CACHE / f"build-{lower.name}") as root:
        shutil.rmtree(root / "src", ignore_errors=True)
        copy_tree(root)
        version = run([TREE / "scripts/deb_version.sh"]).stdout.split()
        command = ["scripts/build_deb.sh", str(major), "/src/dist", *version]
        if show(root, command) != 0:
            raise LabError(f"the package for PostgreSQL {major} was not built")
        output.mkdir(exist_ok=True)
        for old in output.glob(f"postgresql-{major}-strata*.deb"):
            old.unlink()
        for package in (root / "src/dist").glob("*.deb"):
            shutil.copy(package, output)


def have_deb(major: int, output: Path) -> None:
    """The same, but sources that were built before, or are just being built, are not compiled again."""
    built = CACHE / "debs" / f"{major}-{fingerprint()}"
    built.parent.mkdir(parents=True, exist_ok=True)
    with (built.parent / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not built.exists():
            build_deb(major, output)
            for old in built.parent.glob(f"{major}-*"):
                shutil.rmtree(old)
            unfinished = built.with_name(f"{built.name}.unfinished")
            shutil.copytree(output, unfinished, ignore=lambda _, names: others(major, names))
            unfinished.rename(built)
    for old in output.glob(f"postgresql-{major}-strata*.deb"):
        old.unlink()
    shutil.copytree(built, output, dirs_exist_ok=True)


def others(major: int, names: list[str]) -> list[str]:
    return [name for name in names if not name.startswith(f"postgresql-{major}-strata_")]


def fingerprint() -> str:
    """Of all that goes into the package, as it is in the working tree."""
    listed = run(
        ["git", "-C", TREE, "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        + ["--", *PACKAGED]
    )
    digest = hashlib.sha256()
    for name in sorted(filter(None, listed.stdout.split("\0"))):
        if (TREE / name).is_file():
            digest.update(
                f"{name}\0".encode() + hashlib.sha256((TREE / name).read_bytes()).digest()
            )
    return digest.hexdigest()[:16]


def install_python(root: Path, suite: str, file: str) -> None:
    """A virtual environment with the pinned tools of a requirements file; wheels come through this machine's pip."""
    files = ("requirements.txt", file)
    requirements = "".join((TREE / name).read_text() for name in files)
    digest = hashlib.sha256(requirements.encode()).hexdigest()[:12]
    stamp = root / ".venv" / f"installed-{Path(file).parent}-{digest}"
    if stamp.exists():
        return
    wheels = CACHE / f"wheels-{suite}"
    version = "import sys; print('%d.%d' % sys.version_info[:2])"
    python = run_inside(root, ["python3", "-c", version]).stdout.strip()
    run(
        [sys.executable, "-m", "pip", "download", "--quiet", "--only-binary=:all:"]
        + [f"--python-version={python}", "--requirement", TREE / file, "--dest", wheels]
    )
    shutil.copytree(wheels, root / "wheels", dirs_exist_ok=True)
    if not (root / ".venv").exists():
        run_inside(root, ["python3", "-m", "venv", "/.venv"])
    run_inside(
        root,
        ["/.venv/bin/pip", "install", "--quiet", "--no-index", "--find-links=/wheels"]
        + ["--requirement", f"/src/{file}"],
    )
    stamp.touch()


def package_of(major: int) -> Path:
    packages = list((TREE / "dist").glob(f"postgresql-{major}-strata_*.deb"))
    if len(packages) != 1:
        raise LabError(f"dist has {len(packages)} packages for {major}: run make deb PG={major}")
    return packages[0]


@contextmanager
def installed(major: int) -> Iterator[tuple[Path, str]]:
    """A root with our package of a major version, the oldest one beside, and our tree; PG_CONFIG there."""
    suite = suite_of(major)
    if older := older_suite(suite):
        have_deb(MAJORS[older], TREE / "dist")
    majors = [major, MAJORS[older]] if older else [major]
    packages = [package_of(each) for each in majors]
    lower = make_root(check_recipe(suite))
    with layer(lower, CACHE / f"check-{lower.name}") as root:
        shutil.rmtree(root / "src/tests", ignore_errors=True)
        for left in (root / "tmp").glob("strata-*"):
            shutil.rmtree(left)
        copy_tree(root)
        install_python(root, suite, "tests/requirements.txt")
        for package in packages:
            shutil.copy(package, root / "strata.deb")
            run_inside(root, ["dpkg", "--install", "/strata.deb"])
        yield root, f"PG_CONFIG=/usr/lib/postgresql/{major}/bin/pg_config"


def run_tests(major: int, arguments: list[str]) -> int:
    """The project's tests against a major version, with its package installed; pytest's result."""
    with installed(major) as (root, config):
        if show(root, ["env", config, "scripts/build_assertions.sh"]) != 0:
            raise LabError("the libraries with assertions were not built")
        pytest = ["/.venv/bin/python", "-m", "pytest", "-p", "tests.provisioning.chroot"]
        return show(root, ["env", config, *pytest, *arguments])


def run_benchmarks(major: int, arguments: list[str]) -> int:
    """The same with benchmarks.run."""
    with installed(major) as (root, config):
        install_python(root, suite_of(major), "benchmarks/requirements.txt")
        return show(root, ["env", config, "/.venv/bin/python", "-m", "benchmarks.run", *arguments])
