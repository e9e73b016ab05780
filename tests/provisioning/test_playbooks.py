"""What administrators do to a running cluster, with an application that goes on writing."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.provisioning.site import Site

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]

WRITER = Path(__file__).with_name("writer.py")
SERIAL = "openssl x509 -noout -serial"
SERVED = (
    "cd /etc/strata/pki; echo | openssl s_client -cert host.crt -key host.key -CAfile servers.crt"
    " -connect {address} {more} 2>/dev/null | " + SERIAL
)


@contextmanager
def written_to(site: Site, directory: Path) -> Iterator[dict]:
    """An application writes to both workers meanwhile; afterwards the dict has what it saw."""
    site.query(
        "DROP TABLE IF EXISTS ledger",
        "CREATE TABLE ledger (id bigint PRIMARY KEY, value bigint)",
        "SELECT strata.create_distributed_table('ledger', 'id')",
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
    with written_to(site, tmp_path) as seen:
        site.play("update.yml", "-e", "patroni_update_force=true")
    assert len(seen["acknowledged"]) > 100
    assert lost_rows(site, seen) == set()


def test_rotated_certificates_are_served_at_once(site: Site):
    host = site.lab.host("w1a")
    before = host.run(f"{SERIAL} -in /etc/strata/pki/host.crt").stdout
    site.play("rotate_certificates.yml")
    now = host.run(f"{SERIAL} -in /etc/strata/pki/host.crt").stdout
    assert now != before
    for address, more in (
        ("w1a:5432", "-starttls postgres"),
        ("w1a:8008", ""),
        ("w1a:2379", ""),
    ):
        assert host.run(SERVED.format(address=address, more=more)).stdout == now


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
