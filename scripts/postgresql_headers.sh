#!/usr/bin/env bash
# Print the include directories of a PostgreSQL major version, one per line.
#
# An installed version is taken as it is.  Another one's headers are downloaded from the Debian
# release that has it - experimental, if it is not in scripts/releases - and with them those of that
# release's C library (a configured header of PostgreSQL says what the C library declares): by apt,
# with signatures checked, from the mirror this machine is configured for.  They are unpacked below
# .cache/, not installed.
set -euo pipefail
cd "$(dirname "$0")/.."

major=$1
installed=/usr/lib/postgresql/$major/bin/pg_config
if [[ -x $installed && -d $("$installed" --includedir-server) ]]; then
	"$installed" --includedir-server
	"$installed" --includedir
	exit 0
fi

# experimental has only what testing has not
mapfile -t suites < <(awk -v major="$major" '$1 == major { print $2; found = 1 }
	END { if (!found) print "testing\nexperimental" }' scripts/releases)
cache=$PWD/.cache/pg$major
include=$cache/root/usr/include/postgresql

debian_mirror()
{
	# shellcheck disable=SC2016 # apt fills in the fields, not the shell
	apt-get indextargets --format '$(REPO_URI) $(RELEASE)' \
		'Created-By: Packages' 'Component: main' 'Origin: Debian' 'Label: Debian' |
		awk '$2 !~ /-/ { print $1; exit }'
}

if [[ ! -e $cache/complete ]]; then
	echo "Downloading the headers of PostgreSQL $major ..." >&2
	rm -rf "$cache"
	mkdir -p "$cache"/{lists/partial,archives/partial,root}
	mirror=$(debian_mirror)
	if [[ -z $mirror ]]; then
		if [[ $EUID -eq 0 ]]; then apt-get -qq update >&2; else sudo apt-get -qq update >&2; fi
		mirror=$(debian_mirror)
	fi
	[[ -n $mirror ]] || { echo "apt knows no Debian mirror" >&2 && exit 1; }
	keyring=$(find /usr/share/keyrings -name 'debian-archive-keyring.*' | sort | head -n 1)
	printf "deb [signed-by=$keyring] $mirror %s main\n" "${suites[@]}" >"$cache/sources.list"
	private=(
		-qq -o Dir::Etc::sourcelist="$cache/sources.list" -o Dir::Etc::sourceparts=/dev/null
		-o Dir::Etc::preferencesparts=/dev/null -o Dir::State::status=/dev/null
		-o Dir::State::lists="$cache/lists" -o Dir::Cache="$cache" -o APT::Sandbox::User=root
		-o Acquire::Languages=none -o Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false
	)
	apt-get "${private[@]}" update >&2
	(cd "$cache" && apt-get "${private[@]}" download "postgresql-server-dev-$major" \
		libpq-dev libc6-dev linux-libc-dev >&2)
	for package in "$cache"/*.deb; do
		dpkg -x "$package" "$cache/root"
	done
	[[ -e $include/$major/server/postgres.h ]]
	rm -rf "$cache"/lists "$cache"/archives "$cache"/*.bin "$cache"/*.deb
	touch "$cache/complete"
fi
echo "$include/$major/server"
echo "$include"
echo "$cache/root/usr/include/$(gcc -print-multiarch)"
echo "$cache/root/usr/include"
