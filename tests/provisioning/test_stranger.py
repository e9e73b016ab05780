"""An inventory that is nobody's of ours: other names, addresses, port, disks' places, three workers."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.provisioning.lab import Lab, why_impossible
from tests.provisioning.site import Site

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]

INVENTORY = Path(__file__).with_name("stranger")


@pytest.fixture(scope="module")
def stranger() -> Iterator[Site]:
    if reason := why_impossible():
        pytest.skip(f"the lab of real hosts cannot run here: {reason}")
    suite = os.environ.get("LAB_SUITE", "trixie")
    with Lab(INVENTORY, name=f"stranger{os.getpid()}", suite=suite) as lab:
        made = Site(lab)
        made.converge()
        yield made


def test_three_workers_share_a_table(stranger: Site):
    stranger.query(
        "CREATE TABLE metal (id bigint PRIMARY KEY, name text)",
        "SELECT strata.create_distributed_table('metal', 'id')",
        "INSERT INTO metal SELECT n, 'metal ' || n FROM generate_series(1, 3000) n",
    )
    assert stranger.query("SELECT count(*), sum(id) FROM metal") == [[3000, "4501500"]]
    placed = "SELECT count(DISTINCT worker) FROM strata.shards WHERE relation = 'metal'::regclass"
    assert stranger.query(placed) == [[3]]


def test_the_database_is_on_its_disk(stranger: Site):
    location = (
        "psql -XAtc \"SELECT pg_tablespace_location(oid) FROM pg_tablespace WHERE spcname = '{}'\""
    )
    command = f"runuser -u postgres -- env PGPORT={stranger.port} {location}"
    host = stranger.lab.host(stranger.leader("iron"))
    assert host.run(command.format("hot")).stdout.strip() == "/data/fast/metals-worker-1"
    assert host.run(command.format("cold")).stdout.strip() == "/data/slow/metals-worker-1"


def test_the_host_that_watches_has_rules_and_reaches_the_exporters(stranger: Site):
    archive = stranger.lab.host("archive")
    assert "groups:" in archive.run("cat /etc/strata/alerts.yml").stdout
    assert "node_uname_info" in stranger.metrics("archive", "https://tin:9100").stdout
    assert "pg_up 1" in stranger.metrics("archive", "https://tin:9187").stdout
    # the firewall lets nobody else through
    refused = stranger.metrics("silver", "https://tin:9100", certificate="", check=False)
    assert "timed out" in refused.stderr


def test_a_switchover_keeps_the_rows(stranger: Site):
    before = stranger.leader("silver")
    stranger.play("switchover.yml", "-e", "group=worker_3")
    assert stranger.leader("silver") != before
    assert stranger.query("SELECT count(*) FROM metal") == [[3000]]


def test_a_second_run_changes_nothing(stranger: Site):
    assert set(stranger.play("site.yml").values()) == {0}
