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

requirements=roles/patroni/files/requirements.txt
for wheel in "$output"/patroni-*.whl; do
	[[ -e $wheel ]] || continue
	read -r checksum _ < <(sha256sum "$wheel")
	grep -q "sha256:$checksum" "$requirements" || rm "$wheel"
done

# which is content with the right one being there
.venv/bin/python -m pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: \
	--require-hashes --requirement "$requirements" --dest "$output"
ls "$output"/patroni-*.whl
