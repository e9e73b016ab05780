"""The drills: what breaks, and how long clients may wait for an acknowledgement.

Limits are the failovers measured for the operations guide plus 5 s.  There a host that lost its power
closed its connections; here it is silent, so a primary's loss is a partition for whoever is left, and
has its limit, and a standby's is noticed at wal_sender_timeout and patroni_loop_wait.

A fault that takes a primary away lasts until another one has led for AWAY seconds, so that the old
one comes back to a cluster that has gone on without it.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from drills.drill import Drill
from drills.faults import Faults, NoLeaderError

AWAY = 5
FAILOVER_TIMEOUT = 90
MOVES_TIMEOUT = 180
LAG = 5  # seconds without replication before the power loss
FULL = 15  # seconds that a disk is full
CLOCK_STEP = 3600

SWITCHOVER = 6.5
KILLED_SERVER = 6
KILLED_PATRONI = 25.3
PARTITION = 26.9
POWER_LOSS = PARTITION
# what the primary asks still arrives: it renews its key once more, up to patroni_loop_wait later
DEAF = PARTITION + 5
LAGGING = 28
WAL_FULL = 5 + 5  # noticed by Patroni's next look, and then as any server that stopped
STANDBY_LOSS = 10 + 5 + 5
NOTHING = 5  # what breaks concerns no write

Act = Callable[[Faults], None]


def wait_for_successor(faults: Faults, group: str, host: str) -> None:
    """Until another host than this one has taken the group's writes for a while."""
    end = time.monotonic() + FAILOVER_TIMEOUT
    while time.monotonic() < end:
        try:
            if faults.leader(group, besides=host) != host:
                break
        except NoLeaderError:
            pass
        time.sleep(0.5)
    time.sleep(AWAY)


def at_leader(action: str, group: str) -> Act:
    """A fault that nobody has to repair."""

    def act(faults: Faults) -> None:
        getattr(faults, action)(faults.leader(group))

    return act


def take_leader(action: str, group: str) -> Act:
    """A fault after which another host leads, and which is then repaired."""

    def act(faults: Faults) -> None:
        host = faults.leader(group)
        getattr(faults, action)(host)
        wait_for_successor(faults, group, host)
        faults.repair()

    return act


def take_standby(group: str) -> Act:
    def act(faults: Faults) -> None:
        faults.power_loss(faults.standby(group))
        time.sleep(2 * AWAY)
        faults.repair()

    return act


def switch(group: str) -> Act:
    return lambda faults: faults.switchover(group)


def let_lead_beside_etcd(group: str) -> Act:
    """Before a drill: the primary shares its host with a member of etcd."""

    def act(faults: Faults) -> None:
        hosts = [host for host in faults.hosts(group) if host in faults.hosts("etcd")]
        faults.hand_over(group, hosts[0])

    return act


def pick_etcd_host(faults: Faults, leads: bool) -> str:
    leader = faults.etcd_leader()
    return next(host for host in faults.hosts("etcd") if (host == leader) == leads)


def free_etcd_host(leads: bool) -> Act:
    """Before a drill: only a standby shares its host with the member of etcd that will be lost."""

    def act(faults: Faults) -> None:
        lost = pick_etcd_host(faults, leads)
        for group in faults.groups():
            hosts = faults.hosts(group)
            if lost in hosts:
                faults.hand_over(group, next(host for host in hosts if host != lost))

    return act


def take_etcd(leads: bool) -> Act:
    def act(faults: Faults) -> None:
        faults.power_loss(pick_etcd_host(faults, leads))
        time.sleep(3 * AWAY)
        faults.repair()

    return act


def lose_power_while_lagging(group: str) -> Act:
    """The standby hears nothing from its primary for a while, and then the primary is gone."""

    def act(faults: Faults) -> None:
        host, standby = faults.leader(group), faults.standby(group)
        faults.cut_between(host, standby)
        time.sleep(LAG)
        faults.power_loss(host)
        faults.heal_network()
        wait_for_successor(faults, group, host)
        faults.repair()

    return act


def fill_disk(group: str) -> Act:
    def act(faults: Faults) -> None:
        host = faults.leader(group)
        faults.fill_disk(host)
        time.sleep(FULL)
        faults.free_disk(host)

    return act


def fill_wal_disk(group: str) -> Act:
    """Patroni runs pg_rewind on the old primary while its disk is still full, and half of it is done."""

    def act(faults: Faults) -> None:
        host = faults.leader(group)
        faults.fill_wal_disk(host)
        wait_for_successor(faults, group, host)
        faults.repair()
        faults.copy_anew(host)

    return act


def lead_with_own_wal_disk(group: str) -> Act:
    def act(faults: Faults) -> None:
        host = faults.standby(group)
        faults.have_own_wal_disk(host)
        faults.hand_over(group, host)

    return act


def wait_for_moves(faults: Faults, away_from: str = "") -> None:
    """Those that have failed are begun again, as an administrator would."""
    end = time.monotonic() + MOVES_TIMEOUT
    while time.monotonic() < end:
        moves = faults.count_moves()
        if moves and set(moves) <= {"done"}:
            return
        if moves and not set(moves) & {"planned", "running"}:
            faults.move_shards(away_from)
        time.sleep(0.5)
    raise TimeoutError(f"shards did not move: {moves}")


def kill_while_shards_move(victim: str) -> Act:
    """All shards of a worker go to the other one, and half of them come back."""

    def act(faults: Faults) -> None:
        faults.move_shards("worker_2")
        end = time.monotonic() + MOVES_TIMEOUT
        while not {"running", "done"} & set(faults.count_moves()) and time.monotonic() < end:
            time.sleep(0.1)
        faults.kill_postgres(faults.leader(victim))
        wait_for_moves(faults, "worker_2")
        faults.move_shards()
        wait_for_moves(faults)

    return act


def step_clock(group: str) -> Act:
    """An hour ahead, and back."""

    def act(faults: Faults) -> None:
        host = faults.leader(group)
        for seconds in (CLOCK_STEP, -CLOCK_STEP, 0):
            faults.step_clock(host, seconds)
            time.sleep(2 * AWAY)

    return act


def lead_with_own_clock(group: str) -> Act:
    def act(faults: Faults) -> None:
        host = faults.standby(group)
        faults.have_own_clock(host)
        faults.hand_over(group, host)

    return act


def lose_power_between_phases(group: str) -> Act:
    """All transactions of two workers have been prepared, none is decided.

    The coordinator's commit waits for its standby, which is frozen: that is the moment between
    PREPARE and COMMIT PREPARED, as long as one wants it.
    """

    def act(faults: Faults) -> None:
        standby = faults.standby("coordinator")
        faults.freeze_replication(standby)
        try:
            faults.wait_for_prepared("worker_1")
            host = faults.leader(group)
            faults.power_loss(host)
        finally:
            faults.thaw_replication(standby)
        wait_for_successor(faults, group, host)
        faults.repair()

    return act


SHORT = [
    Drill("switchover of a worker", switch("worker_1"), SWITCHOVER, errors_allowed=False),
    Drill("switchover of the coordinator", switch("coordinator"), SWITCHOVER),
    Drill("kill -9 of a worker's postgres", at_leader("kill_postgres", "worker_1"), KILLED_SERVER),
    Drill(
        "kill -9 of the coordinator's postgres",
        at_leader("kill_postgres", "coordinator"),
        KILLED_SERVER,
    ),
    Drill("power loss of a worker's primary", take_leader("power_loss", "worker_1"), POWER_LOSS),
    Drill(
        "power loss of the coordinator's primary",
        take_leader("power_loss", "coordinator"),
        POWER_LOSS,
    ),
]
LONG = [
    Drill("kill -9 of a worker's Patroni", at_leader("kill_patroni", "worker_1"), NOTHING),
    Drill(
        "kill -9 of the coordinator's Patroni", at_leader("kill_patroni", "coordinator"), NOTHING
    ),
    Drill(
        "kill -9 of a worker's Patroni and postgres",
        at_leader("kill_both", "worker_1"),
        KILLED_PATRONI,
    ),
    Drill(
        "kill -9 of the coordinator's Patroni and postgres",
        at_leader("kill_both", "coordinator"),
        KILLED_PATRONI,
    ),
    Drill("power loss of a worker's standby", take_standby("worker_1"), STANDBY_LOSS),
    Drill(
        "power loss of an etcd member",
        take_etcd(leads=False),
        STANDBY_LOSS,
        prepare=free_etcd_host(leads=False),
    ),
    Drill(
        "power loss of the etcd leader",
        take_etcd(leads=True),
        STANDBY_LOSS,
        prepare=free_etcd_host(leads=True),
    ),
    Drill(
        "partition of a worker's primary beside etcd",
        take_leader("cut_off", "worker_1"),
        PARTITION,
        prepare=let_lead_beside_etcd("worker_1"),
    ),
    Drill(
        "partition of the coordinator's primary beside etcd",
        take_leader("cut_off", "coordinator"),
        PARTITION,
        prepare=let_lead_beside_etcd("coordinator"),
    ),
    Drill(
        "a worker's primary hears nobody",
        take_leader("deafen", "worker_1"),
        DEAF,
        prepare=let_lead_beside_etcd("worker_1"),
    ),
    Drill(
        "nobody hears a worker's primary",
        take_leader("mute", "worker_1"),
        PARTITION,
        prepare=let_lead_beside_etcd("worker_1"),
    ),
    Drill(
        "replication lag, then power loss of a worker's primary",
        lose_power_while_lagging("worker_1"),
        LAGGING,
    ),
    Drill("full disk on a worker's primary", fill_disk("worker_1"), FULL + NOTHING),
    Drill(
        "full disk under the WAL of a worker's primary",
        fill_wal_disk("worker_1"),
        WAL_FULL,
        prepare=lead_with_own_wal_disk("worker_1"),
    ),
    Drill(
        "full disk under the WAL of the coordinator's primary",
        fill_wal_disk("coordinator"),
        WAL_FULL,
        prepare=lead_with_own_wal_disk("coordinator"),
    ),
    Drill(
        "clock step on a worker's primary",
        step_clock("worker_1"),
        NOTHING,
        prepare=lead_with_own_clock("worker_1"),
    ),
    Drill(
        "power loss of a worker's primary between PREPARE and COMMIT PREPARED",
        lose_power_between_phases("worker_1"),
        POWER_LOSS,
    ),
    Drill(
        "power loss of the coordinator's primary between PREPARE and COMMIT PREPARED",
        lose_power_between_phases("coordinator"),
        POWER_LOSS,
    ),
    Drill(
        "kill -9 of the source's postgres while shards move",
        kill_while_shards_move("worker_2"),
        KILLED_SERVER,
    ),
    Drill(
        "kill -9 of the target's postgres while shards move",
        kill_while_shards_move("worker_1"),
        KILLED_SERVER,
    ),
    Drill(
        "kill -9 of the coordinator's postgres while shards move",
        kill_while_shards_move("coordinator"),
        KILLED_SERVER,
    ),
    Drill("rolling restart of all servers", lambda faults: faults.rolling_restart(), SWITCHOVER),
]
