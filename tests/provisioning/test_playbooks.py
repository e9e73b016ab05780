"""What administrators do to a running cluster, with an application that goes on writing."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.provisioning.commands import wait_for
from tests.provisioning.site import Site
from tests.provisioning.writer import ACCOUNTS, accounts_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]

WRITER = Path(__file__).with_name("writer.py")
CHECKPOINT = "runuser -u postgres -- psql -qXc CHECKPOINT"
SERIAL = "openssl x509 -noout -serial"
SERVED = "echo | openssl s_client -connect {host}:{port} {more} 2>/dev/null | " + SERIAL
# service's certificate, port, and what openssl has to say before
SERVICES = [
    ("postgresql", 5432, "-starttls postgres"),
    ("patroni", 8008, ""),
    ("etcd", 2379, ""),
    ("etcd-peer", 2380, ""),
    ("pgbackrest", 8432, ""),
    ("exporter", 9100, ""),
    ("exporter", 9187, ""),
]


@contextmanager
def written_to(site: Site, directory: Path) -> Iterator[dict]:
    """An application writes to both workers meanwhile; afterwards the dict has what it saw."""
    site.query(
        "DROP TABLE IF EXISTS ledger, account",
        "CREATE TABLE ledger (id bigint PRIMARY KEY, value bigint)",
        "SELECT strata.create_distributed_table('ledger', 'id')",
        "CREATE TABLE account (id bigint PRIMARY KEY, balance bigint)",
        "SELECT strata.create_distributed_table('account', 'id')",
        f"INSERT INTO account SELECT n, 0 FROM generate_series(0, {ACCOUNTS - 1}) n",
    )
    stop, result = directory / "stop", {}
    command = site.lab.control_command([sys.executable, WRITER, site.conninfo(), stop])
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
        try:
            yield result
        finally:
            stop.touch()
        result |= json.loads(writer.communicate(timeout=120)[0])


def lost_rows(site: Site, seen: dict) -> set[int]:
    rows = site.query("SELECT coalesce(json_agg(id), '[]') FROM ledger")[0][0]
    return set(seen["acknowledged"]) - set(rows)


def test_an_update_loses_nothing_that_was_acknowledged(site: Site, tmp_path: Path):
    before = timelines(site)
    with written_to(site, tmp_path) as seen:
        site.play("update.yml", "-e", "patroni_update_force=true")
    assert len(seen["acknowledged"]) > 100
    assert lost_rows(site, seen) == set()
    # each group had one switchover
    assert timelines(site) == {group: timeline + 1 for group, timeline in before.items()}


def timelines(site: Site) -> dict[str, int]:
    command = "runuser -u postgres -- psql -XAtc 'SELECT timeline_id FROM pg_control_checkpoint()'"
    return {
        member: int(site.lab.host(site.leader(member)).run(f"{CHECKPOINT}; {command}").stdout)
        for member in ("c1", "w1a", "w2a")
    }


def test_rotated_certificates_are_served_at_once(site: Site):
    host = site.lab.host("w1a")

    def files() -> dict[str, str]:
        return {
            name: host.run(f"{SERIAL} -in /etc/strata/pki/{name}.crt").stdout
            for name in {name for name, _, _ in SERVICES}
        }

    before = files()
    site.play("rotate_certificates.yml")
    now = files()
    assert not set(now.values()) & set(before.values())
    for name, port, more in SERVICES:
        served = SERVED.format(host="w1a", port=port, more=more)
        wait_for(f"port {port} shows it", lambda s=served, n=name: host.run(s).stdout == now[n], 30)
    # and what is measured is what is served
    host.run("systemctl start strata-certificates")
    metrics = site.metrics("w2b", "https://w1a:9100").stdout
    seen = set(
        re.findall(r'strata_certificate_not_after_seconds{name="\S+",seen="(.+?)"}', metrics)
    )
    assert seen == {"file"} | {f"port {port}" for _, port, _ in SERVICES}


def test_a_backup_marks_a_point_that_all_servers_archived(site: Site):
    output = site.try_play("backup.yml", "-e", "type=full")
    assert output.returncode == 0, output.stdout
    assert "The cluster can be restored to strata-" in output.stdout
    listing = site.lab.host("w2b").run("runuser -u postgres -- pgbackrest info --output=json")
    stanzas = {stanza["name"]: stanza for stanza in json.loads(listing.stdout)}
    assert set(stanzas) == {"strata-coordinator", "strata-worker-1", "strata-worker-2"}
    for stanza in stanzas.values():
        assert stanza["status"]["code"] == 0
        assert stanza["backup"]


def rows_of(site: Site) -> int:
    return site.query("SELECT count(*) FROM ledger")[0][0]


def balances(site: Site) -> dict[int, int]:
    return {account: int(balance) for account, balance in site.query("SELECT * FROM account")}


def test_a_cluster_is_not_restored_by_mistake(site: Site):
    done = site.try_play("restore_cluster.yml", "-e", "point=strata-20200101-000000")
    assert done.returncode != 0
    assert "If that is meant, add -e confirm=" in done.stdout


def test_a_point_from_before_all_backups_is_refused(site: Site):
    done = site.try_play(
        "restore_cluster.yml", "-e", "point=strata-20200101-000000", "-e", "confirm=strata"
    )
    assert done.returncode != 0
    assert "no backup from before strata-20200101-000000. Nothing was changed." in done.stdout
    assert site.query("SELECT 1") == [[1]]


def test_a_backup_leaves_out_what_marks_the_coordinator(site: Site):
    """A restored coordinator must not take itself for the one that it was made of."""
    leader = site.leader("c1")
    mark = "find {directory} -path '*/pg_stat_tmp/strata_coordinator.*'"
    host = site.lab.host(leader)
    assert host.run(
        mark.format(directory=f"/var/lib/postgresql/{site.major}/strata-coordinator")
    ).stdout
    host.run(
        "rm -rf /var/tmp/copy; install -d -o postgres /var/tmp/copy;"
        " runuser -u postgres -- pgbackrest --stanza=strata-coordinator --pg1-path=/var/tmp/copy/data"
        " --tablespace-map-all=/var/tmp/copy/tablespaces restore"
    )
    host.run("test -e /var/tmp/copy/data/PG_VERSION")
    assert host.run(mark.format(directory="/var/tmp/copy")).stdout == ""
    host.run("rm -rf /var/tmp/copy")


def test_a_restored_cluster_is_what_it_was_at_the_point(site: Site, tmp_path: Path):
    with written_to(site, tmp_path) as seen:
        site.play("backup.yml", "-e", "type=full")
        before = rows_of(site)
        output = site.try_play("backup.yml").stdout
        point = re.search(r"can be restored to (strata-[0-9-]+)", output)[1]
        after = rows_of(site)
        wait_for("the writer goes on", lambda: rows_of(site) > after + 10, 120)
    site.play("restore_cluster.yml", "-e", f"point={point}", "-e", "confirm=strata")

    rows = {row for (row,) in site.query("SELECT id FROM ledger")}
    assert before <= len(rows) <= after
    # one client's commits are there up to some moment, without a gap
    assert {row for row in seen["acknowledged"] if row <= max(rows)} <= rows
    # and no transaction is there by half
    expected = dict.fromkeys(range(ACCOUNTS), 0)
    for row in rows:
        payer, payee = accounts_of(row)
        expected[payer] -= 1
        expected[payee] += 1
    assert balances(site) == expected
    for member in ("c1", "w1a", "w2a"):
        host = site.lab.host(site.leader(member))
        prepared = "runuser -u postgres -- psql -XAtc 'SELECT count(*) FROM pg_prepared_xacts'"
        assert host.run(prepared).stdout.strip() == "0"
    # it is written to, and survives the loss of a primary
    site.query("INSERT INTO ledger VALUES (1000000, 0)")
    site.play("switchover.yml", "-e", "group=worker_1")
    assert rows_of(site) == len(rows) + 1
    assert set(site.play("site.yml").values()) == {0}
