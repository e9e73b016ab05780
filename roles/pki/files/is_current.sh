#!/bin/sh
# is_current.sh DAYS HOST ADDRESS NAME:AUTHORITY:SUBJECT...: write the names of those certificates
# here that are not signed by their authority, for this host, subject and key, and alive for so many
# days.
set -eu
days=$1 host=$2 address=$3
shift 3

is_current()
{
	openssl x509 -in "$1.crt" -noout -checkend $((days * 86400)) >/dev/null &&
		openssl verify -CAfile "$2.crt" "$1.crt" >/dev/null &&
		[ "$(openssl x509 -in "$1.crt" -noout -pubkey)" = "$(openssl pkey -in "$1.key" -pubout)" ] &&
		[ "$(openssl x509 -in "$1.crt" -noout -subject -nameopt RFC2253)" = "subject=$3" ] &&
		openssl x509 -in "$1.crt" -noout -checkhost "$host" | grep -q 'does match' &&
		openssl x509 -in "$1.crt" -noout -checkip "$address" | grep -q 'does match'
}

for wanted; do
	IFS=: read -r name authority subject <<-END
		$wanted
	END
	is_current "$name" "$authority" "$subject" 2>/dev/null || echo "$name"
done
