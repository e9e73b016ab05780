#!/bin/sh
# is_current.sh NAME AUTHORITY DAYS HOST ADDRESS: is NAME.crt signed by the authority, for this
# host and this key, and alive for so many days?
set -eu
openssl x509 -in "$1.crt" -noout -checkend $(($3 * 86400)) >/dev/null
openssl verify -CAfile "$2.crt" "$1.crt" >/dev/null
[ "$(openssl x509 -in "$1.crt" -noout -pubkey)" = "$(openssl pkey -in "$1.key" -pubout)" ]
openssl x509 -in "$1.crt" -noout -checkhost "$4" | grep -q 'does match'
openssl x509 -in "$1.crt" -noout -checkip "$5" | grep -q 'does match'
