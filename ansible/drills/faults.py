"""What a drill may do to a cluster.

`Faults` is all that drills know of the hosts: lab_faults.py does it in the lab; another environment
(virtual machines, a cloud) is another class of this shape.
"""

from __future__ import annotations

from typing import Protocol


class NoLeaderError(Exception):
    """No host of the group takes writes."""


class Faults(Protocol):
    """Groups are Ansible's: coordinator, worker_1, ...  Hosts are names of the inventory."""

    # ---- looking ---------------------------------------------------------------------------------

    def client_command(self, arguments: list[str]) -> list[str]:
        """A command line that runs a program where clients are."""

    def groups(self) -> list[str]:
        """The coordinator and the workers."""

    def hosts(self, group: str) -> list[str]:
        """Of a group, or of "etcd"."""

    def leader(self, group: str, besides: str = "") -> str:
        """The host of the group whose server takes writes; `besides`: another one than this."""

    def standby(self, group: str) -> str:
        """A host of the group that does not lead."""

    def etcd_leader(self) -> str: ...

    def is_redundant(self) -> bool:
        """Has each group a primary, all its other hosts as standbys, one of them synchronous; is
        every member of etcd there?"""

    def wait_for_prepared(self, group: str) -> None:
        """Until the group's server has transactions of the coordinator prepared."""

    # ---- what administrators do ------------------------------------------------------------------

    def switchover(self, group: str) -> None:
        """Make another host of the group the primary, as an administrator would."""

    def hand_over(self, group: str, host: str) -> None:
        """Make this host the primary, if it is not, in whatever way."""

    def copy_anew(self, host: str) -> None:
        """Throw away what a standby has, and copy its primary."""

    def move_shards(self, away_from: str = "") -> None:
        """Begin to move all shards away from a worker, or to have all workers hold the same."""

    def count_moves(self) -> dict[str, int]:
        """The moves that were begun last, by what became of them; none if the coordinator does not answer."""

    def rolling_restart(self) -> None:
        """Restart all servers, as an administrator would."""

    # ---- faults ----------------------------------------------------------------------------------

    def kill_postgres(self, host: str) -> None:
        """kill -9 of the server and all its processes."""

    def kill_patroni(self, host: str) -> None:
        """kill -9 of Patroni alone."""

    def kill_both(self, host: str) -> None:
        """kill -9 of Patroni and of the server."""

    def power_loss(self, host: str) -> None:
        """It says no word more, not even that it goes."""

    def cut_off(self, host: str) -> None:
        """Nothing goes in or out."""

    def deafen(self, host: str) -> None:
        """Nothing goes in."""

    def mute(self, host: str) -> None:
        """Nothing goes out."""

    def cut_between(self, host: str, other: str) -> None:
        """Two hosts do not reach each other; all others do."""

    def freeze_replication(self, standby: str) -> None:
        """The standby stays connected and confirms nothing."""

    def thaw_replication(self, standby: str) -> None: ...

    def fill_disk(self, host: str) -> None:
        """Of the database's tablespace."""

    def free_disk(self, host: str) -> None: ...

    def have_own_wal_disk(self, host: str) -> None:
        """Let a standby's WAL be on a disk that can be filled alone; its server restarts."""

    def fill_wal_disk(self, host: str) -> None:
        """And begin new WAL files until the server finds no room for one."""

    def have_own_clock(self, host: str) -> None:
        """Let the host's clock be stepped from now on; its server restarts."""

    def step_clock(self, host: str, seconds: int) -> None:
        """This far from the right time."""

    # ---- repair ----------------------------------------------------------------------------------

    def heal_network(self) -> None:
        """All hosts that are on reach each other."""

    def repair(self) -> None:
        """Whatever was done: all hosts are on, reach each other, and have room and time."""

    def undo_preparations(self) -> None:
        """Hosts have no clock and no disk of their own any more; their servers restart."""
