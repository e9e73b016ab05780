#!/usr/bin/env bash
# Print our source files whose names match the find(1) expression given as arguments, each ended
# by a NUL; caches, virtual environments and clusters are left out.
set -euo pipefail
cd "$(dirname "$0")/.."

find . \( -name .git -o -name .venv -o -name .cache -o -name .strata \) -prune -o \
	-type f \( "$@" \) -print0
