#!/usr/bin/env bash
# libvirtd with directories of its own, in the mount, network and process namespaces that it is
# started in: virtual machines and networks end with this process, and the machine's own libvirtd,
# if there is one, knows nothing of them.
#
# Usage: start_libvirt.sh DIRECTORY
set -euo pipefail
directory=$1
mount -t sysfs sysfs /sys
ip link set lo up
mkdir -p /run/libvirt
for place in /etc/libvirt /run/libvirt /var/lib/libvirt /var/log/libvirt; do
	mkdir -p "$directory$place"
	mount --bind "$directory$place" "$place"
done
mkdir -p /etc/libvirt/qemu/networks /run/libvirt/{network,qemu} /var/log/libvirt/qemu \
	/var/lib/libvirt/{boot,dnsmasq,images,network,qemu}

# neither AppArmor nor cgroups nor a log daemon, which need a systemd of their own
cat >/etc/libvirt/qemu.conf <<'EOF'
namespaces = []
security_driver = "none"
cgroup_controllers = []
stdio_handler = "file"
user = "root"
group = "root"
EOF

libvirtd --pid-file /run/libvirt/libvirtd.pid &
wait
