"""The playbook makes a cluster of bare hosts, and the same again changes nothing."""

from __future__ import annotations

import json
import re
import shlex

import pytest
import yaml

from tests.provisioning.commands import LabError
from tests.provisioning.site import ROOT, Site

pytestmark = pytest.mark.timeout(3600)

WORKERS = ("w1a", "w1b", "w2a", "w2b")


@pytest.fixture(scope="module")
def events(site: Site) -> Site:
    """A distributed table of 1 000 rows that the application made."""
    site.query(
        "CREATE TABLE IF NOT EXISTS events (id bigint PRIMARY KEY, what text)",
        "SELECT strata.create_distributed_table('events', 'id')"
        " WHERE 'events'::regclass NOT IN (SELECT relation FROM strata.tables)",
        "INSERT INTO events SELECT n, 'event ' || n FROM generate_series(1, 1000) n"
        " ON CONFLICT DO NOTHING",
    )
    return site


def leader_of(site: Site, group: str) -> str:
    return site.leader({"coordinator": "c1", "worker_1": "w1a", "worker_2": "w2a"}[group])


def superuser(site: Site, host: str, sql: str, database: str = "app") -> str:
    """What the host's own server answers its administrator."""
    command = f"runuser -u postgres -- psql -XAt -d {database} -c {shlex.quote(sql)}"
    return site.lab.host(host).run(command).stdout.strip()


@pytest.mark.slow  # a tenth of the whole suite's time
def test_a_second_run_changes_nothing(site: Site):
    assert set(site.play("site.yml").values()) == {0}


@pytest.mark.slow
def test_check_mode_finds_nothing_to_change(site: Site):
    assert set(site.play("site.yml", "--check").values()) == {0}


def test_an_application_distributes_a_table_and_queries_it(events: Site):
    assert events.query("SELECT count(*), sum(id) FROM events") == [[1000, "500500"]]
    for group in ("worker_1", "worker_2"):
        rows = int(superuser(events, leader_of(events, group), "SELECT count(*) FROM events"))
        assert 0 < rows < 1000


def test_shards_are_on_the_hot_disk(events: Site):
    host = leader_of(events, "worker_1")
    location = superuser(
        events,
        host,
        "SELECT pg_tablespace_location(dattablespace) FROM pg_database"
        " WHERE datname = current_database()",
    )
    assert location == "/srv/hot/strata-worker-1"
    disk = events.lab.host(host).run(f"stat --format %d {location}; stat --format %r /dev/hot")
    assert len(set(disk.stdout.split())) == 1


@pytest.mark.slow
def test_another_disk_in_a_tablespaces_place_is_refused(events: Site):
    wrong = {"cluster_tablespaces": [{"name": "hot", "device": "/dev/cold", "path": "/srv/hot"}]}
    done = events.try_play("site.yml", "--tags", "patroni", "-e", json.dumps(wrong))
    assert done.returncode != 0
    assert "is mounted," in done.stdout
    assert events.query("SELECT count(*) FROM events") == [[1000]]


@pytest.mark.parametrize("host", WORKERS)
def test_each_member_of_a_worker_has_a_copy(events: Site, host: str):
    assert int(superuser(events, host, "SELECT count(*) FROM events")) > 0


def test_applications_cannot_reach_workers(events: Site):
    """The firewall drops what they send; without it there would be no line in pg_hba.conf."""
    with pytest.raises(LabError, match="timeout expired"):
        events.lab.control(["psql", "-XAtc", "SELECT 1", events.conninfo("w1a", "w1b")])


@pytest.mark.parametrize(
    ("url", "metric"),
    [
        ("https://c1:9100", "etcd_server_has_leader 1"),
        ("https://c1:9100", "patroni_postgres_running"),
        ("https://c1:9100", "strata_certificate_not_after_seconds"),
        ("https://c1:9187", "pg_up 1"),
    ],
)
def test_exporters_answer_only_to_the_certificate_for_them(site: Site, url: str, metric: str):
    for wrong in ("", "exporter", "pgbackrest", "patroni"):
        assert site.metrics("w2b", url, certificate=wrong, check=False).returncode != 0
    assert metric in site.metrics("w2b", url).stdout


def test_alerts_look_at_metrics_that_exist(site: Site):
    rules = yaml.safe_load((ROOT / "roles/monitoring/files/alerts.yml").read_text())
    expressions = [rule["expr"] for group in rules["groups"] for rule in group["rules"]]
    wanted = set(re.findall(r"\b(?:strata|patroni|node|pg|etcd)_\w+", " ".join(expressions)))
    # a file that the exporter reads, not a metric
    wanted -= {"strata_cluster", "strata_backups"}
    served = [(leader_of(site, "coordinator"), port) for port in (9100, 9187)]
    served += [("c1", 9100), ("w2b", 9100)]
    metrics = "\n".join(
        site.metrics("w2b", f"https://{host}:{port}").stdout for host, port in served
    )
    assert wanted <= set(re.findall(r"^\w+", metrics, re.M))
    for worker in ("worker_1", "worker_2"):
        assert f'strata_worker_up{{worker="{worker}"}} 1' in metrics


@pytest.mark.slow
@pytest.mark.parametrize("group", ["worker_1", "coordinator"])
def test_a_switchover_changes_the_primary_and_keeps_the_rows(events: Site, group: str):
    before = leader_of(events, group)
    events.play("switchover.yml", "-e", f"group={group}")
    assert leader_of(events, group) != before
    assert events.query("SELECT count(*) FROM events") == [[1000]]


def test_a_switchover_of_no_group_is_refused(site: Site):
    done = site.try_play("switchover.yml", "-e", "group=worker_9")
    assert done.returncode != 0
    assert "Name one group of the inventory" in done.stdout


@pytest.mark.slow
def test_a_worker_with_shards_is_not_removed(events: Site):
    done = events.try_play("remove_worker.yml", "-e", "group=worker_2", "-e", "drain=false")
    assert done.returncode != 0
    assert "shards" in done.stdout
    assert events.query("SELECT count(*) FROM events") == [[1000]]


@pytest.mark.slow
def test_a_worker_leaves_and_comes_back(events: Site):
    """Its shards move to the other worker, and some of them back."""
    events.play("remove_worker.yml", "-e", "group=worker_2", "-e", "remove_worker_data=true")
    assert (
        superuser(events, leader_of(events, "coordinator"), "SELECT count(*) FROM strata.worker")
        == "1"
    )
    assert events.query("SELECT count(*) FROM events") == [[1000]]
    events.play("add_worker.yml", "-e", "group=worker_2")
    assert events.query("SELECT count(*) FROM events") == [[1000]]
    rows = int(superuser(events, leader_of(events, "worker_2"), "SELECT count(*) FROM events"))
    assert 0 < rows < 1000
