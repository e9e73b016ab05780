#!/bin/sh
# request.sh NAME SUBJECT: make a new key NAME.key.new here and write a request for it to standard
# output.  The key never leaves the host.
set -eu
umask 077
openssl req -new -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes \
	-keyout "$1.key.new" -subj "/CN=$2"
