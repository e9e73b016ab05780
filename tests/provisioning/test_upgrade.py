"""A cluster goes to the next major of PostgreSQL by a playbook, on hosts that were of the release of Debian before."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

import pytest

from tests.provisioning.lab import Lab, why_impossible
from tests.provisioning.root import MAJORS, older_suite
from tests.provisioning.site import DIST, RELEASES, Site, have_deb

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]

SUITE = os.environ.get("LAB_SUITE", "trixie")
OLDER = MAJORS[older_suite(SUITE)]


@pytest.fixture
def site() -> Iterator[Site]:
    """A cluster of the PostgreSQL before."""
    if reason := why_impossible():
        pytest.skip(f"the lab of real hosts cannot run here: {reason}")
    with Lab(name=f"upgrade{os.getpid()}", suite=SUITE, upgraded=True) as lab:
        majors = dict.fromkeys(RELEASES, str(OLDER))
        made = Site(lab, cluster_postgresql_major=OLDER, preflight_majors=majors)
        made.converge()
        yield made


def test_to_the_next_major(site: Site) -> None:
    site.query(
        "CREATE TABLE event (id bigint PRIMARY KEY, at timestamptz NOT NULL, what text)",
        "SELECT strata.create_distributed_table('event', 'id')",
        "CREATE TABLE kind (what text PRIMARY KEY, weight interval)",
        "SELECT strata.create_reference_table('kind', storage => 'columnar')",
        "INSERT INTO event SELECT n, timestamptz '2026-01-01' + n * interval '1 minute', 'kind ' || n % 9"
        " FROM generate_series(1, 100000) n",
        "INSERT INTO kind SELECT 'kind ' || n, n * interval '1 day' FROM generate_series(0, 8) n",
    )
    question = "SELECT count(*), sum(id), min(what), avg(weight), max(at) FROM event JOIN kind USING (what)"
    before = site.query(question)
    refused = site.try_play("upgrade.yml", "-e", f"upgrade_from={OLDER}")
    assert refused.returncode != 0
    assert "All servers stand still for minutes." in refused.stdout
    assert site.query("SHOW server_version_num")[0][0][:2] == str(OLDER)

    site.values = {"cluster_postgresql_major": MAJORS[SUITE]}
    have_deb(MAJORS[SUITE], DIST)
    begin = time.monotonic()
    site.play("upgrade.yml", "-e", f"upgrade_from={OLDER}", "-e", "confirm=strata")
    print(f"upgraded in {time.monotonic() - begin:.0f} s")
    assert site.query("SHOW server_version_num")[0][0][:2] == str(MAJORS[SUITE])
    assert site.query(question) == before
    site.query("INSERT INTO event VALUES (0, now(), 'kind 1')", "ANALYZE event")
    assert site.query("SELECT count(*) FROM event") == [[100001]]
    # the replicas follow, backups go on, and a second run of everything finds nothing to do
    site.play("switchover.yml", "-e", "group=worker_1")
    assert site.query("SELECT count(*) FROM event") == [[100001]]
    site.play("backup.yml", "-e", "type=full")
    assert set(site.play("site.yml").values()) == {0}
