#!/usr/bin/env bash
# Every check that needs no server: the C code compiles without warnings against every PostgreSQL
# of scripts/releases but the one that make build compiles it against, and all sources are formatted
# and free of what the linters know.
# With majors as arguments: only that the C code compiles against these, also before they are in scripts/releases.
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
	local directories flags=
	directories=$(scripts/postgresql_headers.sh "$major") || return
	# what headers for newer compilers call so, gcc has since 14
	[[ $major -lt 19 ]] || flags=-Dtypeof_unqual=__typeof__
	make -s -k -j"$(nproc)" -f scripts/compile.mk all OUT=".cache/lint/$major" \
		INCLUDES="$flags -isystem ${directories//$'\n'/ -isystem }"
}

compile_against()
{
	local major
	for major in "$@"; do
		check "C against PostgreSQL $major" compile "$major"
	done
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

ansible()
{
	wait "$ansible_lint" || { cat "$ansible" && return 1; }
}

everything()
{
	# the longest, in one process, beside the compilations
	ansible=$(mktemp)
	trap 'rm -f "$ansible"' EXIT
	PATH="$PWD/$bin:$PATH" ansible-lint -q --strict >"$ansible" 2>&1 &
	ansible_lint=$!

	local majors
	mapfile -t majors < <(awk -v own="$own" '$1 ~ /^[0-9]+$/ && $1 != own { print $1 }' scripts/releases)
	compile_against "${majors[@]}"
	check "layers of includes" "$bin/python" scripts/check_layers.py
	check "files of at most $lines_at_most lines" length
	check "clang-format" c_format
	check "ruff" "$bin/ruff" check --quiet .
	check "ruff format" "$bin/ruff" format --check --quiet .
	check "shellcheck" shell
	check "yamllint" "$bin/yamllint" --strict .
	check "ansible-lint" ansible
}

echo "lint"
if [[ $# -gt 0 ]]; then
	compile_against "$@"
else
	everything
fi
if [[ ${#failed[@]} -gt 0 ]]; then
	echo "lint failed: ${failed[*]} (make format repairs formats)" >&2
	exit 1
fi
