#!/usr/bin/env bash
# Every check that needs no server: the C code compiles without warnings against every PostgreSQL
# of scripts/releases but the one that make build compiles it against, and all sources are formatted
# and free of what the linters know.
# All checks run, also after one that failed.
set -euo pipefail
cd "$(dirname "$0")/.."

bin=.venv/bin
own=${PG_MAJOR:-$(scripts/postgresql_major.sh)}
lines_at_most=800
failed=()

check()
{
	local name=$1
	shift
	local start=${EPOCHREALTIME/[.,]/}
	if "$@"; then
		printf '  %-34s ok %5d ms\n' "$name" $(((${EPOCHREALTIME/[.,]/} - start) / 1000))
	else
		printf '  %-34s FAILED\n' "$name"
		failed+=("$name")
	fi
}

compile()
{
	local major=$1
	local directories
	directories=$(scripts/postgresql_headers.sh "$major") || return
	make -s -k -j"$(nproc)" -f scripts/compile.mk all OUT=".cache/lint/$major" \
		INCLUDES="-isystem ${directories//$'\n'/ -isystem }"
}

c_format()
{
	scripts/sources.sh -name '*.[ch]' |
		xargs -0 -n 16 -P "$(nproc)" "$bin/clang-format" --dry-run -Werror
}

# A longer file is two.
length()
{
	scripts/sources.sh -name '*.[ch]' -o -name '*.py' -o -name '*.sh' | xargs -0 wc -l |
		awk -v most="$lines_at_most" '$1 > most && $2 != "total" { print $2 ": " $1 " lines"; long = 1 } END { exit long }'
}

shell()
{
	scripts/sources.sh -name '*.sh' -o -path './.ci/run' | xargs -0 shellcheck
}

echo "lint"
# the longest, in one process, beside the compilations
ansible=$(mktemp)
trap 'rm -f "$ansible"' EXIT
PATH="$PWD/$bin:$PATH" ansible-lint -q --strict >"$ansible" 2>&1 &
ansible_lint=$!

ansible()
{
	wait "$ansible_lint" || { cat "$ansible" && return 1; }
}

mapfile -t majors < <(awk '$1 ~ /^[0-9]+$/ { print $1 }' scripts/releases)
for major in "${majors[@]}"; do
	[[ $major != "$own" ]] || continue
	check "C against PostgreSQL $major" compile "$major"
done
check "layers of includes" "$bin/python" scripts/check_layers.py
check "files of at most $lines_at_most lines" length
check "clang-format" c_format
check "ruff" "$bin/ruff" check --quiet .
check "ruff format" "$bin/ruff" format --check --quiet .
check "shellcheck" shell
check "yamllint" "$bin/yamllint" --strict .
check "ansible-lint" ansible

if [[ ${#failed[@]} -gt 0 ]]; then
	echo "lint failed: ${failed[*]} (make format repairs formats)" >&2
	exit 1
fi
