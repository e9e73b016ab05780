#!/bin/sh
# create_authority.sh NAME DAYS: make NAME.crt and NAME.key (encrypted with $PASSPHRASE) in the
# current directory.  Python 3.13 verifies strictly: hence the critical extensions.
set -eu
umask 077
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -passout env:PASSPHRASE \
	-keyout "$1.key.new" -out "$1.crt.new" -days "$2" -subj "/CN=Strata $1" \
	-addext basicConstraints=critical,CA:TRUE,pathlen:0 \
	-addext keyUsage=critical,keyCertSign,cRLSign
mv "$1.key.new" "$1.key"
mv "$1.crt.new" "$1.crt"
