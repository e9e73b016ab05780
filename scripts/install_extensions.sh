#!/usr/bin/env bash
# Install the built extensions named as arguments into PostgreSQL's directories.
#
# They are installed below .cache/stage first and compared with what the system has: only a file
# that differs is copied, so that an unchanged tree needs no root and no sudo.  A library is
# replaced, never overwritten: servers that run have the old one mapped.
set -euo pipefail
cd "$(dirname "$0")/.."

stage=$PWD/.cache/stage
rm -rf "$stage"
mkdir -p "$stage"
for extension in "$@"; do
	make -s -C "$extension" install DESTDIR="$stage" PG_CONFIG="$PG_CONFIG" >/dev/null
done

changed=()
while IFS= read -r -d '' file; do
	cmp -s "$file" "${file#"$stage"}" || changed+=("${file#"$stage"}")
done < <(find "$stage" -type f -print0)
[[ ${#changed[@]} -gt 0 ]] || exit 0

sudo=()
[[ $EUID -eq 0 ]] || sudo=(sudo)
echo "Installing ${#changed[@]} files into $("$PG_CONFIG" --sharedir) and $("$PG_CONFIG" --pkglibdir)"
for file in "${changed[@]}"; do
	mode=644
	[[ $file == *.so ]] && mode=755
	"${sudo[@]}" install -D --mode="$mode" "$stage$file" "$file"
done
