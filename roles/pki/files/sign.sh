#!/bin/sh
# sign.sh DAYS NAMES GROUP NAME:AUTHORITY:USAGE...: sign the requests on standard input, as request.sh
# writes them, and write the certificates likewise.  Authorities are in the current directory; GROUP is
# the one that is called `group`.  What requests wish for, apart from subjects, is not looked at.
set -eu
umask 077
days=$1 names=$2 group=$3
shift 3
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
# Ansible hands over what a terminal would show
tr -d '\r' >"$directory/requests"
for wanted; do
	IFS=: read -r name authority usage <<-END
		$wanted
	END
	[ "$authority" != group ] || authority=$group
	cat >"$directory/extensions" <<-END
		basicConstraints=critical,CA:FALSE
		keyUsage=critical,digitalSignature
		extendedKeyUsage=$usage
		subjectAltName=$names
	END
	echo "= $name"
	awk -v name="$name" '$1 == "=" { wanted = $2 == name; next } wanted' "$directory/requests" |
		openssl x509 -req -CA "$authority.crt" -CAkey "$authority.key" -passin env:PASSPHRASE \
			-set_serial "0x$(openssl rand -hex 16)" -days "$days" \
			-extfile "$directory/extensions" 2>/dev/null
done
