"""The alert rules say what they should, as Prometheus' own promtool evaluates them.

Each alert has a scene in which it must fire and the scene WELL in which it must not; that the metrics
exist is checked on real hosts, in test_converge.py.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
RULES = ROOT / "roles" / "monitoring" / "files" / "alerts.yml"
TOOL = ROOT / ".cache" / "promtool"
ALERTS = {
    rule["alert"]: rule
    for group in yaml.safe_load(RULES.read_text())["groups"]
    for rule in group["rules"]
}
GB, DAY = 10**9, 86400
SAMPLES = 720  # one each four minutes, for two days

# series and values, as promtool writes them; the time begins at 0
WELL = {
    'strata_worker_up{worker="worker_1"}': "1",
    "strata_in_doubt_transactions": "0",
    "strata_in_doubt_oldest_seconds": "0",
    'node_textfile_mtime_seconds{file="/x/strata_cluster.prom"}': "0+240",
    'node_textfile_mtime_seconds{file="/x/strata_backups.prom"}': "0+240",
    'patroni_primary{scope="s",name="a"}': "1",
    'patroni_primary{scope="s",name="b"}': "0",
    'patroni_sync_standby{scope="s",name="a"}': "0",
    'patroni_sync_standby{scope="s",name="b"}': "1",
    'patroni_xlog_location{scope="s",name="a"}': f"{10 * GB}",
    'patroni_xlog_location{scope="s",name="b"}': "0",
    'patroni_xlog_replayed_location{scope="s",name="a"}': "0",
    'patroni_xlog_replayed_location{scope="s",name="b"}': f"{10 * GB - 1000}",
    'node_filesystem_avail_bytes{mountpoint="/srv/hot",fstype="ext4"}': "60",
    'node_filesystem_size_bytes{mountpoint="/srv/hot",fstype="ext4"}': "100",
    'node_filesystem_avail_bytes{mountpoint="/run",fstype="tmpfs"}': "1",
    'node_filesystem_size_bytes{mountpoint="/run",fstype="tmpfs"}': "100",
    'strata_certificate_not_after_seconds{name="patroni",seen="file"}': f"{100 * DAY}",
    'strata_certificate_not_after_seconds{name="patroni",seen="port 8008"}': f"{100 * DAY}",
    'strata_backup_last_seconds{stanza="s"}': "0+240",
    "pg_stat_archiver_failed_count": "3",
    'etcd_server_has_leader{instance="a"}': "1",
    'etcd_server_has_leader{instance="b"}': "1",
}
FILE = 'strata_certificate_not_after_seconds{name="patroni",seen="file"}'
SERVED = 'strata_certificate_not_after_seconds{name="patroni",seen="port 8008"}'
HOT = 'node_filesystem_avail_bytes{mountpoint="/srv/hot",fstype="ext4"}'
# what is different when an alert must fire; None: nobody measures it any more
ILL = [
    ("StrataWorkerDown", {'strata_worker_up{worker="worker_1"}': "0"}),
    ("StrataInDoubtOld", {"strata_in_doubt_oldest_seconds": "0+240"}),
    ("StrataClusterNotMeasured", {"strata_in_doubt_transactions": None}),
    (
        "StrataClusterNotMeasured",
        {'node_textfile_mtime_seconds{file="/x/strata_cluster.prom"}': "0"},
    ),
    (
        "StrataClusterNotMeasured",
        {'node_textfile_mtime_seconds{file="/x/strata_backups.prom"}': "0"},
    ),
    ("StrataNoPrimary", {'patroni_primary{scope="s",name="a"}': "0"}),
    ("StrataReplicaMissing", {'patroni_sync_standby{scope="s",name="b"}': "0"}),
    # its host is gone
    ("StrataReplicaMissing", {'patroni_sync_standby{scope="s",name="b"}': None}),
    (
        "StrataReplicationLag",
        {'patroni_xlog_replayed_location{scope="s",name="b"}': f"{9 * GB}"},
    ),
    ("StrataDiskFilling", {HOT: "14"}),
    ("StrataDiskFilling", {HOT: "99-0.096"}),
    ("StrataDiskFull", {HOT: "4"}),
    ("StrataCertificateEnds", {FILE: f"{20 * DAY}"}),
    # made anew, and the service was not told
    ("StrataCertificateEnds", {SERVED: f"{20 * DAY}"}),
    ("StrataCertificateOld", {SERVED: f"{90 * DAY}"}),
    ("StrataBackupOld", {'strata_backup_last_seconds{stanza="s"}': "0"}),
    ("StrataArchivingFails", {"pg_stat_archiver_failed_count": "0+1"}),
    (
        "StrataEtcdWithoutQuorum",
        {f'etcd_server_has_leader{{instance="{name}"}}': "0" for name in "ab"},
    ),
    (
        "StrataEtcdWithoutQuorum",
        {f'etcd_server_has_leader{{instance="{name}"}}': None for name in "ab"},
    ),
    ("StrataEtcdMemberWithoutLeader", {'etcd_server_has_leader{instance="b"}': "0"}),
]


@pytest.fixture(scope="session")
def promtool() -> Path:
    """Debian's promtool: the machine's, or unpacked from the package, since that starts a server."""
    found = shutil.which("promtool") or TOOL / "usr" / "bin" / "promtool"
    if not Path(found).exists():
        TOOL.mkdir(parents=True, exist_ok=True)
        subprocess.run(["apt-get", "-qq", "download", "prometheus"], cwd=TOOL, check=True)
        (package,) = TOOL.glob("prometheus_*.deb")
        subprocess.run(["dpkg", "--extract", package, TOOL], check=True)
        package.unlink()
    return Path(found)


def firing(promtool: Path, directory: Path, scene: dict[str, str | None]) -> set[str]:
    """The alerts that fire at the end of a scene: promtool tells where it expected silence in vain."""
    shutil.copy(RULES, directory)
    silence = [
        {"eval_time": f"{4 * SAMPLES}m", "alertname": name, "exp_alerts": []} for name in ALERTS
    ]
    scenes = {
        "rule_files": ["alerts.yml"],
        "evaluation_interval": "4m",
        "tests": [
            {
                "interval": "4m",
                "input_series": [
                    {"series": series, "values": f"{values}x{SAMPLES}"}
                    for series, values in scene.items()
                    if values is not None
                ],
                "alert_rule_test": silence,
            }
        ],
    }
    (directory / "scenes.yml").write_text(yaml.safe_dump(scenes))
    done = subprocess.run(
        [promtool, "test", "rules", directory / "scenes.yml"],
        capture_output=True,
        text=True,
        check=False,
    )
    output = done.stdout + done.stderr
    assert (done.returncode == 0) == ("FAILED" not in output), output
    assert "error" not in output.lower(), output
    return {name for name in ALERTS if f"alertname: {name}," in output}


def test_the_rules_are_right_for_prometheus(promtool: Path):
    subprocess.run([promtool, "check", "rules", RULES], check=True)


def test_nothing_fires_on_a_cluster_that_is_well(promtool: Path, tmp_path: Path):
    assert firing(promtool, tmp_path, WELL) == set()


@pytest.mark.sample(4)
@pytest.mark.parametrize(("alert", "change"), ILL)
def test_an_alert_fires(promtool: Path, tmp_path: Path, alert: str, change: dict):
    assert set(change) <= set(WELL)
    assert alert in firing(promtool, tmp_path, WELL | change)


def test_every_alert_has_a_scene():
    assert {alert for alert, _ in ILL} == set(ALERTS)
