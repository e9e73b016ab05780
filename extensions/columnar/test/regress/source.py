"""PostgreSQL's own tests, from the source package of the installed major version.

Debian's mirrors keep the package of each release and, in a suite of its own, of its last security
update; which of them has the installed minor version differs.  The nearest one that can be had is
taken: the installed version, else the newest.  It is unpacked below .cache/ and stays there.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path

from tests.installation import find_binaries

CACHE = Path(__file__).resolve().parents[4] / ".cache" / "postgresql-source"
FIELDS = "$(REPO_URI) $(RELEASE)"
TARGETS = ["Created-By: Packages", "Component: main", "Origin: Debian"]

# Modules of contrib that the tests load from the directory of regress.so.
MODULES = ("autoinc", "refint")


class SourceError(Exception):
    """The tests could not be fetched or built."""


def run(arguments: list, **options) -> str:
    result = subprocess.run([str(a) for a in arguments], capture_output=True, text=True, **options)
    if result.returncode != 0:
        command = shlex.join(str(argument) for argument in arguments)
        raise SourceError(f"{command} failed:\n{result.stdout}{result.stderr}")
    return result.stdout


def pg_config(name: str) -> Path:
    return Path(run([find_binaries() / "pg_config", f"--{name}"]).strip())


def version() -> str:
    """The installed version, as in 15.20."""
    return re.search(r"\d+(\.\d+|\w+)", run([find_binaries() / "pg_config", "--version"])).group()


def pgxs_program(suite: str, name: str) -> Path:
    """A program of the test suites, as postgresql-server-dev brings it."""
    program = pg_config("pgxs").parents[1] / "test" / suite / name
    if not program.exists():
        raise SourceError(f"{program} does not exist")
    return program


# ---- fetching ------------------------------------------------------------------------------------


def mirrors() -> list[tuple[str, str]]:
    """The Debian archives that this machine is configured for: address and suite."""
    command = ["apt-get", "indextargets", "--format", FIELDS, *TARGETS]
    lines = run(command).splitlines()
    if not lines:
        run([*([] if os.geteuid() == 0 else ["sudo"]), "apt-get", "-qq", "update"])
        lines = run(command).splitlines()
    if not lines:
        raise SourceError("apt knows no Debian mirror")
    return sorted({tuple(line.split()) for line in lines})


def private_apt() -> list[str]:
    """Options that keep apt to a configuration and lists of its own, which it makes."""
    own = CACHE / "apt"
    shutil.rmtree(own, ignore_errors=True)
    for name in ("lists/partial", "archives/partial"):
        (own / name).mkdir(parents=True)
    keyring = min(Path("/usr/share/keyrings").glob("debian-archive-keyring.*"))
    sources = own / "sources.list"
    sources.write_text(
        "".join(f"deb-src [signed-by={keyring}] {uri} {suite} main\n" for uri, suite in mirrors())
    )
    settings = {
        "Dir::Etc::sourcelist": sources,
        "Dir::Etc::sourceparts": "/dev/null",
        "Dir::Etc::preferencesparts": "/dev/null",
        "Dir::State::status": "/dev/null",
        "Dir::State::lists": own / "lists",
        "Dir::Cache": own,
        "APT::Sandbox::User": "root",
    }
    return [
        "-qq",
        *(word for name, value in settings.items() for word in ("-o", f"{name}={value}")),
    ]


def fetch(package: str) -> Path:
    """Download and unpack the source package; where it is."""
    CACHE.mkdir(parents=True, exist_ok=True)
    options = private_apt()
    run(["apt-get", *options, "update"])
    known = run(["apt-cache", *options, "showsrc", "--only-source", package])
    versions = re.findall(r"^Version: (.*)$", known, re.MULTILINE)
    if not versions:
        raise SourceError(f"no mirror has the source of {package}")
    failures = []
    for number in sorted(set(versions), key=preference, reverse=True):
        try:
            run(
                ["apt-get", *options, "source", "--download-only", f"{package}={number}"], cwd=CACHE
            )
        except SourceError as error:
            failures.append(str(error))
            continue
        upstream = number.rpartition("-")[0]
        (description,) = CACHE.glob(f"{package}_{upstream}-*.dsc")
        unpacked = CACHE / f"{package}-{upstream}"
        shutil.rmtree(unpacked, ignore_errors=True)
        run(["dpkg-source", "--no-check", "-x", description, unpacked])
        shutil.rmtree(CACHE / "apt")
        for left in CACHE.glob(f"{package}_*"):
            left.unlink()
        return unpacked
    raise SourceError("\n".join(failures))


def preference(number: str) -> tuple:
    """Sorts package versions: the installed one last, those before it by age."""
    return (number.startswith(version()), *(int(part) for part in re.findall(r"\d+", number)))


def find() -> Path:
    """The unpacked source of the installed major version; fetched if it is not there."""
    package = f"postgresql-{version().split('.')[0]}"
    complete = CACHE / f"{package}.complete"
    if complete.exists() and (unpacked := CACHE / complete.read_text()).exists():
        return unpacked
    unpacked = fetch(package)
    complete.write_text(unpacked.name)
    return unpacked


# ---- building ------------------------------------------------------------------------------------


def build(source: Path, directory: Path) -> None:
    """Make regress.so, the tests' own functions, and what else they load, in a directory."""
    compiler = ["cc", "-O2", "-w", "-fPIC", "-shared", f"-I{pg_config('includedir-server')}"]
    regress = source / "src/test/regress/regress.c"
    run([*compiler, regress, "-o", directory / "regress.so"])
    for module in MODULES:
        shutil.copy(pg_config("pkglibdir") / f"{module}.so", directory)
