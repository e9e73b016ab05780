"""Who holds a host's secrets, or runs as one of its services, gets through the doors that are his and
through no other: each user knocks at every port of every host with every key that he can read.

Roles: an exporter's user, on the host that watches and keeps the backups, too; a backup host's
postgres; the coordinator's standby; the postgres of a worker; a member of etcd that has nothing else
to do; and a user that has no part in it.
"""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest
import yaml

from tests.provisioning.commands import LabError
from tests.provisioning.site import PKI, Site

pytestmark = pytest.mark.timeout(3600)

PROBE = Path(__file__).with_name("probe.py").read_text()
SERVERS = ("c1", "c2", "w1a", "w1b", "w2a", "w2b")
STORES = ("c1", "w1a", "w2a")
GROUPS = {
    "strata-coordinator": ("c1", "c2"),
    "strata-worker-1": ("w1a", "w1b"),
    "strata-worker-2": ("w2a", "w2b"),
}
# of /etc/strata/pki, by service
POSTGRES = {"postgresql", "patroni", "etcd-client", "pgbackrest"}
ETCD = {"etcd", "etcd-peer", "etcd-root"}
KEYS = [*POSTGRES, *ETCD, "coordinator", "exporter", "monitoring"]
PORTS = {
    5432: "postgresql",
    8008: "patroni",
    8432: "pgbackrest",
    9100: "exporter",
    9187: "exporter",
}
STORE_PORTS = {2379: "etcd", 2380: "etcd-peer"}

Door = tuple[str, int, str]  # host, port, certificate


def doors(hosts: str, port: int, certificate: str) -> set[Door]:
    return {(host, port, certificate) for host in hosts.split()}


# user and host, the keys that he reads, and the doors that are his
KNOCKERS = {
    "the exporter's user, who watches": (
        ("prometheus", "w2b"),
        {"exporter", "monitoring"},
        doors("c1 c2 w1a w1b w2a w2b", 9100, "monitoring")
        | doors("c1 c2 w1a w1b w2a w2b", 9187, "monitoring"),
    ),
    "the exporter's user": (("prometheus", "c1"), {"exporter"}, set()),
    "the backup host": (
        ("postgres", "w2b"),
        POSTGRES,
        doors("c1 c2 w1a w1b w2a w2b", 8432, "pgbackrest") | doors("w2a w2b", 8008, "patroni"),
    ),
    # which is the coordinator when the other one fails
    "the coordinator's standby": (
        ("postgres", "c2"),
        POSTGRES | {"coordinator"},
        doors("w1a w1b w2a w2b", 5432, "coordinator")
        | doors("c1 c2", 8008, "patroni")
        | doors("w2b", 8432, "pgbackrest"),
    ),
    "a worker": (
        ("postgres", "w1b"),
        POSTGRES,
        doors("w1a w1b", 8008, "patroni") | doors("w2b", 8432, "pgbackrest"),
    ),
    "a member of etcd": (
        ("etcd", "w1a"),
        ETCD,
        doors("c1 w1a w2a", 2380, "etcd-peer"),
    ),
    "nobody": (("nobody", "c2"), set(), set()),
}


def knock(site: Site, user: str, host: str) -> list[dict]:
    targets = [
        [name, str(site.lab.host(name).address), port, service]
        for name in SERVERS
        for port, service in (PORTS | (STORE_PORTS if name in STORES else {})).items()
    ]
    wanted = json.dumps({"keys": KEYS, "targets": targets})
    command = shlex.join(["runuser", "-u", user, "--", "python3", "-c", PROBE, wanted])
    output = site.lab.host(host).run(command).stdout
    return [json.loads(line) for line in output.splitlines()]


@pytest.mark.parametrize("knocker", KNOCKERS)
def test_no_door_opens_but_ones_own(site: Site, knocker: str):
    (user, host), keys, own = KNOCKERS[knocker]
    answers = knock(site, user, host)
    assert {answer["certificate"] for answer in answers} == {"", *keys}
    opened = {
        (answer["host"], answer["port"], answer["certificate"])
        for answer in answers
        if answer["result"] == "open"
    }
    assert opened == own
    # a host that writes backups sees its own group's alone
    group = next((group for group, hosts in GROUPS.items() if host in hosts), None)
    for answer in answers:
        if (answer["host"], answer["port"], answer["result"]) == ("w2b", 8432, "open"):
            assert answer["stanzas"] == [group]


def test_the_firewall_lets_nobody_near_what_is_not_for_him(site: Site):
    """What a key does not open is not even asked: the backup host sees no server of other groups."""
    answers = knock(site, "postgres", "w2b")
    reached = {
        (answer["host"], answer["port"])
        for answer in answers
        if answer["result"] != "dropped" and answer["host"] not in ("w2a", "w2b")
    }
    expected = {(host, port) for host in ("c1", "c2", "w1a", "w1b") for port in (8432, 9100, 9187)}
    expected |= {(host, 2379) for host in ("c1", "w1a")}
    # clients reach the coordinator
    expected |= {("c1", 5432), ("c2", 5432)}
    assert reached == expected


def etcdctl(site: Site, user: str, host: str, certificate: str, words: str) -> str:
    """What etcd says to a certificate in gRPC, where its common name is the user's."""
    command = (
        f"runuser -u {user} -- etcdctl --endpoints https://{host}:2379 --command-timeout 5s"
        f" --cacert {PKI}/etcd-users.crt --cert {PKI}/{certificate}.crt"
        f" --key {PKI}/{certificate}.key {words} 2>&1"
    )
    return site.lab.host(host).run(command).stdout


def test_a_group_has_its_own_keys_in_etcd_and_no_others(site: Site):
    configuration = site.lab.host("w1a").run("cat /etc/patroni/config.yml").stdout
    password = yaml.safe_load(configuration)["etcd3"]["password"]
    login = f"--user strata-worker-1:{password} "
    own = etcdctl(
        site, "postgres", "w1a", "etcd-client", login + "get --prefix /strata/strata-worker-1/"
    )
    assert "/strata/strata-worker-1/leader" in own
    # the certificate alone is nobody
    with pytest.raises(LabError, match="permission denied"):
        etcdctl(site, "postgres", "w1a", "etcd-client", "get --prefix /strata/strata-worker-1/")
    for words in (
        "get --prefix /",
        "get --prefix /strata/strata-worker-2/",
        "put /strata/strata-worker-2/config {}",
        "del /strata/strata-coordinator/leader",
        "put /strata/strata-worker-10/leader x",
        "user list",
        "auth disable",
        "user grant-role strata-worker-1 root",
        "snapshot save /tmp/nothing",
    ):
        with pytest.raises(LabError, match="permission denied"):
            etcdctl(site, "postgres", "w1a", "etcd-client", login + words)


def test_a_certificate_of_etcd_is_no_user_of_it(site: Site):
    with pytest.raises(LabError, match=r"permission denied|user name not found"):
        etcdctl(site, "etcd", "w1a", "etcd", "get --prefix /")
    # a client does not choose to be its gateway, whose certificate is the server's
    host = site.lab.host("w1a")
    ask = (
        f"runuser -u postgres -- curl -sS --cacert {PKI}/etcd-users.crt --cert {PKI}/etcd-client.crt"
        f' --key {PKI}/etcd-client.key -H Accept: -d \'{{"key":"Lw==","range_end":"MA=="}}\''
        " https://w1a:2379/v3/kv/range"
    )
    answer = host.run(ask).stdout
    assert "kvs" not in answer
    assert re.search("user name (is empty|not found)|permission denied", answer)


def test_keys_are_their_owners_alone(site: Site):
    for host in SERVERS:
        listing = site.lab.host(host).run(f"stat --format '%n %U %a' {PKI}/*.key").stdout
        for line in listing.splitlines():
            assert re.fullmatch(r"\S+/[a-z-]+\.key (postgres|etcd|prometheus) 600", line), line


def test_playbooks_leave_no_password_for_all_to_read(site: Site):
    """Configurations with secrets are readable to their service."""
    for file in ("/etc/patroni/config.yml", "/etc/pgbackrest.conf"):
        command = f"runuser -u prometheus -- cat {file}"
        with pytest.raises(LabError, match="Permission denied"):
            site.lab.host("w2b").run(command)


def test_a_workers_log_tells_whose_certificate_somebody_came_with(site: Site):
    coordinator = site.leader("c1")
    site.lab.host(coordinator).run(
        "runuser -u postgres -- psql -XAtd app -c 'SELECT * FROM strata.check_health()'"
    )
    log = site.lab.host(site.leader("w1a")).run("cat /var/log/postgresql/strata-worker-1-*.log")
    expected = f'connection authenticated: identity="CN={coordinator}" method=cert'
    if site.major < 16:  # whose maps do not know "all"
        expected = "connection authorized: user=postgres database=app"
    assert expected in log.stdout


UNITS = {
    "c1": "patroni etcd etcd-snapshot pgbackrest prometheus-node-exporter"
    " prometheus-postgres-exporter strata-certificates strata-patroni strata-etcd strata-cluster",
    "w2b": "patroni pgbackrest strata-backup-full strata-backup-diff strata-backups",
}


@pytest.mark.parametrize(
    ("host", "unit"), [(host, unit) for host, units in UNITS.items() for unit in units.split()]
)
def test_a_service_has_no_more_than_it_needs(site: Site, host: str, unit: str):
    site.lab.host(host).run(f"systemd-analyze security --no-pager --threshold=40 {unit}.service")
