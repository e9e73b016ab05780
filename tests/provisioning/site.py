"""Makes a cluster on the lab's hosts with the playbooks, and connects to it as a client.

The secrets that an administrator keeps with ansible-vault are made anew for each lab, in its own
directory: the repository has none.
"""

from __future__ import annotations

import json
import re
import secrets
import subprocess
import sys
from pathlib import Path

import yaml

from tests.provisioning.commands import run
from tests.provisioning.foreign import have_deb
from tests.provisioning.inventory import hosts_of_group
from tests.provisioning.lab import Lab
from tests.provisioning.root import MAJORS

ROOT = Path(__file__).parents[2]
DIST = ROOT / "dist"
SECRETS = (
    "pki_passphrase",
    "cluster_etcd_password",
    "patroni_replication_password",
    "patroni_rewind_password",
    "backup_cipher_password",
    "lab_app_password",
)
# names of the releases of Debian that will do, whichever a host has
RELEASES = tuple(
    yaml.safe_load((ROOT / "roles/preflight/defaults/main.yml").read_text())["preflight_majors"]
)
PKI = "/etc/strata/pki"
RECAP = re.compile(r"^(\S+) +: ok=\d+ +changed=(\d+) +unreachable=(\d+) +failed=(\d+)", re.M)

# Run on the control node: one statement for each argument, each answer a line of JSON.
CLIENT = """
import json, sys, psycopg
with psycopg.connect(sys.argv[1], autocommit=True) as connection:
    for statement in sys.argv[2:]:
        cursor = connection.execute(statement)
        print(json.dumps(cursor.fetchall() if cursor.description else None, default=str))
"""


class PlaybookError(Exception):
    """A playbook failed; the message is its output."""


class Site:
    """The cluster of one lab."""

    def __init__(self, lab: Lab, **values: object):
        """`values` are variables of the playbooks, beside the secrets and the inventory's."""
        self.lab = lab
        self.values = {"cluster_postgresql_major": MAJORS[lab.suite]} | values
        groups = yaml.safe_load((lab.inventory / "hosts.yml").read_text())["all"]["children"]
        self.coordinators = list(hosts_of_group(groups["coordinator"]))
        self.settings = yaml.safe_load((lab.inventory / "group_vars/all.yml").read_text())
        self.database = self.settings.get("cluster_database", "app")
        self.port = self.settings.get("cluster_postgresql_port", 5432)
        self.user = self.settings["coordinator_roles"][0]["name"]
        self.secrets_file = lab.directory / "secrets.json"
        self.password_file = lab.directory / "passwords"
        if not self.secrets_file.exists():
            values = {name: secrets.token_urlsafe(18) for name in SECRETS}
            values |= {"pki_directory": str(lab.directory / "pki")}
            self.write_secretly(self.secrets_file, json.dumps(values))
            self.write_secretly(self.password_file, f"*:*:*:*:{values['lab_app_password']}\n")

    @staticmethod
    def write_secretly(file: Path, text: str) -> None:
        file.touch(0o600)
        file.write_text(text)

    @property
    def major(self) -> int:
        return self.values["cluster_postgresql_major"]

    @property
    def secrets(self) -> dict[str, str]:
        return json.loads(self.secrets_file.read_text())

    def converge(self) -> None:
        """Make the cluster, with packages of the sources as they are now; once for each lab."""
        done = self.lab.directory / "converged"
        if not done.exists():
            have_deb(self.major, DIST)
            if self.lab.suite == "bookworm":
                run([ROOT / "scripts/fetch_patroni.sh", DIST])
            self.play("site.yml")
            done.touch()

    def play(self, playbook: str, *arguments: str) -> dict[str, int]:
        """Run a playbook; how many tasks changed something, by host."""
        done = self.try_play(playbook, *arguments)
        if done.returncode != 0:
            raise PlaybookError(done.stdout + done.stderr)
        return {host: int(changed) for host, changed, _, _ in RECAP.findall(done.stdout)}

    def try_play(self, playbook: str, *arguments: str) -> subprocess.CompletedProcess:
        ansible = Path(sys.executable).with_name("ansible-playbook")
        command = [ansible, "-i", self.lab.inventory, "-e", f"@{self.secrets_file}"]
        command += ["-e", json.dumps(self.values)]
        return self.lab.control(
            [*command, ROOT / "ansible" / playbook, *arguments], check=False, cwd=ROOT
        )

    def conninfo(self, *hosts: str) -> str:
        """As an application connects: to both coordinators, whoever is the primary."""
        hosts = hosts or tuple(self.coordinators)
        addresses = ",".join(str(self.lab.host(host).address) for host in hosts)
        return (
            f"host={','.join(hosts)} hostaddr={addresses} port={self.port}"
            f" dbname={self.database} user={self.user}"
            f" passfile={self.password_file}"
            " target_session_attrs=read-write connect_timeout=2 tcp_user_timeout=3000"
            " keepalives_idle=2 keepalives_interval=1 keepalives_count=3 sslmode=verify-full"
            f" sslrootcert={self.secrets['pki_directory']}/servers.crt"
        )

    def query(self, *statements: str) -> list:
        """Run statements in one session of the application; the rows of the last one."""
        done = self.lab.control([sys.executable, "-c", CLIENT, self.conninfo(), *statements])
        return json.loads(done.stdout.splitlines()[-1])

    def metrics(
        self, host: str, url: str, certificate: str = "monitoring", check: bool = True
    ) -> subprocess.CompletedProcess:
        """Ask an exporter from this host, with the certificate of that name there or without one."""
        command = f"curl -sS --fail --max-time 10 --cacert {PKI}/exporters.crt {url}/metrics"
        if certificate:
            command += f" --cert {PKI}/{certificate}.crt --key {PKI}/{certificate}.key"
        return self.lab.host(host).run(command, check=check)

    def leader(self, member: str) -> str:
        """Who leads the group of this host, as Patroni there says."""
        command = "patronictl -c /etc/patroni/config.yml list --format json"
        members = json.loads(self.lab.host(member).run(command).stdout)
        (leader,) = [entry["Member"] for entry in members if entry["Role"] == "Leader"]
        return leader
