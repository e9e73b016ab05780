#!/usr/bin/env bash
# Print the PostgreSQL major version that this Debian release has; testing has no version yet.
set -euo pipefail
cd "$(dirname "$0")"

# shellcheck source=/dev/null
. /etc/os-release
version=${VERSION_ID:--}
[[ ${ID:-} == debian ]] || version=12
awk -v version="$version" '$1 ~ /^[0-9]+$/ && $3 == version { print $1; found = 1 } END { if (!found) print 15 }' releases
