#!/usr/bin/env bash
# Build the Debian package of the extensions for one PostgreSQL major version that is installed here,
# look at it with lintian, and put it into a directory.
#
# Usage: build_deb.sh MAJOR DIRECTORY VERSION TIME        (the last two as deb_version.sh prints them)
#
# Works on a copy of the sources, so the tree is left as it is.
set -euo pipefail
major=$1
mkdir -p "$2"
output=$(realpath "$2")
version=$3
export SOURCE_DATE_EPOCH=$4
cd "$(dirname "$0")/.."

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
source=$work/strata
mkdir "$source"
tar --create --exclude-vcs --exclude=./.cache --exclude=./.venv --exclude=./.strata --exclude=./dist \
	--exclude='*.o' --exclude='*.so' . | tar --extract --directory="$source"

sed "s/PGVERSION/$major/g" "$source/debian/control.in" >"$source/debian/control"
if [[ $version == *~* ]]; then
	{
		printf 'strata (%s) UNRELEASED; urgency=medium\n\n' "$version"
		printf '  * Built between releases.\n\n'
		printf ' -- %s  %s\n' \
			"$(sed -n 's/^Maintainer: //p' "$source/debian/control")" \
			"$(date -uR --date="@$SOURCE_DATE_EPOCH")"
	} >"$source/debian/changelog"
fi

(
	cd "$source"
	dpkg-buildpackage --build=binary --no-sign --jobs="$(nproc)"
) >"$work/log" 2>&1 || {
	tail -n 100 "$work/log" >&2
	exit 1
}

rm -f "$output/postgresql-$major-strata"*.deb
cp "$work/postgresql-$major-strata_"*.deb "$output"
lintian --allow-root --fail-on error "$work"/*.changes
ls "$output/postgresql-$major-strata_"*.deb
