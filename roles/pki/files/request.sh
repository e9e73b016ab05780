#!/bin/sh
# request.sh NAME:SUBJECT:OWNER...: make new keys NAME.key.new here, each its owner's alone, and write
# requests for them to standard output, each below its name.  Keys never leave the host.
set -eu
umask 077
for wanted; do
	IFS=: read -r name subject owner <<-END
		$wanted
	END
	echo "= $name"
	openssl req -new -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes \
		-keyout "$name.key.new" -subj "/$subject" 2>/dev/null
	chown "$owner:" "$name.key.new"
done
