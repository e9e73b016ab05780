#!/usr/bin/env bash
# Run one host of the lab until it is powered off; a reboot starts it again.
#
# Usage: unshare --mount --propagation slave boot_host.sh CGROUP LOWER DIRECTORY NETNS NAME OPTION...
#
# All that is mounted here is in a mount namespace of its own, so that no other host holds on to it and
# nothing has to be unmounted: when the last process of the cgroup is killed, the mounts are gone.
# systemd 256 and later want a /sys/fs/cgroup of version 2 alone.
set -euo pipefail

cgroup=$1 lower=$2 directory=$3 netns=$4 name=$5
shift 5

echo $$ >"$cgroup/cgroup.procs"
inside=/sys/fs/cgroup$(sed -n 's/^0:://p' /proc/self/cgroup)
umount --lazy /sys/fs/cgroup
mount -t cgroup2 none /sys/fs/cgroup
mount -t overlay overlay "$directory/root" \
	-o "lowerdir=$lower,upperdir=$directory/upper,workdir=$directory/work"

while true; do
	status=0
	systemd-nspawn --quiet --directory="$directory/root" --boot --register=no --keep-unit \
		--capability=CAP_NET_ADMIN --machine="$name" --hostname="$name" --network-namespace-path="/run/netns/$netns" \
		--resolv-conf=off --timezone=off --link-journal=no --console=read-only "$@" || status=$?
	# what systemd-nspawn exits with when the host asked for a reboot
	[[ $status -eq 133 ]] || exit "$status"
	# systemd 257 kills its services when it finds the groups of an earlier boot
	find "$inside" -mindepth 1 -depth -type d -exec rmdir {} +
done
