#!/usr/bin/env bash
# Build the libraries once more, with assertions and fault points, into .cache/assert/lib.
#
# They are for tests, which copy them into a cluster's root (make_cluster(assertions=True));
# nothing is installed.  The compiler works in a tree of links to the sources, so that its objects do
# not meet those of the ordinary build.
set -euo pipefail
cd "$(dirname "$0")/.."

root=$PWD/.cache/assert
tree=$root/build
mkdir -p "$tree" "$root/lib"
find "$tree" -xtype l -delete
while IFS= read -r file; do
	[[ -e $tree/$file ]] && continue
	mkdir -p "$tree/$(dirname "$file")"
	ln -s "$PWD/$file" "$tree/$file"
done < <(find coordinator extensions -name '*.[ch]' -o -name Makefile -o -name '*.mk' -o -path '*/sql/*.sql')

for library in extensions/columnar/strata_columnar coordinator/strata; do
	make -s -j"$(nproc)" -C "$tree/$(dirname "$library")" "$(basename "$library").so" \
		PG_CONFIG="$PG_CONFIG" COPT='-DUSE_ASSERT_CHECKING -DSTRATA_FAULT_POINTS'
	cmp -s "$tree/$library.so" "$root/lib/$(basename "$library").so" ||
		install -m 755 "$tree/$library.so" "$root/lib/"
done
