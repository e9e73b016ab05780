#!/usr/bin/env bash
# Print the PostgreSQL major version that this Debian release has.
set -euo pipefail

# shellcheck source=/dev/null
. /etc/os-release
case "${ID:-}-${VERSION_ID:-}" in
	debian-13) echo 17 ;;
	*) echo 15 ;;
esac
