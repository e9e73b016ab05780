#!/bin/sh
# sign.sh AUTHORITY DAYS EXTENSIONS: sign the request on standard input, write the certificate to
# standard output.  The request's own wishes for extensions are not looked at.
set -eu
umask 077
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
cat >"$directory/request"
printf '%s\n' "$3" >"$directory/extensions"
openssl x509 -req -in "$directory/request" -CA "$1.crt" -CAkey "$1.key" -passin env:PASSPHRASE \
	-set_serial "0x$(openssl rand -hex 16)" -days "$2" -extfile "$directory/extensions" 2>/dev/null
