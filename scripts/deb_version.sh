#!/usr/bin/env bash
# Print the version of a Debian package of the working tree, and the time of its commit.
#
# A package of a commit that is not released is versioned before the release, by the commit's time:
# apt takes the later one for an upgrade.
set -euo pipefail
cd "$(dirname "$0")/.."

version=$(sed -n "s/^default_version = '\(.*\)'/\1/p" coordinator/strata.control)
if [[ -z $(git tag --points-at HEAD "v$version") || -n $(git status --porcelain) ]]; then
	version+="~$(TZ=UTC git show -s --format=%cd --date=format-local:%Y%m%d%H%M%S HEAD)"
	version+=".$(git rev-parse --short=8 HEAD)"
	[[ -z $(git status --porcelain) ]] || version+="+$(date -u +%Y%m%d%H%M%S)"
fi
echo "$version-1 $(git show -s --format=%ct HEAD)"
