#!/bin/sh
# use.sh NAME...: put the certificates in file `signed`, as sign.sh writes them, and their new keys in
# the place of the old ones.
set -eu
umask 022
for name; do
	awk -v name="$name" '$1 == "=" { wanted = $2 == name; next } wanted' signed >"$name.crt.new"
	mv "$name.key.new" "$name.key"
	mv "$name.crt.new" "$name.crt"
done
rm signed
