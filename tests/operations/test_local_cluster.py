"""What `make demo` and `make check` do on machines and for users of all kinds."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cluster import Cluster, parallel_workers

CHECKOUT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("workers", "cores", "expected"),
    [(2, 2, 0), (1, 2, 1), (4, 2, 0), (2, 4, 1), (3, 16, 4), (0, 4, 3)],
)
def test_workers_share_the_cores(workers: int, cores: int, expected: int) -> None:
    assert parallel_workers(workers, cores) == expected


def test_the_cluster_sizes_itself(cluster: Cluster) -> None:
    expected = str(parallel_workers(len(cluster.workers)))
    again = Cluster(cluster.root)  # as a later `make demo` finds it
    for worker in (*cluster.workers, *again.workers):
        assert worker.value("SHOW max_parallel_workers_per_gather") == expected
        assert worker.settings["max_parallel_workers_per_gather"] == expected
        worker.disconnect()


@pytest.mark.parametrize(("cores", "expected"), [(1, 0), (8, 7)])
def test_the_role_sizes_a_host_likewise(cores: int, expected: int) -> None:
    """A host has one server."""
    host = {"postgresql_cores": cores, "postgresql_memory_mb": 4096, "cluster_group": "worker"}
    command = [CHECKOUT / ".venv/bin/ansible", "localhost", "-i", "localhost,", "-c", "local"]
    command += ["-e", f"@{CHECKOUT / 'roles/postgresql/defaults/main.yml'}", "-e", json.dumps(host)]
    command += [
        "-m",
        "debug",
        "-a",
        "var=postgresql_sized_parameters.max_parallel_workers_per_gather",
    ]
    result = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, check=True)
    assert re.search(r"per_gather\W+(\d+)", result.stdout)[1] == str(expected)


@pytest.mark.parametrize("ci", ["", "true"])
def test_a_run_ends_with_what_it_left_out_and_why(tmp_path: Path, ci: str) -> None:
    (tmp_path / "test_parts.py").write_text(
        "import pytest\n"
        "def test_one(): pytest.skip('no lab')\n"
        "def test_two(): pytest.skip('no lab')\n"
        "def test_three(): pytest.skip('no vagrant')\n"
        "def test_four(): pass\n"
    )
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "tests.fixtures",
        "-p",
        "no:cacheprovider",
    ]
    command += ["-p", "no:xdist", "--rootdir", tmp_path, "-c", os.devnull, "test_parts.py"]
    result = subprocess.run(
        command,
        cwd=tmp_path,
        env=os.environ | {"CI": ci, "PYTHONPATH": str(CHECKOUT), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
    )
    if ci:
        assert result.returncode == 1
        assert "with CI=true every test has to run: no lab" in result.stdout
        assert "3 failed, 1 passed" in result.stdout
        return
    assert result.returncode == 0
    assert "2 tests: no lab\n1 test: no vagrant\n" in result.stdout.partition("left out")[2]
