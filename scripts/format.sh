#!/usr/bin/env bash
# Format the C and Python sources in place.
set -euo pipefail
cd "$(dirname "$0")/.."

scripts/sources.sh -name '*.[ch]' | xargs -0 --no-run-if-empty .venv/bin/clang-format -i
.venv/bin/ruff check --quiet --fix --exit-zero .
.venv/bin/ruff format --quiet .
