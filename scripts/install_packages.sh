#!/usr/bin/env bash
# Install the Debian packages that building, running and testing Strata needs; or, named as the
# argument, those that only the lab of real hosts (lab), virtual machines (virtual) or building Debian
# packages (deb) need.
#
# Asks dpkg first, so that nothing happens (and no sudo is needed) when all are there.
# PostgreSQL's packages would make and start a server "main" at their first installation; nobody
# asked for that, so it is switched off while they are installed, and only then.
set -euo pipefail

case ${1:-build} in
	build)
		major=${PG_MAJOR:?is set by the Makefile}
		packages=(
			"postgresql-$major" "postgresql-client-$major" "postgresql-server-dev-$major"
			"postgresql-$major-hll" "postgresql-$major-partman"
			build-essential libpq-dev libicu-dev libkrb5-dev libssl-dev liblz4-dev libzstd-dev
			python3 python3-venv ca-certificates shellcheck
		)
		;;
	lab)
		packages=(
			mmdebstrap systemd-container iproute2 iptables socat openssh-client util-linux mount
			python3 python3-venv ca-certificates debian-archive-keyring vagrant vagrant-libvirt
		)
		;;
	virtual)
		packages=(qemu-system-x86 qemu-utils libvirt-daemon-system libvirt-clients dnsmasq-base)
		;;
	deb)
		packages=(debhelper fakeroot lintian)
		;;
	*)
		echo "usage: $0 [build|lab|virtual|deb]" >&2
		exit 1
		;;
esac

is_installed()
{
	[[ $(dpkg-query --show --showformat='${db:Status-Status}' "$1" 2>/dev/null) == installed ]]
}

as_root()
{
	if [[ $EUID -eq 0 ]]; then
		"$@"
	elif command -v sudo >/dev/null; then
		sudo "$@"
	else
		echo "Debian packages are missing (${missing[*]}): run this as root, or install sudo." >&2
		exit 1
	fi
}

apt_get()
{
	as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=300 "$@"
}

install()
{
	apt_get install --yes --no-install-recommends "$@" >"$log" 2>&1 || {
		cat "$log" >&2
		exit 1
	}
}

missing=()
for package in "${packages[@]}"; do
	is_installed "$package" || missing+=("$package")
done
[[ ${#missing[@]} -gt 0 ]] || exit 0

log=$(mktemp)
trap 'rm -f "$log"' EXIT
echo "Installing Debian packages: ${missing[*]} ..."
apt_get update

configuration=/etc/postgresql-common/createcluster.conf
if [[ ${1:-build} != build ]] || is_installed postgresql-common; then
	install "${missing[@]}"
else
	install postgresql-common
	as_root cp -p "$configuration" "$configuration.strata"
	trap 'rm -f "$log"; as_root mv "$configuration.strata" "$configuration"' EXIT
	as_root sed -i 's/^#\?create_main_cluster *=.*/create_main_cluster = false/' "$configuration"
	install "${missing[@]}"
fi
