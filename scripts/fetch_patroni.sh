#!/usr/bin/env bash
# Put the Patroni that hosts of Debian 12 get, a wheel from PyPI, into a directory.
#
# Usage: fetch_patroni.sh DIRECTORY
#
# Version and checksum are in roles/patroni/files/requirements.txt.
set -euo pipefail
mkdir -p "$1"
output=$(realpath "$1")
cd "$(dirname "$0")/.."

fresh=$(mktemp -d)
trap 'rm -rf "$fresh"' EXIT
.venv/bin/python -m pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: \
	--require-hashes --requirement roles/patroni/files/requirements.txt --dest "$fresh"
rm -f "$output"/patroni-*.whl
cp "$fresh"/patroni-*.whl "$output"
ls "$output"/patroni-*.whl
