#!/usr/bin/env bash
# Put PostgreSQL's own tests, from Debian's source package, into a directory.
#
# Usage: fetch_postgresql_tests.sh MAJOR DIRECTORY
#
# They are the files below src/test/regress and src/test/isolation: not ours, so they are taken when they are needed.
# apt gets a configuration of its own, because machines rarely have deb-src lines: the mirrors that the machine's
# sources name for this Debian release, whose signatures are checked as always.  Needs no root.
set -euo pipefail
major=$1
directory=$(realpath --canonicalize-missing "$2")
[[ ! -e $directory/complete ]] || exit 0

# shellcheck source=/dev/null
. /etc/os-release
mkdir -p "$(dirname "$directory")"
work=$(mktemp -d "$directory.XXXXXX")
trap 'rm -rf "$work"' EXIT
mkdir -p "$work"/{lists/partial,cache/archives/partial,etc,tests}

# "URL release component", as in http://deb.debian.org/debian/ bookworm main
# shellcheck disable=SC2016  # apt fills in these names
mirrors=$(apt-get indextargets --format '$(REPO_URI) $(RELEASE) $(COMPONENT)' 'Created-By: Packages' |
	awk -v suite="$VERSION_CODENAME" '$2 ~ "^" suite "(-|$)" && $3 == "main"' | sort -u)
[[ -n $mirrors ]] || mirrors="http://deb.debian.org/debian $VERSION_CODENAME main"
sed 's/^/deb-src [signed-by=\/usr\/share\/keyrings\/debian-archive-keyring.gpg] /' <<<"$mirrors" >"$work/etc/sources.list"

apt_here()
{
	local tool=$1
	shift
	"$tool" -qq -o Acquire::Retries=3 -o Dir::State::Lists="$work/lists" -o Dir::Cache="$work/cache" \
		-o Dir::Etc::SourceList="$work/etc/sources.list" -o Dir::Etc::SourceParts=/dev/null \
		-o Debug::NoLocking=true -o APT::Sandbox::User= "$@"
}

# the newest of these versions that the mirrors really have: some lag behind their own lists, or behind each other
fetch_newest()
{
	local versions=$1 version
	for _ in 1 2 3; do
		for version in $versions; do
			(cd "$work" && apt_here apt-get source --tar-only "postgresql-$major=$version") >>"$work/log" 2>&1 &&
				return
		done
		sleep 5
	done
	return 1
}

# The release before this version, which is in no list any more, but may still be in the pool: a Debian developer has signed what it is made of.
fetch_before()
{
	local version=$1 keyring=/usr/share/keyrings/debian-keyring.gpg
	local pool minor dsc sum tarball
	pool=$(head -n 1 <<<"$mirrors" | cut -d ' ' -f 1)/pool/main/p/postgresql-$major
	minor=${version#*.}
	for ((minor = ${minor%%-*} - 1; minor >= 0; minor--)); do
		dsc=postgresql-${major}_$major.$minor-${version#*-}.dsc
		fetch_file "$pool/$dsc" || continue
		gpgv --quiet --keyring "$keyring" --output "$work/signed" "$work/$dsc" || return
		read -r sum tarball < <(awk '/^Checksums-Sha256:/ { on = 1 } on && /\.orig\.tar\.[a-z0-9]+$/ { print $1, $3; exit }' "$work/signed")
		fetch_file "$pool/$tarball" "SHA256:$sum"
		return
	done
	return 1
}

# Usage: fetch_file URL [HASH]
fetch_file()
{
	apt_here /usr/lib/apt/apt-helper download-file "$1" "$work/${1##*/}" "${@:2}"
}

echo "Taking the tests of PostgreSQL $major from Debian's source package ..."
apt_here apt-get update
listed=$(apt_here apt-cache showsrc --only-source "postgresql-$major" |
	awk '$1 == "Version:" { print $2 }' | sort --version-sort --reverse --unique)
fetch_newest "$listed" || fetch_before "${listed%%$'\n'*}" >>"$work/log" 2>&1 || {
	cat "$work/log" >&2
	exit 1
}
tar -xf "$work"/postgresql-*.orig.tar.* -C "$work/tests" --strip-components=3 --wildcards \
	'*/src/test/regress/*' '*/src/test/isolation/*'
touch "$work/tests/complete"
# who was faster did the same
rm -rf "$directory"
mv "$work/tests" "$directory"
